//! The parts of the store contract that the outage path leaves to the store, but for what the journal keeps of them. `run` starts the
//! loops of this layer: `replay` is the one of the WAL, and `watch` the one of the journal.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::BufferedStore;
use super::journal::JournaledOwner;
use crate::model::error::{Error, Result};
use crate::model::message::{GroupName, MessageId};
use crate::model::partition::Partition;
use crate::model::spelling::counted;
use crate::model::topic::{Descriptor, GroupPartition};
use crate::model::version::Version;
use crate::platform::disk::free_bytes;
use crate::platform::signing_key::SigningKey;
use crate::store::{
    self, Acquired, Claim, Copied, CopyCursor, DeadLetterOutlinePage, DeadLetterPage, DeadLetterRange,
    DeadLetterRetention, Description, DroppedDeadLetters, Forward, Forwarded, HealthSnapshot, LogTarget, Loss,
    MemberId, MovedPage, NodeMemory, OwnerRecord, Owners, Renewal, StatsClaim, Store, StoreClock, VerifyCursor,
    VerifyPage, Wakes, WalDepth,
};
use crate::wal::Depth;

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
            None if self.is_loss_suspected() => Ok(Some(self.restoring_detail())),
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

    fn memory(&self) -> Vec<NodeMemory> {
        self.store.memory()
    }

    fn wal_depth(&self) -> WalDepth {
        let Depth { records, bytes, .. } = self.wal.depth();
        WalDepth { records, bytes, limit_bytes: self.wal.limit_bytes() }
    }

    fn journal_depth(&self) -> (u64, u64) {
        let depth = self.journal.as_ref().map(|journal| journal.log().depth());
        depth.map_or((0, 0), |Depth { records, bytes, .. }| (records, bytes))
    }

    fn health_snapshot(&self) -> HealthSnapshot {
        self.wal.observe();
        if let Some(journal) = &self.journal {
            journal.log().observe();
        }
        HealthSnapshot { free_bytes: free_bytes(&self.options.dir), is_away: self.breaker.reason().is_some() }
    }
}

/// The journal keeps which dead letters were deleted, or forwarded to another topic. Nothing is buffered.
#[async_trait]
impl<S: LogTarget> store::DeadLetters for BufferedStore<S> {
    async fn dead_by_age(&self, range: &DeadLetterRange) -> Result<DeadLetterPage> {
        self.store.dead_by_age(range).await
    }

    async fn dead_outlines(&self, ranges: &[DeadLetterRange]) -> Result<Vec<DeadLetterOutlinePage>> {
        self.store.dead_outlines(ranges).await
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
