//! The report at the end: whether every promise held, how late deliveries were, and the next commands to try.

use std::time::Duration;

use dwell_client::wire::dead_letters::DeadLetterMessage;
use serde::Serialize;

use super::orders::{CALLBACK_RETRIES, Kind, Ledger, Life, Order, POISON_ATTEMPTS, Seen};
use crate::cli::contents::Payload;
use crate::cli::output;
use crate::measure::percentiles::Percentiles;
use crate::model::spelling::{counted, thousands};
use crate::model::time::{millis, short_span};

/// The p99 that one idle consumer should see.
const TARGET: Duration = Duration::from_millis(10);

pub(crate) const NEXT: &str = "\
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Promise {
    name: &'static str,
    held: bool,
    evidence: String,
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

/// Facts of the broker at the end. With the ledger they tell whether every promise held.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) left_over: u64,
    pub(super) dead: Vec<DeadLetterMessage>,
    pub(super) took: Duration,
    /// How far the store's clock is ahead of ours at most; zero when it is ours.
    pub(super) store_ahead: Duration,
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
    let one = |dead: &DeadLetterMessage| {
        let error = dead.last_error.as_ref().map_or("no error was given".to_owned(), ToString::to_string);
        let (id, reason, attempts) = (&dead.id, &dead.reason, counted(dead.attempts, "attempt"));
        let payload = dead.contents.as_ref().map(Payload::from).unwrap_or_default().shown();
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

fn judge(ledger: &Ledger, facts: &Facts) -> Vec<Promise> {
    vec![
        never_early(ledger, facts),
        never_lost(ledger, facts),
        never_twice(ledger),
        poison(ledger, facts),
        retries(ledger),
    ]
}

fn promise(name: &'static str, offenders: &[String], evidence: String) -> Promise {
    let rest = if offenders.len() > 3 { format!(" and {} more", offenders.len() - 3) } else { String::new() };
    let against = format!("{}{rest}", offenders.get(..3).unwrap_or(offenders).join(", "));
    let held = offenders.is_empty();
    Promise { name, held, evidence: if held { evidence } else { against } }
}

fn never_early(ledger: &Ledger, facts: &Facts) -> Promise {
    let (mut early, mut count, mut least) = (Vec::new(), 0_u64, Duration::MAX);
    for (id, life) in ledger.messages() {
        for (not_before, seen) in life.not_before() {
            count += 1;
            let at = seen.at.plus(facts.store_ahead);
            if at < not_before {
                early.push(format!("{id} attempt {} came {} early", seen.attempt, short_span(not_before.since(at))));
            }
            if life.due_at.is_some_and(|due_at| due_at != seen.due_at) {
                early.push(format!("{id} was due at another time than its delivery says"));
            }
            least = least.min(at.since(not_before));
        }
    }
    let clocks = if facts.store_ahead.is_zero() { "our own clock" } else { "our clock, set to the store's" };
    let least = if count == 0 { Duration::ZERO } else { least };
    let evidence =
        format!("{} deliveries, the closest {} after its time by {clocks}", thousands(count), short_span(least));
    promise("never early", &early, evidence)
}

fn never_lost(ledger: &Ledger, facts: &Facts) -> Promise {
    let is_dead = |id: &str| facts.dead.iter().any(|dead| dead.id == id);
    let mut lost = Vec::new();
    let (mut acked, mut dead) = (0_u64, 0_u64);
    for (id, life) in ledger.messages() {
        match life {
            Life { due_at: None, .. } => lost.push(format!("{id} was not stored")),
            Life { acked: true, .. } => acked += 1,
            Life { seen, .. } if is_dead(id) && !seen.is_empty() => dead += 1,
            Life { seen, .. } => {
                lost.push(format!("{id} was delivered {} and not settled", counted(seen.len(), "time")))
            }
        }
    }
    if facts.left_over > 0 {
        lost.push(format!("the broker still holds {}", counted(facts.left_over, "message")));
    }
    let evidence =
        format!("{} stored = {} acked + {dead} dead, nothing is left", thousands(acked + dead), thousands(acked));
    promise("never lost", &lost, evidence)
}

fn never_twice(ledger: &Ledger) -> Promise {
    let mut wrong: Vec<String> = ledger.strangers.iter().map(|id| format!("{id} was never pushed")).collect();
    wrong.extend(ledger.refused.iter().map(|what| format!("not settled: {what}")));
    for (id, life) in ledger.messages() {
        let attempts: Vec<u32> = life.seen.iter().map(|seen| seen.attempt).collect();
        if attempts.iter().zip(1..).any(|(attempt, expected)| *attempt != expected) {
            wrong.push(format!("{id} came as attempts {attempts:?}"));
        } else if attempts.len() > 1 && !matches!(life.kind, Kind::Callback | Kind::Poison) {
            wrong.push(format!("{id} was delivered {}", counted(attempts.len(), "time")));
        }
    }
    promise(
        "at least once, and here exactly once",
        &wrong,
        "every attempt came once, every ack was answered".to_owned(),
    )
}

fn poison(ledger: &Ledger, facts: &Facts) -> Promise {
    let mut wrong = Vec::new();
    let is_poison = |id: &str| ledger.messages().any(|(other, life)| other == id && life.kind == Kind::Poison);
    for dead in &facts.dead {
        if !is_poison(&dead.id) {
            wrong.push(format!("{} is dead", dead.id));
        } else if dead.attempts != POISON_ATTEMPTS || dead.reason != "max_attempts" || dead.last_error.is_none() {
            let DeadLetterMessage { id, attempts, reason, last_error, .. } = dead;
            wrong.push(format!("{id} is dead after {}: {reason}, {last_error:?}", counted(*attempts, "attempt")));
        }
    }
    let expected = ledger.of(Kind::Poison).count();
    if facts.dead.len() != expected {
        wrong.push(format!("{} where {expected} should be", counted(facts.dead.len(), "dead letter")));
    }
    promise(
        "poison is dead, and nothing else",
        &wrong,
        format!("{} after {POISON_ATTEMPTS} attempts", counted(expected, "message")),
    )
}

fn retries(ledger: &Ledger) -> Promise {
    let wanted = CALLBACK_RETRIES.len() + 1;
    let wrong: Vec<String> = ledger
        .messages()
        .filter(|(_, life)| life.kind == Kind::Callback && life.seen.len() != wanted)
        .map(|(id, life)| format!("{id} was delivered {}, not {wanted}", counted(life.seen.len(), "time")))
        .collect();
    let (count, delays) = (ledger.of(Kind::Callback).count(), CALLBACK_RETRIES.map(short_span));
    let evidence =
        format!("{} delivered {wanted} times each, {} apart or more", counted(count, "callback"), delays.join(" and "));
    promise("retries exact", &wrong, evidence)
}

#[cfg(test)]
mod tests {
    use dwell_client::wire::consume::Delivery;
    use dwell_client::wire::messages::LastError;
    use dwell_client::wire::push::PushResult;

    use super::super::orders::{self, Planned};
    use super::*;
    use crate::model::time::Timestamp;

    #[test]
    fn report_begins_with_the_verdict_and_ends_with_next_steps() {
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

    const DUE_MS: u64 = 1_000_000;

    /// Plays a whole demo in which nothing goes wrong, except what `change` does to single deliveries.
    fn play(change: impl Fn(&Planned, &mut Delivery, &mut u64) -> bool) -> (Ledger, Facts) {
        let mut ledger = Ledger::default();
        let planned = [orders::plan(&orders::orders()), orders::pulses()].concat();
        ledger.expect(&planned);
        let mut facts = Facts::default();
        for message in &planned {
            let due_at = Some(Timestamp::from_ms(DUE_MS));
            let (id, status) = (message.id.clone(), "stored".into());
            ledger.pushed(&[PushResult {
                id,
                partition: None,
                due_at,
                duplicate_of: None,
                differs: false,
                status,
                topic_created: false,
                replicas: None,
                error: None,
            }]);
            let fails = match message.kind {
                Kind::Callback => 2,
                Kind::Poison => 3,
                Kind::Close | Kind::Sms | Kind::Pulse => 0,
            };
            let mut at_ms = DUE_MS;
            for attempt in 1..=fails + u32::from(message.kind != Kind::Poison) {
                let mut delivery = delivery(&message.id, attempt);
                if !change(message, &mut delivery, &mut at_ms) {
                    continue;
                }
                ledger.delivered(&delivery, Timestamp::from_ms(at_ms));
                if attempt <= fails {
                    let again = (message.kind == Kind::Callback || attempt < 3).then_some(Duration::from_millis(400));
                    ledger.nacking(&message.id, Timestamp::from_ms(at_ms), again);
                    ledger.settled(&message.id, "nacked", "nacked");
                    at_ms += 400;
                } else {
                    ledger.settled(&message.id, "acked", "acked");
                }
            }
            if message.kind == Kind::Poison {
                facts.dead.push(dead(&message.id));
            }
        }
        (ledger, facts)
    }

    fn delivery(id: &str, attempt: u32) -> Delivery {
        let due_at = Timestamp::from_ms(DUE_MS);
        Delivery { receipt: "1".to_owned(), id: id.to_owned(), attempt, due_at, ..Delivery::default() }
    }

    fn dead(id: &str) -> DeadLetterMessage {
        let (reason, last_error) =
            ("max_attempts".into(), Some(LastError { message: "unreadable".to_owned(), ..LastError::default() }));
        DeadLetterMessage { id: id.to_owned(), reason, attempts: 3, last_error, ..DeadLetterMessage::default() }
    }

    fn broken(ledger: &Ledger, facts: &Facts) -> Vec<&'static str> {
        judge(ledger, facts).into_iter().filter(|promise| !promise.held).map(|promise| promise.name).collect()
    }

    const EARLY: &str = "never early";
    const LOST: &str = "never lost";
    const TWICE: &str = "at least once, and here exactly once";
    const POISON: &str = "poison is dead, and nothing else";
    const RETRIES: &str = "retries exact";

    #[test]
    fn all_promises_hold_without_faults() {
        let (ledger, facts) = play(|_, _, _| true);
        assert_eq!(broken(&ledger, &facts), Vec::<&str>::new());
        assert_eq!(ledger.open(), 0);
    }

    #[test]
    fn delivery_one_millisecond_early_breaks_a_promise() {
        let (ledger, mut facts) = play(|message, _, at_ms| {
            *at_ms -= u64::from(message.id == "A-10002.close");
            true
        });
        assert_eq!(broken(&ledger, &facts), [EARLY]);
        facts.store_ahead = Duration::from_millis(1);
        assert_eq!(broken(&ledger, &facts), Vec::<&str>::new());
        let (ledger, facts) = play(|message, delivery, at_ms| {
            *at_ms -= u64::from(message.id == "A-10001.callback" && delivery.attempt == 3);
            true
        });
        assert_eq!(broken(&ledger, &facts), [EARLY], "a retry counts too");
    }

    #[test]
    fn one_missing_message_breaks_a_promise() {
        let (ledger, facts) = play(|message, _, _| message.id != "A-10002.close");
        assert_eq!(broken(&ledger, &facts), [LOST]);
        let (ledger, mut facts) = play(|_, _, _| true);
        facts.left_over = 1;
        assert_eq!(broken(&ledger, &facts), [LOST]);
    }

    #[test]
    fn duplicate_or_unknown_delivery_breaks_a_promise() {
        let (mut ledger, facts) = play(|_, _, _| true);
        ledger.delivered(&delivery("nobody", 1), Timestamp::from_ms(DUE_MS));
        assert_eq!(broken(&ledger, &facts), [TWICE]);
        let (mut ledger, facts) = play(|_, _, _| true);
        ledger.settled("A-10002.close", "acked", "stale");
        assert_eq!(broken(&ledger, &facts), [TWICE]);
        let (mut ledger, facts) = play(|_, _, _| true);
        ledger.delivered(&delivery("A-10002.close", 1), Timestamp::from_ms(DUE_MS));
        assert_eq!(broken(&ledger, &facts), [EARLY, TWICE], "nobody asked for a second delivery");
    }

    #[test]
    fn missing_retry_or_wrong_dead_letter_breaks_a_promise() {
        let (ledger, facts) = play(|message, delivery, _| message.id != "A-10001.callback" || delivery.attempt != 2);
        assert_eq!(broken(&ledger, &facts), [TWICE, RETRIES]);
        let (ledger, mut facts) = play(|_, _, _| true);
        facts.dead.push(dead("A-10002.close"));
        assert_eq!(broken(&ledger, &facts), [POISON]);
        facts.dead.clear();
        assert_eq!(broken(&ledger, &facts), [LOST, POISON]);
    }
}
