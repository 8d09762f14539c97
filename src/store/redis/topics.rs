//! Descriptors: the topic's own, and the copy that each partition keeps as its generation; and calls that carry one and
//! have a deadline. Their callers wait for a while and then take another way. Within that time such calls are repeated;
//! after it Redis does nothing.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{try_join, try_join_all};
use redis::Value;

use super::failure::is_too_few;
use super::histories::{Known, four_by_chance, known_call, sixteen_digits};
use super::keys::GroupPartitionKeys;
use super::scripts::{Call, Reply, SCRIPTS, maybe_text};
use super::{Redis, Shared, ms};
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::{GROUP_PARTITION_MESSAGES_MAX, TOPICS_MAX};
use crate::model::message::TopicName;
use crate::model::partition::Partition;
use crate::model::topic::Descriptor;
use crate::model::version::Version;
use crate::platform::clock::{Clock, Instant};
use crate::store::{self, TOMBSTONE_KEPT};

#[async_trait]
impl store::Topics for Redis {
    async fn topic(&self, topic: &TopicName) -> Result<Option<Descriptor>> {
        Ok(self.descriptor(&self.keys.topic(topic)).await?.filter(|descriptor| !descriptor.deleted))
    }

    async fn topics(&self) -> Result<Vec<TopicName>> {
        let names = Reply::of(self.connection.call(redis::cmd("SMEMBERS").arg(self.keys.topics())).await?)?;
        let mut topics = names.each(|names| TopicName::new(names.text()?))?;
        topics.sort();
        Ok(topics)
    }

    async fn create(&self, wanted: &Descriptor) -> Result<Descriptor> {
        self.create_topic(wanted).await
    }

    async fn update(&self, wanted: &Descriptor) -> Result<Descriptor> {
        let key = self.keys.topic(&wanted.topic);
        let Some(there) = self.descriptor(&key).await?.filter(|there| !there.deleted) else {
            return Err(Error::not_found(format!("there is no topic {}", wanted.topic)));
        };
        if there.generation != wanted.generation {
            return Err(Error::stale(format!("topic {} was changed by someone else; load it again", wanted.topic)));
        }
        let there = self.finish_leaving(&key, there).await?;
        let new = there.followed_by(wanted, self.next_generation(there.generation));
        let in_place = self.replace(&key, &there, &new).await?;
        if in_place != new {
            return Err(Error::stale(format!("topic {} was changed by someone else; load it again", wanted.topic)));
        }
        self.roll_all(&new, None).await?;
        self.finish_leaving(&key, new).await
    }

    async fn publish_settings(&self, descriptor: &Descriptor) -> Result<()> {
        self.roll_all(descriptor, None).await
    }

    async fn delete(&self, descriptor: &Descriptor) -> Result<()> {
        self.delete_topic(descriptor, false, 0).await
    }

    async fn delete_unchanged(&self, descriptor: &Descriptor) -> Result<()> {
        self.delete_topic(descriptor, true, 0).await
    }
}

impl Shared {
    /// A descriptor that Redis lost is found again in partition 0, so a topic never changes its number of partitions.
    /// It is made in the Redis in which it was missing, and in no other that a new connection finds meanwhile: another broker may
    /// know what that one has lost.
    async fn create_topic(&self, wanted: &Descriptor) -> Result<Descriptor> {
        let losses = self.losses.borrow().count;
        let key = self.keys.topic(&wanted.topic);
        match self.descriptor(&key).await? {
            Some(there) if !there.deleted => return Ok(there),
            // A deletion that was interrupted is finished first.
            Some(deleted) => self.delete_topic(&deleted, false, 0).await?,
            None => {}
        }
        let copy = self.descriptor(&self.keys.partition(&wanted.topic, Partition(0)).generation).await?;
        let descriptor = match copy {
            // The newer of the two: the partition may have lost its last copy.
            Some(lost) if !lost.deleted && wanted.generation > lost.generation => wanted.clone(),
            Some(lost) if !lost.deleted => lost,
            Some(tombstone) if tombstone.incarnation == wanted.incarnation => {
                return Err(Error::not_found(format!("topic {} was deleted", wanted.topic)));
            }
            tombstone => self.born(wanted, tombstone.as_ref()).await?,
        };
        // Listed first: a name without a descriptor is harmless, an unlisted topic is not. And again afterwards: a
        // deletion that ends now takes the name off the list.
        self.list(&descriptor.topic).await?;
        let create = Call::new(&SCRIPTS.set_descriptor, &[&key]).arg("").arg(write(&descriptor)?).after_losses(losses);
        let in_place = read(&self.reply(&create).await?.text()?)?;
        self.list(&descriptor.topic).await?;
        self.roll_all(&in_place, None).await?;
        tracing::info!(topic = %in_place.topic, partitions = in_place.settings.partitions, "topic created");
        Ok(in_place)
    }

