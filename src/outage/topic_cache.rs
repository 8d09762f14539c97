//! The topics that this process has seen, kept in a file, so that pushes to them continue while the store is unavailable;
//! and which topics with ordering have records in the WAL, so that pushes go behind them.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::state_file::StateFile;
use crate::model::limits::TOPICS_MAX;
use crate::model::message::TopicName;
use crate::model::topic::Descriptor;
use crate::platform::clock::{Clock, Instant};
use crate::store::TOMBSTONE_KEPT;
use crate::wal::Position;

/// Descriptors by name, and the file they are in. One that the store had no more when it was asked last is kept as
/// `deleted`: perhaps the store has lost it, and then it is made again as it was.
#[derive(Debug)]
pub(super) struct TopicCache {
    file: StateFile,
    topics: RwLock<HashMap<TopicName, Descriptor>>,
    /// When each was there last, since this process began.
    there_at: Mutex<HashMap<TopicName, Instant>>,
    /// Tombstones of topics that this process deleted, and when: a store may lose one and nothing else.
    tombstones: Mutex<BTreeMap<TopicName, (Descriptor, Instant)>>,
}

impl TopicCache {
    /// Reads the file. A topic that it lacks costs only the pushes to it while the store is unavailable, if a push may not make it.
    pub(super) fn load(path: PathBuf) -> TopicCache {
        let (file, topics) = StateFile::load(path, |json| serde_json::from_str::<Descriptor>(json).ok());
        let topics = topics.into_iter().map(|descriptor| (descriptor.topic.clone(), descriptor)).collect();
        TopicCache { file, topics: RwLock::new(topics), there_at: Mutex::default(), tombstones: Mutex::default() }
    }

    pub(super) fn get(&self, topic: &TopicName) -> Option<Descriptor> {
        self.entry(topic).filter(|descriptor| !descriptor.deleted)
    }

    /// A topic, as it was when it was last there.
    pub(super) fn last(&self, topic: &TopicName) -> Option<Descriptor> {
        self.entry(topic).map(|descriptor| Descriptor { deleted: false, ..descriptor })
    }

    fn entry(&self, topic: &TopicName) -> Option<Descriptor> {
        self.topics.read().unwrap_or_else(PoisonError::into_inner).get(topic).cloned()
    }

    /// A topic, as it was when it was last there, if a store had created it: one that was only promised may be another one there.
    pub(super) fn seen(&self, topic: &TopicName) -> Option<Descriptor> {
        self.last(topic).filter(|last| last.incarnation > 0)
    }

    /// All topics that were there when the store last answered, and that it had created.
    pub(super) fn all(&self) -> Vec<Descriptor> {
        let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
        topics.values().filter(|topic| !topic.deleted && topic.incarnation > 0).cloned().collect()
    }

    /// Keeps the tombstone of a deleted topic for as long as the store does.
    pub(super) fn bury(&self, tombstone: &Descriptor) {
        let now = Clock::System.instant();
        let mut tombstones = self.tombstones.lock().unwrap_or_else(PoisonError::into_inner);
        tombstones.retain(|_, (_, at)| now.since(*at) < TOMBSTONE_KEPT);
        if tombstones.len() < TOPICS_MAX {
            tombstones.insert(tombstone.topic.clone(), (tombstone.clone(), now));
        }
    }

    pub(super) fn tombstones(&self) -> Vec<Descriptor> {
        let tombstones = self.tombstones.lock().unwrap_or_else(PoisonError::into_inner);
        tombstones.values().map(|(tombstone, _)| tombstone.clone()).collect()
    }

    pub(super) fn was_there_within(&self, topic: &TopicName, span: Duration) -> bool {
        let there_at = self.there_at.lock().unwrap_or_else(PoisonError::into_inner).get(topic).copied();
        there_at.is_some_and(|at| Clock::System.instant().since(at) < span)
    }

