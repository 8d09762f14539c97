//! The census: how many messages there are in the whole store, and how many become due. One process of a fleet shows it,
//! so that a sum over all of them is right.
//!
//! It is shown while this process surely is that one, by its own clock: one that stood still shows nothing when it goes on.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, GaugeVec, IntGauge, IntGaugeVec, Opts};

use super::labels::Labelled;
use super::registry::{Family, Maker, bug};
use crate::model::error::Result;
use crate::platform::clock::Instant;

/// The spans ahead for which it is counted what becomes due, and their names.
pub const WITHIN: [(&str, Duration); 4] = [
    ("1m", Duration::from_secs(60)),
    ("10m", Duration::from_secs(600)),
    ("1h", Duration::from_secs(3_600)),
    ("1d", Duration::from_secs(86_400)),
];

/// What is shown together, or not at all.
const FAMILIES: [Family; 6] = [
    Family {
        name: "dwell_messages",
        kind: "gauge",
        labels: &["topic", "group", "state"],
        help: "messages of the whole store: `scheduled`, `ready` (and not taken), `in_flight` (with consumers, or ready in \
               the memory of another broker), `dead`. Shown by one process of a fleet: docs/how-to/monitor.md, the census",
    },
    Family {
        name: "dwell_oldest_ready_age_seconds",
        kind: "gauge",
        labels: &["topic", "group"],
        help: "for how long the oldest ready message of the group has been due; 0 when none is ready. Shown with \
               `dwell_messages`",
    },
    Family {
        name: "dwell_messages_due",
        kind: "gauge",
        labels: &["topic", "group", "within"],
        help: "scheduled messages that become due `within` `1m`, `10m`, `1h` and `1d` from now, each including the shorter \
               spans. Shown with `dwell_messages`",
    },
    Family {
        name: "dwell_group_paused",
        kind: "gauge",
        labels: &["topic", "group"],
        help: "1 while the group is paused, else 0. Shown with `dwell_messages`",
    },
    Family {
        name: "dwell_census_seconds",
        kind: "gauge",
        labels: &[],
        help: "how long it took to count all topics, its pauses included. Shown with `dwell_messages`",
    },
    Family {
        name: "dwell_census_age_seconds",
        kind: "gauge",
        labels: &[],
        help: "how old what `dwell_messages` says is. Shown with it",
    },
];

/// What a group holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Depth {
    /// Due later.
    pub scheduled: u64,
    /// Due and not taken.
    pub ready: u64,
    /// Taken by owners.
    pub in_flight: u64,
    /// Dead.
    pub dead: u64,
    /// For how long the oldest ready message has been due.
    pub oldest_ready_age: Duration,
    /// What becomes due within each of [`WITHIN`].
    pub due: [u64; WITHIN.len()],
    /// Whether the group is paused: nothing is handed out.
    pub paused: bool,
}

impl Depth {
    /// Messages in any state.
    pub fn messages(&self) -> u64 {
        self.scheduled + self.ready + self.in_flight + self.dead
    }

    /// Adds another part of the same group.
    pub fn add(&mut self, part: &Depth) {
        self.scheduled += part.scheduled;
        self.ready += part.ready;
        self.in_flight += part.in_flight;
        self.dead += part.dead;
        self.oldest_ready_age = self.oldest_ready_age.max(part.oldest_ready_age);
        self.paused |= part.paused;
        self.due.iter_mut().zip(part.due).for_each(|(sum, part)| *sum += part);
    }
}

/// A census while it is taken: the depth of each group, by the labels under which it is shown. In the order in which
/// topics are added, so that it does not depend on who takes it which of them have labels of their own.
#[derive(Debug, Default)]
pub struct Tally(Labelled<(), Depth>);

impl Tally {
    /// Adds what a group holds.
    pub fn add(&mut self, topic: &str, group: &str, depth: &Depth) {
        self.0.group(topic, group, |_| (), |_, _| Depth::default()).add(depth);
    }
}

/// The metrics of the census.
#[derive(Debug)]
pub struct CensusMetrics {
    taker: IntGauge,
    shown: Shown,
}

/// What a look at the metrics finds.
#[derive(Debug, Clone)]
struct Shown(Arc<Mutex<State>>, Arc<Families>);

#[derive(Debug, Default)]
struct State {
    term: Option<Term>,
    /// Whether the census is a part of the metrics now.
    is_shown: bool,
}

/// A time in which this process takes the census of the fleet.
#[derive(Debug)]
struct Term {
    /// A look that came after another one since then may show it: whoever took the census before was looked at in
    /// between, without it.
    since: Instant,
    /// Until when nobody else does, surely.
    until: Instant,
    census: Option<Taken>,
}

