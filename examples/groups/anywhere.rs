//! Receipts that are settled at random brokers while brokers and Redis fail.

use std::time::Duration;

use dwell::model::error::Result;

use crate::everywhere::{at, settle_anywhere};
use crate::report::{Report, show};

/// Single acks that are measured, half of them at another broker than the one that handed the delivery out.
const MEASURED: usize = 4_000;

/// The share of foreign acks that a goal is set for, and the goal; on a machine that is busy, twice as long as local ones.
const TIMELY: (f64, Duration) = (0.99, Duration::from_millis(50));

/// Reserves, extends, acks and nacks at random brokers.
pub(crate) async fn settled(report: &mut Report, messages: usize) -> Result<()> {
    let settled = settle_anywhere(messages, MEASURED).await?;
    let (acked, perhaps) = settled.counts();
    let lost = messages - acked - perhaps;
    let book = &settled.book;
    book.wrong.iter().take(20).for_each(|wrong| println!("    {wrong}"));
    for (verdict, count) in &book.told {
        println!("    {verdict}: {count}");
    }
    report.row(
        "settled at random brokers: 1 killed, 1 frozen, 1 restarted, Redis killed",
        format!(
            "{messages} messages: {acked} acked, {perhaps} perhaps, {lost} lost; {} verdicts, {} of them wrong",
            book.told.values().sum::<usize>(),
            book.wrong.len()
        ),
        "none lost, none wrong, none settled twice",
        lost == 0 && book.wrong.is_empty() && settled.dropped == 0.0,
    );
    let share = TIMELY.0;
    let goal = TIMELY.1.max(at(&settled.local, share) * 2);
    let figures = |spans: &[Duration]| format!("p50 {}, p99 {}", show(at(spans, 0.5)), show(at(spans, share)));
    report.row(
        "an ack: at the broker that handed out; at another",
        format!("{}; {}", figures(&settled.local), figures(&settled.foreign)),
        format!("p99 {} at another", show(goal)),
        at(&settled.foreign, share) < goal,
    );
    Ok(())
}
