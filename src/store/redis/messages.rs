//! Push, cancel and reschedule: building the call of each, and reading its answer.

use async_trait::async_trait;

use super::keys::GroupPartitionKeys;
use super::owner::check_ids;
use super::scripts::{Reply, SCRIPTS, ScriptCall};
use super::topics::DeadlineCall;
use super::{Redis, Shared};
use crate::codec::{encode_attempt, encode_body};
use crate::model::error::{Error, Result};
use crate::model::limits::{
    CALL_IDS_MAX, CANCELLED_IDS_MAX, CANCELLED_KEPT, GROUP_PARTITION_MESSAGES_MAX, PAUSED_KEYS_MAX,
};
use crate::model::message::{Conflict, DedupKey, GroupName, Message, MessageId};
use crate::model::partition::Partition;
use crate::model::time::{Timestamp, ms_up};
use crate::model::topic::Descriptor;
use crate::model::version::Version;
use crate::platform::clock::Clock;
use crate::store::{
    self, Cancelled, Fate, Fates, KeyPause, LateFate, LateSettlement, Purge, Purged, PushVerdict, Pushed, Refused,
    Reschedule, Rescheduled, StoredDuplicate, other_id, too_many_paused,
};

#[async_trait]
impl store::Messages for Redis {
    async fn push(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &store::Call,
        conflict: Conflict,
        messages: &[Message],
    ) -> Result<Vec<PushVerdict>> {
        check_ids(messages.len(), conflict.call_ids_max())?;
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        match conflict {
            Conflict::Keep => self.push_new(descriptor, partition, call, messages).await,
            Conflict::Reject | Conflict::Replace | Conflict::Debounce | Conflict::After => {
                self.push_over(descriptor, partition, call, conflict, messages).await
            }
        }
    }

    async fn cancel(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &store::Call,
        id: &MessageId,
    ) -> Result<Cancelled> {
        self.cancel_by(descriptor, partition, id, Canceller::Call(call)).await
    }

    async fn purge_group(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &store::Call,
        purge: &Purge,
    ) -> Result<Purged> {
        self.purge_partition(descriptor, partition, call, purge).await
    }

    async fn pause_key(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &store::Call,
        pause: &KeyPause,
    ) -> Result<()> {
        let shared = self.keys.partition(&descriptor.topic, partition);
        let memory = self.keys.call(&descriptor.topic, partition, &call.id.stream);
        let paused = self.keys.group(&descriptor.topic, partition, &pause.group).paused;
        let until = Clock::System.instant().plus(self.connection.timeout());
        let make = |known: &str| {
            Ok(ScriptCall::new(&SCRIPTS.pause_key, &[&shared.generation, &memory, &paused])
                .arg(known)
                .arg(self.valid_until(until))
                .arg(pause.key.as_str())
                .arg(pause.until.map_or(String::new(), |until| until.as_ms().to_string()))
                .arg(PAUSED_KEYS_MAX)
                .arg(call.id.seq)
                .arg(self.time_override()))
        };
        let read = |mut reply: Reply| reply.text();
        match self.until_answered(&DeadlineCall { descriptor, partition, until }, make, read).await?.as_str() {
            "full" => Err(too_many_paused()),
            _ => Ok(()),
        }
    }

    async fn reschedule(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &store::Call,
        reschedule: &Reschedule,
    ) -> Result<Rescheduled> {
        let shared = self.keys.partition(&descriptor.topic, partition);
        let memory = self.keys.call(&descriptor.topic, partition, &call.id.stream);
        let groups = self.group_keys(descriptor, partition);
        let keys = with_groups(&[&shared.generation, &memory, &shared.gone, &shared.wake], &groups);
        let until = Clock::System.instant().plus(self.connection.timeout());
        let expected = reschedule.expected;
        let make = |known: &str| {
            Ok(ScriptCall::new(&SCRIPTS.reschedule, &keys)
                .arg(known)
                .arg(self.valid_until(until))
                .arg(reschedule.id.as_str())
                .arg(reschedule.due_at.as_ms())
                .arg(expected.due_at.map_or(String::new(), |due_at| due_at.as_ms().to_string()))
                .arg(expected.attempts.map_or(String::new(), |attempts| attempts.to_string()))
                .arg(self.time_override())
                .arg(call.id.seq)
                .arg(call.version.as_us()))
        };
        let read = |mut reply: Reply| {
            let statuses =
                descriptor.groups.iter().map(|group| Ok((group, reply.text()?))).collect::<Result<Vec<_>>>()?;
            if let Some((group, found)) = statuses.iter().find(|(_, found)| REFUSED.contains(&found.as_str())) {
                let is_changed = found == REFUSED[0];
                return Ok(if is_changed { Rescheduled::Changed((*group).clone()) } else { Rescheduled::Expires });
            }
            let fates =
                statuses.into_iter().map(|(group, status): (&GroupName, String)| Ok((group.clone(), fate(&status)?)));
            Ok(Rescheduled::Done(Fates(fates.collect::<Result<_>>()?)))
        };
        self.until_answered(&DeadlineCall { descriptor, partition, until }, make, read).await
    }

