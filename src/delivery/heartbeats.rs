//! The heartbeats of this process: those of all its groups that are due at the same time go in one call for each slot.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;

use crate::coordination::membership::Event;
use crate::platform::tasks::Tasks;
use crate::store::{Heartbeat, MemberId, Store};

/// How often the call waits for others to join it, after the last one that did.
const TURNS: usize = 4;

/// Records heartbeats for the memberships of a process.
pub struct Heartbeats {
    store: Store,
    member: MemberId,
    absent_after: Duration,
    tasks: Tasks,
    /// By the slot of the store: one that does not answer leaves the others alone.
    asked: Mutex<HashMap<u32, Vec<Asked>>>,
}

/// A heartbeat to record, and whom to tell of the live members.
struct Asked {
    heartbeat: Heartbeat,
    tell: mpsc::UnboundedSender<Event>,
}

impl Heartbeats {
    /// None yet. A member whose heartbeat is older than `absent_after` is not live.
    pub fn new(store: Store, member: MemberId, absent_after: Duration, tasks: Tasks) -> Arc<Heartbeats> {
        Arc::new(Heartbeats { store, member, absent_after, tasks, asked: Mutex::default() })
    }

    /// Records a heartbeat, together with others; `tell` hears [`Event::Beaten`] or [`Event::BeatFailed`].
    pub(super) fn record(self: &Arc<Heartbeats>, heartbeat: Heartbeat, tell: mpsc::UnboundedSender<Event>) {
        let (slot, mut all) = (heartbeat.slot(), self.asked());
        let asked = all.entry(slot).or_default();
        asked.push(Asked { heartbeat, tell });
        if asked.len() == 1 {
            let all = self.clone();
            self.tasks.start(async move { all.call(slot).await });
        }
    }

    async fn call(&self, slot: u32) {
        let (heartbeats, tells): (Vec<_>, Vec<_>) =
            self.gathered(slot).await.into_iter().map(|asked| (asked.heartbeat, asked.tell)).unzip();
        let answers = self.store.groups.heartbeat(&self.member, &heartbeats, self.absent_after).await;
        for ((answer, tell), heartbeat) in answers.into_iter().zip(tells).zip(heartbeats) {
            let event = answer.map(|members| Event::Beaten(members.into())).unwrap_or_else(|error| {
                tracing::debug!(topic = %heartbeat.topic, group = %heartbeat.group, %error, "no heartbeat");
                Event::BeatFailed
            });
            // Nobody listens any more once the membership is over.
            let _ = tell.send(event);
        }
    }

    /// What is asked by all that run now: memberships whose heartbeats are due at the same instant come one by one.
    async fn gathered(&self, slot: u32) -> Vec<Asked> {
        let mut count = 0;
        loop {
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
            let mut all = self.asked();
            let asked = all.get(&slot).map_or(0, Vec::len);
            if asked == count {
                return all.remove(&slot).unwrap_or_default();
            }
            count = asked;
        }
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<u32, Vec<Asked>>> {
        // Nothing panics while the lock is held; if it did, the list would still be whole.
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
