//! Listing the dead letters of a group by their age over all partitions.
//!
//! As in [`super::list_by_due`] a page is planned from outlines, which have no bodies, and then the dead letters of the plan
//! are read, partition by partition. With a filter that looks inside them a page takes several plans.
//! A dead letter that stays is listed exactly once; one that died after the list began is not in it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::list::{last_of_page, wrong_cursor};
use super::{Broker, DeadLetterFilter, DeadLetterList};
use crate::gate::{PARTITIONS_AT_ONCE, PartitionRead};
use crate::model::error::Result;
use crate::model::limits::{CALL_BYTES_MAX, CALL_IDS_MAX, DEAD_LOOKED_AT_MAX, DEAD_REQUEST_MAX, ID_BYTES_MAX};
use crate::model::message::{GroupName, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::Descriptor;
use crate::store::{AgeOrder, Dead, DeadLetterCursor, DeadLetterOutline, DeadLetterOutlinePage, DeadLetterRange};

/// Outlines of a partition that a plan reads at least.
const OUTLINES_MIN: usize = 8;

const MS: Duration = Duration::from_millis(1);

/// Where a dead letter stands in the list. Equal times are listed by partition, and then as their partition has them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Oldest(Timestamp, Partition, MessageId),
    Newest(Reverse<Timestamp>, Partition, Reverse<MessageId>),
}

impl Rank {
    fn new(order: AgeOrder, partition: Partition, died_at: Timestamp, id: MessageId) -> Rank {
        match order {
            AgeOrder::OldestFirst => Rank::Oldest(died_at, partition, id),
            AgeOrder::NewestFirst => Rank::Newest(Reverse(died_at), partition, Reverse(id)),
        }
    }

    fn parts(&self) -> (Timestamp, Partition, &MessageId) {
        match self {
            Rank::Oldest(died_at, partition, id) => (*died_at, *partition, id),
            Rank::Newest(Reverse(died_at), partition, Reverse(id)) => (*died_at, *partition, id),
        }
    }
}

fn name_of(order: AgeOrder) -> &'static str {
    match order {
        AgeOrder::OldestFirst => "oldest",
        AgeOrder::NewestFirst => "newest",
    }
}

/// Where a list stands: when it began, and behind which dead letter it continues.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Position {
    began: Timestamp,
    after: Option<Rank>,
}

impl Position {
    /// `<order>.<began ms>.<partition>.<died at ms>.<id>`. Opaque to callers.
    fn write(began: Timestamp, order: AgeOrder, after: &Rank) -> String {
        let (died_at, partition, id) = after.parts();
        format!("{}.{}.{partition}.{}.{id}", name_of(order), began.as_ms(), died_at.as_ms())
    }

    fn read(order: AgeOrder, text: &str) -> Result<Position> {
        let parts: Vec<_> = text.splitn(5, '.').collect();
        let time = |text: &str| text.parse().map(Timestamp::from_ms).map_err(|_| wrong_cursor());
        match parts[..] {
            [kind, began, partition, died_at, id] if kind == name_of(order) => {
                let partition = Partition(partition.parse().map_err(|_| wrong_cursor())?);
                let id = MessageId::new(id).map_err(|_| wrong_cursor())?;
                Ok(Position { began: time(began)?, after: Some(Rank::new(order, partition, time(died_at)?, id)) })
            }
            _ => Err(wrong_cursor()),
        }
    }
}

/// The deaths that are listed: none before `since`, and none after `until`.
#[derive(Debug, Clone, Copy)]
struct Ages {
    since: Timestamp,
    until: Timestamp,
}

impl Ages {
    fn new(filter: &DeadLetterFilter, began: Timestamp) -> Ages {
        let ago = |age: Option<Duration>| age.map(|age| began.minus(age));
        let since = ago(filter.younger_than).unwrap_or(Timestamp::ZERO);
        Ages { since, until: ago(filter.older_than).unwrap_or(began) }
    }

