//! Queues: which one a request means; a name becomes a topic and a group, and the attributes of a queue settings and annotations
//! of the topic.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::errors::{Failure, INVALID_ADDRESS, INVALID_ATTRIBUTE, INVALID_NAME, NAME_EXISTS, Result};
use crate::model::limits::{ATTEMPTS_MAX, VISIBILITY_TIMEOUT_MIN};
use crate::model::message::{GroupName, TopicName};
use crate::model::retry::{Backoff, LadderStep};
use crate::model::topic::{DeadLetterTopic, Descriptor, Ordering, Settings};

/// Annotations with this prefix are attributes of the queue, the others are its tags.
pub(crate) const PREFIX: &str = "sqs.";

/// How long the id of a consumed message is remembered: a client repeats a request for a shorter time.
const REMEMBERED: Duration = Duration::from_secs(300);
/// Partitions of a high-throughput FIFO queue, times those of other queues.
const FIFO_PARTITIONS: u16 = 8;

/// A topic and a group as a client sees them.
#[derive(Debug, Clone)]
pub(crate) struct Queue {
    pub(crate) name: String,
    pub(crate) topic: TopicName,
    pub(crate) group: GroupName,
    pub(crate) descriptor: Arc<Descriptor>,
}

/// An attribute that is a number: its range, and what it is without being set.
struct Number {
    name: &'static str,
    min: u64,
    max: u64,
    default: Option<u64>,
}

const fn number(name: &'static str, min: u64, max: u64, default: Option<u64>) -> Number {
    Number { name, min, max, default }
}

const NUMBERS: [Number; 6] = [
    number("DelaySeconds", 0, 900, Some(0)),
    number("KmsDataKeyReusePeriodSeconds", 60, 86_400, None),
    number("MaximumMessageSize", 1_024, 1_048_576, Some(1_048_576)),
    number(RETENTION, 60, 1_209_600, Some(345_600)),
    number("ReceiveMessageWaitTimeSeconds", 0, 20, Some(0)),
    number(VISIBILITY, 0, 43_200, Some(30)),
];
const RETENTION: &str = "MessageRetentionPeriod";
pub(crate) const VISIBILITY: &str = "VisibilityTimeout";
const REDRIVE: &str = "RedrivePolicy";
pub(crate) const FIFO_QUEUE: &str = "FifoQueue";
pub(crate) const CONTENT_BASED: &str = "ContentBasedDeduplication";
pub(crate) const SCOPE: &str = "DeduplicationScope";
const THROUGHPUT: &str = "FifoThroughputLimit";
pub(crate) const POLICY: &str = "Policy";
/// An annotation that a purge of a FIFO queue changes: deduplication ids of before do not count any more.
pub(crate) const PURGED: &str = "Purged";
const SSE: &str = "SqsManagedSseEnabled";
const TEXTS: [&str; 3] = [POLICY, "RedriveAllowPolicy", "KmsMasterKeyId"];
const COMPUTED: [&str; 6] = [
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesDelayed",
    "ApproximateNumberOfMessagesNotVisible",
    "CreatedTimestamp",
    "LastModifiedTimestamp",
    "QueueArn",
];
const OF_FIFO: [&str; 4] = [FIFO_QUEUE, CONTENT_BASED, SCOPE, THROUGHPUT];

/// Whether attributes of a new queue say more than its kind, which its name says too.
pub(crate) fn has_settings(attributes: &Attributes) -> bool {
    attributes.keys().any(|name| name != FIFO_QUEUE)
}

/// Everything that can be asked for.
pub(crate) fn is_attribute(name: &str) -> bool {
    let all = TEXTS.iter().chain(&COMPUTED).chain(&OF_FIFO).chain(&[REDRIVE, SSE]);
    all.copied().chain(NUMBERS.iter().map(|number| number.name)).any(|known| known == name)
}

pub(crate) type Attributes = BTreeMap<String, String>;

/// When messages of a queue die, and where they go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RedrivePolicy {
    pub(crate) target: TopicName,
    max_receive_count: u32,
}

