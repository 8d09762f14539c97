//! A topic to tell a story with: short words for what a store can do to its first partition.

use std::time::Duration;

use bytes::Bytes;
use dwell::codec::{DeadLetterReason, DeadLetterRecord};
use dwell::model::error::{Error, Result};
use dwell::model::last_error::LastError;
use dwell::model::message::{Conflict, CronJobName, Due, GroupName, Message, MessageId, NewMessage, TopicName};
use dwell::model::partition::Partition;
use dwell::model::schedule::{Missed, Schedule, Timing};
use dwell::model::time::Timestamp;
use dwell::model::topic::{Descriptor, GroupPartition};
use dwell::platform::clock::{Clock, Manual};
use dwell::store::{
    Acquired, Backend, Buried, Call, Calls, Claim, Expected, Fate, Fates, MemberId, Owner, PartitionStats, Peeked,
    Pushed, Refused, Renewal, Reschedule, Rescheduled, Reservation, ReserveLimit, ReservedMessage, Retried, Returned,
    Settlement, Store,
};

/// Long enough for every story that is not about leases.
pub(crate) const LEASE: Duration = Duration::from_secs(3_600);

/// A call of so many messages in a stream that nobody else has.
pub(crate) fn new_call(store: &dyn Backend, messages: usize) -> Call {
    let nowhere = TopicName::new("nowhere").unwrap_or_else(|_| unreachable!("a valid name"));
    Calls::default().begin(&nowhere, Partition(0), store.clock(), messages)
}

/// A topic of one partition.
#[derive(Clone)]
pub(crate) struct TestTopic {
    pub(crate) store: Store,
    pub(crate) time: Manual,
    pub(crate) descriptor: Descriptor,
}

impl TestTopic {
    /// A message that is due so many milliseconds from now, with its id as payload.
    pub(crate) fn message(&self, id: &str, delay_ms: u64) -> Result<Message> {
        let mut new = NewMessage::new(Bytes::copy_from_slice(id.as_bytes()));
        new.id = Some(MessageId::new(id)?);
        new.due = Due::In(Duration::from_millis(delay_ms));
        new.accept(Clock::Manual(self.time.clone()).now())
    }

    /// Pushes a message that is due so many milliseconds from now.
    pub(crate) async fn push(&self, id: &str, delay_ms: u64) -> Result<Pushed> {
        let answers = self.push_all(&[self.message(id, delay_ms)?]).await?;
        answers.first().cloned().ok_or_else(|| Error::bug("a push of one message has no answer"))
    }

    /// Pushes messages in one call.
    pub(crate) async fn push_all(&self, messages: &[Message]) -> Result<Vec<Pushed>> {
        let call = new_call(&*self.store.backend, messages.len());
        self.push_as(&call, messages).await
    }

    /// Pushes messages in a call that was begun before.
    pub(crate) async fn push_as(&self, call: &Call, messages: &[Message]) -> Result<Vec<Pushed>> {
        let pushed = self.push_over_as(call, Conflict::Keep, messages).await?;
        pushed.into_iter().map(|pushed| pushed.map_err(|refused| Error::bug(format!("{refused:?}")))).collect()
    }

    /// Pushes messages in one call, under a policy about ids that are there.
    pub(crate) async fn push_over(
        &self,
        conflict: Conflict,
        messages: &[Message],
    ) -> Result<Vec<Result<Pushed, Refused>>> {
        self.push_over_as(&new_call(&*self.store.backend, messages.len()), conflict, messages).await
    }

    /// The same in a call that was begun before.
    pub(crate) async fn push_over_as(
        &self,
        call: &Call,
        conflict: Conflict,
        messages: &[Message],
    ) -> Result<Vec<Result<Pushed, Refused>>> {
        let verdicts = self.store.messages.push(&self.descriptor, Partition(0), call, conflict, messages).await?;
        Ok(verdicts.into_iter().map(|verdict| verdict.pushed).collect())
    }

