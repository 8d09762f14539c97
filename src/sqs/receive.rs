//! ReceiveMessage.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::errors::{Failure, Result, THROTTLED, UNAVAILABLE};
use super::model::{Answer, AttributeValue, Received, Request, attributes_md5, hex_md5, in_range};
use super::protocol::is_xml;
use super::queue::{Queue, VISIBILITY};
use super::send::{self, DEDUP_META, SENDER_META, TRACE_META, check_token};
use super::sigv4::unknown_token;
use super::{Caller, Sqs, ids};
use crate::api::http::{Desk, TakeError};
use crate::broker::{ReserveRequest, Selection};
use crate::delivery::{Decision, Delivery};
use crate::model::error::Kind;
use crate::model::limits::{JSON_GROWTH_MAX, VISIBILITY_TIMEOUT_MIN};
use crate::model::retry::OnFailure;
use crate::model::time::Timestamp;

/// Some clients give up after the very time that they ask for: what comes in the last instant would be hidden from them.
const EARLIER: Duration = Duration::from_millis(100);
/// Says that a body is base64: it has bytes that no text has.
const ENCODING: &str = "dwell-encoding";
const ATTEMPT_ID: &str = "ReceiveRequestAttemptId";
/// Bytes of all names of attributes of a request: it keeps them while it waits. A message has ten attributes at most.
const NAMES_BYTES_MAX: usize = 16 * 1024;

/// A request to receive messages.
struct Wanted {
    max: usize,
    wait: Duration,
    /// `None` is the queue's; zero makes a message visible at once.
    visibility_timeout: Option<Duration>,
    system: Vec<String>,
    user: Vec<String>,
    /// Of a FIFO queue: repeated, the receive gets the same messages.
    attempt: Option<String>,
}

impl Wanted {
    fn read(queue: &Queue, request: Request) -> Result<Wanted> {
        let between = "Must be between 1 and 10, if provided.";
        let max = in_range("MaxNumberOfMessages", request.max_number_of_messages, 1..=10, between)?;
        let wait = "Must be >= 0 and <= 20, if provided.";
        let wait = in_range("WaitTimeSeconds", request.wait_time_seconds, 0..=20, wait)?;
        let visible = "Must be >= 0 and <= 43200, if provided.";
        let visible = in_range("VisibilityTimeout", request.visibility_timeout, 0..=43_200, visible)?;
        check_token(ATTEMPT_ID, request.receive_request_attempt_id.as_deref())?;
        let wait = wait.unwrap_or_else(|| queue.number("ReceiveMessageWaitTimeSeconds"));
        let mut system = request.attribute_names;
        system.extend(request.message_system_attribute_names);
        let names = || system.iter().chain(&request.message_attribute_names);
        if names().map(String::len).sum::<usize>() > NAMES_BYTES_MAX {
            let why = format!("The names of attributes cannot be longer than {NAMES_BYTES_MAX} bytes together.");
            return Err(Failure::invalid(why));
        }
        Ok(Wanted {
            max: max.and_then(|max| usize::try_from(max).ok()).unwrap_or(1),
            wait: Duration::from_secs(wait).saturating_sub(EARLIER),
            visibility_timeout: visible
                .or_else(|| (queue.number(VISIBILITY) == 0).then_some(0))
                .map(Duration::from_secs),
            system,
            user: request.message_attribute_names,
            attempt: request.receive_request_attempt_id.filter(|_| queue.is_fifo()),
        })
    }

    fn has_system(&self, name: &str) -> bool {
        self.system.iter().any(|wanted| wanted == "All" || wanted == name)
    }

    fn has_user(&self, name: &str) -> bool {
        self.user.iter().any(|wanted| match wanted.strip_suffix(".*") {
            Some(prefix) => name.starts_with(prefix),
            None => wanted == "All" || wanted == "*" || wanted == name,
        })
    }
}

impl Sqs {
    pub(crate) async fn receive_message(
        &self,
        caller: &Caller,
        queue: &Queue,
        request: Request,
        desk: &Desk,
    ) -> Result<Answer> {
        let wanted = Wanted::read(queue, request)?;
        let reserved = self.reserve(queue, &wanted);
        let deliveries = desk.take(&caller.pass, !wanted.wait.is_zero(), reserved).await.map_err(not_taken)?;
        let deliveries = deliveries.map_err(|error| match error.kind() {
            Kind::Full => Failure::new(THROTTLED, error.detail().to_owned()),
            _ => Failure::from(error),
        })?;
        if let Some(attempt) = wanted.attempt.as_deref().filter(|_| !deliveries.is_empty()) {
            let receipts = deliveries.iter().map(|delivery| delivery.receipt.clone()).collect();
            self.attempts.remember(queue, attempt, receipts, self.clock.instant());
        }
        let _room =
            desk.room(&caller.pass, deliveries.iter().map(|it| JSON_GROWTH_MAX * it.message.envelope.size()).sum());
        if wanted.visibility_timeout == Some(Duration::ZERO) {
            let visible =
                |it: &Delivery| (it.receipt.clone(), Decision::Nack { delay: Some(Duration::ZERO), reason: None });
            let decisions: Vec<_> = deliveries.iter().map(visible).collect();
            if !decisions.is_empty() {
                self.broker.settle(&queue.topic, &queue.group, decisions).await?;
            }
        }
        let now = self.broker.now();
        let messages =
            deliveries.into_iter().map(|delivery| received(self, caller, (queue, &wanted), delivery, now)).collect();
        Ok(Answer { messages, ..Answer::default() })
    }

