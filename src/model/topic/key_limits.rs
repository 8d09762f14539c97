//! The limits and the weight of each key of a fair group.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Descriptor, KeyPatterns, Rate};
use crate::model::error::{Error, Fault, Result};
use crate::model::limits::{KEY_BURST_MAX, KEY_WEIGHT_MAX};
use crate::model::message::{GroupName, Key};

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

/// Limits of a key where they are not those of its group; `None` is as the group has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeyException {
    /// 0 is without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_in_flight: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<RateException>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RateException {
    Unlimited,
    Limit(KeyRate),
}

impl KeyException {
    /// 0 is without a limit. Errors: `Invalid` as for [`KeyRate::new`], and for a burst without a rate.
    pub fn new(max_in_flight: Option<u32>, rate: Option<f64>, burst: Option<u32>) -> Result<KeyException> {
        let rate = match (rate, burst) {
            (None, None) => None,
            (None | Some(0.0), Some(_)) => {
                return Err(Error::wrong(Fault::Missing, "key_limits", "it has a `burst` without a `rate`; give both"));
            }
            (Some(0.0), None) => Some(RateException::Unlimited),
            (Some(rate), burst) => Some(RateException::Limit(KeyRate::new(rate, burst.unwrap_or(1))?)),
        };
        Ok(KeyException { max_in_flight, rate })
    }

    pub fn max_in_flight(self) -> Option<u32> {
        self.max_in_flight
    }

    /// Deliveries in a second; 0 is without a limit.
    pub fn rate(self) -> Option<f64> {
        self.rate.map(|rate| rate.limit().map_or(0.0, KeyRate::per_second))
    }

    /// Nothing where it is 1.
    pub fn burst(self) -> Option<u32> {
        self.rate.and_then(RateException::limit).map(KeyRate::burst).filter(|burst| *burst > 1)
    }

    fn over(self, of_group: KeyLimits) -> KeyLimits {
        KeyLimits {
            in_flight: self.max_in_flight.map_or(of_group.in_flight, NonZeroU32::new),
            rate: self.rate.map_or(of_group.rate, RateException::limit),
        }
    }
}

impl RateException {
    fn limit(self) -> Option<KeyRate> {
        match self {
            RateException::Unlimited => None,
            RateException::Limit(rate) => Some(rate),
        }
    }
}

/// How large the share of a key is, 1 to [`KEY_WEIGHT_MAX`]: a key of weight 3 has three deliveries where another one has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Weight(u32);

impl Weight {
    pub const ONE: Weight = Weight(1);

    /// Errors: `Invalid` out of range.
    pub fn new(weight: u32) -> Result<Weight> {
        match (1..=KEY_WEIGHT_MAX).contains(&weight) {
            true => Ok(Weight(weight)),
            false => Err(Error::range("weights", format!("{weight} is not in 1 to {KEY_WEIGHT_MAX}"))),
        }
    }

    pub fn get(self) -> u32 {
        self.0
    }
}

/// The limits and weights of the keys of a fair group.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KeySettings {
    pub limits: KeyLimits,
    pub exceptions: KeyPatterns<KeyException>,
    pub weights: KeyPatterns<Weight>,
}

impl KeySettings {
    pub fn limits_of(&self, key: &Key) -> KeyLimits {
        self.exceptions.get(key).map_or(self.limits, |exception| exception.over(self.limits))
    }

    /// Messages without a key have a weight of 1.
    pub fn weight_of(&self, key: Option<&Key>) -> Weight {
        key.and_then(|key| self.weights.get(key)).copied().unwrap_or(Weight::ONE)
    }

    /// Whether any key has a rate.
    pub fn has_rates(&self) -> bool {
        self.limits.rate.is_some()
            || self.exceptions.iter().any(|(_, exception)| exception.over(self.limits).rate.is_some())
    }
}

impl Descriptor {
    /// Whether the keys of a group take turns.
    pub fn is_fair(&self, group: &GroupName) -> bool {
        self.subscriptions.get(group).is_some_and(|subscription| subscription.is_fair())
    }

