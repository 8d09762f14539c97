//! Sentences about deletions, bulk changes, limits and cron jobs.

use std::collections::{BTreeMap, BTreeSet};

use dwell_simulated_redis::Time;

use super::super::{BulkFact, Delivered, Limited, PushFact, Pushed, Verdict, Windowed};
use super::{Breach, EARLY, Judge};
use crate::client::CRON;
use crate::operation::{BulkAction, Limit};

const REMOVED: &str = "what was deleted with its topic or group is not delivered";
const BULK: &str = "what a bulk change took out of its time is not delivered in it";
const CLOSED: &str = "nothing is delivered to a group outside of its window";
const IN_FLIGHT: &str = "no group has more in flight than its limit";
const KEY_IN_FLIGHT: &str = "no key has more in flight than its limit";
const RATE: &str = "no group gets more in a second than its rate";
const KEY_RATE: &str = "no key is delivered faster than its rate";
const NO_JOB: &str = "a cron job pushes from when it is made until it is deleted";
const GAP: &str = "a cron job pushes at each of its times";
const KEPT: &str = "a cron job that was made is there, and one that was deleted is not";

/// Until all brokers know of new limits.
const LIMIT_SLACK: u64 = 3_000_000;
/// Brokers believe times of Redis that differ by less.
pub(super) const CLOCK_SLACK: u64 = 1_000_000;

/// Between which times a delivery was made.
fn span_of(delivery: &Delivered) -> (Time, Time) {
    (delivery.span.sent, delivery.span.end())
}

/// Of deliveries that were each made between two times, the first that are more than there may be in so many microseconds: from when
/// to when, and how many.
fn first_over(mut spans: Vec<(Time, Time)>, most: impl Fn(u64) -> u64) -> Option<(Time, Time, usize)> {
    spans.sort_by_key(|(_, end)| *end);
    (0..spans.len()).find_map(|last| {
        let end = spans[last].1;
        (0..=last).find_map(|first| {
            let begin = spans[first..=last].iter().map(|(sent, _)| *sent).min()?;
            let count = last - first + 1;
            (count as u64 > most(end.since(begin))).then_some((begin, end, count))
        })
    })
}

/// The job of a cron message, and its time: its tag has both.
pub(super) fn occurrence(tag: &str) -> Option<(usize, Time)> {
    let (_, id) = tag.split_once('/')?;
    let (job, time) = id.strip_prefix('c')?.split_once('@')?;
    let at: jiff::Timestamp = time.parse().ok()?;
    Some((job.parse().ok()?, Time::from_ms(u64::try_from(at.as_millisecond()).ok()?)))
}

