//! The methods of the store contract that the outage path changes.
//!
//! Nothing here says that a message is cancelled while the store may have it and was not asked.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::journal::JournaledOwner;
use super::{BufferedStore, PAGE_BYTES, PAGE_RECORDS, PAUSE};
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::PUT_IDS_MAX;
use crate::model::message::{Conflict, GroupName, Message, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::spelling::counted;
use crate::model::topic::{Descriptor, GroupPartition};
use crate::model::version::Version;
use crate::platform::clock::Clock;
use crate::platform::disk::free_bytes;
use crate::platform::signing_key::SigningKey;
use crate::store::{
    self, Acquired, Buffered, Call, Cancelled, Claim, Copied, CopyCursor, DeadLetterCursor, DeadLetterPage,
    DeadLetterRetention, Description, DroppedDeadLetters, Fate, Fates, Forward, Forwarded, HandedOver, HealthSnapshot,
    LateFate, LateSettlement, LogTarget, Loss, MemberId, MovedPage, OwnerRecord, Owners, Purge, Purged, PushVerdict,
    Put, Renewal, Reschedule, Rescheduled, StatsClaim, Store, StoreClock, TakenOver, VerifyCursor, VerifyPage, Wakes,
    WalDepth, restoring,
};
use crate::wal::{self, Depth, Record};

impl<S: LogTarget> BufferedStore<S> {
    pub fn into_store(self: Arc<Self>) -> Store {
        Store {
            backend: self.clone(),
            topics: self.clone(),
            messages: self.clone(),
            dead_letters: self.clone(),
            cron_jobs: self.clone(),
            leases: self.clone(),
            maintenance: self.clone(),
            ..Store::of(self.store.clone())
        }
    }
}

#[async_trait]
impl<S: LogTarget> store::Backend for BufferedStore<S> {
    fn describe(&self) -> Description {
        let inner = self.store.describe();
        let buffered = format!(
            "{}; while it is unavailable, pushes are fsynced in {}",
            inner.durability,
            self.options.dir.display()
        );
        let durability = match self.options.journal_window {
            None => buffered,
            Some(window) => format!("{buffered}, and always for the last {window:?}"),
        };
        Description { durability, ..inner }
    }

    fn replicas(&self) -> u32 {
        self.store.replicas()
    }

    fn clock(&self) -> &StoreClock {
        self.store.clock()
    }

    fn wakes(&self) -> &Wakes {
        self.store.wakes()
    }

    fn losses(&self) -> watch::Receiver<Loss> {
        self.store.losses()
    }

    async fn run(&self, owners: &dyn Owners, stop: CancellationToken) {
        tokio::join!(
            self.store.run(owners, stop.clone()),
            self.replay(owners, stop.clone()),
            self.watch(stop.clone()),
            self.watch_clock(stop.clone()),
            self.topic_cache.run(&self.clock, stop.clone()),
            self.kept_keys.run(&self.clock, stop),
        );
    }

    async fn ping(&self) -> Result<()> {
        self.store.ping().await
    }

    async fn store_id(&self, offered: &str) -> Result<String> {
        self.store.store_id(offered).await
    }

    /// The kept key is offered rather than a new one: the store may have lost it.
    async fn receipt_key(&self, offered: &SigningKey) -> Result<SigningKey> {
        let kept = self.kept_keys.newest();
        let key = self.limited(self.store.receipt_key(kept.as_ref().unwrap_or(offered))).await?;
        self.kept_keys.keep(&key).await;
        Ok(key)
    }

    fn kept_receipt_keys(&self) -> Vec<SigningKey> {
        self.kept_keys.all()
    }

    async fn ready(&self) -> Result<Option<String>> {
        if self.breaker.reason().is_none()
            && let Err(error) = self.limited(self.store.ping()).await
        {
            self.breaker.open(&error);
        }
        if let Some(refusal) = self.breaker.refusal() {
            return Err(refusal);
        }
        self.store.clock().check()?;
        let waiting = self.wal.depth().records;
        match self.breaker.reason() {
            Some(away) => {
                self.wal
                    .check()
                    .map_err(|wal| Error::new(wal.kind(), format!("{}; {}", away.detail(), wal.detail())))?;
                Ok(Some(format!(
                    "{}; pushes are buffered on disk, {} so far",
                    away.detail(),
                    counted(waiting, "record")
                )))
            }
            None if self.is_giving_back() => Ok(Some(self.restoring_detail())),
            None if waiting > 0 => Ok(Some(format!("replaying {}", counted(waiting, "buffered record")))),
            None => match self.journal.as_ref().map_or(Ok(()), |journal| journal.log().check()) {
                Ok(()) => Ok(None),
                Err(error) => Ok(Some(format!("the journal cannot be written: {}", error.detail()))),
            },
        }
    }

    async fn close(&self) -> Result<()> {
        if let Err(error) = self.remember_clock(self.store.clock().note().as_ref()).await {
            tracing::warn!(%error, "offset of the store's clock not kept");
        }
        self.topic_cache.save().await;
        self.hand_over().await;
        self.leave_restorers().await;
        let waiting = self.wal.depth().records;
        if waiting > 0 {
            tracing::warn!(records = waiting, "messages stay buffered on disk: the next start replays them");
        }
        if let Some(journal) = &self.journal {
            journal.log().close().await?;
        }
        self.wal.close().await?;
        self.store.close().await
    }

    fn wal_depth(&self) -> WalDepth {
        let Depth { records, bytes, .. } = self.wal.depth();
        WalDepth { records, bytes, limit_bytes: self.wal.limit_bytes() }
    }

    fn health_snapshot(&self) -> HealthSnapshot {
        self.wal.observe();
        if let Some(journal) = &self.journal {
            journal.log().observe();
        }
        HealthSnapshot { free_bytes: free_bytes(&self.options.dir), is_away: self.breaker.reason().is_some() }
    }
}

#[async_trait]
impl<S: LogTarget> store::Topics for BufferedStore<S> {
    async fn topic(&self, topic: &TopicName) -> Result<Option<Descriptor>> {
        self.find(topic).await
    }

    async fn topic_uncached(&self, topic: &TopicName) -> Result<Option<Descriptor>> {
        let looked = match self.breaker.reason() {
            None => self.limited(self.store.topic_uncached(topic)).await,
            Some(reason) => Err(Error::unavailable(reason.detail().to_owned())),
        };
        self.or_remembered(topic, looked)
    }

    async fn topics(&self) -> Result<Vec<TopicName>> {
        self.store.topics().await
    }

    async fn create(&self, wanted: &Descriptor) -> Result<Descriptor> {
        self.make(wanted).await
    }

    async fn update(&self, wanted: &Descriptor) -> Result<Descriptor> {
        self.change(wanted).await
    }

    async fn publish_settings(&self, descriptor: &Descriptor) -> Result<()> {
        self.store.publish_settings(descriptor).await
    }

    async fn delete(&self, descriptor: &Descriptor) -> Result<Option<Descriptor>> {
        let tombstone = self.unless_lost(self.store.delete(descriptor)).await?;
        self.keep_deletion(&descriptor.topic, tombstone.as_ref()).await;
        Ok(tombstone)
    }

    async fn delete_unchanged(&self, descriptor: &Descriptor) -> Result<Option<Descriptor>> {
        let tombstone = self.unless_lost(self.store.delete_unchanged(descriptor)).await?;
        self.keep_deletion(&descriptor.topic, tombstone.as_ref()).await;
        Ok(tombstone)
    }
}

#[async_trait]
impl<S: LogTarget> store::Messages for BufferedStore<S> {
    async fn take_over(&self, handed: HandedOver, is_admin: bool) -> Result<TakenOver> {
        self.take(handed, is_admin).await
    }

    async fn push(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        messages: &[Message],
    ) -> Result<Vec<PushVerdict>> {
        let puts = self.accept(descriptor, partition, call, Conflict::Keep, messages).await?;
        let verdict = |(put, there)| match put {
            Put::Pushed(pushed) => Ok(PushVerdict { pushed, there }),
            Put::InFlight | Put::Dead | Put::OtherKey | Put::Expires => {
                Err(Error::bug("a push was answered as one with a policy"))
            }
        };
        puts.into_iter().map(verdict).collect()
    }

    async fn put(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        conflict: Conflict,
        messages: &[Message],
    ) -> Result<Vec<Put>> {
        if messages.len() > PUT_IDS_MAX {
            let detail = format!("{} messages in one call, at most {PUT_IDS_MAX}", messages.len());
            return Err(Error::new(Kind::TooLarge, detail));
        }
        let puts = self.accept(descriptor, partition, call, conflict, messages).await?;
        Ok(puts.into_iter().map(|(put, _)| put).collect())
    }

    async fn cancel(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        id: &MessageId,
    ) -> Result<Cancelled> {
        self.withdraw(descriptor, partition, call, id).await
    }

    async fn purge_group(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        purge: &Purge,
    ) -> Result<Purged> {
        self.check_restored()?;
        let losses = self.losses();
        let purged = self.reach(self.store.purge_group(descriptor, partition, call, purge)).await?;
        self.keep_purge(descriptor, partition, purge, purged.version, losses).await?;
        Ok(purged)
    }

    async fn reschedule(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        reschedule: &Reschedule,
    ) -> Result<Rescheduled> {
        self.postpone(descriptor, partition, call, reschedule).await
    }

    async fn settle_late(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        group: &GroupName,
        call: &Call,
        settlements: &[LateSettlement],
    ) -> Result<Vec<LateFate>> {
        let losses = self.losses();
        let settled = self.store.settle_late(descriptor, partition, group, call, settlements);
        let fates = self.reach(settled).await?;
        self.keep_late_ends(descriptor, partition, group, settlements.iter().zip(&fates), losses).await?;
        Ok(fates)
    }

    async fn buffered(&self, topic: &TopicName, id: &MessageId) -> Result<Vec<Buffered>> {
        self.buffered_of(topic, id).await
    }
}

/// The journal keeps which dead letters were deleted, or forwarded to another topic. Nothing is buffered.
#[async_trait]
impl<S: LogTarget> store::DeadLetters for BufferedStore<S> {
    async fn dead(
        &self,
        partition: &GroupPartition,
        after: Option<&DeadLetterCursor>,
        limit: usize,
    ) -> Result<DeadLetterPage> {
        self.store.dead(partition, after, limit).await
    }

    async fn redrive(&self, partition: &GroupPartition, ids: &[MessageId]) -> Result<Vec<bool>> {
        self.store.redrive(partition, ids).await
    }

    /// While a loss is restored nothing is purged: a journal that is not offered yet may have it.
    async fn purge(&self, partition: &GroupPartition, ids: &[MessageId]) -> Result<Vec<Option<Version>>> {
        self.check_restored()?;
        let losses = self.losses();
        let versions = self.store.purge(partition, ids).await?;
        let purged = ids.iter().zip(&versions).filter_map(|(id, version)| Some((id, (*version)?)));
        self.keep_purged_dead(partition, purged, losses).await?;
        Ok(versions)
    }

    async fn drop_dead(&self, partition: &GroupPartition, bounds: DeadLetterRetention) -> Result<DroppedDeadLetters> {
        self.store.drop_dead(partition, bounds).await
    }

    /// While a loss is restored nothing is forwarded: what the store has is older than what it answered.
    async fn forward(&self, partition: &GroupPartition, to: Option<&Descriptor>, ids: &[MessageId]) -> Result<Forward> {
        self.check_restored()?;
        let losses = self.losses();
        let forward = self.store.forward(partition, to, ids).await?;
        if let (Forward::Done(page), Some(to)) = (&forward, to) {
            self.keep_forwarded(partition, to, page, losses).await?;
        }
        Ok(forward)
    }

    async fn forwarded(&self, partition: &GroupPartition, page: &Forwarded) -> Result<()> {
        self.store.forwarded(partition, page).await
    }
}

#[async_trait]
impl<S: LogTarget> store::Leases for BufferedStore<S> {
    async fn acquire(
        &self,
        partition: &GroupPartition,
        member: &MemberId,
        ttl: Duration,
        generation: u64,
    ) -> Result<Acquired> {
        let acquired = self.store.acquire(partition, member, ttl, generation).await?;
        Ok(match (acquired, &self.journal) {
            (Acquired::Owned(owner), Some(journal)) => {
                let (journal, losses) = (journal.clone(), self.store.losses());
                Acquired::Owned(Box::new(JournaledOwner::new(owner, journal, losses, partition.clone())))
            }
            (acquired, _) => acquired,
        })
    }

    async fn owner_records(&self, partitions: &[GroupPartition]) -> Result<Vec<Option<OwnerRecord>>> {
        self.store.owner_records(partitions).await
    }

    async fn renew(&self, member: &MemberId, claims: &[Claim], ttl: Duration) -> Vec<Result<Renewal>> {
        self.store.renew(member, claims, ttl).await
    }
}

/// The journal keeps which messages were moved to another topic. Nothing is buffered.
#[async_trait]
impl<S: LogTarget> store::Maintenance for BufferedStore<S> {
    async fn copy(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        group: &GroupName,
        from: Option<CopyCursor>,
    ) -> Result<Copied> {
        self.store.copy(descriptor, partition, group, from).await
    }

    async fn claim_stats_collection(&self, member: &MemberId, ttl: Duration) -> Result<StatsClaim> {
        self.store.claim_stats_collection(member, ttl).await
    }

    async fn yield_stats_collection(&self, member: &MemberId) -> Result<()> {
        self.store.yield_stats_collection(member).await
    }

    /// While a loss is restored nothing is moved: what the store has is older than what it answered.
    async fn move_page(&self, from: &Descriptor, partition: &GroupPartition, to: &Descriptor) -> Result<MovedPage> {
        self.check_restored()?;
        let losses = self.losses();
        let page = self.store.move_page(from, partition, to).await?;
        // The other groups have what they had.
        let to_group = Descriptor { groups: vec![partition.group.clone()], ..to.clone() };
        self.keep_forwarded(partition, &to_group, &page.arrived, losses).await?;
        Ok(page)
    }

    async fn moved(&self, partition: &GroupPartition, page: &MovedPage) -> Result<()> {
        self.store.moved(partition, page).await
    }

    /// While a loss is restored nothing is given back, as nothing is moved.
    async fn call_back_move(&self, partition: &GroupPartition) -> Result<()> {
        self.check_restored()?;
        self.store.call_back_move(partition).await
    }

    async fn audit(&self, partition: &GroupPartition, from: Option<&VerifyCursor>, repair: bool) -> Result<VerifyPage> {
        self.store.audit(partition, from, repair).await
    }
}

impl<S: LogTarget> BufferedStore<S> {
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

    /// Cancels a message in the store and in the WAL. Errors: While the store is unavailable: `Unavailable` for what is
    /// not in the WAL, or was on its way to the store when it became unavailable; `OutcomeUnknown` for what was in the
    /// WAL, and is not any more, but was sent to the store before without an answer.
    pub(super) async fn withdraw(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        id: &MessageId,
    ) -> Result<Cancelled> {
        if let Some(refusal) = self.breaker.refusal() {
            return Err(Error::unavailable(refusal.detail().to_owned()));
        }
        if descriptor.generation == 0 || self.breaker.reason().is_some() {
            return self.cancel_buffered(descriptor, partition, id).await;
        }
        // No page is on its way to the store meanwhile, so what is in the WAL is not, and the rest was answered for.
        let _still = self.still(id).await?;
        let is_buffered = !self.buffered_of(&descriptor.topic, id).await?.is_empty();
        let losses = self.losses();
        let mut cancelled = self.limited(self.store.cancel(descriptor, partition, call, id)).await?;
        let has_it = cancelled.fates.has(Fate::InFlight) || cancelled.fates.has(Fate::Dead);
        if is_buffered && !has_it {
            // Its record comes out of the log later, and finds that it was cancelled.
            let version = cancelled.version.unwrap_or_default().max(self.store.clock().versions(1));
            self.limited(self.store.withdraw(descriptor, partition, id, version)).await?;
            cancelled.fates.0.iter_mut().for_each(|(_, fate)| *fate = Fate::Done);
            (cancelled.version, cancelled.buffered) = (Some(version), true);
        } else if self.is_giving_back() && cancelled.fates.0.iter().all(|(_, fate)| *fate == Fate::Absent) {
            return Err(restoring());
        }
        if let Some(version) = cancelled.version {
            self.keep_cancel(descriptor, partition, id, (&cancelled.fates, version), losses).await?;
        }
        Ok(cancelled)
    }

    /// Cancels what is in the WAL while the store cannot be asked. It will be appended, in case that it has the message
    /// from an earlier push of the same id.
    async fn cancel_buffered(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        id: &MessageId,
    ) -> Result<Cancelled> {
        let unbuffered = self.unbuffer(&descriptor.topic, id).await?;
        if unbuffered == wal::Cancelled::Absent {
            let away = self.breaker.reason();
            return Err(away.unwrap_or_else(|| Error::unavailable("the topic is on its way to the store")));
        }
        let (topic, version) = (descriptor.topic.clone(), self.store.clock().versions(1));
        let cancel = vec![Record::Cancel { topic, partition, id: id.clone(), version }];
        let appended = self.wal.append(cancel.clone()).await;
        self.held.appended(&cancel, self.wal.depth().end);
        self.buffered.notify_one();
        if unbuffered == wal::Cancelled::RemovedSent {
            return Err(perhaps_sent());
        }
        appended.map_err(|error| Error::outcome_unknown(error.detail().to_owned()))?;
        Ok(Cancelled { fates: Fates::all(&descriptor.groups, Fate::Done), version: Some(version), buffered: true })
    }

    async fn unbuffer(&self, topic: &TopicName, id: &MessageId) -> Result<wal::Cancelled> {
        let until = Clock::System.instant().plus(self.timeout);
        loop {
            if self.wal.depth().records == 0 {
                return Ok(wal::Cancelled::Absent);
            }
            let outcome = {
                let _still = self.still(id).await?;
                self.wal.cancel(topic, id).await?
            };
            if outcome != wal::Cancelled::Replaying {
                return Ok(outcome);
            }
            if self.breaker.reason().is_some() || Clock::System.instant() >= until {
                return Err(on_its_way(id));
            }
            Clock::System.sleep(PAUSE.0).await;
        }
    }

    /// Waits until no page is on its way to the store, and keeps the next one back.
    async fn still(&self, id: &MessageId) -> Result<Option<tokio::sync::MutexGuard<'_, ()>>> {
        if self.wal.depth().records == 0 {
            return Ok(None);
        }
        tokio::select! {
            still = self.offering.lock() => Ok(Some(still)),
            () = Clock::System.sleep(self.timeout) => Err(on_its_way(id)),
        }
    }

    /// The messages of this id that are in the WAL. Reads all of it, if there is anything in it.
    async fn buffered_of(&self, topic: &TopicName, id: &MessageId) -> Result<Vec<Buffered>> {
        let (mut found, mut after) = (Vec::new(), None);
        while self.wal.depth().records > 0 {
            let page = self.wal.peek(after, PAGE_RECORDS, PAGE_BYTES).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.position);
            found.extend(page.into_iter().filter_map(|entry| match entry.record {
                Record::Push { topic: of, message, .. } if of == *topic && message.id == *id => {
                    Some(Buffered { routing_key: message.routing_key().to_owned(), key: message.envelope.key })
                }
                _ => None,
            }));
        }
        Ok(found)
    }

    /// Reschedules a message in the store. Errors: `Unavailable` while the store is unavailable, and for a message that
    /// the store does not have while others are buffered.
    async fn postpone(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        reschedule: &Reschedule,
    ) -> Result<Rescheduled> {
        if self.is_giving_back() {
            let why = "the store lost data, and the brokers are giving it back: reschedule it once they have";
            return Err(Error::unavailable(why));
        }
        let losses = self.losses();
        let rescheduled = self.reach(self.store.reschedule(descriptor, partition, call, reschedule)).await?;
        let Rescheduled::Done(fates) = &rescheduled else { return Ok(rescheduled) };
        if fates.0.iter().all(|(_, fate)| *fate == Fate::Absent) && self.wal.depth().records > 0 {
            let why = "the store does not have it, but messages are on their way there: reschedule it once they are";
            return Err(Error::unavailable(why));
        }
        if fates.has(Fate::Done) {
            self.keep_reschedule(descriptor, partition, call, &reschedule.id, fates, losses).await?;
        }
        Ok(rescheduled)
    }
}

fn on_its_way(id: &MessageId) -> Error {
    Error::unavailable(format!(
        "message {id} is perhaps on its way to the store, which has not answered; cancel it later"
    ))
}

fn perhaps_sent() -> Error {
    Error::outcome_unknown(
        "it was buffered and is not any more, but the store was sent it before and did not answer: cancel it again once the \
         store answers",
    )
}
