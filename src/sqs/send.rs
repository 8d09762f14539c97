//! SendMessage and SendMessageBatch: what AWS checks, and how a message becomes one of dwell.

use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::batch::{batch_answer, check_batch};
use super::celery::due_and_ttl;
use super::errors::{BATCH_TOO_LONG, Failure, INTERNAL, INVALID_CONTENTS, Result, UNSUPPORTED};
use super::model::{
    Action, Answer, AttributeValue, Attributes, Entry, Sent, attributes_md5, encode_attributes, hex, hex_md5,
};
use super::protocol::is_xml;
use super::queue::{CONTENT_BASED, PURGED, Queue, SCOPE};
use super::{Caller, Sqs, ids};
use crate::broker::{GroupRequest, PushOutcome};
use crate::model::attributes::{of_attachment, to_attachment};
use crate::model::error::Error;
use crate::model::limits::PAYLOAD_BYTES_MAX;
use crate::model::message::{
    Dedup, DedupKey, Due, Envelope, GATEWAY_DEDUP_PREFIX, GroupName, Key, MessageId, NewMessage,
};
use crate::model::time::{Timestamp, show_span};
use crate::model::topic::Fairness;
use crate::model::trace::TraceContext;
use crate::store::Pushed;

const ATTRIBUTES_MAX: usize = 10;
const ATTRIBUTE_NAME_MAX: usize = 256;
/// Characters of a group id and of a deduplication id.
const TOKEN_MAX: usize = 128;
const TRACE_HEADER: &str = "AWSTraceHeader";
const TRACE_HEADER_MAX: usize = 1_024;
/// Seconds: the longest delay of AWS.
const STRICT_DELAY_MAX: Duration = Duration::from_secs(900);

/// As at AWS.
const DEDUPLICATED_FOR: Duration = Duration::from_secs(300);

/// How a message's own fields are called in its meta.
pub(crate) const SENDER_META: &str = "sqs-sender-id";
pub(crate) const DEDUP_META: &str = "sqs-deduplication-id";
pub(crate) const TRACE_META: &str = "sqs-trace-header";

/// Bytes of all messages of a batch.
const BATCH_BYTES_MAX: usize = 1_048_576;

impl Sqs {
    pub(crate) async fn send_message(&self, caller: &Caller, queue: &Queue, entries: Vec<Entry>) -> Result<Answer> {
        entries.iter().try_for_each(|entry| check_fifo(queue, entry))?;
        let sent = self.send(caller, queue, &entries, false).await?.pop();
        let sent = sent.unwrap_or_else(|| Err(Failure::new(INTERNAL, "A message without an answer.")))?;
        Ok(Answer { sent: Some(sent), ..Answer::default() })
    }

    pub(crate) async fn send_batch(&self, caller: &Caller, queue: &Queue, entries: Vec<Entry>) -> Result<Answer> {
        check_batch(Action::SendMessageBatch, &entries)?;
        let bytes: usize = entries.iter().map(size).sum();
        if bytes > BATCH_BYTES_MAX {
            let why =
                format!("Batch requests cannot be longer than {BATCH_BYTES_MAX} bytes. You have sent {bytes} bytes.");
            return Err(Failure::new(BATCH_TOO_LONG, why));
        }
        // AWS has the same text and another code here.
        let invalid = |failure: Failure| Failure::invalid(failure.message);
        entries.iter().try_for_each(|entry| check_fifo(queue, entry)).map_err(invalid)?;
        let outcomes = self.send(caller, queue, &entries, true).await?;
        Ok(batch_answer(entries, outcomes))
    }