    async fn settle_late(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        group: &GroupName,
        call: &store::Call,
        settlements: &[LateSettlement],
    ) -> Result<Vec<LateFate>> {
        check_ids(settlements.len(), CALL_IDS_MAX)?;
        let shared = self.keys.partition(&descriptor.topic, partition);
        let memory = self.keys.call(&descriptor.topic, partition, &call.id.stream);
        let group_partition = self.keys.group(&descriptor.topic, partition, group);
        let shared = [&shared.generation, &memory, &shared.seen, &shared.gone, &shared.wake];
        let own = [
            &group_partition.reservations,
            &group_partition.zset,
            &group_partition.hash,
            &group_partition.attempts,
            &group_partition.dead_hash,
            &group_partition.paused,
        ];
        let keys: Vec<&str> = shared.into_iter().chain(own).map(String::as_str).collect();
        let until = Clock::System.instant().plus(self.connection.timeout());
        let window = u64::try_from(descriptor.settings.dedup_window.as_millis()).unwrap_or(u64::MAX);
        let make = |known: &str| {
            let call = ScriptCall::new(&SCRIPTS.settle_late, &keys)
                .arg(known)
                .arg(self.valid_until(until))
                .arg(self.time_override())
                .arg(call.id.seq)
                .arg(window)
                .arg(u8::from(descriptor.is_ordered()))
                .arg(group.as_str());
            Ok(settlements.iter().fold(call, |call, late| {
                call.arg(late.id.as_str())
                    .arg(late.version.as_us())
                    .arg(late.attempt)
                    .arg(late.next_at.map_or(String::new(), |next_at| next_at.as_ms().to_string()))
                    .arg(late.failure.as_ref().map_or(String::new(), encode_attempt))
                    .arg(u8::from(late.redelivered))
                    .arg(u8::from(late.pauses_key))
            }))
        };
        let read = |mut reply: Reply| reply.text()?.chars().map(late_fate).collect();
        self.until_answered(&DeadlineCall { descriptor, partition, until }, make, read).await
    }
}

fn late_fate(letter: char) -> Result<LateFate> {
    match letter {
        'd' => Ok(LateFate::Done),
        'r' => Ok(LateFate::Repeated),
        'g' => Ok(LateFate::Gone),
        'f' => Ok(LateFate::InFlight),
        'o' => Ok(LateFate::Over),
        other => Err(Error::corrupt(format!("a script answered {other:?} for a late settlement"))),
    }
}

impl Shared {
    /// Keeps what is there: ids are looked for, and new messages written, all at once.
    async fn push_new(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &store::Call,
        messages: &[Message],
    ) -> Result<Vec<PushVerdict>> {
        let until = Clock::System.instant().plus(self.connection.timeout());
        // A Redis that is found to have lost data does not know every dedup key.
        let has_dedup_key = messages.iter().any(Message::has_dedup_key);
        let losses = self.losses.borrow().count;
        let make = |known: &str| {
            let call = self.push_call(descriptor, partition, call, messages, (known, self.valid_until(until)))?;
            Ok(if has_dedup_key { call.after_losses(losses) } else { call })
        };
        let duplicates =
            self.until_answered(&DeadlineCall { descriptor, partition, until }, make, read_duplicates).await?;
        let mut verdicts = vec![PushVerdict::from(Pushed::Stored); messages.len()];
        for (index, duplicate) in duplicates {
            if let Some(verdict) = verdicts.get_mut(index) {
                *verdict = duplicate;
            }
        }
        Ok(verdicts)
    }

