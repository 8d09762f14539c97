//! Settling deliveries at any broker: those this one does not know are decided by the broker that handed them out.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, join, join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio_util::sync::CancellationToken;

use super::{Broker, check_count};
use crate::delivery::remote::{Ask, Opened, Place, Ruling, What};
use crate::delivery::{Decision, GroupTag, Receipt, StaleReason, Verdict, check_receipt, is_of};
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::{MIN_AGE_MAX, PER_KEY_MAX, WAIT_MAX};
use crate::model::message::{GroupName, TopicName};
use crate::model::partition::Partition;
use crate::model::time::show_span;
use crate::model::topic::{Descriptor, check_visibility_timeout};
use crate::platform::clock::Instant;
use crate::store::{HandedOver, MemberId, OwnerRecord, TakenOver};
use crate::wal::Record;

/// The pause before a request that somebody may have received is repeated: from the first to the longest.
const REPEAT_AFTER: Pauses = Pauses { next: Duration::from_millis(250), most: Duration::from_secs(1) };
/// The pause before an owner that nobody found is looked for again.
const LOOK_AGAIN_AFTER: Pauses = Pauses { next: Duration::from_millis(25), most: Duration::from_millis(500) };

/// The verdict on a receipt of a group whose partitions this process does not own.
fn nobodys(receipt: Option<Receipt>, descriptor: &Descriptor, group: &GroupName) -> Verdict {
    let tag = GroupTag::of(&descriptor.topic, group);
    check_receipt(receipt, tag, descriptor).map_or_else(|why| why, |_| Verdict::Stale(StaleReason::LostPartition))
}

impl Broker {
    /// Of this process, each answered for itself, in the order asked. Errors: `NotFound`, `Invalid` with none or too
    /// many.
    pub async fn settle(
        &self,
        topic: &TopicName,
        group: &GroupName,
        decisions: Vec<(String, Decision)>,
    ) -> Result<Vec<Verdict>> {
        self.settle_within(topic, group, decisions, self.settle_timeout()).await
    }

    /// With another time to wait for the store before an answer is `pending`. Errors: as [`Broker::settle`].
    pub async fn settle_within(
        &self,
        topic: &TopicName,
        group: &GroupName,
        decisions: Vec<(String, Decision)>,
        timeout: Duration,
    ) -> Result<Vec<Verdict>> {
        let read = |(receipt, decision): (String, Decision)| (Receipt::parse(&receipt), decision);
        let decisions = decisions.into_iter().map(read).collect();
        let verdicts = self.settle_uncounted(topic, group, decisions, timeout).await?;
        self.count_ended((topic, group), &verdicts);
        Ok(verdicts)
    }

    async fn settle_uncounted(
        &self,
        topic: &TopicName,
        group: &GroupName,
        decisions: Vec<(Option<Receipt>, Decision)>,
        timeout: Duration,
    ) -> Result<Vec<Verdict>> {
        check_count("receipts", decisions.len())?;
        let descriptor = self.topics.group(topic, group).await?;
        let Some(delivery) = self.groups.find(&descriptor, group)? else {
            return Ok(decisions.into_iter().map(|(receipt, _)| nobodys(receipt, &descriptor, group)).collect());
        };
        Ok(delivery.settle(decisions, timeout).await)
    }

    /// Counts the decisions that do not count, since their deliveries have ended.
    fn count_ended(&self, (topic, group): Place<'_>, verdicts: &[Verdict]) {
        let count = |is: fn(&&Verdict) -> bool| verdicts.iter().filter(is).count() as u64;
        let stale = count(|verdict| matches!(verdict, Verdict::Stale(_)));
        let unknown_outcome = count(|verdict| **verdict == Verdict::UnknownOutcome);
        if stale + unknown_outcome > 0 {
            let counts = self.metrics.group(topic, group);
            counts.stale.inc_by(stale);
            counts.unknown_outcome.inc_by(unknown_outcome);
        }
    }

    pub fn settle_timeout(&self) -> Duration {
        self.options.settle_timeout
    }

    /// To `timeout` from now, each answered for itself. Errors: `NotFound`, `Invalid` out of range.
    pub async fn extend(
        &self,
        topic: &TopicName,
        group: &GroupName,
        receipts: &[String],
        timeout: Duration,
    ) -> Result<Vec<Verdict>> {
        self.extend_read(topic, group, receipts.iter().map(|receipt| Receipt::parse(receipt)).collect(), timeout).await
    }

