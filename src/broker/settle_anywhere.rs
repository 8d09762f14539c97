//! Settling deliveries at any broker. A receipt names the broker that made its delivery, and that one decides; the store is
//! asked only about a broker that is silent or gone, and about who owns a partition now. docs/internals/groups.md, "Settle
//! anywhere", says why no verdict is wrong.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, join, try_join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio_util::sync::CancellationToken;

use super::Broker;
use crate::delivery::remote::{Ask, Opened, Ruling, TopicGroup, What};
use crate::delivery::{Decision, Late, Read, Receipt, StaleReason, Verdict};
use crate::model::error::{Kind, Result};
use crate::model::message::{GroupName, TopicName};
use crate::model::partition::Partition;
use crate::model::topic::check_visibility_timeout;
use crate::platform::clock::Instant;
use crate::store::{MemberId, OwnerRecord};

/// The pause before a request that somebody may have received is repeated: from the first to the longest.
const REPEAT_AFTER: Pauses = Pauses { next: Duration::from_millis(250), most: Duration::from_secs(1) };
/// The pause before an owner that nobody found is looked for again.
const LOOK_AGAIN_AFTER: Pauses = Pauses { next: Duration::from_millis(25), most: Duration::from_millis(500) };

const LOST: Verdict = Verdict::Stale(StaleReason::LostPartition);

#[derive(Debug, Clone, Copy)]
struct Pauses {
    next: Duration,
    most: Duration,
}

impl Pauses {
    fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.most);
        pause
    }
}

/// A receipt and its place in the request.
type Item = (usize, Receipt);

/// Rulings with the places of their receipts in the request.
type Rulings = Vec<(usize, Ruling)>;

/// Which broker is to decide about which receipts.
#[derive(Default)]
struct Routes {
    owners: BTreeMap<MemberId, Vec<Item>>,
    /// Their epochs are over, as the store says.
    over: Rulings,
}

impl Routes {
    fn add(&mut self, owner: &MemberId, item: Item) {
        self.owners.entry(owner.clone()).or_default().push(item);
    }
}

impl Broker {
    /// Whichever broker handed them out, in the order asked. Errors: as [`Broker::settle`].
    pub async fn settle_anywhere(
        &self,
        topic: &TopicName,
        group: &GroupName,
        decisions: Vec<(String, Decision)>,
        late: impl Into<Late>,
    ) -> Result<Vec<Ruling>> {
        self.rule((topic, group), Ask { what: What::Settle(decisions), late: late.into() }).await
    }

    /// Whichever broker handed them out, in the order asked. With `late` a message that waits since its delivery ended,
    /// and that nobody has had since, waits until `timeout` from now. Errors: as [`Broker::extend`].
    pub async fn extend_anywhere(
        &self,
        topic: &TopicName,
        group: &GroupName,
        receipts: Vec<String>,
        timeout: Duration,
        late: bool,
    ) -> Result<Vec<Ruling>> {
        check_visibility_timeout(timeout)?;
        self.rule((topic, group), Ask { what: What::Extend(receipts, timeout), late: late.into() }).await
    }

    async fn rule(&self, place: TopicGroup<'_>, ask: Ask) -> Result<Vec<Ruling>> {
        let receipts = self.receipt_keys.read(&ask.receipts()).await;
        let elsewhere = self.elsewhere_of(place, &receipts, ask.late.counts()).await?;
        if elsewhere.is_empty() {
            let verdicts = self.here(place, &ask, receipts, self.settle_timeout()).await?;
            return Ok(verdicts.into_iter().map(Ruling::of).collect());
        }
        let until = self.clock().instant().plus(self.settle_timeout());
        let all = 0..receipts.len();
        let is_elsewhere = |at: &usize| elsewhere.binary_search_by_key(at, |(at, _)| *at).is_ok();
        let here: Vec<_> = receipts.into_iter().enumerate().filter(|(at, _)| !is_elsewhere(at)).collect();
        let there = async {
            let routes = self.routes(place, elsewhere, ask.late.counts(), until).await;
            self.there(place, &ask, routes, LOOK_AGAIN_AFTER, until).await
        };
        let (here, there) = join(self.picked(place, &ask, here, until), there).await;
        let mut rulings: BTreeMap<usize, Ruling> = here?.into_iter().chain(there?).collect();
        Ok(all.map(|at| rulings.remove(&at).unwrap_or(Ruling::of(Verdict::Unreachable))).collect())
    }

