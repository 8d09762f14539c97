//! Errors, as in RFC 9457.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Word;
use super::messages::GroupFate;
#[cfg(feature = "schema")]
use super::schema;

/// A problem as in RFC 9457: what went wrong, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(
    examples(json!({
        "type": "urn:dwell:error:invalid", "title": "Invalid request", "status": 422,
        "detail": "`delay`: \"-5s\" is negative", "request_id": "01JGZK3W8M5T0000000000000A",
        "errors": [{"pointer": "/delay", "code": "format", "detail": "\"-5s\" is negative"}]
    }))
))]
pub struct Problem {
    /// Type of the error. Programs switch on it.
    #[cfg_attr(feature = "schema", schema(value_type = schema::ProblemType))]
    #[serde(rename = "type")]
    pub kind: String,
    /// Short name of the type, for people.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub title: Word,
    /// HTTP status.
    #[cfg_attr(feature = "schema", schema(minimum = 400, maximum = 599))]
    pub status: u16,
    /// The error, its place, and what to do; for people. It may change.
    pub detail: String,
    /// Name of the request, as in the header `Dwell-Request-Id` and in the broker's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The topic, group or cron job that does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<Missing>,
    /// Everything that is wrong with the request, as far as that can be said field by field; at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(required = false, max_items = 100))]
    pub errors: Vec<FieldError>,
    /// How many errors are not listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1))]
    pub more_errors: Option<usize>,
    /// Message id to repeat a push with, when its outcome is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::MessageId>))]
    pub id: Option<String>,
    /// Results of a batch in which no message succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(schema_with = push_results, required = false))]
    pub results: Option<Value>,
    /// State of a message in each group, when a cancel or reschedule changed nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<GroupFate>>,
    // The rest is only in answers to requests that settle, which have their own schema.
    /// Why the decision about the only delivery of a request does not count; its verdict is in `results`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(ignore))]
    pub reason: Option<Word>,
    /// 1, with a `reason`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(ignore))]
    pub failed: Option<usize>,
}

#[cfg(feature = "schema")]
fn push_results() -> utoipa::openapi::schema::ArrayBuilder {
    use utoipa::openapi::Ref;
    use utoipa::openapi::schema::{ArrayBuilder, SchemaType, Type};

    let types = SchemaType::from_iter([Type::Array, Type::Null]);
    let results = ArrayBuilder::new().schema_type(types).items(Ref::from_schema_name("PushResult"));
    results.description(Some("Results of a batch in which no message succeeded."))
}

impl Problem {
    /// The last part of its type, such as `not-found`.
    pub fn name(&self) -> &str {
        self.kind.rsplit(':').next().unwrap_or(&self.kind)
    }

    /// The results of the parts of the request, if it has any.
    pub fn results<R: DeserializeOwned>(&self) -> Option<Vec<R>> {
        let results = self.results.clone().and_then(|results| serde_json::from_value(results).ok());
        results.filter(|results: &Vec<R>| !results.is_empty())
    }

    /// Whether the same request may succeed later.
    pub fn is_passing(&self) -> bool {
        matches!(self.name(), "full" | "unavailable" | "outcome-unknown" | "timeout")
    }
}

/// One thing that is wrong. Exactly one of `pointer`, `parameter` and `header` is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(examples(json!({"pointer": "/delay", "code": "format", "detail": "\"soon\" is not a duration"}))))]
pub struct FieldError {
    /// JSON pointer (RFC 6901) to the field in the body, or to where a missing one belongs; empty for the whole body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(example = "/messages/17/delay"))]
    pub pointer: Option<String>,
    /// Name of the parameter in the path or query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameter: Option<String>,
    /// Name of the header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// Line of an NDJSON body, from 1 on; then `pointer` is into that line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1))]
    pub line: Option<usize>,
    /// Kind of mistake; stable.
    #[cfg_attr(feature = "schema", schema(value_type = schema::FaultCode))]
    pub code: Word,
    /// The error, for people. It may change.
    pub detail: String,
}

impl FieldError {
    /// The field, parameter or header, as it is given.
    pub fn place(&self) -> &str {
        [&self.pointer, &self.parameter, &self.header].into_iter().flatten().next().map_or("", String::as_str)
    }
}

/// Names of what does not exist: a topic, or a group or cron job of one that does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = MissingNames))]
pub struct Missing {
    #[cfg_attr(feature = "schema", schema(value_type = schema::TopicName))]
    pub topic: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::GroupName>))]
    pub group: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<schema::CronName>))]
    pub cron: Option<String>,
}

impl Missing {
    pub fn topic(topic: &impl fmt::Display) -> Missing {
        Missing { topic: topic.to_string(), group: None, cron: None }
    }

    pub fn group(topic: &impl fmt::Display, group: &impl fmt::Display) -> Missing {
        Missing { group: Some(group.to_string()), ..Missing::topic(topic) }
    }

    pub fn cron(topic: &impl fmt::Display, name: &impl fmt::Display) -> Missing {
        Missing { cron: Some(name.to_string()), ..Missing::topic(topic) }
    }

    /// Whether it is the topic itself.
    pub fn is_topic(&self) -> bool {
        self.group.is_none() && self.cron.is_none()
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let topic = &self.topic;
        match (&self.group, &self.cron) {
            (Some(group), _) => write!(f, "topic {topic} has no group {group}"),
            (None, Some(name)) => write!(f, "topic {topic} has no cron job {name}"),
            (None, None) => write!(f, "topic {topic} does not exist"),
        }
    }
}
