//! The histories of partitions, and how far this broker was answered in each. A history is an id that a partition has in one process of
//! Redis; its count says how many calls have changed the partition. A call names the history that its broker knows, and goes only to the
//! process in which that began. So any call finds that Redis was emptied, restarted or replaced, however it came to that, and what
//! was lost is a comparison: of the count that the broker was answered with the one at which the history ended.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use redis::Value;

use super::Shared;
use super::scripts::{Reply, SCRIPTS, ScriptCall, text};
use crate::model::error::{Error, Result};
use crate::model::message::TopicName;
use crate::model::partition::Partition;
use crate::model::topic::{GroupPartition, PROMISED};
use crate::platform::clock::Instant;
use crate::store::{not_stored_yet, random_text};

/// The histories of the partitions that this broker has called, and how far it was answered.
#[derive(Debug, Default)]
pub(super) struct Histories {
    known: RwLock<BTreeMap<TopicName, BTreeMap<Partition, Arc<Known>>>>,
    /// Partitions that lost something that this broker was answered, until all of it is restored; each with the newest generation of its
    /// topic under which that was.
    lost: Mutex<BTreeMap<(TopicName, Partition), u64>>,
}

#[derive(Debug)]
pub(super) struct Known {
    history: Arc<str>,
    /// The process of Redis in which it began.
    process: Arc<str>,
    /// The newest count that was answered.
    count: AtomicU64,
    /// How many losses had been suspected when that was.
    losses: AtomicU64,
    /// The newest generation of the topic under which this broker was answered here, or in an earlier history of the partition; 0 before the
    /// first such answer.
    generation: AtomicU64,
}

/// How far a partition has answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answered {
    pub(super) count: u64,
    /// How many losses had been suspected when it was asked.
    pub(super) losses: u64,
    /// Under which generation of its topic; 0 for a call that names none.
    pub(super) generation: u64,
}

impl Known {
    fn new(history: &str, Answered { count, losses, generation }: Answered) -> Known {
        let process = Arc::from(history.get(..PROCESS_LENGTH).unwrap_or_default());
        let (count, losses, generation) = (AtomicU64::new(count), AtomicU64::new(losses), AtomicU64::new(generation));
        Known { history: Arc::from(history), process, count, losses, generation }
    }

    fn answered(&self, Answered { count, losses, generation }: Answered) {
        self.count.fetch_max(count, Ordering::Relaxed);
        self.losses.fetch_max(losses, Ordering::Relaxed);
        self.generation.fetch_max(generation, Ordering::Relaxed);
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    pub(super) fn process(&self) -> Arc<str> {
        self.process.clone()
    }
}

impl Histories {
    pub(super) fn of(&self, topic: &TopicName, partition: Partition) -> Option<Arc<Known>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(topic)?.get(&partition).cloned()
    }

    fn all(&self) -> Vec<(TopicName, Partition, Arc<Known>)> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let of_topic = |(topic, partitions): (&TopicName, &BTreeMap<Partition, Arc<Known>>)| {
            partitions.iter().map(|(partition, known)| (topic.clone(), *partition, known.clone())).collect::<Vec<_>>()
        };
        known.iter().flat_map(of_topic).collect()
    }

    /// Puts `after` in the place of `before`, unless another one is there by now. `None` is a partition without data, or one that
    /// was never called.
    fn replace(
        &self,
        topic: &TopicName,
        partition: Partition,
        before: Option<&Arc<Known>>,
        after: Option<Known>,
    ) -> bool {
        let mut histories = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let partitions = histories.entry(topic.clone()).or_default();
        if !is_same(partitions.get(&partition), before) {
            return false;
        }
        match after {
            Some(after) => partitions.insert(partition, Arc::new(after)),
            None => partitions.remove(&partition),
        };
        true
    }

    /// A topic was deleted at this generation: it has nothing to lose, and once its tombstone is gone its partitions would look like lost
    /// ones. If Redis has lost that another topic of the name was made since, what this broker was answered for that one stays.
    pub(super) fn forget(&self, topic: &TopicName, deleted_at: u64) {
        if let Some(partitions) = self.known.write().unwrap_or_else(PoisonError::into_inner).get_mut(topic) {
            partitions.retain(|_, known| known.generation() > deleted_at);
        }
        self.lost().retain(|(of, _), generation| of != topic || *generation > deleted_at);
    }

    pub(super) fn lost(&self) -> MutexGuard<'_, BTreeMap<(TopicName, Partition), u64>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_same(one: Option<&Arc<Known>>, other: Option<&Arc<Known>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}

