//! The sentences about the keys of a fair group.

use dwell_simulated_redis::Time;

use super::super::{Delivered, KeyPaused, KeySeen, PushFact, Pushed};
use super::{Breach, Judge, PAUSE_SLACK};

const KEYS: &str = "a group shows no more messages of a key than were pushed with it";
const PAUSED: &str = "nothing of a paused key is delivered";

impl Judge<'_> {
    /// Owners remember how many messages of a key are sorted, and what became of some of them they learn later. But each message counts
    /// once.
    pub(super) fn key(&self, seen: &KeySeen) -> Option<Breach> {
        let comes_from = [Some(seen.topic), self.topics[seen.topic].takes_from];
        let of_key = comes_from.into_iter().flatten().filter_map(|topic| self.by_key.get(&(topic, &*seen.key)));
        let may_be = |push: &&&PushFact| push.outcome != Pushed::Refused && push.span.sent <= seen.span.end();
        let pushed = of_key.flatten().filter(may_be).count() as u64;
        // The messages of a cron job have its name as their key.
        let is_of_job = seen.key.strip_prefix('c').is_some_and(|job| job.parse::<usize>().is_ok());
        let is_wrong = seen.messages > pushed && !is_of_job && !self.met_others(seen.span.end());
        is_wrong.then(|| {
            let group = &self.topics[seen.topic].groups[seen.group];
            let detail = format!("group {group}: {} messages of {} and {pushed} pushes", seen.messages, seen.key);
            self.breach(KEYS, seen.topic, &seen.key, detail)
        })
    }

    /// From the answer on, whoever owns the partition, frozen or not: only a loss of the data of Redis ends a pause.
    pub(super) fn key_paused(&self, delivery: &Delivered) -> Option<Breach> {
        let (at, key) = (delivery.span.answered?, self.key_of(delivery)?);
        let (place, asked) = ((delivery.place, delivery.group), delivery.span.sent);
        let pause = self.pauses_of(place, key).find(|pause| {
            pause.is_done
                && pause.span.end() < asked
                && at < pause.span.sent + pause.for_ms * 1_000
                // The last pause counts.
                && !self.pauses_of(place, key).any(|other| {
                    other.span != pause.span && other.span.end() > pause.span.sent && other.span.sent < at
                })
                && !self.is_unfair_between(place, pause.span.sent, at)
                && !self.forgot(pause.span.sent, at)
                && !self.met_others(at)
                && !self.was_removed(place.0, place.1, pause.span.sent, at)
        })?;
        // A stream has asked long before.
        let is_certain = delivery.visibility_ms > 0;
        let ms = asked.since(pause.span.end()) / 1_000;
        let detail = format!("key {key}: asked for {ms} ms after the pause of {} ms", pause.for_ms);
        is_certain.then(|| self.breach(PAUSED, delivery.topic, &delivery.id, detail))
    }

    fn pauses_of(&self, place: (usize, usize), key: &str) -> impl Iterator<Item = &KeyPaused> {
        self.ledger.key_pauses.iter().filter(move |of| (of.topic, of.group) == place && of.key == key)
    }

    fn is_unfair_between(&self, place: (usize, usize), from: Time, to: Time) -> bool {
        let mut changes = self.ledger.unfair.iter().filter(|(topic, group, _)| (*topic, *group) == place);
        changes.any(|(.., span)| span.end() >= from && span.sent <= to)
    }

    /// Until when a pause may have held up a key by then.
    pub(super) fn key_paused_until(&self, place: (usize, usize), key: Option<&str>, by: Time) -> Time {
        let Some(key) = key else { return Time(0) };
        let pauses = self.pauses_of(place, key).filter(|pause| pause.span.sent <= by);
        let end =
            |pause: &KeyPaused| pause.span.end().0.saturating_add(pause.for_ms * 1_000).saturating_add(PAUSE_SLACK);
        Time(pauses.map(end).max().unwrap_or(0))
    }
}
