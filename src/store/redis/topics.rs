//! Descriptors, of which each partition keeps the newest that it has seen, partition 0 first; and calls that carry one and
//! have a deadline. Their callers wait for a while and then take another way. Within that time such calls are repeated;
//! after it Redis does nothing.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use redis::Value;

use super::failure::is_too_few;
use super::histories::{Answered, Known, REMEMBERED_TRIED, four_by_chance, known_call, sixteen_digits};
use super::keys::GroupPartitionKeys;
use super::scripts::{Reply, SCRIPTS, ScriptCall, maybe_text};
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
        Ok(self.topic_or_tombstone(topic).await?.filter(|there| !there.deleted))
    }

    async fn topics(&self) -> Result<Vec<TopicName>> {
        let names = Reply::of(self.connection.call(redis::cmd("SMEMBERS").arg(self.keys.topics())).await?)?;
        let mut topics = names.each(|names| TopicName::new(names.text()?))?;
        topics.sort();
        Ok(topics)
    }

    async fn create(&self, wanted: &Descriptor) -> Result<Descriptor> {
        wanted.check()?;
        let losses = self.losses.borrow().count;
        match self.topic(&wanted.topic).await? {
            Some(there) => Ok(there),
            None => self.create_topic(wanted, losses).await,
        }
    }

    async fn update(&self, wanted: &Descriptor) -> Result<Descriptor> {
        wanted.check()?;
        let Some(there) = self.topic(&wanted.topic).await? else {
            return Err(Error::not_found(format!("there is no topic {}", wanted.topic)));
        };
        if there.generation != wanted.generation {
            return Err(changed(&wanted.topic));
        }
        let there = self.finish_leaving(there).await?;
        let new = there.followed_by(wanted, self.next_generation(there.generation));
        self.write(Some(&there), &new).await?;
        self.publish(&new).await?;
        self.finish_leaving(new).await
    }

    async fn publish_descriptor(&self, descriptor: &Descriptor) -> Result<()> {
        self.publish(descriptor).await
    }

    async fn delete(&self, descriptor: &Descriptor) -> Result<Option<Descriptor>> {
        self.delete_topic(descriptor, false).await
    }

    async fn delete_unchanged(&self, descriptor: &Descriptor) -> Result<Option<Descriptor>> {
        self.delete_topic(descriptor, true).await
    }
}

/// A topic is a register: what its newest descriptor says, of which a deletion is one too (a *tombstone*). It is written to partition 0
/// first, under the condition that this still has the one before it, and then shown to the others, which keep the newest that
/// they have seen. So whatever some nodes have lost, the newest copy that is left counts.
impl Shared {
    /// The descriptor of a topic, or its tombstone for as long as there is one.
    pub(super) async fn topic_or_tombstone(&self, topic: &TopicName) -> Result<Option<Descriptor>> {
        let there = self.copy(topic, HOME).await?;
        if let Some(tombstone) = there.as_ref().filter(|there| there.deleted) {
            self.histories.forget(topic, tombstone.generation);
        }
        Ok(there)
    }

    /// Whether one of these topics at least is there, and those that are there are these. Another fleet may have topics of the same names, but
    /// none that was made in the same millisecond. Changes nothing.
    pub(super) async fn remembers_topics(&self, topics: &[Descriptor]) -> Result<bool> {
        let mut is_any_there = false;
        for topic in topics.iter().take(REMEMBERED_TRIED) {
            let key = self.keys.partition(&topic.topic, HOME).generation;
            let value = self.connection.ask_any(redis::cmd("GET").arg(key)).await?;
            match read_copy(value)?.filter(|there| !there.deleted) {
                None => {}
                Some(there) if there.incarnation == topic.incarnation => is_any_there = true,
                Some(_) => return Ok(false),
            }
        }
        Ok(is_any_there)
    }

    async fn copy(&self, topic: &TopicName, partition: Partition) -> Result<Option<Descriptor>> {
        let key = self.keys.partition(topic, partition).generation;
        let value = self.connection.call(redis::cmd("GET").arg(key)).await?;
        read_copy(value)
    }

