//! A number in a small file, rewritten in place, so that writing it again needs no space on the disk.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::open_or_create;

/// The file: `number (8 bytes, big endian) | crc32 of it (4)`. It lies within one sector, so a power cut leaves the older
/// number or the newer one.
#[derive(Debug)]
pub(crate) struct MarkerFile {
    file: File,
}

impl MarkerFile {
    /// Opens a mark, making an empty one if there is none, and reads it: `None` when it is empty or not what was written.
    pub(crate) fn open(path: &Path) -> io::Result<(MarkerFile, Option<u64>)> {
        let mut file = open_or_create(path)?;
        let number = read(&mut file)?;
        Ok((MarkerFile { file }, number))
    }

    /// Reads a mark that may not be there, writing nothing.
    pub(crate) fn peek(path: &Path) -> io::Result<Option<u64>> {
        match File::open(path) {
            Ok(mut file) => read(&mut file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces the number. It survives the death of the process.
    pub(crate) fn set(&self, number: u64) -> io::Result<()> {
        let number = number.to_be_bytes();
        self.file.write_all_at(&[&number[..], &crc32fast::hash(&number).to_be_bytes()].concat(), 0)
    }

    /// Makes the number survive a power cut.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

fn read(file: &mut File) -> io::Result<Option<u64>> {
    let mut bytes = Vec::new();
    file.take(64).read_to_end(&mut bytes)?;
    Ok(decode(&bytes))
}

fn decode(bytes: &[u8]) -> Option<u64> {
    let (number, sum) = bytes.split_first_chunk::<8>()?;
    (sum == crc32fast::hash(number).to_be_bytes()).then_some(u64::from_be_bytes(*number))
}