impl RedrivePolicy {
    fn read(text: &str) -> Result<RedrivePolicy> {
        let invalid = |reason: &str| Failure::parameter(REDRIVE, text, reason);
        let policy: BTreeMap<String, Value> =
            serde_json::from_str(text).map_err(|_| invalid("Redrive policy is not a valid JSON map."))?;
        let mandatory = |name: &str| {
            let reason = format!("Redrive policy does not contain mandatory attribute: {name}.");
            policy.get(name).ok_or_else(|| invalid(&reason))
        };
        let (arn, count) = (mandatory("deadLetterTargetArn")?, mandatory("maxReceiveCount")?);
        let target = arn.as_str().and_then(name_of_arn).and_then(|name| TopicName::new(name).ok());
        let target = target.ok_or_else(|| invalid("Dead letter target is not a valid ARN."))?;
        let shown = count.as_str().map_or_else(|| count.to_string(), str::to_owned);
        let in_range = shown.parse().ok().filter(|count| (1..=ATTEMPTS_MAX).contains(count));
        let reason = format!(
            "Invalid value for maxReceiveCount: {shown}, valid values are from 1 to {ATTEMPTS_MAX} both inclusive."
        );
        let max_receive_count = in_range.ok_or_else(|| invalid(&reason))?;
        Ok(RedrivePolicy { target, max_receive_count })
    }

    fn of(settings: &Settings) -> Option<RedrivePolicy> {
        let target = settings.dead_letter.as_ref()?.topic.clone();
        Some(RedrivePolicy { target, max_receive_count: settings.max_attempts })
    }

    fn set(policy: Option<RedrivePolicy>, settings: &mut Settings) {
        settings.max_attempts = policy.as_ref().map_or(0, |policy| policy.max_receive_count);
        settings.dead_letter = policy.map(|policy| DeadLetterTopic { topic: policy.target });
    }
}

pub(crate) fn redrive_target(settings: &Settings) -> Option<TopicName> {
    RedrivePolicy::of(settings).map(|policy| policy.target)
}

/// The settings of a queue that nobody says anything about. Errors: `InvalidParameterValue`.
pub(crate) fn standard(name: &str, attributes: &Attributes, partitions: NonZeroU16) -> Result<Settings> {
    let is_fifo = name.ends_with(FIFO);
    let is_given = attributes.get(FIFO_QUEUE).is_some_and(|text| text.eq_ignore_ascii_case("true"));
    match (is_fifo, is_given) {
        (true, true) | (false, false) => {}
        (true, false) => {
            let why = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length";
            return Err(Failure::invalid(why));
        }
        (false, true) => {
            let why = "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end \
                       with .fifo suffix and be 1 to 80 in length.";
            return Err(Failure::invalid(why));
        }
    }
    let is = |name: &str, value: &str| attributes.get(name).is_some_and(|given| given == value);
    let is_fast = is(SCOPE, "messageGroup") && is(THROUGHPUT, "perMessageGroupId");
    let fifo_partitions = match is_fast {
        true => partitions.saturating_mul(NonZeroU16::MIN.saturating_add(FIFO_PARTITIONS - 1)),
        false => NonZeroU16::MIN,
    };
    let retention = NUMBERS.iter().find(|number| number.name == RETENTION).and_then(|number| number.default);
    Ok(Settings {
        partitions: if is_fifo { fifo_partitions } else { partitions },
        ordering: if is_fifo { Ordering::Key } else { Ordering::None },
        visibility_timeout: Duration::from_secs(30),
        max_attempts: 0,
        backoff: Backoff::Ladder { steps: vec![LadderStep(Duration::ZERO)] },
        dedup_window: REMEMBERED,
        ttl: Duration::from_secs(retention.unwrap_or_default()),
        ..Settings::default()
    })
}