    /// Each entry is answered for itself.
    async fn send(
        &self,
        caller: &Caller,
        queue: &Queue,
        entries: &[Entry],
        is_batch: bool,
    ) -> Result<Vec<Result<Sent>>> {
        if queue.group != GroupName::standard() {
            return Err(Failure::new(UNSUPPORTED, "Messages are sent to the topic, not to one of its groups."));
        }
        let checked = entries.iter().enumerate().map(|entry| self.outgoing(caller, queue, entry, is_batch));
        let (mut messages, mut outcomes): (Vec<NewMessage>, Vec<Result<Sent>>) = (Vec::new(), Vec::new());
        for checked in checked {
            outcomes.push(checked.map(|Outgoing { message, sent }| {
                messages.push(message);
                sent
            }));
        }
        if messages.is_empty() {
            return Ok(outcomes);
        }
        let has_groups = messages.iter().any(|message| message.key.is_some());
        let mut pushed = self.broker.push_batch(&queue.topic, messages).await?.into_iter();
        let mut is_stored = false;
        for outcome in &mut outcomes {
            if let Ok(sent) = outcome {
                let pushed = pushed.next().unwrap_or_else(|| Err(Error::bug("a push without an outcome")));
                is_stored |= pushed.as_ref().is_ok_and(|pushed| pushed.pushed == Pushed::Stored);
                *outcome = pushed.map(|pushed| completed(queue, sent.clone(), &pushed)).map_err(Failure::from);
            }
        }
        if has_groups && is_stored {
            self.be_fair(queue).await;
        }
        Ok(outcomes)
    }
}

impl Sqs {
    /// Makes a standard queue fair, as at AWS, with its first message that has a group and is in the store, unless somebody has said that it
    /// is not to be. If that fails, one of the next messages does it.
    async fn be_fair(&self, queue: &Queue) {
        let Queue { topic, group, descriptor, .. } = queue;
        let may_be = !descriptor.is_ordered() && descriptor.groups.contains(group);
        let is_said = descriptor.subscriptions.get(group).is_some_and(|subscription| subscription.fair.is_some());
        if !may_be || is_said {
            return;
        }
        let request = GroupRequest { fair: Some(Fairness::Key), ..GroupRequest::default() };
        if let Err(error) = self.broker.create_group(topic, group, request).await {
            tracing::debug!(queue = %topic, %error, "the queue is not fair yet");
        }
    }
}

/// A duplicate is answered with the id and the number of the first message.
fn completed(queue: &Queue, sent: Sent, pushed: &PushOutcome) -> Sent {
    let id = pushed.duplicate_of.as_ref().unwrap_or(&pushed.id).as_str();
    let number = queue.is_fifo().then(|| ids::sequence_number(id, pushed.due_at));
    Sent { message_id: Some(ids::of_message(id)), sequence_number: number, ..sent }
}

/// A checked message, and the answer when it is sent.
struct Outgoing {
    message: NewMessage,
    sent: Sent,
}

/// Bytes as AWS counts them.
fn size(entry: &Entry) -> usize {
    let attributes = entry.message_attributes.iter().map(|(name, value)| name.len() + value.size());
    entry.message_body.as_ref().map_or(0, String::len) + attributes.sum::<usize>()
}

/// A wrong entry of a FIFO queue makes the whole request wrong.
fn check_fifo(queue: &Queue, entry: &Entry) -> Result<()> {
    if !queue.is_fifo() {
        return Ok(());
    }
    if entry.message_group_id.is_none() {
        return Err(Failure::missing("MessageGroupId"));
    }
    if entry.message_deduplication_id.is_none() && queue.annotation(CONTENT_BASED) != Some("true") {
        return Err(Failure::invalid(
            "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided \
             explicitly",
        ));
    }
    Ok(())
}

