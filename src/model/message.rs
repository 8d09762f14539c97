//! Messages: their ids, names and keys, their due times, and everything that travels with them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::model::error::{Error, Fault, Result};
use crate::model::last_error::LastError;
use crate::model::limits::{
    ATTEMPTS_MAX, CONTENT_TYPE_BYTES_MAX, DELAY_MAX, ID_BYTES_MAX, KEY_BYTES_MAX, META_BYTES_MAX, META_COUNT_MAX,
    NAME_BYTES_MAX, PAYLOAD_BYTES_MAX, PRIORITY_MAX,
};
use crate::model::time::Timestamp;
use crate::model::trace::TraceContext;
use crate::model::version::Version;

/// A ready message that has been due for so long is late, and needs attention.
pub const LATE: Duration = Duration::from_secs(5);

macro_rules! text_type {
    ($(#[$doc:meta])* $name:ident, $field:literal, $check:path) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Errors: `Invalid`, naming what is wrong.
            pub fn new(text: impl AsRef<str>) -> Result<Self> {
                let text = text.as_ref();
                $check(text).map_err(|why| Error::wrong(Fault::Format, $field, why))?;
                Ok(Self(text.into()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;
            fn try_from(text: String) -> Result<Self> {
                Self::new(text)
            }
        }

        impl std::str::FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<Self> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(text: $name) -> String {
                text.as_str().to_owned()
            }
        }
    };
}

mod conflict;
mod debounce;
mod options;
mod spread;

pub use self::conflict::Conflict;
pub use self::options::{Dedup, DedupKey, Due, GATEWAY_DEDUP_PREFIX, Past};
pub use self::spread::spread_of;

text_type! {
    /// The name of a topic: 1 to 100 of `A-Z a-z 0-9 . _ -`.
    TopicName, "topic", check_name
}

text_type! {
    /// The name of a consumer group: 1 to 100 of `A-Z a-z 0-9 . _ -`.
    GroupName, "group", check_name
}

text_type! {
    /// The name of a cron job: 1 to 100 of `A-Z a-z 0-9 . _ -`.
    CronJobName, "cron job", check_name
}

text_type! {
    /// A message id, unique in its partition: 1 to 128 visible ASCII characters without spaces.
    MessageId, "id", check_id
}

text_type! {
    /// A message key: 1 to 256 bytes of UTF-8 without control characters. Equal keys share a partition.
    Key, "key", check_key
}

impl TopicName {
    /// Stands where heartbeats have the name of a topic, in those of processes. A topic cannot have this name.
    pub fn of_processes() -> TopicName {
        TopicName("~brokers".into())
    }
}

impl GroupName {
    /// The group that every topic has at first.
    pub fn standard() -> GroupName {
        GroupName("default".into())
    }
}

fn check_name(text: &str) -> Result<(), String> {
    if text.is_empty() || text.len() > NAME_BYTES_MAX {
        return Err(format!("a name has 1 to {NAME_BYTES_MAX} characters, this one has {}", text.len()));
    }
    if text.bytes().all(|b| b == b'.') {
        return Err("a name is not only dots: URLs would lose it".to_owned());
    }
    match text.chars().find(|c| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '_' | '-')) {
        Some(c) => Err(format!("a name has only letters, digits, '.', '_' and '-', not {c:?}")),
        None => Ok(()),
    }
}

fn check_id(text: &str) -> Result<(), String> {
    if text.is_empty() || text.len() > ID_BYTES_MAX {
        return Err(format!("an id has 1 to {ID_BYTES_MAX} characters, this one has {}", text.len()));
    }
    if matches!(text, "." | "..") {
        return Err("an id is not \".\" or \"..\": browsers and HTTP clients take it out of a path".to_owned());
    }
    match text.chars().find(|c| !c.is_ascii_graphic()) {
        Some(c) => Err(format!("an id has only visible ASCII characters without spaces, not {c:?}")),
        None => Ok(()),
    }
}

fn check_key(text: &str) -> Result<(), String> {
    check_printable("a key", text, KEY_BYTES_MAX)
}

fn check_printable(what: &str, text: &str, bytes_max: usize) -> Result<(), String> {
    if text.is_empty() || text.len() > bytes_max {
        return Err(format!("{what} has 1 to {bytes_max} bytes, this one has {}", text.len()));
    }
    match text.chars().find(|c| c.is_control()) {
        Some(c) => Err(format!("{what} has no control characters, this one has {c:?}")),
        None => Ok(()),
    }
}

/// A message as a producer offers it.
#[derive(Debug, Clone)]
pub struct NewMessage {
    /// Chosen by the producer to make pushes repeatable; otherwise dwell makes one.
    pub id: Option<MessageId>,
    pub conflict: Conflict,
    /// Only with [`Conflict::Debounce`]: how long after the first push of the message it may be due at the latest.
    pub debounce_max: Option<Duration>,
    /// Decides the partition; without a key the dedup key does, and without both the id.
    pub key: Option<Key>,
    /// Another push of the dedup key to the partition, within its window from this push on, is a duplicate. Only with
    /// [`Conflict::Keep`].
    pub dedup: Option<Dedup>,
    pub due: Due,
    /// Its due time moves by up to this, by a value that its id decides.
    pub spread: Option<Duration>,
    /// How long after its due time it is still delivered; `None` is without end.
    pub ttl: Option<Duration>,
    /// Overrides the topic's number of attempts; 0 is without a limit.
    pub max_attempts: Option<u32>,
    /// 0 to 9: among the ready messages of a partition higher ones are handed out first.
    pub priority: u8,
    /// Media type of the payload, passed through.
    pub content_type: Option<String>,
    /// Names and values that travel with the payload.
    pub meta: Vec<(String, String)>,
    /// Where the push stands in a trace; handed on with the message.
    pub trace: Option<TraceContext>,
    /// Data of a gateway beside the payload, passed through; empty is none.
    pub attachment: Bytes,
    /// The payload: any bytes, may be empty.
    pub payload: Bytes,
}

impl NewMessage {
    /// A message that is due at once, with everything else left to the defaults.
    pub fn new(payload: impl Into<Bytes>) -> NewMessage {
        NewMessage {
            id: None,
            conflict: Conflict::Keep,
            debounce_max: None,
            key: None,
            dedup: None,
            due: Due::In(Duration::ZERO),
            spread: None,
            ttl: None,
            max_attempts: None,
            priority: 0,
            content_type: None,
            meta: Vec::new(),
            trace: None,
            attachment: Bytes::new(),
            payload: payload.into(),
        }
    }

    /// Its id, made now if it has none.
    pub fn identify(&mut self) -> MessageId {
        self.id.get_or_insert_with(MessageId::fresh).clone()
    }

    /// Due after this delay from the moment it is accepted.
    pub fn after(mut self, delay: Duration) -> NewMessage {
        self.due = Due::In(delay);
        self
    }

    /// Due at this time; a time in the past is due at once.
    pub fn at(mut self, due_at: Timestamp) -> NewMessage {
        self.due = Due::At(due_at);
        self
    }

    /// Due up to this later, by a value that its id decides.
    pub fn spread(mut self, spread: Duration) -> NewMessage {
        self.spread = Some(spread);
        self
    }

    /// With an id, so that pushing again is a duplicate.
    pub fn id(mut self, id: MessageId) -> NewMessage {
        self.id = Some(id);
        self
    }

    /// With a priority, 0 to 9.
    pub fn priority(mut self, priority: u8) -> NewMessage {
        self.priority = priority;
        self
    }

    pub fn on_conflict(mut self, conflict: Conflict) -> NewMessage {
        self.conflict = conflict;
        self
    }

    /// With [`Conflict::Debounce`]: due at most this long after the first push of the message.
    pub fn debounce_max(mut self, max: Duration) -> NewMessage {
        self.debounce_max = Some(max);
        self
    }

    pub fn key(mut self, key: Key) -> NewMessage {
        self.key = Some(key);
        self
    }

    /// With a dedup key and its window, 1 s to 7 days.
    pub fn dedup(mut self, key: DedupKey, window: Duration) -> NewMessage {
        self.dedup = Some(Dedup { key, window });
        self
    }

    /// With data of a gateway, which counts to the limit of the payload.
    pub fn attachment(mut self, attachment: impl Into<Bytes>) -> NewMessage {
        self.attachment = attachment.into();
        self
    }

    /// With its place in a trace, which consumers get with it.
    pub fn trace(mut self, trace: TraceContext) -> NewMessage {
        self.trace = Some(trace);
        self
    }

    /// Checks every limit and fixes the due time. Errors: `Invalid` or `TooLarge`, naming the field.
    pub fn check(&self, now: Timestamp) -> Result<Timestamp> {
        let size = self.payload.len() + self.attachment.len();
        if size > PAYLOAD_BYTES_MAX {
            let with = if self.attachment.is_empty() { "" } else { " with its attachment" };
            let why = format!("{size} bytes, a payload{with} has at most {PAYLOAD_BYTES_MAX}");
            return Err(Error::wrong(Fault::TooLarge, "payload", why));
        }
        self.dedup.iter().try_for_each(|dedup| dedup.check(self.conflict))?;
        if let Some(id) = self.id.as_ref().filter(|id| id.is_occurrence()) {
            let why =
                format!("{:?} is for an occurrence of a cron job, <name>@<time>: choose another form", id.as_str());
            return Err(Error::wrong(Fault::Format, "id", why));
        }
        if let Some(attempts) = self.max_attempts.filter(|attempts| *attempts > ATTEMPTS_MAX) {
            return Err(Error::range("max_attempts", format!("{attempts} is not in 0 to {ATTEMPTS_MAX}")));
        }
        if self.priority > PRIORITY_MAX {
            return Err(Error::range("priority", format!("{} is not in 0 to {PRIORITY_MAX}", self.priority)));
        }
        if self.ttl.is_some_and(|ttl| ttl.is_zero()) {
            return Err(Error::range("ttl", "a message with a ttl of 0s would never be delivered"));
        }
        check_content_type(self.content_type.as_deref())?;
        check_meta(&self.meta)?;
        let due_at = self.due.fix(now)?;
        self.check_spread(now)?;
        self.check_debounce_max()?;
        Ok(due_at)
    }

    /// The message as the store keeps it. Errors: as [`NewMessage::check`].
    pub fn accept(mut self, now: Timestamp) -> Result<Message> {
        self.check(now)?;
        let id = self.id.take().unwrap_or_else(MessageId::fresh);
        let due_at = self.due_of(&id).fix(now)?;
        let due_at = self.debounce_max.map_or(due_at, |max| due_at.min(now.plus(max)));
        Ok(Message {
            id,
            due_at,
            debounce_max: self.debounce_max,
            envelope: Envelope {
                key: self.key,
                dedup: self.dedup,
                pushed_at: now,
                expires_at: self.ttl.map(|ttl| due_at.plus(ttl)),
                max_attempts: self.max_attempts,
                priority: self.priority,
                content_type: self.content_type,
                meta: self.meta,
                dead_letter_source: None,
                trace: self.trace,
                attachment: self.attachment,
                payload: self.payload,
            },
            successor: None,
        })
    }
}

fn check_content_type(content_type: Option<&str>) -> Result<()> {
    let Some(text) = content_type else { return Ok(()) };
    if text.len() > CONTENT_TYPE_BYTES_MAX {
        return Err(Error::range("content_type", format!("has at most {CONTENT_TYPE_BYTES_MAX} bytes")));
    }
    if !text.bytes().all(|b| b.is_ascii_graphic() || b == b' ') {
        return Err(Error::wrong(Fault::Format, "content_type", "has only visible ASCII characters"));
    }
    if text.parse::<mime::Mime>().is_err() {
        let why = format!("{text:?} is not a media type like text/plain or application/json; charset=utf-8");
        return Err(Error::wrong(Fault::Format, "content_type", why));
    }
    Ok(())
}

/// Errors: `Invalid` for no time, and past [`DELAY_MAX`].
fn check_span(field: &'static str, span: Duration) -> Result<()> {
    match !span.is_zero() && span <= DELAY_MAX {
        true => Ok(()),
        false => Err(Error::range(field, format!("is not in 1 ms to {} days", DELAY_MAX.as_secs() / 86_400))),
    }
}

fn check_meta(meta: &[(String, String)]) -> Result<()> {
    if meta.len() > META_COUNT_MAX {
        return Err(Error::range("meta", format!("has {} entries, at most {META_COUNT_MAX}", meta.len())));
    }
    let bytes: usize = meta.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > META_BYTES_MAX {
        return Err(Error::range("meta", format!("has {bytes} bytes of names and values, at most {META_BYTES_MAX}")));
    }
    let token = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.');
    for (name, value) in meta {
        if name.is_empty() || !name.bytes().all(token) {
            return Err(Error::wrong(
                Fault::Format,
                "meta",
                "a name has only lower-case letters, digits, '-', '_' and '.'",
            ));
        }
        if value.chars().any(char::is_control) {
            return Err(Error::wrong(Fault::Format, "meta", format!("the value of {name:?} has control characters")));
        }
    }
    Ok(())
}

/// A message as the store keeps it: accepted, with an id and an absolute due time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub id: MessageId,
    /// When it is due, on the store's clock. A retry moves the score in the zset, never this.
    pub due_at: Timestamp,
    /// How far this push may move the message that waits under its id. The store does not keep it.
    pub debounce_max: Option<Duration>,
    pub envelope: Envelope,
    /// The message that takes its place once it has ended.
    pub successor: Option<Box<Successor>>,
}

