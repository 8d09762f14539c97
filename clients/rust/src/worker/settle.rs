//! Settlements and extensions: decisions gather while a request is under way, deadlines move at a third of their time.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use super::outcome::Reason;
use super::state::{Decision, Event, Shared, Slot, State};
use crate::client::{Call, Error, backoff};
use crate::wire::settle::{Settled, Verdicts};

/// Decisions of a request, at most.
const GATHERED: usize = 100;
/// Receipts of an extension, at most.
const RECEIPTS_MAX: usize = 1_000;

/// A time that is later than any that a worker waits for.
pub(super) fn never() -> Instant {
    Instant::now() + Duration::from_secs(86_400)
}

/// A delivery of a nack.
#[derive(Serialize)]
struct Nacked<'a> {
    receipt: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a Reason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bury: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pause_key: Option<bool>,
}

#[derive(Serialize)]
struct Receipts<'a, R> {
    receipts: &'a [R],
    #[serde(skip_serializing_if = "Option::is_none")]
    visibility_timeout_ms: Option<u64>,
}

fn is_success(status: &str) -> bool {
    matches!(status, "acked" | "nacked" | "buried" | "released" | "extended" | "pending")
}

/// Decisions of one verb, to be sent together.
struct Gathered {
    verb: &'static str,
    decisions: Vec<(String, Decision)>,
    visibility: Duration,
}

/// Why there are no verdicts.
enum Unsettled {
    /// The same request may have an answer later.
    Failed,
    /// The same request would be refused again.
    Refused(Error),
    /// The topic, the group or the only receipt does not exist: one that is unknown among others has a verdict. A topic may be created
    /// later, but not with these deliveries.
    Gone,
}

/// Sends decisions until the worker is over. One request is under way at a time, and decisions gather meanwhile.
pub(super) async fn settle(shared: &Shared) {
    loop {
        let gathered = loop {
            let changed = shared.changed.notified();
            let next = {
                let state = shared.state();
                match gather(&state) {
                    Ok(gathered) => break gathered,
                    Err(_) if state.is_over => return,
                    Err(next) => next,
                }
            };
            tokio::select! {
                () = changed => {}
                () = sleep_until(next) => {}
            }
        };
        let verdicts = ask(shared, &gathered).await;
        let is_one_wrong = matches!(verdicts, Err(Unsettled::Refused(_))) && gathered.decisions.len() > 1;
        shared.update(|state| {
            for (n, (receipt, _)) in gathered.decisions.iter().enumerate() {
                match &verdicts {
                    Err(Unsettled::Refused(_)) if is_one_wrong => {
                        state.slots.get_mut(receipt).into_iter().for_each(|slot| slot.is_alone = true);
                    }
                    Err(Unsettled::Refused(_)) => refused(shared, state, receipt),
                    Err(Unsettled::Failed) => settled(shared, state, receipt, "failed", None),
                    Err(Unsettled::Gone) => settled(shared, state, receipt, "unknown", None),
                    Ok(verdicts) => match verdicts.get(n) {
                        Some(verdict) => settled(shared, state, receipt, &verdict.status, verdict.reason.as_deref()),
                        None => settled(shared, state, receipt, "failed", None),
                    },
                }
            }
        });
    }
}

/// The decisions to send now: one verb, those that were made first. Else, when to look again.
fn gather(state: &State) -> Result<Gathered, Instant> {
    let (now, mut next, mut ready) = (Instant::now(), never(), Vec::new());
    for (receipt, slot) in &state.slots {
        match &slot.decision {
            Some(decision) if slot.not_before <= now => ready.push((receipt, decision, slot)),
            Some(_) => next = next.min(slot.not_before),
            None => {}
        }
    }
    ready.sort_unstable_by_key(|(_, _, slot)| slot.decided_at);
    let Some((_, first, Slot { is_alone, .. })) = ready.first() else { return Err(next) };
    let (verb, most) = (first.verb(), if *is_alone { 1 } else { GATHERED });
    let is_sent = |(_, decision, slot): &(_, &Decision, &Slot)| decision.verb() == verb && slot.is_alone == *is_alone;
    let of_verb: Vec<_> = ready.into_iter().filter(is_sent).take(most).collect();
    let visibility = of_verb.iter().map(|(_, _, slot)| slot.visibility).min().unwrap_or_default();
    let decisions = of_verb.into_iter().map(|(receipt, decision, _)| (receipt.clone(), decision.clone())).collect();
    Ok(Gathered { verb, decisions, visibility })
}

async fn ask(shared: &Shared, gathered: &Gathered) -> Result<Vec<Settled>, Unsettled> {
    let nacked = |(receipt, decision): &'_ (String, Decision)| match decision {
        Decision::Nack { delay, reason, bury, pause_key } => serde_json::to_value(Nacked {
            receipt,
            delay_ms: delay.map(crate::wire::time::ms_up),
            reason: reason.as_ref(),
            bury: bury.then_some(true),
            pause_key: pause_key.then_some(true),
        }),
        Decision::Ack | Decision::Release => serde_json::to_value(receipt),
    };
    let receipts: serde_json::Result<Vec<_>> = gathered.decisions.iter().map(nacked).collect();
    let receipts = receipts.unwrap_or_default();
    let body = Receipts { receipts: &receipts, visibility_timeout_ms: None };
    verdicts(shared, gathered.verb, &body, receipts.len(), gathered.visibility).await
}

