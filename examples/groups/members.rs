//! Members that come and go in order, under load: nothing is doubled, nothing is lost, and partitions move in no time.

use std::time::{Duration, Instant};

use dwell::model::error::{Error, Result};
use rustix::process::Signal;

use crate::fleet::{Fleet, ORDERS};
use crate::ledger::Book;
use crate::load::Load;
use crate::report::{Report, Spans, show};
use crate::sidecar::Sidecar;

const GOAL: Duration = Duration::from_secs(1);

/// A fourth member joins three, and leaves again, many times.
pub(crate) async fn come_and_go(report: &mut Report, rounds: usize) -> Result<()> {
    let (fleet, members) = Fleet::with(32, &["a", "b", "c"]).await?;
    let mut load = Load::start(&members);
    let three = members[0].shared(ORDERS, &[11, 11, 10]).await?;
    report.row("3 members begin together on 32 partitions: 11, 11, 10", show(three), "1 s", three < GOAL);
    let (mut joins, mut leaves) = (Spans::default(), Spans::default());
    for round in 0..rounds {
        load.flows(100).await?;
        let fourth = fleet.start(&format!("d{round}")).await?;
        load.join(&fourth);
        joins.add(members[0].shared(ORDERS, &[8, 8, 8, 8]).await?);
        load.flows(100).await?;
        leaves.add(left(&load, &fourth, &members[0], &[11, 11, 10]).await?);
    }
    let kept = joins.at(1.0) < GOAL;
    report.row("a 4th joins: 8 each", joins.summary(), "1 s", kept);
    let kept = leaves.at(1.0) < GOAL;
    report.row("it leaves by SIGTERM: 11, 11, 10", leaves.summary(), "1 s", kept);
    load.drained(&members[0], |book| exactly_once(report, "messages while they came and went", book)).await
}

/// Each of three members is restarted, one after the other.
pub(crate) async fn restart(report: &mut Report, rounds: usize) -> Result<()> {
    let (fleet, mut members) = Fleet::with(32, &["a", "b", "c"]).await?;
    let mut load = Load::start(&members);
    members[0].shared(ORDERS, &[11, 11, 10]).await?;
    let (mut taken, mut joins) = (Spans::default(), Spans::default());
    for round in 0..rounds {
        for index in 0..members.len() {
            load.flows(100).await?;
            let (leaves, stays) = (members[index].clone(), members[(index + 1) % members.len()].clone());
            taken.add(left(&load, &leaves, &stays, &[16, 16]).await?);
            members[index] = fleet.start(&format!("{}{round}", leaves.name)).await?;
            load.join(&members[index]);
            joins.add(stays.shared(ORDERS, &[11, 11, 10]).await?);
        }
    }
    let kept = taken.at(1.0) < GOAL;
    report.row("rolling restart of 3: the others own all", taken.summary(), "1 s", kept);
    let kept = joins.at(1.0) < GOAL;
    report.row("rolling restart of 3: it is back", joins.summary(), "1 s", kept);
    load.drained(&members[0], |book| exactly_once(report, "messages during the rolling restart", book)).await
}

/// A member leaves by SIGTERM; answers how long it took until the others had its partitions.
async fn left(load: &Load, leaves: &Sidecar, stays: &Sidecar, shares: &[usize]) -> Result<Duration> {
    load.leave(leaves);
    let since = Instant::now();
    leaves.signal(Signal::TERM)?;
    stays.shared(ORDERS, shares).await?;
    let taken = since.elapsed();
    let end = leaves.ended().await?;
    if !end.success() {
        return Err(Error::bug(format!("{} ended with {end}\n{}", leaves.name, leaves.log())));
    }
    Ok(taken)
}

/// Every message came once, as the first attempt, and its ack counted.
fn exactly_once(report: &mut Report, story: &'static str, book: &Book) {
    let (pushed, lost, repeated) = (book.pushed.len(), book.open().len(), book.repeated().len());
    let refused = book.stale.len() + book.doubtful.len();
    let figures = format!("{pushed} pushed, {lost} lost, {repeated} repeated, {refused} acks without effect");
    let kept = pushed > 0 && lost + repeated + refused == 0 && book.acked == book.pushed;
    report.row(story, figures, "none lost, none repeated", kept);
}