/// Settings with other attributes. Errors: those of AWS, for an attribute that is unknown or wrong.
pub(crate) fn changed(mut settings: Settings, name: &str, attributes: &Attributes) -> Result<Settings> {
    let is_fifo = name.ends_with(FIFO);
    for (attribute, value) in attributes {
        if !is_fifo && [SCOPE, THROUGHPUT].contains(&attribute.as_str()) {
            let why = format!("You can specify the {attribute} only when FifoQueue is set to true.");
            return Err(Failure::new(INVALID_NAME, why));
        }
        let is_of_fifo = [FIFO_QUEUE, CONTENT_BASED].contains(&attribute.as_str());
        if !is_attribute(attribute) || COMPUTED.contains(&attribute.as_str()) || !is_fifo && is_of_fifo {
            return Err(Failure::new(INVALID_NAME, format!("Unknown Attribute {attribute}.")));
        }
        change(&mut settings, attribute, value, is_fifo)?;
    }
    settings.annotations.check()?;
    Ok(settings)
}

fn change(settings: &mut Settings, attribute: &str, value: &str, is_fifo: bool) -> Result<()> {
    let wrong = || Failure::attribute(attribute);
    if let Some(number) = NUMBERS.iter().find(|number| number.name == attribute) {
        let value: u64 = value.trim().parse().map_err(|_| wrong())?;
        if !(number.min..=number.max).contains(&value) {
            return Err(wrong());
        }
        match attribute {
            RETENTION => settings.ttl = Duration::from_secs(value),
            VISIBILITY => settings.visibility_timeout = Duration::from_secs(value).max(VISIBILITY_TIMEOUT_MIN),
            _ => annotate(settings, attribute, &value.to_string()),
        }
        return Ok(());
    }
    match attribute {
        // The others were refused before.
        FIFO_QUEUE => {}
        CONTENT_BASED | SSE => match value.to_ascii_lowercase().as_str() {
            value @ ("true" | "false") => annotate(settings, attribute, value),
            _ => return Err(wrong()),
        },
        SCOPE if ["queue", "messageGroup"].contains(&value) => annotate(settings, attribute, value),
        THROUGHPUT if ["perQueue", "perMessageGroupId"].contains(&value) => annotate(settings, attribute, value),
        SCOPE | THROUGHPUT => return Err(wrong()),
        REDRIVE if value.is_empty() => RedrivePolicy::set(None, settings),
        REDRIVE => {
            let policy = RedrivePolicy::read(value)?;
            if policy.target.as_str().ends_with(FIFO) != is_fifo {
                let why = "Dead-letter queue must be same type of queue as the source.";
                return Err(Failure::parameter(REDRIVE, value, why));
            }
            RedrivePolicy::set(Some(policy), settings);
        }
        _ => annotate(settings, attribute, value),
    }
    Ok(())
}

/// An empty text removes the annotation.
fn annotate(settings: &mut Settings, attribute: &str, value: &str) {
    let name = format!("{PREFIX}{attribute}");
    match value {
        "" => settings.annotations.remove(&name),
        value => settings.annotations.set(name, value),
    }
}

/// The first attribute that is sent and differs. Errors: `QueueNameExists`.
pub(crate) fn check_equal(asked: &Attributes, there: &Attributes) -> Result<()> {
    let is_equal = |name: &str, value: &str| match there.get(name) {
        None => value.is_empty(),
        Some(there) if name == REDRIVE => {
            serde_json::from_str::<Value>(there).ok() == serde_json::from_str::<Value>(&unquoted_count(value)).ok()
        }
        Some(there) => there.eq_ignore_ascii_case(value.trim()),
    };
    match asked.iter().find(|(name, value)| !is_equal(name, value)) {
        None => Ok(()),
        Some((name, _)) => {
            let why = format!("A queue already exists with the same name and a different value for attribute {name}");
            Err(Failure::new(NAME_EXISTS, why))
        }
    }
}

/// A redrive policy whose count may be a text, with a number.
fn unquoted_count(policy: &str) -> String {
    let Ok(mut policy) = serde_json::from_str::<Value>(policy) else { return policy.to_owned() };
    if let Some(count) = policy.get("maxReceiveCount").and_then(Value::as_str).and_then(|it| it.parse::<u32>().ok()) {
        policy["maxReceiveCount"] = count.into();
    }
    policy.to_string()
}