    async fn extend_read(
        &self,
        topic: &TopicName,
        group: &GroupName,
        receipts: Vec<Option<Receipt>>,
        timeout: Duration,
    ) -> Result<Vec<Verdict>> {
        check_count("receipts", receipts.len())?;
        check_visibility_timeout(timeout)?;
        let descriptor = self.topics.group(topic, group).await?;
        match self.groups.find(&descriptor, group)? {
            Some(delivery) => Ok(delivery.extend(receipts, timeout)),
            None => Ok(receipts.into_iter().map(|receipt| nobodys(receipt, &descriptor, group)).collect()),
        }
    }

    /// Those that another process may know more about, with their index. Late ones are for the owner of now. Errors:
    /// `NotFound`, `Invalid` with none or too many.
    pub async fn elsewhere(
        &self,
        topic: &TopicName,
        group: &GroupName,
        receipts: &[&str],
        late: bool,
    ) -> Result<Vec<(usize, Receipt)>> {
        let read: Vec<_> = receipts.iter().map(|receipt| Receipt::parse(receipt)).collect();
        self.elsewhere_of((topic, group), &read, late).await
    }

    async fn elsewhere_of(
        &self,
        (topic, group): Place<'_>,
        receipts: &[Option<Receipt>],
        late: bool,
    ) -> Result<Vec<(usize, Receipt)>> {
        check_count("receipts", receipts.len())?;
        let descriptor = self.topics.group(topic, group).await?;
        let delivery = self.groups.find(&descriptor, group)?;
        let tag = GroupTag::of(topic, group);
        let knows = |receipt: &Receipt| delivery.as_ref().is_some_and(|delivery| delivery.knows(receipt, late));
        let unknown = |receipt: &Receipt| is_of(receipt, tag, &descriptor) && !knows(receipt);
        let receipts = receipts.iter().enumerate().filter_map(|(at, receipt)| Some((at, receipt.as_ref()?)));
        Ok(receipts.filter(|(_, receipt)| unknown(receipt)).map(|(at, receipt)| (at, receipt.clone())).collect())
    }
}

#[derive(Debug, Clone, Copy)]
pub struct ReserveRequest {
    /// 1 to 1,000 deliveries.
    pub max: usize,
    /// How long to wait for the first one, at most 60 s. Zero looks for up to [`crate::delivery::SHORT_POLL`].
    pub wait: Duration,
    pub visibility_timeout: Option<Duration>,
}

/// Which messages a consumer wants.
#[derive(Debug, Clone, Copy)]
pub struct Selection {
    /// Only messages that were pushed at least this long ago, at most 3,650 d.
    pub min_age: Duration,
    /// With ordering: successive messages of one key in one batch, 1 to 10.
    pub per_key: usize,
}

impl Default for Selection {
    fn default() -> Selection {
        Selection { min_age: Duration::ZERO, per_key: 1 }
    }
}

impl Selection {
    pub(super) fn check_ordering(self, descriptor: &Descriptor) -> Result<()> {
        if self.per_key > 1 && !descriptor.is_ordered() {
            return Err(Error::invalid("per_key", "is above 1, but the topic has no ordering"));
        }
        Ok(())
    }
}

impl ReserveRequest {
    /// Checks every limit, also those of the selection. Errors: `Invalid`, naming the field.
    pub fn check(&self, Selection { min_age, per_key }: Selection) -> Result<()> {
        check_count("max", self.max)?;
        if !(1..=PER_KEY_MAX).contains(&per_key) {
            return Err(Error::range("per_key", format!("is 1 to {PER_KEY_MAX}")));
        }
        if min_age > MIN_AGE_MAX {
            return Err(Error::range("min_age", format!("is at most {}", show_span(MIN_AGE_MAX))));
        }
        if self.wait > WAIT_MAX {
            return Err(Error::range("wait", format!("is at most {}", show_span(WAIT_MAX))));
        }
        self.visibility_timeout.map_or(Ok(()), check_visibility_timeout)
    }
}