impl Sqs {
    /// Errors: what AWS says is wrong with it. `is_batch` changes a text.
    fn outgoing(
        &self,
        caller: &Caller,
        queue: &Queue,
        (index, entry): (usize, &Entry),
        is_batch: bool,
    ) -> Result<Outgoing> {
        let body = entry.message_body.as_deref().filter(|body| !body.is_empty());
        let body = body.ok_or_else(|| Failure::missing("MessageBody"))?;
        check_size(queue, entry, is_batch)?;
        check_contents(body)?;
        check_attributes(&entry.message_attributes)?;
        check_token("MessageGroupId", entry.message_group_id.as_deref())?;
        check_token("MessageDeduplicationId", entry.message_deduplication_id.as_deref())?;
        let now = self.broker.now();
        let mut message = NewMessage::new(Bytes::copy_from_slice(body.as_bytes()));
        message.due = Due::In(self.delay(queue, entry)?);
        if self.options.celery_eta
            && let Some((due, ttl)) = due_and_ttl(body, now)
        {
            self.check_delay("the seconds until eta", due.since(now), due.since(now).as_secs())?;
            (message.due, message.ttl) = (Due::At(due), ttl);
        }
        message.key = entry.message_group_id.as_deref().map(Key::new).transpose()?;
        message.content_type = Some("text/plain; charset=utf-8".to_owned());
        message.trace = trace_context(&entry.message_attributes);
        message.meta.push((SENDER_META.to_owned(), caller.sender.clone()));
        let trace = trace_header(caller, entry)?;
        message.meta.extend(trace.map(|trace| (TRACE_META.to_owned(), trace)));
        message.attachment = to_attachment(&entry.message_attributes);
        self.identify(caller, queue, (index, entry), &mut message, now)?;
        Ok(Outgoing { sent: sent(body, entry), message })
    }

    fn delay(&self, queue: &Queue, entry: &Entry) -> Result<Duration> {
        let of_queue = Duration::from_secs(queue.number("DelaySeconds"));
        match entry.delay_seconds {
            None => Ok(of_queue),
            Some(0) if queue.is_fifo() => Ok(of_queue),
            Some(secs) if queue.is_fifo() => {
                let why = "The request include parameter that is not valid for this queue type.";
                Err(Failure::parameter("DelaySeconds", secs, why))
            }
            Some(secs) => {
                let delay = u64::try_from(secs).map_or(Duration::MAX, Duration::from_secs);
                self.check_delay("DelaySeconds", delay, secs).map(|()| delay)
            }
        }
    }

    /// Errors: the delay that a message asks for is longer than messages may wait here.
    fn check_delay(&self, parameter: &str, delay: Duration, given: impl ToString) -> Result<()> {
        let most = self.options.max_delay;
        let (max, shown) = match self.options.strict {
            true => (STRICT_DELAY_MAX.min(most), STRICT_DELAY_MAX.min(most).as_secs().to_string()),
            false => (most, show_span(most)),
        };
        if delay <= max {
            return Ok(());
        }
        let why = format!("{parameter} must be >= 0 and <= {shown}.");
        Err(Failure::parameter(parameter, given, &why))
    }

    /// The id: of a FIFO queue with the sequence number in it, otherwise from the id that clients keep when they repeat a
    /// request.
    fn identify(
        &self,
        caller: &Caller,
        queue: &Queue,
        (index, entry): (usize, &Entry),
        message: &mut NewMessage,
        now: Timestamp,
    ) -> Result<()> {
        if queue.is_fifo() {
            let content = || hex(&Sha256::digest(&message.payload));
            let dedup = entry.message_deduplication_id.clone().unwrap_or_else(content);
            message.id = Some(self.sequence.id(now)?);
            deduplicate(message, queue, &dedup)?;
            message.meta.push((DEDUP_META.to_owned(), dedup));
            return Ok(());
        }
        if let Some(dedup) = &entry.message_deduplication_id {
            let why = "The request include parameter that is not valid for this queue type.";
            return Err(Failure::parameter("MessageDeduplicationId", dedup, why));
        }
        let group = entry.message_group_id.as_deref().unwrap_or_default();
        let (id, body) = (entry.id.as_deref().unwrap_or_default(), hex_md5(&message.payload));
        let invocation = caller.invocation.as_bytes();
        let parts = [invocation, queue.name.as_bytes(), id.as_bytes(), body.as_bytes(), group.as_bytes()];
        message.id = Some(MessageId::new(ids::of_entry(invocation, index, &parts))?);
        Ok(())
    }
}