    /// The newest descriptor counts: a store that answers an older one has lost the newer one, and is given it back.
    pub(super) fn learn(&self, descriptor: &Descriptor) -> bool {
        if !descriptor.deleted {
            let mut there_at = self.there_at.lock().unwrap_or_else(PoisonError::into_inner);
            there_at.insert(descriptor.topic.clone(), Clock::System.instant());
        }
        let known = self.entry(&descriptor.topic);
        let is_newer = |known: &Descriptor| !known.deleted && known.generation > descriptor.generation;
        if known.as_ref() == Some(descriptor) || known.as_ref().is_some_and(is_newer) {
            return false;
        }
        let mut topics = self.topics.write().unwrap_or_else(PoisonError::into_inner);
        if topics.len() < TOPICS_MAX || topics.contains_key(&descriptor.topic) || self.make_room(&mut topics) {
            topics.insert(descriptor.topic.clone(), descriptor.clone());
            self.file.change();
        }
        true
    }

    /// Forgets a topic that the store has no more, the one that was there longest ago.
    fn make_room(&self, topics: &mut HashMap<TopicName, Descriptor>) -> bool {
        let mut there_at = self.there_at.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = topics.values().filter(|topic| topic.deleted).map(|topic| &topic.topic);
        let Some(gone) = gone.min_by_key(|topic| there_at.get(*topic).copied()).cloned() else { return false };
        there_at.remove(&gone);
        topics.remove(&gone).is_some()
    }

    /// Learns a topic as a verb left it; when this returns, the file has it.
    pub(super) async fn keep(&self, descriptor: &Descriptor) {
        if self.learn(descriptor) {
            self.save().await;
        }
    }

    pub(super) fn miss(&self, topic: &TopicName) {
        if let Some(descriptor) = self.get(topic) {
            self.learn(&Descriptor { deleted: true, ..descriptor });
        }
    }

    pub(super) fn forget(&self, topic: &TopicName) {
        self.there_at.lock().unwrap_or_else(PoisonError::into_inner).remove(topic);
        if self.topics.write().unwrap_or_else(PoisonError::into_inner).remove(topic).is_some() {
            self.file.change();
        }
    }

    /// Forgets all topics: they are those of another store.
    pub(super) fn clear(&self) {
        self.there_at.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.tombstones.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.topics.write().unwrap_or_else(PoisonError::into_inner).clear();
        self.file.change();
    }

    pub(super) async fn run(&self, clock: &Clock, stop: CancellationToken) {
        self.file.run(clock, stop, || self.texts()).await;
    }

    pub(super) async fn save(&self) {
        self.file.save(|| self.texts()).await;
    }

    fn texts(&self) -> Vec<String> {
        let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
        // Texts and numbers: there is nothing that JSON has not.
        topics.values().map(|topic| serde_json::to_string(topic).unwrap_or_default()).collect()
    }
}

/// Where the last record of each topic with ordering stands, as far as the store has not answered for it.
#[derive(Debug, Default)]
pub(super) struct OrderedTopics {
    marks: Mutex<Marks>,
    moved: Notify,
    /// The store does not take what is first, so that waiting is in vain.
    stuck: AtomicBool,
}

#[derive(Debug, Default)]
struct Marks {
    /// Records of an earlier process may be of any topic.
    found: Option<Position>,
    last: HashMap<TopicName, Position>,
    done: Option<Position>,
}

impl OrderedTopics {
    pub(super) fn new(found: Option<Position>) -> OrderedTopics {
        OrderedTopics { marks: Mutex::new(Marks { found, ..Marks::default() }), ..OrderedTopics::default() }
    }

    pub(super) fn has(&self, topic: &TopicName) -> bool {
        let marks = self.marks();
        marks.found.is_some() || marks.last.contains_key(topic)
    }

    pub(super) fn set_stuck(&self, stuck: bool) {
        self.stuck.store(stuck, Ordering::Relaxed);
    }

