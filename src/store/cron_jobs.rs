//! Cron jobs, and the messages that they push.

use super::{Fired, Firing, ScheduleChange, ScheduleRecord};
use crate::model::error::Result;
use crate::model::message::ScheduleName;
use crate::model::message::TopicName;
use crate::model::partition::Partition;
use crate::model::topic::Descriptor;
use async_trait::async_trait;

/// Cron jobs, and the messages that they push.
///
/// Errors beside those of each method: see [`crate::store`].
#[async_trait]
pub trait CronJobs: Send + Sync + 'static {
    /// Where there are schedules: partitions of topics, sorted. Some may have none any more, or be of a topic that is gone.
    async fn schedule_places(&self) -> Result<Vec<(TopicName, Partition)>>;

    /// The schedules of a partition, sorted by name; none of a topic that is gone.
    async fn schedules(&self, topic: &TopicName, partition: Partition) -> Result<Vec<ScheduleRecord>>;

    /// Makes a schedule, or changes it if it is still what the author of the change saw; false when it is not. What is
    /// done up to then never goes back. [`Channel::Schedules`] is woken.
    ///
    /// # Errors
    /// `Stale` when the partition has seen a newer descriptor; `Full` past [`crate::model::limits::SCHEDULES_MAX`].
    async fn put_schedule(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        change: &ScheduleChange,
    ) -> Result<bool>;

    /// Removes a schedule, and answers whether it was there. [`Channel::Schedules`] is woken.
    async fn remove_schedule(&self, topic: &TopicName, partition: Partition, name: &ScheduleName) -> Result<bool>;

    /// Fires occurrences of a schedule: pushes their messages and marks them as done in one step, once for all callers
    /// and all repeats, whatever became of the messages since. Saying it again is safe.
    ///
    /// # Errors
    /// `Stale` when the partition has seen a newer descriptor; `Full`.
    async fn fire(&self, descriptor: &Descriptor, partition: Partition, firing: &Firing) -> Result<Fired>;
}
