//! Calls that are applied once: each live call of a producer carries an id that its partition remembers.
//!
//! As with Kafka's idempotent producer, a call is a number in a stream, and a stream has one call out at a time and goes
//! on only after an answer. The partition remembers the last number of each stream. So a repeat of a call whose answer was lost is recognised, also
//! when its messages were consumed meanwhile, and a late copy does nothing.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::StoreClock;
use crate::model::message::TopicName;
use crate::model::partition::Partition;
use crate::model::version::{CallId, Version};
use crate::platform::clock::Instant;

/// Partitions whose streams are remembered; past it all are forgotten, and new streams begin.
const PARTITIONS_MAX: usize = 100_000;

/// How long a stream may rest; far less than its partition remembers it.
const UNUSED_MAX: Duration = Duration::from_secs(24 * 3_600);

/// A call of a producer that waits for the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Its id in the partition.
    pub id: CallId,
    /// The version of its first message; the others count up from it.
    pub version: Version,
    /// Whether all ids were made by dwell for this call, so that nothing can be stored under them yet.
    pub is_fresh: bool,
}

/// The streams of this process.
#[derive(Debug)]
pub struct Calls {
    process: String,
    streams: Mutex<Streams>,
}

#[derive(Debug, Default)]
struct Streams {
    begun: u64,
    /// Streams without a call out.
    free: HashMap<(TopicName, Partition), Vec<Stream>>,
}

#[derive(Debug)]
struct Stream {
    /// Its name, and its last number, which was applied.
    last: CallId,
    used: Instant,
}

impl Default for Calls {
    fn default() -> Calls {
        let process = ulid::Ulid::new().to_string();
        Calls { process, streams: Mutex::default() }
    }
}

impl Calls {
    /// Begins a call with so many messages to a partition.
    pub fn begin(&self, topic: &TopicName, partition: Partition, clock: &StoreClock, messages: usize) -> Call {
        let now = clock.local().instant();
        let mut id = {
            let mut streams = self.streams();
            let free = streams.free.get_mut(&(topic.clone(), partition));
            let free = free.and_then(|free| Some(free.swap_remove(free.len().checked_sub(1)?)));
            // The partition forgets streams that are not used.
            match free.filter(|free| now.since(free.used) < UNUSED_MAX) {
                Some(Stream { last, .. }) => last,
                None => {
                    streams.begun += 1;
                    CallId { stream: format!("{}.{}", self.process, streams.begun), seq: 0 }
                }
            }
        };
        id.seq += 1;
        Call { id, version: clock.versions(messages), is_fresh: false }
    }

    /// A call was applied and answered, so its stream may be used again. That of any other call is never used again: what
    /// the partition remembers of it says for good what became of the call.
    pub fn applied(&self, topic: &TopicName, partition: Partition, clock: &StoreClock, call: Call) {
        let stream = Stream { last: call.id, used: clock.local().instant() };
        let mut streams = self.streams();
        if streams.free.len() >= PARTITIONS_MAX {
            streams.free.clear();
        }
        streams.free.entry((topic.clone(), partition)).or_default().push(stream);
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        // Every change is made whole under the lock.
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::Result;
    use crate::platform::clock::Clock;

    #[test]
    fn a_stream_has_one_call_out_and_is_used_again_only_after_an_answer() -> Result<()> {
        let (calls, clock) = (Calls::default(), StoreClock::new(Clock::System));
        let (topic, partition) = (TopicName::new("orders")?, Partition(0));
        let first = calls.begin(&topic, partition, &clock, 10);
        let second = calls.begin(&topic, partition, &clock, 1);
        assert_ne!(first.id.stream, second.id.stream);
        assert!(second.version >= first.version.plus(10));
        calls.applied(&topic, partition, &clock, second.clone());
        let third = calls.begin(&topic, partition, &clock, 1);
        assert_eq!((third.id.stream, third.id.seq), (second.id.stream, 2));
        assert_ne!(calls.begin(&topic, partition, &clock, 1).id.stream, first.id.stream);
        Ok(())
    }
}
