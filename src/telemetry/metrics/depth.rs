//! The number of messages of the whole store, collected and shown by one process of a fleet, so that a sum over all
//! processes is right.
//!
//! A process shows it only while its own clock proves that no other one does.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, GaugeVec, IntGauge, IntGaugeVec, Opts};

use super::Labelled;
use super::{Family, Maker, bug};
use crate::model::error::Result;
use crate::platform::clock::Instant;

pub const WITHIN: [(&str, Duration); 4] = [
    ("1m", Duration::from_secs(60)),
    ("10m", Duration::from_secs(600)),
    ("1h", Duration::from_secs(3_600)),
    ("1d", Duration::from_secs(86_400)),
];

/// Shown together or not at all.
const FAMILIES: [Family; 10] = [
    Family {
        name: "dwell_messages",
        kind: "gauge",
        labels: &["topic", "group", "state"],
        help: "messages of the whole store: `scheduled`, `ready` (due, and with no consumer), `blocked` (behind an earlier \
               message of their key), `backoff` (holding their key until their next attempt), `in_flight` (with consumers, \
               or at a broker that does not answer), `dead`. One broker of a fleet exports it: docs/how-to/monitor.md, store stats",
    },
    Family {
        name: "dwell_oldest_ready_age_seconds",
        kind: "gauge",
        labels: &["topic", "group"],
        help: "for how long the oldest message of the group that is ready or blocked has been due; 0 when none is. Time in \
               which the group's window was closed does not count. Exported with `dwell_messages`",
    },
    Family {
        name: "dwell_messages_due",
        kind: "gauge",
        labels: &["topic", "group", "within"],
        help: "scheduled messages that become due `within` `1m`, `10m`, `1h` and `1d` from now, each including the shorter \
               spans. Exported with `dwell_messages`",
    },
    Family {
        name: "dwell_group_paused",
        kind: "gauge",
        labels: &["topic", "group"],
        help: "1 while the group is paused, else 0. Exported with `dwell_messages`",
    },
    Family {
        name: "dwell_group_closed",
        kind: "gauge",
        labels: &["topic", "group"],
        help: "1 while the window of the group is closed, else 0. Exported with `dwell_messages`",
    },
    Family {
        name: "dwell_group_keys",
        kind: "gauge",
        labels: &["topic", "group"],
        help: "keys of a fair group that have messages due or in flight, as the owners of its partitions know them. \
               Exported with `dwell_messages`",
    },
    Family {
        name: "dwell_group_busiest_key_ratio",
        kind: "gauge",
        labels: &["topic", "group"],
        help: "share of the messages of a fair group that are due or in flight, 0 to 1, which its busiest key has. \
               Exported with `dwell_messages`",
    },
    Family {
        name: "dwell_group_paused_keys",
        kind: "gauge",
        labels: &["topic", "group"],
        help: "keys of a fair group that are paused, by a request or by a nack, whether or not they have messages. \
               Exported with `dwell_messages`",
    },
    Family {
        name: "dwell_stats_collection_seconds",
        kind: "gauge",
        labels: &[],
        help: "how long it took to count all topics, its pauses included. Exported with `dwell_messages`",
    },
    Family {
        name: "dwell_stats_age_seconds",
        kind: "gauge",
        labels: &[],
        help: "age of the numbers of `dwell_messages`. Exported with it",
    },
];

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Depth {
    pub scheduled: u64,
    pub ready: u64,
    pub blocked: u64,
    pub backoff: u64,
    pub in_flight: u64,
    pub dead: u64,
    pub oldest_ready_age: Duration,
    pub due: [u64; WITHIN.len()],
    pub paused: bool,
    pub closed: bool,
    /// Of a fair group.
    pub keys: Option<KeyDepth>,
}

/// The keys of a fair group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeyDepth {
    /// Those that have messages due or in flight.
    pub count: u64,
    /// Messages of the key that has the most.
    pub busiest: u64,
    /// Those that are paused, with messages or without.
    pub paused: u64,
}

