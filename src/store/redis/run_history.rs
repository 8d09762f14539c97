//! Noticing that Redis is not the one it was: another run, or another replica. It may have lost its last writes.
//!
//! Every new connection looks before its first call. Who finds another Redis first notes so in Redis itself, so that a
//! process that starts afterwards knows as well.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Value};
use tokio::sync::watch;

use super::hash_slot;
use super::info::Info;
use super::keys::Keys;
use super::scripts::{Call, SCRIPTS};
use crate::platform::clock::{Clock, Instant};
use crate::store::Loss;

/// A notice older than this is of no interest: no lease runs longer.
const OLD: Duration = Duration::from_secs(3_600);

/// The suspicions of a store, which all its connections add to.
pub(super) type Losses = watch::Sender<Loss>;

/// Where it is noted which Redis this is, and how it is seen whether there is anything to lose.
pub(super) struct Note {
    key: String,
    evidence: Cmd,
    /// Since when a Redis that is noted to be a new one is a loss to this process, though it never saw another one there.
    began: Option<Instant>,
}

impl Note {
    /// In a Redis that has everything: it has topics.
    pub(super) fn of_all(keys: &Keys) -> Note {
        let mut evidence = redis::cmd("EXISTS");
        evidence.arg(keys.topics());
        Note { key: keys.history(), evidence, began: None }
    }

    /// In a node of a cluster that has this slot: it has any keys. A replica that is promoted is another node, with what
    /// it knows of the history of the one before it.
    pub(super) fn of_node(keys: &Keys, slot: u16, began: Instant) -> Note {
        let key = format!("{}:{{{}}}", keys.history(), hash_slot::tag(slot));
        Note { key, evidence: redis::cmd("DBSIZE"), began: Some(began) }
    }
}

/// Which Redis this process has seen.
pub(super) struct History {
    keys: Keys,
    clock: Clock,
    note: Note,
    seen: Mutex<Option<Seen>>,
    losses: Losses,
}

/// A Redis as it was seen last.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    identity: String,
    offset: u64,
}

impl Seen {
    /// Whether a Redis that was seen before may have lost something, now that it is seen like this: another run, another
    /// replication history, or less of the same one.
    fn lost(&self, now: &Seen) -> bool {
        self.identity != now.identity || now.offset < self.offset
    }
}

impl History {
    pub(super) fn new(keys: Keys, clock: Clock, note: Note, losses: Losses) -> History {
        History { keys, clock, note, seen: Mutex::default(), losses }
    }

    pub(super) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// String with expiry, in the slot of the note: written before servers are waited for.
    pub(super) fn mark(&self) -> String {
        format!("{}:mark", self.note.key)
    }

    /// How many losses were suspected.
    pub(super) fn losses(&self) -> u64 {
        self.losses.borrow().count
    }

    /// Looks which Redis is at the other end of a new connection.
    pub(super) async fn look(&self, connection: &mut MultiplexedConnection, info: &Info) -> RedisResult<()> {
        let now = Seen { identity: info.identity.clone(), offset: info.offset };
        let known = self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut lost = known.as_ref().is_some_and(|known| known.lost(&now));
        if known.is_none() || lost {
            let before = self.clock.instant();
            let rewound = known.as_ref().is_some_and(|known| known.identity == now.identity);
            let age = self.notice(connection, &now.identity, rewound).await?;
            let since = (age < OLD).then(|| before.minus(age));
            lost |= self.note.began.is_some_and(|began| since > Some(began));
            self.losses.send_modify(|loss| {
                loss.count += u64::from(lost);
                loss.is_restoring |= lost && loss.restores;
                // Another node may have been suspected since.
                loss.since = loss.since.max(since);
            });
        }
        if lost {
            tracing::warn!("another Redis than before: it may have lost its last writes");
        }
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        Ok(())
    }

    /// For how long this Redis has been known to be this one.
    async fn notice(&self, connection: &mut MultiplexedConnection, id: &str, rewound: bool) -> RedisResult<Duration> {
        let there: Value = connection.send_packed_command(&self.note.evidence).await?;
        let anything = i32::from(matches!(there, Value::Int(1..)));
        let over = self.clock.manual_now().map_or(String::new(), |now| (now.as_ms() * 1_000).to_string());
        let notice = Call::new(&SCRIPTS.notice, &[&self.note.key]).arg(id).arg(anything).arg(over);
        let mut told = Pipeline::with_capacity(2);
        told.add_command(SCRIPTS.notice.load()).ignore().add_command(notice.arg(i32::from(rewound)).command);
        let ((_, _, age_ms),): ((String, u64, u64),) = told.query_async(connection).await?;
        Ok(Duration::from_millis(age_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_run_another_replica_and_less_of_the_same_are_losses() {
        let seen = |identity: &str, offset| Seen { identity: identity.to_owned(), offset };
        let before = seen("run/replica", 1_000);
        assert!(!before.lost(&seen("run/replica", 1_000)));
        assert!(!before.lost(&seen("run/replica", 2_000)));
        assert!(before.lost(&seen("run/replica", 999)));
        assert!(before.lost(&seen("again/replica", 1_000)));
        assert!(before.lost(&seen("run/promoted", 2_000)));
    }
}
