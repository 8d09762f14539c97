//! Listing the waiting messages of a group by due time over all partitions.
//!
//! A page is planned from outlines, which have no bodies: a few of each partition, and more of those that turn out to
//! have early messages. Then the messages of the plan are read, partition by partition. Messages that move between the
//! two steps shorten the page, so that a message that stays is listed exactly once.

use std::collections::BTreeMap;

use futures_util::future::join_all;

use super::list::{last_of_page, wrong_cursor};
use super::{Broker, ListEntry, ListedState, MessageList};
use crate::gate::{PARTITIONS_AT_ONCE, PartitionRead};
use crate::model::error::{Error, Result};
use crate::model::message::{GroupName, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::time::Timestamp;
use crate::model::topic::{Descriptor, GroupPartition};
use crate::store::{Listed, Outline, OutlinePage, WaitingCursor, WaitingRange, Window};

/// Outlines of a partition that the first step reads at least.
const OUTLINES_MIN: usize = 8;

const CURSOR_KIND: &str = "due";

/// A position in the list, behind this message. Equal times are listed by partition, and then as their partition has them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Position {
    partition: Partition,
    after: WaitingCursor,
}

impl Position {
    fn order(&self) -> (Timestamp, Partition) {
        (self.after.next_at, self.partition)
    }

    fn write(&self) -> String {
        format!("{CURSOR_KIND}.{}.{}.{}", self.partition, self.after.next_at.as_ms(), self.after.id)
    }

    fn read(text: &str) -> Result<Position> {
        let parts: Vec<_> = text.splitn(4, '.').collect();
        let [CURSOR_KIND, partition, at, id] = parts[..] else { return Err(wrong_cursor()) };
        let partition = Partition(partition.parse().map_err(|_| wrong_cursor())?);
        let next_at = Timestamp::from_ms(at.parse().map_err(|_| wrong_cursor())?);
        let id = MessageId::new(id).map_err(|_| wrong_cursor())?;
        Ok(Position { partition, after: WaitingCursor { next_at, id } })
    }
}

/// The outlines of a partition that were read so far.
struct Outlines {
    range: WaitingRange,
    /// Where its first page begins.
    start: Option<WaitingCursor>,
    found: Vec<Outline>,
    is_more: bool,
}

impl Outlines {
    fn new(partition: GroupPartition, mut window: Window, position: Option<&Position>, limit: usize) -> Outlines {
        let mut start = None;
        if let Some(Position { partition: last, after }) = position {
            let from = if partition.partition < *last { after_ms(after.next_at) } else { after.next_at };
            let continues = partition.partition == *last && after.next_at >= window.from;
            start = continues.then(|| after.clone());
            window.from = window.from.max(from);
        }
        let range = WaitingRange { partition, window, after: start.clone(), limit };
        Outlines { range, start, found: Vec::new(), is_more: true }
    }

    fn extend(&mut self, page: OutlinePage) {
        self.is_more = page.next.is_some();
        self.found.extend(page.messages);
        self.range.after = page.next;
        self.range.limit *= 2;
    }

    /// Whether messages before this position may be missing.
    fn is_short_of(&self, order: (Timestamp, Partition)) -> bool {
        let end = self.range.after.as_ref().map(|after| (after.next_at, self.partition()));
        self.is_more && end.is_none_or(|end| end < order)
    }

    fn partition(&self) -> Partition {
        self.range.partition.partition
    }
}

/// The messages of a page.
struct Plan {
    outlines: Vec<Outlines>,
    counts: BTreeMap<Partition, usize>,
    /// The last message; `None` if no message waits behind the page.
    end: Option<Position>,
}

impl Plan {
    /// The messages of a partition, which are the first of this range.
    fn range(&self, outlines: &Outlines) -> Option<WaitingRange> {
        let limit = *self.counts.get(&outlines.partition())?;
        let mut window = outlines.range.window;
        if let Some(end) = &self.end {
            let at = end.after.next_at;
            window.to = window.to.min(if outlines.partition() <= end.partition { after_ms(at) } else { at });
        }
        Some(WaitingRange { window, after: outlines.start.clone(), limit, ..outlines.range.clone() })
    }
}

