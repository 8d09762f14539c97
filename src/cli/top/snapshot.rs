//! Asks a broker; its metrics at one moment, what happened between two of them, and how a group is doing, in a word.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dwell_client::wire::groups::{Group, GroupDescription, KeyState, Member};
use dwell_client::wire::operations::Ready;
use dwell_client::wire::topics::{GroupTotals, PartitionState, TopicDescription};
use futures_util::{StreamExt, future, stream};

use crate::cli::failure::{CallError, CallResult, Failure};
use crate::cli::figures::{self, Sample};
use crate::cli::remote::{At as _, Remote};
use crate::model::message::LATE;
use crate::platform::clock::{Clock, Instant};
use crate::telemetry::metrics::Quantile;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Snapshot {
    pub(super) at: Instant,
    pub(super) version: String,
    pub(super) is_store_up: bool,
    /// Records that wait, their bytes on disk, and seconds since the oldest was written; of `wal` and `journal`.
    pub(super) logs: BTreeMap<String, (f64, f64, f64)>,
    counters: BTreeMap<Of, Counters>,
    calls: Histogram,
}

/// A topic and a group: no group for all of them, no topic for all topics.
type Of = (String, String);

#[derive(Debug, Clone, Default, PartialEq)]
struct Counters {
    pushes: f64,
    deliveries: f64,
    lateness: Histogram,
}

/// How many took at most so long: by the bits of a bound in seconds, which sort as the bounds do.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Histogram(BTreeMap<u64, f64>);

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Rates {
    all: BTreeMap<Of, TopicRates>,
    pub(super) calls_p99: Option<Quantile>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct TopicRates {
    pub(super) pushes: f64,
    pub(super) deliveries: f64,
    pub(super) lateness_p99: Option<Quantile>,
}

impl Snapshot {
    pub(super) fn new(at: Instant, samples: &[Sample]) -> Snapshot {
        let (mut counters, mut calls) = (BTreeMap::<Of, Counters>::new(), Histogram::default());
        let (mut version, mut is_store_up, mut logs) = (String::new(), true, BTreeMap::new());
        for sample in samples {
            let (name, outcome) = (sample.name.as_str(), sample.label("outcome"));
            if let "dwell_pushes_total" | "dwell_deliveries_total" | "dwell_lateness_seconds_bucket" = name {
                let (topic, group) = (sample.label("topic"), sample.label("group"));
                let of: BTreeSet<_> = [("", ""), (topic, ""), (topic, group)].into();
                for (topic, group) in of {
                    let counters = counters.entry((topic.to_owned(), group.to_owned())).or_default();
                    match name {
                        "dwell_pushes_total" if outcome == "failed" => {}
                        "dwell_pushes_total" => counters.pushes += sample.value,
                        "dwell_deliveries_total" => counters.deliveries += sample.value,
                        _ => counters.lateness.add(sample),
                    }
                }
            }
            if let "dwell_wal_records" | "dwell_wal_bytes" | "dwell_wal_oldest_age_seconds" = name {
                let log: &mut (f64, f64, f64) = logs.entry(sample.label("log").to_owned()).or_default();
                match name {
                    "dwell_wal_records" => log.0 = sample.value,
                    "dwell_wal_bytes" => log.1 = sample.value,
                    _ => log.2 = sample.value,
                }
            }
            match name {
                "dwell_redis_call_seconds_bucket" => calls.add(sample),
                "dwell_redis_up" => is_store_up = sample.value > 0.0,
                "dwell_build_info" => sample.label("version").clone_into(&mut version),
                _ => {}
            }
        }
        Snapshot { at, version, is_store_up, logs, counters, calls }
    }

    /// The rates since an earlier reading; unknown when no time went by.
    pub(super) fn since(&self, before: &Snapshot) -> Rates {
        let seconds = self.at.since(before.at).as_secs_f64();
        if seconds <= 0.0 {
            return Rates::default();
        }
        let none = Counters::default();
        let of = |(of, now): (&Of, &Counters)| {
            let then = before.counters.get(of).unwrap_or(&none);
            let rates = TopicRates {
                pushes: grown(now.pushes, then.pushes) / seconds,
                deliveries: grown(now.deliveries, then.deliveries) / seconds,
                lateness_p99: now.lateness.since(&then.lateness).quantile(0.99),
            };
            (of.clone(), rates)
        };
        let calls_p99 = self.calls.since(&before.calls).quantile(0.99);
        Rates { all: self.counters.iter().map(of).collect(), calls_p99 }
    }
}

impl Rates {
    /// Of a topic and all of its groups, or of all topics if its name is empty.
    pub(super) fn of(&self, topic: &str) -> Option<TopicRates> {
        self.of_group(topic, "")
    }

    pub(super) fn of_group(&self, topic: &str, group: &str) -> Option<TopicRates> {
        self.all.get(&(topic.to_owned(), group.to_owned())).copied()
    }

    /// The topics that have rates; an empty name is all of them.
    pub(super) fn topics(&self) -> impl Iterator<Item = (&String, &TopicRates)> {
        self.all.iter().filter(|((_, group), _)| group.is_empty()).map(|((topic, _), rates)| (topic, rates))
    }
}

/// The increase of a counter. One that is smaller than before began anew.
fn grown(now: f64, then: f64) -> f64 {
    if now >= then { now - then } else { now }
}

impl Histogram {
    fn add(&mut self, bucket: &Sample) {
        let bound = match bucket.label("le") {
            "+Inf" => f64::INFINITY,
            bound => bound.parse().unwrap_or(f64::INFINITY),
        };
        *self.0.entry(bound.max(0.0).to_bits()).or_default() += bucket.value;
    }

    fn since(&self, before: &Histogram) -> Histogram {
        let then = |bound| before.0.get(bound).copied().unwrap_or(0.0);
        Histogram(self.0.iter().map(|(bound, now)| (*bound, grown(*now, then(bound)))).collect())
    }

    fn quantile(&self, part: f64) -> Option<Quantile> {
        Quantile::of(self.0.iter().map(|(bound, count)| (f64::from_bits(*bound), *count)), part)
    }
}

const PATIENCE: Duration = Duration::from_secs(10);
const AT_ONCE: usize = 8;
/// Keys of a fair group, the busiest. `dwell group get` has more.
const KEYS_SHOWN: usize = 10;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) list: bool,
    pub(super) topics: Vec<String>,
    /// Whether the members and the keys of their groups are wanted, too.
    pub(super) details: bool,
}

