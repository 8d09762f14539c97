//! Which partition a key belongs to.
//!
//! The rule is public, so that a client in another language can compute it: murmur3 x86_32 with seed 0
//! over the UTF-8 bytes of the key, as an unsigned number, modulo the topic's number of partitions. Of a ULID the last
//! three characters do not count, so that ids that count up, as those of one batch, are in one partition.

use std::fmt;
use std::io::{self, Read};
use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};

/// The number of a partition, from 0 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Partition(pub u16);

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Partition {
    /// The partition of a key in a topic of so many partitions.
    ///
    /// ```
    /// use dwell::model::partition::Partition;
    /// use std::num::NonZeroU16;
    /// let eight = NonZeroU16::new(8).unwrap();
    /// assert_eq!(Partition::of("order-1", eight), Partition::of("order-1", eight));
    /// ```
    pub fn of(key: &str, partitions: NonZeroU16) -> Partition {
        let number = hash(decisive(key).as_bytes()) % u32::from(partitions.get());
        Partition(u16::try_from(number).unwrap_or(0))
    }
}

/// The part of a key that is hashed: of a ULID all but the characters in which ids of one run differ.
fn decisive(key: &str) -> &str {
    let is_digit =
        |byte: u8| matches!(byte, b'0'..=b'9' | b'A'..=b'H' | b'J' | b'K' | b'M' | b'N' | b'P'..=b'T' | b'V'..=b'Z');
    let is_ulid = key.len() == 26 && key.as_bytes()[0] <= b'7' && key.bytes().all(is_digit);
    if is_ulid { &key[..23] } else { key }
}

/// murmur3 x86_32 with seed 0.
pub fn hash(bytes: &[u8]) -> u32 {
    murmur3::murmur3_32(&mut Bytes(bytes), 0).unwrap_or(0)
}

/// The rest of the input, read as the hash asks for it: four bytes at a time, and the last ones alone.
///
/// A cursor calls `memcpy` for each read, since it does not know how long one is. A push in batches hashes several ids for
/// each message, and the call is half of that where the C library is glibc, and nearly all of it where it is musl.
struct Bytes<'a>(&'a [u8]);

impl Read for Bytes<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let (Some((four, rest)), Some(into)) = (self.0.split_first_chunk::<4>(), into.first_chunk_mut()) {
            *into = *four;
            self.0 = rest;
            return Ok(4);
        }
        let (Some((byte, rest)), Some(into)) = (self.0.split_first(), into.first_mut()) else { return Ok(0) };
        *into = *byte;
        self.0 = rest;
        Ok(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use dwell_client::wire::ids::Ids;

    use super::*;
    use crate::model::error::Result;
    use crate::model::message::{MessageId, spread_of};

    /// Published vectors of murmur3 x86_32 with seed 0; docs/reference/partition-hash.md repeats them for clients.
    #[test]
    fn published_hash_vectors_match() {
        let vectors: [(&[u8], u32); 12] = [
            (b"", 0x0000_0000),
            (b"test", 0xba6b_d213),
            (b"Hello, world!", 0xc036_3e43),
            (b"The quick brown fox jumps over the lazy dog", 0x2e4f_f723),
            (b"abc", 0xb3dd_93fa),
            (b"hello", 0x248b_fa47),
            (&[0xff, 0xff, 0xff, 0xff], 0x7629_3b50),
            (&[0x21, 0x43, 0x65, 0x87], 0xf55b_516b),
            (&[0x21, 0x43, 0x65], 0x7e4a_8634),
            (&[0x21, 0x43], 0xa0f7_b07a),
            (&[0x21], 0x7266_1cf4),
            (&[0, 0, 0, 0], 0x2362_f9de),
        ];
        for (key, expected) in vectors {
            assert_eq!(hash(key), expected, "{key:?}");
        }
    }

    #[test]
    fn ulids_of_one_run_share_a_partition_and_nothing_else_is_cut() {
        let many = NonZeroU16::new(1_024).unwrap_or(NonZeroU16::MIN);
        let of = |key: &str| Partition::of(key, many);
        assert_eq!(of("01KB3M4E5RQ1ZC9W7XH2V6T000"), of("01KB3M4E5RQ1ZC9W7XH2V6T0ZZ"));
        assert_eq!(of("01KB3M4E5RQ1ZC9W7XH2V6T000"), of("01KB3M4E5RQ1ZC9W7XH2V6T"));
        let others = [
            "81KB3M4E5RQ1ZC9W7XH2V6T000",
            "01KB3M4E5RQ1ZC9W7XH2V6TU00",
            "01kb3m4e5rq1zc9w7xh2v6t000",
            "01KB3M4E5RQ1ZC9W7XH2V6T0000",
        ];
        for other in others {
            assert_eq!(hash(other.as_bytes()) % 1_024, u32::from(of(other).0), "{other}");
        }
    }

    #[test]
    fn new_ids_spread_over_all_partitions_and_a_burst_stays_in_one() {
        for partitions in [1, 2, 7, 8, 12, 16, 64] {
            let (ids, fair) = (Ids::new(), 500 / u32::from(partitions));
            let partitions = NonZeroU16::new(partitions).unwrap_or(NonZeroU16::MIN);
            let mut counts = vec![0_u32; usize::from(partitions.get())];
            for _ in 0..500 {
                let run: BTreeSet<_> = ids.take(250).map(|id| Partition::of(&id.to_string(), partitions)).collect();
                assert_eq!(run.len(), 1, "{run:?}");
                run.iter().for_each(|partition| counts[usize::from(partition.0)] += 1);
            }
            // Six times the standard deviation: about once in a hundred million runs there is more.
            let bound = 6.0 * f64::from(fair).sqrt() + 1.0;
            assert!(counts.iter().all(|count| f64::from(count.abs_diff(fair)) <= bound), "{partitions}: {counts:?}");
        }
    }

    #[test]
    fn ids_of_one_partition_spread_evenly_over_time() -> Result<()> {
        let (eight, mut counts) = (NonZeroU16::new(8).unwrap_or(NonZeroU16::MIN), [0_i32; 10]);
        for n in 0..100_000 {
            let id = MessageId::new(format!("order-{n}"))?;
            if Partition::of(id.as_str(), eight) == Partition(3) {
                let second = spread_of(&id, Duration::from_secs(10)).as_secs();
                counts[usize::try_from(second).unwrap_or_default()] += 1;
            }
        }
        assert!(counts.iter().all(|count| (count - 1_250).abs() <= 200), "{counts:?}");
        Ok(())
    }

    #[test]
    fn a_hundred_thousand_keys_spread_within_ten_percent() {
        let partitions = NonZeroU16::new(8).unwrap_or(NonZeroU16::MIN);
        let mut counts = [0_i32; 8];
        for n in 0..100_000 {
            counts[usize::from(Partition::of(&format!("order-{n}"), partitions).0)] += 1;
        }
        for count in counts {
            assert!((count - 12_500).abs() <= 1_250, "{counts:?}");
        }
    }
}