    /// Waits until none waits any more; false when that takes too long, or would never happen.
    pub(super) async fn passed(&self, topic: &TopicName, limit: Duration) -> bool {
        if self.stuck.load(Ordering::Relaxed) {
            return !self.has(topic);
        }
        let mut late = std::pin::pin!(Clock::System.sleep(limit));
        loop {
            // Listening begins before looking.
            let mut moved = std::pin::pin!(self.moved.notified());
            moved.as_mut().enable();
            if !self.has(topic) {
                return true;
            }
            tokio::select! {
                () = moved => {}
                () = &mut late => return false,
            }
        }
    }

    pub(super) fn appended(&self, topic: &TopicName, end: Option<Position>) {
        let mut marks = self.marks();
        if let Some(end) = end.filter(|end| Some(*end) > marks.done) {
            let last = marks.last.entry(topic.clone()).or_insert(end);
            *last = end.max(*last);
        }
    }

    pub(super) fn done(&self, through: Position) {
        {
            let mut marks = self.marks();
            marks.done = marks.done.max(Some(through));
            marks.found = marks.found.filter(|found| *found > through);
            marks.last.retain(|_, last| *last > through);
        }
        self.moved.notify_waiters();
    }

    fn marks(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::Result;

    #[tokio::test]
    async fn topic_cache_survives_restart_and_damage() -> Result<()> {
        let dir = tempfile::tempdir().map_err(|error| crate::model::error::Error::bug(error.to_string()))?;
        let path = dir.path().join("deep").join("topics");
        let cache = TopicCache::load(path.clone());
        let orders = Descriptor { generation: 7, ..Descriptor::new(TopicName::new("orders")?, Default::default()) };
        cache.learn(&orders);
        cache.save().await;
        assert_eq!(TopicCache::load(path.clone()).get(&orders.topic), Some(orders.clone()));
        let half = std::fs::read(&path).map(|text| text[..text.len() / 2].to_vec()).unwrap_or_default();
        assert!(std::fs::write(&path, half).is_ok());
        assert_eq!(TopicCache::load(path).get(&orders.topic), None);
        cache.miss(&orders.topic);
        assert_eq!((cache.get(&orders.topic), cache.last(&orders.topic)), (None, Some(orders.clone())));
        cache.forget(&orders.topic);
        assert_eq!(cache.last(&orders.topic), None);
        Ok(())
    }

    #[test]
    fn an_older_descriptor_is_no_news() -> Result<()> {
        let cache = TopicCache::load(PathBuf::from("/nowhere/topics"));
        let older = Descriptor { generation: 7, ..Descriptor::new(TopicName::new("orders")?, Default::default()) };
        let newer = Descriptor { generation: 8, ..older.clone() };
        assert!(cache.learn(&newer));
        assert!(!cache.learn(&older));
        assert_eq!(cache.get(&newer.topic), Some(newer.clone()));
        // Once it is gone, another broker may have it back as it was before.
        cache.miss(&newer.topic);
        assert!(cache.learn(&older));
        assert_eq!(cache.get(&newer.topic), Some(older));
        Ok(())
    }

    #[test]
    fn topics_that_are_gone_leave_room_for_new_ones() -> Result<()> {
        let cache = TopicCache::load(PathBuf::from("/nowhere/topics"));
        let topic = |name: String| Ok(Descriptor::new(TopicName::new(name)?, Default::default()));
        for n in 0..TOPICS_MAX {
            let old = topic(format!("ci-{n}"))?;
            cache.learn(&old);
            if n > 0 {
                cache.miss(&old.topic);
            }
        }
        for n in 0..10 {
            let new = topic(format!("orders-{n}"))?;
            cache.learn(&new);
            assert_eq!(cache.get(&new.topic), Some(new), "{n}");
        }
        let is_known = |name: &str| Ok(cache.last(&TopicName::new(name)?).is_some());
        assert_eq!((is_known("ci-0")?, is_known("ci-1")?, is_known("ci-11")?), (true, false, true));
        assert_eq!(cache.topics.read().map(|topics| topics.len()).ok(), Some(TOPICS_MAX));
        Ok(())
    }
}
