//! Saying again what a log kept of cancels and reschedules: to the pushes before them, and to the store.

use super::Failover;
use super::offer::{Batches, Kept, RELOADS_MAX};
use crate::error::{Error, Kind, Result};
use crate::store::{Expected, Reschedule, Store};
use crate::wal::Record;

impl<S: Store> Failover<S> {
    /// Cancels or reschedules in the store what was cancelled or rescheduled before.
    pub(super) async fn say_again(&self, change: &Record) -> Result<()> {
        let (topic, incarnation) = match change {
            Record::Cancel { topic, incarnation, .. } | Record::Reschedule { topic, incarnation, .. } => {
                (topic, *incarnation)
            }
            Record::Create(_) | Record::Push { .. } => return Ok(()),
        };
        let mut outcome = Err(Error::unavailable("the topic is being changed or deleted"));
        for _ in 0..RELOADS_MAX {
            let Some(descriptor) = self.destination(topic, incarnation).await? else { return Ok(()) };
            outcome = match change {
                Record::Cancel { partition, id, at, .. } => {
                    self.limited(self.store.cancel(&descriptor, *partition, id, Some(*at))).await.map(drop)
                }
                Record::Reschedule { partition, id, was, due_at, .. } => {
                    let expected = Expected { due_at: Some(*was), attempts: None };
                    let again = Reschedule { id: id.clone(), due_at: *due_at, expected };
                    self.limited(self.store.reschedule(&descriptor, *partition, &again)).await.map(drop)
                }
                Record::Create(_) | Record::Push { .. } => Ok(()),
            };
            if !matches!(&outcome, Err(error) if error.kind() == Kind::Stale) {
                break;
            }
        }
        outcome
    }
}

/// Does to the pushes before it in a page what a change did to the messages, and answers how many it took out: they must
/// not be there for a moment.
pub(super) fn apply(change: &Record, batches: &mut Batches) -> u64 {
    let (topic, incarnation) = match change {
        Record::Cancel { topic, incarnation, .. } | Record::Reschedule { topic, incarnation, .. } => {
            (topic, *incarnation)
        }
        Record::Create(_) | Record::Push { .. } => return 0,
    };
    let Some(messages) = batches.get_mut(&(topic.clone(), incarnation)) else { return 0 };
    let before = messages.len();
    match change {
        Record::Cancel { id, at, .. } => {
            messages.retain(|kept| kept.message.id != *id || kept.message.envelope.pushed_at > *at);
        }
        Record::Reschedule { id, was, due_at, .. } => {
            for Kept { message, .. } in messages {
                if message.id == *id && message.due_at == *was {
                    message.due_at = *due_at;
                }
            }
            return 0;
        }
        Record::Create(_) | Record::Push { .. } => {}
    }
    (before - messages.len()) as u64
}
