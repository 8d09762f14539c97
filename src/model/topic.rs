//! A topic: its name, its groups, its settings and its annotations.

mod key_patterns;
mod key_limits;
mod subscription;

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::time::Duration;

use dwell_client::wire::items::Object;
use dwell_client::wire::topics::{self, DeadLetter, TopicSettings};
use serde::{Deserialize, Serialize};

pub use self::key_limits::{KeyException, KeyLimits, KeyRate, KeySettings, Weight};
pub use self::key_patterns::KeyPatterns;
pub use self::subscription::{Fairness, Pause, Rest, Subscription};
use crate::model::error::{Error, Fault, Result};
use crate::model::limits::{
    ANNOTATION_NAME_BYTES_MAX, ANNOTATIONS_BYTES_MAX, ATTEMPTS_MAX, DEAD_MAX_AGE_MAX, DEAD_MAX_COUNT_MAX,
    DEDUP_WINDOW_MAX, DELAY_MAX, GROUPS_MAX, PARTITIONS_MAX, RATE_MAX, RATE_MIN, SLOT_OPEN, VISIBILITY_TIMEOUT_MAX,
    VISIBILITY_TIMEOUT_MIN,
};
use crate::model::message::{GroupName, TopicName};
use crate::model::partition::Partition;
use crate::model::retry::Backoff;
use crate::model::time::{millis, one_span, show_span};
use crate::model::version::Version;

/// Settings of a topic. Every field has a default, so `{}` declares a topic.
///
/// In JSON, as it is stored and answered, durations are integers: `visibility_timeout_ms`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Number of partitions, 1 to 1024; fixed when the topic is made. Default 8.
    pub partitions: NonZeroU16,
    /// How long a consumer has before its delivery is nacked, 100 ms to 12 h. Default 30 s.
    #[serde(rename = "visibility_timeout_ms", with = "millis")]
    pub visibility_timeout: Duration,
    /// Attempts before a message is dead, 1 to 1000; 0 is without a limit. Default 16.
    pub max_attempts: u32,
    pub backoff: Backoff,
    /// How long after a message was acked a push with its id is still a duplicate; 0 is not at all. At most 7 days.
    #[serde(rename = "dedup_window_ms", with = "millis")]
    pub dedup_window: Duration,
    /// Whether the messages of a key come one after the other; fixed when the topic is made. Default none.
    pub ordering: Ordering,
    /// How long after its due time a message without its own time to live is delivered; 0 is without end. At most 3,650
    /// days.
    #[serde(rename = "ttl_ms", with = "millis")]
    pub ttl: Duration,
    /// Policy for a message whose time to live is over. Default: it is dropped.
    pub on_expiry: Expiry,
    /// How long dead messages are kept; 0 is without end. At most 3,650 days.
    #[serde(rename = "dead_max_age_ms", with = "millis")]
    pub dead_max_age: Duration,
    /// How many dead messages a group keeps in each partition, the newest; 0 is all of them. At most 10,000,000.
    pub dead_max_count: u64,
    #[serde(skip_serializing_if = "Annotations::is_empty")]
    pub annotations: Annotations,
    /// Where messages go that die of their attempts or are buried; `None`: they stay dead letters of their group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter: Option<DeadLetterTopic>,
}

/// The topic to which dead letters are forwarded. It need not exist: until it does, they stay where they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeadLetterTopic {
    pub topic: TopicName,
}

/// Order of the messages of a topic beyond their due times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ordering {
    /// None: a message that is tried again does not hold up others.
    #[default]
    None,
    /// By due time and then as pushed: none is handed out before the one ahead of it is gone or dead.
    Key,
}

impl Ordering {
    pub const ALL: &[Ordering] = &[Ordering::None, Ordering::Key];

