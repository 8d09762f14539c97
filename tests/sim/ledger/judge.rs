//! The sentences.

mod admin;
mod after;
mod batches;
mod bounded;
mod copied;
mod errors;
mod kept;
mod keys;
mod late;
mod made;
mod met;
mod purged;
mod released;
mod strange;
mod withdrawn;

use std::collections::{BTreeMap, BTreeSet};

use dwell_simulated_redis::Time;

use super::{
    Control, Controlled, Decision, Delivered, Effect, Ledger, Played, PushFact, Pushed, Settled, Span, Sweep, Verdict,
};
use crate::client::{CRON, SETS_UP};
use crate::operation::{BulkAction, Policy};
use crate::plan::{BROKERS_MAX, Fault, Scenario, Topic};

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Breach {
    pub(crate) sentence: &'static str,
    pub(crate) detail: String,
    /// The message that it is about, as the log names it.
    pub(crate) id: String,
}

/// What was there when everything was over.
#[derive(Debug, Default)]
pub(crate) struct End {
    /// Topic, group and payload of each dead letter.
    pub(crate) dead: BTreeSet<(usize, usize, String)>,
    /// Messages that were neither settled nor dead, by topic and group.
    pub(crate) left: Vec<(usize, usize, String)>,
    /// Topics and groups that were made and are not there.
    pub(crate) missing: Vec<(usize, usize)>,
}

const EARLY: &str = "a message is never delivered before it is due";
const REFUSED: &str = "a push that was not accepted is not delivered";
const ACKED: &str = "what was acked does not come again";
const CANCELLED: &str = "what was cancelled is not delivered";
const LOST: &str = "what was accepted is delivered until it has ended";
const HOLDER: &str = "a message has one consumer of a group at a time";
const ORDER: &str = "an earlier message of a key has ended when a later one is delivered";
const PAUSED: &str = "nothing is delivered while its group is paused";
const NACKED: &str = "a nacked message waits for its delay";
const FAILED: &str = "no broker fails by itself";
const MISSING: &str = "a group is there until it is deleted";
const LEFT: &str = "nothing is left when everything has ended";

/// Brokers with different estimates of the time of Redis order what is due that close together as they believe.
const ORDER_SLACK: u64 = 1_000_000;
/// How long others certainly wait for a broker, ms: a lease ttl from its last report on.
const WAITED_FOR_MS: u64 = 2_000;
/// Until all brokers know of a pause.
const PAUSE_SLACK: u64 = 3_000_000;

pub(crate) fn judge(ledger: &Ledger, topics: &[Topic], scenario: Scenario, end: &End) -> Vec<Breach> {
    let judge = Judge::new(ledger, topics, scenario, end);
    let mut breaches = Vec::new();
    for (number, delivery) in ledger.deliveries.iter().enumerate() {
        breaches.extend(judge.early(delivery));
        breaches.extend(judge.refused(delivery));
        breaches.extend(judge.acked(delivery));
        breaches.extend(judge.cancelled(delivery));
        breaches.extend(judge.withdrawn(number, delivery));
        breaches.extend(judge.purged(number, delivery));
        breaches.extend(judge.holder(number, delivery));
        breaches.extend(judge.nacked(delivery));
        breaches.extend(judge.ordered(delivery));
        breaches.extend(judge.paused(delivery));
        breaches.extend(judge.key_paused(delivery));
        breaches.extend(judge.closed(delivery));
        breaches.extend(judge.removed(delivery));
        breaches.extend(judge.swept_up(delivery));
        breaches.extend(judge.in_flight(number, delivery));
        breaches.extend(judge.scheduled(delivery));
        breaches.extend(judge.late(number, delivery));
        breaches.extend(judge.bounded(delivery));
        breaches.extend(judge.released(number, delivery));
        breaches.extend(judge.after(delivery));
    }
    for batch in &ledger.batches {
        breaches.extend(judge.batch(batch));
    }
    breaches.extend(ledger.errors.iter().filter_map(|seen| judge.error(seen)));
    breaches.extend(ledger.keys.iter().filter_map(|seen| judge.key(seen)));
    breaches.extend(judge.made());
    breaches.extend(judge.strange());
    breaches.extend(judge.kept());
    breaches.extend(judge.rates());
    breaches.extend(judge.key_rates());
    breaches.extend(judge.gaps());
    breaches.extend(judge.cron_jobs_kept());
    for push in &ledger.pushes {
        breaches.extend(judge.copied(push));
        breaches.extend(judge.met(push));
        for group in 0..topics[push.target.topic].groups.len() {
            breaches.extend(judge.lost(push, group));
        }
    }
    for (topic, group) in &end.missing {
        breaches.extend(judge.missing(*topic, *group));
    }
    for (topic, group, what) in &end.left {
        let detail = format!("{} {}: {what}", topics[*topic].name, topics[*topic].groups[*group]);
        breaches.push(Breach { sentence: LEFT, detail, id: String::new() });
    }
    for failure in &ledger.failures {
        breaches.push(Breach { sentence: FAILED, detail: failure.clone(), id: String::new() });
    }
    breaches
}

