//! Strict parsing of paths and queries.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use utoipa::IntoParams;

use super::field_errors::{FieldError, FieldErrors};
use super::problem::{Class, Problem};
use super::schema;
use crate::model::error::{Error, Fault, Kind, Result};
use crate::model::message::{CronJobName, GroupName, Key, MessageId, TopicName};
use crate::model::spelling::nearest;
use crate::model::time::{Timestamp, parse_millis, parse_span, parse_timestamp};

#[derive(Debug, Default)]
pub(crate) struct Params(Vec<(String, String)>);

impl Params {
    /// # Errors: 422 for a name that is not accepted or is repeated, 400 for bad encoding.
    pub(crate) fn read(query: Option<&str>, accepted: &[&str]) -> Result<Params, Problem> {
        let (mut params, mut faults) = (Params::default(), FieldErrors::default());
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode(name).map_err(|why| Problem::malformed(format!("the query {why}")))?;
            if !accepted.contains(&name.as_str()) {
                faults.push(FieldError::of_parameter(&name, Fault::Unknown, unknown(&name, accepted)));
                continue;
            }
            let value = decode(value).map_err(|why| Problem::malformed(format!("`{name}` {why}")))?;
            match params.get(&name).is_some() {
                true => faults.push(FieldError::of_parameter(&name, Fault::Repeated, "is given twice")),
                false => params.0.push((name, value)),
            }
        }
        if faults.is_empty() { Ok(params) } else { Err(Problem::of_faults(faults)) }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn read_as<'a, T>(
        &'a self,
        name: &str,
        read: impl Fn(&'a str) -> Result<T>,
    ) -> Result<Option<T>, Problem> {
        self.get(name).map(read).transpose().map_err(Problem::of_query)
    }

    pub(crate) fn span(&self, name: &str) -> Result<Option<Duration>, Problem> {
        self.get(name).map(parse_span).transpose().map_err(|why| Problem::of_parameter(name, Fault::Format, why))
    }

    pub(crate) fn millis(&self, name: &str) -> Result<Option<Duration>, Problem> {
        self.get(name).map(parse_millis).transpose().map_err(|why| Problem::of_parameter(name, Fault::Format, why))
    }

    pub(crate) fn switch(&self, name: &str) -> Result<Option<bool>, Problem> {
        let wrong = |_| Problem::of_parameter(name, Fault::Choice, "is neither true nor false");
        let read = |text: &str| text.parse().map_err(wrong);
        self.get(name).map(read).transpose()
    }

    pub(crate) fn time(&self, name: &str) -> Result<Option<Timestamp>, Problem> {
        let Some(text) = self.get(name) else { return Ok(None) };
        // A `+` of a time zone that was not encoded arrives as a blank.
        let hint = if text.contains(' ') { "; write a + in a query as %2B" } else { "" };
        parse_timestamp(text)
            .map(Some)
            .map_err(|why| Problem::of_parameter(name, Fault::Format, format!("{why}{hint}")))
    }

    pub(crate) fn number<T>(&self, name: &str, range: RangeInclusive<T>) -> Result<Option<T>, Problem>
    where
        T: FromStr + PartialOrd + Display,
    {
        let Some(text) = self.get(name) else { return Ok(None) };
        match text.parse() {
            Ok(number) if range.contains(&number) => Ok(Some(number)),
            _ => Err(Problem::of_parameter(
                name,
                Fault::Range,
                format!("{text:?} is not a whole number in {} to {}", range.start(), range.end()),
            )),
        }
    }
}

/// Refuses a path that is badly encoded: its names are unknown.
pub(crate) fn check_path(path: &str) -> Result<(), Problem> {
    match path.contains('%') {
        true => decode(path).map(drop).map_err(|why| Problem::malformed(format!("the path {why}"))),
        false => Ok(()),
    }
}

fn unknown(name: &str, accepted: &[&str]) -> String {
    if let Some(meant) = nearest(name, accepted.iter().copied()) {
        return format!("is not a parameter; did you mean `{meant}`?");
    }
    if accepted.is_empty() {
        return "is not a parameter; there are none here".to_owned();
    }
    format!("is not a parameter; there are {}", accepted.join(", "))
}

pub(super) fn decode(text: &str) -> Result<String, &'static str> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => match (rest.next().and_then(hex), rest.next().and_then(hex)) {
                (Some(high), Some(low)) => high << 4 | low,
                _ => return Err("has a '%' without two hexadecimal digits behind it"),
            },
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8")
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

pub(crate) struct NoParams;

impl<S: Sync> FromRequestParts<S> for NoParams {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<NoParams, Problem> {
        Params::read(parts.uri.query(), &[]).map(|_| NoParams)
    }
}

#[derive(IntoParams)]
#[into_params(names("topic"), parameter_in = Path)]
pub(crate) struct TopicPath(
    /// Name of the topic.
    #[param(value_type = schema::TopicName)]
    pub(crate) TopicName,
);