    pub fn name(self) -> &'static str {
        match self {
            Ordering::None => "none",
            Ordering::Key => "key",
        }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            partitions: NonZeroU16::MIN.saturating_add(7),
            visibility_timeout: Duration::from_secs(30),
            max_attempts: 16,
            backoff: Backoff::default(),
            dedup_window: Duration::ZERO,
            ordering: Ordering::None,
            ttl: Duration::ZERO,
            on_expiry: Expiry::Drop,
            dead_max_age: Duration::ZERO,
            dead_max_count: 0,
            annotations: Annotations::default(),
            dead_letter: None,
        }
    }
}

impl From<Settings> for TopicSettings {
    fn from(settings: Settings) -> TopicSettings {
        let dead_letter = settings.dead_letter.map(|of| Object(DeadLetter { topic: of.topic.to_string() }));
        TopicSettings {
            partitions: Some(settings.partitions),
            visibility_timeout_ms: Some(settings.visibility_timeout),
            max_attempts: Some(settings.max_attempts),
            backoff: Some(settings.backoff.into()),
            dedup_window_ms: Some(settings.dedup_window),
            ordering: Some(settings.ordering.name().into()),
            ttl_ms: Some(settings.ttl),
            on_expiry: Some(settings.on_expiry.name().into()),
            dead_max_age_ms: Some(settings.dead_max_age),
            dead_max_count: Some(settings.dead_max_count),
            annotations: Some(settings.annotations.0).filter(|annotations| !annotations.0.is_empty()),
            dead_letter,
            ..TopicSettings::default()
        }
    }
}

/// # Errors: `Invalid` for a word that is none of `ALL`.
fn choice<T: Copy>(field: &str, word: &str, all: &[T], name: impl Fn(T) -> &'static str) -> Result<T> {
    let known = all.iter().copied().find(|known| name(*known) == word);
    known.ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|known| name(*known)).collect();
        Error::wrong(Fault::Choice, field, format!("{word:?} is none of {}", names.join(", ")))
    })
}

fn forwarding(to: DeadLetter) -> Result<Option<DeadLetterTopic>> {
    let topic = (!to.topic.is_empty()).then(|| TopicName::new(to.topic)).transpose()?;
    Ok(topic.map(|topic| DeadLetterTopic { topic }))
}

impl Settings {
    /// These settings with those that `changes` names. # Errors: `Invalid` for a value out of its range, and for a duration
    /// that is given twice.
    pub fn changed_by(self, changes: TopicSettings) -> Result<Settings> {
        let backoff = changes.backoff.map(Backoff::try_from).transpose();
        let ordering = changes.ordering.map(|word| choice("ordering", &word, Ordering::ALL, Ordering::name));
        let on_expiry = changes.on_expiry.map(|word| choice("on_expiry", &word, Expiry::ALL, Expiry::name));
        let settings = Settings {
            partitions: changes.partitions.unwrap_or(self.partitions),
            visibility_timeout: one_span(
                "visibility_timeout",
                changes.visibility_timeout,
                changes.visibility_timeout_ms,
            )?
            .unwrap_or(self.visibility_timeout),
            max_attempts: changes.max_attempts.unwrap_or(self.max_attempts),
            backoff: backoff.map_err(|why| Error::wrong(Fault::Format, "backoff", why))?.unwrap_or(self.backoff),
            dedup_window: one_span("dedup_window", changes.dedup_window, changes.dedup_window_ms)?
                .unwrap_or(self.dedup_window),
            ordering: ordering.transpose()?.unwrap_or(self.ordering),
            ttl: one_span("ttl", changes.ttl, changes.ttl_ms)?.unwrap_or(self.ttl),
            on_expiry: on_expiry.transpose()?.unwrap_or(self.on_expiry),
            dead_max_age: one_span("dead_max_age", changes.dead_max_age, changes.dead_max_age_ms)?
                .unwrap_or(self.dead_max_age),
            dead_max_count: changes.dead_max_count.unwrap_or(self.dead_max_count),
            annotations: self.annotations.changed_by(Annotations(changes.annotations.unwrap_or_default())),
            dead_letter: match changes.dead_letter {
                Some(Object(to)) => forwarding(to)?,
                None => self.dead_letter,
            },
        };
        settings.check()?;
        Ok(settings)
    }