    fn has(self, died_at: Timestamp) -> bool {
        self.since <= died_at && died_at <= self.until
    }
}

/// The partitions of a list, and its order.
struct Walk {
    descriptor: Arc<Descriptor>,
    group: GroupName,
    order: AgeOrder,
    ages: Ages,
}

impl Walk {
    fn rank(&self, partition: Partition, died_at: Timestamp, id: &MessageId) -> Rank {
        Rank::new(self.order, partition, died_at, id.clone())
    }

    /// Where a partition continues behind a rank: of an equal time, the partitions in front of it were listed.
    fn start(&self, partition: Partition, after: Option<&Rank>) -> Result<DeadLetterCursor> {
        let (begin, edge) = match self.order {
            AgeOrder::OldestFirst => (self.ages.since.minus(MS), last_id()?),
            AgeOrder::NewestFirst => (self.ages.until.plus(MS), first_id()?),
        };
        let begin = self.rank(partition, begin, &edge);
        let own = after.map(|after| match (after.parts(), self.order) {
            ((died_at, last, id), _) if partition == last => self.rank(partition, died_at, id),
            ((died_at, last, _), _) if partition < last => self.rank(partition, died_at, &edge),
            ((died_at, ..), AgeOrder::OldestFirst) => self.rank(partition, died_at.minus(MS), &edge),
            ((died_at, ..), AgeOrder::NewestFirst) => self.rank(partition, died_at.plus(MS), &edge),
        });
        let start = own.map_or_else(|| begin.clone(), |own| own.max(begin.clone()));
        let (died_at, _, id) = start.parts();
        Ok(DeadLetterCursor { died_at, id: id.clone() })
    }

    fn outlines(&self, after: Option<&Rank>, limit: usize) -> Result<Vec<Outlines>> {
        let outlines = |partition| {
            let start = self.start(partition, after)?;
            let group_partition = self.descriptor.group_partition(partition, &self.group);
            let after = Some(start.clone());
            let range = DeadLetterRange { partition: group_partition, order: self.order, after, limit };
            Ok(Outlines { range, start, found: Vec::new(), is_more: true })
        };
        self.descriptor.partitions().map(outlines).collect()
    }
}

/// No id is in front of this one.
fn first_id() -> Result<MessageId> {
    MessageId::new("!")
}

/// No id is behind this one.
fn last_id() -> Result<MessageId> {
    MessageId::new("~".repeat(ID_BYTES_MAX))
}

/// The outlines of a partition that were read so far.
struct Outlines {
    range: DeadLetterRange,
    /// Where its first page begins.
    start: DeadLetterCursor,
    found: Vec<DeadLetterOutline>,
    is_more: bool,
}

impl Outlines {
    fn extend(&mut self, page: DeadLetterOutlinePage, ages: Ages) {
        let read = self.found.len() + page.dead.len();
        self.found.extend(page.dead.into_iter().take_while(|outline| ages.has(outline.died_at)));
        self.is_more = page.next.is_some() && self.found.len() == read;
        self.range.after = page.next;
        self.range.limit *= 2;
    }

    /// Whether dead letters in front of this rank, or with none any at all, may be missing.
    fn is_short_of(&self, walk: &Walk, end: Option<&Rank>) -> bool {
        let read = self.range.after.as_ref().map(|after| walk.rank(self.partition(), after.died_at, &after.id));
        self.is_more && read.is_none_or(|read| end.is_none_or(|end| read < *end))
    }

    fn partition(&self) -> Partition {
        self.range.partition.partition
    }
}

/// The dead letters of a page.
struct Plan {
    outlines: Vec<Outlines>,
    /// How many of each partition, and the last of them.
    parts: BTreeMap<Partition, (usize, Rank)>,
    /// The last of all; `None` if there is none behind it.
    end: Option<Rank>,
}

