//! The sentences about ids that brokers make: docs/reference/partition-hash.md says what they look like.

use std::collections::BTreeMap;

use dwell_simulated_redis::Time;

use super::super::{Made, Pushed, Span};
use super::{Breach, Judge};
use crate::plan::Fault;

const UNIQUE: &str = "an id that a broker makes is that of one message";
const ONCE: &str = "a push without an id is one message";
const FORM: &str = "the ids that a broker makes are ULIDs that count up in runs";
const PLACE: &str = "the id that a broker makes decides the partition";

/// Of the characters of a ULID that of a run do not differ.
const OF_RUN: usize = 23;
/// No request begins in a run that has had so many ids.
const RUN_IDS: u64 = 250;
/// Until a run is over, ms, and the rounding of its first millisecond.
const RUN_MS: u64 = 5 + 1;

const DIGITS: &str = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// The number that so many characters of a ULID are; nothing if one of them is none of a ULID.
fn number(text: &str) -> Option<u64> {
    text.chars().try_fold(0, |sum, char| Some(sum << 5 | DIGITS.find(char)? as u64))
}

/// The milliseconds of a ULID, and its place in its run.
fn parts(id: &str) -> Option<(u64, u64)> {
    number(id.get(10..OF_RUN)?)?;
    let is_ulid = id.len() == 26 && id.as_bytes()[0] <= b'7';
    is_ulid.then_some((number(&id[..10])?, number(&id[OF_RUN..])?))
}

/// A UUID of this version.
fn is_uuid(id: &str, version: char) -> bool {
    let is_digit = |(at, char): (usize, char)| match at {
        8 | 13 | 18 | 23 => char == '-',
        14 => char == version,
        _ => char.is_ascii_digit() || ('a'..='f').contains(&char),
    };
    id.len() == 36 && id.chars().enumerate().all(is_digit)
}

/// The request of a payload: those of a batch end with the place in it.
fn request(tag: &str) -> &str {
    tag.split('-').next().unwrap_or_default()
}

