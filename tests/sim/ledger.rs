//! What clients asked, what they were answered, and what follows from it: the promises, as sentences about these facts.
//!
//! A fact has the span from its request to its answer. What happened in it happened at some time of the span; without an
//! answer it may still happen. A sentence is broken only if it is broken at every such time.

mod judge;
mod made;

use std::collections::BTreeMap;
use std::fmt::Write;

use dwell_simulated_redis::Time;

use crate::errors::Shown;
use crate::operation::{BulkAction, Gather, Limit, Policy, Push, Target};
use crate::plan::Fault;
use made::Unnamed;

pub(crate) use judge::{End, judge};
pub(crate) use made::Made;

/// From the request to its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) sent: Time,
    /// Nothing: no answer came.
    pub(crate) answered: Option<Time>,
}

impl Span {
    /// When it has taken effect at the latest.
    pub(crate) fn end(self) -> Time {
        self.answered.unwrap_or(Time(u64::MAX))
    }
}

/// What became of a push, by its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pushed {
    Stored,
    Journaled,
    Buffered,
    /// SQS does not say which of these.
    Safe,
    /// It was unknown until a repeat with the id of the answer: the message was there, or is now.
    Found,
    Replaced,
    Debounced,
    Duplicate,
    /// 4xx, or 503: certainly not stored.
    Refused,
    Unknown,
}

impl Pushed {
    /// Whether a message with this payload is there now.
    pub(crate) fn is_new(self) -> bool {
        matches!(self, Pushed::Stored | Pushed::Journaled | Pushed::Replaced)
    }