/// Which of two queues a name means: the topic of that name, or the group of another topic. The one that was there first, so that
/// nobody takes a queue from its clients with a new topic or group. Errors: `QueueDoesNotExist`.
pub(crate) fn older(topic: Option<Queue>, group: Option<Queue>) -> Result<Queue> {
    match (topic, group) {
        (Some(topic), Some(group)) if topic.born() < group.born() => Ok(topic),
        (_, Some(group)) => Ok(group),
        (Some(topic), None) => Ok(topic),
        (None, None) => Err(Failure::no_queue()),
    }
}

/// A native topic's span may have parts of a second.
fn seconds_up(span: Duration) -> u64 {
    span.as_secs() + u64::from(span.subsec_nanos() > 0)
}

impl Queue {
    pub(crate) fn is_fifo(&self) -> bool {
        self.topic.as_str().ends_with(FIFO)
    }

    /// Whether it is one group of a topic, and not the topic itself.
    pub(crate) fn is_group(&self) -> bool {
        self.name != self.topic.as_str()
    }

    /// The generation that created it; one that the store does not have yet is the youngest.
    fn born(&self) -> u64 {
        let topic = match self.descriptor.incarnation {
            0 => u64::MAX,
            incarnation => incarnation,
        };
        match self.is_group() {
            true => topic.max(self.descriptor.subscription(&self.group).born),
            false => topic,
        }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.descriptor.settings
    }

    /// An attribute that is kept as an annotation.
    pub(crate) fn annotation(&self, name: &str) -> Option<&str> {
        self.settings().annotations.get(&format!("{PREFIX}{name}"))
    }

    /// An attribute that is a number; 0 for one without a default.
    pub(crate) fn number(&self, name: &str) -> u64 {
        let default = NUMBERS.iter().find(|number| number.name == name).and_then(|number| number.default);
        let value = match name {
            // How 0 is kept.
            VISIBILITY if self.settings().visibility_timeout == VISIBILITY_TIMEOUT_MIN => Some(0),
            VISIBILITY => Some(seconds_up(self.settings().visibility_timeout)),
            RETENTION if self.settings().ttl.is_zero() => Some(1_209_600),
            RETENTION => Some(seconds_up(self.settings().ttl)),
            _ => self.annotation(name).and_then(|text| text.parse().ok()),
        };
        value.or(default).unwrap_or_default()
    }

    pub(crate) fn tags(&self) -> BTreeMap<String, String> {
        let tags = self.settings().annotations.iter().filter(|(name, _)| !name.starts_with(PREFIX));
        tags.map(|(name, text)| (name.to_owned(), text.to_owned())).collect()
    }

    /// All attributes but the counts. `arn` makes the ARN of a queue.
    pub(crate) fn attributes(&self, arn: impl Fn(&str) -> String) -> Attributes {
        let mut all = Attributes::new();
        let mut set = |name: &str, value: String| drop(all.insert(name.to_owned(), value));
        for number in NUMBERS.iter().filter(|it| it.default.is_some() || self.annotation(it.name).is_some()) {
            set(number.name, self.number(number.name).to_string());
        }
        for name in TEXTS {
            if let Some(text) = self.annotation(name) {
                set(name, text.to_owned());
            }
        }
        set(SSE, self.annotation(SSE).unwrap_or("true").to_owned());
        set("QueueArn", arn(&self.name));
        set("CreatedTimestamp", (self.descriptor.incarnation / 1_000).to_string());
        set("LastModifiedTimestamp", (self.descriptor.generation / 1_000).to_string());
        if let Some(RedrivePolicy { target, max_receive_count }) = RedrivePolicy::of(self.settings()) {
            let policy = json!({"deadLetterTargetArn": arn(target.as_str()), "maxReceiveCount": max_receive_count});
            set(REDRIVE, policy.to_string());
        }
        if self.is_fifo() {
            set(FIFO_QUEUE, "true".to_owned());
            for (name, default) in [(CONTENT_BASED, "false"), (SCOPE, "queue"), (THROUGHPUT, "perQueue")] {
                set(name, self.annotation(name).unwrap_or(default).to_owned());
            }
        }
        all
    }
}

