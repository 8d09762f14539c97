//! What lies in the directory of a log, seen from outside: nothing is locked, opened or written, so another process may be
//! using it meanwhile.

use std::io;
use std::path::Path;

use super::directory::{DONE, Note, read_note};
use super::segment::Segment;
use crate::platform::disk::{MarkerFile, lock_holder};

/// What was seen. It may be older than what the process that has the log knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Records that wait, as the marks beside them say; cancelled ones among them.
    pub records: u64,
    /// Bytes of the segments on disk.
    pub bytes: u64,
    /// Which store they are for, if that was noted.
    pub store_identity: Option<String>,
    /// Segments that were set aside because they are damaged.
    pub set_aside: u64,
    /// The process that has the log, if one is seen to.
    pub holder: Option<u32>,
}

impl Inspection {
    /// Looks at a directory; `None` when there is none.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn of(dir: &Path) -> io::Result<Option<Inspection>> {
        let entries = match std::fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut survey = Inspection { holder: lock_holder(dir), ..Inspection::default() };
        let mut firsts = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            let name = name.to_str().unwrap_or_default();
            firsts.extend(Segment::first_of(name));
            survey.set_aside += u64::from(name.contains(".damaged-"));
        }
        firsts.sort_unstable();
        let done = MarkerFile::peek(&dir.join(DONE))?.unwrap_or(0);
        for (at, first) in firsts.iter().enumerate() {
            let segment = Segment::found(dir, *first, firsts.get(at + 1).copied());
            survey.records += segment.waiting(done);
            survey.bytes += segment.bytes();
        }
        survey.store_identity = read_note(dir, Note::StoreIdentity);
        Ok(Some(survey))
    }
}
