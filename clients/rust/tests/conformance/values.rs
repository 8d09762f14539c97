//! What vectors say: values that are compared, durations, messages, errors.

use std::error::Error as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use dwell_client::wire::time::parse_span;
use dwell_client::{Conflict, Error, MessageId, NewMessage, Past, Refused, Timestamp};
use serde_json::{Value, json};

use crate::lab::{Outcome, lab, text};

/// What is expected and not there; `<x>` is any value.
pub(crate) fn differs(expected: &Value, actual: &Value) -> Option<String> {
    match (expected, actual) {
        (Value::Object(fields), _) => {
            fields.iter().find_map(|(name, value)| differs(value, &actual[name]).map(|why| format!("{name}: {why}")))
        }
        (Value::Array(items), Value::Array(others)) if items.len() == others.len() => {
            items.iter().zip(others).find_map(|(item, other)| differs(item, other))
        }
        (Value::String(text), _) if text.starts_with('<') => None,
        // An absent number or text is one that is not written.
        _ if actual.is_null() && (expected == &json!(0) || expected == &json!("") || expected == &json!(false)) => None,
        _ => (expected != actual).then(|| format!("{actual}, expected {expected}")),
    }
}

/// # Errors
///
/// The types of Rust have no negative duration, which is a wrong argument.
pub(crate) fn duration(text: &str) -> Outcome<Duration> {
    match text.starts_with('-') {
        true => Err(Error::Argument(format!("{text} is negative")).into()),
        false => Ok(parse_span(text)?),
    }
}

/// The duration of this name, if it is given.
pub(crate) fn span(args: &Value, name: &str) -> Outcome<Option<Duration>> {
    args[name].as_str().map(duration).transpose()
}

/// The time of this name, if it is given.
pub(crate) fn time(args: &Value, name: &str) -> Outcome<Option<Timestamp>> {
    Ok(args[name].as_str().map(str::parse).transpose()?)
}

/// A value with what is expected of payloads: `payload_text`, also where it is deep inside.
pub(crate) fn with_payloads(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(with_payloads).collect(),
        Value::Object(fields) => {
            let text = fields.get("payload").filter(|payload| payload.is_string()).cloned();
            let mut fields: serde_json::Map<_, _> =
                fields.into_iter().map(|(name, value)| (name, with_payloads(value))).collect();
            if let Some(text) = text {
                fields.insert("payload_text".to_owned(), text);
            }
            Value::Object(fields)
        }
        other => other,
    }
}

pub(crate) fn message(fields: &Value) -> Outcome<NewMessage> {
    let mut message = match fields {
        _ if fields.get("payload_base64").is_some() => NewMessage::bytes(base64(&text(fields, "payload_base64"))),
        _ if fields.get("payload_json").is_some() => NewMessage::json(&fields["payload_json"])?,
        _ => match &fields["payload"] {
            Value::String(text) => NewMessage::text(text.repeat(times(fields)?)),
            other => NewMessage::json(other)?,
        },
    };
    for (name, value) in fields.as_object().into_iter().flatten() {
        let text = value.as_str().unwrap_or_default();
        let number = u32::try_from(value.as_u64().unwrap_or_default())?;
        message = match name.as_str() {
            "id" => message.id(text),
            "key" => message.key(text),
            "delay" => message.delay(duration(text)?),
            "due_at" => message.due_at(text.parse::<Timestamp>()?),
            "past" => message.past(if text == "now" { Past::Now } else { Past::Reject }),
            "spread" => message.spread(duration(text)?),
            "ttl" => message.ttl(duration(text)?),
            "priority" => message.priority(u8::try_from(number)?),
            "max_attempts" => message.max_attempts(number),
            "dedup_key" => {
                let dedup_for = fields["dedup_for"].as_str().map(duration).transpose()?;
                message.dedup(text, dedup_for.unwrap_or_default())
            }
            "conflict" => message.conflict(match text {
                "keep" => Conflict::Keep,
                "reject" => Conflict::Reject,
                "replace" => Conflict::Replace,
                "debounce" => Conflict::Debounce,
                _ => Conflict::After,
            }),
            "debounce_max" => message.debounce_max(duration(text)?),
            "content_type" => message.content_type(text),
            "meta" => value
                .as_object()
                .into_iter()
                .flatten()
                .fold(message, |message, (name, value)| message.meta(name, value.as_str().unwrap_or_default())),
            _ => message,
        };
    }
    Ok(message)
}

/// How often a text is repeated.
pub(crate) fn times(fields: &Value) -> Outcome<usize> {
    Ok(usize::try_from(fields["times"].as_u64().unwrap_or(1))?)
}

/// The few bytes that vectors have.
pub(crate) fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let sextets: Vec<u32> = text
        .bytes()
        .filter_map(|c| ALPHABET.iter().position(|a| *a == c).and_then(|n| u32::try_from(n).ok()))
        .collect();
    let group = |sextets: &[u32]| {
        let bits = sextets.iter().enumerate().fold(0, |bits, (n, sextet)| bits | sextet << (18 - 6 * n));
        bits.to_be_bytes()[1..sextets.len()].to_vec()
    };
    sextets.chunks(4).flat_map(group).collect()
}

pub(crate) fn named(args: &Value) -> MessageId {
    MessageId { id: text(args, "id"), key: args["key"].as_str().map(str::to_owned) }
}

/// An error as vectors describe it.
pub(crate) fn described(error: &Error) -> Value {
    let refused = |kind: &str, refused: &Refused| {
        json!({"kind": kind, "status": refused.status, "type": refused.kind, "detail": refused.detail,
            "request_id": refused.request_id, "repeated": refused.repeated, "groups": refused.groups(),
            "missing": refused.problem.as_ref().and_then(|problem| problem.missing.as_ref())})
    };
    let mut described = match error {
        Error::Refused(it) => refused("refused", it),
        Error::NotAccepted(it) => {
            let mut described = refused("push_many", &it.first);
            described["results"] = json!(it.results);
            described
        }
        Error::Unavailable(it) => match &it.answer {
            Some(answer) => refused("unavailable", answer),
            None => json!({"kind": "unavailable"}),
        },
        Error::Argument(_) => json!({"kind": "argument"}),
        Error::Closed => json!({"kind": "closed"}),
        _ => json!({"kind": "other"}),
    };
    described["text"] = error.to_string().into();
    described["has_cause"] = error.source().is_some().into();
    described
}

#[derive(Default)]
pub(crate) struct Wrong(pub(crate) Mutex<Vec<String>>);

impl Wrong {
    pub(crate) fn add(&self, why: impl Into<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(why.into());
    }

    pub(crate) fn unless_same(&self, what: &str, expected: &Value, actual: &Value) {
        if let Some(why) = differs(expected, actual).filter(|_| !expected.is_null()) {
            self.add(format!("{what}: {why}"));
        }
    }
}

impl Wrong {
    /// Compares an error. In `text_has`, `<server>` is the address of the server.
    pub(crate) fn unless_raised(&self, expected: &Value, error: &Error, server: &str) {
        let (mut expected, described) = (expected.clone(), described(error));
        let texts = expected.as_object_mut().and_then(|fields| fields.remove("text_has")).unwrap_or_default();
        for text in texts.as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !error.to_string().contains(&text.replace("<server>", server)) {
                self.add(format!("{text:?} is not in {error}"));
            }
        }
        self.unless_same("raises", &expected, &described);
    }
}

pub(crate) async fn wait(when: &Value, wrong: &Wrong) -> Outcome {
    if lab("/wait", json!({"when": when})).await?["is_met"] != true {
        wrong.add(format!("there was never {when}"));
    }
    Ok(())
}
