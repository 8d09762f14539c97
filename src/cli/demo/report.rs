//! What is printed at the end.

use std::time::Duration;

use super::ledger::{Ledger, Seen};
use super::orders::{Kind, Order};
use super::promises::{Facts, Promise};
use crate::cli::failure::Failure;
use crate::cli::output::{self, thousands};
use crate::cli::percentiles::Percentiles;

/// What the 99th percentile of one idle consumer should stay under.
const TARGET: Duration = Duration::from_millis(10);

/// Prints the report.
pub(super) fn print(ledger: &Ledger, facts: &Facts, promises: &[Promise], orders: &[Order]) -> Result<(), Failure> {
    output::line(delivered(ledger, orders))?;
    output::line(lateness(ledger, facts))?;
    for dead in &facts.dead {
        let error = dead.last_error.as_deref().unwrap_or("no error was given");
        let (id, reason, attempts) = (&dead.id, &dead.reason, dead.attempts);
        output::line(format_args!("\nDead letter\n  {id}: {reason} after {attempts} attempts\n  last error: {error}"))?;
        output::line(format_args!("  payload: {}", dead.payload.shown()))?;
    }
    output::line("\nPromises")?;
    for Promise { name, held, evidence } in promises {
        output::line(format_args!("  {}  {name}: {evidence}", if *held { "PASS" } else { "FAIL" }))?;
    }
    let verdict =
        if promises.iter().all(|promise| promise.held) { "every promise held" } else { "A PROMISE WAS BROKEN" };
    output::line(format_args!("\n{verdict}, in {:.1} s", facts.took.as_secs_f64()))
}

fn delivered(ledger: &Ledger, orders: &[Order]) -> String {
    let counts = ledger.counts();
    let of = |kind| counts.get(&kind).copied().unwrap_or_default();
    let (closes, sms, callbacks, poison, pulses) =
        (of(Kind::Close), of(Kind::Sms), of(Kind::Callback), of(Kind::Poison), of(Kind::Pulse));
    let row = |name: &str, (messages, deliveries): (u64, u64), note: String| {
        vec![format!("  {name}"), thousands(messages), thousands(deliveries), note]
    };
    let closed = format!("{} closed, {} paid in time", thousands(ledger.closed), thousands(ledger.paid));
    let retries =
        |(messages, deliveries): (u64, u64)| format!("{} retries", thousands(deliveries.saturating_sub(messages)));
    let rows = [
        ["  what", "messages", "deliveries", ""].map(str::to_owned).to_vec(),
        row("close the order if unpaid", closes, closed),
        row("SMS after a while", sms, String::new()),
        row("callback, fails twice", callbacks, retries(callbacks)),
        row("poison", poison, retries(poison)),
        row("one idle consumer", pulses, "spread over 10 s".to_owned()),
    ];
    format!("\nDelivered ({} orders)\n{}", thousands(orders.len() as u64), output::columns(&rows, &[1, 2]))
}

fn lateness(ledger: &Ledger, facts: &Facts) -> String {
    let is_pulse = |kind: Kind| kind == Kind::Pulse;
    let spans = |pulse: bool, of: &dyn Fn(&Seen) -> Option<Duration>| {
        let lives = ledger.lives().filter(|(_, life)| is_pulse(life.kind) == pulse);
        Percentiles::of(lives.flat_map(|(_, life)| &life.seen).filter_map(of).collect())
    };
    let handed = |seen: &Seen| Some(seen.lateness);
    // Only first attempts: a retry is late by its own delay, not by the due time.
    let received = |seen: &Seen| (seen.attempt == 1).then(|| seen.at.plus(facts.store_ahead).since(seen.due_at));
    let idle = spans(true, &handed);
    let rows = [
        ["  from due to", "p50", "p99", "max"].map(str::to_owned).to_vec(),
        row(spans(false, &handed), "hand-over, orders, 4 consumers"),
        row(spans(false, &received), "receipt, orders, by our clock"),
        row(idle, "hand-over, one idle consumer"),
        row(spans(true, &received), "receipt, one idle consumer, by our clock"),
    ];
    let met = if idle.p99 < TARGET { "met" } else { "missed on this machine, this time" };
    format!(
        "\nLateness\n{}\n  goal for one idle consumer: p99 under {TARGET:?}: {met}",
        output::columns(&rows, &[1, 2, 3])
    )
}

fn row(percentiles: Percentiles, name: &str) -> Vec<String> {
    let ms = |span: Duration| format!("{} ms", span.as_millis());
    vec![format!("  {name}"), ms(percentiles.p50), ms(percentiles.p99), ms(percentiles.max)]
}
