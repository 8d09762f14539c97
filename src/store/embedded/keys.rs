//! Every key of the tree is built here, and taken apart here.
//!
//! A key is `topic number (4 bytes) | partition (2) | group number (2) | kind (1) | name`, all big endian, so that what
//! belongs together lies together and a topic is one range. Numbers are never used twice while data of theirs exists:
//! a topic that is deleted and made again, or a group, gets a new one and cannot see what the old one left.

use crate::model::error::{Error, Result};
use crate::model::message::{Key, MessageId};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::store::SORTED;

/// The order of a zset: a time, and in a topic with ordering a place within its millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Score {
    pub(super) at: Timestamp,
    /// The place in it, below [`TIES`]; 0 is none.
    pub(super) tie: u16,
    /// Whether it is the ready time of a sorted message. Those stand behind all others.
    pub(super) sorted: bool,
}

impl Score {
    /// That of a sorted message.
    pub(super) fn sorted(at: Timestamp) -> Score {
        Score { sorted: true, ..at.into() }
    }

    /// That of the same message, no longer sorted.
    pub(super) fn unsorted(self) -> Score {
        Score { sorted: false, ..self }
    }
}

impl From<Timestamp> for Score {
    fn from(at: Timestamp) -> Score {
        Score { at, tie: 0, sorted: false }
    }
}

/// Places in a millisecond. A place is two bytes of which the first is at least 128, as in no id.
pub(super) const TIES: u16 = 1 << 15;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// id -> charged attempts, 4 bytes; a byte 1 and when it is tried again, 8 bytes, if that is not its score; and the
    /// lines of its history.
    Attempts = b'a',
    /// id -> the error of its last attempt, if its history does not have all of it.
    LastError = b'l',
    /// died at, id -> nothing.
    DeadByScore = b'd',
    /// id -> died at.
    DeadById = b'D',
    /// dedup key, 0, pushed at -> end of its window and id of the message.
    DedupByKey = b'k',
    /// end of the window, dedup key, 0, pushed at -> nothing.
    DedupByEnd = b'K',
    /// The number of the partition's last epoch, 8 bytes.
    Epoch = b'e',
    /// id -> dead record and body.
    DeadHash = b'g',
    /// id -> body.
    Hash = b'h',
    Part = b'p',
    /// key -> until when its messages wait, 8 bytes.
    Paused = b'u',
    /// epoch number, reservation number -> ids.
    Reservation = b'r',
    /// remembered until, id -> nothing.
    SeenByScore = b's',
    /// id -> remembered until.
    SeenById = b'S',
    /// name of a schedule -> its revision, mark and definition.
    Schedule = b't',
    /// cancelled at, id -> nothing.
    CancelledByScore = b'x',
    /// id -> cancelled at, and the groups of which it was not taken.
    CancelledById = b'X',
    /// key of a sorted message or nothing, 0, ready time, id -> nothing.
    ByKey = b'y',
    /// due time, id -> nothing.
    ByScore = b'z',
    /// id -> due time; of a sorted message also its key.
    ById = b'Z',
}

const PLACE_BYTES: usize = 8;

/// Topic number of what belongs to no topic.
const STORE: u32 = 0;

pub(super) const FIRST_TOPIC: u32 = 1;

/// Group number of what the groups of a partition share.
const SHARED: u16 = 0;

pub(super) const FIRST_GROUP: u16 = 1;

/// The first bytes of all keys of a group in a partition. The group `SHARED` is for keys that all groups share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct KeyPrefix {
    pub(super) topic: u32,
    pub(super) partition: Partition,
    pub(super) group: u16,
}

impl KeyPrefix {
    pub(super) fn shared(self) -> KeyPrefix {
        KeyPrefix { group: SHARED, ..self }
    }

    pub(super) fn is_shared(self) -> bool {
        self.group == SHARED
    }

    pub(super) fn prefix(self) -> Vec<u8> {
        let mut key = Vec::with_capacity(PLACE_BYTES + 1 + 8 + 32);
        key.extend_from_slice(&self.topic.to_be_bytes());
        key.extend_from_slice(&self.partition.0.to_be_bytes());
        key.extend_from_slice(&self.group.to_be_bytes());
        key
    }

    pub(super) fn end(self) -> Vec<u8> {
        let mut key = self.prefix();
        key.push(u8::MAX);
        key
    }

    pub(super) fn of(self, kind: Kind) -> Vec<u8> {
        let mut key = self.prefix();
        key.push(kind as u8);
        key
    }

    pub(super) fn behind(self, kind: Kind) -> Vec<u8> {
        let mut key = self.prefix();
        key.push(kind as u8 + 1);
        key
    }

    pub(super) fn named(self, kind: Kind, name: &[u8]) -> Vec<u8> {
        let mut key = self.of(kind);
        key.extend_from_slice(name);
        key
    }

