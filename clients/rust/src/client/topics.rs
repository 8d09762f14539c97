//! Topics: created, described, moved and deleted; and their settings, written by a builder.

use std::num::NonZeroU16;
use std::time::Duration;

use hyper::Method;
use hyper::header::{HeaderValue, IF_MATCH};

use super::error::Error;
use super::pages::Pages;
use super::{Call, Client, Put, topic_path};
use crate::wire::items::Object;
use crate::wire::topics::{
    Annotations, Backoff, DeadLetter, LadderStep, MoveTo, Moved, Topic, TopicDescription, TopicList, TopicSettings,
};

impl Client {
    /// Creates a topic, or changes the settings of one that are given. A second call changes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with `conflict`: it has another number of partitions or another ordering.
    pub async fn create_topic(&self, topic: &str, settings: TopicSettings) -> Result<Put<Topic>, Error> {
        self.put(&Call::new(Method::PUT, topic_path(topic)?).json(&settings)?).await
    }

    /// Changes the settings of a topic that are given. It creates none.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with `precondition-failed`: the topic does not exist; with `conflict`: as [`Client::create_topic`].
    pub async fn update_topic(&self, topic: &str, settings: TopicSettings) -> Result<Topic, Error> {
        let mut call = Call::new(Method::PUT, topic_path(topic)?).json(&settings)?;
        call.header = Some((IF_MATCH, HeaderValue::from_static("*")));
        self.call(&call).await
    }

    /// A topic with its settings and counts.
    pub async fn topic(&self, topic: &str) -> Result<TopicDescription, Error> {
        self.call(&Call::get(topic_path(topic)?)).await
    }

    /// The names of all topics, sorted.
    pub async fn topics(&self) -> Result<Vec<String>, Error> {
        let list: TopicList = self.call(&Call::get("/v1/topics")).await?;
        Ok(list.topics)
    }

    /// Deletes a topic with all its messages.
    pub async fn delete_topic(&self, topic: &str) -> Result<(), Error> {
        self.call(&Call::new(Method::DELETE, topic_path(topic)?)).await
    }

    /// Moves the messages of a topic to another one, which is created if it does not exist, with this number of partitions if it is
    /// given. Each item is the progress of another 5 seconds; [`Pages::total`] moves all.
    pub fn move_topic(&self, topic: &str, to: &str, partitions: Option<u16>) -> Pages<Moved> {
        let (topic, to) = (topic.to_owned(), to.to_owned());
        let ask = move |_: Option<&str>| {
            super::not_empty("to", &to)?;
            let partitions = partitions.map(count).transpose()?;
            Call::post(format!("{}/move", topic_path(&topic)?)).json(&MoveTo { to: to.clone(), partitions })
        };
        // There is no cursor: the request is repeated until it is done.
        Pages::new(self, ask, |moved: Moved| {
            let next = (!moved.done).then(String::new);
            (vec![moved], next)
        })
    }
}

fn count(partitions: u16) -> Result<NonZeroU16, Error> {
    NonZeroU16::new(partitions).ok_or_else(|| Error::argument("a topic has 1 to 1,024 partitions"))
}

/// Settings are given by name: `TopicSettings::default().partitions(4).max_attempts(5)`. A setting that is not given stays as it is,
/// and has its
/// default in a new topic.
impl TopicSettings {
    /// 1 to 1,024; cannot be changed later. 0 leaves it as it is.
    pub fn partitions(mut self, partitions: u16) -> TopicSettings {
        self.partitions = NonZeroU16::new(partitions);
        self
    }

    /// How long a consumer has to settle a delivery.
    pub fn visibility_timeout(mut self, timeout: Duration) -> TopicSettings {
        self.visibility_timeout_ms = Some(timeout);
        self
    }

    /// Attempts before a message is dead; 0 is without a limit.
    pub fn max_attempts(mut self, attempts: u32) -> TopicSettings {
        self.max_attempts = Some(attempts);
        self
    }

    /// The delay between attempts.
    pub fn backoff(mut self, backoff: Backoff) -> TopicSettings {
        self.backoff = Some(backoff);
        self
    }

    /// How long after a message was acked a push with its id is still a duplicate.
    pub fn dedup_window(mut self, window: Duration) -> TopicSettings {
        self.dedup_window_ms = Some(window);
        self
    }

    /// The messages of a key one after the other; cannot be changed later.
    pub fn ordered_by_key(mut self) -> TopicSettings {
        self.ordering = Some("key".into());
        self
    }

    /// How long after its due time a message is worth delivering; zero is indefinitely.
    pub fn ttl(mut self, ttl: Duration) -> TopicSettings {
        self.ttl_ms = Some(ttl);
        self
    }

    /// An expired message becomes a dead letter, or is dropped.
    pub fn bury_expired(mut self, bury: bool) -> TopicSettings {
        self.on_expiry = Some(if bury { "bury" } else { "drop" }.into());
        self
    }

    /// How long dead letters are kept; zero is indefinitely.
    pub fn dead_max_age(mut self, age: Duration) -> TopicSettings {
        self.dead_max_age_ms = Some(age);
        self
    }

    /// How many dead letters a group keeps in each partition; 0 is all.
    pub fn dead_max_count(mut self, count: u64) -> TopicSettings {
        self.dead_max_count = Some(count);
        self
    }

    /// The topic to which dead letters move; empty for none.
    pub fn dead_letter_topic(mut self, topic: impl Into<String>) -> TopicSettings {
        self.dead_letter = Some(Object(DeadLetter { topic: topic.into() }));
        self
    }

    /// A text about the topic; an empty one removes it.
    pub fn annotation(mut self, name: impl Into<String>, text: impl Into<String>) -> TopicSettings {
        self.annotations.get_or_insert_with(Annotations::default).0.insert(name.into(), text.into());
        self
    }
}

impl Backoff {
    /// Delays that grow by a factor from `initial` up to `max`, each shortened or lengthened by up to the part `jitter` of it.
    pub fn exponential(initial: Duration, max: Duration, factor: f64, jitter: f64) -> Backoff {
        Backoff::Exponential { initial: None, initial_ms: Some(initial), max: None, max_ms: Some(max), factor, jitter }
    }

    /// Listed delays, of which the last one repeats.
    pub fn ladder(steps: impl IntoIterator<Item = Duration>) -> Backoff {
        Backoff::Ladder { steps: Some(steps.into_iter().map(LadderStep).collect()), steps_ms: None }
    }
}