/// Another message of this id within five minutes is a duplicate, unless the queue was purged in between. The id counts in
/// the whole queue, or in its group.
fn deduplicate(message: &mut NewMessage, queue: &Queue, dedup: &str) -> Result<()> {
    let purged = queue.annotation(PURGED);
    let group = message.key.as_ref().filter(|_| queue.annotation(SCOPE) == Some("messageGroup"));
    let group = group.map_or("", Key::as_str);
    let parts = format!("{}\0{group}\0{dedup}", purged.unwrap_or_default());
    let key = DedupKey::new(format!("{GATEWAY_DEDUP_PREFIX}{}", hex(&Sha256::digest(parts))))?;
    message.dedup = Some(Dedup { key, window: DEDUPLICATED_FOR });
    Ok(())
}

/// The attributes that a message was sent with, and the meta of one that was pushed without SQS, as far as it fits.
pub(crate) fn attributes_of(envelope: &Envelope) -> Attributes {
    let mut attributes = of_attachment(&envelope.attachment);
    let own = [SENDER_META, DEDUP_META, TRACE_META];
    for (name, value) in envelope.meta.iter().filter(|(name, _)| !own.contains(&name.as_str())) {
        let (data_type, string_value) = ("String".to_owned(), Some(value.clone()));
        let attribute = AttributeValue { data_type, string_value, binary_value: None };
        if !attributes.contains_key(name) && check_attribute(name, &attribute).is_ok() {
            attributes.insert(name.clone(), attribute);
        }
    }
    attributes
}

fn sent(body: &str, entry: &Entry) -> Sent {
    Sent {
        md5_of_body: Some(hex_md5(body.as_bytes())),
        md5_of_attributes: attributes_md5(&entry.message_attributes),
        md5_of_system_attributes: attributes_md5(&entry.message_system_attributes),
        ..Sent::default()
    }
}

fn check_size(queue: &Queue, entry: &Entry, is_batch: bool) -> Result<()> {
    let max = usize::try_from(queue.number("MaximumMessageSize")).unwrap_or(usize::MAX);
    // Stored attributes have lengths and a version.
    let attributes = &entry.message_attributes;
    let framing = if attributes.is_empty() { 0 } else { encode_attributes(attributes).len() + 1 };
    let stored = entry.message_body.as_ref().map_or(0, String::len) + framing;
    if size(entry) <= max && stored <= PAYLOAD_BYTES_MAX {
        return Ok(());
    }
    let what = if is_batch { "cannot be validated" } else { "are invalid" };
    Err(Failure::invalid(format!("One or more parameters {what}. Reason: Message must be shorter than {max} bytes.")))
}

fn check_contents(text: &str) -> Result<()> {
    match text.chars().all(is_xml) {
        true => Ok(()),
        false => Err(Failure::new(
            INVALID_CONTENTS,
            "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | \
             #x10000 to #x10FFFF",
        )),
    }
}

pub(crate) fn check_token(name: &str, token: Option<&str>) -> Result<()> {
    let Some(token) = token else { return Ok(()) };
    if (1..=TOKEN_MAX).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    let why = format!("{name} can only include alphanumeric and punctuation characters. 1 to {TOKEN_MAX} in length.");
    Err(Failure::parameter(name, token, &why))
}

fn check_attributes(attributes: &Attributes) -> Result<()> {
    if attributes.len() > ATTRIBUTES_MAX {
        let count = attributes.len();
        let why = format!("Number of message attributes [{count}] exceeds the allowed maximum [{ATTRIBUTES_MAX}].");
        return Err(Failure::invalid(why));
    }
    attributes.iter().try_for_each(|(name, value)| check_attribute(name, value))
}