    /// Lets the newest of the descriptors of a topic count: of `known`, and of those that its partitions have seen. Answers it, and
    /// whether the topic was missing before.
    pub(super) async fn merge(&self, known: &Descriptor) -> Result<(Descriptor, bool)> {
        let losses = self.losses.borrow().count;
        self.merge_after(known, losses).await
    }

    async fn merge_after(&self, known: &Descriptor, losses: u64) -> Result<(Descriptor, bool)> {
        let copies = self.copies(known).await?;
        let newest = newest(copies.iter().flatten().chain([known])).unwrap_or(known).clone();
        let is_missing = !newest.deleted && copies.first().is_none_or(Option::is_none);
        if copies.iter().all(|copy| copy.as_ref() == Some(&newest)) {
            return Ok((newest, false));
        }
        let show = Show { losses: Some(losses), ..Show::at(HOME) };
        let there = self.show(&newest, &show).await?.unwrap_or(newest);
        if there.deleted {
            self.bury(&there).await?;
        } else {
            self.add_to_list(&there.topic).await?;
            self.publish(&there).await?;
        }
        Ok((there, is_missing))
    }

    async fn copies(&self, known: &Descriptor) -> Result<Vec<Option<Descriptor>>> {
        try_join_all(known.partitions().map(|partition| self.copy(&known.topic, partition))).await
    }

    /// A topic that partitions remember is that topic, so it never changes its number of partitions. A new one is made in the Redis
    /// in which it was missed, after so many losses, and in no other that a new connection finds meanwhile: another broker may know what
    /// that one has lost.
    async fn create_topic(&self, wanted: &Descriptor, losses: u64) -> Result<Descriptor> {
        let copies = self.copies(wanted).await?;
        let was_there = (wanted.incarnation > 0).then_some(wanted);
        let there = match newest(copies.iter().flatten().chain(was_there)) {
            Some(newest) if !newest.deleted => self.merge_after(newest, losses).await?.0,
            Some(_) if was_there.is_some() => return Err(was_deleted(&wanted.topic)),
            tombstone => {
                // A deletion that was interrupted is finished first.
                if let Some(tombstone) = tombstone {
                    self.bury(tombstone).await?;
                }
                let born = self.born(wanted, tombstone).await?;
                // Listed first: a name without a descriptor is harmless, an unlisted topic is not. And again afterwards: a
                // deletion that ends now takes the name off the list.
                self.add_to_list(&born.topic).await?;
                let create = Show { partition: HOME, losses: Some(losses), replaces: Replaces::of(tombstone) };
                let there = self.show(&born, &create).await?.unwrap_or(born);
                self.add_to_list(&there.topic).await?;
                self.publish(&there).await?;
                there
            }
        };
        if there.deleted {
            return Err(was_deleted(&wanted.topic));
        }
        tracing::info!(topic = %there.topic, partitions = there.settings.partitions, "topic created");
        Ok(there)
    }

    /// Deletes a topic; if `is_unchanged`, only while its generation is that of `descriptor`. Answers its tombstone; `None` if another
    /// topic has its name, or none. Its generation is above all versions that were pushed here.
    async fn delete_topic(&self, descriptor: &Descriptor, is_unchanged: bool) -> Result<Option<Descriptor>> {
        // A caller that means an older topic of this name deletes nothing of the new one.
        let there = self.topic_or_tombstone(&descriptor.topic).await?;
        let Some(there) = there.filter(|there| there.incarnation == descriptor.incarnation) else { return Ok(None) };
        let tombstone = if there.deleted {
            there
        } else {
            if is_unchanged && there.generation != descriptor.generation {
                return Err(changed(&descriptor.topic));
            }
            let above = self.clock.versions(1).as_us() / 1_000 + 1;
            let generation = self.next_generation(there.generation).max(above);
            let tombstone = Descriptor { deleted: true, generation, ..there.clone() };
            self.write(Some(&there), &tombstone).await?;
            tombstone
        };
        self.bury(&tombstone).await?;
        Ok(Some(tombstone))
    }

