//! How many messages of a group become due, in equal spans of time ahead.

use std::time::Duration;

use super::Broker;
use crate::model::error::{Error, Fault, Result};
use crate::model::limits::{DELAY_MAX, FORECAST_COUNTS_MAX, FORECAST_SPANS_MAX};
use crate::model::message::{GroupName, TopicName};
use crate::model::time::{ms_up, show_span};
use crate::store::{Forecast, Spans};

/// Counts in one call to the store: a millisecond or two, in which it does nothing else.
const COUNTS_AT_ONCE: usize = 2_000;

impl Broker {
    /// Counts what becomes due in so many spans from now on, over all partitions of a group. What is in flight is not
    /// counted.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` out of range, or past [`FORECAST_COUNTS_MAX`] spans in all partitions together; `Full`.
    pub async fn forecast(
        &self,
        topic: &TopicName,
        group: &GroupName,
        step: Duration,
        count: usize,
    ) -> Result<(Spans, Forecast)> {
        if !(Duration::from_millis(1)..=DELAY_MAX).contains(&step) {
            return Err(Error::wrong(Fault::Range, "step", format!("is not in 1ms to {}", show_span(DELAY_MAX))));
        }
        if !(1..=FORECAST_SPANS_MAX).contains(&count) {
            return Err(Error::wrong(Fault::Range, "spans", format!("{count} is not in 1 to {FORECAST_SPANS_MAX}")));
        }
        let descriptor = self.topics.look_at_group(topic, group).await?;
        let partitions = usize::from(descriptor.settings.partitions.get());
        if count * partitions > FORECAST_COUNTS_MAX {
            let most = FORECAST_COUNTS_MAX / partitions;
            let why = format!("{count} is too many for a topic of {partitions} partitions; it has at most {most}");
            return Err(Error::wrong(Fault::Range, "spans", why));
        }
        let read = self.reads.begin().await?;
        let step = Duration::from_millis(ms_up(step));
        let spans = Spans { from: self.store.backend.clock().now(), step, count };
        let pairs: Vec<_> = descriptor.partitions().map(|partition| descriptor.pair(partition, group)).collect();
        let mut all = Forecast { spans: vec![0; count], ..Forecast::default() };
        for some in pairs.chunks((COUNTS_AT_ONCE / count).max(1)) {
            for part in read.call(self.store.reads.forecast(some, spans)).await? {
                all.ready += part.ready;
                all.later += part.later;
                all.spans.iter_mut().zip(part.spans).for_each(|(sum, part)| *sum += part);
            }
        }
        Ok((spans, all))
    }
}