    /// Messages of the queue; of an attempt that is repeated those that it got, unless something happened to one.
    async fn reserve(&self, queue: &Queue, wanted: &Wanted) -> crate::model::error::Result<Vec<Delivery>> {
        let visibility_timeout = wanted.visibility_timeout.map(|timeout| timeout.max(VISIBILITY_TIMEOUT_MIN));
        let (topic, group) = (&queue.topic, &queue.group);
        let before = wanted.attempt.as_deref().and_then(|id| self.attempts.receipts(queue, id, self.clock.instant()));
        if let Some(receipts) = before
            && let Some(again) = self.broker.repeat_deliveries(topic, group, &receipts, visibility_timeout).await?
        {
            return Ok(again);
        }
        let reserve = ReserveRequest { max: wanted.max, wait: wanted.wait, visibility_timeout };
        // Of a FIFO queue successive messages of a group come together, each with its own visibility.
        let selection = match queue.is_fifo() && wanted.max > 1 {
            true => Selection { per_key: wanted.max, on_failure: OnFailure::KeepRest, ..Selection::default() },
            false => Selection::default(),
        };
        Ok(self.broker.reserve_existing(topic, group, reserve, selection).await?.deliveries)
    }
}

fn not_taken(why: TakeError) -> Failure {
    match why {
        TakeError::Full => Failure::new(THROTTLED, "As many consumers wait as may."),
        TakeError::Revoked => unknown_token(),
        TakeError::NoRoom => {
            Failure::new(UNAVAILABLE, "Answers that clients do not read take all the memory for answers.")
        }
    }
}

fn received(
    sqs: &Sqs,
    caller: &Caller,
    (queue, wanted): (&Queue, &Wanted),
    delivery: Delivery,
    now: Timestamp,
) -> Received {
    let envelope = &delivery.message.envelope;
    let mut message_attributes = send::attributes_of(envelope);
    message_attributes.retain(|name, _| wanted.has_user(name));
    let text = str::from_utf8(&envelope.payload).ok().filter(|text| text.chars().all(is_xml));
    let body = text.map_or_else(|| STANDARD.encode(&envelope.payload), str::to_owned);
    if text.is_none() {
        let (data_type, string_value) = ("String".to_owned(), Some("base64".to_owned()));
        let base64 = AttributeValue { data_type, string_value, binary_value: None };
        message_attributes.insert(ENCODING.to_owned(), base64);
    }
    let mut system = system_attributes(queue, &delivery, now);
    if let Some(source) = &envelope.dead_letter_source {
        system.push(("DeadLetterQueueSourceArn", caller.arn(&sqs.options.account, source.topic.as_str())));
    }
    Received {
        message_id: ids::of_message(delivery.message.id.as_str()),
        receipt_handle: delivery.receipt.clone(),
        md5_of_body: hex_md5(body.as_bytes()),
        body,
        attributes: system
            .into_iter()
            .filter(|(name, _)| wanted.has_system(name))
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
        md5_of_attributes: attributes_md5(&message_attributes),
        message_attributes,
    }
}

fn system_attributes(queue: &Queue, delivery: &Delivery, now: Timestamp) -> Vec<(&'static str, String)> {
    let envelope = &delivery.message.envelope;
    // Deliveries in the queue where it died count, too.
    let attempts = envelope.dead_letter_source.as_ref().map_or(0, |source| source.attempts) + delivery.attempt;
    let first = if delivery.attempt == 1 { now } else { delivery.message.due_at };
    let meta = |name: &str| envelope.meta.iter().find(|(given, _)| given == name).map(|(_, value)| value.clone());
    let mut all = vec![
        ("SenderId", meta(SENDER_META).unwrap_or_else(|| "dwell".to_owned())),
        ("SentTimestamp", envelope.pushed_at.as_ms().to_string()),
        ("ApproximateFirstReceiveTimestamp", first.as_ms().to_string()),
        ("ApproximateReceiveCount", attempts.to_string()),
    ];
    if queue.is_fifo() {
        let id = delivery.message.id.as_str();
        all.push(("SequenceNumber", ids::sequence_number(id, envelope.pushed_at)));
    }
    all.extend(envelope.key.as_ref().map(|key| ("MessageGroupId", key.to_string())));
    all.extend(meta(DEDUP_META).map(|dedup| ("MessageDeduplicationId", dedup)));
    all.extend(meta(TRACE_META).map(|trace| ("AWSTraceHeader", trace)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_chosen_by_name_prefix_and_all() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let wanted = |system: &[&str], user: &[&str]| Wanted {
            max: 1,
            wait: Duration::ZERO,
            visibility_timeout: None,
            system: names(system),
            user: names(user),
            attempt: None,
        };
        for all in ["All", "*", ".*"] {
            assert!(wanted(&[], &[all]).has_user("a.b"), "{all}");
        }
        let some = wanted(&["SenderId"], &["a.*", "c"]);
        assert_eq!(
            ["a.b", "c", "a", "ab", "c.d", "b"].map(|name| some.has_user(name)),
            [true, true, true, true, false, false]
        );
        assert!(some.has_system("SenderId") && !some.has_system("SentTimestamp"));
        assert!(wanted(&["All"], &[]).has_system("SentTimestamp"));
    }
}
