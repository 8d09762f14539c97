//! What is seen while the demo runs: bars on a terminal, a line now and then elsewhere.

use std::cell::Cell;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::ledger::Ledger;
use super::orders::{Kind, Planned};
use crate::cli::output::{note, thousands};
use crate::platform::clock::Instant;

/// How often to look.
pub(super) const EVERY: Duration = Duration::from_millis(100);

/// How often to print where there are no bars.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// The kinds of messages, and what their consumers do.
const ROWS: [(Kind, &str); 5] = [
    (Kind::Close, "close the order if unpaid"),
    (Kind::Sms, "send an SMS"),
    (Kind::Callback, "call back, third attempt"),
    (Kind::Poison, "poison to dead letters"),
    (Kind::Pulse, "one idle consumer"),
];

/// The live table.
pub(super) struct Live {
    bars: Vec<(Kind, ProgressBar)>,
    /// Kept, since the bars draw through it.
    table: MultiProgress,
    started: Instant,
    next_line: Cell<Instant>,
}

impl Live {
    pub(super) fn new(orders: &[Planned], pulses: &[Planned], started: Instant) -> Live {
        let table = MultiProgress::new();
        let bar = |(kind, name): (Kind, &'static str)| {
            let all = orders.iter().chain(pulses).filter(|message| message.kind == kind).count();
            let bar = table.add(ProgressBar::new(all as u64)).with_prefix(name);
            // A template that cannot be read leaves the style of the library.
            if let Ok(style) = ProgressStyle::with_template("  {prefix:<26} {bar:30} {pos:>5} of {len:>5}  {msg}") {
                bar.set_style(style);
            }
            (kind, bar)
        };
        Live { bars: ROWS.into_iter().map(bar).collect(), table, started, next_line: Cell::new(started) }
    }

    /// Shows how far it is.
    pub(super) fn show(&self, ledger: &Ledger, now: Instant) {
        let counts = ledger.counts();
        for (kind, bar) in &self.bars {
            let (over, deliveries) = counts.get(kind).copied().unwrap_or_default();
            bar.set_position(over);
            if matches!(kind, Kind::Callback | Kind::Poison) {
                bar.set_message(format!("{deliveries} deliveries"));
            }
        }
        if self.table.is_hidden() && now >= self.next_line.get() {
            self.next_line.set(now.plus(LINE_EVERY));
            let (over, deliveries) = counts.values().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
            let all: u64 = self.bars.iter().filter_map(|(_, bar)| bar.length()).sum();
            let at = now.since(self.started).as_secs_f64();
            let [over, all, deliveries] = [over, all, deliveries].map(thousands);
            note(format_args!("  {at:>4.1} s  {over} of {all} messages settled, {deliveries} deliveries"));
        }
    }

    /// Leaves the table as it is.
    pub(super) fn finish(&self) {
        for (_, bar) in &self.bars {
            bar.abandon();
        }
    }
}