/// A message that was pushed with [`Conflict::After`] while the one of its id was in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Successor {
    /// Of the same id and key.
    pub message: Message,
    /// Above that of the message before it.
    pub version: Version,
    /// The id of the message before it, should that die: its own is taken then.
    pub dead_id: MessageId,
}

impl Message {
    /// Sets a time to live, from the due time on, unless the message has one; zero is none.
    pub fn expire_after(&mut self, ttl: Duration) {
        if !ttl.is_zero() && self.envelope.expires_at.is_none() {
            self.envelope.expires_at = Some(self.due_at.plus(ttl));
        }
    }

    /// Bytes of payloads and attachments.
    pub fn size(&self) -> usize {
        let successor = self.successor.as_ref().map_or(0, |successor| successor.message.envelope.size());
        self.envelope.size() + successor
    }

    pub fn has_dedup_key(&self) -> bool {
        self.envelope.dedup.is_some()
    }

    /// The routing key, which decides the partition: the key, or else the dedup key, or else the id.
    pub fn routing_key(&self) -> &str {
        let dedup_key = || self.envelope.dedup.as_ref().map(|dedup| dedup.key.as_str());
        self.envelope.key.as_ref().map(Key::as_str).or_else(dedup_key).unwrap_or(self.id.as_str())
    }
}

