//! The errors that clients give with a nack: each delivery has another one, and what is shown tells whose it is.

use serde_json::{Value, json};

/// Bytes of a stack that are kept.
const STACK: usize = 4 * 1024;

/// What brokers say of attempts that ended without a word of their consumers.
const OF_BROKERS: [&str; 3] = [
    "not settled within the visibility timeout",
    "the stream's client went away",
    "every attempt ended without an answer: its consumer or its owner died",
];

/// An error as a broker showed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shown {
    Nothing,
    /// Whole, that of this delivery.
    Of(usize),
    OfTheBroker,
    /// Nobody has given this one.
    Strange(String),
}

/// The reason of a nack. Some stacks are too long.
pub(crate) fn reason(delivery: usize) -> Value {
    json!({"class": "Failed", "message": format!("delivery {delivery}"), "stack": stack(delivery)})
}

fn stack(delivery: usize) -> String {
    format!("at {delivery}\n").repeat(delivery * 37 % 700)
}

/// The `last_error` of an answer.
pub(crate) fn shown(error: &Value) -> Shown {
    if error.is_null() {
        return Shown::Nothing;
    }
    let message = error["message"].as_str().unwrap_or_default();
    if OF_BROKERS.iter().any(|of_brokers| *error == json!({"message": of_brokers})) {
        return Shown::OfTheBroker;
    }
    let delivery = message.strip_prefix("delivery ").and_then(|number| number.parse().ok());
    let expected = delivery.map(|delivery| {
        let (mut error, stack) = (reason(delivery), stack(delivery));
        match stack.len().min(STACK) {
            0 => drop(error.as_object_mut().map(|parts| parts.remove("stack"))),
            end => error["stack"] = json!(stack[..end]),
        }
        error
    });
    match delivery {
        Some(delivery) if expected.as_ref() == Some(error) => Shown::Of(delivery),
        _ => Shown::Strange(error.to_string()),
    }
}
