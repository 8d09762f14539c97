//! Producers at work on a recorded process, and what they were answered.

use dwell::store::{Reads as _, Topics as _};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use dwell::model::error::{Error, Result};
use dwell::model::message::{GroupName, TopicName};
use dwell::model::time::Timestamp;
use dwell::platform::clock::{Clock, Manual};
use dwell::store::Window;
use dwell::store::embedded::Embedded;
use dwell::wal::{Wal, WalOptions};
use fastrand::Rng;
use futures_util::future::try_join_all;
use serde_json::{Value, json};

use super::recorded::{Moment, Recorded, after_cut};
use super::trace::Trace;
use crate::disk::wal::support::{all_of, ids_of, metrics, push};
use crate::support::HttpClient;

const TOPIC: &str = "orders";
const PRODUCERS: usize = 3;

/// What each message was answered last, and when at the latest.
#[derive(Default)]
pub(super) struct Answers(Mutex<BTreeMap<String, (String, Moment)>>);

/// Calls of producers to one process.
pub(super) struct Work<'a> {
    pub(super) answers: &'a Answers,
    pub(super) recorded: &'a Recorded,
    pub(super) client: &'a HttpClient,
    pub(super) place: Place,
}

impl Work<'_> {
    /// So many calls of each of several producers, at once.
    pub(super) async fn pushes(&self, calls: usize, name: &str) -> Result<()> {
        let produce = async |producer: usize| {
            let mut rng = Rng::with_seed(producer as u64);
            for call in 0..calls {
                let ids: Vec<_> = (0..1 + call % 10).map(|n| format!("{name}-{producer}-{call}-{n}")).collect();
                self.push(&ids, &mut rng).await?;
                if matches!(self.place, Place::Store) {
                    self.cancel(&ids[0]).await?;
                }
            }
            Ok(())
        };
        try_join_all((0..PRODUCERS).map(produce)).await.map(drop)
    }

    async fn push(&self, ids: &[String], rng: &mut Rng) -> Result<()> {
        let message = |id| json!({ "id": id, "payload": "x".repeat(rng.usize(0..9_000)), "delay": "1h" });
        let messages: Vec<Value> = ids.iter().map(message).collect();
        let body = json!({ "messages": messages });
        let answer = self.client.post(&format!("/v1/topics/{TOPIC}/messages/batch"), &body).await;
        for (n, id) in ids.iter().enumerate() {
            // A batch that is refused as a whole has one error for all.
            let status = answer.as_ref().map_or("none", |(_, body)| {
                let status = body["results"][n]["status"].as_str().filter(|status| *status != "error");
                let errors = [&body["results"][n]["error"]["type"], &body["type"]];
                let error = errors.into_iter().find_map(Value::as_str);
                status.or(error.and_then(|kind| kind.strip_prefix("urn:dwell:error:"))).unwrap_or("none")
            });
            self.answered(id, status)?;
        }
        Ok(())
    }

    async fn cancel(&self, id: &str) -> Result<()> {
        // From now on it may be there or not.
        self.answered(id, "being cancelled")?;
        let answer = self.client.delete(&format!("/v1/topics/{TOPIC}/messages/{id}")).await;
        let status = answer.as_ref().and_then(|(_, body)| body["status"].as_str());
        status.map_or(Ok(()), |status| self.answered(id, status))
    }

    fn answered(&self, id: &str, status: &str) -> Result<()> {
        let answer = (status.to_owned(), self.recorded.moment()?);
        self.answers.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned(), answer);
        Ok(())
    }
}

impl Answers {
    /// The ids that had this answer at a moment.
    pub(super) fn with(&self, status: &str, at: Moment) -> BTreeSet<String> {
        let answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let answers = answers.iter().filter(|(_, (answer, moment))| answer == status && *moment <= at);
        answers.map(|(id, _)| id.clone()).collect()
    }

    /// How often each answer was given.
    pub(super) fn tally(&self) -> BTreeMap<String, usize> {
        let mut tally = BTreeMap::new();
        for (status, _) in self.0.lock().unwrap_or_else(PoisonError::into_inner).values() {
            *tally.entry(status.clone()).or_default() += 1;
        }
        tally
    }
}