impl Plan {
    /// Those of a page, and the last of them if there are more.
    fn first_of(
        walk: &Walk,
        outlines: &[Outlines],
        limit: usize,
    ) -> (BTreeMap<Partition, (usize, Rank)>, Option<Rank>) {
        let mut each: Vec<(Rank, usize)> = Vec::new();
        for outlines in outlines {
            let rank = |outline: &DeadLetterOutline| walk.rank(outlines.partition(), outline.died_at, &outline.id);
            each.extend(outlines.found.iter().map(|outline| (rank(outline), outline.bytes)));
        }
        each.sort();
        let is_more = outlines.iter().any(|outlines| outlines.is_more);
        let last = last_of_page(each.iter().map(|(_, bytes)| *bytes), limit, is_more);
        let mut parts = BTreeMap::new();
        for (rank, _) in each.iter().take(last.map_or(each.len(), |last| last + 1)) {
            let (_, partition, _) = rank.parts();
            let count = parts.get(&partition).map_or(0, |(count, _)| *count);
            parts.insert(partition, (count + 1, rank.clone()));
        }
        (parts, last.map(|last| each[last].0.clone()))
    }
}

/// The dead letters of a plan, and the rank up to which they are complete if there is more.
struct Round {
    dead: Vec<(Partition, Dead)>,
    end: Option<Rank>,
}