    /// Shows a tombstone to every partition, which refuses pushes and owners from then on, and deletes what they have. It may be said
    /// again: one that was interrupted is finished by whoever deletes or creates the topic again. Nothing of a newer topic of that
    /// name is touched.
    async fn bury(&self, tombstone: &Descriptor) -> Result<()> {
        match self.publish(tombstone).await {
            Err(error) if error.kind() == Kind::Stale => return Ok(()),
            published => published?,
        }
        self.delete_data(tombstone).await?;
        self.histories.forget(&tombstone.topic, tombstone.generation);
        self.connection.call(redis::cmd("SREM").arg(self.keys.topics()).arg(tombstone.topic.as_str())).await?;
        if self.topic_or_tombstone(&tombstone.topic).await?.is_some_and(|there| !there.deleted) {
            self.add_to_list(&tombstone.topic).await?;
        }
        Ok(())
    }

    /// A partition refused a descriptor since it has seen a newer one. A descriptor is written to partition 0 before any other sees it:
    /// if that of partition 0 is older too, Redis lost it, and would refuse the topic until somebody changes it. Answers what to
    /// tell the caller, who loads the topic again.
    pub(super) async fn overtaken(&self, topic: &TopicName, partition: Partition) -> Error {
        let compare = async {
            let seen = self.copy(topic, partition).await?;
            // Read after that of the partition, so it is older only if it was lost.
            match (seen, self.topic_or_tombstone(topic).await?) {
                (Some(seen), Some(there)) if there.generation < seen.generation => {
                    self.merge(&seen).await?;
                    tracing::warn!(%topic, "descriptor of a topic is older than its partitions: replaced by theirs");
                    Ok(())
                }
                _ => Ok(()),
            }
        };
        if let Err(error) = compare.await {
            let error: Error = error;
            tracing::debug!(%topic, %partition, %error, "the descriptor of a topic could not be compared with its partitions");
        }
        Error::stale(format!("topic {topic} was changed or deleted; load it again"))
    }

    async fn born(&self, wanted: &Descriptor, tombstone: Option<&Descriptor>) -> Result<Descriptor> {
        let count = self.connection.call(redis::cmd("SCARD").arg(self.keys.topics())).await?;
        if matches!(count, Value::Int(count) if usize::try_from(count).is_ok_and(|count| count >= TOPICS_MAX)) {
            return Err(Error::new(Kind::Full, format!("there are {TOPICS_MAX} topics; delete some first")));
        }
        let deleted_at = wanted.deleted_at.max(tombstone.map_or(0, Descriptor::last_deletion));
        let before = tombstone.map_or(0, |tombstone| tombstone.generation);
        let generation = self.next_generation(before.max(wanted.generation));
        Ok(Descriptor { generation, incarnation: generation, deleted: false, deleted_at, ..wanted.clone() })
    }

    /// Deletes what removed groups have left, and then takes them off the descriptor. After an interruption the next
    /// change of the topic finishes it: until then the descriptor names them.
    async fn finish_leaving(&self, descriptor: Descriptor) -> Result<Descriptor> {
        if descriptor.leaving.is_empty() {
            return Ok(descriptor);
        }
        self.publish(&descriptor).await?;
        for group in &descriptor.leaving {
            let wipe = |partition| {
                let shared = self.keys.partition(&descriptor.topic, partition);
                let group_partition = self.keys.group(&descriptor.topic, partition, group);
                let mut keys = vec![shared.generation.as_str(), &shared.purged];
                keys.extend(group_partition.all());
                ScriptCall::new(&SCRIPTS.unsubscribe, &keys).arg(group.as_str())
            };
            let answers =
                self.connection.eval_all(&SCRIPTS.unsubscribe, descriptor.partitions().map(wipe).collect()).await;
            answers.into_iter().try_for_each(|answer| left(answer?))?;
        }
        let generation = self.next_generation(descriptor.generation);
        let clean = Descriptor { generation, leaving: Vec::new(), ..descriptor.clone() };
        let replace = Show { replaces: Replaces::of(Some(&descriptor)), ..Show::at(HOME) };
        // Someone else may have changed it again.
        let in_place = self.show(&clean, &replace).await?.unwrap_or(clean);
        if in_place.deleted || in_place.incarnation != descriptor.incarnation {
            return Err(Error::not_found(format!("topic {} was deleted meanwhile", descriptor.topic)));
        }
        self.publish(&in_place).await?;
        Ok(in_place)
    }