impl Broker {
    /// Keeps records of a broker that stops, durably. Without `is_admin` only topics that a push would create are
    /// taken, and deletions are left out. Errors: `Forbidden`, and those of [`crate::store::Messages::take_over`].
    pub async fn take_over(&self, handed: HandedOver, is_admin: bool) -> Result<TakenOver> {
        let is_pushed = |wanted: &Descriptor| {
            let pushed = Descriptor::new(wanted.topic.clone(), self.options.topic_defaults.clone());
            self.options.auto_create && *wanted == pushed
        };
        let created = handed.records.iter().filter_map(|record| match &record.record {
            Record::Create(wanted) => Some(wanted),
            _ => None,
        });
        if let Some(wanted) = created.filter(|_| !is_admin).find(|wanted| !is_pushed(wanted)) {
            let why = format!("topic {} was created with settings: that needs a token with `admin`", wanted.topic);
            return Err(Error::new(Kind::Forbidden, why));
        }
        self.store.messages.take_over(handed, is_admin).await
    }
}

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

type Item = (usize, Receipt);

#[derive(Default)]
struct Found {
    over: Vec<(usize, Ruling)>,
    /// This process acquired their partition a moment ago.
    mine: Vec<usize>,
    owned: BTreeMap<MemberId, Vec<Item>>,
    /// The store did not say, or the lease of the owner has lapsed and it may renew it.
    open: Vec<Item>,
}

impl Broker {
    /// Whichever broker handed them out, in the order asked. With `late` an ack or a nack counts after its delivery
    /// ended, if the message waits and nobody has had it since. Errors: as [`Broker::settle`].
    pub async fn settle_anywhere(
        &self,
        topic: &TopicName,
        group: &GroupName,
        decisions: Vec<(String, Decision)>,
        late: bool,
    ) -> Result<Vec<Ruling>> {
        self.rule((topic, group), Ask { what: What::Settle(decisions), late }).await
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
        self.rule((topic, group), Ask { what: What::Extend(receipts, timeout), late }).await
    }

    async fn rule(&self, place: Place<'_>, ask: Ask) -> Result<Vec<Ruling>> {
        let receipts = ask.read();
        let elsewhere = self.elsewhere_of(place, &receipts, ask.late).await?;
        if elsewhere.is_empty() {
            let verdicts = self.here(place, &ask, receipts, self.settle_timeout()).await?;
            return Ok(verdicts.into_iter().map(Ruling::of).collect());
        }
        let until = self.clock().instant().plus(self.settle_timeout());
        let all = 0..receipts.len();
        let is_elsewhere = |at: &usize| elsewhere.binary_search_by_key(at, |(at, _)| *at).is_ok();
        let mine: Vec<usize> = all.clone().filter(|at| !is_elsewhere(at)).collect();
        let there = self.there(place, &ask, elsewhere, LOOK_AGAIN_AFTER, until);
        let (here, there) = join(self.picked(place, &ask, &mine, until), there).await;
        let mut rulings: BTreeMap<usize, Ruling> = here?.into_iter().chain(there?).collect();
        Ok(all.map(|at| rulings.remove(&at).unwrap_or(Ruling::of(Verdict::Unreachable))).collect())
    }

    /// Decides here. `receipts` are those of the request, read.
    async fn here(
        &self,
        (topic, group): Place<'_>,
        ask: &Ask,
        receipts: Vec<Option<Receipt>>,
        timeout: Duration,
    ) -> Result<Vec<Verdict>> {
        let until = self.clock().instant().plus(timeout);
        let mut verdicts = match &ask.what {
            What::Settle(decisions) => {
                let decisions =
                    receipts.into_iter().zip(decisions.iter().map(|(_, decision)| decision.clone())).collect();
                self.settle_uncounted(topic, group, decisions, timeout).await?
            }
            What::Extend(_, timeout) => self.extend_read(topic, group, receipts, *timeout).await?,
        };
        if ask.late {
            self.settle_late((topic, group), ask, &mut verdicts, until).await?;
        }
        if let What::Settle(_) = ask.what {
            self.count_ended((topic, group), &verdicts);
        }
        Ok(verdicts)
    }