    /// Decides here. `receipts` are those of the request, read.
    async fn here(
        &self,
        (topic, group): TopicGroup<'_>,
        ask: &Ask,
        receipts: Vec<Read>,
        timeout: Duration,
    ) -> Result<Vec<Verdict>> {
        let until = self.clock().instant().plus(timeout);
        let late = if ask.late.counts() { receipts.clone() } else { Vec::new() };
        let mut verdicts = match &ask.what {
            What::Settle(decisions) => {
                let decisions =
                    receipts.into_iter().zip(decisions.iter().map(|(_, decision)| decision.clone())).collect();
                self.settle_uncounted(topic, group, decisions, timeout).await?
            }
            What::Extend(_, timeout) => self.extend_read(topic, group, receipts, *timeout).await?,
        };
        if ask.late.counts() {
            self.settle_late((topic, group), ask, &late, &mut verdicts, until).await?;
        }
        if let What::Settle(_) = ask.what {
            self.count_ended((topic, group), &verdicts);
        }
        Ok(verdicts)
    }

    /// Decides here about some receipts of a request.
    async fn picked(
        &self,
        place: TopicGroup<'_>,
        ask: &Ask,
        items: Vec<(usize, Read)>,
        until: Instant,
    ) -> Result<Rulings> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let (at, receipts): (Vec<usize>, Vec<Read>) = items.into_iter().unzip();
        let verdicts = self.here(place, &ask.pick(&at), receipts, until.since(self.clock().instant())).await?;
        Ok(at.into_iter().zip(verdicts.into_iter().map(Ruling::of)).collect())
    }

    /// To the broker that each receipt names. About one that was silent the store is asked first: if the epoch is over, nothing is
    /// sent.
    async fn routes(&self, place: TopicGroup<'_>, items: Vec<Item>, late: bool, until: Instant) -> Routes {
        let (silent, others): (Vec<Item>, Vec<Item>) =
            items.into_iter().partition(|(_, receipt)| self.remote.silent.has(&receipt.owner));
        let mut routes = self.routes_now(place, silent, late, until).await;
        others.into_iter().for_each(|item| routes.add(&item.1.owner.clone(), item));
        routes
    }

    /// As the store says who owns the partitions now. Late settlements of an epoch that is over are for the owner of now,
    /// and if there is none for this process. If the store does not say, they are for the broker that the receipt names.
    async fn routes_now(&self, place: TopicGroup<'_>, items: Vec<Item>, late: bool, until: Instant) -> Routes {
        let mut routes = Routes::default();
        let records = self.owner_records(place, &items, until).await;
        for item in items {
            let record = records.as_ref().map(|records| records.get(&item.1.partition));
            let member = record.flatten().and_then(|record| record.member.clone()).filter(MemberId::is_plausible);
            match record {
                Some(record) if is_over(record, &item.1) => match late {
                    true => routes.add(member.as_ref().unwrap_or(self.member()), item),
                    false => routes.over.push((item.0, Ruling::about(LOST, member.as_ref()))),
                },
                _ => routes.add(&item.1.owner.clone(), item),
            }
        }
        routes
    }

    /// The rulings of the brokers that decide. A late settlement that none of them could decide is brought to the owner of
    /// now, after a pause.
    fn there<'a>(
        &'a self,
        place: TopicGroup<'a>,
        ask: &'a Ask,
        routes: Routes,
        pauses: Pauses,
        until: Instant,
    ) -> BoxFuture<'a, Result<Rulings>> {
        let at_owner = async move |owner: MemberId, items: Vec<Item>, mut pauses: Pauses| {
            let asked = if owner == *self.member() {
                let receipts = items.iter().map(|(at, receipt)| (*at, Ok(receipt.clone()))).collect();
                self.picked(place, ask, receipts, until).await?
            } else {
                self.ask_owner(place, ask, &owner, &items, until).await
            };
            let is_open = |ruling: &Ruling| ask.late.counts() && ruling.verdict == Verdict::Unreachable;
            let (open, mut rulings): (Rulings, Rulings) = asked.into_iter().partition(|(_, ruling)| is_open(ruling));
            if open.is_empty() || !self.pause(pauses.next(), until).await {
                rulings.extend(open);
                return Ok(rulings);
            }
            let open = items.into_iter().filter(|(at, _)| open.iter().any(|(open, _)| open == at)).collect();
            let routes = self.routes_now(place, open, ask.late.counts(), until).await;
            rulings.extend(self.there(place, ask, routes, pauses, until).await?);
            Ok(rulings)
        };
        async move {
            let Routes { owners, over } = routes;
            if let What::Settle(_) = ask.what {
                self.metrics.group(place.0, place.1).stale.inc_by(over.len() as u64);
            }
            let asked = owners.into_iter().map(|(owner, items)| at_owner(owner, items, pauses));
            Ok(over.into_iter().chain(try_join_all(asked).await?.into_iter().flatten()).collect())
        }
        .boxed()
    }

    async fn pause(&self, pause: Duration, until: Instant) -> bool {
        let clock = self.clock();
        clock.sleep_until(clock.instant().plus(pause).min(until)).await;
        clock.instant() < until
    }

    /// `None` if the store does not say until then.
    async fn owner_records(
        &self,
        (topic, group): TopicGroup<'_>,
        items: &[Item],
        until: Instant,
    ) -> Option<BTreeMap<Partition, OwnerRecord>> {
        let partitions = partitions_of(items);
        if partitions.is_empty() {
            return Some(BTreeMap::new());
        }
        let look = async {
            let descriptor = self.topics.group(topic, group).await?;
            let of_group = |partition: &Partition| descriptor.group_partition(*partition, group);
            self.store.leases.owner_records(&partitions.iter().map(of_group).collect::<Vec<_>>()).await
        };
        let records = tokio::select! {
            records = look => records.ok()?,
            () = self.clock().sleep_until(until) => return None,
        };
        let known = partitions.into_iter().zip(records);
        Some(known.filter_map(|(partition, record)| Some((partition, record?))).collect())
    }

    /// Brings receipts to a broker, all in one request, which is repeated unchanged until it is answered.
    async fn ask_owner(
        &self,
        place: TopicGroup<'_>,
        ask: &Ask,
        owner: &MemberId,
        items: &[Item],
        until: Instant,
    ) -> Rulings {
        let at: Vec<usize> = items.iter().map(|(at, _)| *at).collect();
        let waits = until.since(self.clock().instant());
        let mut question = self.remote.question(place, ask.pick(&at), self.now().plus(waits));
        let mut perhaps_received = false;
        let (mut repeat, mut look_again) = (REPEAT_AFTER, LOOK_AGAIN_AFTER);
        let of_owner = |verdicts: Vec<Verdict>| at.iter().copied().zip(verdicts.into_iter().map(Ruling::of)).collect();
        let mut attending: Option<BoxFuture<'_, Infallible>> = None;
        loop {
            let sent = tokio::select! {
                sent = question.send(owner) => sent,
                () = self.clock().sleep_until(until) => break,
            };
            perhaps_received |= match &sent {
                Ok(received) => *received,
                Err(error) => error.kind() == Kind::OutcomeUnknown,
            };
            let pause = if matches!(sent, Ok(true)) { repeat.next() } else { look_again.next() };
            // Nobody receives what is sent to the owner: its process has ended, or is about to listen again.
            if matches!(sent, Ok(false))
                && let Some(rulings) = self.are_over(place, items, (perhaps_received, ask.late.counts()), until).await
            {
                // It may have answered meanwhile.
                let answered = question.answer().now_or_never();
                self.metrics.remote.request(answered.is_some());
                return answered.map_or(rulings, of_owner);
            }
            if matches!(sent, Ok(false)) && attending.is_none() && self.is_unowned(place, items, until).await {
                attending = Some(self.attend(place).boxed());
            }
            tokio::select! {
                Some(never) = async { Some(attending.as_mut()?.await) } => match never {},
                verdicts = question.answer() => {
                    self.metrics.remote.request(true);
                    self.remote.silent.answered(owner);
                    return of_owner(verdicts);
                }
                slept = self.pause(pause, until) => if !slept { break },
            }
            self.remote.silent.note(owner);
        }
        self.metrics.remote.request(false);
        self.remote.silent.note(owner);
        tracing::debug!(%owner, receipts = items.len(), perhaps_received, "an owner did not answer");
        items.iter().map(|(at, _)| (*at, Ruling::about(Verdict::Unreachable, Some(owner)))).collect()
    }

    /// `None` unless all epochs of these receipts are over. The owner may have settled receipts that it perhaps
    /// received.
    async fn are_over(
        &self,
        place: TopicGroup<'_>,
        items: &[Item],
        (perhaps_received, late): (bool, bool),
        until: Instant,
    ) -> Option<Rulings> {
        let records = self.owner_records(place, items, until).await?;
        if !items.iter().all(|(_, receipt)| is_over(records.get(&receipt.partition), receipt)) {
            return None;
        }
        let verdict = match perhaps_received {
            // It is for the owner of now.
            _ if late => Verdict::Unreachable,
            true => Verdict::UnknownOutcome,
            false => LOST,
        };
        let ruling = |(at, receipt): &Item| {
            let member = records.get(&receipt.partition).and_then(|record| record.member.as_ref());
            (*at, Ruling::about(verdict, member.filter(|_| !perhaps_received)))
        };
        Some(items.iter().map(ruling).collect())
    }

    /// Whether nobody has the lease of any of these partitions: their owner ended without a stop, and only a member of the group with
    /// consumers takes them over.
    async fn is_unowned(&self, (topic, group): TopicGroup<'_>, items: &[Item], until: Instant) -> bool {
        let look = async {
            let descriptor = self.topics.group(topic, group).await?;
            let of_group = |partition| descriptor.group_partition(partition, group);
            self.store.reads.stats(&partitions_of(items).into_iter().map(of_group).collect::<Vec<_>>()).await
        };
        tokio::select! {
            stats = look => stats.is_ok_and(|stats| stats.iter().all(|stats| stats.owner.is_none())),
            () = self.clock().sleep_until(until) => false,
        }
    }

    /// Takes part in the group until it is dropped, so that its partitions get an owner, which knows what became of a delivery.
    async fn attend(&self, (topic, group): TopicGroup<'_>) -> Infallible {
        let joined = async {
            let descriptor = self.topics.group(topic, group).await?;
            self.groups.join(&descriptor, group)
        };
        if let Ok(delivery) = joined.await {
            delivery.attend().await;
        }
        pending().await
    }

    pub(super) async fn answer_others(&self, stop: CancellationToken) {
        let mut datagrams = self.store.backend.wakes().datagrams(self.member());
        let mut working = FuturesUnordered::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                datagram = datagrams.next() => working.extend(self.remote.open(datagram).map(|opened| self.work(opened))),
                Some(()) = working.next() => {}
            }
        }
    }

    async fn work(&self, opened: Opened) {
        match opened {
            Opened::Repeat(to, answer) => self.remote.send(&to, answer).await,
            Opened::Inquire(request) => self.answer_inquiry(request).await,
            Opened::Decide(request) => {
                let (topic, group) = request.place.clone();
                // It stops waiting for the store before the sender stops waiting for it.
                let timeout = request.patience.min(self.settle_timeout()) * 4 / 5;
                let receipts = self.receipt_keys.read(&request.ask.receipts()).await;
                let decided = self.here((&topic, &group), &request.ask, receipts, timeout).await;
                self.remote.answer(request, decided).await;
            }
        }
    }
}

/// Each once.
fn partitions_of(items: &[Item]) -> Vec<Partition> {
    let mut partitions: Vec<Partition> = items.iter().map(|(_, receipt)| receipt.partition).collect();
    partitions.sort_unstable();
    partitions.dedup();
    partitions
}

/// Whether the epoch of a receipt is over, as the owner record of its partition says; `None` is one without an epoch.
fn is_over(record: Option<&OwnerRecord>, receipt: &Receipt) -> bool {
    record.and_then(|record| record.epoch.as_ref()) != Some(&receipt.epoch)
}