    /// Deletes a topic; if `is_unchanged`, only while its generation is that of `descriptor`. `restored_deletion` is
    /// not 0 when a journal says that it was deleted then. The descriptor is marked deleted first, then every partition
    /// refuses pushes and owners, then the data goes, then the descriptor. Deleting or creating the topic again
    /// finishes an interrupted deletion. A broker that was overtaken touches nothing of a new topic of that name.
    pub(super) async fn delete_topic(
        &self,
        descriptor: &Descriptor,
        is_unchanged: bool,
        restored_deletion: u64,
    ) -> Result<()> {
        let key = self.keys.topic(&descriptor.topic);
        // A caller that means an older topic of this name deletes nothing of the new one.
        let there = self.descriptor(&key).await?.filter(|there| there.incarnation == descriptor.incarnation);
        let Some(there) = there else { return Ok(()) };
        let stale = || Error::stale(format!("topic {} was changed by someone else; try again", descriptor.topic));
        let tombstone = if there.deleted {
            there
        } else {
            if is_unchanged && there.generation != descriptor.generation {
                return Err(stale());
            }
            let generation = self.next_generation(there.generation);
            let tombstone = Descriptor { deleted: true, generation, restored_deletion, ..there.clone() };
            if self.replace(&key, &there, &tombstone).await? != tombstone {
                return Err(stale());
            }
            tombstone
        };
        match self.roll_all(&tombstone, Some(TOMBSTONE_KEPT)).await {
            Err(error) if error.kind() == Kind::Stale => return Ok(()),
            rolled => rolled?,
        }
        self.delete_data(&tombstone).await?;
        self.histories.forget(&tombstone.topic);
        self.connection.call(redis::cmd("SREM").arg(self.keys.topics()).arg(tombstone.topic.as_str())).await?;
        if !self.put(&key, &tombstone, "").await?.is_empty() {
            self.list(&tombstone.topic).await?;
        }
        Ok(())
    }

    /// `last` is the topic as it was last seen: it says how many partitions may have a tombstone.
    pub(super) async fn topic_or_tombstone(
        &self,
        topic: &TopicName,
        last: Option<&Descriptor>,
    ) -> Result<Option<Descriptor>> {
        match self.descriptor(&self.keys.topic(topic)).await? {
            Some(there) => Ok(Some(there)),
            // The copy of a topic that was not deleted may outlive its descriptor, on another node: then the topic is lost.
            None => {
                let newest = match last {
                    Some(last) => self.newest_copy(last).await?,
                    None => self.descriptor(&self.keys.partition(topic, Partition(0)).generation).await?,
                };
                Ok(newest.filter(|newest| newest.deleted))
            }
        }
    }

    /// The newest descriptor that a partition of a topic has seen.
    async fn newest_copy(&self, topic: &Descriptor) -> Result<Option<Descriptor>> {
        let copies = topic
            .partitions()
            .map(async |partition| self.descriptor(&self.keys.partition(&topic.topic, partition).generation).await);
        let copies = try_join_all(copies).await?;
        Ok(copies.into_iter().flatten().max_by_key(|copy| copy.generation))
    }

