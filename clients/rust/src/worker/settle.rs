//! Settlements and extensions: decisions are gathered for a moment and sent together, deadlines move at a third of their time.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use super::outcome::Reason;
use super::state::{Decision, Event, Shared, Slot, State};
use crate::client::{Call, Error, backoff};
use crate::wire::settle::{Settled, Verdicts};

/// Decisions are gathered for this long, or until there are [`GATHERED`].
const GATHER_FOR: Duration = Duration::from_millis(5);
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
pub(super) enum Unsettled {
    /// The same request may have an answer later.
    Failed,
    /// The same request would be refused again.
    Refused,
    /// The topic, the group or the receipt does not exist. A topic may be created later, but not with these deliveries.
    Gone,
}

/// Sends decisions until the worker is over.
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
        let is_one_wrong = matches!(verdicts, Err(Unsettled::Refused)) && gathered.decisions.len() > 1;
        shared.update(|state| {
            for (n, (receipt, _)) in gathered.decisions.iter().enumerate() {
                match &verdicts {
                    Err(Unsettled::Refused) if is_one_wrong => {
                        state.slots.get_mut(receipt).into_iter().for_each(|slot| slot.is_alone = true);
                    }
                    Err(Unsettled::Refused) => refused(shared, state, receipt),
                    Err(Unsettled::Failed | Unsettled::Gone) => settled(shared, state, receipt, None),
                    Ok(verdicts) => settled(shared, state, receipt, verdicts.get(n)),
                }
            }
        });
    }
}

/// The decisions to send now: one verb, once enough are gathered or nothing more can be waited for. Else, when to look again.
fn gather(state: &State) -> Result<Gathered, Instant> {
    let (now, mut next) = (Instant::now(), never());
    let (mut ready, mut decided, mut oldest) = (Vec::new(), 0, now);
    for (receipt, slot) in &state.slots {
        let Some(decision) = &slot.decision else { continue };
        decided += 1;
        if slot.not_before > now {
            next = next.min(slot.not_before);
            continue;
        }
        ready.push((receipt, decision, slot));
        oldest = oldest.min(slot.decided_at);
    }
    let Some((_, first, Slot { is_alone, .. })) = ready.first() else { return Err(next) };
    if ready.len() < GATHERED && decided < state.slots.len() && oldest + GATHER_FOR > now {
        return Err(next.min(oldest + GATHER_FOR));
    }
    let (verb, most) = (first.verb(), if *is_alone { 1 } else { GATHERED });
    let is_sent = |(_, decision, slot): &(_, &Decision, &Slot)| decision.verb() == verb && slot.is_alone == *is_alone;
    let of_verb: Vec<_> = ready.into_iter().filter(is_sent).take(most).collect();
    let visibility = of_verb.iter().map(|(_, _, slot)| slot.visibility).min().unwrap_or_default();
    let decisions = of_verb.into_iter().map(|(receipt, decision, _)| (receipt.clone(), decision.clone())).collect();
    Ok(Gathered { verb, decisions, visibility })
}

async fn ask(shared: &Shared, gathered: &Gathered) -> Result<Vec<Settled>, Unsettled> {
    let nacked = |(receipt, decision): &'_ (String, Decision)| match decision {
        Decision::Nack { delay, reason, bury } => serde_json::to_value(Nacked {
            receipt,
            delay_ms: delay.map(crate::wire::time::ms_up),
            reason: reason.as_ref(),
            bury: bury.then_some(true),
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
    let mut call = Call::post(format!("{}/{verb}", shared.path)).json(body).map_err(|_| Unsettled::Refused)?;
    call.timeout = Some((visibility / 3).max(Duration::from_secs(1)));
    call.retry_for = Some(Duration::ZERO);
    match shared.client.call::<Verdicts>(&call).await {
        Ok(verdicts) => Ok(verdicts.results),
        Err(error) => {
            warn!(verb, deliveries, %error, "settlement failed");
            Err(match &error {
                // A 404 without a type is not of a broker.
                Error::Refused(refused) if refused.status == 404 && !refused.kind.is_empty() => Unsettled::Gone,
                _ if super::patience(&error).is_some() => Unsettled::Failed,
                _ => Unsettled::Refused,
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

fn settled(shared: &Shared, state: &mut State, receipt: &str, verdict: Option<&Settled>) {
    let Some(slot) = state.slots.get_mut(receipt) else { return };
    let delivery = slot.delivery.clone();
    let status = verdict.map_or("failed", |verdict| &verdict.status);
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
            let reason = verdict.and_then(|verdict| verdict.reason.as_deref()).unwrap_or(status);
            warn!(id = delivery.id, reason, "settled too late");
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
            if let Err(Unsettled::Refused | Unsettled::Gone) = extend(shared, &receipts, visibility).await {
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

/// Moves deadlines in one request. An error is about the whole request, and then the caller decides what follows from a refusal: a
/// handler may have asked for a wrong time, and the worker asks for another one.
pub(super) async fn extend(shared: &Shared, receipts: &[String], visibility: Duration) -> Result<(), Unsettled> {
    let asked = Instant::now();
    let visibility_timeout_ms = Some(crate::wire::time::ms_up(visibility));
    let body = Receipts { receipts, visibility_timeout_ms };
    let verdicts = verdicts(shared, "extend", &body, receipts.len(), visibility).await;
    let others = match &verdicts {
        Err(Unsettled::Gone) if receipts.len() == 1 => "unknown",
        Err(Unsettled::Gone | Unsettled::Refused) => return verdicts.map(drop),
        Ok(_) | Err(Unsettled::Failed) => "unreachable",
    };
    let verdicts = verdicts.unwrap_or_default();
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
