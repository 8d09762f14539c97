//! The end of the log, as a number in the tree and beside it.
//!
//! sled opens a damaged file by ending its log at the damage: fewer records, or none, and no error. So every commit writes its number into the
//! tree, and once it is durable also into a file beside it. A tree with a smaller number than that file has lost
//! something it had answered for, and dwell does not go on as if nothing had happened.

use std::io;
use std::path::Path;

use sled::{Batch, Tree};

use super::keys;
use crate::platform::disk::MarkerFile;

/// The file beside the tree.
const NAME: &str = "commits";

/// Number of the last commit, and the file that says so.
#[derive(Debug)]
pub(super) struct Tail {
    mark: MarkerFile,
    number: u64,
}

/// What the tree and the file say about each other.
pub(super) enum Checked {
    /// The tree has all that the file knows of.
    Whole(Tail),
    /// The tree has lost its last commits, so many of them.
    Lost(u64),
}

impl Tail {
    /// Compares the tree with the file beside it. A file that is missing, or torn by a power cut, says nothing.
    pub(super) fn check(tree: &Tree, dir: &Path) -> io::Result<Checked> {
        let (mark, known) = MarkerFile::open(&dir.join(NAME))?;
        let stored = tree.get(keys::commits()).map_err(io::Error::other)?;
        let number = stored.and_then(|bytes| bytes.as_ref().try_into().ok()).map_or(0, u64::from_be_bytes);
        match known {
            Some(known) if known > number => Ok(Checked::Lost(known - number)),
            _ => Ok(Checked::Whole(Tail { mark, number })),
        }
    }

    /// The number of the next commit, to be applied before the tree is synced.
    pub(super) fn begin(&mut self) -> Batch {
        self.number += 1;
        let mut batch = Batch::default();
        batch.insert(keys::commits(), &self.number.to_be_bytes());
        batch
    }

    /// Writes the number beside the tree, which is durable now. The file itself need not be: an older number is true too.
    pub(super) fn end(&self) -> io::Result<()> {
        self.mark.set(self.number)
    }
}