    /// Whether it is there now, or on the disk of its broker.
    pub(crate) fn is_accepted(self) -> bool {
        self.is_new() || matches!(self, Pushed::Buffered | Pushed::Safe | Pushed::Found)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct PushFact {
    /// The payload: no other push has it.
    pub(crate) tag: String,
    pub(crate) target: Target,
    /// A broker made the id. Until a client has seen it, the target has the name of the plan.
    pub(crate) is_nameless: bool,
    pub(crate) policy: Policy,
    /// Not before this.
    pub(crate) due: Time,
    /// Of a debounce: how long after its first push the message may be due.
    pub(crate) debounce_max_ms: Option<u64>,
    /// The client said the time, not the delay.
    pub(crate) is_absolute: bool,
    pub(crate) has_ttl: bool,
    pub(crate) priority: u8,
    pub(crate) span: Span,
    pub(crate) outcome: Pushed,
    pub(crate) broker: usize,
}

impl PushFact {
    pub(crate) fn of(push: Push, tag: String, due: Time, span: Span, outcome: Pushed, broker: usize) -> PushFact {
        let Push { target, is_nameless, policy, is_absolute, debounce_max_ms, ttl_ms, priority, .. } = push;
        PushFact {
            tag,
            target,
            is_nameless,
            policy,
            due,
            debounce_max_ms,
            is_absolute,
            has_ttl: ttl_ms.is_some(),
            priority,
            span,
            outcome,
            broker,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Delivered {
    pub(crate) tag: String,
    /// To which it was pushed.
    pub(crate) topic: usize,
    /// The topic that it came from: another one after a move.
    pub(crate) place: usize,
    pub(crate) group: usize,
    pub(crate) id: String,
    /// SQS says none.
    pub(crate) partition: Option<u64>,
    pub(crate) attempt: u64,
    /// When it was due, as the delivery says; SQS does not.
    pub(crate) due: Option<Time>,
    /// Of the request that brought it; for a stream from when it was opened.
    pub(crate) span: Span,
    pub(crate) visibility_ms: u64,
    /// It came with others of its key, or over a stream.
    pub(crate) is_batch: bool,
    pub(crate) broker: usize,
}

/// The request of a consumer that waits for a batch, with the numbers of what it got.
#[derive(Debug, Clone)]
pub(crate) struct BatchFact {
    pub(crate) place: usize,
    pub(crate) group: usize,
    pub(crate) gather: Gather,
    pub(crate) span: Span,
    pub(crate) deliveries: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    Ack,
    Nack {
        delay_ms: Option<u64>,
    },
    /// Given back unhandled.
    Release,
    Bury,
    Extend {
        visibility_ms: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Counts,
    Pending,
    /// It certainly does not count.
    Stale,
    Unknown,
}

#[derive(Debug, Clone)]
pub(crate) struct Settled {
    /// Which delivery.
    pub(crate) delivery: usize,
    pub(crate) decision: Decision,
    pub(crate) span: Span,
    pub(crate) verdict: Verdict,
    /// A nack said why.
    pub(crate) is_told: bool,
}

/// The error of a message, as it was shown.
#[derive(Debug, Clone)]
pub(crate) struct ErrorSeen {
    pub(crate) tag: String,
    pub(crate) topic: usize,
    pub(crate) group: usize,
    pub(crate) id: String,
    pub(crate) error: Shown,
    pub(crate) span: Span,
}

/// A key of a fair group, as its description showed it.
#[derive(Debug, Clone)]
pub(crate) struct KeySeen {
    pub(crate) topic: usize,
    pub(crate) group: usize,
    pub(crate) key: String,
    /// Due or in flight.
    pub(crate) messages: u64,
    pub(crate) span: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    Cancel,
    /// To not before this.
    Reschedule(Time),
}

/// What a cancel or a reschedule did in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Done,
    None,
    Unknown,
}

#[derive(Debug, Clone)]
pub(crate) struct Controlled {
    pub(crate) target: Target,
    pub(crate) control: Control,
    pub(crate) span: Span,
    /// One for each group.
    pub(crate) effects: Vec<Effect>,
    pub(crate) is_buffered: bool,
    pub(crate) broker: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sweep {
    PurgeGroup,
    PurgeDead,
    Redrive,
}

#[derive(Debug, Clone)]
pub(crate) struct Swept {
    pub(crate) topic: usize,
    pub(crate) group: usize,
    pub(crate) sweep: Sweep,
    pub(crate) span: Span,
    pub(crate) is_done: bool,
    pub(crate) broker: usize,
}

/// A stream, from its request until its client closed it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Streamed {
    pub(crate) topic: usize,
    pub(crate) group: usize,
    pub(crate) span: Span,
}

/// For so long from its span on, no delivery begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paused {
    pub(crate) topic: usize,
    pub(crate) group: usize,
    pub(crate) for_ms: u64,
    pub(crate) span: Span,
    pub(crate) is_done: bool,
}

/// For so long from its span on, no delivery of the key begins; 0 ends that.
#[derive(Debug, Clone)]
pub(crate) struct KeyPaused {
    pub(crate) topic: usize,
    pub(crate) group: usize,
    pub(crate) key: String,
    pub(crate) for_ms: u64,
    pub(crate) span: Span,
    pub(crate) is_done: bool,
}

/// New limits of a group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limited {
    pub(crate) limit: Limit,
    /// It was set before anybody knew of the group.
    pub(crate) is_first: bool,
    pub(crate) span: Span,
    pub(crate) is_done: bool,
}

/// A new window of a group: between these times it is closed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Windowed {
    pub(crate) topic: usize,
    pub(crate) group: usize,
    pub(crate) closed: Option<(Time, Time)>,
    pub(crate) span: Span,
    pub(crate) is_done: bool,
}

/// A topic or a group that was deleted, and when it was there again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Removed {
    pub(crate) topic: usize,
    pub(crate) group: Option<usize>,
    pub(crate) span: Span,
    pub(crate) back: Time,
    /// It was to be a copy of the first group.
    pub(crate) is_copy: bool,
    /// It was certainly made as one: a request for a limit or a window may make it before, and then it begins empty.
    pub(crate) is_copied: bool,
}

/// From when on messages of a topic may have been moved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moved {
    pub(crate) topic: usize,
    pub(crate) sent: Time,
}

