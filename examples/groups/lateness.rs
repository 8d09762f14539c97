//! How late messages come to the hands of a consumer, and that none comes early.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

use dwell::model::error::{Error, Result};
use dwell::model::time::Timestamp;
use dwell::platform::clock::Clock;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout_at;

use crate::fleet::{Fleet, ORDERS};
use crate::passed;
use crate::report::{Report, Spans, show};
use crate::sidecar::{Sidecar, Taken};
use crate::support::eventually;

/// Members, and partitions.
const MEMBERS: [&str; 2] = ["a", "b"];
const PARTITIONS: u16 = 16;

/// A delivery as a consumer saw it, and how long after its due time; an error when it was early.
pub(crate) type Seen = (Taken, Result<Duration>);

/// The clock of this machine is also that of Redis.
fn lateness(taken: &Taken) -> Result<Duration> {
    let due_at: Timestamp = taken.due_at.parse().map_err(|_| Error::bug(format!("no time: {}", taken.due_at)))?;
    let due_at = SystemTime::UNIX_EPOCH + Duration::from_millis(due_at.as_ms());
    SystemTime::now().duration_since(due_at).map_err(|early| Error::bug(format!("{:?} early", early.duration())))
}

/// How consumers get their messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// One stream of each member.
    Streams,
    /// Two long polls at each member, one after the other, each over a new connection.
    Polls,
}

/// Messages are due at a rate. The consumers and Redis share the machine.
pub(crate) async fn uniform(report: &mut Report, by: By, rate: usize, seconds: usize) -> Result<()> {
    let (_fleet, members) = Fleet::with(PARTITIONS, &MEMBERS).await?;
    let (seen, mut heard) = mpsc::unbounded_channel();
    let consumers: Vec<JoinHandle<Result<()>>> = match by {
        By::Streams => members.iter().map(|member| tokio::spawn(stream(member.clone(), seen.clone()))).collect(),
        By::Polls => {
            let two = members.iter().flat_map(|member| [member, member]);
            two.map(|member| tokio::spawn(poll(member.clone(), seen.clone()))).collect()
        }
    };
    members[0].shared(ORDERS, &[8, 8]).await?;
    let (count, start) = (rate * seconds, Clock::System.now().plus(Duration::from_secs(3)));
    for page in (0..count).collect::<Vec<_>>().chunks(1_000) {
        let due_at = || start.plus(Duration::from_millis(fastrand::u64(0..seconds as u64 * 1_000)));
        let message = |n: &usize| json!({"id": format!("m{n}"), "payload": "x", "due_at": due_at().to_string()});
        members[0].push(ORDERS, &page.iter().map(message).collect::<Vec<_>>()).await?;
    }
    let ahead = start.since(Clock::System.now());
    if ahead.is_zero() {
        return Err(Error::unavailable("the messages were pushed too slowly for the story"));
    }
    let (mut ids, mut spans, mut early, mut repeated) = (BTreeSet::new(), Spans::default(), 0, 0);
    let until = Instant::now() + ahead + Duration::from_secs(seconds as u64 + 5);
    while ids.len() < count {
        let Ok(Some((taken, late))) = timeout_at(until.into(), heard.recv()).await else { break };
        match late {
            Ok(late) => spans.add(late),
            Err(_) => early += 1,
        }
        repeated += usize::from(!ids.insert(taken.id) || taken.attempt != 1);
    }
    eventually("the topic is empty", async || Ok((members[0].counts(ORDERS).await? == [0; 4]).then_some(()))).await?;
    consumers.iter().for_each(JoinHandle::abort);
    let (p50, p99, max) = (spans.at(0.5), spans.at(0.99), spans.at(1.0));
    let lost = count - ids.len();
    let ms = Duration::from_millis;
    // Who takes, acks and only then asks again is not there in between, and that is no lateness of the broker.
    let (story, goal, in_time) = match by {
        By::Streams => {
            let in_time = p50 < ms(2) && p99 < ms(10) && max < ms(50);
            ("lateness at the consumer, by streams", "2 ms, 10 ms, 50 ms; none", in_time)
        }
        By::Polls => {
            ("lateness at the consumer, by long polls in turn with acks", "none lost, repeated or early", true)
        }
    };
    let figures = format!(
        "{count} at {rate}/s on {PARTITIONS} partitions, 2 members: p50 {}, p99 {}, longest {}; {lost} lost, {repeated} \
         repeated, {early} early",
        show(p50),
        show(p99),
        show(max)
    );
    report.row(story, figures, goal, in_time && lost + repeated + early == 0);
    Ok(())
}

/// Takes and acks in turn.
async fn poll(dwell: Sidecar, seen: mpsc::UnboundedSender<Seen>) -> Result<()> {
    loop {
        let taken = dwell.reserve(ORDERS, 100, "10s").await?;
        for taken in &taken {
            let _ = seen.send((taken.clone(), lateness(taken)));
        }
        if !taken.is_empty() {
            dwell.ack(ORDERS, &taken).await?;
        }
    }
}

/// Reads a stream, and acks beside it whatever has come until then.
pub(crate) async fn stream(dwell: Sidecar, seen: mpsc::UnboundedSender<Seen>) -> Result<()> {
    let (sender, mut unacked) = mpsc::unbounded_channel::<Taken>();
    let acker = dwell.clone();
    tokio::spawn(async move {
        let mut page = Vec::new();
        while unacked.recv_many(&mut page, 1_000).await > 0 {
            acker.ack(ORDERS, &page).await?;
            page.clear();
        }
        Ok::<(), Error>(())
    });
    let url = format!("http://dwell/v1/topics/{ORDERS}/groups/default/stream?max_in_flight=1000");
    let unread = |error: reqwest::Error| Error::unavailable(format!("a stream: {error:?}"));
    let mut response = dwell.client.post(url).send().await.map_err(unread)?;
    let mut rest = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(unread)? {
        rest.extend_from_slice(&chunk);
        let end = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        for line in rest[..end].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let delivery: Value = serde_json::from_slice(line).map_err(|error| Error::bug(error.to_string()))?;
            let taken = Taken::of(&delivery);
            let late = lateness(&taken);
            let _ = seen.send((taken.clone(), late));
            let _ = sender.send(taken);
        }
        rest.drain(..end);
    }
    Ok(())
}

/// A message that is due before the one that the owner sleeps for.
pub(crate) async fn earlier(report: &mut Report) -> Result<()> {
    let (_fleet, members) = Fleet::with(1, &MEMBERS).await?;
    let push = async |id: &str, delay: &str| {
        members[1].push(ORDERS, &[json!({"id": id, "payload": "x", "delay": delay})]).await
    };
    push("far", "1h").await?;
    members[0].reserve(ORDERS, 1, "0s").await?;
    members[0].shared(ORDERS, &[1]).await?;
    let mut spans = Spans::default();
    for round in 0..20 {
        let sleeper = members[0].clone();
        let poll = tokio::spawn(async move { sleeper.reserve(ORDERS, 1, "5s").await });
        // It has seen the head and sleeps.
        passed(Instant::now(), Duration::from_millis(200)).await?;
        push(&format!("near-{round}"), "300ms").await?;
        let taken = poll.await.map_err(|error| Error::bug(error.to_string()))??;
        spans.add(lateness(taken.first().ok_or_else(|| Error::bug("nothing came"))?)?);
        members[0].ack(ORDERS, &taken).await?;
    }
    let kept = spans.at(1.0) < Duration::from_millis(50);
    report.row("due in 300 ms, pushed before a head an hour away: lateness", spans.summary(), "50 ms", kept);
    Ok(())
}
