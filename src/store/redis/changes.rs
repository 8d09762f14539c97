//! Cancelling and rescheduling a message.

use super::deadline_call::DeadlineCall;
use super::keys::PairKeys;
use super::reply::Reply;
use super::scripts::{Call, SCRIPTS};
use super::{Shared, topics};
use crate::model::error::{Error, Result};
use crate::model::limits::{CANCELLED_IDS_MAX, CANCELLED_KEPT};
use crate::model::message::{GroupName, MessageId};
use crate::model::partition::Partition;
use crate::model::topic::Descriptor;
use crate::model::version::Version;
use crate::platform::clock::Clock;
use crate::store::{self, Cancelled, Fate, Fates, Reschedule, Rescheduled};

/// What a script says of a group in which a message is not what was expected, and in which it expires too early.
const REFUSED: [&str; 2] = ["changed", "expires"];

/// Who cancels.
#[derive(Clone, Copy)]
pub(super) enum Canceller<'a> {
    /// A producer that waits.
    Call(&'a store::Call),
    /// A log, with the version of the cancel.
    Log(Version),
}

impl Shared {
    /// Cancels a message by a call, or as a log says it again under this version.
    pub(super) async fn cancel(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        id: &MessageId,
        by: Canceller<'_>,
    ) -> Result<Cancelled> {
        let shared = self.keys.partition(&descriptor.topic, partition);
        let groups = self.pairs(descriptor, partition);
        let (stream, seq, version) = match by {
            Canceller::Call(call) => (call.id.stream.as_str(), call.id.seq.to_string(), call.version),
            Canceller::Log(version) => ("", String::new(), version),
        };
        let memory = self.keys.call(&descriptor.topic, partition, stream);
        let keys = with_groups(&[&shared.generation, &memory, &shared.cancelled], &groups);
        let until = Clock::System.instant().plus(self.connection.timeout());
        let make = || {
            let call = Call::new(&SCRIPTS.cancel, &keys)
                .arg(topics::sixteen_digits(descriptor.generation))
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

    pub(super) async fn reschedule(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        call: &store::Call,
        reschedule: &Reschedule,
    ) -> Result<Rescheduled> {
        let shared = self.keys.partition(&descriptor.topic, partition);
        let memory = self.keys.call(&descriptor.topic, partition, &call.id.stream);
        let groups = self.pairs(descriptor, partition);
        let keys = with_groups(&[&shared.generation, &memory, &shared.gone, &shared.wake], &groups);
        let until = Clock::System.instant().plus(self.connection.timeout());
        let expected = reschedule.expected;
        let make = || {
            Ok(Call::new(&SCRIPTS.reschedule, &keys)
                .arg(topics::sixteen_digits(descriptor.generation))
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
            let said = descriptor.groups.iter().map(|group| Ok((group, reply.text()?))).collect::<Result<Vec<_>>>()?;
            if let Some((group, said)) = said.iter().find(|(_, said)| REFUSED.contains(&said.as_str())) {
                let is_changed = said == REFUSED[0];
                return Ok(if is_changed { Rescheduled::Changed((*group).clone()) } else { Rescheduled::Expires });
            }
            let fates = said.into_iter().map(|(group, said): (&GroupName, String)| Ok((group.clone(), fate(&said)?)));
            Ok(Rescheduled::Done(Fates(fates.collect::<Result<_>>()?)))
        };
        self.until_answered(&DeadlineCall { descriptor, partition, until }, make, read).await
    }

    /// The keys of all groups of a partition.
    pub(super) fn pairs(&self, descriptor: &Descriptor, partition: Partition) -> Vec<PairKeys> {
        descriptor.groups.iter().map(|group| self.keys.group(&descriptor.topic, partition, group)).collect()
    }
}

/// The keys of a partition, then those that hold the messages of each group.
pub(super) fn with_groups<'a>(shared: &[&'a String], groups: &'a [PairKeys]) -> Vec<&'a str> {
    let mut keys: Vec<&str> = shared.iter().map(|key| key.as_str()).collect();
    for group in groups {
        keys.extend([group.zset.as_str(), &group.hash, &group.attempts, &group.dead_hash]);
    }
    keys
}

fn fate(said: &str) -> Result<Fate> {
    let known = Fate::ALL.into_iter().find(|fate| fate.name() == said);
    known.ok_or_else(|| Error::corrupt(format!("a script answered {said:?} for a group")))
}