    /// The key of a score, and an id if it is not the beginning of all with this score.
    pub(super) fn scored(self, kind: Kind, score: impl Into<Score>, id: &str) -> Vec<u8> {
        let mut key = self.of(kind);
        key.extend_from_slice(&score_bytes(score.into()));
        key.extend_from_slice(id.as_bytes());
        key
    }

    /// The key of a sorted message among those of its key. No key has a zero byte.
    pub(super) fn sorted(self, key: Option<&Key>, at: Timestamp, id: &MessageId) -> Vec<u8> {
        let mut entry = self.sorted_of(key);
        entry.extend_from_slice(&at.as_ms().to_be_bytes());
        entry.extend_from_slice(id.as_str().as_bytes());
        entry
    }

    /// The beginning of the sorted messages of a key.
    pub(super) fn sorted_of(self, key: Option<&Key>) -> Vec<u8> {
        let mut entry = self.named(Kind::ByKey, key_bytes(key));
        entry.push(0);
        entry
    }

    /// The key of one further part of a large value. No id has a zero byte, and reservations have names of one length.
    pub(super) fn part(self, of: Kind, name: &[u8], number: u16) -> Vec<u8> {
        let mut key = self.of(Kind::Part);
        key.push(of as u8);
        key.extend_from_slice(name);
        key.push(0);
        key.extend_from_slice(&number.to_be_bytes());
        key
    }
}

pub(super) fn place_of(key: &[u8]) -> Option<(KeyPrefix, u8)> {
    let (topic, rest) = key.split_first_chunk::<4>()?;
    let (partition, rest) = rest.split_first_chunk::<2>()?;
    let (group, rest) = rest.split_first_chunk::<2>()?;
    let place = KeyPrefix {
        topic: u32::from_be_bytes(*topic),
        partition: Partition(u16::from_be_bytes(*partition)),
        group: u16::from_be_bytes(*group),
    };
    (place.topic != STORE).then_some((place, *rest.first()?))
}

pub(super) fn name_of(key: &[u8]) -> &[u8] {
    key.get(PLACE_BYTES + 1..).unwrap_or_default()
}

/// The score of a key, but for its place within a millisecond.
pub(super) fn score_of(key: &[u8]) -> Result<Score> {
    read_score(key.get(PLACE_BYTES + 1..PLACE_BYTES + 9).unwrap_or_default())
}

pub(super) fn scored_of(key: &[u8]) -> Result<(Score, MessageId)> {
    let rest = key.get(PLACE_BYTES + 9..).unwrap_or_default();
    let (tie, id) = match rest {
        [high, low, id @ ..] if *high >= 128 => (u16::from_be_bytes([high - 128, *low]), id),
        id => (0, id),
    };
    Ok((Score { tie, ..score_of(key)? }, read_id(id)?))
}

pub(super) fn score_bytes(score: Score) -> Vec<u8> {
    let ms = score.at.as_ms();
    let ms = if score.sorted { SORTED.saturating_add(ms) } else { ms };
    let mut bytes = ms.to_be_bytes().to_vec();
    if score.tie > 0 {
        bytes.extend_from_slice(&(score.tie | TIES).to_be_bytes());
    }
    bytes
}

pub(super) fn read_score(bytes: &[u8]) -> Result<Score> {
    let (time, tie) = bytes.split_at(bytes.len().min(8));
    let at = read_time(time)?;
    if let Some(ms) = at.as_ms().checked_sub(SORTED) {
        return Ok(Score::sorted(Timestamp::from_ms(ms)));
    }
    let tie = tie.try_into().map_or(0, |tie| u16::from_be_bytes(tie) & (TIES - 1));
    Ok(Score { tie, ..at.into() })
}

/// The value under the id of a sorted message: its score and its key.
pub(super) fn sorted_bytes(at: Timestamp, key: Option<&Key>) -> Vec<u8> {
    [&score_bytes(Score::sorted(at)), key_bytes(key)].concat()
}

/// The key in the value under the id of a sorted message.
pub(super) fn sorted_key(bytes: &[u8]) -> Result<Option<Key>> {
    read_key(bytes.get(8..).unwrap_or_default())
}

/// The key and the id in the key of a sorted message.
pub(super) fn sorted_entry(entry: &[u8]) -> Result<(Option<Key>, Timestamp, MessageId)> {
    let name = name_of(entry);
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    let (at, id) = name.get(end + 1..).unwrap_or_default().split_at_checked(8).unwrap_or_default();
    Ok((read_key(&name[..end])?, read_time(at)?, read_id(id)?))
}

fn key_bytes(key: Option<&Key>) -> &[u8] {
    key.map_or(b"", |key| key.as_str().as_bytes())
}

fn read_key(bytes: &[u8]) -> Result<Option<Key>> {
    if bytes.is_empty() { Ok(None) } else { read_some_key(bytes).map(Some) }
}

pub(super) fn read_some_key(bytes: &[u8]) -> Result<Key> {
    let text = std::str::from_utf8(bytes).map_err(|_| Error::corrupt("the store holds a key that is no text"))?;
    Key::new(text).map_err(|error| Error::corrupt(format!("the store holds an impossible {error}")))
}

