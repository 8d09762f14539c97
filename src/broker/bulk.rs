//! Bulk operations on all messages of a group that are due in a window. Every message is changed in its own step and
//! leaves the window by it, so a repeated request changes nothing twice.

use std::time::Duration;

use futures_util::future::join_all;

use super::Broker;
use super::topics::with_group;
use crate::model::error::{Error, Result};
use crate::model::limits::{DELAY_MAX, PARKED_FOR, RECOVER_IDS_MAX, WINDOW_REQUEST_MAX};
use crate::model::message::{GroupName, MessageId, TopicName};
use crate::model::partition::Partition;
use crate::model::time::{Timestamp, show_span};
use crate::model::topic::Descriptor;
use crate::store::{Expected, Fate, Reschedule, Rescheduled, Window};

/// Calls to the store at the same time.
const AT_ONCE: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BulkAction {
    Cancel,
    Postpone(Duration),
    Advance(Duration),
    Park,
    /// Undoes `Park`: they are due when they were before, or now.
    Unpark,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BulkOutcome {
    pub changed: u64,
    /// Messages that a consumer has by now, or that expire before the new due time.
    pub passed_over: u64,
    /// `None` once every partition is done.
    pub next: Option<String>,
}

impl Broker {
    /// Counts the messages of a group that wait and are due in a window. Errors: `NotFound`, `Invalid` window, `Full`.
    pub async fn count_window(&self, topic: &TopicName, group: &GroupName, window: Window) -> Result<u64> {
        check(window)?;
        let descriptor = self.topics.look_at_group(topic, group).await?;
        let read = self.reads.begin().await?;
        let mut count = 0;
        for partition in descriptor.group_partitions(std::slice::from_ref(group)) {
            count += read.call(self.store.reads.window(&partition, window, None, 0)).await?.count;
        }
        Ok(count)
    }

    /// Changes messages for a few seconds, in every group in which they wait, and answers the next cursor. Errors:
    /// `NotFound`; `Invalid` window, cursor, or span that is shorter than the window; and the store's.
    pub async fn change_window(
        &self,
        topic: &TopicName,
        group: &GroupName,
        window: Window,
        action: BulkAction,
        cursor: Option<&str>,
    ) -> Result<BulkOutcome> {
        check(window)?;
        let now = self.store.backend.clock().now();
        let window = action.window(window, now)?;
        let descriptor = with_group(self.topics.load(topic).await?, group)?;
        let (mut partition, mut after) = read_cursor(cursor)?;
        let (began, mut done) = (self.clock().instant(), BulkOutcome::default());
        while partition.0 < descriptor.settings.partitions.get() {
            if self.clock().instant().since(began) >= WINDOW_REQUEST_MAX || self.is_stopping() {
                done.next = Some(write_cursor(partition, after.as_ref()));
                return Ok(done);
            }
            let group_partition = descriptor.group_partition(partition, group);
            let page =
                self.store.reads.window(&group_partition, window, after.as_ref(), RECOVER_IDS_MAX).await?.messages;
            for some in page.chunks(AT_ONCE) {
                let changes = some.iter().map(|(due, id)| {
                    let to = action.target(*due).map(|to| to.max(now));
                    self.change_one(&descriptor, partition, group, id, to)
                });
                for changed in join_all(changes).await {
                    *(if changed? { &mut done.changed } else { &mut done.passed_over }) += 1;
                }
            }
            let full = page.len() == RECOVER_IDS_MAX;
            after = page.into_iter().next_back().filter(|_| full);
            if after.is_none() {
                partition = Partition(partition.0 + 1);
            }
        }
        Ok(done)
    }

    /// Answers whether the message waited in the group.
    async fn change_one(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        group: &GroupName,
        id: &MessageId,
        to: Option<Timestamp>,
    ) -> Result<bool> {
        let fates = match to {
            None => self.cancel_in(descriptor, partition, id).await?.fates,
            Some(due_at) => {
                let reschedule = Reschedule { id: id.clone(), due_at, expected: Expected::default() };
                match self.reschedule_at(descriptor, partition, &reschedule).await? {
                    Rescheduled::Done(fates) => fates,
                    Rescheduled::Changed(_) | Rescheduled::Expires => return Ok(false),
                }
            }
        };
        Ok(fates.of(Fate::Done).any(|done| done == group))
    }
}

impl BulkAction {
    /// The window that is gone through. Errors: `Invalid` for one that messages would not leave, or leave too far.
    fn window(self, window: Window, now: Timestamp) -> Result<Window> {
        let length = window.to.since(window.from);
        match self {
            BulkAction::Postpone(by) | BulkAction::Advance(by) if by < length => {
                let why = format!(
                    "{} is shorter than the time from `from` to `to`, {}: messages would stay there and be moved again; \
                     do it in parts of that length, the latest first when postponing",
                    show_span(by),
                    show_span(length)
                );
                Err(Error::range("by", why))
            }
            BulkAction::Postpone(by) if window.to.plus(by) > now.plus(DELAY_MAX) => {
                Err(Error::range("by", format!("would move messages more than {} ahead", show_span(DELAY_MAX))))
            }
            BulkAction::Park if window.to.plus(PARKED_FOR) > now.plus(DELAY_MAX) || length > PARKED_FOR => {
                Err(Error::range("to", format!("is more than {} ahead", show_span(DELAY_MAX - PARKED_FOR))))
            }
            BulkAction::Unpark => Ok(Window { from: window.from.plus(PARKED_FOR), to: window.to.plus(PARKED_FOR) }),
            _ => Ok(window),
        }
    }

    fn target(self, due: Timestamp) -> Option<Timestamp> {
        match self {
            BulkAction::Cancel => None,
            BulkAction::Postpone(by) => Some(due.plus(by)),
            BulkAction::Advance(by) => Some(due.minus(by)),
            BulkAction::Park => Some(due.plus(PARKED_FOR)),
            BulkAction::Unpark => Some(due.minus(PARKED_FOR)),
        }
    }
}

fn check(window: Window) -> Result<()> {
    if window.from < window.to { Ok(()) } else { Err(Error::range("to", "is not after `from`")) }
}

/// `<partition>` or `<partition>.<due ms>.<id>`. Opaque to callers.
fn write_cursor(partition: Partition, after: Option<&(Timestamp, MessageId)>) -> String {
    match after {
        Some((due, id)) => format!("{partition}.{}.{id}", due.as_ms()),
        None => partition.to_string(),
    }
}

fn read_cursor(cursor: Option<&str>) -> Result<(Partition, Option<(Timestamp, MessageId)>)> {
    let Some(text) = cursor else { return Ok((Partition(0), None)) };
    let wrong = super::wrong_cursor;
    let mut parts = text.splitn(3, '.');
    let partition = Partition(parts.next().and_then(|part| part.parse().ok()).ok_or_else(wrong)?);
    let after = match (parts.next(), parts.next()) {
        (None, _) => None,
        (Some(due), Some(id)) => {
            let due = Timestamp::from_ms(due.parse().map_err(|_| wrong())?);
            Some((due, MessageId::new(id).map_err(|_| wrong())?))
        }
        (Some(_), None) => return Err(wrong()),
    };
    Ok((partition, after))
}
