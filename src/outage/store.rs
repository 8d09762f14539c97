//! The contract of a store, kept by two.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::BufferedStore;
use super::answers::JournaledOwner;
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::PUT_IDS_MAX;
use crate::model::message::{Conflict, GroupName, Key, Message, MessageId, ScheduleName, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::{Descriptor, GroupPartition};
use crate::platform::disk::free_bytes;
use crate::store::{
    Acquired, Call, Cancelled, CensusClaim, Claim, Copied, CopyCursor, DeadBounds, DeadCursor, DeadDropped, DeadPage,
    Description, Fired, Firing, Forecast, HandedOver, HealthSnapshot, Heartbeat, InFlightCursor, LiveMember, LogTarget,
    Loss, MemberId, MemberReport, MovedPage, Page, PartitionDepth, PartitionStats, Peeked, Pushed, Put, Renewal,
    Reschedule, Rescheduled, ScheduleChange, ScheduleRecord, SlotAsk, Slots, Spans, Store, StoreClock, TakenOver,
    Tenant, VerifyCursor, VerifyPage, WaitingCursor, Wakes, Window, WindowPage,
};

#[async_trait]
impl<S: LogTarget> Store for BufferedStore<S> {
    fn describe(&self) -> Description {
        let inner = self.store.describe();
        let buffered =
            format!("{}; while it is away, pushes are fsynced in {}", inner.durability, self.options.dir.display());
        let durability = match self.options.journal_window {
            None => buffered,
            Some(window) => format!("{buffered}, and always for the last {window:?}"),
        };
        Description { durability, ..inner }
    }

    async fn take_over(&self, handed: HandedOver, is_admin: bool) -> Result<TakenOver> {
        self.take(handed, is_admin).await
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

    async fn run(&self, stop: CancellationToken) {
        tokio::join!(
            self.store.run(stop.clone()),
            self.replay(stop.clone()),
            self.watch(stop.clone()),
            self.watch_clock(stop.clone()),
            self.known.run(&self.clock, stop),
        );
    }

    async fn ping(&self) -> Result<()> {
        self.store.ping().await
    }

    async fn identity(&self, offered: &str) -> Result<String> {
        self.store.identity(offered).await
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
                Ok(Some(format!("{}; pushes are buffered on disk, {waiting} records so far", away.detail())))
            }
            None if self.is_giving_back() => Ok(Some(self.restoring_detail())),
            None if waiting > 0 => Ok(Some(format!("{waiting} buffered messages are being replayed"))),
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
        self.known.save().await;
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

    async fn topic(&self, topic: &TopicName) -> Result<Option<Descriptor>> {
        self.find(topic).await
    }

    async fn look_at_topic(&self, topic: &TopicName) -> Result<Option<Descriptor>> {
        let looked = match self.breaker.reason() {
            None => self.limited(self.store.look_at_topic(topic)).await,
            Some(reason) => Err(Error::unavailable(reason.detail().to_owned())),
        };
        match looked {
            Err(error) if error.is_outage() => self.known.get(topic).map(Some).ok_or(error),
            looked => looked,
        }
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

    async fn proclaim(&self, descriptor: &Descriptor) -> Result<()> {
        self.store.proclaim(descriptor).await
    }

    async fn copy(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        group: &GroupName,
        from: Option<CopyCursor>,
    ) -> Result<Copied> {
        self.store.copy(descriptor, partition, group, from).await
    }

    async fn delete(&self, descriptor: &Descriptor) -> Result<()> {
        self.store.delete(descriptor).await?;
        self.is_deleted(descriptor).await;
        Ok(())
    }

    async fn delete_unchanged(&self, descriptor: &Descriptor) -> Result<()> {
        self.store.delete_unchanged(descriptor).await?;
        self.is_deleted(descriptor).await;
        Ok(())
    }

    async fn push(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        messages: &[Message],
    ) -> Result<Vec<Pushed>> {
        let puts = self.accept(descriptor, partition, call, Conflict::Keep, messages).await?;
        let pushed = |put| match put {
            Put::Pushed(pushed) => Ok(pushed),
            Put::InFlight | Put::Dead | Put::OtherKey | Put::Expires => {
                Err(Error::bug("a push was answered as one with a policy"))
            }
        };
        puts.into_iter().map(pushed).collect()
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
        self.accept(descriptor, partition, call, conflict, messages).await
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

    async fn reschedule(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &Call,
        reschedule: &Reschedule,
    ) -> Result<Rescheduled> {
        self.postpone(descriptor, partition, call, reschedule).await
    }

    async fn peek(&self, pair: &GroupPartition, id: &MessageId) -> Result<Option<Peeked>> {
        self.store.peek(pair, id).await
    }

    async fn bodies(&self, pair: &GroupPartition, ids: &[MessageId]) -> Result<Vec<Option<Message>>> {
        self.store.bodies(pair, ids).await
    }

    async fn waiting(
        &self,
        pair: &GroupPartition,
        window: Window,
        after: Option<&WaitingCursor>,
        limit: usize,
    ) -> Result<Page<WaitingCursor>> {
        self.store.waiting(pair, window, after, limit).await
    }

    async fn in_flight(
        &self,
        pair: &GroupPartition,
        after: Option<&InFlightCursor>,
        limit: usize,
    ) -> Result<Page<InFlightCursor>> {
        self.store.in_flight(pair, after, limit).await
    }

    async fn buffered(&self, topic: &TopicName, id: &MessageId) -> Result<Vec<Option<Key>>> {
        self.buffered_keys(topic, id).await
    }

    async fn stats(&self, pairs: &[GroupPartition]) -> Result<Vec<PartitionStats>> {
        self.store.stats(pairs).await
    }

    async fn audit(&self, pair: &GroupPartition, from: Option<&VerifyCursor>, repair: bool) -> Result<VerifyPage> {
        self.store.audit(pair, from, repair).await
    }

    async fn depth(&self, pairs: &[GroupPartition], within: &[Duration]) -> Result<Vec<PartitionDepth>> {
        self.store.depth(pairs, within).await
    }

    async fn claim_census(&self, member: &MemberId, ttl: Duration) -> Result<CensusClaim> {
        self.store.claim_census(member, ttl).await
    }

    async fn give_census(&self, member: &MemberId) -> Result<()> {
        self.store.give_census(member).await
    }

    fn vitals(&self) -> HealthSnapshot {
        self.wal.observe();
        if let Some(journal) = &self.journal {
            journal.log().observe();
        }
        HealthSnapshot { free_bytes: free_bytes(&self.options.dir), is_away: self.breaker.reason().is_some() }
    }

    async fn forecast(&self, pairs: &[GroupPartition], spans: Spans) -> Result<Vec<Forecast>> {
        self.store.forecast(pairs, spans).await
    }

    async fn window(
        &self,
        pair: &GroupPartition,
        window: Window,
        after: Option<&(Timestamp, MessageId)>,
        limit: usize,
    ) -> Result<WindowPage> {
        self.store.window(pair, window, after, limit).await
    }

    async fn dead(&self, pair: &GroupPartition, after: Option<&DeadCursor>, limit: usize) -> Result<DeadPage> {
        self.store.dead(pair, after, limit).await
    }

    async fn redrive(&self, pair: &GroupPartition, ids: &[MessageId]) -> Result<Vec<bool>> {
        self.store.redrive(pair, ids).await
    }

    async fn purge(&self, pair: &GroupPartition, ids: &[MessageId]) -> Result<Vec<bool>> {
        self.store.purge(pair, ids).await
    }

    async fn drop_dead(&self, pair: &GroupPartition, bounds: DeadBounds) -> Result<DeadDropped> {
        self.store.drop_dead(pair, bounds).await
    }

    async fn schedule_places(&self) -> Result<Vec<(TopicName, Partition)>> {
        self.store.schedule_places().await
    }

    async fn schedules(&self, topic: &TopicName, partition: Partition) -> Result<Vec<ScheduleRecord>> {
        self.store.schedules(topic, partition).await
    }

    async fn put_schedule(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        change: &ScheduleChange,
    ) -> Result<bool> {
        self.store.put_schedule(descriptor, partition, change).await
    }

    async fn remove_schedule(&self, topic: &TopicName, partition: Partition, name: &ScheduleName) -> Result<bool> {
        self.store.remove_schedule(topic, partition, name).await
    }

    async fn fire(&self, descriptor: &Descriptor, partition: Partition, firing: &Firing) -> Result<Fired> {
        self.store.fire(descriptor, partition, firing).await
    }

    async fn move_page(&self, from: &Descriptor, pair: &GroupPartition, to: &Descriptor) -> Result<MovedPage> {
        self.store.move_page(from, pair, to).await
    }

    async fn beat(&self, member: &MemberId, heartbeats: &[Heartbeat], ttl: Duration) -> Vec<Result<Vec<LiveMember>>> {
        self.store.beat(member, heartbeats, ttl).await
    }

    async fn members(&self, topic: &TopicName, group: &GroupName, ttl: Duration) -> Result<Vec<MemberReport>> {
        self.store.members(topic, group, ttl).await
    }

    async fn leave(&self, topic: &TopicName, group: &GroupName, member: &MemberId) -> Result<()> {
        self.store.leave(topic, group, member).await
    }

    async fn slots(&self, topic: &TopicName, group: &GroupName, ask: SlotAsk) -> Result<Slots> {
        self.store.slots(topic, group, ask).await
    }

    async fn acquire(
        &self,
        pair: &GroupPartition,
        member: &MemberId,
        ttl: Duration,
        generation: u64,
    ) -> Result<Acquired> {
        let acquired = self.store.acquire(pair, member, ttl, generation).await?;
        Ok(match (acquired, &self.journal) {
            (Acquired::Owned(owner), Some(journal)) => {
                Acquired::Owned(Box::new(JournaledOwner::new(owner, journal.clone(), pair.clone())))
            }
            (acquired, _) => acquired,
        })
    }

    async fn tenants(&self, pairs: &[GroupPartition]) -> Result<Vec<Option<Tenant>>> {
        self.store.tenants(pairs).await
    }

    async fn send(&self, to: &MemberId, datagram: Bytes) -> Result<bool> {
        self.store.send(to, datagram).await
    }

    async fn renew(&self, member: &MemberId, claims: &[Claim], ttl: Duration) -> Vec<Result<Renewal>> {
        self.store.renew(member, claims, ttl).await
    }
}