    /// A topic is what its newest descriptor says, which only a partition may have: nodes of a cluster lose what they have
    /// each for itself. Answers it, and whether the topic was not there.
    pub(super) async fn bring_back(&self, last: &Descriptor) -> Result<(Descriptor, bool)> {
        let key = self.keys.topic(&last.topic);
        let (there, copy) = try_join(self.descriptor(&key), self.newest_copy(last)).await?;
        let copy = copy.filter(|copy| there.as_ref().is_none_or(|there| there.generation < copy.generation));
        match (there, copy) {
            (Some(there), None) => Ok((there, false)),
            (Some(there), Some(tombstone)) if tombstone.deleted => {
                if there.incarnation == tombstone.incarnation {
                    self.delete_topic(&there, false, tombstone.restored_deletion).await?;
                }
                Ok((tombstone, false))
            }
            (Some(there), Some(newer)) => {
                let in_place = self.replace(&key, &there, &newer).await?;
                self.roll_all(&in_place, None).await?;
                tracing::warn!(topic = %in_place.topic, "descriptor of a topic is older than its partitions: replaced by theirs");
                Ok((in_place, false))
            }
            (None, Some(tombstone)) if tombstone.deleted => Ok((tombstone, false)),
            (None, newest) => {
                let wanted = newest.filter(|newest| newest.incarnation == last.incarnation);
                let created = self.create_topic(wanted.as_ref().unwrap_or(last)).await?;
                Ok((created, true))
            }
        }
    }

    /// A partition refused a descriptor since it has seen a newer one. A descriptor is written before any partition sees it: if that
    /// of the topic is older too, Redis lost it, and would refuse the topic until somebody changes it. Answers what to tell the
    /// caller, who loads the topic again.
    pub(super) async fn overtaken(&self, topic: &TopicName, partition: Partition) -> Error {
        if let Err(error) = self.catch_up(topic, partition).await {
            tracing::debug!(%topic, %partition, %error, "the descriptor of a topic could not be compared with its partitions");
        }
        Error::stale(format!("topic {topic} was changed or deleted; load it again"))
    }

    async fn catch_up(&self, topic: &TopicName, partition: Partition) -> Result<()> {
        let seen = self.descriptor(&self.keys.partition(topic, partition).generation).await?;
        // Read after that of the partition, so it is older only if it was lost.
        let there = self.descriptor(&self.keys.topic(topic)).await?;
        match (seen, there) {
            (Some(seen), Some(there)) if there.generation < seen.generation => self.bring_back(&seen).await.map(drop),
            _ => Ok(()),
        }
    }

    async fn born(&self, wanted: &Descriptor, tombstone: Option<&Descriptor>) -> Result<Descriptor> {
        let count = self.connection.call(redis::cmd("SCARD").arg(self.keys.topics())).await?;
        if matches!(count, Value::Int(count) if usize::try_from(count).is_ok_and(|count| count >= TOPICS_MAX)) {
            return Err(Error::new(Kind::Full, format!("there are {TOPICS_MAX} topics; delete some first")));
        }
        let deleted_at = wanted.deleted_at.max(tombstone.map_or(0, Descriptor::last_deletion));
        let before = tombstone.map_or(0, |tombstone| tombstone.generation);
        let generation = self.next_generation(before.max(wanted.generation));
        let incarnation = if wanted.incarnation == 0 { generation } else { wanted.incarnation };
        Ok(Descriptor { generation, incarnation, deleted: false, deleted_at, restored_deletion: 0, ..wanted.clone() })
    }