#[derive(Debug)]
struct Taken {
    at: Instant,
    series: Vec<MetricFamily>,
}

/// The families of one census; and those that are registered, which have no series but for the age.
#[derive(Debug)]
struct Families {
    messages: IntGaugeVec,
    oldest_ready_age: GaugeVec,
    due: IntGaugeVec,
    paused: IntGaugeVec,
    seconds: Gauge,
    age: Gauge,
}

impl CensusMetrics {
    pub(super) fn new(make: &Maker) -> Result<CensusMetrics> {
        let taker = make.gauge(
            "dwell_census_taker",
            "1 on the process that shows the depth of all topics, else 0: in a fleet the sum is 1, or 0 while nobody can",
        )?;
        for Family { name, kind, labels, help } in FAMILIES {
            make.note(name, kind, labels, help);
        }
        let shown = make.register(Families::new().map(|families| Shown(Arc::default(), Arc::new(families))))?;
        Ok(CensusMetrics { taker, shown })
    }

    /// This process takes the census since then, and until then surely nobody else. What it shows stays, if it did
    /// already.
    pub fn hold(&self, since: Instant, until: Instant) {
        let mut state = self.shown.state();
        match &mut state.term {
            Some(term) => term.until = until,
            None => state.term = Some(Term { since, until, census: None }),
        }
    }

    /// This process takes it no more: nothing is shown.
    pub fn end(&self) {
        self.shown.state().term = None;
    }

    /// A census that was finished then and took so long.
    pub fn show(&self, at: Instant, took: Duration, tally: &Tally) -> Result<()> {
        let series = Families::new().map_err(|error| bug(&error))?.filled(took, tally);
        if let Some(term) = &mut self.shown.state().term {
            term.census = Some(Taken { at, series });
        }
        Ok(())
    }

    /// Somebody looks at the metrics, and did so before at `before`: whether the census is a part of what there is to see.
    pub fn look(&self, now: Instant, before: Option<Instant>) -> bool {
        let mut state = self.shown.state();
        let may = |term: &&Term| now < term.until && before.is_some_and(|before| before >= term.since);
        let taken = state.term.as_ref().filter(may).and_then(|term| term.census.as_ref());
        let is_shown = taken.is_some();
        if let Some(taken) = taken {
            self.shown.1.age.set(now.since(taken.at).as_secs_f64());
        }
        state.is_shown = is_shown;
        self.taker.set(i64::from(is_shown));
        is_shown
    }
}

impl Shown {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while the lock is held; if it did, the state would still be whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for Shown {
    fn desc(&self) -> Vec<&Desc> {
        self.1.all().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let state = self.state();
        let taken = state.term.as_ref().filter(|_| state.is_shown).and_then(|term| term.census.as_ref());
        taken.map_or_else(Vec::new, |taken| taken.series.iter().cloned().chain(self.1.age.collect()).collect())
    }
}

impl Families {
    fn new() -> prometheus::Result<Families> {
        let [messages, oldest_ready_age, due, paused, seconds, age] = FAMILIES;
        let opts = |family: Family| Opts::new(family.name, family.help);
        Ok(Families {
            messages: IntGaugeVec::new(opts(messages), messages.labels)?,
            oldest_ready_age: GaugeVec::new(opts(oldest_ready_age), oldest_ready_age.labels)?,
            due: IntGaugeVec::new(opts(due), due.labels)?,
            paused: IntGaugeVec::new(opts(paused), paused.labels)?,
            seconds: Gauge::with_opts(opts(seconds))?,
            age: Gauge::with_opts(opts(age))?,
        })
    }

    fn all(&self) -> [&dyn Collector; FAMILIES.len()] {
        [&self.messages, &self.oldest_ready_age, &self.due, &self.paused, &self.seconds, &self.age]
    }

    /// The series of a census, but for its age.
    fn filled(&self, took: Duration, tally: &Tally) -> Vec<MetricFamily> {
        let whole = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        for ([topic, group], depth) in tally.0.groups() {
            let states = [
                ("scheduled", depth.scheduled),
                ("ready", depth.ready),
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
            self.oldest_ready_age.with_label_values(&[topic, group]).set(depth.oldest_ready_age.as_secs_f64());
        }
        self.seconds.set(took.as_secs_f64());
        let with_series: [&dyn Collector; 5] =
            [&self.messages, &self.oldest_ready_age, &self.due, &self.paused, &self.seconds];
        with_series.into_iter().flat_map(Collector::collect).collect()
    }
}