impl KeyDepth {
    fn plus(self, other: KeyDepth) -> KeyDepth {
        KeyDepth {
            count: self.count + other.count,
            busiest: self.busiest.max(other.busiest),
            paused: self.paused + other.paused,
        }
    }
}

impl Depth {
    /// The share of the messages that are due or in flight which one key has.
    fn share_of(&self, messages: u64) -> f64 {
        // The owners were asked at another moment than the store.
        let all = (self.ready + self.blocked + self.in_flight).max(messages).max(1);
        messages as f64 / all as f64
    }

    pub fn messages(&self) -> u64 {
        self.scheduled + self.ready + self.blocked + self.backoff + self.in_flight + self.dead
    }

    pub fn add(&mut self, part: &Depth) {
        self.scheduled += part.scheduled;
        self.ready += part.ready;
        self.blocked += part.blocked;
        self.backoff += part.backoff;
        self.in_flight += part.in_flight;
        self.dead += part.dead;
        self.oldest_ready_age = self.oldest_ready_age.max(part.oldest_ready_age);
        self.paused |= part.paused;
        self.closed |= part.closed;
        self.keys = match (self.keys, part.keys) {
            (Some(keys), Some(others)) => Some(keys.plus(others)),
            (keys, others) => keys.or(others),
        };
        self.due.iter_mut().zip(part.due).for_each(|(sum, part)| *sum += part);
    }
}

/// Labels are assigned in the order in which topics are added, so that they do not depend on the process.
#[derive(Debug, Default)]
pub struct Tally(Labelled<(), Depth>);

impl Tally {
    pub fn add(&mut self, topic: &str, group: &str, depth: &Depth) {
        self.0.group(topic, group, Instant::START, |_| (), |_, _| Depth::default()).add(depth);
    }
}

#[derive(Debug)]
pub struct StatsMetrics {
    taker: IntGauge,
    shown: Shown,
}

#[derive(Debug, Clone)]
struct Shown(Arc<Mutex<State>>, Arc<Families>);

#[derive(Debug, Default)]
struct State {
    term: Option<Term>,
    is_shown: bool,
}

#[derive(Debug)]
struct Term {
    /// Only a scrape after another one since then may show it: the previous process was then scraped without it.
    since: Instant,
    until: Instant,
    collected: Option<Collected>,
}

#[derive(Debug)]
struct Collected {
    at: Instant,
    series: Vec<MetricFamily>,
}

/// The families of one collection; also those that are registered, of which only the age has a series.
#[derive(Debug)]
struct Families {
    messages: IntGaugeVec,
    oldest_ready_age: GaugeVec,
    due: IntGaugeVec,
    paused: IntGaugeVec,
    closed: IntGaugeVec,
    keys: IntGaugeVec,
    busiest_key: GaugeVec,
    paused_keys: IntGaugeVec,
    seconds: Gauge,
    age: Gauge,
}

impl StatsMetrics {
    pub(super) fn new(make: &Maker) -> Result<StatsMetrics> {
        let taker = make.gauge(
            "dwell_stats_collector",
            "1 on the broker that exports `dwell_messages`, else 0. In a fleet the sum is 1, or 0 while no broker can count",
        )?;
        for Family { name, kind, labels, help } in FAMILIES {
            make.note(name, kind, labels, help);
        }
        let shown = make.register(Families::new().map(|families| Shown(Arc::default(), Arc::new(families))))?;
        Ok(StatsMetrics { taker, shown })
    }

    /// This process collects since `since`, and no other one does until `until`.
    pub fn hold(&self, since: Instant, until: Instant) {
        let mut state = self.shown.state();
        match &mut state.term {
            Some(term) => term.until = until,
            None => state.term = Some(Term { since, until, collected: None }),
        }
    }

    pub fn end(&self) {
        self.shown.state().term = None;
    }

    pub fn show(&self, at: Instant, took: Duration, tally: &Tally) -> Result<()> {
        let series = Families::new().map_err(|error| bug(&error))?.filled(took, tally);
        if let Some(term) = &mut self.shown.state().term {
            term.collected = Some(Collected { at, series });
        }
        Ok(())
    }

