//! Topics while the store is unavailable, or restores what it lost: a known one is as it was last seen, and a new one is a promise.

use std::sync::atomic::Ordering;

use async_trait::async_trait;

use super::{BufferedStore, both_failed, check_stored};
use crate::model::error::{Error, Kind, Result};
use crate::model::message::TopicName;
use crate::model::time::Timestamp;
use crate::model::topic::Descriptor;
use crate::model::version::Version;
use crate::store::{self, LogTarget, Progress, TOMBSTONE_KEPT, restoring};
use crate::wal::Record;

#[async_trait]
impl<S: LogTarget> store::Topics for BufferedStore<S> {
    async fn topic(&self, topic: &TopicName) -> Result<Option<Descriptor>> {
        let looked = self.reach(self.store.topic(topic)).await;
        if let Ok(Some(descriptor)) = &looked {
            self.topic_cache.learn(descriptor);
        }
        let found = self.or_remembered(topic, looked)?;
        if found.is_none() {
            self.miss(topic).await;
        }
        Ok(found)
    }

    async fn topic_uncached(&self, topic: &TopicName) -> Result<Option<Descriptor>> {
        let looked = self.reach(self.store.topic_uncached(topic)).await;
        self.or_remembered(topic, looked)
    }

    async fn topic_there(&self, topic: &TopicName) -> Result<Option<Descriptor>> {
        match self.limited(self.store.topic(topic)).await? {
            None if self.is_loss_suspected() => Err(restoring()),
            found => {
                if let Some(descriptor) = &found {
                    self.topic_cache.learn(descriptor);
                }
                Ok(found)
            }
        }
    }

    async fn topics(&self) -> Result<Vec<TopicName>> {
        self.store.topics().await
    }

    /// Creates a topic; one that the store may have lost is created again as it was last seen. While the store is
    /// unavailable, or has yet to get back what it lost, a topic that is not known is promised: it is created, as it
    /// was wanted, before its messages are replayed, unless the store has one of that name.
    async fn create(&self, wanted: &Descriptor) -> Result<Descriptor> {
        wanted.check()?;
        let created = match self.create_reachable(wanted).await {
            Ok(descriptor) => {
                self.topic_cache.keep(&descriptor).await;
                return Ok(descriptor);
            }
            created => created,
        };
        match created {
            Err(error) if error.is_outage() => {
                if !self.is_loss_suspected() {
                    self.breaker.open(&error);
                }
                if let Some(known) = self.topic_cache.get(&wanted.topic) {
                    return Ok(known);
                }
                self.promise(wanted).await.map_err(|full| both_failed(&error, &full))?;
                self.topic_cache.learn(wanted);
                Ok(wanted.clone())
            }
            created => created,
        }
    }

    async fn assure(&self, descriptor: &Descriptor) -> Result<()> {
        let is_remembered = self.is_loss_suspected() || self.breaker.reason().is_some();
        if is_remembered && !descriptor.is_promised() {
            self.promise(descriptor).await?;
        }
        Ok(())
    }

    /// Changes a topic. While a loss is restored nothing is changed: what is there may be older than what is about to come back.
    async fn update(&self, wanted: &Descriptor) -> Result<Descriptor> {
        check_stored(wanted)?;
        let updated = self.unless_lost(self.store.update(wanted)).await?;
        self.topic_cache.keep(&updated).await;
        Ok(updated)
    }

    async fn publish_descriptor(&self, descriptor: &Descriptor) -> Result<()> {
        self.store.publish_descriptor(descriptor).await
    }

    async fn delete(&self, descriptor: &Descriptor) -> Result<Option<Descriptor>> {
        check_stored(descriptor)?;
        let tombstone = self.unless_lost(self.store.delete(descriptor)).await?;
        self.keep_deletion(&descriptor.topic, tombstone.as_ref()).await;
        Ok(tombstone)
    }

    async fn delete_unchanged(&self, descriptor: &Descriptor) -> Result<Option<Descriptor>> {
        check_stored(descriptor)?;
        let tombstone = self.unless_lost(self.store.delete_unchanged(descriptor)).await?;
        self.keep_deletion(&descriptor.topic, tombstone.as_ref()).await;
        Ok(tombstone)
    }
}

impl<S: LogTarget> BufferedStore<S> {
    /// Notes that a topic is to be there, and since when: one that is deleted later stays deleted.
    async fn promise(&self, wanted: &Descriptor) -> Result<()> {
        let incarnation = self.store.clock().versions(1).as_us() / 1_000;
        let promise = Descriptor { generation: 0, incarnation, leaving: Vec::new(), ..wanted.clone() };
        self.wal.append(vec![Record::Create(promise)]).await?;
        self.buffered.notify_one();
        Ok(())
    }