impl Broker {
    /// Lists messages that wait in the store and are not reserved, by the time of their next attempt. Errors: `NotFound`, `Invalid` state, cursor or limit,
    /// `Full`.
    pub async fn list_by_due(
        &self,
        topic: &TopicName,
        group: &GroupName,
        which: ListedState,
        window: Window,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<MessageList> {
        super::check_count("limit", limit)?;
        if matches!(which, ListedState::Blocked | ListedState::Backoff | ListedState::InFlight | ListedState::Dead) {
            let detail = format!("due is only for scheduled and ready messages, not for {}", which.name());
            return Err(Error::invalid("order", detail));
        }
        let descriptor = self.topics.peek_group(topic, group).await?;
        let position = cursor.map(Position::read).transpose()?;
        let now = self.store.backend.clock().now();
        let count = usize::from(descriptor.settings.partitions.get());
        let read = self.reads.begin_for(descriptor.settings.partitions).await?;
        let first = (2 * limit).div_ceil(count).max(OUTLINES_MIN).min(limit);
        let window = which.narrowed(window, now);
        let outlines = outlines_of(&descriptor, group, window, position.as_ref(), first);
        let plan = self.plan(outlines, limit, &read).await?;
        let (pages, cut) = self.read_plan(&plan, &read).await?;
        let mut messages: Vec<_> = pages.into_iter().map(|(at, listed)| ListEntry::waiting(at, listed, now)).collect();
        messages.sort_by_key(order_of);
        if let Some(cut) = &cut {
            messages.retain(|entry| order_of(entry) <= cut.order());
        }
        let next = cut.map(|cut| behind(&messages, cut).write());
        Ok(MessageList { messages, next })
    }

    /// Reads outlines until the first `limit` messages are known. A partition is asked again, for twice as many, only if
    /// all that it answered is on the page: all outlines together stay below 4 * `limit` and a few of each partition.
    async fn plan(&self, mut outlines: Vec<Outlines>, limit: usize, read: &PartitionRead<'_>) -> Result<Plan> {
        let mut missing: Vec<usize> = (0..outlines.len()).collect();
        loop {
            for some in missing.chunks(PARTITIONS_AT_ONCE) {
                let ranges: Vec<_> = some.iter().map(|index| outlines[*index].range.clone()).collect();
                let pages = read.call(self.store.reads.outlines(&ranges)).await?;
                for (index, page) in some.iter().zip(pages) {
                    outlines[*index].extend(page);
                }
            }
            let (counts, end) = first_of(&outlines, limit);
            let last = end.as_ref().map_or((Timestamp::from_ms(u64::MAX), Partition(u16::MAX)), Position::order);
            missing = (0..outlines.len()).filter(|index| outlines[*index].is_short_of(last)).collect();
            if missing.is_empty() {
                return Ok(Plan { outlines, counts, end });
            }
        }
    }

    /// Reads the messages, and gives the position up to which they are complete if there is more.
    async fn read_plan(
        &self,
        plan: &Plan,
        read: &PartitionRead<'_>,
    ) -> Result<(Vec<(Partition, Listed)>, Option<Position>)> {
        let ranges: Vec<_> = plan.outlines.iter().filter_map(|outlines| plan.range(outlines)).collect();
        let (mut messages, mut cut) = (Vec::new(), plan.end.clone());
        for some in ranges.chunks(PARTITIONS_AT_ONCE) {
            let reads = some.iter().map(|WaitingRange { partition, window, after, limit }| {
                self.store.reads.waiting(partition, *window, after.as_ref(), *limit)
            });
            for (range, page) in some.iter().zip(read.call(join_all(reads)).await) {
                let (page, partition) = (page?, range.partition.partition);
                messages.extend(page.messages.into_iter().map(|listed| (partition, listed)));
                let end = page.next.map(|after| Position { partition, after });
                cut = [cut, end].into_iter().flatten().min_by_key(Position::order);
            }
        }
        Ok((messages, cut))
    }
}

fn outlines_of(
    descriptor: &Descriptor,
    group: &GroupName,
    window: Window,
    position: Option<&Position>,
    limit: usize,
) -> Vec<Outlines> {
    let partitions = descriptor.partitions().map(|partition| descriptor.group_partition(partition, group));
    partitions.map(|partition| Outlines::new(partition, window, position, limit)).collect()
}

/// How many of the messages of a page are in each partition, and the last of them if there are more.
fn first_of(outlines: &[Outlines], limit: usize) -> (BTreeMap<Partition, usize>, Option<Position>) {
    let mut each: Vec<(Partition, &Outline)> = Vec::new();
    for outlines in outlines {
        each.extend(outlines.found.iter().map(|outline| (outlines.partition(), outline)));
    }
    let is_more = outlines.iter().any(|outlines| outlines.is_more);
    each.sort_by_key(|(partition, outline)| (outline.next_at, *partition));
    let last = last_of_page(each.iter().map(|(_, outline)| outline.bytes), limit, is_more);
    let mut counts = BTreeMap::new();
    for (partition, _) in each.iter().take(last.map_or(each.len(), |last| last + 1)) {
        *counts.entry(*partition).or_default() += 1;
    }
    let end = last.map(|last| {
        let (partition, Outline { next_at, id, .. }) = each[last];
        Position { partition, after: WaitingCursor { next_at: *next_at, id: id.clone() } }
    });
    (counts, end)
}

fn order_of(entry: &ListEntry) -> (Timestamp, Partition) {
    (entry.listed.next_at.unwrap_or_default(), entry.partition)
}

/// The position behind the last message, if it is at the cut: another may be there now.
fn behind(messages: &[ListEntry], cut: Position) -> Position {
    match messages.last() {
        Some(last) if order_of(last) == cut.order() => {
            Position { after: WaitingCursor { id: last.listed.id.clone(), ..cut.after }, ..cut }
        }
        _ => cut,
    }
}

fn after_ms(at: Timestamp) -> Timestamp {
    Timestamp::from_ms(at.as_ms().saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_round_trips_and_garbage_is_refused() -> Result<()> {
        let after = WaitingCursor { next_at: Timestamp::from_ms(5), id: MessageId::new("a.b.c")? };
        let position = Position { partition: Partition(3), after };
        assert_eq!(Position::read(&position.write())?, position);
        for bad in
            ["", "due", "due.1.2", "due.1.x.a", "due.x.2.a", "due.70000.2.a", "due.1.2.", "due.1.2.a b", "1.w.2.a"]
        {
            assert!(Position::read(bad).is_err(), "{bad:?}");
        }
        Ok(())
    }
}