/// One try: what fails is tried again as long as it may count.
async fn verdicts(
    shared: &Shared,
    verb: &str,
    body: &impl Serialize,
    deliveries: usize,
    visibility: Duration,
) -> Result<Vec<Settled>, Unsettled> {
    let mut call = Call::post(format!("{}/{verb}", shared.path)).json(body).map_err(Unsettled::Refused)?;
    call.timeout = Some((visibility / 3).max(Duration::from_secs(1)));
    call.retry_for = Some(Duration::ZERO);
    match shared.client.call::<Verdicts>(&call).await {
        Ok(verdicts) => Ok(verdicts.results),
        Err(error) => {
            warn!(verb, deliveries, %error, "settlement failed");
            Err(match error {
                // A 404 without a type is not of a broker.
                Error::Refused(ref refused) if refused.status == 404 && !refused.kind.is_empty() => Unsettled::Gone,
                ref error if super::patience(error).is_some() => Unsettled::Failed,
                error => Unsettled::Refused(error),
            })
        }
    }
}

/// Ends a delivery without a settlement: the message is delivered again after its deadline.
fn refused(shared: &Shared, state: &mut State, receipt: &str) {
    let Some(slot) = state.slots.remove(receipt) else { return };
    warn!(id = slot.delivery.id, "refused: the message may be delivered again");
    shared.event(state, Event::SettleFailed, Some(&slot.delivery));
    shared.event(state, Event::Settled, Some(&slot.delivery));
}

fn settled(shared: &Shared, state: &mut State, receipt: &str, status: &str, reason: Option<&str>) {
    let Some(slot) = state.slots.get_mut(receipt) else { return };
    let delivery = slot.delivery.clone();
    let is_bury = matches!(slot.decision, Some(Decision::Nack { bury: true, .. }));
    let event = match slot.decision {
        _ if matches!(status, "failed" | "unreachable") => {
            let now = Instant::now();
            if now < slot.deadline {
                slot.not_before = now + backoff(slot.tries, Duration::from_millis(50), Duration::from_secs(2));
                slot.tries += 1;
                return shared.event(state, Event::SettleFailed, Some(&delivery));
            }
            warn!(id = delivery.id, "no answer before the deadline: the message may be delivered again");
            Event::SettleFailed
        }
        _ if !is_success(status) => {
            warn!(id = delivery.id, reason = reason.unwrap_or(status), "settled too late");
            Event::Stale
        }
        Some(Decision::Ack) => Event::Acked,
        Some(Decision::Release) => Event::Released,
        // The nack of the last attempt is answered with `buried`.
        _ if is_bury || status == "buried" => Event::Buried,
        _ => Event::Nacked,
    };
    shared.event(state, event, Some(&delivery));
    shared.event(state, Event::Settled, Some(&delivery));
    state.slots.remove(receipt);
}

/// Moves deadlines until the worker is over.
pub(super) async fn keep(shared: &Shared) {
    loop {
        let due = loop {
            let changed = shared.changed.notified();
            let next = {
                let mut state = shared.state();
                if state.is_over {
                    return;
                }
                match due(shared, &mut state) {
                    Ok(due) => break due,
                    Err(next) => next,
                }
            };
            tokio::select! {
                () = changed => {}
                () = sleep_until(next) => {}
            }
        };
        for Due { visibility, receipts } in due {
            if extend(shared, &receipts, visibility).await.is_err() {
                end_extending(shared, &receipts);
            }
        }
    }
}

/// Deliveries that are extended in one request.
struct Due {
    visibility: Duration,
    receipts: Vec<String>,
}

/// The deliveries whose deadlines have to move now, by request; or when to look again. Those whose deadline passed are lost.
fn due(shared: &Shared, state: &mut State) -> Result<Vec<Due>, Instant> {
    let (now, mut next) = (Instant::now(), never());
    let (mut alone, mut due, mut late) = (Vec::new(), BTreeMap::<Duration, Vec<String>>::new(), Vec::new());
    for (receipt, slot) in &state.slots {
        if slot.decision.is_some() || slot.is_lost {
            continue;
        }
        let is_extended = slot.extend_until.is_some_and(|until| slot.extend_at < until && now < until);
        if now >= slot.deadline {
            late.push(receipt.clone());
        } else if !is_extended {
            next = next.min(slot.deadline);
        } else if now < slot.extend_at {
            next = next.min(slot.extend_at);
        } else if slot.is_extended_alone {
            alone.push(Due { visibility: slot.visibility, receipts: vec![receipt.clone()] });
        } else {
            due.entry(slot.visibility).or_default().push(receipt.clone());
        }
    }
    late.iter().for_each(|receipt| shared.lose(state, receipt));
    let chunks = |(visibility, receipts): (Duration, Vec<String>)| {
        let chunk = |receipts: &[String]| Due { visibility, receipts: receipts.to_vec() };
        receipts.chunks(RECEIPTS_MAX).map(chunk).collect::<Vec<_>>()
    };
    alone.extend(due.into_iter().flat_map(chunks));
    if alone.is_empty() { Err(next) } else { Ok(alone) }
}

