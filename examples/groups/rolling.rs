//! Three brokers are replaced one after the other while messages become due: how much later they come than in a quiet time.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use dwell::model::error::{Error, Result};
use dwell::model::time::Timestamp;
use dwell::platform::clock::Clock;
use rustix::process::Signal;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::timeout_at;

use crate::fleet::{Fleet, ORDERS};
use crate::lateness::{Seen, stream};
use crate::report::{Report, Spans, show};
use crate::sidecar::Sidecar;

const PARTITIONS: u16 = 32;

/// How much later than in a quiet time.
const GOAL: Duration = Duration::from_millis(100);

/// Messages are due at `rate` a second; the brokers are replaced in the second half of the time.
pub(crate) async fn restart(report: &mut Report, rate: usize, seconds: usize) -> Result<()> {
    let (fleet, mut members) = Fleet::with(PARTITIONS, &["a", "b", "c"]).await?;
    let (seen, mut heard) = mpsc::unbounded_channel();
    let consume = |member: &Sidecar| drop(tokio::spawn(stream(member.clone(), seen.clone())));
    members.iter().for_each(consume);
    members[0].shared(ORDERS, &[11, 11, 10]).await?;
    let half = Duration::from_secs(seconds as u64);
    let (count, start) = (2 * rate * seconds, Clock::System.now().plus(Duration::from_secs(3)));
    for page in (0..count).collect::<Vec<_>>().chunks(1_000) {
        let due_at = || start.plus(Duration::from_millis(fastrand::u64(0..2 * seconds as u64 * 1_000)));
        let message = |n: &usize| json!({"id": format!("m{n}"), "payload": "x", "due_at": due_at().to_string()});
        members[0].push(ORDERS, &page.iter().map(message).collect::<Vec<_>>()).await?;
    }
    let ahead = start.since(Clock::System.now());
    if ahead.is_zero() {
        return Err(Error::unavailable("the messages were pushed too slowly for the story"));
    }
    let begin = Instant::now() + ahead + half;
    let replacing = async {
        tokio::time::sleep_until(begin.into()).await;
        for index in 0..members.len() {
            let stays = members[(index + 1) % members.len()].clone();
            members[index].signal(Signal::TERM)?;
            let end = members[index].ended().await?;
            if !end.success() {
                return Err(Error::bug(format!("{} ended with {end}", members[index].name)));
            }
            members[index] = fleet.start(&format!("{}-again", members[index].name)).await?;
            consume(&members[index]);
            stays.shared(ORDERS, &[11, 11, 10]).await?;
        }
        Ok(begin.elapsed())
    };
    let (took, told) = tokio::join!(replacing, tally(&mut heard, count, start.plus(half), begin + half));
    let (took, Tally { mut quiet, mut busy, lost, repeated, early }) = (took?, told);
    let is_covered = took < half;
    let later = busy.at(1.0).saturating_sub(quiet.at(1.0));
    let figures = format!(
        "{count} at {rate}/s, 3 brokers replaced in {}: quiet p99 {}, longest {}; meanwhile p99 {}, longest {}; {lost} lost, \
         {repeated} repeated, {early} early",
        show(took),
        show(quiet.at(0.99)),
        show(quiet.at(1.0)),
        show(busy.at(0.99)),
        show(busy.at(1.0))
    );
    let kept = is_covered && later < GOAL && lost + repeated + early == 0;
    report.row("rolling restart of 3: lateness", figures, "100 ms beyond the quiet time; none lost", kept);
    Ok(())
}

struct Tally {
    quiet: Spans,
    busy: Spans,
    lost: usize,
    repeated: usize,
    early: usize,
}

/// Messages due before `half` came in a quiet time.
async fn tally(heard: &mut mpsc::UnboundedReceiver<Seen>, count: usize, half: Timestamp, end: Instant) -> Tally {
    let (mut ids, mut tally) =
        (BTreeSet::new(), Tally { quiet: Spans::default(), busy: Spans::default(), lost: 0, repeated: 0, early: 0 });
    let until = end + Duration::from_secs(20);
    while ids.len() < count {
        let Ok(Some((taken, late))) = timeout_at(until.into(), heard.recv()).await else { break };
        let is_quiet = taken.due_at.parse::<Timestamp>().is_ok_and(|due_at| due_at < half);
        match (late, is_quiet) {
            (Ok(late), true) => tally.quiet.add(late),
            (Ok(late), false) => tally.busy.add(late),
            (Err(_), _) => tally.early += 1,
        }
        tally.repeated += usize::from(!ids.insert(taken.id) || taken.attempt != 1);
    }
    tally.lost = count - ids.len();
    tally
}