/// A change of what is due in a window of a group, in all groups of the topic.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BulkFact {
    pub(crate) topic: usize,
    pub(crate) group: usize,
    pub(crate) action: BulkAction,
    pub(crate) from: Time,
    pub(crate) to: Time,
    pub(crate) span: Span,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct CronFact {
    pub(crate) broker: usize,
    pub(crate) topic: usize,
    pub(crate) job: usize,
    /// Nothing: it was deleted.
    pub(crate) every_ms: Option<u64>,
    pub(crate) span: Span,
    pub(crate) is_done: bool,
    /// Of a deletion at the end of the run that was answered: whether the job was there.
    pub(crate) was_there_at_the_end: Option<bool>,
}

/// A fault, with the time until which what it did may be felt.
#[derive(Debug, Clone)]
pub(crate) struct Played {
    pub(crate) fault: Fault,
    pub(crate) at: Time,
    pub(crate) until: Time,
}

/// How long after a fault its effects may be felt, microseconds: leases that lapse, and memberships that settle.
pub(crate) const AFTERMATH: u64 = 12_000_000;

impl Played {
    /// When it ends itself.
    pub(crate) fn over(&self) -> Time {
        Time(self.until.0 - AFTERMATH)
    }
}

/// What a Redis of others had more when it went away than when it came.
#[derive(Debug, Clone)]
pub(crate) struct Strange {
    pub(crate) from: Time,
    pub(crate) until: Time,
    pub(crate) given: Vec<String>,
}

/// What a process of a broker had counted when it ended.
#[derive(Debug, Clone)]
pub(crate) struct Life {
    pub(crate) broker: usize,
    /// It began without a journal.
    pub(crate) is_first: bool,
    /// As `/metrics` says it.
    pub(crate) text: String,
}

impl Life {
    /// Of one series, with its labels.
    pub(crate) fn count(&self, series: &str) -> Option<u64> {
        self.text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
    }
}

#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) pushes: Vec<PushFact>,
    pub(crate) deliveries: Vec<Delivered>,
    pub(crate) settlements: Vec<Settled>,
    pub(crate) streams: Vec<Streamed>,
    pub(crate) batches: Vec<BatchFact>,
    pub(crate) errors: Vec<ErrorSeen>,
    pub(crate) keys: Vec<KeySeen>,
    pub(crate) controls: Vec<Controlled>,
    pub(crate) sweeps: Vec<Swept>,
    pub(crate) pauses: Vec<Paused>,
    pub(crate) key_pauses: Vec<KeyPaused>,
    /// Groups that were made not fair.
    pub(crate) unfair: Vec<(usize, usize, Span)>,
    /// The id of each payload that was sent: SQS shows another one.
    pub(crate) ids: BTreeMap<String, String>,
    /// Pushes whose ids brokers make, by their payloads.
    unnamed: BTreeMap<String, Unnamed>,
    /// Ids that brokers made, as their answers show them.
    pub(crate) made: Vec<Made>,
    pub(crate) limits: Vec<Limited>,
    pub(crate) windows: Vec<Windowed>,
    pub(crate) removals: Vec<Removed>,
    pub(crate) moves: Vec<Moved>,
    pub(crate) bulks: Vec<BulkFact>,
    pub(crate) crons: Vec<CronFact>,
    pub(crate) faults: Vec<Played>,
    pub(crate) strange: Vec<Strange>,
    pub(crate) lives: Vec<Life>,
    /// The directories of the brokers, which have other names in each run.
    places: Vec<String>,
    /// Whether brokers that are stopped give others what they have on their disks.
    pub(crate) hands_over: bool,
    /// What no fault excuses: answers 500, panics.
    pub(crate) failures: Vec<String>,
    lines: Vec<(Time, String)>,
    digest: Digest,
}

/// FNV-1a of everything that happened, in order.
struct Digest(u64);

