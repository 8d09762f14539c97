//! The histories of partitions: each has an id, from when it is made until its data goes. A call says which one its broker
//! knows, and a partition with another one refuses it. So any call finds that Redis was emptied, or that another Redis answers,
//! however it came to that, and nothing is written there.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use redis::Value;

use super::Shared;
use super::scripts::{Call, Reply, text};
use crate::model::error::{Error, Result};
use crate::model::message::TopicName;
use crate::model::partition::Partition;
use crate::platform::clock::Instant;

/// The histories of the partitions that this broker has called.
#[derive(Debug, Default)]
pub(super) struct Histories {
    known: RwLock<HashMap<TopicName, HashMap<Partition, Known>>>,
}

#[derive(Debug, Clone)]
pub(super) struct Known {
    history: Arc<str>,
    /// How many losses had been noticed when the partition last answered in this history. After a later one, another history is no
    /// news.
    losses: u64,
}

impl Histories {
    pub(super) fn of(&self, topic: &TopicName, partition: Partition) -> Option<Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(topic)?.get(&partition).cloned()
    }

    /// Notes that a partition answered in a history; `None` is that it has none.
    fn note(&self, topic: &TopicName, partition: Partition, known: Option<Known>) {
        let mut histories = self.known.write().unwrap_or_else(PoisonError::into_inner);
        match known {
            Some(known) => {
                histories.entry(topic.clone()).or_default().insert(partition, known);
            }
            None => {
                histories.get_mut(topic).map(|partitions| partitions.remove(&partition));
            }
        }
    }

    /// A deleted topic that is made again has new histories once its tombstone is gone.
    pub(super) fn forget(&self, topic: &TopicName) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).remove(topic);
    }
}

impl Shared {
    /// Makes a call under a generation in the partition that is meant; `make` gets its first argument. One that does not know the history
    /// is told, and made again. Errors: `Stale` if the partition has lost what this broker knows of.
    pub(super) async fn eval_known(
        &self,
        topic: &TopicName,
        partition: Partition,
        generation: u64,
        make: impl Fn(&str) -> Result<Call>,
    ) -> Result<Value> {
        Ok(self.eval_sent(topic, partition, generation, make).await?.1)
    }

    /// The same for a script that says what time it is.
    pub(super) async fn ask_known(
        &self,
        topic: &TopicName,
        partition: Partition,
        generation: u64,
        make: impl Fn(&str) -> Result<Call>,
    ) -> Result<(String, Reply)> {
        let (sent, answer) = self.eval_sent(topic, partition, generation, make).await?;
        self.read(sent, answer)
    }

    async fn eval_sent(
        &self,
        topic: &TopicName,
        partition: Partition,
        generation: u64,
        make: impl Fn(&str) -> Result<Call>,
    ) -> Result<(Instant, Value)> {
        loop {
            let (losses, sent) = (self.losses.borrow().count, self.clock.local().instant());
            let known = self.histories.of(topic, partition);
            let answer = self.connection.eval(&make(&knowledge(generation, known.as_ref()))?).await?;
            let Some(there) = another(&answer)? else {
                if let Some(known) = known.filter(|known| known.losses < losses) {
                    self.histories.note(topic, partition, Some(Known { losses, ..known }));
                }
                return Ok((sent, answer));
            };
            self.meet(topic, partition, &there, (known, losses))?;
        }
    }

    /// Learns which history a partition has that refused another one, from its descriptor, which may be missing. `known` is what the call said,
    /// which was made after so many losses. Errors: `Stale` if there was another loss since, or if this is one that was not noticed
    /// before.
    pub(super) fn meet(
        &self,
        topic: &TopicName,
        partition: Partition,
        there: &str,
        (known, losses): (Option<Known>, u64),
    ) -> Result<()> {
        let history: Option<Arc<str>> = if there.is_empty() { None } else { Some(Arc::from(history_of(there)?)) };
        let now = self.losses.borrow().count;
        let is_news = known.is_some_and(|known| known.losses == now);
        if is_news {
            self.suspect_loss();
        }
        if is_news || now != losses {
            return Err(Error::stale("Redis lost data: it does not have what it answered for; make another call"));
        }
        self.histories.note(topic, partition, history.map(|history| Known { history, losses }));
        Ok(())
    }

    /// Notes the history of a partition that was shown a descriptor.
    pub(super) fn shown(&self, topic: &TopicName, partition: Partition, history: &str, losses: u64) {
        self.histories.note(topic, partition, Some(Known { history: Arc::from(history), losses }));
    }
}

/// The first argument of a call: the generation that it is made under, and the history that is known.
pub(super) fn knowledge(generation: u64, known: Option<&Known>) -> String {
    format!("{} {}", sixteen_digits(generation), known.map_or("", |known| &known.history))
}

/// The `T:gen` with which a partition refused a call for its history; `None` if it did not.
pub(super) fn another(answer: &Value) -> Result<Option<String>> {
    match answer {
        Value::Array(values) => match values.as_slice() {
            [Value::BulkString(status), _, there] if status == b"ANOTHER" => text(there.clone()).map(Some),
            _ => Ok(None),
        },
        _ => Ok(None),
    }
}

/// The history in `<generation> <history> <descriptor>`.
fn history_of(there: &str) -> Result<&str> {
    let history =
        there.split(' ').nth(1).filter(|history| history.len() == HISTORY_LENGTH && !history.starts_with('{'));
    history.ok_or_else(|| Error::corrupt("a partition has no history: another version of dwell made it"))
}

/// A generation as text that sorts like the number.
pub(super) fn sixteen_digits(generation: u64) -> String {
    format!("{generation:016}")
}

const HISTORY_LENGTH: usize = 25;