    pub fn check(&self) -> Result<()> {
        if self.partitions.get() > PARTITIONS_MAX {
            let why = format!("{} is not in 1 to {PARTITIONS_MAX}", self.partitions);
            return Err(Error::range("partitions", why));
        }
        check_visibility_timeout(self.visibility_timeout)?;
        if self.max_attempts > ATTEMPTS_MAX {
            let why = format!("{} is not in 0 to {ATTEMPTS_MAX}", self.max_attempts);
            return Err(Error::range("max_attempts", why));
        }
        if self.dedup_window > DEDUP_WINDOW_MAX {
            return Err(Error::range("dedup_window", format!("is at most {}", show_span(DEDUP_WINDOW_MAX))));
        }
        if self.ttl > DELAY_MAX {
            return Err(Error::range("ttl", format!("is at most {}", show_span(DELAY_MAX))));
        }
        if self.dead_max_age > DEAD_MAX_AGE_MAX {
            return Err(Error::range("dead_max_age", format!("is at most {}", show_span(DEAD_MAX_AGE_MAX))));
        }
        if self.dead_max_count > DEAD_MAX_COUNT_MAX {
            return Err(Error::range("dead_max_count", format!("is at most {DEAD_MAX_COUNT_MAX}")));
        }
        self.annotations.check()?;
        self.backoff.check()
    }
}

pub fn check_visibility_timeout(timeout: Duration) -> Result<()> {
    if (VISIBILITY_TIMEOUT_MIN..=VISIBILITY_TIMEOUT_MAX).contains(&timeout) {
        return Ok(());
    }
    let range = format!("{} to {}", show_span(VISIBILITY_TIMEOUT_MIN), show_span(VISIBILITY_TIMEOUT_MAX));
    Err(Error::range("visibility_timeout", format!("{} is not in {range}", show_span(timeout))))
}

/// The generation of a descriptor that no store has yet.
pub(crate) const PROMISED: u64 = 0;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Descriptor {
    pub topic: TopicName,
    /// Grows with every change; a partition that has seen a newer one refuses a push under an older.
    pub generation: u64,
    /// The generation at which this topic was made: a topic deleted and made again is another one. In a log, of one that is promised:
    /// when, in ms on the store's clock.
    pub incarnation: u64,
    /// True once the topic was deleted: what remains is this tombstone, whose generation says when that was.
    pub deleted: bool,
    /// When a topic of this name was deleted before, ms on the store's clock; 0 if none is known. Messages pushed before that are not for
    /// this topic.
    #[serde(default, skip_serializing_if = "is_never")]
    pub deleted_at: u64,
    pub groups: Vec<GroupName>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub subscriptions: BTreeMap<GroupName, Subscription>,
    /// Groups that were deleted and whose data may still be there. Only the store sets it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaving: Vec<GroupName>,
    /// Whether it ever named a topic for its dead letters: some may be on their way.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_forwarded: bool,
    pub settings: Settings,
}

impl Descriptor {
    /// Whether no store has it yet: a broker made it while the store was unavailable. The one that is there may be another one.
    pub fn is_promised(&self) -> bool {
        self.generation == PROMISED
    }

    /// The store sets the generation.
    pub fn new(topic: TopicName, settings: Settings) -> Descriptor {
        let groups = vec![GroupName::standard()];
        let (subscriptions, leaving) = (BTreeMap::new(), Vec::new());
        Descriptor {
            topic,
            generation: 0,
            incarnation: 0,
            deleted: false,
            deleted_at: 0,
            groups,
            subscriptions,
            leaving,
            has_forwarded: settings.dead_letter.is_some(),
            settings,
        }
    }

    /// Whether an operation with this version came after the last deletion of a topic of this name.
    pub fn is_after_deletion(&self, version: Version) -> bool {
        version.as_us() > self.last_deletion().saturating_mul(1_000)
    }

