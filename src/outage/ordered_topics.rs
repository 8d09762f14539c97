//! Which pushes go behind their own records: those of a topic with ordering, while the WAL has any of that topic.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::model::message::TopicName;
use crate::platform::clock::Clock;
use crate::wal::Position;

/// Where the last record of each topic with ordering stands, as far as the store has not answered for it.
#[derive(Debug, Default)]
pub(super) struct OrderedTopics {
    marks: Mutex<Marks>,
    /// Fires when the store has answered for some.
    moved: Notify,
    /// The store does not take what is first, so that waiting is in vain.
    stuck: AtomicBool,
}

#[derive(Debug, Default)]
struct Marks {
    /// What an earlier process left may be of any topic.
    found: Option<Position>,
    last: HashMap<TopicName, Position>,
    done: Option<Position>,
}

impl OrderedTopics {
    /// With what an earlier process left.
    pub(super) fn new(found: Option<Position>) -> OrderedTopics {
        OrderedTopics { marks: Mutex::new(Marks { found, ..Marks::default() }), ..OrderedTopics::default() }
    }

    /// Whether records of a topic wait.
    pub(super) fn has(&self, topic: &TopicName) -> bool {
        let marks = self.marks();
        marks.found.is_some() || marks.last.contains_key(topic)
    }

    /// Says whether the store takes what is first.
    pub(super) fn set_stuck(&self, stuck: bool) {
        self.stuck.store(stuck, Ordering::Relaxed);
    }

    /// Waits until none waits any more; false when that takes too long, or for ever.
    pub(super) async fn passed(&self, topic: &TopicName, limit: Duration) -> bool {
        if self.stuck.load(Ordering::Relaxed) {
            return !self.has(topic);
        }
        let mut late = std::pin::pin!(Clock::System.sleep(limit));
        loop {
            // Listening begins before looking.
            let mut moved = std::pin::pin!(self.moved.notified());
            moved.as_mut().enable();
            if !self.has(topic) {
                return true;
            }
            tokio::select! {
                () = moved => {}
                () = &mut late => return false,
            }
        }
    }

    /// Records of a topic were appended, the last of them at `end` or before.
    pub(super) fn appended(&self, topic: &TopicName, end: Option<Position>) {
        let mut marks = self.marks();
        // They may have been replayed by now.
        if let Some(end) = end.filter(|end| Some(*end) > marks.done) {
            let last = marks.last.entry(topic.clone()).or_insert(end);
            *last = end.max(*last);
        }
    }

    /// The store has answered for everything up to there.
    pub(super) fn done(&self, through: Position) {
        {
            let mut marks = self.marks();
            marks.done = marks.done.max(Some(through));
            marks.found = marks.found.filter(|found| *found > through);
            marks.last.retain(|_, last| *last > through);
        }
        self.moved.notify_waiters();
    }

    fn marks(&self) -> MutexGuard<'_, Marks> {
        // Every change is made whole under the lock.
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
