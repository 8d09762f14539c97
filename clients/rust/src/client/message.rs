//! A message to push, the name of one, and what is in one that was read.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::error::Error;
use crate::wire::ids::Ids;
use crate::wire::messages::{Contents, Meta, NewDue};
use crate::wire::push::BatchMessage;
use crate::wire::time::Timestamp;

/// Of all clients of the process, so that the messages of all of them stay together.
static IDS: Ids = Ids::new();

/// A message to push.
///
/// ```
/// use dwell_client::NewMessage;
/// use std::time::Duration;
///
/// let message = NewMessage::json(&4713)?.id("close-4713").key("order-4713").delay(Duration::from_secs(1800));
/// # Ok::<(), dwell_client::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct NewMessage {
    pub(crate) fields: BatchMessage,
}

/// The policy of a push if its topic has a message with its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Conflict {
    /// The push is a duplicate and changes nothing.
    Keep,
    /// The push is refused.
    Reject,
    /// The new message takes the place of one that waits.
    Replace,
    /// A message that waits gets the due time of this push.
    Debounce,
    /// The new message follows one that is in flight, instead of one that does already.
    After,
}

/// The policy of a push or reschedule if its due time is in the past.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Past {
    /// The message is due at once.
    Now,
    /// The request is refused.
    Reject,
}

impl Past {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Past::Now => "now",
            Past::Reject => "reject",
        }
    }
}

impl NewMessage {
    /// A message with a text.
    pub fn text(text: impl Into<String>) -> NewMessage {
        NewMessage { fields: BatchMessage { payload: Some(text.into()), ..BatchMessage::default() } }
    }

    /// A message with bytes.
    pub fn bytes(bytes: impl AsRef<[u8]>) -> NewMessage {
        NewMessage { fields: BatchMessage { payload_base64: Some(STANDARD.encode(bytes)), ..BatchMessage::default() } }
    }

    /// A message with a value as JSON.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`]: the value has no form in JSON.
    pub fn json(value: &(impl Serialize + ?Sized)) -> Result<NewMessage, Error> {
        let raw =
            serde_json::value::to_raw_value(value).map_err(|error| Error::argument(format!("payload: {error}")))?;
        Ok(NewMessage::raw_json(raw))
    }

    /// A message with JSON that is written already.
    pub fn raw_json(json: Box<RawValue>) -> NewMessage {
        NewMessage { fields: BatchMessage { payload_json: Some(json), ..BatchMessage::default() } }
    }

    /// Makes the push repeatable by the application. Default: a new ULID, with which the client repeats it.
    pub fn id(mut self, id: impl Into<String>) -> NewMessage {
        self.fields.id = Some(id.into());
        self
    }

    /// Decides the partition; without a key the id does.
    pub fn key(mut self, key: impl Into<String>) -> NewMessage {
        self.fields.key = Some(key.into());
        self
    }

    /// How long from now it is due. Not together with [`NewMessage::due_at`].
    pub fn delay(mut self, delay: Duration) -> NewMessage {
        self.fields.delay_ms = Some(delay);
        self
    }

    /// When it is due.
    pub fn due_at(mut self, due_at: impl Into<Timestamp>) -> NewMessage {
        self.fields.due_at = Some(due_at.into());
        self
    }

    /// If the due time is in the past. Default: [`Past::Now`].
    pub fn past(mut self, past: Past) -> NewMessage {
        self.fields.past = Some(past.as_str().to_owned());
        self
    }

    /// The due time moves by up to this, by a value that the id decides: a repeated push is due at the same time.
    pub fn spread(mut self, spread: Duration) -> NewMessage {
        self.fields.spread_ms = Some(spread);
        self
    }

    /// How long after its due time it is worth delivering.
    pub fn ttl(mut self, ttl: Duration) -> NewMessage {
        self.fields.ttl_ms = Some(ttl);
        self
    }

    /// 0 to 9: among the ready messages of a partition higher ones are delivered first.
    pub fn priority(mut self, priority: u8) -> NewMessage {
        self.fields.priority = Some(priority);
        self
    }

    /// Attempts before it is dead; 0 is without a limit. Default: the topic's.
    pub fn max_attempts(mut self, attempts: u32) -> NewMessage {
        self.fields.max_attempts = Some(attempts);
        self
    }

    /// For so long, another push of this dedup key to the partition is a duplicate.
    pub fn dedup(mut self, key: impl Into<String>, dedup_for: Duration) -> NewMessage {
        self.fields.dedup_key = Some(key.into());
        self.fields.dedup_for_ms = Some(dedup_for);
        self
    }

    /// If the topic has a message with its id. Default: [`Conflict::Keep`].
    pub fn conflict(mut self, conflict: Conflict) -> NewMessage {
        let name = match conflict {
            Conflict::Keep => "keep",
            Conflict::Reject => "reject",
            Conflict::Replace => "replace",
            Conflict::Debounce => "debounce",
            Conflict::After => "after",
        };
        self.fields.conflict = Some(name.to_owned());
        self
    }

    /// With [`Conflict::Debounce`]: how long after its first push the message may be due at the latest.
    pub fn debounce_max(mut self, max: Duration) -> NewMessage {
        self.fields.debounce_max_ms = Some(max);
        self
    }

    /// The media type of the payload.
    pub fn content_type(mut self, content_type: impl Into<String>) -> NewMessage {
        self.fields.content_type = Some(content_type.into());
        self
    }

    /// A name and a value that travel with the payload.
    pub fn meta(mut self, name: impl Into<String>, value: impl Into<String>) -> NewMessage {
        self.fields.meta.get_or_insert_default().0.push((name.into(), value.into()));
        self
    }

