//! The directory of a log: the lock on it, what is done, small notes, a reserve of space, and a look from outside.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::{FlockOperation, flock};

use super::record_batch::Position;
use super::segment::Segment;
use crate::codec::LOG_FORMAT;
use crate::model::error::{Error, Kind, Result};
use crate::platform::disk::{MarkerFile, ReserveFile, lock_holder, make_private_directory, replace, sync_file};

const DONE: &str = "done";

/// Bytes that are given up when the disk is so full that a segment cannot even be opened to be drained.
const RESERVE_BYTES: u64 = 4 * 1024 * 1024;

const TRIMMED: &str = "trimmed";

/// The highest format of what may be in the log.
const FORMAT: &str = "format";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Note {
    StoreIdentity,
    /// The name of the log to the store, which remembers how far it was replayed; and its earlier ones, each with the
    /// number of the last record that may have been handed over under it.
    LogId,
    Clock,
}

impl Note {
    fn name(self) -> &'static str {
        match self {
            Note::StoreIdentity => "store-identity",
            Note::LogId => "log-id",
            Note::Clock => "clock-offset",
        }
    }
}

/// A directory that this process alone has, until it is dropped.
#[derive(Debug)]
pub(super) struct Directory {
    dir: PathBuf,
    done: MarkerFile,
    says_format: bool,
    _lock: Lock,
}

/// The lock on a directory. It ends on drop even if a child has inherited the file, which would keep the lock.
#[derive(Debug)]
struct Lock(File);