/// The type of a queue is fixed. Errors: `InvalidAttributeValue`, `InvalidAttributeName`.
pub(crate) fn check_type_unchanged(queue: &Queue, attributes: &Attributes) -> Result<()> {
    match attributes.get(FIFO_QUEUE) {
        Some(_) if !queue.is_fifo() => Err(Failure::new(INVALID_NAME, "Unknown Attribute FifoQueue.")),
        Some(value) if !value.eq_ignore_ascii_case("true") => Err(Failure::new(
            INVALID_ATTRIBUTE,
            "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported.",
        )),
        _ => Ok(()),
    }
}

/// Characters of a name of a queue.
const NAME_MAX: usize = 80;
pub(crate) const FIFO: &str = ".fifo";

/// The name of the queue that a request means: the parameter wins over the path, and of both only the last segment
/// counts. Errors: `MissingParameter`, `InvalidAddress`.
pub(crate) fn queue_name<'a>(queue_url: Option<&'a str>, path: &'a str) -> Result<&'a str> {
    let of_path = path.trim_matches('/').rsplit_once('/').map(|(_, name)| name);
    let name = match queue_url {
        Some(url) => url.rsplit('/').next(),
        None => of_path,
    };
    let name = name.ok_or_else(|| Failure::missing("QueueUrl"))?;
    let invalid = || Failure::new(INVALID_ADDRESS, format!("The address {name} is not valid for this endpoint."));
    is_queue_name(name).then_some(name).ok_or_else(invalid)
}

/// Bytes of an ARN, as at AWS. It is kept with a move of messages, and shown again.
const ARN_BYTES_MAX: usize = 2_048;

/// The last part of an ARN.
pub(crate) fn name_of_arn(arn: &str) -> Option<&str> {
    let name = arn.strip_prefix("arn:").filter(|_| arn.len() <= ARN_BYTES_MAX)?.rsplit(':').next()?;
    is_queue_name(name).then_some(name)
}

pub(crate) fn is_queue_name(name: &str) -> bool {
    let stem = name.strip_suffix(FIFO).unwrap_or(name);
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    name.len() <= NAME_MAX && !stem.is_empty() && stem.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_named_by_url_name_or_path() {
        let name = |url, path| queue_name(url, path).ok();
        assert_eq!(name(Some("http://h:1/000000000000/orders"), "/0/other"), Some("orders"));
        assert_eq!(name(Some("orders.fifo"), "/"), Some("orders.fifo"));
        assert_eq!(name(None, "/000000000000/orders"), Some("orders"));
        assert_eq!(name(None, "/queue/orders/"), Some("orders"));
        assert_eq!(queue_name(None, "/"), Err(Failure::missing("QueueUrl")));
        for wrong in ["", "http://h/0/", "http://h/0/a.b", ".fifo", "ö"] {
            assert!(queue_name(Some(wrong), "/").is_err_and(|failure| failure.class == INVALID_ADDRESS), "{wrong}");
        }
        assert_eq!(name_of_arn("arn:aws:sqs:eu-west-1:000000000000:orders"), Some("orders"));
        assert_eq!(name_of_arn("orders"), None);
        let long = |zone: usize| format!("arn:{}:orders", "z".repeat(zone));
        assert_eq!(name_of_arn(&long(ARN_BYTES_MAX - 11)), Some("orders"));
        assert_eq!(name_of_arn(&long(ARN_BYTES_MAX - 10)), None);
        assert!(is_queue_name(&"a".repeat(80)) && !is_queue_name(&"a".repeat(81)));
        assert!(!is_queue_name(&format!("{}.fifo", "a".repeat(76))));
    }
}
