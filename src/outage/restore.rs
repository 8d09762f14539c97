//! The loop of the journal: what the store had answered, and lost, is given back.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use tokio_util::sync::CancellationToken;

use super::barrier::LOOKS;
use super::cron_jobs::kept_cron_job;
use super::journal::Journal;
use super::{BufferedStore, CALL_PAGE_BYTES, CALL_PAGE_RECORDS, PAUSE, call_of, drop_part_of_a_call};
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::{CALL_BYTES_MAX, CALL_IDS_MAX};
use crate::model::message::{Conflict, GroupName, Message, TopicName};
use crate::model::partition::Partition;
use crate::model::spelling::counted;
use crate::model::time::Timestamp;
use crate::model::topic::Descriptor;
use crate::model::version::Version;
use crate::platform::clock::{Clock, Instant};
use crate::store::{Change, LogTarget, Progress, Purge, Reports, restoring};
use crate::wal::{Entry, Position, Record};

/// Why the store is compared, and given back what it lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// The broker starts: perhaps the store lost something while nobody looked.
    Start,
    /// This broker noticed a loss, and tells the others.
    Detected,
    /// Another broker noticed a loss.
    Reported,
}

type Changes = BTreeMap<Partition, Vec<(Record, Change)>>;

/// An offer of the journal.
#[derive(Clone, Copy)]
struct JournalOffer {
    /// How many losses had been suspected: it ends at the next one.
    losses: u64,
    /// Also what belongs to partitions that are not known to have lost something.
    is_whole: bool,
    /// When the store had answered, so that the others reach it too.
    began: Instant,
}

impl<S: LogTarget> BufferedStore<S> {
    /// Whether something that the store lost, or may have lost before this start, is not given back yet, by this broker or by another one.
    pub(super) fn is_restoring(&self) -> bool {
        self.store.losses().borrow().is_restoring
    }

    /// Whether the store was seen to lose something that is not given back yet.
    pub(super) fn is_loss_suspected(&self) -> bool {
        self.store.losses().borrow().is_suspected()
    }

    /// Waits, as long as a call may take, while a broker that starts does not know yet whether there was a loss.
    pub(super) async fn until_loss_is_known(&self) {
        let mut losses = self.store.losses();
        tokio::select! {
            _ = losses.wait_for(|loss| !loss.is_restoring || loss.is_suspected()) => {}
            () = Clock::System.sleep(self.timeout) => {}
        }
    }

    /// Errors: `Unavailable` while a loss is restored.
    pub(super) fn check_restored(&self) -> Result<()> {
        if self.is_loss_suspected() { Err(restoring()) } else { Ok(()) }
    }