    async fn picked(&self, place: Place<'_>, ask: &Ask, at: &[usize], until: Instant) -> Result<Vec<(usize, Ruling)>> {
        if at.is_empty() {
            return Ok(Vec::new());
        }
        let ask = ask.pick(at);
        let verdicts = self.here(place, &ask, ask.read(), until.since(self.clock().instant())).await?;
        Ok(at.iter().copied().zip(verdicts.into_iter().map(Ruling::of)).collect())
    }

    /// The rulings of other owners. An owner that is not found is looked for again after a pause.
    fn there<'a>(
        &'a self,
        place: Place<'a>,
        ask: &'a Ask,
        items: Vec<Item>,
        mut pauses: Pauses,
        until: Instant,
    ) -> BoxFuture<'a, Result<Vec<(usize, Ruling)>>> {
        async move {
            let Found { over, mine, owned, mut open } = tokio::select! {
                found = self.look_for_owners(place, items.clone(), ask.late) => found,
                () = self.clock().sleep_until(until) => Found { open: items.clone(), ..Found::default() },
            };
            if let What::Settle(_) = ask.what {
                self.metrics.group(place.0, place.1).stale.inc_by(over.len() as u64);
            }
            let mut rulings = over;
            // A message that neither this process nor the store had may be at another owner by now.
            let (unclear, settled): (Vec<_>, Vec<_>) = self
                .picked(place, ask, &mine, until)
                .await?
                .into_iter()
                .partition(|(_, ruling)| ask.late && ruling.verdict == Verdict::Unreachable);
            rulings.extend(settled);
            let is_unclear = |(at, _): &&Item| unclear.iter().any(|(unclear, _)| unclear == at);
            open.extend(items.iter().filter(is_unclear).cloned());
            let asked = owned.iter().map(|(owner, items)| self.ask_owner(place, ask, owner, items, until));
            let later = async {
                if open.is_empty() || !self.pause(pauses.next(), until).await {
                    return Ok(open.iter().map(|(at, _)| (*at, Ruling::of(Verdict::Unreachable))).collect());
                }
                self.there(place, ask, open.clone(), pauses, until).await
            };
            let (asked, later) = join(join_all(asked), later).await;
            rulings.extend(asked.into_iter().flatten());
            rulings.extend(later?);
            Ok(rulings)
        }
        .boxed()
    }

    async fn pause(&self, pause: Duration, until: Instant) -> bool {
        let clock = self.clock();
        clock.sleep_until(clock.instant().plus(pause).min(until)).await;
        clock.instant() < until
    }

    /// Late receipts of an epoch that is over are for the owner of now, and if there is none for this process.
    async fn look_for_owners(&self, place: Place<'_>, items: Vec<Item>, late: bool) -> Found {
        let (mut found, mut unknown) = (Found::default(), Vec::new());
        for item in items {
            match self.remote.epochs.owner(place, &item.1) {
                Some(owner) => found.owned.entry(owner).or_default().push(item),
                None => unknown.push(item),
            }
        }
        let owner_records = self.owner_records(place, unknown.iter().map(|(_, receipt)| receipt.partition)).await;
        for item in unknown {
            let record = match &owner_records {
                Ok(owner_records) => owner_records.get(&item.1.partition),
                Err(_) => {
                    found.open.push(item);
                    continue;
                }
            };
            let lost = Verdict::Stale(StaleReason::LostPartition);
            let member = record.and_then(|record| record.member.clone()).filter(MemberId::is_plausible);
            match record.map(|record| (record, self.remote.learn(place, &item.1, record))) {
                None | Some((_, None | Some(None))) if late => match member {
                    Some(owner) if owner != *self.member() => found.owned.entry(owner).or_default().push(item),
                    _ => found.mine.push(item.0),
                },
                None => found.over.push((item.0, Ruling::of(lost))),
                Some((record, None)) => found.over.push((item.0, Ruling::about(lost, record.member.as_ref()))),
                Some((_, Some(None))) => found.open.push(item),
                Some((_, Some(Some(owner)))) if owner == *self.member() => found.mine.push(item.0),
                Some((_, Some(Some(owner)))) => found.owned.entry(owner).or_default().push(item),
            }
        }
        found
    }

    async fn owner_records(
        &self,
        (topic, group): Place<'_>,
        partitions: impl Iterator<Item = Partition>,
    ) -> Result<BTreeMap<Partition, OwnerRecord>> {
        let mut partitions: Vec<Partition> = partitions.collect();
        partitions.sort_unstable();
        partitions.dedup();
        if partitions.is_empty() {
            return Ok(BTreeMap::new());
        }
        let descriptor = self.topics.group(topic, group).await?;
        let group_partitions: Vec<_> =
            partitions.iter().map(|partition| descriptor.group_partition(*partition, group)).collect();
        let owner_records = self.store.leases.owner_records(&group_partitions).await?;
        Ok(partitions
            .into_iter()
            .zip(owner_records)
            .filter_map(|(partition, record)| Some((partition, record?)))
            .collect())
    }

    /// Brings receipts to their owner, all in one request, which is repeated unchanged until it is answered.
    async fn ask_owner(
        &self,
        place: Place<'_>,
        ask: &Ask,
        owner: &MemberId,
        items: &[Item],
        until: Instant,
    ) -> Vec<(usize, Ruling)> {
        let at: Vec<usize> = items.iter().map(|(at, _)| *at).collect();
        let waits = until.since(self.clock().instant());
        let mut question = self.remote.question(place, ask.pick(&at), self.now().plus(waits));
        let mut perhaps_received = false;
        let (mut repeat, mut look_again) = (REPEAT_AFTER, LOOK_AGAIN_AFTER);
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
            tokio::select! {
                verdicts = question.answer() => {
                    self.metrics.remote.request(true);
                    return at.into_iter().zip(verdicts.into_iter().map(Ruling::of)).collect();
                }
                slept = self.pause(pause, until) => if !slept { break },
            }
            // Nobody receives what is sent to the owner: its process has ended, or is about to listen again.
            if matches!(sent, Ok(false))
                && let Some(rulings) = self.are_over(place, items, (perhaps_received, ask.late), until).await
            {
                // It may have answered meanwhile.
                let answered = question.answer().now_or_never();
                self.metrics.remote.request(answered.is_some());
                return match answered {
                    Some(verdicts) => at.into_iter().zip(verdicts.into_iter().map(Ruling::of)).collect(),
                    None => rulings,
                };
            }
        }
        self.metrics.remote.request(false);
        tracing::debug!(%owner, receipts = items.len(), perhaps_received, "an owner did not answer");
        items.iter().for_each(|(_, receipt)| self.remote.epochs.forget(place, receipt));
        items.iter().map(|(at, _)| (*at, Ruling::about(Verdict::Unreachable, Some(owner)))).collect()
    }

    /// `None` unless all epochs of these receipts are over. The owner may have settled receipts that it perhaps
    /// received.
    async fn are_over(
        &self,
        place: Place<'_>,
        items: &[Item],
        (perhaps_received, late): (bool, bool),
        until: Instant,
    ) -> Option<Vec<(usize, Ruling)>> {
        let partitions = items.iter().map(|(_, receipt)| receipt.partition);
        let owner_records = tokio::select! {
            owner_records = self.owner_records(place, partitions) => owner_records.ok()?,
            () = self.clock().sleep_until(until) => return None,
        };
        let is_over = |receipt: &Receipt| {
            owner_records.get(&receipt.partition).and_then(|record| record.epoch.as_ref()) != Some(&receipt.epoch)
        };
        if !items.iter().all(|(_, receipt)| is_over(receipt)) {
            return None;
        }
        let verdict = match perhaps_received {
            // Repeated, it is for the next owner.
            _ if late => Verdict::Unreachable,
            true => Verdict::UnknownOutcome,
            false => Verdict::Stale(StaleReason::LostPartition),
        };
        let ruling = |(at, receipt): &Item| {
            let record = owner_records.get(&receipt.partition).and_then(|record| record.member.as_ref());
            (*at, Ruling::about(verdict, record.filter(|_| !perhaps_received)))
        };
        items.iter().for_each(|(_, receipt)| self.remote.epochs.forget(place, receipt));
        Some(items.iter().map(ruling).collect())
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
            Opened::Decide(request) => {
                let (topic, group) = request.place.clone();
                // It stops waiting for the store before the sender stops waiting for it.
                let timeout = request.patience.min(self.settle_timeout()) * 4 / 5;
                let decided = self.here((&topic, &group), &request.ask, request.ask.read(), timeout).await;
                self.remote.answer(request, decided).await;
            }
        }
    }
}