    /// ms on the store's clock; 0 if none is known.
    pub fn last_deletion(&self) -> u64 {
        if self.deleted { self.generation } else { self.deleted_at }
    }

    pub fn dead_letter_topic(&self) -> Option<&TopicName> {
        self.settings.dead_letter.as_ref().map(|dead_letter| &dead_letter.topic)
    }

    pub fn is_ordered(&self) -> bool {
        self.settings.ordering == Ordering::Key
    }

    pub fn partition_of(&self, routing_key: &str) -> Partition {
        Partition::of(routing_key, self.settings.partitions)
    }

    pub fn partitions(&self) -> impl Iterator<Item = Partition> + use<> {
        (0..self.settings.partitions.get()).map(Partition)
    }

    pub fn check(&self) -> Result<()> {
        if self.groups.is_empty() || self.groups.len() > GROUPS_MAX {
            return Err(Error::range("groups", format!("a topic has 1 to {GROUPS_MAX} groups")));
        }
        if self.dead_letter_topic() == Some(&self.topic) {
            return Err(Error::invalid("dead_letter", "is the topic itself"));
        }
        self.settings.check()?;
        self.check_subscriptions()
    }

    /// Partition by partition.
    pub fn group_partitions<'a>(&'a self, groups: &'a [GroupName]) -> impl Iterator<Item = GroupPartition> + 'a {
        self.partitions()
            .flat_map(move |partition| groups.iter().map(move |group| self.group_partition(partition, group)))
    }

    pub fn group_partition(&self, partition: Partition, group: &GroupName) -> GroupPartition {
        GroupPartition { topic: self.topic.clone(), partition, group: group.clone() }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_never(deleted_at: &u64) -> bool {
    *deleted_at == 0
}

/// One group's part of one partition, with its own sorted set and hash. The unit of ownership.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupPartition {
    pub topic: TopicName,
    pub partition: Partition,
    pub group: GroupName,
}

impl std::fmt::Display for GroupPartition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.topic, self.partition, self.group)
    }
}

/// Policy for a message that expires before it was handed out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Expiry {
    #[default]
    Drop,
    /// It is dead, with the reason `expired`.
    Bury,
}

impl Expiry {
    pub const ALL: &[Expiry] = &[Expiry::Drop, Expiry::Bury];

    pub fn name(self) -> &'static str {
        match self {
            Expiry::Drop => "drop",
            Expiry::Bury => "bury",
        }
    }

    pub fn named(name: &str) -> Option<Expiry> {
        Expiry::ALL.iter().copied().find(|expiry| expiry.name() == name)
    }
}

/// So many messages a second at most, by all members of a group together.
///
/// Each hand-over needs its own slot. Slots begin at least [`Rate::spacing`] apart and are open for [`SLOT_OPEN`];
/// one that nobody used in that time is gone. In any second there are hand-overs of slots that began in it or up to
/// `SLOT_OPEN` before, in an interval of 1.05 s without its ends; and since slots are 1.05 s divided by the rate apart,
/// that is never more of them than the rate, rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Rate(f64);

impl Rate {
    pub fn new(per_second: f64) -> Result<Rate> {
        Rate::checked(per_second, per_second).map_err(|why| Error::range("rate", why))
    }

    /// 0 is none. Errors: not a number, out of range, or so small that a computer takes it for 0.
    pub fn read_limit(text: &str) -> Result<Option<Rate>, String> {
        let per_second: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
        let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
        let is_zero = !mantissa.bytes().any(|digit| (b'1'..=b'9').contains(&digit));
        match per_second == 0.0 && is_zero {
            true => Ok(None),
            false => Rate::checked(per_second, text).map(Some),
        }
    }

    fn checked(per_second: f64, shown: impl std::fmt::Display) -> Result<Rate, String> {
        if (RATE_MIN..=RATE_MAX).contains(&per_second) {
            return Ok(Rate(per_second));
        }
        Err(format!("{shown} is not in {RATE_MIN} to {RATE_MAX} messages a second"))
    }

