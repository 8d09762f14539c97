//! Counting what becomes due. sled has no ranks, so every entry of the zset is gone through: a million take about a second,
//! in which others go on.

use std::time::Duration;

use super::Inner;
use super::pair::Stored;
use crate::model::error::Result;
use crate::model::topic::GroupPartition;
use crate::store::{Forecast, PartitionDepth, Spans};

/// Entries after which others get a turn.
const TURN: usize = 1_000;

impl Inner {
    pub(super) async fn forecast(&self, pair: &GroupPartition, spans: Spans) -> Result<Forecast> {
        let mut forecast = Forecast { spans: vec![0; spans.count], ..Forecast::default() };
        let Some(place) = self.topics().pair(pair).map(|(_, place)| place) else { return Ok(forecast) };
        let step = u64::try_from(spans.step.as_millis()).unwrap_or(u64::MAX).max(1);
        for (number, entry) in Stored::new(&self.tree, place).zset().iter().enumerate() {
            let (due, _) = entry?;
            let ahead = due.at.as_ms().saturating_sub(spans.from.as_ms());
            let span = usize::try_from(ahead.div_ceil(step)).unwrap_or(usize::MAX);
            match span.checked_sub(1).map(|index| forecast.spans.get_mut(index)) {
                None => forecast.ready += 1,
                Some(Some(count)) => *count += 1,
                Some(None) => forecast.later += 1,
            }
            if number % TURN == TURN - 1 {
                tokio::task::yield_now().await;
            }
        }
        Ok(forecast)
    }

    /// What is due later than the longest span is not gone through.
    pub(super) async fn depth(&self, pair: &GroupPartition, within: &[Duration]) -> Result<PartitionDepth> {
        let mut depth = PartitionDepth { stats: self.stats(pair)?, due: vec![0; within.len()] };
        let Some(place) = self.topics().pair(pair).map(|(_, place)| place) else { return Ok(depth) };
        let (now, farthest) = (self.now(), within.iter().max().copied().unwrap_or_default());
        let scheduled = Stored::new(&self.tree, place).zset().from(now.plus(Duration::from_millis(1)));
        for (number, entry) in scheduled.enumerate() {
            let ahead = entry?.0.at.since(now);
            if ahead > farthest {
                break;
            }
            depth.due.iter_mut().zip(within).filter(|(_, span)| ahead <= **span).for_each(|(count, _)| *count += 1);
            if number % TURN == TURN - 1 {
                tokio::task::yield_now().await;
            }
        }
        Ok(depth)
    }
}