impl Default for Digest {
    fn default() -> Digest {
        Digest(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

impl Ledger {
    /// The nack of a delivery paused its key, or perhaps did.
    pub(crate) fn paused_by_nack(&mut self, delivery: usize, for_ms: u64, span: Span, is_done: bool) {
        let Delivered { tag, place, group, .. } = &self.deliveries[delivery];
        let (topic, group) = (*place, *group);
        let key = self.pushes.iter().find(|push| push.tag == *tag).and_then(|push| push.target.key.clone());
        self.key_pauses.extend(key.map(|key| KeyPaused { topic, group, key, for_ms, span, is_done }));
    }

    pub(crate) fn new(places: Vec<String>, hands_over: bool) -> Ledger {
        Ledger { places, hands_over, ..Ledger::default() }
    }

    pub(crate) fn note(&mut self, at: Time, line: &str) {
        let line = self.without_places(line);
        self.digest.add(&at.0.to_le_bytes());
        self.digest.add(line.as_bytes());
        self.lines.push((at, line));
    }

    fn without_places(&self, line: &str) -> String {
        let named = |line: String, (broker, place): (usize, &String)| line.replace(place, &format!("disk-{broker}"));
        self.places.iter().enumerate().fold(line.to_owned(), named)
    }

    /// sled panics when its disk fails or its files are damaged, and its caller catches that.
    pub(crate) fn panicked(&mut self, panics: Vec<String>) {
        let has_bad_disk = self.faults.iter().any(|fault| matches!(fault.fault, Fault::Disk(..)));
        self.failures.extend(panics.into_iter().filter(|panic| !(has_bad_disk && panic.contains("/sled-"))));
    }

    /// Whether something that a broker was asked may not be in its journal, because its disk did not take it.
    pub(crate) fn unjournaled(&self, broker: usize, span: Span) -> bool {
        self.faults.iter().any(|fault| {
            let Fault::Disk(of, disk) = fault.fault else { return false };
            let fails = disk.fails_for().filter(|_| self.may_hold(of, broker, span.sent));
            fails.is_some_and(|ms| fault.at <= span.end() && fault.at + ms * 1_000 >= span.sent)
        })
    }

    /// Whether a broker may have given to another one, since, what it had on its disk.
    pub(crate) fn handed_over(&self, broker: usize, since: Time) -> bool {
        let mut stops = self.faults.iter().filter(|stop| stop.until >= since);
        self.hands_over && stops.any(|stop| matches!(stop.fault, Fault::StopBroker(of, _) if of == broker))
    }

    /// Whether this disk may have what a broker had on its own, since.
    pub(crate) fn may_hold(&self, disk: usize, broker: usize, since: Time) -> bool {
        disk == broker || self.handed_over(broker, since)
    }

    /// Whether a broker lost its disk since, or a part of it.
    pub(crate) fn wiped(&self, broker: usize, since: Time) -> bool {
        let mut wipes = self.faults.iter().filter(|fault| fault.at >= since);
        wipes.any(|fault| fault.fault.loses_disk().is_some_and(|of| self.may_hold(of, broker, since)))
    }

    /// Lines beside the facts.
    pub(crate) fn add(&mut self, lines: Vec<(Time, String)>) {
        self.lines.extend(lines);
        self.lines.sort_by_key(|(at, _)| *at);
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest.0
    }

    /// Everything that was noted about a message, or everything: a line each.
    pub(crate) fn history(&self, about: Option<&str>) -> String {
        let first = self.lines.first().map_or(Time(0), |(at, _)| *at);
        let mut text = String::new();
        for (at, line) in &self.lines {
            if about.is_none_or(|word| line.split(' ').any(|part| part == word) || line.starts_with('!')) {
                let us = at.since(first);
                let _ = writeln!(text, "{:>5}.{:06} {line}", us / 1_000_000, us % 1_000_000);
            }
        }
        text
    }
}
