//! What a client does about each type of problem, for the page of errors.

use super::problem::Class;
use crate::model::error::Kind;

/// A type of problem, as documentation shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProblemType {
    /// The stable name: `type` without `urn:dwell:error:`.
    pub name: &'static str,
    /// The HTTP statuses it is answered with.
    pub statuses: String,
    /// Whether the request may have been applied.
    pub perhaps_applied: bool,
    /// What it means, and what a client does.
    pub remedy: &'static str,
}

/// Every type of problem, by status.
pub fn problem_types() -> Vec<ProblemType> {
    let mut classes: Vec<Class> = Class::all().collect();
    classes.sort_by_key(|class| class.status());
    let statuses = |class: Class| match class {
        // Too many consumers wait.
        Class::Verb(Kind::Full) => format!("{}, 429", class.status().as_u16()),
        class => class.status().as_u16().to_string(),
    };
    let described = |class: Class| ProblemType {
        name: class.name(),
        statuses: statuses(class),
        perhaps_applied: matches!(class, Class::Verb(Kind::OutcomeUnknown | Kind::Bug)),
        remedy: remedy(class),
    };
    classes.into_iter().map(described).collect()
}

fn remedy(class: Class) -> &'static str {
    match class {
        Class::Verb(Kind::Invalid) => "A field or parameter is unknown, repeated, missing or out of range. Correct it.",
        Class::Verb(Kind::Forbidden) => {
            "`Host`, `Origin` or `Sec-Fetch-Site` names another site. Call dwell from its own origin."
        }
        Class::Verb(Kind::NotFound) => {
            "The topic, group, message, cron job or path does not exist. `missing` names the topic or group, `detail` the request \
             that creates it."
        }
        Class::Verb(Kind::Stale) => "The topic changed meanwhile. Read it again.",
        Class::Verb(Kind::Conflict) => {
            "The request contradicts what exists: another number of partitions, an id that exists, a message that is in flight \
             or dead."
        }
        Class::Verb(Kind::Ambiguous) => {
            "Several messages have this id with different keys; `detail` lists them. Give the `key`."
        }
        Class::Verb(Kind::TooLarge) => "A limit of size was exceeded. Send less.",
        Class::Verb(Kind::Full) => {
            "A limit of capacity is reached; 429 when too many consumers wait. Try again after `Retry-After` seconds."
        }
        Class::Verb(Kind::Unavailable) => {
            "The store cannot be reached, and the local disk does not accept the push. Try again after `Retry-After` seconds."
        }
        Class::Verb(Kind::OutcomeUnknown) => {
            "The store was asked and did not answer. Repeat the request with the same message id or receipt."
        }
        Class::Verb(Kind::Corrupt) => "Stored bytes are not what dwell wrote. Ask an operator to look.",
        Class::Verb(Kind::Bug) => "A defect in dwell. Please report it.",
        Class::Malformed => "The request cannot be read: broken JSON, UTF-8 or percent-encoding. Correct it.",
        Class::Unauthorized => "The request carries no token that the broker knows. Send `Authorization: Bearer …`.",
        Class::ScopeMissing => "The token lacks the scope that `detail` names.",
        Class::MethodNotAllowed => "The path has other methods; `detail` and the header `Allow` name them.",
        Class::Timeout => "The body did not arrive in time. Send it again.",
        Class::PreconditionFailed => "The message or topic is not the version in `If-Match`. Get it again.",
        Class::UnsupportedMediaType => "The request needs another content type, or the body has a `Content-Encoding`.",
        Class::NotSettled => "The delivery is over; `reason` says why. Do not repeat the request.",
        Class::UnknownReceipt => "The receipt belongs to another topic or group, or to no delivery.",
        Class::MalformedReceipt => "The text is not a receipt.",
    }
}
