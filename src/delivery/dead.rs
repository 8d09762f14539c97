//! When an owner drops the dead messages that are past the bounds of their topic: after more of them died, and when the
//! oldest one has grown too old. A pair without dead messages, or without bounds, costs nothing.

use std::time::Duration;

use super::GroupDelivery;
use crate::model::error::Result;
use crate::model::topic::GroupPartition;
use crate::platform::clock::Instant;
use crate::store::DeadBounds;

/// The shortest span between two looks for what has grown too old, and the pause after a failed one.
const PAUSE: Duration = Duration::from_secs(10);

/// When to look for dead messages past their bounds.
#[derive(Debug, Default)]
pub(super) struct DeadKeeper {
    next: Instant,
    /// The generation of the topic whose bounds were looked at.
    generation: u64,
}

impl DeadKeeper {
    /// When to look next.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// More died.
    pub(super) fn look_again(&mut self) {
        self.next = Instant::default();
    }

    /// The topic has this generation now: its bounds may be others.
    pub(super) fn set_generation(&mut self, generation: u64) {
        if self.generation != generation {
            self.generation = generation;
            self.look_again();
        }
    }

    /// Drops what is past the bounds. A look that fails is made again later: nobody waits for it.
    pub(super) async fn look(&mut self, dispatch: &GroupDelivery, pair: &GroupPartition) {
        let now = dispatch.store.backend.clock().local().instant();
        self.next = drop_past(dispatch, pair, now).await.unwrap_or_else(|error| {
            tracing::debug!(topic = %pair.topic, group = %pair.group, partition = pair.partition.0, %error, "dead messages past their bounds were not dropped");
            now.plus(PAUSE)
        });
    }
}

/// Drops what is past the bounds now, and answers when something may be again.
async fn drop_past(dispatch: &GroupDelivery, pair: &GroupPartition, now: Instant) -> Result<Instant> {
    let descriptor = dispatch.descriptor();
    let (age, count) = (descriptor.settings.dead_max_age, descriptor.settings.dead_max_count);
    let age = (!age.is_zero()).then_some(age);
    let count = (count > 0).then_some(count);
    if age.is_none() && count.is_none() {
        return Ok(Instant::FAR);
    }
    let clock = dispatch.store.backend.clock();
    loop {
        let died_before = age.map(|age| clock.now().minus(age));
        let dropped = dispatch.store.dead_letters.drop_dead(pair, DeadBounds { died_before, count }).await?;
        dispatch.counts.dead_aged.inc_by(dropped.aged);
        dispatch.counts.dead_surplus.inc_by(dropped.surplus);
        if !dropped.more {
            let too_old = age.zip(dropped.oldest).map(|(age, died_at)| clock.reaches(died_at.plus(age)));
            return Ok(too_old.map_or(Instant::FAR, |at| at.max(now.plus(PAUSE))));
        }
    }
}