impl Lock {
    fn take(dir: &Path) -> io::Result<Option<Lock>> {
        let file = File::open(dir)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file, which follows, unlocks it too unless it was inherited.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl Directory {
    /// Takes the directory, making it if it is not there, and reads the number through which everything is done.
    /// Errors: `Conflict` when another process has it, `Unavailable` when the disk does not let it.
    pub(super) fn take(dir: &Path) -> Result<(Directory, u64)> {
        let unavailable = |error: io::Error| failed(dir, &error);
        make_private_directory(dir).map_err(unavailable)?;
        let Some(lock) = Lock::take(dir).map_err(unavailable)? else {
            let place = dir.display();
            let detail = format!("another dwell uses the log in {place}: stop it, or use another --data-dir");
            return Err(Error::new(Kind::Conflict, detail));
        };
        let (mark, done) = MarkerFile::open(&dir.join(DONE)).map_err(unavailable)?;
        Ok((Directory { dir: dir.to_owned(), done: mark, says_format: false, _lock: lock }, done.unwrap_or(0)))
    }

    /// Refuses a log that a newer version wrote: this one would skip what it cannot read. Errors: `Conflict`.
    pub(super) fn check_format(&mut self) -> Result<()> {
        let format = read_note(&self.dir, FORMAT).and_then(|format| format.parse::<u32>().ok());
        if format.is_some_and(|format| format > LOG_FORMAT) {
            let place = self.dir.display();
            let detail = format!(
                "a newer dwell wrote the log in {place}, and this one cannot read all of it: start the newer one again, and stop \
                 it once the log is empty"
            );
            return Err(Error::new(Kind::Conflict, detail));
        }
        self.says_format = format == Some(LOG_FORMAT);
        Ok(())
    }

    /// Before a record is written that an older version cannot read.
    pub(super) fn write_format(&mut self) -> Result<()> {
        if !self.says_format {
            self.write_note(FORMAT, &LOG_FORMAT.to_string())?;
            self.says_format = true;
        }
        Ok(())
    }

    /// An empty log has no format: any version may open it.
    pub(super) fn forget_format(&self) {
        let _ = std::fs::remove_file(self.dir.join(FORMAT));
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The first numbers of the segments, in order. Finishes deletions that were cut short.
    pub(super) fn segments(&self) -> Result<Vec<u64>> {
        let mut firsts = Vec::new();
        for entry in std::fs::read_dir(&self.dir).map_err(|error| failed(&self.dir, &error))? {
            let path = entry.map_err(|error| failed(&self.dir, &error))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            firsts.extend(Segment::first_of(name));
            if path.extension().is_some_and(|ending| ending == TRIMMED) {
                // The next start tries again to delete the rest.
                let _ = sync_file(&self.dir).and_then(|()| std::fs::remove_dir_all(&path));
            }
        }
        firsts.sort_unstable();
        Ok(firsts)
    }

    pub(super) fn set_done(&self, done: u64) -> Result<()> {
        self.done.set(done).map_err(|error| failed(&self.dir, &error))
    }

    /// Deletes a closed segment. The number of the last record that is done is durable before, so a missing segment was lost, not deleted.
    /// Its new name is durable before its files go: a power cut that left it without its seal would let records behind that count. If it
    /// cannot be made durable, the next start removes it.
    pub(super) fn delete(&self, segment: &Path) -> Result<()> {
        let delete = || {
            self.done.sync()?;
            let trimmed = segment.with_extension(TRIMMED);
            std::fs::rename(segment, &trimmed)?;
            sync_file(&self.dir).map_or(Ok(()), |()| std::fs::remove_dir_all(&trimmed))
        };
        delete().map_err(|error| failed(segment, &error))
    }

    /// Renames a closed segment so that it is not looked at again, and answers its new name.
    pub(super) fn set_aside(&self, segment: &Path) -> Result<PathBuf> {
        let aside = |number: u32| segment.with_extension(format!("damaged-{number}"));
        let free = (1..).map(aside).find(|path| !path.exists()).unwrap_or_else(|| aside(0));
        std::fs::rename(segment, &free).and_then(|()| sync_file(&self.dir)).map_err(|error| failed(segment, &error))?;
        Ok(free)
    }

    pub(super) fn keep_reserve(&self, disk_reserve_bytes: u64) {
        self.reserve().keep(disk_reserve_bytes);
    }

    pub(super) fn give_reserve(&self) -> bool {
        self.reserve().give()
    }

    fn reserve(&self) -> ReserveFile {
        ReserveFile::new(&self.dir, RESERVE_BYTES)
    }

    pub(super) fn set_note(&self, note: Note, text: &str) -> Result<()> {
        self.write_note(note.name(), text)
    }

    fn write_note(&self, name: &str, text: &str) -> Result<()> {
        let path = self.dir.join(name);
        let bytes = [&crc32fast::hash(text.as_bytes()).to_be_bytes(), text.as_bytes()].concat();
        replace(&path, &bytes).map_err(|error| failed(&path, &error))
    }

    pub(super) fn note(&self, note: Note) -> Option<String> {
        read_note(&self.dir, note.name())
    }
}

/// A note in the directory of a log, whoever has it; `None` when it was never set, or is not what was set.
fn read_note(dir: &Path, name: &str) -> Option<String> {
    let path = dir.join(name);
    let bytes = std::fs::read(&path).ok()?;
    let text = bytes.split_first_chunk::<4>().filter(|(sum, text)| crc32fast::hash(text).to_be_bytes() == **sum);
    let text = text.and_then(|(_, text)| String::from_utf8(text.to_vec()).ok());
    if text.is_none() {
        tracing::error!(file = %path.display(), "a note of the log is damaged: ignored");
    }
    text
}

fn failed(path: &Path, error: &io::Error) -> Error {
    Error::unavailable(format!("the log in {}: {error}", path.display()))
}

/// The name of a log, and those it had before, the oldest first. It takes another one when records are handed over, so
/// that how far it was replayed under the first one never says more than it did then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) now: String,
    before: Vec<Before>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Before {
    name: String,
    through: u64,
}

impl Names {
    pub(super) fn new() -> Names {
        Names { now: ulid::Ulid::new().to_string(), before: Vec::new() }
    }

    /// With another name, once the records from `first` through `end` may have been handed over under this one.
    pub(super) fn followed(self, first: Position, end: Position) -> Names {
        let Names { now: name, mut before } = self;
        before.retain(|before| before.through >= first.number());
        before.push(Before { name, through: end.number() });
        Names { before, ..Names::new() }
    }

    /// The name under which a record may have been handed over first.
    pub(super) fn handed_over_under(&self, at: Position) -> Option<String> {
        let before = self.before.iter().find(|before| at.number() <= before.through)?;
        Some(before.name.clone())
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.now)?;
        self.before.iter().try_for_each(|Before { name, through }| write!(f, " {name}:{through}"))
    }
}

impl FromStr for Names {
    type Err = ();

    fn from_str(text: &str) -> Result<Names, ()> {
        let mut words = text.split(' ');
        let now = words.next().filter(|name| !name.is_empty()).ok_or(())?.to_owned();
        let before = |word: &str| {
            let (name, through) = word.split_once(':')?;
            Some(Before { name: name.to_owned(), through: through.parse().ok()? })
        };
        let before = words.map(before).collect::<Option<_>>().ok_or(())?;
        Ok(Names { now, before })
    }
}

/// The directory of a log, seen from outside: nothing is locked, opened or written, so another process may be using it.
/// It may be older than what that process knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Records that wait, as the marks beside them say; cancelled ones among them.
    pub records: u64,
    pub bytes: u64,
    pub store_identity: Option<String>,
    /// Segments that were set aside because they are damaged.
    pub set_aside: u64,
    pub holder: Option<u32>,
}

impl Inspection {
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
        survey.store_identity = read_note(dir, Note::StoreIdentity.name());
        Ok(Some(survey))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_ends_despite_a_forked_file_descriptor() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let lock = Lock::take(dir.path())?.ok_or("it is locked")?;
        // The same open file, as a child has it between fork and exec.
        let inherited = lock.0.try_clone()?;
        assert!(Lock::take(dir.path())?.is_none(), "one lock at a time");
        drop(lock);
        assert!(Lock::take(dir.path())?.is_some());
        drop(inherited);
        Ok(())
    }

    #[test]
    fn record_keeps_its_first_hand_over_name() {
        let first = Names::new();
        assert_eq!(first.handed_over_under(Position(1)), None);
        let second = first.clone().followed(Position(1), Position(7));
        let third = second.clone().followed(Position(7), Position(9));
        assert!(first.now != second.now && second.now != third.now);
        let under = |number| third.handed_over_under(Position(number));
        assert_eq!((under(7), under(8), under(10)), (Some(first.now.clone()), Some(second.now.clone()), None));
        let fourth = third.clone().followed(Position(10), Position(10));
        assert_eq!(fourth.handed_over_under(Position(9)), Some(third.now.clone()));
        for names in [first, third] {
            assert_eq!(names.to_string().parse(), Ok(names));
        }
        assert_eq!(("".parse::<Names>(), "a b".parse::<Names>()), (Err(()), Err(())));
    }
}
