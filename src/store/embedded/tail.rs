//! The end of the log, as a number in the tree and beside it.
//!
//! sled opens a damaged file by ending its log at the damage: fewer records, or none, and no error. So every commit writes its number into the
//! tree, and once it is durable also into a file beside it. A tree with a smaller number than that file has lost
//! something it had answered for, and dwell does not go on as if nothing had happened.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use sled::Tree;

use super::keys;

/// The file beside the tree: `number (8 bytes, big endian) | crc32 of it (4)`.
const NAME: &str = "commits";

/// Number of the last commit, and the file that says so.
#[derive(Debug)]
pub(super) struct Tail {
    file: File,
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
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(dir.join(NAME))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let stored = tree.get(keys::commits()).map_err(io::Error::other)?;
        let number = stored.and_then(|bytes| bytes.as_ref().try_into().ok()).map_or(0, u64::from_be_bytes);
        match read(&bytes) {
            Some(known) if known > number => Ok(Checked::Lost(known - number)),
            _ => Ok(Checked::Whole(Tail { file, number })),
        }
    }

    /// Numbers the next commit in the tree. To be called before the tree is synced.
    pub(super) fn begin(&mut self, tree: &Tree) -> sled::Result<()> {
        self.number += 1;
        tree.insert(keys::commits(), &self.number.to_be_bytes()).map(|_| ())
    }

    /// Writes the number beside the tree, which is durable now. The file itself need not be: an older number is true too.
    pub(super) fn end(&self) -> io::Result<()> {
        let number = self.number.to_be_bytes();
        self.file.write_all_at(&[&number[..], &crc32fast::hash(&number).to_be_bytes()].concat(), 0)
    }
}

fn read(bytes: &[u8]) -> Option<u64> {
    let (number, sum) = bytes.split_first_chunk::<8>()?;
    (sum == crc32fast::hash(number).to_be_bytes()).then_some(u64::from_be_bytes(*number))
}
