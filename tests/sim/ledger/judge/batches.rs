//! The sentences about consumers that wait for a batch.

use dwell_simulated_redis::Time;

use super::super::{BatchFact, PushFact};
use super::{Breach, Judge};

const ONE_KEY: &str = "a batch of one key has messages of no other";
const COMPLETE: &str = "a batch has as many messages as its consumer waits for, or its oldest has waited";

/// Due times of brokers and of the ledger differ by less.
const SLACK: u64 = 10_000;

impl Judge<'_> {
    pub(super) fn batch(&self, batch: &BatchFact) -> Vec<Breach> {
        [self.mixed(batch), self.incomplete(batch)].into_iter().flatten().collect()
    }

    fn pushes_in(&self, batch: &BatchFact) -> impl Iterator<Item = Option<&PushFact>> {
        batch.deliveries.iter().map(|number| self.by_tag.get(&*self.ledger.deliveries[*number].tag).copied())
    }

    fn mixed(&self, batch: &BatchFact) -> Option<Breach> {
        if !batch.gather.same_key {
            return None;
        }
        let mut pushes = self.pushes_in(batch).flatten();
        let first = pushes.next()?;
        let other = pushes.find(|push| push.target.key != first.target.key)?;
        let detail = format!("payload {} with {}", other.tag, first.tag);
        Some(self.breach(ONE_KEY, batch.place, &other.target.id, detail))
    }

    /// For batches of messages which were pushed once, delivered for the first time, and which nobody changed.
    fn incomplete(&self, batch: &BatchFact) -> Option<Breach> {
        let (count, at) = (batch.deliveries.len(), batch.span.answered?);
        if count == 0 || count >= batch.gather.min {
            return None;
        }
        let pushes: Vec<&PushFact> = self.pushes_in(batch).collect::<Option<_>>()?;
        let oldest = pushes.iter().map(|push| push.due).min()?;
        let is_plain = |(push, number): (&&PushFact, &usize)| {
            let topic = push.target.topic;
            self.ledger.deliveries[*number].attempt == 1
                && batch.place == topic
                && push.outcome.is_new()
                && self.pushes_of(topic, &push.target.id).len() == 1
                && self.controls_of(topic, &push.target.id).next().is_none()
                && !self.is_changed_with_others(topic, Time(0), at)
                && !self.was_removed(topic, batch.group, push.span.sent, at)
        };
        let has_limit = self.ledger.limits.iter().any(|limited| {
            (limited.limit.topic, limited.limit.group) == (batch.place, batch.group) && limited.span.sent <= at
        });
        let is_beyond_doubt = pushes.iter().zip(&batch.deliveries).all(is_plain)
            && !has_limit
            && !self.is_disturbed(batch.span.sent.min(oldest), at);
        let is_complete = at.0 + SLACK >= oldest.0 + batch.gather.linger_ms * 1_000;
        (is_beyond_doubt && !is_complete).then(|| {
            let detail =
                format!("{count} messages for {:?}, {} ms after the oldest", batch.gather, at.since(oldest) / 1_000);
            self.breach(COMPLETE, batch.place, &pushes[0].target.id, detail)
        })
    }

    /// Until when a consumer that waits for a batch may have kept messages of a group that another one may take.
    pub(super) fn gathered_until(&self, place: usize, group: usize, at: Time) -> Time {
        let of_group = self.ledger.batches.iter().filter(|batch| (batch.place, batch.group) == (place, group));
        of_group.filter(|batch| batch.span.sent < at).map(|batch| batch.span.end().min(at)).max().unwrap_or(Time(0))
    }
}