/// Moves deadlines in one request. An error means that the same request would be refused again, and the caller decides what follows: a
/// handler may have asked for a wrong time, and the worker keeps its own.
pub(super) async fn extend(shared: &Shared, receipts: &[String], visibility: Duration) -> Result<(), Error> {
    let asked = Instant::now();
    let visibility_timeout_ms = Some(crate::wire::time::ms_up(visibility));
    let body = Receipts { receipts, visibility_timeout_ms };
    let verdicts = verdicts(shared, "extend", &body, receipts.len(), visibility).await;
    let (verdicts, others) = match verdicts {
        Err(Unsettled::Refused(error)) => return Err(error),
        Err(Unsettled::Gone) => (Vec::new(), "unknown"),
        Err(Unsettled::Failed) => (Vec::new(), "unreachable"),
        Ok(verdicts) => (verdicts, "unreachable"),
    };
    shared.update(|state| {
        for (n, receipt) in receipts.iter().enumerate() {
            let status = verdicts.get(n).map_or(others, |verdict| &verdict.status);
            let Some(slot) = state.slots.get_mut(receipt) else { continue };
            let delivery = slot.delivery.clone();
            if is_success(status) {
                (slot.deadline, slot.extend_at) = (asked + visibility, asked + visibility / 3);
                slot.is_extended_alone = false;
                shared.event(state, Event::Extended, Some(&delivery));
            } else if status == "unreachable" {
                slot.extend_at = Instant::now() + (slot.visibility / 10).min(Duration::from_secs(1));
            } else if slot.decision.is_none() {
                shared.lose(state, receipt);
            }
        }
    });
    Ok(())
}

/// Extends a delivery no more. If the broker refused several together, one may be wrong: each has another request.
fn end_extending(shared: &Shared, receipts: &[String]) {
    shared.update(|state| {
        for receipt in receipts {
            let Some(slot) = state.slots.get_mut(receipt) else { continue };
            if receipts.len() > 1 {
                slot.is_extended_alone = true;
                continue;
            }
            slot.extend_until = None;
            warn!(id = slot.delivery.id, "extend refused: the delivery is lost at its deadline");
        }
    });
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;
    use crate::worker::delivery::Delivery;
    use crate::{Client, Worker};

    type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

    /// Deliveries with these ids, whose handlers run.
    fn state(ids: &[&str]) -> Outcome<State> {
        let worker = Worker::new(&Client::connect("http://127.0.0.1:1")?, "orders")?;
        let mut state = State::default();
        for id in ids {
            let fields = serde_json::json!({
                "receipt": id, "id": id, "attempt": 1, "partition": 0, "pushed_at": "2026-01-02T03:04:05.678Z",
                "due_at": "2026-01-02T03:04:05.678Z", "deadline": "2026-01-02T03:04:35.678Z", "lateness_ms": 1, "payload": "",
            });
            let (end, ended) = watch::channel(false);
            let delivery = Delivery::new(serde_json::from_value(fields)?, ended, worker.shared.clone());
            let slot = Slot::new(delivery, end, Duration::from_secs(30), Duration::from_secs(60), Instant::now());
            state.slots.insert((*id).to_owned(), slot);
        }
        Ok(state)
    }

    fn decide(state: &mut State, id: &str, decision: Decision) {
        state.slots.get_mut(id).into_iter().for_each(|slot| slot.decide(decision.clone()));
    }

    /// The verb and the receipts of the next request.
    fn sent(state: &State) -> Option<(&'static str, Vec<String>)> {
        let gathered = gather(state).ok()?;
        Some((gathered.verb, gathered.decisions.into_iter().map(|(receipt, _)| receipt).collect()))
    }

    #[test]
    fn a_decision_waits_for_no_other() -> Outcome {
        let mut state = state(&["a", "b"])?;
        assert_eq!(sent(&state), None);
        decide(&mut state, "a", Decision::Ack);
        assert_eq!(sent(&state), Some(("ack", vec!["a".to_owned()])));
        Ok(())
    }

    #[test]
    fn a_request_has_one_verb_and_what_was_decided_first() -> Outcome {
        let mut state = state(&["a", "b", "c", "d"])?;
        decide(&mut state, "c", Decision::Release);
        decide(&mut state, "b", Decision::Ack);
        decide(&mut state, "a", Decision::Release);
        assert_eq!(sent(&state), Some(("release", vec!["c".to_owned(), "a".to_owned()])));
        Ok(())
    }

    #[test]
    fn a_request_has_at_most_a_hundred_decisions() -> Outcome {
        let ids: Vec<String> = (0..150).map(|n| format!("{n:03}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let mut state = state(&ids)?;
        ids.iter().for_each(|id| decide(&mut state, id, Decision::Ack));
        let (_, receipts) = sent(&state).ok_or("nothing is sent")?;
        assert_eq!(receipts, ids[..100]);
        Ok(())
    }
}