/// A topic and its groups.
#[derive(Debug)]
pub(super) struct Described {
    pub(super) topic: TopicDescription,
    pub(super) groups: Vec<Group>,
    /// Of each group, if they are wanted.
    pub(super) details: BTreeMap<String, Detail>,
}

/// The brokers of a group and, if it is fair, its busiest keys.
#[derive(Debug, Default)]
pub(super) struct Detail {
    pub(super) members: Vec<Member>,
    pub(super) keys: Vec<KeyState>,
}

impl Described {
    /// A line for each group, partition, member and key.
    pub(super) fn lines(&self) -> usize {
        let details: usize = self.details.values().map(|detail| detail.members.len() + detail.keys.len()).sum();
        self.topic.totals.len() + self.topic.partitions.len() + details
    }
}

#[derive(Debug)]
pub(super) struct Asked {
    pub(super) readiness: Result<Ready, String>,
    pub(super) reading: Snapshot,
    pub(super) topics: Option<Vec<String>>,
    /// Topics as they are described; those that are gone are `None`.
    pub(super) described: Vec<(String, Option<Described>)>,
    pub(super) trouble: Option<String>,
}

/// The answer and its time; an error says why nobody answers.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) at: Instant,
    pub(super) answer: Result<Asked, String>,
}

/// Whether watching makes sense. An unreachable broker may return; one that refuses the token will not accept it later.
pub(super) async fn check(Remote { client, place }: &Remote) -> Result<(), Failure> {
    let metrics = tokio::select! {
        metrics = client.metrics() => metrics.at(place),
        () = Clock::System.sleep(PATIENCE) => return Ok(()),
    };
    match metrics {
        Err(error) if !error.is_passing() => Err(error.into()),
        _ => Ok(()),
    }
}

/// Asks once. It never fails: that a broker is unreachable is shown.
pub(super) async fn ask(remote: Remote, wanted: Wanted) -> Seen {
    let answer = tokio::select! {
        answer = answer(&remote, wanted) => answer,
        () = Clock::System.sleep(PATIENCE) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
    };
    Seen { at: Clock::System.instant(), answer }
}