    /// Deletes all that the partitions have, but the ends of earlier histories: who compares later finds them.
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
                &shared.cron_jobs,
                &shared.moved,
                &shared.order,
            ];
            keys.extend(group_partitions.iter().flat_map(GroupPartitionKeys::all));
            ScriptCall::new(&SCRIPTS.delete_partition, &keys).arg(sixteen_digits(tombstone.generation))
        };
        let calls: Vec<ScriptCall> = tombstone.partitions().map(wipe).collect();
        let answers = self.connection.eval_all(&SCRIPTS.delete_partition, calls).await;
        answers.into_iter().try_for_each(|answer| answer.map(drop))
    }

    /// Adds a topic to the list of topics.
    pub(super) async fn add_to_list(&self, topic: &TopicName) -> Result<()> {
        self.connection.call(redis::cmd("SADD").arg(self.keys.topics()).arg(topic.as_str())).await.map(drop)
    }

    /// Puts a descriptor in the place of the one before it in partition 0. Errors: `Stale` when another one is there by now, or none.
    async fn write(&self, before: Option<&Descriptor>, after: &Descriptor) -> Result<()> {
        let show = Show { replaces: Replaces::of(before), ..Show::at(HOME) };
        match self.show(after, &show).await? {
            None => Ok(()),
            Some(_) => Err(changed(&after.topic)),
        }
    }

    /// Shows a descriptor to every partition. Errors: `Stale` when one has seen a newer one.
    async fn publish(&self, descriptor: &Descriptor) -> Result<()> {
        let shows: Vec<Show> = descriptor.partitions().map(Show::at).collect();
        let losses = self.losses.borrow().count;
        let known: Vec<_> = shows.iter().map(|show| self.histories.of(&descriptor.topic, show.partition)).collect();
        let call = |(show, known): (&Show, &Option<Arc<Known>>)| {
            known_call(descriptor.generation, known.as_ref(), |known| self.show_call(descriptor, show, known))
        };
        let calls = shows.iter().zip(&known).map(call).collect::<Result<Vec<_>>>()?;
        let answers = self.connection.eval_all(&SCRIPTS.merge_descriptor, calls).await;
        for ((show, known), answer) in shows.iter().zip(known).zip(answers) {
            let asked = Answered { count: 0, losses, generation: descriptor.generation };
            let other = match self.known_answer(&descriptor.topic, show.partition, (known, asked), answer?).await? {
                Some(answer) => self.shown_answer(descriptor, show.partition, losses, answer)?,
                None => self.show(descriptor, show).await?,
            };
            if other.is_some() {
                return Err(changed(&descriptor.topic));
            }
        }
        Ok(())
    }

    /// Answers the descriptor that is there instead, if this one is not in place then. Errors: `Stale` if there is none, though
    /// it replaces one.
    async fn show(&self, descriptor: &Descriptor, show: &Show) -> Result<Option<Descriptor>> {
        let losses = self.losses.borrow().count;
        let make = |known: &str| self.show_call(descriptor, show, known);
        let answer = self.eval_known(&descriptor.topic, show.partition, descriptor.generation, make).await?;
        self.shown_answer(descriptor, show.partition, losses, answer)
    }

    fn show_call(&self, descriptor: &Descriptor, show: &Show, known: &str) -> Result<ScriptCall> {
        let keys = self.keys.partition(&descriptor.topic, show.partition);
        let keep = if descriptor.deleted { ms(TOMBSTONE_KEPT).to_string() } else { String::new() };
        let call = ScriptCall::new(&SCRIPTS.merge_descriptor, &[&keys.generation, &keys.wake])
            .arg(known)
            .arg(to_json(descriptor)?)
            .arg(keep)
            .arg(u8::from(show.partition == HOME))
            .arg(show.replaces.as_text())
            .arg(four_by_chance())
            .arg(self.time_override())
            .naming_process();
        Ok(match show.losses {
            Some(losses) => call.after_losses(losses),
            None => call,
        })
    }

    fn shown_answer(
        &self,
        Descriptor { topic, generation, .. }: &Descriptor,
        partition: Partition,
        losses: u64,
        answer: Value,
    ) -> Result<Option<Descriptor>> {
        let mut reply = Reply::of(answer)?;
        reply.text()?;
        let (is_in_place, instead, history) = (reply.number()? == 1, reply.text()?, reply.text()?);
        if !is_in_place && instead.is_empty() {
            return Err(Error::stale(format!("topic {topic} was deleted or lost meanwhile; load it again")));
        }
        self.shown(topic, partition, &history, Answered { count: 0, losses, generation: *generation });
        if is_in_place { Ok(None) } else { read(&instead).map(Some) }
    }

    /// Generations never go back, even when Redis lost the last ones.
    fn next_generation(&self, last: u64) -> u64 {
        self.clock.now().as_ms().max(last + 1)
    }
}