    /// Deletes what removed groups have left, and then takes them off the descriptor. After an interruption the next
    /// change of the topic finishes it: until then the descriptor names them.
    async fn finish_leaving(&self, key: &str, descriptor: Descriptor) -> Result<Descriptor> {
        if descriptor.leaving.is_empty() {
            return Ok(descriptor);
        }
        self.roll_all(&descriptor, None).await?;
        for group in &descriptor.leaving {
            let wipe = |partition| {
                let shared = self.keys.partition(&descriptor.topic, partition);
                let group_partition = self.keys.group(&descriptor.topic, partition, group);
                let mut keys = vec![shared.generation.as_str(), &shared.purged];
                keys.extend(group_partition.all());
                Call::new(&SCRIPTS.unsubscribe, &keys).arg(group.as_str())
            };
            let answers =
                self.connection.eval_all(&SCRIPTS.unsubscribe, descriptor.partitions().map(wipe).collect()).await;
            answers.into_iter().try_for_each(|answer| left(answer?))?;
        }
        let generation = self.next_generation(descriptor.generation);
        let clean = Descriptor { generation, leaving: Vec::new(), ..descriptor.clone() };
        let in_place = self.replace(key, &descriptor, &clean).await?;
        if in_place.deleted || in_place.incarnation != clean.incarnation {
            return Err(Error::not_found(format!("topic {} was deleted meanwhile", clean.topic)));
        }
        // Someone else may have changed it again.
        self.roll_all(&in_place, None).await?;
        Ok(in_place)
    }

    async fn delete_data(&self, tombstone: &Descriptor) -> Result<()> {
        let wipe = |partition| {
            let shared = self.keys.partition(&tombstone.topic, partition);
            let group_partitions: Vec<_> = tombstone
                .groups
                .iter()
                .chain(&tombstone.leaving)
                .map(|group| self.keys.group(&tombstone.topic, partition, group))
                .collect();
            let mut keys = vec![
                shared.generation.as_str(),
                &shared.seen,
                &shared.cancelled,
                &shared.gone,
                &shared.purged,
                &shared.dedup,
                &shared.dedup_end,
                &shared.schedules,
                &shared.moved,
                &shared.past,
                &shared.order,
            ];
            keys.extend(group_partitions.iter().flat_map(GroupPartitionKeys::all));
            Call::new(&SCRIPTS.delete_partition, &keys).arg(sixteen_digits(tombstone.generation))
        };
        let calls: Vec<Call> = tombstone.partitions().map(wipe).collect();
        let answers = self.connection.eval_all(&SCRIPTS.delete_partition, calls).await;
        answers.into_iter().try_for_each(|answer| answer.map(drop))
    }

    pub(super) async fn list(&self, topic: &TopicName) -> Result<()> {
        self.connection.call(redis::cmd("SADD").arg(self.keys.topics()).arg(topic.as_str())).await.map(drop)
    }

    /// Shows the descriptor to every partition; the first one announces it.
    async fn roll_all(&self, descriptor: &Descriptor, keep: Option<Duration>) -> Result<()> {
        let shows: Vec<Show> = descriptor
            .partitions()
            .map(|partition| Show { partition, keep, announce: partition == Partition(0) })
            .collect();
        let losses = self.losses.borrow().count;
        let known: Vec<_> = shows.iter().map(|show| self.histories.of(&descriptor.topic, show.partition)).collect();
        let call = |(show, known): (&Show, &Option<Arc<Known>>)| {
            known_call(descriptor.generation, known.as_ref(), |known| self.show_call(descriptor, show, known))
        };
        let calls = shows.iter().zip(&known).map(call).collect::<Result<Vec<_>>>()?;
        let answers = self.connection.eval_all(&SCRIPTS.publish_settings, calls).await;
        for ((show, known), answer) in shows.iter().zip(known).zip(answers) {
            match self.known_answer(&descriptor.topic, show.partition, (known, losses), answer?).await? {
                Some(answer) => self.rolled(&descriptor.topic, show.partition, losses, answer)?,
                None => self.show(descriptor, show).await?,
            }
        }
        Ok(())
    }

    async fn show(&self, descriptor: &Descriptor, show: &Show) -> Result<()> {
        let losses = self.losses.borrow().count;
        let make = |known: &str| self.show_call(descriptor, show, known);
        let answer = self.eval_known(&descriptor.topic, show.partition, descriptor.generation, make).await?;
        self.rolled(&descriptor.topic, show.partition, losses, answer)
    }