    /// Watches over the journal until `stop`: drops old records, and offers what the store may have lost, all of it at the
    /// start.
    pub(super) async fn watch(&self, stop: CancellationToken) {
        let mut losses = self.store.losses();
        self.store.hold_at_losses(false);
        // The journal of an earlier process, or of another broker, says more than this process was answered.
        let (mut restored, mut offers_all) = (None, true);
        let mut cause = if self.is_loss_suspected() { Cause::Detected } else { Cause::Start };
        loop {
            let count = losses.borrow_and_update().count;
            if restored != Some(count) {
                if restored.is_some() {
                    cause = Cause::Detected;
                }
                self.metrics.store.restoring.set(1);
                self.buffered.notify_one();
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = self.restore(cause, offers_all) => {}
                }
                restored = Some(count);
                offers_all &= self.losses() != count;
                self.store.restored(count);
                self.metrics.store.restoring.set(i64::from(self.is_restoring()));
                continue;
            }
            tokio::select! {
                () = stop.cancelled() => return,
                changed = losses.changed() => if changed.is_err() { return },
                () = self.taken.notified() => {
                    // The broker that had them is perhaps the only one that would notice what the store lost.
                    self.store.hold_at_losses(false);
                    (restored, cause, offers_all) = (None, Cause::Detected, true);
                }
                missed = self.maintain_journal() => if missed {
                    self.store.hold_at_losses(true);
                    (restored, cause) = (None, Cause::Reported);
                },
            }
        }
    }

    pub(super) fn restoring_detail(&self) -> String {
        let restorers = self.restorers.lock().unwrap_or_else(PoisonError::into_inner);
        let journal = self.journal.as_ref().filter(|_| self.is_lossy());
        let left = match (restorers.awaited.len(), journal.map(|journal| journal.log().depth().records)) {
            (0, Some(left)) => format!(": {} of the journal left at most", counted(left, "record")),
            (0, None) => String::new(),
            (others, _) => format!(": waiting for {}", counted(others, "other broker")),
        };
        format!("restoring what the store lost{left}")
    }

    /// Gives back what the store lost of what this broker knows, or offers all of it, and waits for the others; again if one of them
    /// notices another loss, or if only what was given back at the start shows that there was one.
    async fn restore(&self, mut cause: Cause, offers_all: bool) {
        let (began, count) = (Clock::System.instant(), self.losses());
        let mut given_back = 0;
        loop {
            let looked_at = Clock::System.instant();
            let says = if cause == Cause::Detected { Progress::Lost } else { Progress::Look };
            let (offered_at, is_after_a_loss) = self.begin_offer(says, began).await;
            if cause == Cause::Start && is_after_a_loss {
                self.store.hold_at_losses(true);
                cause = Cause::Reported;
            }
            let known_at = (cause != Cause::Start).then_some(looked_at);
            if known_at.is_some() {
                self.compare(count, began).await;
                self.give_back_topics(count).await;
            }
            let offer = JournalOffer { losses: count, is_whole: offers_all, began: Clock::System.instant() };
            let changed = if offers_all || self.store.has_lost() { self.offer_journal(offer).await } else { 0 };
            if self.losses() != count {
                return;
            }
            self.made_up.store(count + 1, Ordering::Relaxed);
            self.offered_at.store(offered_at.as_ms(), Ordering::Relaxed);
            self.buffered.notify_one();
            given_back += changed;
            if cause == Cause::Start && changed > 0 {
                self.store.hold_at_losses(true);
                cause = Cause::Detected;
            } else if self.wait_for_others(began, known_at, offered_at, count).await {
                cause = Cause::Reported;
            } else {
                break;
            }
        }
        if given_back > 0 {
            tracing::warn!(messages = given_back, "the store had lost messages: the journal gave them back");
        }
        let took = Clock::System.instant().since(began);
        self.metrics.store.restore_seconds.observe(took.as_secs_f64());
    }

    /// Asks the store what it has, until it answers, or another loss begins everything again.
    async fn compare(&self, losses: u64, began: Instant) {
        let mut pause = PAUSE.0;
        while self.losses() == losses
            && let Err(error) = self.store.compare().await
        {
            if self.gives_up(&error, began) {
                tracing::warn!(%error, "it is not known what the store lost");
                return;
            }
            Clock::System.sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// Merges each topic that this broker knows or has deleted, until there is another loss, which begins everything again.
    async fn give_back_topics(&self, losses: u64) {
        for last in self.topic_cache.all().into_iter().chain(self.topic_cache.tombstones()) {
            let mut pause = PAUSE.0;
            while self.losses() == losses
                && let Err(error) = self.give_back_topic(&last).await
            {
                if !error.is_outage() {
                    tracing::warn!(%error, topic = %last.topic, "a topic could not be compared with the store");
                    break;
                }
                Clock::System.sleep(pause).await;
                pause = (pause * 2).min(PAUSE.1);
            }
        }
    }

    async fn give_back_topic(&self, last: &Descriptor) -> Result<()> {
        self.check_identified()?;
        let (newest, was_missing) = self.stepwise(self.store.merge(last)).await?;
        if was_missing {
            tracing::warn!(topic = %last.topic, "topic lost by the store: created again");
        }
        match newest.deleted {
            true => self.topic_cache.forget(&last.topic),
            false => drop(self.topic_cache.learn(&newest)),
        }
        Ok(())
    }

    /// Drops what is old, if the store answers and is still the same; and sees which brokers have a journal. Answers
    /// whether one of them noticed a loss that this broker did not.
    async fn maintain_journal(&self) -> bool {
        let Some(journal) = &self.journal else { return std::future::pending().await };
        // Often enough not to count as silent, and to hear soon of a loss that another broker noticed.
        self.clock.sleep(self.options.silence / LOOKS).await;
        journal.log().observe();
        if self.journal_unread.load(Ordering::Relaxed) && journal.log().peek(None, 1, CALL_PAGE_BYTES).await.is_ok() {
            self.journal_unread.store(false, Ordering::Relaxed);
            tracing::warn!("journal can be read again: what the store lost is given back");
            self.taken.notify_one();
        }
        let before = self.losses();
        let offered_at = Timestamp::from_ms(self.offered_at.load(Ordering::Relaxed));
        match self.say(Progress::Settled(offered_at)).await {
            // It was listed when it restored what was lost before: so the list is lost, with whatever else.
            Ok(reports) if !reports.was_listed && self.losses() == before => self.store.suspect_loss(),
            Ok(Reports { lost_at, .. }) if lost_at > offered_at => {
                journal.broken();
                return true;
            }
            Ok(reports) if self.losses() == before => {
                self.set_restorers(reports.brokers.into_iter().map(|report| report.broker).collect());
                if journal.log().depth().records > 0
                    && let Err(error) = journal.trim_old().await
                    && self.throttles.journal_not_trimmed.is_due(Clock::System.instant())
                {
                    tracing::warn!(%error, "journal not trimmed");
                }
            }
            _ => journal.broken(),
        }
        false
    }

    /// Offers the store all that the journal has, until it has answered for all, or is suspected of another loss; and
    /// answers how many messages it had lost. Newer records must not go to a store that lost the older ones once more.
    async fn offer_journal(&self, offer: JournalOffer) -> u64 {
        let Some(journal) = &self.journal else { return 0 };
        let (mut after, mut given_back, mut pause) = (None, 0, PAUSE.0);
        let (mut reported_at, mut unread_since) = (None, None);
        while self.losses() == offer.losses {
            let now = Clock::System.instant();
            if reported_at.is_none_or(|at| now.since(at) >= self.options.silence / LOOKS)
                && self.say(Progress::Busy).await.is_ok()
            {
                reported_at = Some(now);
            }
            let why = match journal.log().peek(after, CALL_PAGE_RECORDS, CALL_PAGE_BYTES).await {
                Ok(page) => match self.offer_page(journal, page, offer).await {
                    Ok(None) => break,
                    Ok(Some((last, changed))) => {
                        (after, pause, given_back, unread_since) = (Some(last), PAUSE.0, given_back + changed, None);
                        continue;
                    }
                    Err(error) => error,
                },
                Err(error) if now.since(*unread_since.get_or_insert(now)) >= self.options.silence => {
                    // A disk that fails must not keep what Redis has from its consumers.
                    tracing::error!(%error, "journal unreadable: what the store lost is not given back");
                    self.journal_unread.store(true, Ordering::Relaxed);
                    break;
                }
                Err(error) => error,
            };
            if self.throttles.journal_unread.is_due(Clock::System.instant()) {
                tracing::warn!(error = %why, "what the store lost is not given back yet");
            }
            Clock::System.sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
        journal.broken();
        given_back
    }

    /// Offers a page; answers its end and how many messages the store had lost, or `None` at the end of the journal.
    async fn offer_page(
        &self,
        journal: &Journal,
        mut page: Vec<Entry>,
        offer: JournalOffer,
    ) -> Result<Option<(Position, u64)>> {
        self.check_identified()?;
        drop_part_of_a_call(&mut page, journal.log().depth().end);
        let Some(last) = page.last().map(|entry| entry.position) else { return Ok(None) };
        let mut topics: BTreeMap<TopicName, Vec<Record>> = BTreeMap::new();
        for entry in page {
            topics.entry(entry.record.topic().clone()).or_default().push(entry.record);
        }
        let mut changed = 0;
        for (topic, records) in topics {
            changed += self.restore_topic(&topic, records, offer).await?;
        }
        journal.metrics().replayed.inc_by(changed);
        Ok(Some((last, changed)))
    }

    async fn restore_topic(&self, topic: &TopicName, records: Vec<Record>, offer: JournalOffer) -> Result<u64> {
        let JournalOffer { losses, is_whole, .. } = offer;
        for record in &records {
            // A topic that this broker deleted, and that another one brought back, goes again.
            if let Record::Delete(tombstone) = record {
                self.stepwise(self.store.merge(tombstone)).await?;
            }
        }
        self.wait_for_topic(topic, offer).await?;
        // An end makes its topic again too: another broker may give back what has ended here.
        let found = match records.iter().filter_map(Record::version).max() {
            Some(newest) => self.destination(topic, newest, losses).await?,
            None => self.limited(self.store.topic(topic)).await?,
        };
        let Some(descriptor) = found else { return Ok(0) };
        let mut changed = 0;
        let mut partitions = Changes::new();
        let is_offered = |record: &Record| is_whole || self.store.may_lack(topic, record.partition_in(&descriptor));
        for record in records.into_iter().filter(is_offered) {
            changed += self.reapply_purge(&descriptor, &record, losses).await?;
            changed += self.restore_cron_job(&descriptor, &record, losses).await?;
            if let Some(change) = change(&descriptor, &record) {
                partitions.entry(record.partition_in(&descriptor)).or_default().push((record, change));
            }
        }
        for (partition, changes) in partitions {
            for call in calls(changes) {
                changed += self.restore_call(&descriptor, partition, call, losses).await?;
            }
        }
        Ok(changed)
    }

    /// A topic that only others know is not created before they could bring it back as it was. Errors: `Unavailable` until then.
    async fn wait_for_topic(&self, topic: &TopicName, offer: JournalOffer) -> Result<()> {
        if self.topic_cache.seen(topic).is_none()
            && Clock::System.instant().since(offer.began) < self.options.silence
            && self.limited(self.store.topic_or_tombstone(topic)).await?.is_none()
        {
            return Err(Error::unavailable(format!(
                "topic {topic} is not known here: another broker may bring it back"
            )));
        }
        Ok(())
    }

    /// A group that was deleted since, or created again, has nothing of before.
    async fn reapply_purge(&self, descriptor: &Descriptor, record: &Record, losses: u64) -> Result<u64> {
        let Record::Purge { partition, group, dead_letters, version, .. } = record else { return Ok(0) };
        let is_older = descriptor.subscription(group).born.saturating_mul(1_000) > version.as_us();
        if is_older || !descriptor.groups.contains(group) || !descriptor.is_after_deletion(*version) {
            return Ok(0);
        }
        let purge = Purge { group: group.clone(), dead_letters: *dead_letters };
        self.store.reapply_purge(descriptor, *partition, &purge, *version, losses).await
    }

    async fn restore_cron_job(&self, descriptor: &Descriptor, record: &Record, losses: u64) -> Result<u64> {
        let Some(cron) = kept_cron_job(record).filter(|cron| descriptor.is_after_deletion(cron.revision)) else {
            return Ok(0);
        };
        let partition = record.partition_in(descriptor);
        let is_changed = self.limited(self.store.restore_cron_job(descriptor, partition, &cron, losses)).await?;
        Ok(u64::from(is_changed))
    }

    /// A record that the store refuses for its content goes to the WAL, so that it holds up nothing.
    async fn restore_call(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        changes: Vec<(Record, Change)>,
        losses: u64,
    ) -> Result<u64> {
        let (records, changes): (Vec<Record>, Vec<Change>) = changes.into_iter().unzip();
        match self.limited(self.store.restore(descriptor, partition, &changes, losses)).await {
            Err(error) if !error.is_outage() && error.kind() != Kind::Stale => {
                tracing::warn!(%error, topic = %descriptor.topic, records = records.len(), "not given back yet: left to the WAL");
                let requests: Vec<Record> = records.into_iter().flat_map(requests).collect();
                self.wal.append(requests.clone()).await?;
                self.note_behind(&requests);
                self.buffered.notify_one();
                Ok(0)
            }
            answered => answered,
        }
    }
}

/// The groups that had a message of this version, and those that began with a copy after it: nobody remembers which messages
/// they got then.
fn with_copies(descriptor: &Descriptor, mut groups: Vec<GroupName>, version: Version) -> Vec<GroupName> {
    if groups.is_empty() {
        // It names none: all of them.
        return groups;
    }
    let is_later_copy = |group: &&GroupName| {
        let subscription = descriptor.subscription(group);
        subscription.began_as_copy && subscription.born.saturating_mul(1_000) > version.as_us()
    };
    let copies = descriptor.groups.iter().filter(|group| !groups.contains(group)).filter(is_later_copy);
    let copies: Vec<GroupName> = copies.cloned().collect();
    groups.extend(copies);
    groups
}

fn change(descriptor: &Descriptor, record: &Record) -> Option<Change> {
    match record.clone() {
        Record::Set { message, version, groups, call, .. } => {
            let groups = with_copies(descriptor, groups, version);
            descriptor.is_after_deletion(version).then_some(Change::Set { message, version, groups, call })
        }
        Record::End { id, version, groups, is_acked, .. } => Some(Change::End { id, version, groups, is_acked }),
        Record::Create(_)
        | Record::Delete(_)
        | Record::Purge { .. }
        | Record::CronJob { .. }
        | Record::Push { .. }
        | Record::Cancel { .. } => None,
    }
}

fn requests(record: Record) -> Vec<Record> {
    match record {
        Record::Set { topic, mut message, version, .. } => {
            let push = |message, version, conflict| {
                let (topic, call, origin) = (topic.clone(), None, None);
                Record::Push { topic, message, version, conflict, call, origin }
            };
            // Nothing would follow the first one, since that waits then: it is a message with another id.
            let successor = message.successor.take().map(|successor| {
                let message = Message { id: successor.dead_id, ..successor.message };
                push(message, successor.version, Conflict::Keep)
            });
            std::iter::once(push(message, version, Conflict::Replace)).chain(successor).collect()
        }
        Record::End { topic, partition, id, version, .. } => {
            vec![Record::Cancel { topic, partition, id, version: version.plus(1) }]
        }
        Record::Create(_)
        | Record::Delete(_)
        | Record::Purge { .. }
        | Record::CronJob { .. }
        | Record::Push { .. }
        | Record::Cancel { .. } => Vec::new(),
    }
}

/// Cuts changes into calls of the store, none of which has only a part of what one call set.
fn calls(changes: Vec<(Record, Change)>) -> Vec<Vec<(Record, Change)>> {
    let mut calls: Vec<Vec<(Record, Change)>> = vec![Vec::new()];
    let mut bytes = 0;
    for (record, change) in changes {
        let size = if let Change::Set { message, .. } = &change { message.size() } else { 0 };
        let goes_on = |call: &Vec<(Record, Change)>| {
            call.last().is_some_and(|(last, _)| call_of(last).is_some() && call_of(last) == call_of(&record))
        };
        match calls.last_mut() {
            Some(call) if goes_on(call) || (call.len() < CALL_IDS_MAX / 2 && bytes + size < CALL_BYTES_MAX) => {
                bytes += size;
                call.push((record, change));
            }
            _ => {
                bytes = size;
                calls.push(vec![(record, change)]);
            }
        }
    }
    calls.retain(|call| !call.is_empty());
    calls
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::message::{MessageId, NewMessage};
    use crate::model::time::Timestamp;
    use crate::model::version::CallId;

    fn set(seq: u64) -> Result<(Record, Change)> {
        let message = NewMessage::new("x").id(MessageId::new(format!("m{seq}"))?).accept(Timestamp::from_ms(1))?;
        let (version, groups, call) = (Version::from_us(seq), Vec::new(), CallId { stream: "s".into(), seq });
        let change = Change::Set { message: message.clone(), version, groups: groups.clone(), call: call.clone() };
        Ok((Record::Set { topic: TopicName::new("orders")?, message, version, groups, call }, change))
    }

    #[test]
    fn restore_never_splits_the_messages_of_one_call() -> Result<()> {
        let changes: Vec<_> = (0..3_000).map(|n| set(n / 700)).collect::<Result<_>>()?;
        let calls = calls(changes);
        assert!(calls.len() > 1);
        let ends: Vec<_> = calls.iter().map(|call| (call_of(&call[0].0), call_of(&call[call.len() - 1].0))).collect();
        assert!(ends.windows(2).all(|two| two[0].1 < two[1].0), "{ends:?}");
        Ok(())
    }
}