    /// Creates a promised topic, unless it was deleted since.
    pub(super) async fn keep_promise(&self, promise: &Descriptor, losses: u64) -> Result<()> {
        let promised_at = Version::from_us(promise.incarnation.saturating_mul(1_000));
        let found = self.limited(self.store.topic_or_tombstone(&promise.topic)).await?;
        if found.is_some_and(|there| there.deleted && !there.is_after_deletion(promised_at)) {
            self.topic_cache.forget(&promise.topic);
            return Ok(());
        }
        let wanted = Descriptor { incarnation: 0, ..promise.clone() };
        self.topic_cache.learn(&self.create_after(losses, &wanted).await?);
        Ok(())
    }

    /// A change of a topic in the store that has all that it had. Errors: `Unavailable` while a loss is restored; `OutcomeUnknown` if one is
    /// suspected meanwhile, since a new connection may have found a store that lost the topic.
    pub(super) async fn unless_lost<T>(&self, change: impl Future<Output = Result<T>>) -> Result<T> {
        self.check_restored()?;
        let losses = self.losses();
        match change.await {
            changed if self.losses() == losses => changed,
            Err(error) if error.kind() == Kind::NotFound => Err(restoring()),
            Err(error) => Err(error),
            Ok(_) => Err(Error::outcome_unknown("the store perhaps lost data during the call: repeat it")),
        }
    }

    /// A topic as it is remembered, when the store does not answer, or may be given it back: absence is no knowledge then.
    fn or_remembered(&self, topic: &TopicName, looked: Result<Option<Descriptor>>) -> Result<Option<Descriptor>> {
        match looked {
            Ok(None) if self.is_loss_suspected() => self.topic_cache.get(topic).map(Some).ok_or_else(restoring),
            Err(error) if error.is_outage() => self.topic_cache.get(topic).map(Some).ok_or(error),
            looked => looked,
        }
    }

    /// Notes that a topic was deleted: it has a tombstone, or had time to lose it. One that was there more lately is lost, and
    /// perhaps nobody noticed yet.
    async fn miss(&self, topic: &TopicName) {
        let is_deleted = match self.topic_cache.get(topic) {
            None => false,
            Some(_) if !self.topic_cache.was_there_within(topic, TOMBSTONE_KEPT) => true,
            Some(known) => {
                let found = self.limited(self.store.topic_or_tombstone(topic)).await;
                // An older tombstone is that of an earlier topic, which the store knows since it lost the later one.
                found.is_ok_and(|found| found.is_some_and(|there| there.deleted && there.generation > known.generation))
            }
        };
        if is_deleted {
            self.topic_cache.miss(topic);
        }
    }

    async fn create_reachable(&self, wanted: &Descriptor) -> Result<Descriptor> {
        self.check_reachable()?;
        match self.stepwise(self.create_again(wanted)).await {
            // The call that finds out that the store lost data changes nothing there, and the next one knows.
            Err(error) if error.kind() == Kind::Stale => self.stepwise(self.create_again(wanted)).await,
            created => created,
        }
    }

    async fn create_again(&self, wanted: &Descriptor) -> Result<Descriptor> {
        self.check_identified()?;
        if let Some(last) = self.topic_cache.seen(&wanted.topic) {
            match self.store.create(&last).await {
                Err(error) if error.kind() == Kind::NotFound => self.topic_cache.forget(&wanted.topic),
                created => return created,
            }
        }
        self.look_for_loss().await?;
        self.until_loss_is_known().await;
        if self.is_restoring() && self.store.topic(&wanted.topic).await?.is_none() {
            // Another broker may know it, and is about to create it as it was.
            return Err(restoring());
        }
        self.store.create(wanted).await
    }

    /// A store that was emptied while its connection stayed answers as one that never had a topic. But it has lost its name, too, and
    /// which brokers keep a journal; and a broker that noticed says so there. A topic made before that would be newer than the lost one, and
    /// would replace it.
    pub(super) async fn look_for_loss(&self) -> Result<()> {
        let losses = self.losses();
        self.identify().await?;
        let offered_at = Timestamp::from_ms(self.offered_at.load(Ordering::Relaxed));
        // A broker is listed once it has offered its journal for the first time.
        if self.journal.is_none() || self.is_restoring() || offered_at == Timestamp::ZERO {
            return Ok(());
        }
        let reports = self.say(Progress::Look).await?;
        if !reports.was_listed && self.losses() == losses {
            self.store.suspect_loss();
        }
        // The other one is heard in a moment, and begins a restore here.
        if reports.lost_at > offered_at { Err(restoring()) } else { Ok(()) }
    }
}