struct Judge<'a> {
    ledger: &'a Ledger,
    topics: &'a [Topic],
    scenario: Scenario,
    end: &'a End,
    by_tag: BTreeMap<&'a str, &'a PushFact>,
    by_id: BTreeMap<usize, BTreeMap<&'a str, Vec<&'a PushFact>>>,
    by_key: BTreeMap<(usize, &'a str), Vec<&'a PushFact>>,
    /// Deliveries of a payload in a group.
    deliveries: BTreeMap<(&'a str, usize), Vec<usize>>,
    settlements: BTreeMap<usize, Vec<&'a Settled>>,
}

impl<'a> Judge<'a> {
    fn new(ledger: &'a Ledger, topics: &'a [Topic], scenario: Scenario, end: &'a End) -> Judge<'a> {
        let mut by_id: BTreeMap<usize, BTreeMap<_, Vec<_>>> = BTreeMap::new();
        let mut deliveries: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let mut settlements: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let mut by_key: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for push in &ledger.pushes {
            if let Some(key) = &push.target.key {
                by_key.entry((push.target.topic, &**key)).or_default().push(push);
            }
            by_id.entry(push.target.topic).or_default().entry(&*push.target.id).or_default().push(push);
        }
        let named = ledger.deliveries.iter().enumerate().filter(|(_, delivery)| delivery.tag != CRON);
        for (number, delivery) in named {
            deliveries.entry((&*delivery.tag, delivery.group)).or_default().push(number);
        }
        for settled in &ledger.settlements {
            settlements.entry(settled.delivery).or_default().push(settled);
        }
        let by_tag = ledger.pushes.iter().map(|push| (&*push.tag, push)).collect();
        Judge { ledger, topics, scenario, end, by_tag, by_id, by_key, deliveries, settlements }
    }

    fn breach(&self, sentence: &'static str, topic: usize, id: &str, detail: String) -> Breach {
        Breach { sentence, detail, id: format!("t{topic}/{id}") }
    }

    /// Whether Redis may have forgotten between these times what it had answered.
    fn forgot(&self, from: Time, to: Time) -> bool {
        self.scenario.may_forget()
            && self.ledger.faults.iter().any(|fault| fault.fault.forgets() && fault.until >= from && fault.at <= to)
    }

    /// Whether Redis forgot something since, while this broker was silent for longer than the others wait for it, or after
    /// it had lost its disk.
    fn forgot_without(&self, broker: usize, since: Time) -> bool {
        let mut losses = self.ledger.faults.iter().filter(|loss| loss.fault.forgets() && loss.until >= since);
        losses.any(|loss| {
            let mut faults = self.ledger.faults.iter();
            let loses_disk = faults.any(|other| {
                let is_its = other.fault.loses_disk().is_some_and(|of| self.ledger.may_hold(of, broker, since));
                is_its && other.at >= since && other.at <= loss.until
            });
            loses_disk || self.silent_ms(broker, since, loss) > WAITED_FOR_MS
        })
    }

    /// For how long this broker may have been silent around a loss. A process that ended is silent for as long as its start takes, too.
    fn silent_ms(&self, broker: usize, since: Time, loss: &Played) -> u64 {
        let silences = self.ledger.faults.iter().filter_map(|other| {
            let (of, ms) = other.fault.silences()?;
            let is_then = other.at <= loss.until && other.at + ms * 1_000 >= loss.at;
            let is_its = other.fault.loses_disk().is_none() && self.ledger.may_hold(of, broker, since);
            (is_then && is_its).then_some(match other.fault {
                Fault::FreezeBroker(..) => ms,
                _ => u64::from(u32::MAX),
            })
        });
        silences.sum()
    }

    /// Until when a loss may take what Redis answers.
    fn forgot_until(&self, loss: &Played) -> Time {
        if loss.fault.forgets_at_once(self.scenario) { loss.at } else { loss.until }
    }

    /// Whether Redis forgot something after the disk of a broker had failed.
    fn is_unjournaled_at_a_loss(&self, broker: usize, since: Time) -> bool {
        let losses = self.ledger.faults.iter().filter(|loss| loss.fault.forgets());
        let last = losses.map(|loss| self.forgot_until(loss)).filter(|until| *until >= since).max();
        last.is_some_and(|last| self.ledger.unjournaled(broker, Span { sent: since, answered: Some(last) }))
    }

    /// Whether Redis forgot while the broker was silent that made the topics: the others need not know them.
    fn forgot_topics(&self) -> bool {
        self.scenario.may_forget() && self.forgot_without(SETS_UP, Time(0))
    }

    fn missing(&self, topic: usize, group: usize) -> Option<Breach> {
        let group = &self.topics[topic].groups[group];
        (!self.forgot_topics()).then(|| self.breach(MISSING, topic, group, "in the end".to_owned()))
    }

    /// Whether a fault can be felt between these times.
    fn is_disturbed(&self, from: Time, to: Time) -> bool {
        self.ledger.faults.iter().any(|fault| fault.until >= from && fault.at <= to)
    }

    fn pushes_of(&self, topic: usize, id: &str) -> &[&'a PushFact] {
        self.by_id.get(&topic).and_then(|ids| ids.get(id)).map_or(&[], Vec::as_slice)
    }

    fn controls_of(&self, topic: usize, id: &str) -> impl Iterator<Item = &'a Controlled> {
        self.ledger.controls.iter().filter(move |other| other.target.topic == topic && other.target.id == id)
    }

    /// Whether a topic or group may have been absent at any of these times, or made anew.
    fn was_removed(&self, topic: usize, group: usize, from: Time, to: Time) -> bool {
        self.ledger.removals.iter().any(|removal| {
            removal.topic == topic
                && removal.group.is_none_or(|of| of == group)
                && removal.span.sent <= to
                && removal.back >= from
        })
    }

    /// Whether two messages may have this id: one that was moved, and one that was pushed since.
    fn may_be_two(&self, topic: usize, id: &str, by: Time) -> bool {
        let is_moved = || self.ledger.moves.iter().any(|of| of.topic == topic && of.sent <= by);
        self.pushes_of(topic, id).len() > 1 && (self.topics[topic].forwards_to.is_some() || is_moved())
    }

    /// Whether what is said about this message of a group by this time is beyond doubt.
    fn is_one(&self, push: &PushFact, group: usize, by: Time) -> bool {
        let (topic, id) = (push.target.topic, &*push.target.id);
        !self.may_be_two(topic, id, by) && !self.was_removed(topic, group, push.span.sent, by)
    }

    /// The due times that a message may have had when it was delivered: the last one that is certain, and those that may
    /// have come after it.
    fn early(&self, delivery: &Delivered) -> Option<Breach> {
        let push = self.by_tag.get(&*delivery.tag)?;
        let (topic, id) = (delivery.topic, &*delivery.id);
        if !self.is_one(push, delivery.group, delivery.span.end()) {
            return None;
        }
        let debounced = self.pushes_of(topic, id).iter().filter(|other| {
            other.policy == Policy::Debounce && !matches!(other.outcome, Pushed::Refused | Pushed::Duplicate)
        });
        let debounced =
            debounced.map(|other| (other.span, self.debounced_due(other, push), other.outcome == Pushed::Debounced));
        let rescheduled = self.controls_of(topic, id).filter(|other| other.effects[delivery.group] != Effect::None);
        let rescheduled = rescheduled.filter_map(|other| {
            let Control::Reschedule(due) = other.control else { return None };
            let is_lost = other.is_buffered && self.ledger.wiped(other.broker, other.span.sent);
            Some((other.span, due, other.effects[delivery.group] == Effect::Done && !is_lost))
        });
        // What moves a message need not move the one that follows it.
        let is_sure = !self.may_follow(push);
        let own = (push.span, push.due, true);
        let changes = std::iter::once(own).chain(debounced).chain(rescheduled);
        let changes: Vec<_> = changes.filter(|(span, ..)| span.sent <= delivery.span.end()).collect();
        let certain = changes.iter().filter(|(span, _, is_certain)| {
            *is_certain && (is_sure || *span == push.span) && span.end() < delivery.span.sent
        });
        let last = certain.max_by_key(|(span, ..)| span.sent).copied().unwrap_or(own);
        let is_possible =
            |span: &super::Span| span.end() >= last.0.sent || self.forgot(last.0.sent, delivery.span.end());
        let due = changes.iter().filter(|(span, ..)| is_possible(span)).map(|(_, due, _)| *due).min()?;
        let at = delivery.span.answered?;
        let due = self.advanced(topic, due, push.span.sent, at);
        // Times of messages are whole milliseconds.
        (at.as_ms() < due.as_ms()).then(|| {
            let detail = format!(
                "{} ms early: payload {}, attempt {}",
                due.as_ms() - at.as_ms(),
                delivery.tag,
                delivery.attempt
            );
            self.breach(EARLY, topic, id, detail)
        })
    }

    fn refused(&self, delivery: &Delivered) -> Option<Breach> {
        let Some(push) = self.by_tag.get(&*delivery.tag) else {
            if delivery.tag == CRON || admin::occurrence(&delivery.tag).is_some() || self.is_of_others(delivery) {
                return None;
            }
            return Some(self.breach(
                REFUSED,
                delivery.topic,
                &delivery.id,
                format!("payload {:?} was never pushed", delivery.tag),
            ));
        };
        // A seal keeps a record of a failed write from counting; bits that flip may destroy it.
        let was_damaged = push.outcome == Pushed::Refused && self.ledger.wiped(push.broker, push.span.sent);
        let is_refused = matches!(push.outcome, Pushed::Refused | Pushed::Duplicate | Pushed::Debounced);
        (is_refused && !was_damaged).then(|| {
            self.breach(REFUSED, delivery.topic, &delivery.id, format!("payload {} was {:?}", push.tag, push.outcome))
        })
    }

    fn acked(&self, delivery: &Delivered) -> Option<Breach> {
        let others = self.deliveries.get(&(&*delivery.tag, delivery.group))?;
        let settled = others.iter().filter_map(|other| self.settlements.get(other)).flatten();
        let acked = settled.filter(|settled| settled.decision == Decision::Ack && settled.verdict == Verdict::Counts);
        let acked = acked.filter_map(|settled| Some((settled.span.answered?, settled)));
        let (at, first) = acked.filter(|(at, _)| *at < delivery.span.sent).min_by_key(|(at, _)| *at)?;
        let span = first.span;
        // That it was moved is in the journal of one broker.
        let is_moved = self.ledger.deliveries[first.delivery].place != delivery.place;
        let since = self.by_tag.get(&*delivery.tag).map_or(Time(0), |push| push.span.sent);
        if is_moved && (0..BROKERS_MAX).any(|broker| self.forgot_without(broker, since)) {
            return None;
        }
        if self.was_removed(delivery.topic, delivery.group, Time(0), delivery.span.end()) {
            return None;
        }
        let is_journaled = self.by_tag.get(&*delivery.tag).is_some_and(|push| push.outcome == Pushed::Journaled);
        if !self.keeps_ack(is_journaled, span, delivery.span.end()) {
            return None;
        }
        let ms = delivery.span.sent.since(at) / 1_000;
        Some(self.breach(
            ACKED,
            delivery.topic,
            &delivery.id,
            format!("payload {}: asked for {ms} ms after the ack", delivery.tag),
        ))
    }

    /// Whether an ack counts until then, of a push that was journaled or not. Brokers with journals know what was acked there, while all can be
    /// heard, and if their disks took it.
    fn keeps_ack(&self, is_journaled: bool, span: Span, until: Time) -> bool {
        let is_without = |broker| self.forgot_without(broker, span.end()) || self.ledger.unjournaled(broker, span);
        !self.forgot(span.end(), until) || is_journaled && !(0..BROKERS_MAX).any(is_without)
    }

    fn cancelled(&self, delivery: &Delivered) -> Option<Breach> {
        let push = self.by_tag.get(&*delivery.tag)?;
        let (topic, id) = (delivery.topic, &*delivery.id);
        if !self.is_one(push, delivery.group, delivery.span.end()) {
            return None;
        }
        let cancelled = self.controls_of(topic, id).find(|other| {
            other.control == Control::Cancel
                && other.effects[delivery.group] == Effect::Done
                // While the store is unavailable it is the message on the disk of that broker that is cancelled.
                && match other.is_buffered {
                    true => {
                        push.outcome == Pushed::Buffered
                            && push.broker == other.broker
                            && !self.ledger.handed_over(push.broker, push.span.sent)
                            && !self.is_buffered_again(push)
                    }
                    false => push.outcome.is_new(),
                }
                && push.span.end() < other.span.sent
                && other.span.end() < delivery.span.sent
        })?;
        // A reschedule elsewhere, of before the cancel was in the store, brings it back.
        let is_back = self
            .controls_of(topic, id)
            .any(|other| matches!(other.control, Control::Reschedule(_)) && other.span.end() >= cancelled.span.sent);
        let detail = format!("payload {}", delivery.tag);
        let is_back = is_back && cancelled.is_buffered
            || self.forgot_without(push.broker, push.span.sent)
            || self.forgot_without(cancelled.broker, cancelled.span.sent);
        // A cancel that was on a disk alone is lost with it.
        let (broker, span) = (cancelled.broker, cancelled.span);
        let is_back = is_back
            || self.ledger.wiped(broker, span.sent)
                && (cancelled.is_buffered || self.forgot_without(broker, span.sent))
            || self.ledger.unjournaled(broker, span) && self.forgot(span.sent, delivery.span.end());
        (!is_back).then(|| self.breach(CANCELLED, topic, id, detail))
    }

    /// Whether the disk of the broker may have another message of this id alone, and this one be in Redis, perhaps in flight.
    fn is_buffered_again(&self, push: &PushFact) -> bool {
        self.pushes_of(push.target.topic, &push.target.id).iter().any(|other| {
            let may_be_buffered = matches!(other.outcome, Pushed::Buffered | Pushed::Safe | Pushed::Unknown);
            other.tag != push.tag
                && may_be_buffered
                && other.broker == push.broker
                && other.span.end() >= push.span.sent
        })
    }

    fn holder(&self, number: usize, delivery: &Delivered) -> Option<Breach> {
        let others = self.deliveries.get(&(&*delivery.tag, delivery.group))?;
        let before = others.iter().filter(|other| **other != number).find(|other| {
            let first = &self.ledger.deliveries[**other];
            let Some(had) = first.span.answered else { return false };
            let settled = self.settlements.get(*other).into_iter().flatten().map(|settled| settled.span.sent).min();
            let over = (first.span.sent + first.visibility_ms * 1_000).min(settled.unwrap_or(Time(u64::MAX)));
            delivery.span.sent > had
                && delivery.span.end() < over
                && !self.is_disturbed(first.span.sent, delivery.span.end())
                && !self.was_removed(first.topic, first.group, first.span.sent, delivery.span.end())
        })?;
        let first = &self.ledger.deliveries[*before];
        let detail = format!(
            "payload {}: broker {} handed it out, and broker {} again {} ms later",
            delivery.tag,
            first.broker,
            delivery.broker,
            delivery.span.sent.since(first.span.end()) / 1_000
        );
        Some(self.breach(HOLDER, delivery.topic, &delivery.id, detail))
    }

    fn nacked(&self, delivery: &Delivered) -> Option<Breach> {
        let others = self.deliveries.get(&(&*delivery.tag, delivery.group))?;
        let settled = others.iter().filter_map(|other| self.settlements.get(other)).flatten();
        let last = settled
            .filter(|settled| settled.verdict == Verdict::Counts && settled.span.end() < delivery.span.sent)
            .max_by_key(|settled| settled.span.sent)?;
        let Decision::Nack { delay_ms: Some(delay) } = last.decision else { return None };
        // What died of it is due at once where it went.
        if self.ledger.deliveries[last.delivery].place != delivery.place {
            return None;
        }
        // It had another due time meanwhile, or was made ready again.
        let (topic, id) = (delivery.topic, &*delivery.id);
        let since = last.span.sent;
        let changed = self.controls_of(topic, id).any(|other| other.span.end() >= since)
            || self.pushes_of(topic, id).iter().any(|other| {
                // What is buffered moves it when it is replayed.
                let is_buffered = other.outcome == Pushed::Buffered && other.policy != Policy::Keep;
                is_buffered || other.span.end() >= since
            })
            || self.ledger.sweeps.iter().any(|sweep| {
                (sweep.topic, sweep.group, sweep.sweep) == (topic, delivery.group, Sweep::Redrive)
                    && sweep.span.end() >= since
            })
            || self.is_changed_with_others(topic, since, delivery.span.end())
            || self.was_removed(topic, delivery.group, since, delivery.span.end())
            || self.forgot(since, delivery.span.end());
        let at = delivery.span.answered?;
        let due = last.span.sent + delay * 1_000;
        (!changed && at.as_ms() < due.as_ms()).then(|| {
            let detail = format!("payload {}: {} ms early", delivery.tag, due.as_ms() - at.as_ms());
            self.breach(NACKED, topic, id, detail)
        })
    }

    /// For messages whose order is beyond doubt, and which nothing but consumers changed.
    fn ordered(&self, delivery: &Delivered) -> Option<Breach> {
        let (topic, group) = (delivery.topic, delivery.group);
        let push = self.by_tag.get(&*delivery.tag).filter(|_| self.topics[topic].is_ordered)?;
        let at = delivery.span.answered?;
        if delivery.is_batch || !self.has_plain_place(push, delivery) {
            return None;
        }
        let earlier = self.by_key.get(&(topic, push.target.key.as_deref()?))?.iter().find(|other| {
            other.span.end() < push.span.sent
                && (other.due + ORDER_SLACK <= push.due
                    || other.is_absolute && push.is_absolute && other.due == push.due)
                && self.has_plain_place(other, delivery)
                && !self.has_ended_by(other, group, at)
        })?;
        let detail = format!("payload {} before {} of {}", delivery.tag, earlier.tag, earlier.target.name());
        Some(self.breach(ORDER, topic, &delivery.id, detail))
    }

    /// Whether a message was pushed once, certainly before this delivery, and only consumers have changed it since.
    fn has_plain_place(&self, push: &PushFact, delivery: &Delivered) -> bool {
        let (topic, id) = (push.target.topic, &*push.target.id);
        matches!(push.outcome, Pushed::Stored | Pushed::Journaled)
            && self.pushes_of(topic, id).len() == 1
            && self.controls_of(topic, id).next().is_none()
            && !push.has_ttl
            && push.priority == 0
            && !self.is_changed_with_others(topic, push.span.sent, delivery.span.end())
            && !self.was_removed(topic, delivery.group, push.span.sent, delivery.span.end())
            && !self.forgot(push.span.sent, delivery.span.end())
    }

    fn is_changed_with_others(&self, topic: usize, from: Time, to: Time) -> bool {
        self.bulks_between(topic, from, to).next().is_some()
    }

    /// Whether messages of a group may have been purged in this time.
    fn may_be_purged(&self, topic: usize, group: usize, from: Time, to: Time) -> bool {
        self.ledger.sweeps.iter().any(|sweep| {
            (sweep.topic, sweep.group) == (topic, group)
                && sweep.sweep != Sweep::Redrive
                && sweep.span.end() >= from
                && sweep.span.sent <= to
        })
    }

    /// Whether messages of a group may have been purged, or cancelled with others, since.
    fn may_be_swept(&self, topic: usize, group: usize, since: Time) -> bool {
        let ever = Time(u64::MAX);
        self.may_be_purged(topic, group, since, ever)
            || self.bulks_between(topic, since, ever).any(|bulk| bulk.action == BulkAction::Cancel)
    }

    /// Whether a message may have been acked, purged, or dead, by then.
    fn has_ended_by(&self, push: &PushFact, group: usize, at: Time) -> bool {
        let deliveries = self.deliveries.get(&(&*push.tag, group)).into_iter().flatten();
        // Nobody knows what was dead then, if it was lost and came back alive.
        let may_be_dead = self.forgot(at, Time(u64::MAX));
        let acked = deliveries.filter_map(|number| self.settlements.get(number)).flatten().any(|settled| {
            let ends = match settled.decision {
                Decision::Ack | Decision::Bury => true,
                Decision::Nack { .. } => may_be_dead,
                Decision::Extend { .. } | Decision::Release => false,
            };
            ends && settled.verdict != Verdict::Stale && settled.span.sent <= at
        });
        let topic = push.target.topic;
        // What was dead then may be redriven, purged or deleted later.
        let swept = self.ledger.sweeps.iter().any(|sweep| {
            (sweep.topic, sweep.group) == (topic, group)
                && sweep.span.end() >= push.span.sent
                && (sweep.span.sent <= at || sweep.sweep != Sweep::PurgeGroup)
        });
        let swept = swept || self.was_removed(topic, group, push.span.sent, Time(u64::MAX));
        acked || swept || self.end.dead.contains(&(topic, group, push.tag.clone()))
    }

    fn paused(&self, delivery: &Delivered) -> Option<Breach> {
        let at = delivery.span.answered?;
        let pause = self.ledger.pauses.iter().find(|pause| {
            let (begin, until) = (pause.span.end(), pause.span.sent + pause.for_ms * 1_000);
            (pause.topic, pause.group) == (delivery.place, delivery.group)
                && pause.is_done
                && begin + PAUSE_SLACK < delivery.span.sent
                && at < until
                // The last pause counts.
                && !self.ledger.pauses.iter().any(|other| {
                    (other.topic, other.group) == (pause.topic, pause.group) && other.span.end() > pause.span.sent
                        && other.span.sent < at && other.span != pause.span
                })
                && !self.is_disturbed(pause.span.sent, at)
                && !self.was_removed(delivery.place, delivery.group, pause.span.sent, at)
        })?;
        let ms = delivery.span.sent.since(pause.span.end()) / 1_000;
        Some(self.breach(PAUSED, delivery.topic, &delivery.id, format!("asked for {ms} ms after the pause")))
    }

    fn lost(&self, push: &PushFact, group: usize) -> Option<Breach> {
        let (topic, id) = (push.target.topic, &*push.target.id);
        let others = self.pushes_of(topic, id);
        let is_alone = others.len() == 1;
        let is_due = match push.outcome {
            // In each group it follows another message, or is dropped.
            Pushed::Stored | Pushed::Journaled => !self.may_follow(push) || self.topics[topic].groups.len() == 1,
            // A group that had settled what was replaced does not get the replacement.
            Pushed::Replaced => group == 0 && self.topics[topic].groups.len() == 1,
            Pushed::Buffered | Pushed::Safe | Pushed::Found => is_alone,
            _ => false,
        };
        let is_kept = match self.scenario.may_forget() {
            false => true,
            // What was only in Redis is lost with it; and after a loss another message may have the id when it is restored.
            true => match push.outcome {
                Pushed::Journaled => is_alone || self.is_followed_alone(push),
                Pushed::Buffered => is_alone,
                Pushed::Safe => is_alone && !self.ledger.unjournaled(push.broker, push.span),
                _ => false,
            },
        };
        let since = push.span.sent;
        // What was on a disk alone.
        let is_gone = self.ledger.wiped(push.broker, since)
            && (matches!(push.outcome, Pushed::Buffered | Pushed::Safe) || self.forgot_without(push.broker, since));
        // What was buffered goes to Redis alone while the disk takes no more records of the journal.
        let is_gone = is_gone
            || matches!(push.outcome, Pushed::Buffered | Pushed::Safe)
                && self.is_unjournaled_at_a_loss(push.broker, since);
        if !is_due || !is_kept || is_gone || push.has_ttl || !self.is_bound(push.broker) || self.ended(push, group) {
            return None;
        }
        let cancelled = self.controls_of(topic, id).any(|other| {
            other.control == Control::Cancel && other.effects[group] != Effect::None && other.span.end() >= since
        });
        // One that is buffered replaces when it comes to the store, where also a dead message makes room for it.
        let replaced =
            others.iter().filter(|other| other.tag != push.tag).any(|other| match (other.outcome, other.policy) {
                // What follows a message takes the place of what followed it before.
                (_, Policy::After) => self.may_follow(push) && other.span.end() >= since,
                (Pushed::Replaced, _) => other.span.end() >= since,
                (Pushed::Buffered | Pushed::Unknown, Policy::Replace | Policy::Debounce) => true,
                _ => false,
            });
        let is_gone = !self.is_one(push, group, Time(u64::MAX)) || self.may_be_swept(topic, group, since);
        // Who made the topics lost its disk: until another broker knows better, a topic has its first group alone.
        let may_be_without = group > 0 && self.forgot(Time(0), push.span.end());
        let is_without = (self.end.missing.contains(&(topic, group)) || may_be_without) && self.forgot_topics();
        if cancelled || replaced || is_gone || is_without {
            return None;
        }
        let times = self.deliveries.get(&(&*push.tag, group)).map_or(0, Vec::len);
        let detail = format!(
            "payload {} of group {}: {:?}, delivered {times} times, never settled",
            push.tag, self.topics[topic].groups[group], push.outcome
        );
        Some(self.breach(LOST, topic, id, detail))
    }

    /// Whether it was acked, or is dead, or may be.
    fn ended(&self, push: &PushFact, group: usize) -> bool {
        let deliveries = self.deliveries.get(&(&*push.tag, group)).into_iter().flatten();
        let acked = deliveries
            .filter_map(|number| self.settlements.get(number))
            .flatten()
            .any(|settled| settled.decision == Decision::Ack && settled.verdict != Verdict::Stale);
        acked || self.end.dead.contains(&(push.target.topic, group, push.tag.clone()))
    }
}