/// Where a story looks for what was promised.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    Wal,
    Journal,
    Store,
}

impl Place {
    /// The answer that promises that a message is there.
    pub(super) fn promise(self) -> &'static str {
        match self {
            Place::Wal => "buffered",
            Place::Journal => "journaled",
            Place::Store => "stored",
        }
    }

    /// What the paths of its files contain.
    pub(super) fn part(self) -> &'static str {
        match self {
            Place::Wal => "/wal/",
            Place::Journal => "/journal/",
            Place::Store => "/store/",
        }
    }

    /// The ids of all messages below a data directory. It goes on as a log or a store afterwards.
    async fn ids(self, dir: &std::path::Path, what: &str) -> Result<BTreeSet<String>> {
        let log = match self {
            Place::Wal => "wal",
            Place::Journal => "journal",
            Place::Store => return stored(&dir.join("store")).await,
        };
        let mut options = WalOptions::new(dir.join(log), 1 << 30, Clock::System);
        options.disk_reserve_bytes = 0;
        let wal = Wal::open(options, metrics()?)?;
        let ids = ids_of(&all_of(&wal).await?);
        wal.append(vec![push("new", 10)?]).await?;
        assert_eq!(ids_of(&all_of(&wal).await?).last().map(String::as_str), Some("new"), "{what}");
        Ok(ids.into_iter().collect())
    }
}

/// The ids of all messages of an embedded store.
async fn stored(dir: &std::path::Path) -> Result<BTreeSet<String>> {
    let store = Embedded::open(dir, Clock::Manual(Manual::at(Timestamp::from_ms(0))))?;
    let Some(topic) = store.topic(&TopicName::new(TOPIC)?).await? else { return Ok(BTreeSet::new()) };
    let mut ids = BTreeSet::new();
    for partition in topic.partitions() {
        let group_partition = topic.group_partition(partition, &GroupName::standard());
        let mut after = None;
        loop {
            let page = store.waiting(&group_partition, Window::ALL, after.as_ref(), 1_000).await?;
            ids.extend(page.messages.iter().map(|listed| listed.id.to_string()));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    Ok(ids)
}

/// Cuts the power at moments of a trace, and holds each disk to the answers given before: what was promised is there, and
/// what was refused or cancelled is not.
pub(super) async fn holds(trace: &Trace, answers: &Answers, place: Place, cuts: usize, rng: &mut Rng) -> Result<()> {
    let events = trace.events().count();
    for cut in 0..cuts {
        // The last one always.
        let at = if cut == 0 { events - 1 } else { rng.usize(0..events) };
        holds_at(trace, answers, place, at, 1, rng).await?;
    }
    Ok(())
}

/// Cuts the power so often behind one event of a trace.
pub(super) async fn holds_at(
    trace: &Trace,
    answers: &Answers,
    place: Place,
    event: usize,
    cuts: usize,
    rng: &mut Rng,
) -> Result<()> {
    let moments: Vec<Moment> = trace.events().map(|(moment, _)| moment).collect();
    let (at, what) = (moments[event], format!("{place:?}, event {event} of {}", moments.len()));
    for _ in 0..cuts {
        let dir = after_cut(trace, at, rng)?;
        let found = place.ids(dir.path(), &what).await;
        let present = found.map_err(|error| Error::bug(format!("{what}: {error}")))?;
        let promised = answers.with(place.promise(), at);
        let lost: Vec<_> = promised.difference(&present).collect();
        assert!(lost.is_empty(), "{what}: {} of {} are lost: {lost:?}", lost.len(), promised.len());
        for gone in ["unavailable", "cancelled"] {
            let gone_ids = answers.with(gone, at);
            let phantoms: Vec<_> = gone_ids.intersection(&present).collect();
            assert!(phantoms.is_empty(), "{what}: {gone}, and there: {phantoms:?}");
        }
    }
    Ok(())
}