    /// Under a policy about what is there: each message is looked up and written for itself.
    async fn push_over(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &store::Call,
        conflict: Conflict,
        messages: &[Message],
    ) -> Result<Vec<PushVerdict>> {
        let shared = self.keys.partition(&descriptor.topic, partition);
        let groups = self.group_keys(descriptor, partition);
        let memory = self.keys.call(&descriptor.topic, partition, &call.id.stream);
        let front =
            [&shared.generation, &memory, &shared.seen, &shared.cancelled, &shared.gone, &shared.wake, &shared.purged];
        let mut keys = with_groups(&front, &groups);
        keys.extend(follow_keys(conflict, &groups));
        let script = if descriptor.is_ordered() { &SCRIPTS.push_over_ordered } else { &SCRIPTS.push_over };
        keys.extend(descriptor.is_ordered().then_some(shared.order.as_str()));
        let until = Clock::System.instant().plus(self.connection.timeout());
        let version = call.version;
        let make = |known: &str| {
            let call = ScriptCall::new(script, &keys)
                .arg(known)
                .arg(self.valid_until(until))
                .arg(GROUP_PARTITION_MESSAGES_MAX)
                .arg(policy_name(conflict, descriptor))
                .arg(self.time_override())
                .arg(call.id.seq)
                .arg(call.version.as_us());
            messages.iter().enumerate().try_fold(call, |call, (n, message)| {
                let body = encode_body(message, version.plus(n))?;
                let more = policy_argument(conflict, message, (descriptor, partition), version.plus(n));
                Ok(call.arg(message.due_at.as_ms()).arg(message.id.as_str()).arg(body).arg(more))
            })
        };
        let read = |mut reply: Reply| messages.iter().map(|_| read_verdict(&reply.text()?)).collect();
        self.until_answered(&DeadlineCall { descriptor, partition, until }, make, read).await
    }

    async fn purge_partition(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &store::Call,
        purge: &Purge,
    ) -> Result<Purged> {
        let shared = self.keys.partition(&descriptor.topic, partition);
        let memory = self.keys.call(&descriptor.topic, partition, &call.id.stream);
        let group_partition = self.keys.group(&descriptor.topic, partition, &purge.group);
        let keys = [
            &shared.generation,
            &memory,
            &shared.purged,
            &shared.wake,
            &group_partition.zset,
            &group_partition.hash,
            &group_partition.reservations,
            &group_partition.attempts,
            &group_partition.dead_zset,
            &group_partition.dead_hash,
            &group_partition.lease,
            &group_partition.forwarding,
            &group_partition.by_key,
            &group_partition.successors,
        ];
        let until = Clock::System.instant().plus(self.connection.timeout());
        let make = |known: &str| {
            Ok(ScriptCall::new(&SCRIPTS.purge_group, &keys.map(String::as_str))
                .arg(known)
                .arg(self.valid_until(until))
                .arg(purge.group.as_str())
                .arg(u8::from(purge.dead_letters))
                .arg(call.version.as_us())
                .arg(call.id.seq)
                .arg(self.time_override()))
        };
        let number = |reply: &mut Reply| {
            let text = reply.text()?;
            text.parse().map_err(|_| Error::corrupt(format!("a purge answered {text:?} for a number")))
        };
        let read = |mut reply: Reply| {
            let version = Version::from_us(number(&mut reply)?);
            Ok(Purged { version, messages: number(&mut reply)?, dead_letters: number(&mut reply)? })
        };
        loop {
            let expiring = DeadlineCall { descriptor, partition, until };
            let purged: Purged = self.until_answered(&expiring, &make, &read).await?;
            if purged.version > Version::default() {
                self.clock.witness(purged.version);
                return Ok(purged);
            }
            self.call_all_back(&descriptor.group_partition(partition, &purge.group)).await?;
        }
    }

