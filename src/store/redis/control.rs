//! Cancelling and rescheduling a message.

use super::expiring::Expiring;
use super::keys::PairKeys;
use super::reply::Reply;
use super::scripts::{Call, SCRIPTS};
use super::{Shared, ms, topics};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::limits::{CANCELLED_IDS_MAX, CANCELLED_KEPT};
use crate::message::{GroupName, MessageId};
use crate::partition::Partition;
use crate::store::{Cancelled, Fate, Fates, Reschedule, Rescheduled};
use crate::time::Timestamp;
use crate::topic::Descriptor;

/// What a script says of a group in which a message is not what was expected, and in which it expires too early.
const REFUSED: [&str; 2] = ["changed", "expires"];

impl Shared {
    pub(super) async fn cancel(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        id: &MessageId,
        replayed: Option<Timestamp>,
    ) -> Result<Cancelled> {
        let shared = self.keys.partition(&descriptor.topic, partition);
        let groups = self.pairs(descriptor, partition);
        let keys = with_groups(&[&shared.generation, &shared.cancelled], &groups);
        let until = Clock::System.instant().plus(self.connection.timeout());
        let make = || {
            let call = Call::new(&SCRIPTS.cancel, &keys)
                .arg(topics::sixteen_digits(descriptor.generation))
                .arg(self.valid_until(until))
                .arg(id.as_str())
                .arg(ms(CANCELLED_KEPT))
                .arg(CANCELLED_IDS_MAX)
                .arg(replayed.map_or(String::new(), |at| at.as_ms().to_string()))
                .arg(self.time_override());
            Ok(descriptor.groups.iter().fold(call, |call, group| call.arg(group.as_str())))
        };
        let read = |mut reply: Reply| {
            let at = reply.time()?;
            let fates = descriptor.groups.iter().map(|group| Ok((group.clone(), fate(&reply.text()?)?)));
            Ok(Cancelled { fates: Fates(fates.collect::<Result<_>>()?), at, buffered: false })
        };
        self.until_answered(&Expiring { descriptor, partition, until }, None, make, read).await
    }

    pub(super) async fn reschedule(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        reschedule: &Reschedule,
    ) -> Result<Rescheduled> {
        let shared = self.keys.partition(&descriptor.topic, partition);
        let groups = self.pairs(descriptor, partition);
        let keys = with_groups(&[&shared.generation, &shared.wake], &groups);
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
                .arg(self.time_override()))
        };
        let read = |mut reply: Reply| {
            let was = reply.time()?;
            let said = descriptor.groups.iter().map(|group| Ok((group, reply.text()?))).collect::<Result<Vec<_>>>()?;
            if let Some((group, said)) = said.iter().find(|(_, said)| REFUSED.contains(&said.as_str())) {
                let is_changed = said == REFUSED[0];
                return Ok(if is_changed { Rescheduled::Changed((*group).clone()) } else { Rescheduled::Expires });
            }
            let fates = said.into_iter().map(|(group, said): (&GroupName, String)| Ok((group.clone(), fate(&said)?)));
            Ok(Rescheduled::Done { fates: Fates(fates.collect::<Result<_>>()?), was })
        };
        self.until_answered(&Expiring { descriptor, partition, until }, None, make, read).await
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
