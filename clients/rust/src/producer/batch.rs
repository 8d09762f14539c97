//! A batch on its way: repeated until each message has its answer. A message that is wrong refuses its whole batch, so the others are sent
//! again without it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Pending;
use crate::client::{Call, Client, Error, Refused, backoff, batch_body, is_passing};
use crate::wire::problem::{FieldError, Problem};
use crate::wire::push::{BatchResults, PushResult};

/// Sends a batch until each message has its answer.
pub(super) async fn send(client: &Client, path: &str, batch: Vec<Pending>) {
    let until = Instant::now() + client.transport.retry_for;
    let mut parts = if batch.is_empty() { Vec::new() } else { vec![batch] };
    let mut tries = 0;
    while let Some(part) = parts.pop() {
        let mut call = Call::post(path).bytes(batch_body(part.iter().map(|pending| pending.body.as_slice())));
        call.retry_for = Some(until.saturating_duration_since(Instant::now()));
        let again = match client.call::<BatchResults>(&call).await {
            Ok(answer) if answer.results.len() != part.len() => {
                let error = client.transport.unreadable("it has not one result for each message");
                part.into_iter().for_each(|pending| give(pending, Err(error.clone())));
                Vec::new()
            }
            Ok(answer) => {
                let left = answered(client, part, answer.results, until);
                if !left.is_empty() {
                    let wait = backoff(tries, Duration::from_millis(50), Duration::from_secs(2));
                    tokio::time::sleep(wait).await;
                    tries += 1;
                }
                vec![left]
            }
            Err(Error::Refused(refused)) if is_of_messages(&refused) => without_wrong(part, &refused),
            Err(error) => {
                part.into_iter().for_each(|pending| give(pending, Err(error.clone())));
                Vec::new()
            }
        };
        parts.extend(again.into_iter().filter(|part| !part.is_empty()));
    }
}

/// A caller that has gone needs no answer.
fn give(pending: Pending, result: Result<PushResult, Error>) {
    drop(pending.answer.send(result));
}

/// Gives each message its result. Returns those to send again, with the same ids.
fn answered(client: &Client, part: Vec<Pending>, results: Vec<PushResult>, until: Instant) -> Vec<Pending> {
    let is_over = Instant::now() >= until;
    let mut again = Vec::new();
    for (pending, result) in part.into_iter().zip(results) {
        match result {
            PushResult { error: Some(problem), .. } if is_passing(&problem) && !is_over => again.push(pending),
            PushResult { error: Some(problem), .. } => {
                let refused = Refused::of(*problem.clone());
                let error = match is_passing(&problem) {
                    true => client.transport.answered_unavailable(refused),
                    false => Error::Refused(Box::new(refused)),
                };
                give(pending, Err(error));
            }
            result => give(pending, Ok(result)),
        }
    }
    again
}

/// Whether a message of the batch may be the reason, and not the token or the topic.
fn is_of_messages(refused: &Refused) -> bool {
    matches!(refused.status, 400 | 413 | 422)
}

/// Gives the messages that the refusal names their errors, and returns the rest. If it names none, the halves are sent: only a message
/// that is refused alone is wrong.
fn without_wrong(part: Vec<Pending>, refused: &Refused) -> Vec<Vec<Pending>> {
    let mut errors: BTreeMap<usize, Vec<FieldError>> = BTreeMap::new();
    for error in refused.problem.iter().flat_map(|problem| &problem.errors) {
        if let Some((n, error)) = of_message(error) {
            errors.entry(n).or_default().push(error);
        }
    }
    errors.retain(|n, _| *n < part.len());
    if errors.is_empty() {
        return halves(part, refused);
    }
    let mut rest = Vec::new();
    for (n, pending) in part.into_iter().enumerate() {
        match errors.remove(&n) {
            None => rest.push(pending),
            Some(errors) => give(pending, Err(Error::Refused(Box::new(of_one(refused, errors))))),
        }
    }
    vec![rest]
}

fn halves(mut part: Vec<Pending>, refused: &Refused) -> Vec<Vec<Pending>> {
    if part.len() == 1 {
        part.into_iter().for_each(|pending| give(pending, Err(Error::Refused(Box::new(refused.clone())))));
        return Vec::new();
    }
    let second = part.split_off(part.len() / 2);
    vec![second, part]
}

/// The message that an error is about, and the error with the pointer into that message.
fn of_message(error: &FieldError) -> Option<(usize, FieldError)> {
    let rest = error.pointer.as_deref()?.strip_prefix("/messages/")?;
    let (number, pointer) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    Some((number.parse().ok()?, FieldError { pointer: Some(pointer.to_owned()), ..error.clone() }))
}

/// The refusal as it would be for one message alone.
fn of_one(refused: &Refused, errors: Vec<FieldError>) -> Refused {
    let said = |error: &FieldError| match error.place().trim_start_matches('/') {
        "" => error.detail.clone(),
        place => format!("`{place}`: {}", error.detail),
    };
    let detail = errors.iter().map(said).collect::<Vec<_>>().join("; ");
    let problem = refused
        .problem
        .as_ref()
        .map(|problem| Box::new(Problem { detail: detail.clone(), errors, more_errors: None, ..(**problem).clone() }));
    Refused { detail, problem, ..refused.clone() }
}