    pub(super) async fn cancel_by(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        id: &MessageId,
        by: Canceller<'_>,
    ) -> Result<Cancelled> {
        let shared = self.keys.partition(&descriptor.topic, partition);
        let groups = self.group_keys(descriptor, partition);
        let (stream, seq, version) = match by {
            Canceller::Call(call) => (call.id.stream.as_str(), call.id.seq.to_string(), call.version),
            Canceller::Log(version) => ("", String::new(), version),
        };
        let memory = self.keys.call(&descriptor.topic, partition, stream);
        let keys = with_groups(&[&shared.generation, &memory, &shared.cancelled], &groups);
        let until = Clock::System.instant().plus(self.connection.timeout());
        let make = |known: &str| {
            let call = ScriptCall::new(&SCRIPTS.cancel, &keys)
                .arg(known)
                .arg(self.valid_until(until))
                .arg(id.as_str())
                .arg(CANCELLED_KEPT.as_micros() as u64)
                .arg(CANCELLED_IDS_MAX)
                .arg(version.as_us())
                .arg(&seq)
                .arg(self.time_override());
            Ok(descriptor.groups.iter().fold(call, |call, group| call.arg(group.as_str())))
        };
        let read = |mut reply: Reply| {
            let version = reply.text()?.parse().ok().map(Version::from_us);
            let fates = descriptor.groups.iter().map(|group| Ok((group.clone(), fate(&reply.text()?)?)));
            Ok(Cancelled { fates: Fates(fates.collect::<Result<_>>()?), version, buffered: false })
        };
        let cancelled = self.until_answered(&DeadlineCall { descriptor, partition, until }, make, read).await?;
        cancelled.version.into_iter().for_each(|version| self.clock.witness(version));
        Ok(cancelled)
    }

    /// A call that has no effect after `valid_until`, ms, when its caller has given up and taken another way.
    fn push_call(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        id: &store::Call,
        messages: &[Message],
        (known, valid_until): (&str, u64),
    ) -> Result<ScriptCall> {
        let shared = self.keys.partition(&descriptor.topic, partition);
        let memory = self.keys.call(&descriptor.topic, partition, &id.id.stream);
        let groups = self.group_keys(descriptor, partition);
        let mut keys = vec![shared.generation.as_str(), &memory, &shared.seen, &shared.cancelled, &shared.wake];
        keys.extend([shared.gone.as_str(), &shared.purged, &shared.dedup, &shared.dedup_end]);
        for group in &groups {
            keys.extend([group.zset.as_str(), &group.hash, &group.dead_hash]);
        }
        let script = if descriptor.is_ordered() { &SCRIPTS.push_ordered } else { &SCRIPTS.push };
        keys.extend(descriptor.is_ordered().then_some(shared.order.as_str()));
        let earliest = messages.iter().map(|message| message.due_at).min().unwrap_or_default();
        let mut call = ScriptCall::new(script, &keys)
            .arg(known)
            .arg(valid_until)
            .arg(if id.is_fresh { "fresh" } else { "live" })
            .arg(GROUP_PARTITION_MESSAGES_MAX)
            .arg(earliest.as_ms())
            .arg(self.time_override())
            .arg(id.id.seq)
            .arg(id.version.as_us())
            .arg(messages.len());
        for message in messages {
            call = call.arg(message.due_at.as_ms()).arg(message.id.as_str());
        }
        for (number, message) in messages.iter().enumerate() {
            call = call.arg(message.id.as_str()).arg(encode_body(message, id.version.plus(number))?);
        }
        for (number, message) in (1_usize..).zip(messages).filter(|(_, message)| message.has_dedup_key()) {
            call = call.arg(number).arg(dedup_argument(message));
        }
        Ok(call)
    }

    pub(super) fn group_keys(&self, descriptor: &Descriptor, partition: Partition) -> Vec<GroupPartitionKeys> {
        descriptor.groups.iter().map(|group| self.keys.group(&descriptor.topic, partition, group)).collect()
    }
}

/// `<index>`, `@<due ms>` of what is there with `k` for another key or `c` for other content, `=<id of the first>`.
fn read_duplicates(mut reply: Reply) -> Result<Vec<(usize, PushVerdict)>> {
    reply.list()?.each(|status| {
        let status = status.text()?;
        let wrong = || Error::corrupt(format!("a script answered {status:?} for a push"));
        let (found, first) = status.split_once('=').map_or((status.as_str(), None), |(found, id)| (found, Some(id)));
        let (index, there) = found.split_once('@').map_or((found, None), |(index, there)| (index, Some(there)));
        let pushed = first.map(MessageId::new).transpose()?.map_or(Pushed::Duplicate, Pushed::DuplicateOf);
        let there = there.map(|there| {
            let due_at = Timestamp::from_ms(there.trim_end_matches(['k', 'c']).parse().map_err(|_| wrong())?);
            let (is_same_key, is_same_content) = (!there.ends_with('k'), !there.ends_with('c'));
            Ok(StoredDuplicate { due_at, is_same_key, is_same_content })
        });
        Ok((
            index.parse().map_err(|_| wrong())?,
            PushVerdict { pushed: Ok(pushed), there: there.transpose()?, bounded: None },
        ))
    })
}