pub(super) fn read_id(bytes: &[u8]) -> Result<MessageId> {
    let text = std::str::from_utf8(bytes).map_err(|_| Error::corrupt("the store holds an id that is no text"))?;
    MessageId::new(text).map_err(|error| Error::corrupt(format!("the store holds an impossible {error}")))
}

pub(super) fn read_time(bytes: &[u8]) -> Result<Timestamp> {
    let bytes = bytes.try_into().map_err(|_| Error::corrupt("the store holds a time of a wrong length"))?;
    Ok(Timestamp::from_ms(u64::from_be_bytes(bytes)))
}

pub(super) fn version() -> Vec<u8> {
    let mut key = STORE.to_be_bytes().to_vec();
    key.push(b'V');
    key
}

pub(super) fn commits() -> Vec<u8> {
    let mut key = STORE.to_be_bytes().to_vec();
    key.push(b'C');
    key
}

pub(super) fn identity() -> Vec<u8> {
    let mut key = STORE.to_be_bytes().to_vec();
    key.push(b'I');
    key
}

pub(super) fn receipt_key() -> Vec<u8> {
    let mut key = STORE.to_be_bytes().to_vec();
    key.push(b'R');
    key
}

pub(super) fn cron_partitions() -> Vec<u8> {
    let mut key = STORE.to_be_bytes().to_vec();
    key.push(b'S');
    key
}

pub(super) fn cron_partition_key(topic: u32, partition: Partition) -> Vec<u8> {
    let mut key = cron_partitions();
    key.extend_from_slice(&topic.to_be_bytes());
    key.extend_from_slice(&partition.0.to_be_bytes());
    key
}

pub(super) fn cron_partition_of(key: &[u8]) -> Option<(u32, Partition)> {
    let (topic, partition) = key.get(5..)?.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*topic), Partition(u16::from_be_bytes(partition.try_into().ok()?))))
}

pub(super) fn topic(name: &str) -> Vec<u8> {
    let mut key = STORE.to_be_bytes().to_vec();
    key.push(b'T');
    key.extend_from_slice(name.as_bytes());
    key
}

pub(super) fn topic_data(number: u32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_by_score_and_parse_back() -> Result<()> {
        let place = KeyPrefix { topic: 7, partition: Partition(3), group: 2 };
        let early = place.scored(Kind::ByScore, Timestamp::from_ms(255), "b");
        let late = place.scored(Kind::ByScore, Timestamp::from_ms(256), "a");
        assert!(early < late && late < place.behind(Kind::ByScore));
        assert_eq!(scored_of(&late)?, (Timestamp::from_ms(256).into(), MessageId::new("a")?));
        let tied = [1, 255, 256, TIES - 1].map(|tie| Score { tie, ..Timestamp::from_ms(255).into() });
        let keys = tied.map(|score| place.scored(Kind::ByScore, score, "~"));
        assert!(early < keys[0] && keys.is_sorted() && keys[3] < late);
        for (score, key) in tied.into_iter().zip(keys) {
            assert_eq!(scored_of(&key)?, (score, MessageId::new("~")?));
            assert_eq!(read_score(&score_bytes(score))?, score);
        }
        assert_eq!(place_of(&late), Some((place, b'z')));
        assert_eq!(name_of(&place.named(Kind::Hash, b"a")), b"a");
        assert_eq!(place_of(&topic("abcdefgh")), None);
        Ok(())
    }

    #[test]
    fn sorted_messages_stand_behind_all_others_and_together_by_key() -> Result<()> {
        let place = KeyPrefix { topic: 7, partition: Partition(3), group: 2 };
        let (at, id) = (Timestamp::from_ms(1_767_323_045_678), MessageId::new("a")?);
        let sorted = place.scored(Kind::ByScore, Score::sorted(at), "a");
        assert_eq!(scored_of(&sorted)?, (Score::sorted(at), id.clone()));
        assert_eq!(score_of(&sorted)?, Score::sorted(at));
        assert!(place.scored(Kind::ByScore, Timestamp::from_ms(SORTED - 1), "~") < sorted);
        let keys = [None, Some(Key::new("a")?), Some(Key::new("a b")?), Some(Key::new("b")?)];
        let entries: Vec<_> = keys.iter().map(|key| place.sorted(key.as_ref(), at, &id)).collect();
        assert!(entries.is_sorted() && place.of(Kind::ByKey) < entries[0] && entries[3] < place.behind(Kind::ByKey));
        for (key, entry) in keys.into_iter().zip(entries) {
            assert_eq!(sorted_key(&sorted_bytes(at, key.as_ref()))?, key);
            assert_eq!(read_score(&sorted_bytes(at, key.as_ref()))?, Score::sorted(at));
            assert!(entry.starts_with(&place.sorted_of(key.as_ref())));
            assert_eq!(sorted_entry(&entry)?, (key, at, id.clone()));
        }
        Ok(())
    }
}