    /// Nothing if the group is not fair.
    pub fn key_settings(&self, group: &GroupName) -> Option<KeySettings> {
        let subscription = self.subscriptions.get(group).filter(|subscription| subscription.is_fair())?;
        let in_flight = subscription.key_max_in_flight.and_then(NonZeroU32::new);
        let limits = KeyLimits { in_flight, rate: subscription.key_rate };
        let (exceptions, weights) = (subscription.key_limits.clone(), subscription.weights.clone());
        Some(KeySettings { limits, exceptions, weights })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn key(name: &str) -> Result<Key> {
        Key::new(name)
    }

    #[test]
    fn the_name_counts_before_the_longest_beginning() -> Result<()> {
        let weights = [("gold-*", 2), ("gold-eu-*", 4), ("gold-7", 9), ("*", 3), ("ä*", 5)];
        let weights = weights.map(|(pattern, weight)| Ok((pattern.to_owned(), Weight::new(weight)?)));
        let weights = KeyPatterns::new("weights", weights.into_iter().collect::<Result<BTreeMap<_, _>>>()?)?;
        let settings = KeySettings { weights, ..KeySettings::default() };
        let found = ["gold-7", "gold-77", "gold-eu-1", "gold-", "gold", "ä", "€"];
        let found = found.map(|name| key(name).map(|key| settings.weight_of(Some(&key)).get()));
        assert_eq!(found.into_iter().collect::<Result<Vec<_>>>()?, [9, 2, 4, 2, 3, 5, 3]);
        assert_eq!(settings.weight_of(None), Weight::ONE);
        Ok(())
    }

    #[test]
    fn an_exception_leaves_what_it_does_not_name() -> Result<()> {
        let limits = KeyLimits { in_flight: NonZeroU32::new(5), rate: Some(KeyRate::new(10.0, 3)?) };
        let exceptions = [
            ("more", KeyException::new(Some(20), None, None)?),
            ("free", KeyException::new(Some(0), Some(0.0), None)?),
            ("slow", KeyException::new(None, Some(0.5), None)?),
        ];
        let exceptions = exceptions.map(|(name, exception)| (name.to_owned(), exception));
        let exceptions = KeyPatterns::new("key_limits", BTreeMap::from(exceptions))?;
        // As the store keeps it.
        let text = serde_json::to_string(&exceptions).map_err(|error| Error::bug(error.to_string()))?;
        let read = serde_json::from_str(&text).map_err(|error| Error::bug(error.to_string()))?;
        assert_eq!(exceptions, read);
        let settings = KeySettings { limits, exceptions, ..KeySettings::default() };
        let of = |name| Ok::<_, Error>(settings.limits_of(&key(name)?));
        assert_eq!(of("more")?, KeyLimits { in_flight: NonZeroU32::new(20), ..limits });
        assert_eq!((of("free")?, of("other")?), (KeyLimits::default(), limits));
        assert_eq!(of("slow")?, KeyLimits { rate: Some(KeyRate::new(0.5, 1)?), ..limits });
        Ok(())
    }

    #[test]
    fn what_no_key_can_match_is_refused() -> Result<()> {
        let many = |count: usize| (0..count).map(|n| (format!("k{n}"), Weight::ONE)).collect();
        assert!(KeyPatterns::new("weights", many(100)).is_ok() && KeyPatterns::new("weights", many(101)).is_err());
        for pattern in ["", "a*b", "**", "a\nb"] {
            let error = KeyPatterns::new("weights", BTreeMap::from([(pattern.to_owned(), Weight::ONE)])).err();
            assert_eq!(error.and_then(|error| error.field().map(|field| field.0.to_owned())), Some("weights".into()));
        }
        assert!(Weight::new(0).is_err() && Weight::new(101).is_err() && Weight::new(100).is_ok());
        assert!(KeyException::new(None, None, None).is_ok() && KeyException::new(None, None, Some(2)).is_err());
        assert!(
            KeyException::new(None, Some(0.0), Some(2)).is_err() && KeyException::new(None, Some(1e9), None).is_err()
        );
        Ok(())
    }
}