#[derive(IntoParams)]
#[into_params(names("topic", "group"), parameter_in = Path)]
pub(crate) struct GroupPath(
    /// Name of the topic.
    #[param(value_type = schema::TopicName)]
    pub(crate) TopicName,
    /// Name of the group.
    #[param(value_type = schema::GroupName)]
    pub(crate) GroupName,
);

#[derive(IntoParams)]
#[into_params(names("topic", "group", "key"), parameter_in = Path)]
pub(crate) struct KeyPath(
    /// Name of the topic.
    #[param(value_type = schema::TopicName)]
    pub(crate) TopicName,
    /// Name of the group.
    #[param(value_type = schema::GroupName)]
    pub(crate) GroupName,
    /// The key.
    #[param(value_type = schema::Key)]
    pub(crate) Key,
);

#[derive(IntoParams)]
#[into_params(names("topic", "name"), parameter_in = Path)]
pub(crate) struct CronPath(
    /// Name of the topic.
    #[param(value_type = schema::TopicName)]
    pub(crate) TopicName,
    /// Name of the cron job.
    #[param(value_type = schema::CronName)]
    pub(crate) CronJobName,
);

#[derive(IntoParams)]
#[into_params(names("topic", "id"), parameter_in = Path)]
pub(crate) struct MessagePath(
    /// Name of the topic.
    #[param(value_type = schema::TopicName)]
    pub(crate) TopicName,
    /// Id of the message.
    #[param(value_type = schema::MessageId)]
    pub(crate) MessageId,
);

macro_rules! from_path {
    ($path:ident: $($name:literal $read:path),+) => {
        impl<S: Send + Sync> FromRequestParts<S> for $path {
            type Rejection = Problem;

            async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<$path, Problem> {
                let path = RawPathParams::from_request_parts(parts, state).await;
                let path = path.map_err(|why| Problem::malformed(why.body_text()))?;
                Ok($path($($read(segment(&path, $name)?).map_err(Problem::of_query)?),+))
            }
        }
    };
}

from_path!(TopicPath: "topic" TopicName::new);
from_path!(GroupPath: "topic" TopicName::new, "group" GroupName::new);
from_path!(KeyPath: "topic" TopicName::new, "group" GroupName::new, "key" key_in_a_path);
from_path!(CronPath: "topic" TopicName::new, "name" CronJobName::new);
from_path!(MessagePath: "topic" TopicName::new, "id" MessageId::new);

/// A proxy may take `.` and `..` for steps of the path, and so for another request. Names and ids are neither.
fn key_in_a_path(text: &str) -> Result<Key> {
    match text {
        "." | ".." => Err(Error::wrong(
            Fault::Format,
            "key",
            format!("is {text:?}, which stands for a step of a path: pause the group"),
        )),
        _ => Key::new(text),
    }
}

fn segment<'a>(path: &'a RawPathParams, name: &str) -> Result<&'a str, Problem> {
    match path.iter().find(|(given, _)| *given == name) {
        Some((_, value)) => Ok(value),
        // The path of a batch is also the path of the message with the id `batch`.
        None if name == "id" => Ok("batch"),
        None => Err(Problem::new(Class::Verb(Kind::Bug), format!("the route has no `{name}`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(query: &str) -> Option<(u16, String)> {
        let problem = Params::read(Some(query), &["key", "delay"]).err()?;
        Some((problem.status().as_u16(), problem.detail().to_owned()))
    }

    #[test]
    fn unknown_query_parameters_are_refused() -> Result<(), Problem> {
        let params = Params::read(Some("key=caf%C3%A9+%2B1&&delay="), &["key", "delay"])?;
        assert_eq!(params.get("key"), Some("café +1"));
        assert_eq!(params.get("delay"), Some(""));
        assert!(Params::read(None, &[])?.0.is_empty());

        let cases = [
            ("dealy=5s", 422, "`dealy`: is not a parameter; did you mean `delay`?"),
            ("key=a&key=a", 422, "`key`: is given twice"),
            ("key=%FF", 400, "`key` is not UTF-8"),
            ("key=%F", 400, "`key` has a '%' without two hexadecimal digits behind it"),
            ("key=%+1", 400, "`key` has a '%' without two hexadecimal digits behind it"),
            ("%FF=1", 400, "the query is not UTF-8"),
        ];
        for (query, status, detail) in cases {
            assert_eq!(refused(query), Some((status, detail.to_owned())), "{query}");
        }
        Ok(())
    }

    #[test]
    fn parameter_ranges_are_enforced() -> Result<(), Problem> {
        let params = Params::read(Some("delay=1h30m&limit=1000&at=-1"), &["delay", "limit", "at"])?;
        assert_eq!(params.span("delay")?, Some(Duration::from_secs(5_400)));
        assert_eq!(params.span("absent")?, None);
        assert_eq!(params.number("limit", 1..=1_000)?, Some(1_000));
        assert!(params.number("limit", 1..=999).is_err());
        assert!(params.number("delay", 1..=999).is_err());
        assert!(params.time("at").is_err());
        Ok(())
    }
}