/// The dead letter that a message was in another topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterSource {
    pub topic: TopicName,
    pub group: GroupName,
    /// Its id there.
    pub id: MessageId,
    /// Why it died: `max_attempts` or `buried`.
    pub reason: String,
    /// How often it was delivered there.
    pub attempts: u32,
    pub died_at: Timestamp,
    /// The reason of the last nack, or why there was none.
    pub last_error: Option<LastError>,
    /// Topics that have forwarded the message, this one included: from 1.
    pub hops: u32,
}

/// The parts of a message that never change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    pub key: Option<Key>,
    /// The window counts from `pushed_at`.
    pub dedup: Option<Dedup>,
    /// When dwell accepted it, on the store's clock.
    pub pushed_at: Timestamp,
    /// It is not delivered any more from then on.
    pub expires_at: Option<Timestamp>,
    /// 0 is without a limit.
    pub max_attempts: Option<u32>,
    pub priority: u8,
    pub content_type: Option<String>,
    pub meta: Vec<(String, String)>,
    /// Where it was a dead letter before, if it was forwarded.
    pub dead_letter_source: Option<Box<DeadLetterSource>>,
    /// Where its push stands in a trace.
    pub trace: Option<TraceContext>,
    /// Data of a gateway; empty is none.
    pub attachment: Bytes,
    pub payload: Bytes,
}