impl Shared {
    /// Makes a call under a generation in the partition that is meant; `make` gets its first argument. One that does not know the history
    /// compares, and is made again. Errors: `Stale` if the partition has lost what this broker knows of.
    pub(super) async fn eval_known(
        &self,
        topic: &TopicName,
        partition: Partition,
        generation: u64,
        make: impl Fn(&str) -> Result<ScriptCall>,
    ) -> Result<Value> {
        let make = |known: Option<&Arc<Known>>| known_call(generation, known, &make);
        Ok(self.eval_sent(topic, partition, generation, make).await?.1)
    }

    /// Makes a call as [`Shared::eval_known`] does, of a script that says what time it is: the time is observed, and taken off the answer.
    pub(super) async fn ask_known(
        &self,
        topic: &TopicName,
        partition: Partition,
        generation: u64,
        make: impl Fn(&str) -> Result<ScriptCall>,
    ) -> Result<(String, Reply)> {
        let make = |known: Option<&Arc<Known>>| known_call(generation, known, &make);
        let (sent, answer) = self.eval_sent(topic, partition, generation, make).await?;
        self.read(sent, answer)
    }

    async fn eval_sent(
        &self,
        topic: &TopicName,
        partition: Partition,
        generation: u64,
        make: impl Fn(Option<&Arc<Known>>) -> Result<ScriptCall>,
    ) -> Result<(Instant, Value)> {
        loop {
            let (losses, sent) = (self.losses.borrow().count, self.clock.local().instant());
            let known = self.histories.of(topic, partition);
            let answer = self.connection.eval(&make(known.as_ref())?).await?;
            let asked = Answered { count: 0, losses, generation };
            if let Some(answer) = self.known_answer(topic, partition, (known, asked), answer).await? {
                return Ok((sent, answer));
            }
        }
    }

    /// The answer to a call that named what was known when so many losses were suspected, without the count; `None` if it was refused
    /// for that, and is to be made again. Errors: `Stale` if the partition has lost what this broker knows of.
    pub(super) async fn known_answer(
        &self,
        topic: &TopicName,
        partition: Partition,
        (known, asked): (Option<Arc<Known>>, Answered),
        mut answer: Value,
    ) -> Result<Option<Value>> {
        if is_another(&answer) {
            self.compare(topic, partition, known).await?;
            return Ok(None);
        }
        let Some(count) = take_count(&mut answer) else { return Ok(Some(answer)) };
        self.answered(topic, partition, known, Answered { count, ..asked }).await?;
        Ok(Some(answer))
    }

    /// Makes a call that names no history, and counts as those that do.
    pub(super) async fn eval_counted(&self, group_partition: &GroupPartition, call: ScriptCall) -> Result<Value> {
        Ok(self.counted_sent(group_partition, call).await?.1)
    }

    /// Makes a call as [`Shared::eval_counted`] does, of a script that says what time it is: the time is observed, and taken off the answer.
    pub(super) async fn ask_counted(
        &self,
        group_partition: &GroupPartition,
        call: ScriptCall,
    ) -> Result<(String, Reply)> {
        let (sent, answer) = self.counted_sent(group_partition, call).await?;
        self.read(sent, answer)
    }

    async fn counted_sent(&self, group_partition: &GroupPartition, call: ScriptCall) -> Result<(Instant, Value)> {
        let GroupPartition { topic, partition, .. } = group_partition;
        if self.histories.of(topic, *partition).is_none() {
            self.compare(topic, *partition, None).await?;
        }
        let make = |known: Option<&Arc<Known>>| {
            let mut call = call.clone();
            call.only_in(known.map(|known| known.process()));
            Ok(call)
        };
        self.eval_sent(topic, *partition, 0, make).await
    }