    fn show_call(&self, descriptor: &Descriptor, show: &Show, known: &str) -> Result<Call> {
        let keys = self.keys.partition(&descriptor.topic, show.partition);
        Ok(Call::new(&SCRIPTS.publish_settings, &[&keys.generation, &keys.wake])
            .arg(known)
            .arg(to_json(descriptor)?)
            .arg(show.keep.map_or(String::new(), |keep| ms(keep).to_string()))
            .arg(u8::from(show.announce))
            .arg(four_by_chance())
            .arg(self.time_override())
            .naming_process())
    }

    fn rolled(&self, topic: &TopicName, partition: Partition, losses: u64, answer: Value) -> Result<()> {
        let mut reply = Reply::of(answer)?;
        reply.text()?;
        let (is_in_place, history) = (reply.number()? == 1, reply.text()?);
        self.shown(topic, partition, &history, losses);
        if !is_in_place {
            return Err(Error::stale("a partition has seen a newer descriptor; load the topic again"));
        }
        Ok(())
    }

    /// Answers what is in place now. Errors: `Stale` if that is nothing, since Redis lost it or somebody else deleted it.
    async fn replace(&self, key: &str, before: &Descriptor, after: &Descriptor) -> Result<Descriptor> {
        match self.put(key, before, &write(after)?).await?.as_str() {
            "" => Err(Error::stale(format!("topic {} was deleted or lost meanwhile; load it again", before.topic))),
            there => read(there),
        }
    }

    /// The same with descriptors as Redis keeps them; an empty one is none.
    async fn put(&self, key: &str, before: &Descriptor, after: &str) -> Result<String> {
        let call = Call::new(&SCRIPTS.set_descriptor, &[key]).arg(sixteen_digits(before.generation)).arg(after);
        let mut reply = self.reply(&call).await?;
        reply.text()
    }

    pub(super) async fn descriptor(&self, key: &str) -> Result<Option<Descriptor>> {
        let value = self.connection.call(redis::cmd("GET").arg(key)).await?;
        maybe_text(value)?.map(|text| read(&text)).transpose()
    }

    /// Generations never go back, even when Redis lost the last ones.
    fn next_generation(&self, last: u64) -> u64 {
        self.clock.now().as_ms().max(last + 1)
    }
}

/// A descriptor as Redis keeps it: its generation, a space, JSON that people can read with redis-cli.
pub(super) fn write(descriptor: &Descriptor) -> Result<String> {
    Ok(format!("{} {}", sixteen_digits(descriptor.generation), to_json(descriptor)?))
}

fn to_json(descriptor: &Descriptor) -> Result<String> {
    serde_json::to_string(descriptor).map_err(|error| Error::bug(format!("a descriptor did not serialize: {error}")))
}

/// The descriptor that Redis keeps for a topic, or a partition behind the id of its history.
pub(super) fn read(text: &str) -> Result<Descriptor> {
    let json = text.find('{').and_then(|at| text.get(at..)).unwrap_or_default();
    serde_json::from_str(json).map_err(|error| Error::corrupt(format!("a descriptor is unreadable ({error})")))
}

/// How a descriptor is shown to a partition.
struct Show {
    partition: Partition,
    /// How long it stays there; `None` is indefinitely.
    keep: Option<Duration>,
    /// Whether it is announced that the topic changed.
    announce: bool,
}

/// Whether a group that leaves was deleted in a partition.
fn left(answer: Value) -> Result<()> {
    let mut reply = Reply::of(answer)?;
    reply.text()?;
    match reply.number()? {
        1 => Ok(()),
        _ => Err(Error::stale("a partition has seen a newer descriptor; load the topic again")),
    }
}

const REPEAT_AFTER: Duration = Duration::from_millis(20);

pub(super) struct DeadlineCall<'a> {
    pub(super) descriptor: &'a Descriptor,
    pub(super) partition: Partition,
    /// When whoever makes it has given up.
    pub(super) until: Instant,
}