    /// A scrape, after an earlier one at `before`. Returns whether the counts are shown.
    pub fn look(&self, now: Instant, before: Option<Instant>) -> bool {
        let mut state = self.shown.state();
        let may = |term: &&Term| now < term.until && before.is_some_and(|before| before >= term.since);
        let collected = state.term.as_ref().filter(may).and_then(|term| term.collected.as_ref());
        let is_shown = collected.is_some();
        if let Some(collected) = collected {
            self.shown.1.age.set(now.since(collected.at).as_secs_f64());
        }
        state.is_shown = is_shown;
        self.taker.set(i64::from(is_shown));
        is_shown
    }
}

impl Shown {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for Shown {
    fn desc(&self) -> Vec<&Desc> {
        self.1.all().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let state = self.state();
        let collected = state.term.as_ref().filter(|_| state.is_shown).and_then(|term| term.collected.as_ref());
        collected
            .map_or_else(Vec::new, |collected| collected.series.iter().cloned().chain(self.1.age.collect()).collect())
    }
}

impl Families {
    fn new() -> prometheus::Result<Families> {
        let [messages, oldest_ready_age, due, paused, closed, keys, busiest_key, paused_keys, seconds, age] = FAMILIES;
        let opts = |family: Family| Opts::new(family.name, family.help);
        Ok(Families {
            messages: IntGaugeVec::new(opts(messages), messages.labels)?,
            oldest_ready_age: GaugeVec::new(opts(oldest_ready_age), oldest_ready_age.labels)?,
            due: IntGaugeVec::new(opts(due), due.labels)?,
            paused: IntGaugeVec::new(opts(paused), paused.labels)?,
            closed: IntGaugeVec::new(opts(closed), closed.labels)?,
            keys: IntGaugeVec::new(opts(keys), keys.labels)?,
            busiest_key: GaugeVec::new(opts(busiest_key), busiest_key.labels)?,
            paused_keys: IntGaugeVec::new(opts(paused_keys), paused_keys.labels)?,
            seconds: Gauge::with_opts(opts(seconds))?,
            age: Gauge::with_opts(opts(age))?,
        })
    }

    fn all(&self) -> [&dyn Collector; FAMILIES.len()] {
        [
            &self.messages,
            &self.oldest_ready_age,
            &self.due,
            &self.paused,
            &self.closed,
            &self.keys,
            &self.busiest_key,
            &self.paused_keys,
            &self.seconds,
            &self.age,
        ]
    }

    fn filled(&self, took: Duration, tally: &Tally) -> Vec<MetricFamily> {
        let whole = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        for ([topic, group], depth) in tally.0.groups() {
            let states = [
                ("scheduled", depth.scheduled),
                ("ready", depth.ready),
                ("blocked", depth.blocked),
                ("backoff", depth.backoff),
                ("in_flight", depth.in_flight),
                ("dead", depth.dead),
            ];
            for (state, count) in states {
                self.messages.with_label_values(&[topic, group, state]).set(whole(count));
            }
            for ((within, _), count) in WITHIN.iter().zip(depth.due) {
                self.due.with_label_values(&[topic, group, within]).set(whole(count));
            }
            self.paused.with_label_values(&[topic, group]).set(i64::from(depth.paused));
            self.closed.with_label_values(&[topic, group]).set(i64::from(depth.closed));
            self.oldest_ready_age.with_label_values(&[topic, group]).set(depth.oldest_ready_age.as_secs_f64());
            if let Some(keys) = depth.keys {
                self.keys.with_label_values(&[topic, group]).set(whole(keys.count));
                self.busiest_key.with_label_values(&[topic, group]).set(depth.share_of(keys.busiest));
                self.paused_keys.with_label_values(&[topic, group]).set(whole(keys.paused));
            }
        }
        self.seconds.set(took.as_secs_f64());
        // The age is that at a scrape.
        let [with_series @ .., _] = self.all();
        with_series.into_iter().flat_map(Collector::collect).collect()
    }
}