impl Envelope {
    /// Of a message that was pushed with nothing but its payload.
    pub fn bare(pushed_at: Timestamp, payload: Bytes) -> Envelope {
        Envelope {
            key: None,
            dedup: None,
            pushed_at,
            expires_at: None,
            max_attempts: None,
            priority: 0,
            content_type: None,
            meta: Vec::new(),
            dead_letter_source: None,
            trace: None,
            attachment: Bytes::new(),
            payload,
        }
    }

    /// Topics that have forwarded it as a dead letter; 0 if none has.
    pub fn hops(&self) -> u32 {
        self.dead_letter_source.as_ref().map_or(0, |source| source.hops)
    }

    /// The dedup key with its window, from the push up to its end.
    pub fn dedup_window(&self) -> Option<(&DedupKey, Timestamp, Timestamp)> {
        let dedup = self.dedup.as_ref()?;
        Some((&dedup.key, self.pushed_at, self.pushed_at.plus(dedup.window)))
    }

    /// Bytes of the payload and the attachment.
    pub fn size(&self) -> usize {
        self.payload.len() + self.attachment.len()
    }
}

impl MessageId {
    /// A new id, sortable by the time it was made.
    pub fn fresh() -> MessageId {
        MessageId::of(ulid::Ulid::new())
    }

    /// A ULID as an id.
    pub fn of(ulid: ulid::Ulid) -> MessageId {
        let mut text = [0; ulid::ULID_LEN];
        MessageId((*ulid.array_to_str(&mut text)).into())
    }

    /// The id under which a message is stored whose own id another message of its partition has.
    ///
    /// ```
    /// use dwell::model::message::MessageId;
    ///
    /// let id = MessageId::new("reminder")?;
    /// assert_eq!(id.beside(1_764_000_000_000_000).as_str(), "reminder~1764000000000000");
    /// # Ok::<(), dwell::model::error::Error>(())
    /// ```
    pub fn beside(&self, number: u64) -> MessageId {
        let suffix = format!("~{number}");
        let kept = &self.0[..self.0.len().min(ID_BYTES_MAX - suffix.len())];
        MessageId(format!("{kept}{suffix}").into())
    }

    /// Whether it has the form of the id of an occurrence of a cron job, `<name>@<time>`: only the cron job pushes those.
    pub fn is_occurrence(&self) -> bool {
        self.occurrence().is_some()
    }

    /// The time of the occurrence of a cron job whose id this is.
    pub fn occurrence(&self) -> Option<Timestamp> {
        let (name, at) = self.0.split_once('@')?;
        check_name(name).ok()?;
        at.parse::<Timestamp>().ok().filter(|time| time.to_string() == at)
    }
}

#[cfg(test)]
mod tests;