impl Broker {
    /// Over all partitions, by age. A page may be short or empty without being the last. Errors: `NotFound`, `Invalid`
    /// cursor, limit or filter, `Full`.
    pub async fn dead_by_age(
        &self,
        topic: &TopicName,
        group: &GroupName,
        filter: &DeadLetterFilter,
        order: AgeOrder,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<DeadLetterList> {
        super::check_count("limit", limit)?;
        filter.check()?;
        let descriptor = self.topics.peek_group(topic, group).await?;
        let first = Position { began: self.store.backend.clock().now(), after: None };
        let Position { began, mut after } = cursor.map_or(Ok(first), |cursor| Position::read(order, cursor))?;
        let read = self.reads.begin_for(descriptor.settings.partitions).await?;
        let walk = Walk { descriptor, group: group.clone(), order, ages: Ages::new(filter, began) };
        let clock_began = self.clock().instant();
        let (mut dead, mut bytes, mut looked_at) = (Vec::new(), 0, 0);
        loop {
            let look = if filter.looks_inside() { CALL_IDS_MAX } else { limit - dead.len() };
            let round = self.dead_round(&walk, after.as_ref(), look, &read).await?;
            looked_at += round.dead.len();
            after = round.end;
            for (partition, letter) in round.dead {
                if !filter.matches(&letter) {
                    continue;
                }
                if dead.len() == limit {
                    after = dead
                        .last()
                        .map(|(partition, last): &(Partition, Dead)| walk.rank(*partition, last.died_at, &last.id));
                    break;
                }
                bytes += letter.message.as_ref().map_or(0, |message| message.envelope.size());
                dead.push((partition, letter));
            }
            // A page of a few large messages is a full page, and so is one that many were looked through for.
            let is_full = dead.len() == limit || bytes >= CALL_BYTES_MAX || looked_at >= DEAD_LOOKED_AT_MAX;
            let is_long = self.clock().instant().since(clock_began) >= DEAD_REQUEST_MAX;
            if after.is_none() || is_full || is_long {
                let next = after.map(|after| Position::write(began, order, &after));
                return Ok(DeadLetterList { dead, next });
            }
        }
    }

    async fn dead_round(
        &self,
        walk: &Walk,
        after: Option<&Rank>,
        limit: usize,
        read: &PartitionRead<'_>,
    ) -> Result<Round> {
        let count = usize::from(walk.descriptor.settings.partitions.get());
        let first = (2 * limit).div_ceil(count).max(OUTLINES_MIN).min(limit);
        let plan = self.dead_plan(walk, walk.outlines(after, first)?, limit, read).await?;
        self.dead_of_plan(walk, &plan, read).await
    }

    /// Reads outlines until the first `limit` dead letters are known. A partition is asked again, for twice as many, only if
    /// all that it answered is on the page: all outlines together stay below 4 * `limit` and a few of each partition.
    async fn dead_plan(
        &self,
        walk: &Walk,
        mut outlines: Vec<Outlines>,
        limit: usize,
        read: &PartitionRead<'_>,
    ) -> Result<Plan> {
        let mut missing: Vec<usize> = (0..outlines.len()).collect();
        loop {
            for some in missing.chunks(PARTITIONS_AT_ONCE) {
                let ranges: Vec<_> = some.iter().map(|index| outlines[*index].range.clone()).collect();
                let pages = read.call(self.store.dead_letters.dead_outlines(&ranges)).await?;
                for (index, page) in some.iter().zip(pages) {
                    outlines[*index].extend(page, walk.ages);
                }
            }
            let (parts, end) = Plan::first_of(walk, &outlines, limit);
            missing = (0..outlines.len()).filter(|index| outlines[*index].is_short_of(walk, end.as_ref())).collect();
            if missing.is_empty() {
                return Ok(Plan { outlines, parts, end });
            }
        }
    }

    async fn dead_of_plan(&self, walk: &Walk, plan: &Plan, read: &PartitionRead<'_>) -> Result<Round> {
        let range = |outlines: &Outlines| {
            let (limit, last) = plan.parts.get(&outlines.partition())?;
            let after = Some(outlines.start.clone());
            Some((DeadLetterRange { after, limit: *limit, ..outlines.range.clone() }, last))
        };
        let ranges: Vec<_> = plan.outlines.iter().filter_map(range).collect();
        let (mut dead, mut end) = (Vec::new(), plan.end.clone());
        for some in ranges.chunks(PARTITIONS_AT_ONCE) {
            let reads = some.iter().map(|(range, _)| self.store.dead_letters.dead_by_age(range));
            for ((range, last), page) in some.iter().zip(read.call(join_all(reads)).await) {
                let (page, partition) = (page?, range.partition.partition);
                let next = page.next.map(|next| walk.rank(partition, next.died_at, &next.id));
                // Without the rest of what was planned the page ends here.
                let cut = next.filter(|next| next < *last);
                end = [end, cut].into_iter().flatten().min();
                let rank = |letter: &Dead| walk.rank(partition, letter.died_at, &letter.id);
                dead.extend(page.dead.into_iter().map(|letter| (rank(&letter), partition, letter)));
            }
        }
        dead.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        let is_in =
            |rank: &Rank, letter: &Dead| walk.ages.has(letter.died_at) && end.as_ref().is_none_or(|end| rank <= end);
        let dead = dead.into_iter().filter(|(rank, _, letter)| is_in(rank, letter));
        Ok(Round { dead: dead.map(|(_, partition, letter)| (partition, letter)).collect(), end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_round_trips_and_garbage_is_refused() -> Result<()> {
        for order in [AgeOrder::OldestFirst, AgeOrder::NewestFirst] {
            let began = Timestamp::from_ms(7);
            let after = Rank::new(order, Partition(3), Timestamp::from_ms(5), MessageId::new("a.b.c")?);
            let text = Position::write(began, order, &after);
            assert_eq!(Position::read(order, &text)?, Position { began, after: Some(after) });
        }
        let bad = [
            "",
            "oldest",
            "oldest.7.1.2",
            "oldest.7.1.x.a",
            "oldest.7.70000.2.a",
            "oldest.7.1.2.a b",
            "newest.7.1.2.a",
        ];
        for bad in bad.into_iter().chain(["7.1.2.a", "oldest.x.1.2.a"]) {
            assert!(Position::read(AgeOrder::OldestFirst, bad).is_err(), "{bad:?}");
        }
        Ok(())
    }
}
