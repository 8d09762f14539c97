//! The report at the end: whether every promise held, how late deliveries were, and the next commands to try.

use std::time::Duration;

use serde::Serialize;

use super::ledger::{Ledger, Seen};
use super::orders::{Kind, Order};
use super::promises::{Facts, Promise, judge};
use crate::cli::figures::Percentiles;
use crate::cli::output;
use crate::model::spelling::{counted, thousands};
use crate::model::time::{millis, short_span};

/// The p99 that one idle consumer should see.
const TARGET: Duration = Duration::from_millis(10);

const NEXT: &str = "\
What to do next
  dwell serve                                   start a broker that stays, on http://127.0.0.1:7373
  dwell push orders 'close 4711' --delay 10s    and in other terminals: push a message
  dwell consume orders                          and get it when it is due
  dwell top                                     watch; http://127.0.0.1:7373/ui shows the same in a browser
  dwell bench                                   how fast it is on this machine";

/// The result as JSON.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) held: bool,
    #[serde(with = "millis")]
    took_ms: Duration,
    messages: usize,
    promises: Vec<Promise>,
    lateness: Vec<Lateness>,
}

#[derive(Debug, Serialize)]
struct Lateness {
    of: &'static str,
    #[serde(with = "millis")]
    p50_ms: Duration,
    #[serde(with = "millis")]
    p99_ms: Duration,
    #[serde(with = "millis")]
    max_ms: Duration,
}

impl Report {
    pub(super) fn new(ledger: &Ledger, facts: &Facts) -> Report {
        let promises = judge(ledger, facts);
        let held = promises.iter().all(|promise| promise.held);
        let messages = ledger.messages().count();
        Report { held, took_ms: facts.took, messages, promises, lateness: lateness(ledger, facts) }
    }

    /// The few lines that matter first.
    pub(super) fn text(&self, ledger: &Ledger, facts: &Facts, orders: &[Order]) -> String {
        let promise = |Promise { name, held, evidence }: &Promise| {
            format!("  {}  {name}: {evidence}", if *held { "PASS" } else { "FAIL" })
        };
        let promises: Vec<String> = self.promises.iter().map(promise).collect();
        let parts = [vec![self.verdict()], promises, vec![delivered(ledger, orders), self.lateness()], dead(facts)];
        format!("{}\n\n{NEXT}", parts.concat().join("\n"))
    }

    fn verdict(&self) -> String {
        let verdict = if self.held { "every promise held" } else { "A PROMISE WAS BROKEN" };
        format!("{verdict}: {} messages in {}", thousands(self.messages as u64), short_span(self.took_ms))
    }

    fn lateness(&self) -> String {
        let row = |of: &Lateness| {
            [format!("  {}", of.of), short_span(of.p50_ms), short_span(of.p99_ms), short_span(of.max_ms)]
        };
        let table = output::table(["  from due to", "p50", "p99", "max"], self.lateness.iter().map(row), &[1, 2, 3]);
        let idle = self.lateness.iter().find(|of| of.of == IDLE).map(|of| of.p99_ms).unwrap_or_default();
        let met = if idle < TARGET { "met" } else { "missed on this machine, this time" };
        format!("\nLateness\n{table}\n  goal for one idle consumer: p99 under {}: {met}", short_span(TARGET))
    }
}

const IDLE: &str = "hand-over, one idle consumer";

fn lateness(ledger: &Ledger, facts: &Facts) -> Vec<Lateness> {
    let spans = |pulse: bool, of: &dyn Fn(&Seen) -> Option<Duration>| {
        let lives = ledger.messages().filter(|(_, life)| (life.kind == Kind::Pulse) == pulse);
        Percentiles::of(lives.flat_map(|(_, life)| &life.seen).filter_map(of).collect())
    };
    let handed = |seen: &Seen| Some(seen.lateness);
    // Only first attempts: a retry is late by its own delay, not by the due time.
    let received = |seen: &Seen| (seen.attempt == 1).then(|| seen.at.plus(facts.store_ahead).since(seen.due_at));
    let all = [
        ("hand-over, orders, 4 consumers", spans(false, &handed)),
        ("receipt, orders, by our clock", spans(false, &received)),
        (IDLE, spans(true, &handed)),
        ("receipt, one idle consumer, by our clock", spans(true, &received)),
    ];
    let of = |(of, Percentiles { p50, p99, max })| Lateness { of, p50_ms: p50, p99_ms: p99, max_ms: max };
    all.map(of).into()
}

fn dead(facts: &Facts) -> Vec<String> {
    let one = |dead: &crate::cli::api::Dead| {
        let error = dead.last_error.as_deref().unwrap_or("no error was given");
        let (id, reason, attempts) = (&dead.id, &dead.reason, counted(dead.attempts, "attempt"));
        let payload = dead.payload.shown();
        format!("\nDead letter\n  {id}: {reason} after {attempts}\n  last error: {error}\n  payload: {payload}")
    };
    facts.dead.iter().map(one).collect()
}

fn delivered(ledger: &Ledger, orders: &[Order]) -> String {
    let counts = ledger.counts();
    let of = |kind| counts.get(&kind).copied().unwrap_or_default();
    let (closes, sms, callbacks, poison, pulses) =
        (of(Kind::Close), of(Kind::Sms), of(Kind::Callback), of(Kind::Poison), of(Kind::Pulse));
    let row = |name: &str, (messages, deliveries): (u64, u64), note: String| {
        [format!("  {name}"), thousands(messages), thousands(deliveries), note]
    };
    let closed = format!("{} closed, {} paid in time", thousands(ledger.closed), thousands(ledger.paid));
    let retries =
        |(messages, deliveries): (u64, u64)| format!("{} retries", thousands(deliveries.saturating_sub(messages)));
    let rows = [
        row("close the order if unpaid", closes, closed),
        row("SMS after a while", sms, String::new()),
        row("callback, fails twice", callbacks, retries(callbacks)),
        row("poison", poison, retries(poison)),
        row("one idle consumer", pulses, "spread over 10 s".to_owned()),
    ];
    format!(
        "\nDelivered ({} orders)\n{}",
        thousands(orders.len() as u64),
        output::table(["  what", "messages", "deliveries", ""], rows.into_iter(), &[1, 2])
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_comes_first_and_what_to_do_next_last() {
        let (ledger, facts) = (Ledger::default(), Facts { took: Duration::from_millis(18_340), ..Facts::default() });
        let report = Report::new(&ledger, &facts);
        let text = report.text(&ledger, &facts, &[]);
        assert!(
            report.held && text.starts_with("every promise held: 0 messages in 18.3s\n  PASS  never early"),
            "{text}"
        );
        assert!(text.ends_with(NEXT), "{text}");
        let broken = Report::new(&ledger, &Facts { left_over: 1, ..facts });
        assert!(!broken.held && broken.verdict().starts_with("A PROMISE WAS BROKEN: "));
    }

    #[test]
    fn every_command_of_what_to_do_next_is_understood() {
        for line in NEXT.lines().skip(1) {
            let command = line.trim_start().split("  ").next().unwrap_or_default();
            let words: Vec<String> = command.split(' ').skip(1).map(|word| word.replace('\'', "")).collect();
            let words: Vec<String> = words.into_iter().filter(|word| word != "4711").collect();
            assert_eq!(crate::cli::check(&words), Ok(()), "{command}");
        }
    }
}