    /// Where the push stands in a trace, as in W3C Trace Context. Default: what the client's
    /// [`trace`](crate::ClientBuilder::trace) says.
    pub fn traceparent(mut self, traceparent: impl Into<String>) -> NewMessage {
        self.fields.traceparent = Some(traceparent.into());
        self
    }

    /// The part of the trace that tracing systems add to `traceparent`.
    pub fn tracestate(mut self, tracestate: impl Into<String>) -> NewMessage {
        self.fields.tracestate = Some(tracestate.into());
        self
    }

    /// The message with an id, as JSON.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`]: what no broker accepts.
    pub(crate) fn encode(mut self) -> Result<Vec<u8>, Error> {
        let fields = &mut self.fields;
        if fields.delay_ms.is_some() && fields.due_at.is_some() {
            return Err(Error::argument("a message has a delay or a due time, not both"));
        }
        for (name, value) in [("id", &fields.id), ("key", &fields.key), ("dedup_key", &fields.dedup_key)] {
            if let Some(value) = value {
                not_empty(name, value)?;
            }
        }
        fields.meta.as_ref().map_or(Ok(()), Meta::check).map_err(|why| Error::argument(format!("meta: {why}")))?;
        fields.id.get_or_insert_with(|| IDS.one().to_string());
        serde_json::to_vec(fields).map_err(|error| Error::argument(error.to_string()))
    }
}

/// A message as the API writes it, such as a line of a file.
impl From<BatchMessage> for NewMessage {
    fn from(fields: BatchMessage) -> NewMessage {
        NewMessage { fields }
    }
}

/// # Errors
///
/// [`Error::Argument`]: it is empty.
pub(crate) fn not_empty(name: &str, value: &str) -> Result<(), Error> {
    if value.is_empty() { Err(Error::argument(format!("{name} is empty"))) } else { Ok(()) }
}

/// The name of a message: its id, and the key that it was pushed with, if any. With the key the broker asks one partition, and else all.
///
/// An id alone is `"close-4713"`, with a key it is `("close-4713", "order-4713")`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MessageId {
    /// The id.
    pub id: String,
    /// The key.
    pub key: Option<String>,
}

impl MessageId {
    pub(crate) fn check(&self) -> Result<(), Error> {
        not_empty("id", &self.id)?;
        self.key.as_ref().map_or(Ok(()), |key| not_empty("key", key))
    }
}

impl From<&str> for MessageId {
    fn from(id: &str) -> MessageId {
        MessageId { id: id.to_owned(), key: None }
    }
}

impl From<&String> for MessageId {
    fn from(id: &String) -> MessageId {
        MessageId { id: id.clone(), key: None }
    }
}

impl From<String> for MessageId {
    fn from(id: String) -> MessageId {
        MessageId { id, key: None }
    }
}

impl<I: Into<String>, K: Into<String>> From<(I, K)> for MessageId {
    fn from((id, key): (I, K)) -> MessageId {
        MessageId { id: id.into(), key: Some(key.into()) }
    }
}

/// A new due time of a message that waits.
#[derive(Debug, Clone)]
pub struct Reschedule {
    pub(crate) due: NewDue,
    pub(crate) etag: Option<String>,
}

impl Reschedule {
    /// So long from now; zero delivers it at once.
    pub fn after(delay: Duration) -> Reschedule {
        Reschedule { due: NewDue { delay_ms: Some(delay), ..NewDue::default() }, etag: None }
    }

    /// At this time.
    pub fn at(due_at: impl Into<Timestamp>) -> Reschedule {
        Reschedule { due: NewDue { due_at: Some(due_at.into()), ..NewDue::default() }, etag: None }
    }

    /// If the due time is in the past. Default: [`Past::Reject`].
    pub fn past(mut self, past: Past) -> Reschedule {
        self.due.past = Some(past.as_str().into());
        self
    }

    /// Only while the message has this `etag`, from [`Client::get`](crate::Client::get).
    pub fn etag(mut self, etag: impl Into<String>) -> Reschedule {
        self.etag = Some(etag.into());
        self
    }
}

/// The payload of an answer.
pub(crate) fn payload(text: Option<&String>, base64: Option<&String>) -> Vec<u8> {
    match (text, base64) {
        (Some(text), _) => text.as_bytes().to_vec(),
        (None, Some(base64)) => STANDARD.decode(base64).unwrap_or_default(),
        (None, None) => Vec::new(),
    }
}

impl Contents {
    /// The bytes of the payload.
    pub fn bytes(&self) -> Vec<u8> {
        payload(self.payload.as_ref(), self.payload_base64.as_ref())
    }

    /// The payload as JSON.
    ///
    /// # Errors
    ///
    /// It is no JSON, or not of this type.
    pub fn json<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_slice(&self.bytes())
    }
}

impl Meta {
    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_an_id_before_it_is_sent() {
        let body = NewMessage::text("x").encode().unwrap_or_default();
        let id = serde_json::from_slice::<BatchMessage>(&body).ok().and_then(|message| message.id).unwrap_or_default();
        assert!(id.parse::<ulid::Ulid>().is_ok(), "{id}");
    }

    #[test]
    fn arguments_that_no_broker_accepts_are_refused() {
        let both = NewMessage::text("x").delay(Duration::ZERO).due_at(Timestamp::from_ms(1));
        for wrong in [
            both,
            NewMessage::text("x").id(""),
            NewMessage::text("x").key(""),
            NewMessage::text("x").meta("a", "1").meta("a", "2"),
        ] {
            assert!(matches!(wrong.encode(), Err(Error::Argument(_))));
        }
    }
}