/// The descriptor that a partition keeps; `None` if it keeps none.
fn read_copy(value: Value) -> Result<Option<Descriptor>> {
    maybe_text(value)?.map(|text| read(&text)).transpose()
}

fn to_json(descriptor: &Descriptor) -> Result<String> {
    serde_json::to_string(descriptor).map_err(|error| Error::bug(format!("a descriptor did not serialize: {error}")))
}

/// The descriptor that a partition keeps behind its history and count; JSON that people can read with redis-cli.
pub(super) fn read(text: &str) -> Result<Descriptor> {
    let json = text.find('{').and_then(|at| text.get(at..)).unwrap_or_default();
    serde_json::from_str(json).map_err(|error| Error::corrupt(format!("a descriptor is unreadable ({error})")))
}

fn newest<'a>(copies: impl Iterator<Item = &'a Descriptor>) -> Option<&'a Descriptor> {
    copies.max_by_key(|copy| copy.generation)
}

fn changed(topic: &TopicName) -> Error {
    Error::stale(format!("topic {topic} was changed by someone else; load it again"))
}

fn was_deleted(topic: &TopicName) -> Error {
    Error::not_found(format!("topic {topic} was deleted"))
}

/// The partition in which a descriptor is written first, and announced.
const HOME: Partition = Partition(0);

/// How a descriptor is shown to a partition.
struct Show {
    partition: Partition,
    replaces: Replaces,
    /// How many losses may be suspected when it is shown.
    losses: Option<u64>,
}

impl Show {
    fn at(partition: Partition) -> Show {
        Show { partition, replaces: Replaces::Older, losses: None }
    }
}

/// Which descriptor another one is put in the place of.
enum Replaces {
    Older,
    Nothing,
    Generation(u64),
}

impl Replaces {
    fn of(before: Option<&Descriptor>) -> Replaces {
        before.map_or(Replaces::Nothing, |before| Replaces::Generation(before.generation))
    }

    fn as_text(&self) -> String {
        match self {
            Replaces::Older => String::new(),
            Replaces::Nothing => "none".to_owned(),
            Replaces::Generation(generation) => sixteen_digits(*generation),
        }
    }
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
        make: impl Fn(&str) -> Result<ScriptCall>,
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
        make: impl Fn(&str) -> Result<ScriptCall>,
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
        match self.show(descriptor, &Show::at(partition)).await? {
            None => Ok(()),
            Some(_) => Err(changed(&descriptor.topic)),
        }
    }
}