    /// Pushes so many messages, due now, in calls of at most 1,000.
    pub(crate) async fn push_many(&self, prefix: &str, count: usize) -> Result<()> {
        let all = (0..count).map(|n| self.message(&format!("{prefix}{n:06}"), 0)).collect::<Result<Vec<_>>>()?;
        for page in all.chunks(1_000) {
            assert!(self.push_all(page).await?.iter().all(|answer| *answer == Pushed::Stored));
        }
        Ok(())
    }

    /// The partition of the group `default`.
    pub(crate) fn group_partition(&self) -> GroupPartition {
        self.descriptor.group_partition(Partition(0), &GroupName::standard())
    }

    /// The partition of a group.
    pub(crate) fn partition_of(&self, group: &str) -> Result<GroupPartition> {
        Ok(self.descriptor.group_partition(Partition(0), &GroupName::new(group)?))
    }

    /// The member `owner` takes the group `default`, as often as it likes: each time it is a new epoch.
    pub(crate) async fn owner(&self) -> Result<Box<dyn Owner>> {
        self.acquire(&self.group_partition(), &member("owner"), LEASE).await
    }

    /// The owner of a partition, which must be free or this member's.
    pub(crate) async fn acquire(
        &self,
        partition: &GroupPartition,
        member: &MemberId,
        ttl: Duration,
    ) -> Result<Box<dyn Owner>> {
        match self.store.leases.acquire(partition, member, ttl, self.descriptor.generation).await? {
            Acquired::Owned(mut owner) => {
                if self.descriptor.is_ordered() {
                    owner.keep_positions();
                }
                Ok(owner)
            }
            held => Err(Error::stale(format!("{partition} is not free: {held:?}"))),
        }
    }

    /// Renews one claim on the group `default`.
    pub(crate) async fn renew(&self, member: &MemberId, owner: &dyn Owner, ttl: Duration) -> Result<Renewal> {
        let claim = Claim { group_partition: self.group_partition(), epoch: owner.epoch().clone() };
        let answer = self.store.leases.renew(member, &[claim], ttl).await.pop();
        answer.unwrap_or_else(|| Err(Error::bug("a renewal of one claim has no answer")))
    }

    /// Cancels a message, and answers what became of it in each group.
    pub(crate) async fn cancel(&self, id: &str) -> Result<Vec<Fate>> {
        let cancelled = self
            .store
            .messages
            .cancel(&self.descriptor, Partition(0), &new_call(&*self.store.backend, 1), &MessageId::new(id)?)
            .await?;
        Ok(fates_of(&cancelled.fates))
    }

    /// Makes a message due so many milliseconds from now, and answers what became of it in each group.
    pub(crate) async fn reschedule(&self, id: &str, delay_ms: u64) -> Result<Vec<Fate>> {
        let due_at = Clock::Manual(self.time.clone()).now().plus(Duration::from_millis(delay_ms));
        match self.reschedule_if(id, due_at, Expected::default()).await? {
            Rescheduled::Done(fates) => Ok(fates_of(&fates)),
            changed => Err(Error::bug(format!("nothing was expected, and yet: {changed:?}"))),
        }
    }

    /// Gives a message another due time, if it is what is expected.
    pub(crate) async fn reschedule_if(&self, id: &str, due_at: Timestamp, expected: Expected) -> Result<Rescheduled> {
        let reschedule = Reschedule { id: MessageId::new(id)?, due_at, expected };
        self.store
            .messages
            .reschedule(&self.descriptor, Partition(0), &new_call(&*self.store.backend, 1), &reschedule)
            .await
    }

    /// Looks at a message in the group `default`.
    pub(crate) async fn peek(&self, id: &str) -> Result<Option<Peeked>> {
        self.store.reads.peek(&self.group_partition(), &MessageId::new(id)?).await
    }