impl Judge<'_> {
    /// A group that was made again as a copy has what its source had, also what was deleted with the group before.
    pub(super) fn removed(&self, delivery: &Delivered) -> Option<Breach> {
        let push = self.by_tag.get(&*delivery.tag)?;
        let removal = self.ledger.removals.iter().find(|removal| {
            removal.topic == delivery.topic
                && removal.group.is_none_or(|group| group == delivery.group)
                && matches!(push.outcome, Pushed::Stored | Pushed::Journaled | Pushed::Replaced)
                && push.span.end() < removal.span.sent
                && removal.span.end() < delivery.span.sent
                && !(removal.group.is_some() && self.may_be_copied(delivery, removal.span.sent))
                && !self.is_with_others(removal.span.sent, removal.span.end())
        })?;
        let ms = delivery.span.sent.since(removal.span.end()) / 1_000;
        let detail = format!("payload {}: asked for {ms} ms after the deletion", delivery.tag);
        (!self.forgot(push.span.sent, delivery.span.end()))
            .then(|| self.breach(REMOVED, delivery.topic, &delivery.id, detail))
    }

    /// Whether what was delivered may be there since its group was made again as a copy, from this time on.
    fn may_be_copied(&self, delivery: &Delivered, from: Time) -> bool {
        self.ledger.removals.iter().any(|removal| {
            removal.is_copy
                && (removal.topic, removal.group) == (delivery.topic, Some(delivery.group))
                && removal.back >= from
                && removal.span.sent < delivery.span.end()
        })
    }

    /// Changes of many messages of a topic that may have had an effect in this time.
    pub(super) fn bulks_between(&self, topic: usize, from: Time, to: Time) -> impl Iterator<Item = &BulkFact> {
        self.ledger
            .bulks
            .iter()
            .filter(move |bulk| bulk.topic == topic && bulk.span.end() >= from && bulk.span.sent <= to)
    }

    /// The earliest time to which changes of many messages may have moved this one.
    pub(super) fn advanced(&self, topic: usize, due: Time, from: Time, to: Time) -> Time {
        let by_ms = self.bulks_between(topic, from, to).map(|bulk| match bulk.action {
            BulkAction::Advance(by_ms) => by_ms,
            _ => 0,
        });
        Time(due.0.saturating_sub(by_ms.sum::<u64>() * 1_000))
    }

    /// Cancelled, parked or postponed with others, while it certainly waited.
    pub(super) fn swept_up(&self, delivery: &Delivered) -> Option<Breach> {
        let push = *self.by_tag.get(&*delivery.tag)?;
        let at = delivery.span.answered?;
        // It is the only change that can explain where the message is.
        let mut bulks = self.bulks_between(push.target.topic, push.span.sent, at);
        let (Some(bulk), None) = (bulks.next(), bulks.next()) else { return None };
        let is_out = match bulk.action {
            BulkAction::Cancel | BulkAction::Park => true,
            BulkAction::Postpone(by_ms) => at.as_ms() < push.due.as_ms() + by_ms,
            BulkAction::Advance(_) | BulkAction::Unpark => false,
        };
        if !is_out || !self.certainly_waits(push, bulk) || bulk.span.end() >= delivery.span.sent {
            return None;
        }
        let detail = format!("payload {} after {:?}", delivery.tag, bulk.action);
        let is_certain = self.is_one(push, delivery.group, at)
            && self.is_one(push, bulk.group, at)
            && self.controls_of(push.target.topic, &push.target.id).next().is_none()
            && !self.forgot(push.span.sent, at)
            && !self.is_disturbed(push.span.sent, bulk.span.end());
        is_certain.then(|| self.breach(BULK, delivery.topic, &delivery.id, detail))
    }

    /// Whether a message was in the group of the change before it, and was not due until after it, at a time of its window.
    fn certainly_waits(&self, push: &PushFact, bulk: &BulkFact) -> bool {
        let latest = push.due + push.span.end().since(push.span.sent) + CLOCK_SLACK;
        matches!(push.outcome, Pushed::Stored | Pushed::Journaled)
            && self.pushes_of(push.target.topic, &push.target.id).len() == 1
            && !push.has_ttl
            && !self.may_be_purged(push.target.topic, bulk.group, push.span.sent, bulk.span.end())
            && push.span.end() < bulk.span.sent
            && !self.ledger.moves.iter().any(|of| of.topic == push.target.topic && of.sent <= bulk.span.end())
            && push.due >= bulk.from
            && latest < bulk.to
            && push.due.0 > bulk.span.end().0.saturating_add(CLOCK_SLACK)
    }

    /// Asked for and answered while the window of its group was closed, by the clock of any broker.
    pub(super) fn closed(&self, delivery: &Delivered) -> Option<Breach> {
        let at = delivery.span.answered?;
        let of = |windowed: &&Windowed| (windowed.topic, windowed.group) == (delivery.place, delivery.group);
        let (windowed, (from, to)) = self.ledger.windows.iter().filter(of).find_map(|windowed| {
            let (from, to) = windowed.closed.filter(|_| windowed.is_done)?;
            let known = windowed.span.end() + LIMIT_SLACK;
            let is_last = |other: &Windowed| other.span.end() < windowed.span.sent || other.span.sent > at;
            let mut others = self.ledger.windows.iter().filter(of).filter(|other| !std::ptr::eq(*other, windowed));
            let is_certain = known.max(from + CLOCK_SLACK) < delivery.span.sent && at + CLOCK_SLACK < to;
            (is_certain && others.all(is_last)).then_some((windowed, (from, to)))
        })?;
        let is_certain = !self.is_disturbed(windowed.span.sent, at)
            && !self.was_removed(delivery.place, delivery.group, windowed.span.sent, at);
        let detail = format!("payload {} between {from:?} and {to:?}", delivery.tag);
        is_certain.then(|| self.breach(CLOSED, delivery.topic, &delivery.id, detail))
    }

    /// When the last window opened that may have been closed before this time.
    pub(super) fn opened(&self, (topic, group): (usize, usize), at: Time) -> Time {
        let of_group = self.ledger.windows.iter().filter(|windowed| (windowed.topic, windowed.group) == (topic, group));
        let closed = of_group.filter(|windowed| windowed.span.sent <= at).filter_map(|windowed| windowed.closed);
        let over = closed.filter(|(from, _)| *from <= at + CLOCK_SLACK).map(|(_, to)| to + CLOCK_SLACK);
        over.max().unwrap_or(Time(0)).min(at)
    }

    /// The limits of a group while they are certainly in force: from when all know them until the next change.
    fn in_force(&self) -> impl Iterator<Item = (&Limited, Time, Time)> {
        let of = |limited: &Limited| (limited.limit.topic, limited.limit.group);
        self.ledger.limits.iter().filter(|limited| limited.is_done).filter_map(move |limited| {
            let others = self.ledger.limits.iter().filter(|other| of(other) == of(limited));
            let others = others.filter(|other| !std::ptr::eq(*other, limited) && other.span.end() >= limited.span.sent);
            let until = others.map(|other| other.span.sent).min().unwrap_or(Time(u64::MAX));
            let from = limited.span.end() + if limited.is_first { 0 } else { LIMIT_SLACK };
            (from < until).then_some((limited, from, until))
        })
    }

    pub(super) fn in_flight(&self, number: usize, delivery: &Delivered) -> Option<Breach> {
        let of_group = self.over_limit(number, delivery, IN_FLIGHT, |limit| limit.max_in_flight, |_| true);
        of_group.or_else(|| {
            let key = self.key_of(delivery)?;
            let is_of_key = |other: &Delivered| self.key_of(other) == Some(key);
            self.over_limit(number, delivery, KEY_IN_FLIGHT, |limit| limit.max_in_flight_of(key), is_of_key)
        })
    }

    pub(super) fn key_of(&self, delivery: &Delivered) -> Option<&str> {
        self.by_tag.get(&*delivery.tag)?.target.key.as_deref()
    }

    fn over_limit(
        &self,
        number: usize,
        delivery: &Delivered,
        sentence: &'static str,
        limit_of: impl Fn(&Limit) -> u32,
        counts: impl Fn(&Delivered) -> bool,
    ) -> Option<Breach> {
        let at = delivery.span.answered?;
        let (limited, from, _) = self.in_force().find(|(limited, from, until)| {
            (limited.limit.topic, limited.limit.group) == (delivery.place, delivery.group)
                && limit_of(&limited.limit) > 0
                && delivery.span.sent > *from
                && at < *until
        })?;
        let is_held = |other: usize| {
            let first = &self.ledger.deliveries[other];
            // An SQS client may delete a message by the handle of an earlier delivery.
            let others = self.deliveries.get(&(&*first.tag, first.group)).into_iter().flatten();
            let of_others = others.flat_map(|other| self.settlements.get(other)).flatten();
            let ends = of_others.filter(|settled| settled.delivery == other || settled.verdict == Verdict::Counts);
            let settled = ends.map(|settled| settled.span.sent).filter(|sent| *sent >= first.span.sent).min();
            (first.place, first.group) == (delivery.place, delivery.group)
                && first.span.answered.is_some_and(|had| had < delivery.span.sent)
                && (first.span.sent + first.visibility_ms * 1_000).min(settled.unwrap_or(Time(u64::MAX))) > at
                // What other limits allowed.
                && first.span.sent > from
                && !self.may_be_purged(first.place, first.group, first.span.sent, at)
                && counts(first)
        };
        let held = (0..self.ledger.deliveries.len()).filter(|other| *other != number && is_held(*other));
        let held: Vec<&Delivered> = held.map(|other| &self.ledger.deliveries[other]).collect();
        let (first, limit) = (held.iter().map(|held| held.span.sent).min()?, limit_of(&limited.limit));
        // A fault from before them has an effect for as long as a change of limits.
        let since = Time(first.0.saturating_sub(LIMIT_SLACK));
        let is_over = held.len() >= limit as usize
            && !self.is_disturbed(since.max(limited.span.sent), at)
            && !self.was_removed(delivery.place, delivery.group, limited.span.sent, at);
        let held: Vec<&str> = held.iter().map(|held| &*held.tag).collect();
        let detail = format!("payload {} beside {}, of {limit}", delivery.tag, held.join(" "));
        is_over.then(|| self.breach(sentence, delivery.topic, &delivery.id, detail))
    }

    pub(super) fn rates(&self) -> Option<Breach> {
        self.in_force().filter(|(limited, ..)| limited.limit.rate > 0).find_map(|(limited, from, until)| {
            let Limit { topic, group, rate, .. } = limited.limit;
            let spans = self.asked_between((topic, group), from, until).map(span_of).collect();
            let a_second = |micros: u64| micros.div_ceil(1_000_000).max(1) * u64::from(rate);
            let (first, last, count) = first_over(spans, a_second)?;
            let is_certain = !self.is_disturbed(from, last) && !self.was_removed(topic, group, limited.span.sent, last);
            let ms = last.since(first) / 1_000;
            let detail = format!("{count} in {ms} ms, at {rate} a second");
            is_certain.then(|| self.breach(RATE, topic, &self.topics[topic].groups[group], detail))
        })
    }

    /// The rate of a key holds through everything that spares the data of Redis, however its owners change.
    pub(super) fn key_rates(&self) -> Option<Breach> {
        self.in_force().find_map(|(limited, from, until)| {
            let Limit { topic, group, .. } = limited.limit;
            let is_known = limited.is_first || !self.is_disturbed(limited.span.sent, from);
            let mut by_key = BTreeMap::<&str, Vec<(Time, Time)>>::new();
            for delivery in self.asked_between((topic, group), from, until) {
                if let Some(key) = self.key_of(delivery).filter(|key| limited.limit.rate_of(key).0 > 0) {
                    by_key.entry(key).or_default().push(span_of(delivery));
                }
            }
            let over = by_key.into_iter().find_map(|(key, spans)| {
                let (rate, burst) = limited.limit.rate_of(key);
                let most = |micros: u64| u64::from(burst) + micros * u64::from(rate) / 1_000_000;
                Some((key, first_over(spans, most)?))
            });
            let (key, (begin, end, count)) = over?;
            let (key_rate, key_burst) = limited.limit.rate_of(key);
            let is_certain = is_known
                && !self.forgot(from, end)
                && !self.was_removed(topic, group, limited.span.sent, end)
                && !self.is_with_others(begin, end);
            let ms = end.since(begin) / 1_000;
            let detail = format!("{count} of {key} in {ms} ms from {begin:?}, at {key_burst} and {key_rate} a second");
            is_certain.then(|| self.breach(KEY_RATE, topic, &self.topics[topic].groups[group], detail))
        })
    }

    /// What a group got by requests of this time. A stream has asked long before it gets something.
    fn asked_between(&self, place: (usize, usize), from: Time, until: Time) -> impl Iterator<Item = &Delivered> {
        let of_group =
            self.ledger.deliveries.iter().filter(move |of| (of.place, of.group) == place && of.visibility_ms > 0);
        of_group.filter(move |of| of.span.sent > from && of.span.end() < until)
    }

    /// What cron jobs push.
    pub(super) fn scheduled(&self, delivery: &Delivered) -> Option<Breach> {
        let (job, time) = occurrence(&delivery.tag)?;
        let at = delivery.span.answered?;
        if at.as_ms() < time.as_ms() {
            let detail = format!("{} ms before the time of the cron job", time.as_ms() - at.as_ms());
            return Some(self.breach(EARLY, delivery.topic, &delivery.id, detail));
        }
        let changes = || self.ledger.crons.iter().filter(|of| (of.topic, of.job) == (delivery.topic, job));
        let was_made = changes().any(|of| of.every_ms.is_some() && of.span.sent <= at);
        let deleted = changes().filter(|of| of.every_ms.is_none() && of.is_done);
        let is_over = deleted.filter(|of| of.span.end() + CLOCK_SLACK < time).any(|deleted| {
            let mut made = changes().filter(|of| of.every_ms.is_some());
            !made.any(|made| made.span.end() >= deleted.span.sent && made.span.sent <= at)
                && !self.forgot(deleted.span.sent, at)
                && !self.is_disturbed(deleted.span.sent, time)
        });
        (!was_made || is_over).then(|| self.breach(NO_JOB, delivery.topic, &delivery.id, String::new()))
    }

    /// The last change of each job counts in the end, whatever Redis forgot since.
    pub(super) fn cron_jobs_kept(&self) -> Option<Breach> {
        let ends = self.ledger.crons.iter().filter(|of| of.was_there_at_the_end.is_some());
        ends.clone().find_map(|end| {
            let (topic, job) = (end.topic, end.job);
            let changes = self.ledger.crons.iter().filter(|of| (of.topic, of.job) == (topic, job));
            let changes = changes.filter(|of| !std::ptr::eq(*of, end));
            let last = changes.clone().max_by_key(|of| of.span.sent)?;
            let is_last = changes.filter(|of| !std::ptr::eq(*of, last)).all(|of| of.span.end() < last.span.sent);
            let is_known =
                last.is_done && is_last && !self.was_removed(topic, usize::MAX, last.span.sent, end.span.sent);
            let is_lost = self.forgot_without(last.broker, last.span.sent)
                || self.ledger.unjournaled(last.broker, last.span)
                || self.ledger.wiped(last.broker, last.span.sent);
            // A broker that had nothing for its Redis stays with one of others, and the job is there.
            let is_theirs = !self.is_bound(last.broker) && self.is_with_others(last.span.sent, last.span.end());
            let was_there = end.was_there_at_the_end == Some(true);
            let is_broken =
                is_known && !is_lost && !is_theirs && !self.forgot_topics() && was_there != last.every_ms.is_some();
            is_broken.then(|| self.breach(KEPT, topic, &format!("c{job}"), format!("was there: {was_there}, {last:?}")))
        })
    }

    /// Between two messages of a job there is one at each of its times, when nothing happened meanwhile.
    pub(super) fn gaps(&self) -> Option<Breach> {
        let mut times: BTreeMap<(usize, usize, usize), BTreeSet<Time>> = BTreeMap::new();
        for delivery in &self.ledger.deliveries {
            if let Some((job, time)) = occurrence(&delivery.tag) {
                times.entry((delivery.topic, delivery.group, job)).or_default().insert(time);
            }
        }
        for (topic, group, tag) in &self.end.dead {
            if let Some((job, time)) = occurrence(tag) {
                times.entry((*topic, *group, job)).or_default().insert(time);
            }
        }
        times.into_iter().find_map(|((topic, group, job), times)| {
            let times: Vec<Time> = times.into_iter().collect();
            times.windows(2).find_map(|pair| {
                let (from, to) = (pair[0], pair[1]);
                let every_ms = self.every(topic, job, from, to)?;
                let is_gap = to.as_ms() - from.as_ms() != every_ms && !self.may_lack(topic, group, from, to);
                let detail =
                    format!("{} ms lie between {from:?} and {to:?}, not {every_ms}", to.as_ms() - from.as_ms());
                is_gap.then(|| self.breach(GAP, topic, &format!("c{job}"), detail))
            })
        })
    }

    /// How often a job certainly pushed between two times.
    fn every(&self, topic: usize, job: usize, from: Time, to: Time) -> Option<u64> {
        let changes = self.ledger.crons.iter().filter(|of| (of.topic, of.job) == (topic, job));
        let before = changes.clone().filter(|of| of.span.end() + CLOCK_SLACK < from && of.is_done);
        let last = before.max_by_key(|of| of.span.sent)?;
        let mut others = changes.filter(|of| !std::ptr::eq(*of, last));
        let is_last = !others.any(|of| of.span.end() >= last.span.sent && of.span.sent <= to + CLOCK_SLACK);
        last.every_ms.filter(|_| is_last)
    }

    /// Whether SQS delivered a message of a cron job in this time: it does not say which one.
    pub(super) fn is_unnamed(&self, of: (usize, usize), from: Time, to: Time) -> bool {
        let mut unnamed = self.ledger.deliveries.iter().filter(|other| other.tag == CRON);
        unnamed.any(|other| (other.topic, other.group) == of && other.span.end() >= from && other.span.sent <= to)
    }

    /// Whether messages of a topic may be gone undelivered.
    fn may_lack(&self, topic: usize, group: usize, from: Time, to: Time) -> bool {
        self.may_be_swept(topic, group, from)
            || self.is_unnamed((topic, group), Time(0), Time(u64::MAX))
            || self.is_disturbed(from, to + CLOCK_SLACK)
            || self.was_removed(topic, group, from, Time(u64::MAX))
            || self.forgot(from, Time(u64::MAX))
            || self.end.missing.contains(&(topic, group))
    }
}