    /// Notes the count that a call was answered in a history. If the partition was compared meanwhile, it is once more.
    pub(super) async fn answered(
        &self,
        topic: &TopicName,
        partition: Partition,
        known: Option<Arc<Known>>,
        answered: Answered,
    ) -> Result<()> {
        let Some(known) = known else { return Ok(()) };
        known.answered(answered);
        match is_same(self.histories.of(topic, partition).as_ref(), Some(&known)) {
            true => Ok(()),
            false => self.compare(topic, partition, Some(known)).await,
        }
    }

    /// Asks a partition what became of the history that this broker knows, and learns the present one. Errors: `Stale` if it lost what
    /// this broker was answered.
    pub(super) async fn compare(
        &self,
        topic: &TopicName,
        partition: Partition,
        known: Option<Arc<Known>>,
    ) -> Result<()> {
        let losses = self.losses.borrow().count;
        let answer = self.connection.eval(&self.compare_call(topic, partition, known.as_deref())).await?;
        match self.compared(topic, partition, known, losses, answer)? {
            Compared::Kept => Ok(()),
            Compared::Lost => {
                Err(Error::stale("Redis lost data: it does not have what it answered for; make another call"))
            }
        }
    }

    /// Compares all partitions that this broker knows. Errors: those of the first one that does not answer; the others are compared.
    pub(super) async fn compare_all(&self) -> Result<()> {
        for page in self.histories.all().chunks(COMPARED_AT_ONCE) {
            let losses = self.losses.borrow().count;
            let call = |(topic, partition, known): &(TopicName, Partition, Arc<Known>)| {
                self.compare_call(topic, *partition, Some(known))
            };
            let answers = self.connection.eval_all(&SCRIPTS.compare, page.iter().map(call).collect()).await;
            let mut failed = Ok(());
            for ((topic, partition, known), answer) in page.iter().zip(answers) {
                let compared = answer
                    .and_then(|answer| self.compared(topic, *partition, Some(known.clone()), losses, answer).map(drop));
                failed = failed.and(compared);
            }
            failed?;
        }
        Ok(())
    }