impl Judge<'_> {
    pub(super) fn made(&self) -> Vec<Breach> {
        let mut breaches = self.made_once();
        breaches.extend(self.ledger.made.iter().filter_map(|made| self.form(made)));
        let answers = self.ledger.made.iter().filter(|made| made.partition.is_some());
        let answers = answers.map(|made| (made.topic, &*made.id, made.partition, made.span));
        let deliveries =
            self.ledger.deliveries.iter().filter(|of| of.place == of.topic && self.is_placed_by_id(&of.tag));
        let deliveries = deliveries.map(|of| (of.topic, &*of.id, of.partition, of.span));
        breaches.extend(
            answers
                .chain(deliveries)
                .filter_map(|(topic, id, partition, span)| self.place(topic, id, partition?, span)),
        );
        breaches.extend(self.runs());
        breaches
    }

    /// A push and an id belong to each other, wherever the two are shown together.
    fn made_once(&self) -> Vec<Breach> {
        let (mut breaches, mut tags, mut ids) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        let answers = self.ledger.made.iter().map(|made| (made.topic, &*made.id, &*made.tag, made.topic));
        let deliveries = self.ledger.deliveries.iter().map(|of| (of.topic, &*of.id, &*of.tag, of.place));
        for (topic, id, tag, place) in answers.chain(deliveries) {
            let Some(push) = self.by_tag.get(tag).filter(|push| push.is_nameless) else { continue };
            let first = *tags.entry(id).or_insert(tag);
            if first != tag {
                let detail = format!("payloads {first} and {tag}");
                breaches.push(self.breach(UNIQUE, topic, id, detail));
            }
            let first = *ids.entry(tag).or_insert(id);
            // Where it was forwarded or moved to, another message may have its id.
            if first != id && place == topic && self.pushes_of(topic, first).len() == 1 {
                let detail = format!("payload {tag}: {first} before, sent at {:?}", push.span.sent);
                breaches.push(self.breach(ONCE, topic, id, detail));
            }
        }
        let nameless = self.ledger.pushes.iter().filter(|push| push.is_nameless);
        let met = nameless
            .filter(|push| matches!(push.outcome, Pushed::Duplicate | Pushed::Replaced | Pushed::Debounced))
            .map(|push| {
                let detail = format!("payload {} was {:?}", push.tag, push.outcome);
                self.breach(UNIQUE, push.target.topic, &push.target.id, detail)
            });
        breaches.extend(met);
        breaches
    }

    /// By how much the clock of a broker was wrong at most by then, ms: behind and ahead.
    fn skews(&self, broker: usize, by: Time) -> (u64, u64) {
        let skews = self.ledger.faults.iter().filter(|fault| fault.at <= by).filter_map(|fault| match fault.fault {
            Fault::SkewBroker(of, ms) if of == broker => Some(ms),
            _ => None,
        });
        skews.fold((0, 0), |(behind, ahead), ms| match ms < 0 {
            true => (behind.max(ms.unsigned_abs()), ahead),
            false => (behind, ahead.max(ms.unsigned_abs())),
        })
    }

    fn form(&self, made: &Made) -> Option<Breach> {
        let breach = |why: &str| self.breach(FORM, made.topic, &made.id, format!("payload {}: {why}", made.tag));
        if made.is_of_queue {
            let version = if self.topics[made.topic].is_fifo() { '7' } else { '8' };
            return (!is_uuid(&made.id, version)).then(|| breach("no UUID of SQS"));
        }
        let Some((ms, place)) = parts(&made.id) else { return Some(breach("no ULID")) };
        let (behind, ahead) = self.skews(made.broker, made.span.end());
        let (from, to) = (made.span.sent.as_ms() - behind - RUN_MS, made.span.end().as_ms().saturating_add(ahead));
        // The first one of a request.
        let is_first = !made.tag.contains('-') || made.tag.ends_with("-0");
        match () {
            () if ms < from || ms > to => Some(breach(&format!("its time is {ms}, not of {from} to {to}"))),
            () if is_first && place >= RUN_IDS => Some(breach("its run has had more ids")),
            () => None,
        }
    }

    /// A topic that others have deleted or forgotten may have another number of partitions for a while, and so has one of
    /// another Redis.
    fn place(&self, topic: usize, id: &str, partition: u64, span: Span) -> Option<Breach> {
        let hash = murmur3::murmur3_32(&mut id.get(..OF_RUN)?.as_bytes(), 0).ok()?;
        let due = u64::from(hash % u32::from(self.topics[topic].partitions));
        let is_known =
            !self.was_removed(topic, 0, Time(0), span.end()) && !self.forgot_topics() && !self.met_others(span.end());
        (due != partition && is_known)
            .then(|| self.breach(PLACE, topic, id, format!("partition {partition}, not {due}")))
    }

    /// Pushed without an id and a key, and not by SQS.
    fn is_placed_by_id(&self, tag: &str) -> bool {
        self.by_tag
            .get(tag)
            .is_some_and(|push| push.is_nameless && push.target.key.is_none() && parts(&push.target.id).is_some())
    }

    /// Ids of one run are of one broker and of a few milliseconds, and those of one request are of one run.
    fn runs(&self) -> Vec<Breach> {
        let mut breaches = Vec::new();
        let mut runs: BTreeMap<&str, &Made> = BTreeMap::new();
        let mut before: Option<&Made> = None;
        // Those of a request are noted together, in its order.
        for made in self.ledger.made.iter().filter(|made| !made.is_of_queue) {
            let mut breach = |why: &str, other: &Made| {
                let detail = format!("payload {}: {why} {} of {}", made.tag, other.id, other.tag);
                breaches.push(self.breach(FORM, made.topic, &made.id, detail));
            };
            let Some(run) = made.id.get(..OF_RUN) else { continue };
            let first = *runs.entry(run).or_insert(made);
            let (from, to) = (first.span.sent.min(made.span.sent), first.span.sent.max(made.span.sent));
            let earlier_end = if first.span.sent <= made.span.sent { first.span.end() } else { made.span.end() };
            let is_later = to.0 > earlier_end.0.saturating_add(RUN_MS * 1_000);
            let is_skewed = self.ledger.faults.iter().any(|fault| {
                let is_its = matches!(fault.fault, Fault::SkewBroker(of, _) if of == made.broker);
                is_its && fault.at >= from && fault.at <= to
            });
            if first.broker != made.broker {
                breach("its run is that of another broker,", first);
            } else if is_later && !is_skewed {
                breach("its run was over, with", first);
            }
            if let Some(before) = before.filter(|before| request(&before.tag) == request(&made.tag))
                && !(before.id < made.id && before.id.starts_with(run))
            {
                breach("in its request it does not come after", before);
            }
            before = Some(made);
        }
        breaches
    }
}