pub(super) enum Answer {
    /// It was applied, now or before; what follows the status and the time.
    Done(Reply),
    /// The partition has not seen this descriptor yet.
    Behind,
    /// It came after its time was up, by the clock of Redis as it is now known.
    Late,
    /// A message has this version, and the call an earlier one.
    Outdated(Version),
    /// The partition does not remember the call before it, so Redis lost data. It was not applied.
    Gap,
}

impl Shared {
    /// Until when a call is valid that is made now and has until then, on Redis' clock, in ms.
    pub(super) fn valid_until(&self, until: Instant) -> u64 {
        self.clock.now().as_ms() + ms(until.since(Clock::System.instant()))
    }

    /// Calls are repeated while time is left: a repeat changes nothing, and is answered as the first one was. One that
    /// was late is made anew, once: the clock of Redis was another one than was thought.
    pub(super) async fn until_answered<T>(
        &self,
        expiring: &DeadlineCall<'_>,
        make: impl Fn(&str) -> Result<Call>,
        read: impl Fn(Reply) -> Result<T>,
    ) -> Result<T> {
        let until = expiring.until;
        let (mut was_late, mut unknown) = (false, None);
        loop {
            let error = match self.expire(expiring.descriptor, expiring.partition, &make).await {
                Ok(Answer::Done(reply)) => return read(reply),
                Ok(Answer::Behind) => match self.publish_descriptor(expiring.descriptor, expiring.partition).await {
                    Ok(()) => continue,
                    Err(error) => error,
                },
                Ok(Answer::Gap) => {
                    self.suspect_loss();
                    // An earlier copy may have been applied, and lost with the rest.
                    Error::stale("Redis lost data: it does not remember the call before this one; make another call")
                }
                Ok(Answer::Late) if !was_late && Clock::System.instant() < until => {
                    was_late = true;
                    continue;
                }
                Ok(Answer::Outdated(version)) => {
                    self.clock.witness(version);
                    Error::stale("another broker changed a message of this call just now; make another call")
                }
                Ok(Answer::Late) => {
                    Error::unavailable("the call reached Redis after its time was up and was not applied")
                }
                Err(error) => error,
            };
            let repeatable = matches!(error.kind(), Kind::OutcomeUnknown) && !is_too_few(&error);
            if error.kind() == Kind::OutcomeUnknown {
                unknown.get_or_insert(error.clone());
            }
            if !repeatable || Clock::System.instant() >= until {
                // Once one call may have been applied, no later failure makes it certain that it was not.
                return Err(unknown.unwrap_or(error));
            }
            // A connection that breaks at once would be made anew a thousand times a second.
            Clock::System.sleep(REPEAT_AFTER).await;
        }
    }

    pub(super) async fn expire(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        make: impl Fn(&str) -> Result<Call>,
    ) -> Result<Answer> {
        let (status, mut reply) = self.ask_known(&descriptor.topic, partition, descriptor.generation, make).await?;
        match status.as_str() {
            "OK" => Ok(Answer::Done(reply)),
            "BEHIND" => Ok(Answer::Behind),
            "LATE" => Ok(Answer::Late),
            "GAP" => Ok(Answer::Gap),
            "OUTDATED" => Ok(Answer::Outdated(Version::from_us(reply.text()?.parse().unwrap_or_default()))),
            "FULL" => Err(Error::new(
                Kind::Full,
                format!(
                    "a partition holds at most {GROUP_PARTITION_MESSAGES_MAX} messages; drain it or use more partitions"
                ),
            )),
            _ => Err(self.overtaken(&descriptor.topic, partition).await),
        }
    }

    /// Shows the descriptor to a partition. Errors: `Stale` when it has seen a newer one.
    pub(super) async fn publish_descriptor(&self, descriptor: &Descriptor, partition: Partition) -> Result<()> {
        self.show(descriptor, &Show { partition, keep: None, announce: false }).await
    }
}
