//! The loop of one pair: acquire it, recover what its last owner left, serve it, and acquire it again when it is lost.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::serving::Serving;
use super::{Dispatch, Owned, Policy, Table};
use crate::error::{Error, Kind, Result};
use crate::partition::Partition;
use crate::store::{Acquired, Channel, Claim, Owner, Wake};
use crate::topic::Pair;

/// The pause after a failed acquisition: from the first to the longest.
const RETRY_AFTER: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// The loop of one pair.
pub struct PairLoop {
    dispatch: Arc<Dispatch>,
    pair: Pair,
    /// Wakes from the store: an earlier head arrived, or the lease was given up.
    woken: Arc<Notify>,
    _wake: Wake,
}

/// How an acquisition ended.
enum Attempt {
    Owned(Serving),
    /// Not now: look again after so long, or when woken.
    Later(Duration),
    /// The topic is gone.
    Gone,
}

impl PairLoop {
    /// The loop of a partition of a group.
    pub fn new(dispatch: Arc<Dispatch>, partition: Partition) -> PairLoop {
        let pair = dispatch.descriptor().pair(partition, &dispatch.group);
        let woken = Arc::new(Notify::new());
        let wake = dispatch.store.wakes().subscribe(Channel::of(&pair), woken.clone());
        PairLoop { dispatch, pair, woken, _wake: wake }
    }

    /// Owns the pair whenever it can, until `stop` fires or the topic is gone.
    pub async fn run(self, stop: CancellationToken) {
        let mut failures = 0;
        loop {
            let attempt = tokio::select! {
                attempt = self.attempt(&mut failures) => attempt,
                () = stop.cancelled() => Attempt::Gone,
            };
            match attempt {
                Attempt::Owned(serving) => match self.serve(serving, &stop).await {
                    // Taking it again at once would fail again at once.
                    Err(error) if error.kind() == Kind::Corrupt => self.wait(pause(&mut failures), &stop).await,
                    _ => failures = 0,
                },
                Attempt::Later(pause) => self.wait(pause, &stop).await,
                Attempt::Gone => return self.dispatch.close(),
            }
        }
    }

    async fn wait(&self, pause: Duration, stop: &CancellationToken) {
        tokio::select! {
            () = self.dispatch.store.clock().local().sleep(pause) => {}
            () = self.woken.notified() => {}
            () = stop.cancelled() => {}
        }
    }

    async fn attempt(&self, failures: &mut u32) -> Attempt {
        match self.acquire().await {
            Ok(Some(attempt)) => attempt,
            Ok(None) => Attempt::Gone,
            Err(error) => {
                tracing::warn!(pair = %self.pair, %error, "acquisition failed");
                Attempt::Later(pause(failures))
            }
        }
    }

    /// One acquisition; `None` when the topic is gone.
    async fn acquire(&self) -> Result<Option<Attempt>> {
        let dispatch = &self.dispatch;
        let keeper = &dispatch.keeper;
        let sent = dispatch.store.clock().local().instant();
        let generation = dispatch.descriptor().generation;
        match dispatch.store.acquire(&self.pair, keeper.member(), keeper.ttl(), generation).await {
            Ok(Acquired::Held { expires_in, .. }) => Ok(Some(Attempt::Later(expires_in + Duration::from_millis(1)))),
            Ok(Acquired::Owned(owner)) => {
                let claim = Claim { pair: self.pair.clone(), epoch: owner.epoch().clone() };
                let lease = keeper.keep(claim, sent);
                match self.recover(owner).await {
                    Ok(owner) => {
                        let table = Table::new(self.pair.partition, owner.epoch().clone(), dispatch.policy());
                        let owned = Arc::new(Owned::new(lease, table));
                        Ok(Some(Attempt::Owned(Serving::new(dispatch.clone(), owner, owned, self.woken.clone()))))
                    }
                    Err(error) => {
                        keeper.forget(&lease);
                        Err(error)
                    }
                }
            }
            Err(error) if error.kind() == Kind::Stale => match dispatch.reload().await? {
                true => Err(Error::unavailable(format!("the topic of {} has changed", self.pair))),
                false => Ok(None),
            },
            Err(error) => Err(error),
        }
    }

    /// Schedules again what older epochs hold, before anything is reserved.
    async fn recover(&self, mut owner: Box<dyn Owner>) -> Result<Box<dyn Owner>> {
        let mut recovered = 0;
        let orphans = loop {
            let page = owner.recover().await?;
            recovered += page.messages;
            if !page.more {
                break page.orphans;
            }
        };
        if orphans > 0 {
            self.repair(&mut owner, orphans).await?;
        }
        if recovered > 0 {
            self.dispatch.metrics.takeovers.inc();
            tracing::info!(pair = %self.pair, epoch = %owner.epoch(), recovered, "took over");
        }
        Ok(owner)
    }

    /// Bodies that are in no place would never be delivered. No rule of the protocol leaves any, or ids without bodies; a
    /// store that lost data, or someone who changed its keys, may.
    async fn repair(&self, owner: &mut Box<dyn Owner>, orphans: u64) -> Result<()> {
        tracing::error!(pair = %self.pair, orphans, "bodies and ids do not match; repairing");
        let mut from = None;
        loop {
            let page = owner.repair(from).await?;
            self.dispatch.metrics.repairs.inc_by(page.messages as u64);
            from = page.next;
            if from.is_none() {
                return Ok(());
            }
        }
    }

    async fn serve(&self, serving: Serving, stop: &CancellationToken) -> Result<()> {
        let dispatch = &self.dispatch;
        let owned = serving.owned();
        dispatch.enter(self.pair.partition, owned.clone());
        tracing::debug!(pair = %self.pair, epoch = %owned.lease.claim().epoch, "owned");
        let end = serving.run(stop).await;
        dispatch.leave(self.pair.partition, &owned);
        dispatch.keeper.forget(&owned.lease);
        if let Err(error) = &end {
            dispatch.metrics.leases_lost.inc();
            tracing::warn!(pair = %self.pair, epoch = %owned.lease.claim().epoch, %error, "lost");
        }
        end
    }
}

/// The pause after one more failure.
fn pause(failures: &mut u32) -> Duration {
    *failures += 1;
    RETRY_AFTER.1.min(RETRY_AFTER.0 * 2_u32.saturating_pow(*failures))
}

impl Dispatch {
    /// What the topic says about failures.
    pub(super) fn policy(&self) -> Policy {
        let descriptor = self.descriptor();
        Policy {
            backoff: descriptor.settings.backoff.clone(),
            max_attempts: descriptor.settings.max_attempts,
            dedup_window: descriptor.settings.dedup_window,
        }
    }

    /// Loads the descriptor again. False when the topic or the group is gone.
    pub(super) async fn reload(&self) -> Result<bool> {
        let topic = self.descriptor().topic.clone();
        let Some(descriptor) = self.store.topic(&topic).await? else { return Ok(false) };
        if descriptor.incarnation != self.descriptor().incarnation || !descriptor.groups.contains(&self.group) {
            return Ok(false);
        }
        self.set_descriptor(Arc::new(descriptor));
        Ok(true)
    }

    fn enter(&self, partition: Partition, owned: Arc<Owned>) {
        self.pairs_mut().insert(partition, owned);
        self.counts.leases_owned.inc();
    }

    fn leave(&self, partition: Partition, owned: &Arc<Owned>) {
        self.pairs_mut().remove(&partition);
        self.counts.leases_owned.dec();
        owned.progress.send_modify(|progress| progress.over = true);
    }
}