async fn answer(remote: &Remote, wanted: Wanted) -> Result<Asked, String> {
    let Remote { client, place } = remote;
    let readiness = match client.ready().await.map_err(|error| place.unready(error)) {
        Ok(readiness) => Ok(readiness),
        Err(error @ (CallError::Unreachable(_) | CallError::NoAnswer(_))) => return Err(error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let metrics = client.metrics().await.at(place).map_err(|error| error.to_string())?;
    let reading = Snapshot::new(Clock::System.instant(), &figures::read(&metrics));
    let mut trouble = None;
    let mut topics = None;
    if wanted.list {
        match client.topics().await.at(place) {
            Ok(names) => topics = Some(names),
            Err(error) => trouble = Some(error.to_string()),
        }
    }
    let one = async |name: String| match describe(remote, &name, wanted.details).await {
        Ok(described) => Ok((name, Some(described))),
        Err(CallError::Problem(problem)) if problem.name() == "not-found" => Ok((name, None)),
        Err(error) => Err(error.to_string()),
    };
    let answers: Vec<Result<_, String>> =
        stream::iter(wanted.topics).map(one).buffer_unordered(AT_ONCE).collect().await;
    let mut described = Vec::with_capacity(answers.len());
    for answer in answers {
        match answer {
            Ok(topic) => described.push(topic),
            Err(error) => trouble = Some(error),
        }
    }
    Ok(Asked { readiness, reading, topics, described, trouble })
}

async fn describe(Remote { client, place }: &Remote, name: &str, has_details: bool) -> CallResult<Described> {
    let (topic, groups) = future::try_join(client.topic(name), client.groups(name)).await.at(place)?;
    let mut details = BTreeMap::new();
    for group in groups.iter().filter(|_| has_details) {
        let GroupDescription { members, keys, .. } = client.group(name, &group.group).await.at(place)?;
        let keys = keys.map_or(Vec::new(), |keys| keys.busiest.into_iter().take(KEYS_SHOWN).collect());
        details.insert(group.group.clone(), Detail { members, keys });
    }
    Ok(Described { topic, groups, details })
}

/// How a group is doing, in the order of how much it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Condition {
    #[default]
    Empty,
    Fine,
    DeadLetters,
    Copying,
    Closed,
    Paused,
    Late,
    NoConsumer,
}

impl Condition {
    /// Of a group in this state of the API, by its counts and those of its partitions.
    pub(super) fn of(
        state: &str,
        GroupTotals { group, counts, .. }: &GroupTotals,
        partitions: &[PartitionState],
    ) -> Condition {
        let is_late = counts.oldest_ready_age_ms.is_some_and(|age| age >= LATE);
        let unowned = || partitions.iter().filter(|partition| partition.group == *group && partition.owner.is_none());
        match state {
            "paused" => Condition::Paused,
            "closed" => Condition::Closed,
            "copying" => Condition::Copying,
            _ if is_late && unowned().any(|partition| partition.counts.ready > 0) => Condition::NoConsumer,
            // Their broker ended without a stop, and only a consumer makes another one take over.
            _ if unowned().any(|partition| partition.counts.in_flight > 0) => Condition::NoConsumer,
            _ if is_late => Condition::Late,
            _ if counts.dead > 0 => Condition::DeadLetters,
            _ if counts.live() > 0 => Condition::Fine,
            _ => Condition::Empty,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Condition::Empty => "empty",
            Condition::Fine => "ok",
            Condition::DeadLetters => "dead letters",
            Condition::Copying => "copying",
            Condition::Paused => "paused",
            Condition::Closed => "closed",
            Condition::Late => "late",
            Condition::NoConsumer => "no consumer",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dwell_client::wire::topics::Counts;

    use super::*;
    use crate::cli::figures::read;

    fn reading(seconds: u64, text: &str) -> Snapshot {
        Snapshot::new(Instant::START.plus(Duration::from_secs(seconds)), &read(text))
    }

    #[test]
    fn rates_are_per_second_between_two_snapshots() {
        let before = reading(10, "dwell_pushes_total{topic=\"a\",outcome=\"stored\"} 10\n");
        let after = reading(
            12,
            "dwell_pushes_total{topic=\"a\",outcome=\"stored\"} 20\n\
             dwell_pushes_total{topic=\"a\",outcome=\"buffered\"} 4\n\
             dwell_pushes_total{topic=\"a\",outcome=\"failed\"} 400\n\
             dwell_deliveries_total{topic=\"a\",group=\"g\",kind=\"first\"} 6\n",
        );
        let rates = after.since(&before).of("a").map(|rates| (rates.pushes, rates.deliveries));
        assert_eq!(rates, Some((7.0, 3.0)));
        let of_group = after.since(&before).of_group("a", "g").map(|rates| (rates.pushes, rates.deliveries));
        assert_eq!(of_group, Some((0.0, 3.0)));
        assert_eq!(after.since(&before).of("").map(|rates| (rates.pushes, rates.deliveries)), Some((7.0, 3.0)));
        // A broker that was restarted counts from nothing.
        assert_eq!(
            before.since(&reading(8, "dwell_pushes_total{topic=\"a\"} 500\n")).of("a").map(|r| r.pushes),
            Some(5.0)
        );
        assert_eq!(after.since(&after), Rates::default());
        assert_eq!(after.since(&before).of("b"), None);
    }

    #[test]
    fn percentile_covers_the_interval_between_snapshots() {
        let bucket = |le: &str, count: u32| {
            format!("dwell_lateness_seconds_bucket{{topic=\"a\",group=\"g\",le=\"{le}\"}} {count}\n")
        };
        let text =
            |counts: [u32; 3]| ["0.1", "1", "+Inf"].iter().zip(counts).map(|(le, n)| bucket(le, n)).collect::<String>();
        let p99 =
            |then, now| reading(1, &text(now)).since(&reading(0, &text(then))).of("a").and_then(|r| r.lateness_p99);
        assert_eq!(p99([5, 5, 5], [5, 5, 5]), None);
        assert_eq!(p99([0, 0, 0], [100, 100, 100]), Some(Quantile::About(0.1 * 0.99)));
        assert_eq!(p99([0, 0, 900], [98, 100, 1_000]), Some(Quantile::About(0.55)));
        assert_eq!(p99([0, 0, 0], [0, 0, 10]), Some(Quantile::Beyond(1.0)));
    }

    #[test]
    fn broker_and_log_figures_are_parsed() {
        let read = reading(
            0,
            "dwell_build_info{version=\"1.2.3\"} 1\ndwell_redis_up 0\ndwell_wal_records{log=\"wal\"} 3\n\
             dwell_wal_bytes{log=\"wal\"} 4096\ndwell_wal_oldest_age_seconds{log=\"wal\"} 1.5\n",
        );
        assert_eq!((read.version.as_str(), read.is_store_up), ("1.2.3", false));
        assert_eq!(read.logs.get("wal"), Some(&(3.0, 4_096.0, 1.5)));
    }

    #[test]
    fn group_status_is_the_worst_that_applies() {
        let age = |secs| Some(Duration::from_secs(secs));
        let total = |ready, dead, oldest_ready_age_ms| {
            let counts = Counts { ready, dead, oldest_ready_age_ms, ..Counts::default() };
            GroupTotals { group: "g".to_owned(), state: "active".into(), counts }
        };
        let partition = |owner: Option<&str>| {
            let GroupTotals { group, counts, .. } = total(1, 0, age(6));
            [PartitionState { partition: 0, group, counts, next_due_at: None, owner: owner.map(str::to_owned) }]
        };
        let (owned, unowned) = (partition(Some("a")), partition(None));
        let mut left = partition(None);
        left[0].counts = Counts { in_flight: 1, ..Counts::default() };
        for (state, totals, partitions, word) in [
            ("active", total(0, 0, None), &owned, "empty"),
            ("active", total(1, 0, age(4)), &unowned, "ok"),
            ("active", total(1, 1, age(4)), &owned, "dead letters"),
            ("active", total(1, 1, age(5)), &owned, "late"),
            ("active", total(1, 1, age(5)), &unowned, "no consumer"),
            ("active", total(0, 1, None), &left, "no consumer"),
            ("paused", total(1, 1, age(5)), &unowned, "paused"),
            ("closed", total(1, 1, age(5)), &unowned, "closed"),
            ("copying", total(0, 0, None), &owned, "copying"),
        ] {
            assert_eq!(Condition::of(state, &totals, partitions).word(), word);
        }
        assert!(Condition::NoConsumer > Condition::Late && Condition::Late > Condition::Paused);
    }
}
