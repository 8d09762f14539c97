//! Taking over what a broker that stops has buffered: its records are checked as pushes are.

use super::Broker;
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::HANDED_OVER_AHEAD_MAX;
use crate::model::message::{Conflict, Due, Message, MessageId, NewMessage};
use crate::model::time::Timestamp;
use crate::model::topic::Descriptor;
use crate::store::{HandedOver, TakenOver, is_firing};
use crate::wal::Record;

impl Broker {
    /// Keeps records of a broker that stops, durably. Without `is_admin` only topics are taken that a push would create, or that
    /// are there as they were promised, and deletions are left out; so are messages for topics that are not there, unless a push would create them. Errors: `Invalid`
    /// for a record that no push makes, `Forbidden`, and those of [`crate::store::Messages::take_over`].
    pub async fn take_over(&self, mut handed: HandedOver, is_admin: bool) -> Result<TakenOver> {
        let now = self.now();
        handed.records.iter().try_for_each(|record| check(&record.record, now))?;
        if !is_admin {
            self.check_created(&handed).await?;
        }
        let given = handed.records.len();
        if !is_admin && !self.options.auto_create {
            self.leave_out_unknown(&mut handed).await?;
        }
        let left_out = (given - handed.records.len()) as u64;
        if given > 0 && handed.records.is_empty() {
            return Ok(TakenOver::Kept { taken: 0, refused: left_out });
        }
        Ok(match self.store.messages.take_over(handed, is_admin).await? {
            TakenOver::Kept { taken, refused } => TakenOver::Kept { taken, refused: refused + left_out },
            TakenOver::LacksEarlier => TakenOver::LacksEarlier,
        })
    }

    /// Errors: `Forbidden` for a topic that needs an admin; `Unavailable` while nobody knows whether it is there.
    async fn check_created(&self, handed: &HandedOver) -> Result<()> {
        for record in &handed.records {
            let Record::Create(promise) = &record.record else { continue };
            // The promise has its time, and says nothing of what is still being removed.
            let as_promised = |there: &Descriptor| {
                let (generation, incarnation, leaving) = (0, promise.incarnation, Vec::new());
                Descriptor { generation, incarnation, leaving, ..there.clone() } == *promise
            };
            let pushed = Descriptor::new(promise.topic.clone(), self.options.topic_defaults.clone());
            if self.options.auto_create && as_promised(&pushed) {
                continue;
            }
            match self.topics.get(&promise.topic).await {
                Ok(there) if as_promised(&there) => {}
                Err(error) if error.kind() != Kind::NotFound => return Err(error),
                _ => {
                    let why =
                        format!("topic {} was created with settings: that needs a token with `admin`", promise.topic);
                    return Err(Error::new(Kind::Forbidden, why));
                }
            }
        }
        Ok(())
    }

    /// Errors: `Unavailable` while nobody knows whether a topic is there.
    async fn leave_out_unknown(&self, handed: &mut HandedOver) -> Result<()> {
        let mut known = Vec::with_capacity(handed.records.len());
        for record in std::mem::take(&mut handed.records) {
            match self.topics.get(record.record.topic()).await {
                Ok(_) => known.push(record),
                Err(error) if error.kind() == Kind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        handed.records = known;
        Ok(())
    }
}

/// Errors: `Invalid`, naming what is wrong.
fn check(record: &Record, now: Timestamp) -> Result<()> {
    let (message, conflict) = match record {
        Record::Push { message, conflict, .. } => (message, *conflict),
        Record::Set { message, .. } => (message, Conflict::Keep),
        Record::Cancel { id, .. } | Record::End { id, .. } => return check_occurrence(id, now),
        Record::CronJob { last, .. } => return check_mark(last.as_ms(), now),
        Record::Create(_) | Record::Purge { .. } | Record::Delete(_) => return Ok(()),
    };
    let wrong =
        |error: Error| Error::invalid("records", format!("have a message that no push makes: {}", error.detail()));
    if let Some(successor) = &message.successor {
        as_pushed(&successor.message, Conflict::After, Some(message.id.clone())).check(now).map_err(wrong)?;
    }
    match record {
        // Occurrences of cron jobs are never buffered.
        Record::Push { .. } => as_pushed(message, conflict, Some(message.id.clone())).check(now).map_err(wrong)?,
        _ => {
            check_occurrence(&message.id, now)?;
            as_pushed(message, conflict, None).check(now).map_err(wrong)?
        }
    };
    if let Record::Set { call, .. } = record
        && is_firing(call)
    {
        check_mark(call.seq, now)?;
    }
    let ahead = now.as_ms() + HANDED_OVER_AHEAD_MAX as u64 / 1_000;
    if message.envelope.pushed_at.as_ms() > ahead {
        return Err(Error::invalid("records", "have a message that was pushed in the future"));
    }
    Ok(())
}

/// No cron job has done what is still to come: such a mark would suppress it. Errors: `Invalid`.
fn check_mark(done_ms: u64, now: Timestamp) -> Result<()> {
    match done_ms > now.as_ms() + HANDED_OVER_AHEAD_MAX as u64 / 1_000 {
        true => Err(Error::invalid("records", "have a cron job that is done with what is still to come")),
        false => Ok(()),
    }
}

/// The occurrence of a cron job that is still to come has not been fired by any broker. Errors: `Invalid`.
fn check_occurrence(id: &MessageId, now: Timestamp) -> Result<()> {
    let ahead = now.as_ms() + HANDED_OVER_AHEAD_MAX as u64 / 1_000;
    match id.occurrence() {
        Some(at) if at.as_ms() > ahead => {
            Err(Error::invalid("records", "have an occurrence of a cron job that is still to come"))
        }
        _ => Ok(()),
    }
}

/// The push that makes such a message.
fn as_pushed(message: &Message, conflict: Conflict, id: Option<MessageId>) -> NewMessage {
    let envelope = &message.envelope;
    NewMessage {
        id,
        conflict,
        debounce_max: message.debounce_max,
        dedup: envelope.dedup.clone(),
        due: Due::At(message.due_at),
        max_attempts: envelope.max_attempts,
        priority: envelope.priority,
        content_type: envelope.content_type.clone(),
        meta: envelope.meta.clone(),
        attachment: envelope.attachment.clone(),
        ..NewMessage::new(envelope.payload.clone())
    }
}
