//! Where messages go that have neither a key nor an id of the producer's.
//!
//! dwell makes their ids, and the id decides the partition, so dwell chooses. A batch that stays together is one call to
//! the store, where a batch that is strewn over all partitions is one for each; so one partition has its turn for a
//! while, and then the next one. With more than [`WAYS_MAX`] partitions a turn is that of several, for an id has to be
//! found by trying.

use std::collections::HashMap;
use std::num::NonZeroU16;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::model::limits::TOPICS_MAX;
use crate::model::message::TopicName;
use crate::model::partition::Partition;
use crate::platform::clock::Instant;

/// A turn ends after so many messages; a batch is not cut.
const TURN_MESSAGES: usize = 250;

/// And after so long, so that a slow producer spreads its messages one by one.
const TURN_TIME: Duration = Duration::from_millis(5);

/// How many turns go around all partitions.
const WAYS_MAX: u16 = 8;

/// Whose turn it is, in each topic.
#[derive(Debug, Default)]
pub(super) struct DefaultPartitioner(Mutex<HashMap<TopicName, Running>>);

#[derive(Debug)]
struct Running {
    turn: Turn,
    left: usize,
    until: Instant,
}

/// The partitions whose turn it is: those that leave the same remainder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    partitions: NonZeroU16,
    ways: NonZeroU16,
    way: u16,
}

impl DefaultPartitioner {
    /// The turn that so many messages belong to.
    pub(super) fn turn(&self, topic: &TopicName, partitions: NonZeroU16, messages: usize, now: Instant) -> Turn {
        let mut topics = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = topics.get_mut(topic).filter(|running| running.turn.partitions == partitions) {
            if running.left == 0 || running.until <= now {
                *running = Running::new(running.turn.next(), now);
            }
            running.left = running.left.saturating_sub(messages);
            return running.turn;
        }
        if topics.len() >= TOPICS_MAX {
            topics.clear();
        }
        let ways = ways(partitions);
        // Every process begins somewhere else.
        let turn = Turn { partitions, ways, way: fastrand::u16(..ways.get()) };
        let mut running = Running::new(turn, now);
        running.left = running.left.saturating_sub(messages);
        topics.insert(topic.clone(), running);
        turn
    }
}

impl Running {
    fn new(turn: Turn, now: Instant) -> Running {
        Running { turn, left: TURN_MESSAGES, until: now.plus(TURN_TIME) }
    }
}

impl Turn {
    /// Whether a message with this id belongs to a partition whose turn it is.
    pub(super) fn has(self, id: &str) -> bool {
        Partition::of(id, self.partitions).0 % self.ways == self.way
    }

    fn next(self) -> Turn {
        Turn { way: (self.way + 1) % self.ways, ..self }
    }
}

/// The largest number of turns, up to [`WAYS_MAX`], that shares the partitions out evenly.
fn ways(partitions: NonZeroU16) -> NonZeroU16 {
    let even = |ways: &NonZeroU16| partitions.get() % *ways == 0;
    (1..=WAYS_MAX).rev().filter_map(NonZeroU16::new).find(even).unwrap_or(NonZeroU16::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::message::MessageId;

    fn topic() -> Result<TopicName, crate::model::error::Error> {
        TopicName::new("orders")
    }

    /// The partitions of so many messages, each offered alone.
    fn spread(partitions: u16, messages: usize, apart: Duration) -> Result<Vec<usize>, crate::model::error::Error> {
        let (spread, topic) = (DefaultPartitioner::default(), topic()?);
        let partitions = NonZeroU16::new(partitions).unwrap_or(NonZeroU16::MIN);
        let mut counts = vec![0; usize::from(partitions.get())];
        let mut now = Instant::START;
        for _ in 0..messages {
            let turn = spread.turn(&topic, partitions, 1, now);
            let id = MessageId::fresh_where(|id| turn.has(id));
            counts[usize::from(Partition::of(id.as_str(), partitions).0)] += 1;
            now = now.plus(apart);
        }
        Ok(counts)
    }

    #[test]
    fn turns_are_even() -> Result<(), crate::model::error::Error> {
        for partitions in [1, 2, 7, 8, 12, 16, 64] {
            let counts = spread(partitions, 16_000, Duration::ZERO)?;
            let fair = 16_000 / usize::from(partitions);
            assert!(counts.iter().all(|count| count.abs_diff(fair) <= fair / 2), "{partitions}: {counts:?}");
        }
        Ok(())
    }

    #[test]
    fn messages_that_come_together_stay_together() -> Result<(), crate::model::error::Error> {
        let counts = spread(8, TURN_MESSAGES, Duration::ZERO)?;
        // An id that fits is not found once in five thousand times.
        assert!(counts.iter().any(|count| *count >= TURN_MESSAGES - 5), "{counts:?}");
        Ok(())
    }

    #[test]
    fn messages_that_come_apart_take_turns() -> Result<(), crate::model::error::Error> {
        let counts = spread(8, 800, TURN_TIME)?;
        assert!(counts.iter().all(|count| count.abs_diff(100) <= 5), "{counts:?}");
        Ok(())
    }

    #[test]
    fn a_topic_made_anew_with_other_partitions_begins_anew() -> Result<(), crate::model::error::Error> {
        let (spread, topic) = (DefaultPartitioner::default(), topic()?);
        for partitions in [8, 3, 1].map(|n| NonZeroU16::new(n).unwrap_or(NonZeroU16::MIN)) {
            assert_eq!(spread.turn(&topic, partitions, 1, Instant::START).partitions, partitions);
        }
        Ok(())
    }
}
