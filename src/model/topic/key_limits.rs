//! The limits of each key of a fair group.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Descriptor, Rate};
use crate::model::error::{Error, Result};
use crate::model::limits::KEY_BURST_MAX;
use crate::model::message::GroupName;

/// So many deliveries of one key, at most: in any time `t` no more than `burst + rate × t`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct KeyRate {
    rate: Rate,
    burst: u32,
}

impl KeyRate {
    /// Errors: `Invalid` if the rate is not in 0.001 to 100,000 a second, or the burst not in 1 to 10,000.
    pub fn new(per_second: f64, burst: u32) -> Result<KeyRate> {
        let rate = Rate::checked(per_second, per_second).map_err(|why| Error::range("key_rate", why))?;
        if !(1..=KEY_BURST_MAX).contains(&burst) {
            return Err(Error::range("key_burst", format!("{burst} is not in 1 to {KEY_BURST_MAX} deliveries")));
        }
        Ok(KeyRate { rate, burst })
    }

    pub fn per_second(self) -> f64 {
        self.rate.0
    }

    pub fn burst(self) -> u32 {
        self.burst
    }

    /// How many deliveries there may be in this time.
    pub fn most_in(self, time: Duration) -> u32 {
        let more = time.as_nanos() / self.spacing().as_nanos().max(1);
        self.burst.saturating_add(u32::try_from(more).unwrap_or(u32::MAX))
    }

    /// From one delivery to the next at this rate; rounded up to microseconds.
    pub fn spacing(self) -> Duration {
        Duration::from_micros((1e6 / self.rate.0).ceil() as u64)
    }
}

/// `None` is without a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct KeyLimits {
    pub in_flight: Option<NonZeroU32>,
    pub rate: Option<KeyRate>,
}

impl Descriptor {
    /// Whether the keys of a group take turns.
    pub fn is_fair(&self, group: &GroupName) -> bool {
        self.subscriptions.get(group).is_some_and(|subscription| !subscription.fair.is_none())
    }

    /// Nothing if the group is not fair.
    pub fn key_limits(&self, group: &GroupName) -> Option<KeyLimits> {
        let subscription = self.subscriptions.get(group).filter(|subscription| !subscription.fair.is_none())?;
        let in_flight = subscription.key_max_in_flight.and_then(NonZeroU32::new);
        Some(KeyLimits { in_flight, rate: subscription.key_rate })
    }
}