    /// From the beginning of one slot to that of the next; rounded up to microseconds.
    pub fn spacing(self) -> Duration {
        let micros = ((Duration::from_secs(1) + SLOT_OPEN).as_secs_f64() * 1e6 / self.0).ceil();
        Duration::from_micros(micros as u64)
    }
}

impl TryFrom<f64> for Rate {
    type Error = Error;

    fn try_from(per_second: f64) -> Result<Rate> {
        Rate::new(per_second)
    }
}

impl From<Rate> for f64 {
    fn from(rate: Rate) -> f64 {
        rate.0
    }
}

/// Texts that dwell keeps and shows, and does not read: names of 1 to 128 bytes and their texts, at most 16 KiB together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Annotations(topics::Annotations);

impl Annotations {
    pub fn is_empty(&self) -> bool {
        self.0.0.is_empty()
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.0.get(name).map(String::as_str)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.0.iter().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    /// These with changes: an empty text removes an annotation.
    pub fn changed_by(mut self, changes: Annotations) -> Annotations {
        self.0.0.extend(changes.0.0);
        self.0.0.retain(|_, text| !text.is_empty());
        self
    }

    /// Adds an annotation, or changes its text.
    pub fn set(&mut self, name: impl Into<String>, text: impl Into<String>) {
        self.0.0.insert(name.into(), text.into());
    }

    pub fn remove(&mut self, name: &str) {
        self.0.0.remove(name);
    }

    /// Errors: `Invalid` for a name or a size that is out of range.
    pub fn check(&self) -> Result<()> {
        let names = 1..=ANNOTATION_NAME_BYTES_MAX;
        if let Some(name) = self.0.0.keys().find(|name| !names.contains(&name.len())) {
            let why = format!("a name has {} bytes, not 1 to {ANNOTATION_NAME_BYTES_MAX}", name.len());
            return Err(Error::range("annotations", why));
        }
        let bytes: usize = self.iter().map(|(name, text)| name.len() + text.len()).sum();
        if bytes > ANNOTATIONS_BYTES_MAX {
            let why = format!("has {bytes} bytes of names and texts, at most {ANNOTATIONS_BYTES_MAX}");
            return Err(Error::range("annotations", why));
        }
        Ok(())
    }
}

impl FromIterator<(String, String)> for Annotations {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(annotations: I) -> Annotations {
        Annotations(topics::Annotations(annotations.into_iter().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numeric_settings_round_trip_exactly() -> std::result::Result<(), serde_json::Error> {
        let long = format!("0.2{}", "4".repeat(90));
        let json =
            format!(r#"{{"kind":"exponential","initial_ms":1000,"max_ms":600000,"factor":2.0,"jitter":{long}}}"#);
        let said: Backoff = serde_json::from_str(&json)?;
        let kept: Backoff = serde_json::from_str(&serde_json::to_string(&said)?)?;
        assert_eq!(kept, said);
        Ok(())
    }

    #[test]
    fn an_empty_object_is_the_default_and_a_misspelt_field_is_refused() {
        let read = |text| serde_json::from_str::<Settings>(text);
        assert_eq!(read("{}").ok(), Some(Settings::default()));
        assert!(read(r#"{"partition": 3}"#).is_err());
        assert!(read(r#"{"partitions": 0}"#).is_err());
        assert!(read(r#"{"partitions": 3, "partitions": 4}"#).is_err());
    }

    #[test]
    fn setting_ranges_are_checked() {
        let with = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            settings.check()
        };
        assert!(with(|s| s.visibility_timeout = VISIBILITY_TIMEOUT_MIN).is_ok());
        assert!(with(|s| s.visibility_timeout = VISIBILITY_TIMEOUT_MIN / 2).is_err());
        assert!(with(|s| s.visibility_timeout = VISIBILITY_TIMEOUT_MAX * 2).is_err());
        assert!(with(|s| s.max_attempts = 0).is_ok());
        assert!(with(|s| s.max_attempts = ATTEMPTS_MAX + 1).is_err());
        assert!(with(|s| s.dedup_window = DEDUP_WINDOW_MAX * 2).is_err());
        assert!(with(|s| s.ttl = DELAY_MAX).is_ok());
        assert!(with(|s| s.ttl = DELAY_MAX * 2).is_err());
        assert!(with(|s| s.partitions = NonZeroU16::MAX).is_err());
        assert!(with(|s| s.dead_max_age = DEAD_MAX_AGE_MAX).is_ok());
        assert!(with(|s| s.dead_max_age = DEAD_MAX_AGE_MAX * 2).is_err());
        assert!(with(|s| s.dead_max_count = DEAD_MAX_COUNT_MAX).is_ok());
        assert!(with(|s| s.dead_max_count = DEAD_MAX_COUNT_MAX + 1).is_err());
    }

    #[test]
    fn no_second_exceeds_the_rate_in_slots() -> Result<()> {
        for rate in [1.0, 3.0, 7.0, 10.0, 47.0, 1_000.0] {
            let spacing = Rate::new(rate)?.spacing();
            // Slots that began in the second or were still open at its beginning, wherever it begins.
            let seen = Duration::from_secs(1) + SLOT_OPEN;
            let most = (seen.as_nanos() - 1) / spacing.as_nanos() + 1;
            assert!(most as f64 <= rate, "{most} of {rate}");
            assert!(most as f64 > rate * 0.9, "{most} of {rate}");
        }
        assert_eq!(Rate::new(0.5)?.spacing(), Duration::from_millis(2_100));
        assert!(Rate::new(RATE_MAX).is_ok() && Rate::new(RATE_MIN).is_ok());
        for none in ["0", "0.0", "-0", "0e5", "0E-9"] {
            assert_eq!(Rate::read_limit(none), Ok(None), "{none}");
        }
        for wrong in ["1e-400", "0.1e-400", "-1e-999", "1e400", "nan", "", "5x", "0.0001"] {
            assert!(Rate::read_limit(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Rate::read_limit("2.5e1"), Ok(Some(Rate::new(25.0)?)));
        for wrong in [0.0, -1.0, RATE_MAX * 1.01, RATE_MIN / 2.0, f64::NAN, f64::INFINITY] {
            assert!(Rate::new(wrong).is_err(), "{wrong}");
        }
        Ok(())
    }

    fn annotations(json: &str) -> serde_json::Result<Annotations> {
        serde_json::from_str(json)
    }

    #[test]
    fn an_empty_text_removes_an_annotation() -> serde_json::Result<()> {
        let before = annotations(r#"{"team": "checkout", "tier": "1"}"#)?;
        let after = before.changed_by(annotations(r#"{"tier": "", "owner": "ada", "absent": ""}"#)?);
        assert_eq!(after, annotations(r#"{"owner": "ada", "team": "checkout"}"#)?);
        assert!(annotations(r#"{"a": "1", "a": "2"}"#).is_err_and(|error| error.to_string().contains("given twice")));
        assert!(annotations(r#"{"a": 1}"#).is_err() && annotations(r#"{"a": null}"#).is_err());
        Ok(())
    }

    #[test]
    fn limits_are_checked() {
        let one = |name: usize, text: usize| Annotations::from_iter([("n".repeat(name), "é".repeat(text))]).check();
        assert!(one(ANNOTATION_NAME_BYTES_MAX, 1).is_ok());
        assert!(one(0, 1).is_err() && one(ANNOTATION_NAME_BYTES_MAX + 1, 1).is_err());
        assert!(one(2, ANNOTATIONS_BYTES_MAX / 2 - 1).is_ok());
        assert!(one(2, ANNOTATIONS_BYTES_MAX / 2).is_err());
    }
}
