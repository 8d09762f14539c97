//! What is left of a file after a power cut, or after a failed sync.

use std::collections::BTreeMap;

use super::{Keep, mixed};

/// Bytes that a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;

/// What was done to a file and not synced.
#[derive(Debug)]
pub(super) enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Length(usize),
}

/// What is left of a file: what is durable, with some of the rest.
pub(super) fn torn(durable: &[u8], pending: &[Change], keep: Keep, chance: impl Fn(u64) -> u64) -> Vec<u8> {
    let mut bytes = durable.to_vec();
    let all: usize = pending.iter().map(Change::bytes).sum();
    let mut left = match keep {
        Keep::Nothing => return bytes,
        Keep::Everything | Keep::Sectors(_) => usize::MAX,
        Keep::Beginning => (chance(0) % (all as u64 + 1)) as usize,
    };
    // How often each sector was written.
    let mut times: BTreeMap<usize, u64> = BTreeMap::new();
    for change in pending {
        match (change, keep) {
            (change, Keep::Everything) => change.apply(&mut bytes),
            (Change::Length(length), Keep::Sectors(eighths)) => {
                if chance(*length as u64) % 8 < u64::from(eighths) {
                    bytes.resize(*length, 0);
                }
            }
            (Change::Length(length), _) => {
                if left > 0 {
                    bytes.resize(*length, 0);
                }
            }
            (Change::Write { offset, bytes: written }, Keep::Sectors(eighths)) => {
                for (sector, from, part) in sectors(*offset, written) {
                    let time = times.entry(sector).or_default();
                    *time += 1;
                    if mixed([chance(sector as u64), *time, 0, 0]) % 8 < u64::from(eighths) {
                        put(&mut bytes, from, part);
                    }
                }
            }
            (Change::Write { offset, bytes: written }, _) => {
                for (_, from, part) in sectors(*offset, written) {
                    // A sector that was there is written whole or not at all.
                    let is_new = from >= durable.len();
                    let count = part.len().min(left);
                    left -= count;
                    if count == part.len() || is_new {
                        put(&mut bytes, from, &part[..count]);
                    }
                }
            }
        }
    }
    bytes
}

/// The parts of a write: each with its sector, and where it begins.
fn sectors(offset: usize, bytes: &[u8]) -> impl Iterator<Item = (usize, usize, &[u8])> {
    let first = (SECTOR_BYTES - offset % SECTOR_BYTES).min(bytes.len());
    let (head, rest) = bytes.split_at(first);
    let parts = std::iter::once(head).chain(rest.chunks(SECTOR_BYTES)).filter(|part| !part.is_empty());
    parts.scan(offset, |at, part| {
        let from = *at;
        *at += part.len();
        Some((from / SECTOR_BYTES, from, part))
    })
}

fn put(file: &mut Vec<u8>, from: usize, part: &[u8]) {
    if part.is_empty() {
        return;
    }
    if file.len() < from + part.len() {
        file.resize(from + part.len(), 0);
    }
    file[from..from + part.len()].copy_from_slice(part);
}

impl Change {
    fn bytes(&self) -> usize {
        match self {
            Change::Write { bytes, .. } => bytes.len(),
            Change::Length(_) => 1,
        }
    }

    pub(super) fn apply(&self, file: &mut Vec<u8>) {
        match self {
            Change::Length(length) => file.resize(*length, 0),
            Change::Write { offset, bytes } => put(file, *offset, bytes),
        }
    }
}