/// A time of 15 digits, which only a record that no broker wrote goes past.
const DEDUP_TIME_MAX: u64 = 999_999_999_999_999;

/// The dedup key of a message with its window, as scripts read it; empty without one.
pub(super) fn dedup_argument(message: &Message) -> String {
    let digits = |at: Timestamp| at.as_ms().min(DEDUP_TIME_MAX);
    let written = |(key, from, until): (&DedupKey, Timestamp, Timestamp)| {
        format!("{:015} {:015} {key}", digits(from), digits(until))
    };
    message.envelope.dedup_window().map_or_else(String::new, written)
}

/// How far a push may move the message that waits, ms; empty without a bound.
/// How far a push may move the message that is there, or the id that this has as a dead letter once the push follows it.
pub(super) fn policy_argument(
    conflict: Conflict,
    message: &Message,
    (descriptor, partition): (&Descriptor, Partition),
    version: Version,
) -> String {
    match conflict {
        Conflict::After => other_id(message, descriptor, partition, version).into(),
        _ => message.debounce_max.map_or_else(String::new, |max| ms_up(max).to_string()),
    }
}

/// With a push that follows: also the numbers of the groups that are being copied.
pub(super) fn policy_name(conflict: Conflict, descriptor: &Descriptor) -> String {
    let is_copied = |group: &GroupName| descriptor.subscription(group).copy_of.is_some();
    let groups = (1..).zip(&descriptor.groups).filter(|(_, group)| conflict == Conflict::After && is_copied(group));
    groups.fold(conflict.name().to_owned(), |name, (number, _): (usize, _)| format!("{name},{number}"))
}

/// The keys of groups that only a push needs which follows a message.
pub(super) fn follow_keys(conflict: Conflict, groups: &[GroupPartitionKeys]) -> impl Iterator<Item = &str> {
    let groups = if conflict == Conflict::After { groups } else { &[] };
    groups.iter().flat_map(|group| [group.moving.as_str(), &group.successors])
}

/// The verdict, then `@<due ms>` if the message is due earlier than the push asked for.
fn read_verdict(status: &str) -> Result<PushVerdict> {
    let (pushed, due) = status.split_once('@').map_or((status, None), |(pushed, due)| (pushed, Some(due)));
    let wrong = |_| Error::corrupt(format!("a script answered {status:?} for a push"));
    let bounded = due.map(|due| due.parse().map(Timestamp::from_ms).map_err(wrong)).transpose()?;
    Ok(PushVerdict { bounded, ..read_pushed(pushed)?.into() })
}

pub(super) fn read_pushed(status: &str) -> Result<Result<Pushed, Refused>> {
    Ok(match status {
        "stored" => Ok(Pushed::Stored),
        "behind" => Ok(Pushed::Behind),
        "duplicate" => Ok(Pushed::Duplicate),
        "replaced" => Ok(Pushed::Replaced),
        "debounced" => Ok(Pushed::Debounced),
        "in_flight" => Err(Refused::InFlight),
        "dead" => Err(Refused::Dead),
        "other_key" => Err(Refused::OtherKey),
        "expires" => Err(Refused::Expires),
        other if other.starts_with("duplicate=") => {
            Ok(Pushed::DuplicateOf(MessageId::new(&other["duplicate=".len()..])?))
        }
        other => return Err(Error::corrupt(format!("a script answered {other:?} for a message"))),
    })
}

/// Status of a group in which a message is not as expected, and of one in which it expires too early.
const REFUSED: [&str; 2] = ["changed", "expires"];

#[derive(Clone, Copy)]
pub(super) enum Canceller<'a> {
    /// A producer that waits.
    Call(&'a store::Call),
    /// A log, with the version of the cancel.
    Log(Version),
}

/// The keys of a partition, then those that hold the messages of each group.
pub(super) fn with_groups<'a>(shared: &[&'a String], groups: &'a [GroupPartitionKeys]) -> Vec<&'a str> {
    let mut keys: Vec<&str> = shared.iter().map(|key| key.as_str()).collect();
    for group in groups {
        keys.extend([group.zset.as_str(), &group.hash, &group.attempts, &group.dead_hash]);
    }
    keys
}

fn fate(status: &str) -> Result<Fate> {
    let known = Fate::ALL.into_iter().find(|fate| fate.name() == status);
    known.ok_or_else(|| Error::corrupt(format!("a script answered {status:?} for a group")))
}