    /// Whether a partition has a history that this broker knows, now or in its past. Changes nothing.
    pub(super) async fn remembers_histories(&self) -> Result<bool> {
        for (topic, partition, known) in self.histories.all().into_iter().take(REMEMBERED_TRIED) {
            let keys = self.keys.partition(&topic, partition);
            let mut present = redis::cmd("GETRANGE");
            present.arg(&keys.generation).arg(17).arg(16 + HISTORY_LENGTH);
            let mut past = redis::cmd("HEXISTS");
            past.arg(&keys.past).arg(&*known.history);
            if text(self.connection.ask_any(&present).await?)? == *known.history
                || self.connection.ask_any(&past).await? == Value::Int(1)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn compare_call(&self, topic: &TopicName, partition: Partition, known: Option<&Known>) -> ScriptCall {
        let keys = self.keys.partition(topic, partition);
        ScriptCall::new(&SCRIPTS.compare, &[&keys.generation, &keys.past])
            .arg(known.map_or("", |known| &known.history))
            .arg(known.map_or(String::new(), |known| sixteen_digits(known.count.load(Ordering::Relaxed))))
            .arg(four_by_chance())
            .arg(self.time_override())
            .naming_process()
    }

    /// Reads what a partition answered to `compare`. If a loss was suspected since the partition last answered this broker, what it lost is
    /// part of that loss, which is not counted again.
    fn compared(
        &self,
        topic: &TopicName,
        partition: Partition,
        known: Option<Arc<Known>>,
        losses: u64,
        answer: Value,
    ) -> Result<Compared> {
        let mut reply = Reply::of(answer)?;
        reply.text()?;
        let (history, count, is_lost) =
            (reply.text()?, reply.maybe_number()?.unwrap_or_default(), reply.number()? == 1);
        if !history.is_empty() && history.len() != HISTORY_LENGTH {
            return Err(Error::corrupt("a partition has no history: another version of dwell made it"));
        }
        let generation = known.as_ref().map_or(0, |known| known.generation());
        let after = (!history.is_empty()).then(|| Known::new(&history, Answered { count, losses, generation }));
        let was_current = self.histories.replace(topic, partition, known.as_ref(), after);
        let Some(known) = known.filter(|_| is_lost) else { return Ok(Compared::Kept) };
        if self.lose(topic, partition, generation) {
            tracing::warn!(%topic, %partition, "Redis lost data: a partition does not have what it answered");
            self.metrics.store.losses.inc();
        }
        if !was_current || known.losses.load(Ordering::Relaxed) == self.losses.borrow().count {
            self.suspect_loss();
        }
        Ok(Compared::Lost)
    }

    /// Answers whether it is the first one of a loss.
    fn lose(&self, topic: &TopicName, partition: Partition, generation: u64) -> bool {
        let mut lost = self.histories.lost();
        let is_first = lost.is_empty();
        let newest = lost.entry((topic.clone(), partition)).or_default();
        *newest = generation.max(*newest);
        is_first
    }

    /// Notes the history of a partition that was shown a descriptor, which may have made it.
    pub(super) fn shown(&self, topic: &TopicName, partition: Partition, history: &str, shown: Answered) {
        let known = self.histories.of(topic, partition);
        if known.as_ref().is_none_or(|known| *known.history != *history) {
            self.histories.replace(topic, partition, known.as_ref(), Some(Known::new(history, shown)));
        }
    }
}

enum Compared {
    Kept,
    Lost,
}

/// Makes a call that names what is known, in the process that it is known of. Errors: `Unavailable` under a promised descriptor. It does
/// not say what the topic is, nor how many partitions it has: only a creation decides that.
pub(super) fn known_call(
    generation: u64,
    known: Option<&Arc<Known>>,
    make: impl Fn(&str) -> Result<ScriptCall>,
) -> Result<ScriptCall> {
    if generation == PROMISED {
        return Err(not_stored_yet());
    }
    let history = known.map_or("", |known| &known.history);
    let mut call = make(&format!("{} {history}", sixteen_digits(generation)))?;
    call.only_in(known.map(|known| known.process()));
    Ok(call)
}

/// The answer to a call that was not sent, since it was for another process of Redis.
pub(super) fn another_process() -> Value {
    Value::Array(vec![Value::BulkString(ANOTHER.to_vec()), Value::BulkString(Vec::new())])
}

/// Whether a call was refused since the partition has another history than it named.
pub(super) fn is_another(answer: &Value) -> bool {
    matches!(answer, Value::Array(values) if matches!(values.first(), Some(Value::BulkString(status)) if status == ANOTHER))
}

/// Takes the count off the end of the answer to a call that was applied.
fn take_count(answer: &mut Value) -> Option<u64> {
    let Value::Array(values) = answer else { return None };
    match values.first() {
        Some(Value::BulkString(status)) if status == b"OK" => {}
        _ => return None,
    }
    match values.pop() {
        Some(Value::BulkString(count)) => std::str::from_utf8(&count).ok()?.parse().ok(),
        _ => None,
    }
}

/// A generation or a count as text that sorts like the number.
pub(super) fn sixteen_digits(number: u64) -> String {
    format!("{number:016}")
}

pub(super) fn four_by_chance() -> String {
    random_text().get(..4).unwrap_or_default().to_owned()
}

const ANOTHER: &[u8] = b"ANOTHER";

const HISTORY_LENGTH: usize = 32;

/// Of the name of a process of Redis, with which the id of a history begins.
pub(super) const PROCESS_LENGTH: usize = 12;

/// Partitions that are looked at in a store with another name. In one that lost a part, most would do.
pub(super) const REMEMBERED_TRIED: usize = 20;

const COMPARED_AT_ONCE: usize = 500;