    /// Counts the group `default`.
    pub(crate) async fn stats(&self) -> Result<PartitionStats> {
        self.stats_of(&self.group_partition()).await
    }

    /// Counts a partition.
    pub(crate) async fn stats_of(&self, partition: &GroupPartition) -> Result<PartitionStats> {
        let mut all = self.store.reads.stats(std::slice::from_ref(partition)).await?;
        all.pop().ok_or_else(|| Error::bug("a count of one partition has no answer"))
    }

    /// Recovers all that older epochs hold, and answers how many messages that were.
    pub(crate) async fn recover(&self, owner: &mut Box<dyn Owner>) -> Result<usize> {
        let mut messages = 0;
        loop {
            let page = owner.recover().await?;
            messages += page.messages;
            if !page.more {
                return Ok(messages);
            }
        }
    }
}

/// What became of a message in each group, without their names.
pub(crate) fn fates_of(fates: &Fates) -> Vec<Fate> {
    fates.0.iter().map(|(_, fate)| *fate).collect()
}

/// The member of this name, the same one each time.
pub(crate) fn member(name: &str) -> MemberId {
    MemberId::from_store(name)
}

/// Message ids.
pub(crate) fn ids(texts: &[&str]) -> Result<Vec<MessageId>> {
    texts.iter().map(MessageId::new).collect()
}

/// The ids of what was reserved, in order.
pub(crate) fn ids_of(messages: &[ReservedMessage]) -> Vec<&str> {
    messages.iter().map(|message| message.id.as_str()).collect()
}

/// So many messages, of any size.
pub(crate) fn up_to(messages: usize) -> ReserveLimit {
    ReserveLimit { messages, bytes: usize::MAX }
}

/// A settlement that acks.
pub(crate) fn acks(texts: &[&str]) -> Result<Settlement> {
    Ok(Settlement { acked: ids(texts)?, ..Settlement::default() })
}

/// An error in all its parts.
pub(crate) fn no_such_customer() -> LastError {
    LastError::new(Some("NoCustomer".into()), "no such customer".into(), Some("at bank\n\tat order".into()))
}

/// A settlement that buries.
pub(crate) fn buries(reservation: Reservation, texts: &[&str], remaining: &[&str]) -> Result<Settlement> {
    let record = DeadLetterRecord::new(DeadLetterReason::Buried, 1, Some(no_such_customer()));
    let bury = |id| Buried { id, record: record.clone(), failure: None };
    let buried = ids(texts)?.into_iter().map(bury).collect();
    Ok(Settlement { buried, remaining: vec![(reservation, ids(remaining)?)], ..Settlement::default() })
}

/// A settlement that tries a message again, at a time, with so many attempts charged.
pub(crate) fn retries(reservation: Reservation, retried: Retried, remaining: &[&str]) -> Result<Settlement> {
    Ok(Settlement { retried: vec![retried], remaining: vec![(reservation, ids(remaining)?)], ..Settlement::default() })
}

/// A settlement that gives a message back.
pub(crate) fn returns(reservation: Reservation, returned: Returned, remaining: &[&str]) -> Result<Settlement> {
    Ok(Settlement {
        returned: vec![returned],
        remaining: vec![(reservation, ids(remaining)?)],
        ..Settlement::default()
    })
}

/// A cron job whose messages say `beat`.
pub(crate) fn cron_job(name: &str, timing: Timing, missed: Missed) -> Result<Schedule> {
    Ok(Schedule {
        name: CronJobName::new(name)?,
        timing,
        missed,
        paused: false,
        ttl: None,
        max_attempts: None,
        content_type: None,
        meta: vec![],
        payload: Bytes::from_static(b"beat"),
    })
}

/// One at equal intervals.
pub(crate) fn every(name: &str, seconds: u64, missed: Missed) -> Result<Schedule> {
    cron_job(name, Timing::Every { every: Duration::from_secs(seconds), from: Timestamp::ZERO }, missed)
}