fn check_attribute(name: &str, value: &AttributeValue) -> Result<()> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let lower = name.to_ascii_lowercase();
    let is_reserved = lower.starts_with("aws.") || lower.starts_with("amazon.");
    let has_dots = name.starts_with('.') || name.ends_with('.') || name.contains("..");
    if name.is_empty() || name.len() > ATTRIBUTE_NAME_MAX || !name.chars().all(allowed) || is_reserved || has_dots {
        let why = "Invalid non-alphanumeric character or reserved prefix was found in the message attribute name. Can only \
                   include alphanumeric characters, hyphens, underscores, or dots.";
        return Err(Failure::invalid(why));
    }
    let kind = value.data_type.split('.').next().unwrap_or_default();
    let is_empty = match kind {
        "String" | "Number" => value.string_value.as_ref().is_none_or(String::is_empty),
        "Binary" => value.binary_value.as_ref().is_none_or(Bytes::is_empty),
        _ if value.data_type.is_empty() => {
            let why = format!("The message attribute '{name}' must contain a non-empty message attribute type.");
            return Err(Failure::invalid(why));
        }
        _ => {
            let why = format!(
                "The type of message (user) attribute '{name}' is invalid. You must use only the following supported type \
                 prefixes: Binary, Number, String."
            );
            return Err(Failure::invalid(why));
        }
    };
    if value.data_type.len() > ATTRIBUTE_NAME_MAX {
        let why = format!("The message attribute '{name}' has a type of more than {ATTRIBUTE_NAME_MAX} bytes.");
        return Err(Failure::invalid(why));
    }
    if is_empty {
        let why = format!("Message (user) attribute '{name}' must contain a non-empty value of type '{kind}'.");
        return Err(Failure::invalid(why));
    }
    let text = value.string_value.as_deref().unwrap_or_default();
    let in_attribute = |failure: Failure| Failure::invalid(failure.message);
    check_contents(text).and(check_contents(&value.data_type)).map_err(in_attribute)?;
    if kind == "Number" && !is_number(text.trim()) {
        let why = format!("Can't cast the value of message (user) attribute '{name}' to a number.");
        return Err(Failure::invalid(why));
    }
    Ok(())
}

/// A number as AWS takes it: from 10^-128 to 10^126, of either sign, or 0.
fn is_number(text: &str) -> bool {
    // Not the words that Rust takes for numbers, as `inf`.
    let allowed = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    if !text.bytes().all(allowed) {
        return false;
    }
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let is_zero = !mantissa.bytes().any(|byte| (b'1'..=b'9').contains(&byte));
    text.parse().is_ok_and(|number: f64| is_zero || (1e-128..=1e126).contains(&number.abs()))
}

fn trace_context(attributes: &Attributes) -> Option<TraceContext> {
    let text = |name: &str| attributes.get(name).and_then(|value| value.string_value.as_deref());
    TraceContext::of_headers(text("traceparent")?, text("tracestate"))
}

/// The only system attribute that a client may send; also a header of AWS' own tracing.
fn trace_header(caller: &Caller, entry: &Entry) -> Result<Option<String>> {
    if let Some(other) = entry.message_system_attributes.keys().find(|name| *name != TRACE_HEADER) {
        let why = format!("Message system attribute name '{other}' is invalid. Valid names are: [{TRACE_HEADER}].");
        return Err(Failure::invalid(why));
    }
    let sent = entry.message_system_attributes.get(TRACE_HEADER);
    if let Some(value) = sent {
        check_attribute(TRACE_HEADER, value)?;
    }
    let sent = sent.and_then(|value| value.string_value.clone()).or_else(|| caller.trace_header.clone());
    Ok(sent.filter(|text| text.len() <= TRACE_HEADER_MAX && !text.chars().any(char::is_control)))
}
