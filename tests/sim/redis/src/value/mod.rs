//! What a key holds.

mod hash;
mod numbers;
mod set;
mod zset;

pub(crate) use hash::Hash;
pub(crate) use numbers::{double, float, format_double, int};
pub(crate) use set::Set;
pub(crate) use zset::Zset;

use crate::resp::Bytes;

#[derive(Debug, Clone)]
pub(crate) enum Value {
    Text(Bytes),
    Hash(Hash),
    Set(Set),
    Zset(Zset),
}

impl Value {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Value::Text(_) => "string",
            Value::Hash(_) => "hash",
            Value::Set(_) => "set",
            Value::Zset(_) => "zset",
        }
    }

    pub(crate) fn hash_mut(&mut self) -> Option<&mut Hash> {
        if let Value::Hash(hash) = self { Some(hash) } else { None }
    }

    pub(crate) fn set_mut(&mut self) -> Option<&mut Set> {
        if let Value::Set(set) = self { Some(set) } else { None }
    }

    pub(crate) fn zset_mut(&mut self) -> Option<&mut Zset> {
        if let Value::Zset(zset) = self { Some(zset) } else { None }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Value::Text(_) => false,
            Value::Hash(hash) => hash.len() == 0,
            Value::Set(set) => set.len() == 0,
            Value::Zset(zset) => zset.len() == 0,
        }
    }

    /// Bytes in memory, estimated.
    pub(crate) fn size(&self) -> usize {
        match self {
            Value::Text(text) => text.len() + 16,
            Value::Hash(hash) => hash.size(),
            Value::Set(set) => set.size(),
            Value::Zset(zset) => zset.size(),
        }
    }
}

/// Entries that a compact form holds at most, and the bytes of one.
const HASH_COMPACT: usize = 512;
const ZSET_COMPACT: usize = 128;
const ENTRY_COMPACT: usize = 64;

/// Steps of a scan through entries that stand in a row of `count`, from the last one down: an entry that is removed is
/// replaced by the last one, so whatever stays all the while is met. Answers the places to look at, and the next cursor.
///
/// A cursor has a mark of the process in its upper half. In another process it means some other place, as in Redis.
pub(crate) fn scan(cursor: u64, mark: u32, count: usize, most: usize) -> (std::ops::Range<usize>, u64) {
    let place = usize::try_from(cursor & u64::from(u32::MAX)).unwrap_or(0);
    let from = if cursor == 0 {
        count
    } else if cursor >> 32 == u64::from(mark) {
        place.min(count)
    } else {
        place.wrapping_mul(0x9E37_79B1) % (count + 1)
    };
    let to = from.saturating_sub(most.max(1));
    let next = if to == 0 { 0 } else { u64::from(mark) << 32 | u64::try_from(to).unwrap_or(0) };
    (to..from, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scan_meets_what_stays() {
        let mut entries: Vec<u32> = (0..1_000).collect();
        let (mut met, mut cursor, mut random) = (Vec::new(), 0, fastrand::Rng::with_seed(7));
        loop {
            let (places, next) = scan(cursor, 3, entries.len(), 10);
            met.extend_from_slice(&entries[places]);
            if next == 0 {
                break;
            }
            cursor = next;
            for _ in 0..4 {
                let at = random.usize(..entries.len());
                if entries[at] % 2 == 1 {
                    entries.swap_remove(at);
                }
            }
        }
        assert!((0..1_000).filter(|entry| entry % 2 == 0).all(|entry| met.contains(&entry)));
    }
}
