//! Owners that are killed or stand still, under load: others take over, and the old epochs have no effect any more.

use std::time::{Duration, Instant};

use dwell::model::error::Result;
use rustix::process::Signal;

use crate::fleet::{Fleet, ORDERS};
use crate::ledger::Book;
use crate::load::Load;
use crate::report::{Report, show};
use crate::sidecar::Taken;
use crate::support::eventually;
use crate::{TTL, passed};

/// Messages that a consumer has in hand when its broker is hit.
const HELD: usize = 20;

/// One of three owners is killed.
pub(crate) async fn killed(report: &mut Report) -> Result<()> {
    let (_fleet, members) = Fleet::with(32, &["a", "b", "c"]).await?;
    let load = Load::start(&members);
    members[0].shared(ORDERS, &[11, 11, 10]).await?;
    load.flows(500).await?;
    let held = members[2].take(ORDERS, HELD).await?;
    load.ledger.delivered(&held);

    load.leave(&members[2]);
    let since = Instant::now();
    members[2].signal(Signal::KILL)?;
    members[0].shared(ORDERS, &[16, 16]).await?;
    let taken = since.elapsed();
    let goal = TTL + Duration::from_secs(1);
    report.row("SIGKILL of 1 of 3 owners: all owned", show(taken), format!("ttl + 1 s = {goal:?}"), taken < goal);

    let mut stale = 0;
    for other in &members[..2] {
        stale += other.ack(ORDERS, &held).await?.iter().filter(|verdict| *verdict == "stale").count();
    }
    report.row(
        "its late acks, brought to each of the others",
        format!("{stale} of {} stale", 2 * HELD),
        "all",
        stale == 2 * HELD,
    );
    again(&load, &held).await?;
    load.drained(&members[0], |book| came_again(report, "messages around the SIGKILL", book, &held)).await
}

/// One of two owners stands still for three ttl.
pub(crate) async fn frozen(report: &mut Report) -> Result<()> {
    let (fleet, members) = Fleet::with(16, &["a", "b"]).await?;
    let load = Load::start(&members);
    members[0].shared(ORDERS, &[8, 8]).await?;
    load.flows(500).await?;
    let held = members[1].take(ORDERS, HELD).await?;
    load.ledger.delivered(&held);

    load.leave(&members[1]);
    let (since, before) = (Instant::now(), fleet.epochs(16).await?);
    members[1].signal(Signal::STOP)?;
    members[0].shared(ORDERS, &[16]).await?;
    let taken = since.elapsed();
    let goal = TTL + Duration::from_secs(1);
    report.row("SIGSTOP of 1 of 2 owners: all owned", show(taken), format!("ttl + 1 s = {goal:?}"), taken < goal);
    passed(since, TTL * 3).await?;
    members[1].signal(Signal::CONT)?;
    // The very first thing it hears is an ack of what it handed out before.
    let verdicts = members[1].ack(ORDERS, &held).await?;
    let stale = verdicts.iter().filter(|verdict| *verdict == "stale").count();
    report.row("SIGCONT after 3 ttl: acks of its old epochs", format!("{stale} of {HELD} stale"), "all", stale == HELD);
    let back = Instant::now();
    members[0].shared(ORDERS, &[8, 8]).await?;
    report.row("it has its share again", show(back.elapsed()), format!("ttl = {TTL:?}"), back.elapsed() < TTL);
    let after = fleet.epochs(16).await?;
    let kept = held.iter().filter(|taken| before[taken.partition] == after[taken.partition]).count();
    let lost = members[1].metric("dwell_leases_lost_total", "").await?;
    let refused = members[1].metric("dwell_settled_total", "outcome=\"stale\"").await?;
    let figures = format!(
        "dwell_leases_lost_total {lost}, dwell_settled_total{{outcome=\"stale\"}} {refused}; {kept} epochs went on"
    );
    report.row("it is counted", figures, "8 lost, 0 went on", lost >= 8.0 && refused >= HELD as f64 && kept == 0);
    again(&load, &held).await?;
    load.drained(&members[0], |book| came_again(report, "messages around the SIGSTOP", book, &held)).await
}

/// Waits until what was in hand has come again.
async fn again(load: &Load, held: &[Taken]) -> Result<()> {
    eventually("what it had in hand comes again", async || {
        let book = load.ledger.book();
        Ok(held.iter().all(|taken| book.attempts.get(&taken.id).is_some_and(|a| a.len() > 1)).then_some(()))
    })
    .await
}

/// Nothing is lost; what was in hand came again as attempt 2, and nothing came a third time.
fn came_again(report: &mut Report, story: &'static str, book: &Book, held: &[Taken]) {
    let attempts = |id: &String| book.attempts.get(id).map(Vec::as_slice).unwrap_or_default();
    let again = held.iter().filter(|taken| attempts(&taken.id) == [1, 2]).count();
    let wild = book.attempts.values().filter(|attempts| !matches!(attempts.as_slice(), [1] | [2] | [1, 2])).count();
    let (pushed, lost, repeated) = (book.pushed.len(), book.open().len(), book.repeated().len());
    let figures =
        format!("{pushed} pushed, {lost} lost, {repeated} repeated, {again} of {HELD} in hand came as attempt 2");
    report.row(story, figures, "none lost, all in hand again", lost == 0 && again == HELD && wild == 0);
}
