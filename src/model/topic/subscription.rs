//! The state of a group that its topic keeps.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Descriptor, KeyException, KeyPatterns, KeyRate, Rate, Weight, choice};
use crate::model::error::{Error, Fault, Result};
use crate::model::limits::IN_FLIGHT_MAX;
use crate::model::message::GroupName;
use crate::model::partition::Partition;
use crate::model::spelling::counted;
use crate::model::time::Timestamp;
use crate::model::window::{DeliveryWindow, Phase};

/// A group without an entry is one that the topic was born with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Subscription {
    /// The generation that created the group; 0 if the topic was born with it. A group created again is another one.
    pub born: u64,
    /// The group whose messages it gets a copy of. Until all of them are there it hands nothing out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy_of: Option<GroupName>,
    /// Whether it began with a copy, so that it may have messages that are older than the group.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub began_as_copy: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<u32>,
    /// `None` is always open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<DeliveryWindow>,
    /// `None` until somebody has said it: then a message of an SQS client may make it fair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair: Option<Fairness>,
    /// Deliveries of one key in flight, at most; only in a fair group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_max_in_flight: Option<u32>,
    /// Only in a fair group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_rate: Option<KeyRate>,
    /// Other limits for some keys; only in a fair group.
    #[serde(skip_serializing_if = "KeyPatterns::is_empty")]
    pub key_limits: KeyPatterns<KeyException>,
    /// How large the shares of keys are; only in a fair group.
    #[serde(skip_serializing_if = "KeyPatterns::is_empty")]
    pub weights: KeyPatterns<Weight>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
}

/// Whether the keys of a group take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fairness {
    /// The message that is due first is delivered first.
    None,
    /// Each key that has due messages has its share, however many another one has. Not with an ordering.
    Key,
}

impl Fairness {
    pub const ALL: &[Fairness] = &[Fairness::None, Fairness::Key];

    pub fn name(self) -> &'static str {
        match self {
            Fairness::None => "none",
            Fairness::Key => "key",
        }
    }

    /// Errors: `Invalid` for another word.
    pub fn read(word: &str) -> Result<Fairness> {
        choice("fair", word, Fairness::ALL, Fairness::name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// On the store's clock; `None` is until it is resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    Copying,
    Paused(Pause),
    /// Its window is closed.
    Closed {
        /// On the store's clock; `None` if this version does not know the time zone of the window.
        opens_at: Option<Timestamp>,
    },
}

impl Rest {
    pub fn is_closed(self) -> bool {
        matches!(self, Rest::Closed { .. })
    }

    pub fn until(self) -> Option<Timestamp> {
        match self {
            Rest::Copying => None,
            Rest::Paused(pause) => pause.until,
            Rest::Closed { opens_at } => opens_at,
        }
    }
}

impl Subscription {
    /// Why it hands nothing out at `now`, if it does not.
    pub fn rest(&self, now: Timestamp) -> Option<Rest> {
        if self.copy_of.is_some() {
            return Some(Rest::Copying);
        }
        self.pause(now).or_else(|| self.closed(now))
    }

    pub fn is_fair(&self) -> bool {
        self.fair == Some(Fairness::Key)
    }

    fn pause(&self, now: Timestamp) -> Option<Rest> {
        self.paused.filter(|pause| pause.until.is_none_or(|until| until > now)).map(Rest::Paused)
    }

    fn closed(&self, now: Timestamp) -> Option<Rest> {
        match self.window.as_ref()?.phase(now) {
            Phase::Open { .. } => None,
            Phase::Closed { opens_at } => Some(Rest::Closed { opens_at }),
        }
    }

    /// When its window closes next, if it is open.
    pub fn closes_at(&self, now: Timestamp) -> Option<Timestamp> {
        match self.window.as_ref()?.phase(now) {
            Phase::Open { until, .. } => Some(until),
            Phase::Closed { .. } => None,
        }
    }

    /// For how much of a lateness before `now` its window was open: nothing is late while it may not be handed out.
    pub fn open_lateness(&self, lateness: Duration, now: Timestamp) -> Duration {
        self.window.as_ref().map_or(lateness, |window| window.open_within(lateness, now))
    }
}

impl Descriptor {
    pub fn subscription(&self, group: &GroupName) -> Subscription {
        self.subscriptions.get(group).cloned().unwrap_or_default()
    }

    pub fn subscription_mut(&mut self, group: &GroupName) -> &mut Subscription {
        self.subscriptions.entry(group.clone()).or_default()
    }

    /// How many deliveries of a group may be in flight in a partition: its share of what the group may have. Shares add up
    /// to the limit, and while it changes, with some owners knowing the old one and some the new one, to no more than the higher of the two.
    pub fn in_flight_share(&self, group: &GroupName, partition: Partition) -> usize {
        let Some(limit) = self.subscriptions.get(group).and_then(|subscription| subscription.max_in_flight) else {
            return IN_FLIGHT_MAX;
        };
        let partitions = u32::from(self.settings.partitions.get());
        let share = limit / partitions + u32::from(u32::from(partition.0) < limit % partitions);
        usize::try_from(share).unwrap_or(IN_FLIGHT_MAX).min(IN_FLIGHT_MAX)
    }

    pub(super) fn check_subscriptions(&self) -> Result<()> {
        if self.is_ordered() && self.subscriptions.values().any(Subscription::is_fair) {
            let why = "is not for a topic with ordering, in which a key that waits holds up no other; leave `fair` out";
            return Err(Error::wrong(Fault::Exclusive, "fair", why));
        }
        for group in self.subscriptions.values().filter(|group| !group.is_fair()) {
            let by_key = [
                ("key_max_in_flight", group.key_max_in_flight.is_some(), "0"),
                ("key_rate", group.key_rate.is_some(), "0"),
                ("key_limits", !group.key_limits.is_empty(), "{}"),
                ("weights", !group.weights.is_empty(), "{}"),
            ];
            if let Some((setting, _, none)) = by_key.into_iter().find(|(_, is_set, _)| *is_set) {
                let why = format!("is for a fair group; give `fair` = `key` with it, or {none} to remove it");
                return Err(Error::wrong(Fault::Missing, setting, why));
            }
        }
        let partitions = u32::from(self.settings.partitions.get());
        let too_few = |limit: &u32| *limit < partitions;
        match self.subscriptions.values().filter_map(|subscription| subscription.max_in_flight).find(too_few) {
            None => Ok(()),
            Some(limit) => {
                let partitions = counted(partitions, "partition");
                let why = format!("{limit} is too few for the {partitions} of the topic: each has its own share");
                Err(Error::range("max_in_flight", why))
            }
        }
    }

    /// Whether both have a group of this name, and it is the same one: not deleted and made again in between.
    pub fn has_same(&self, other: &Descriptor, group: &GroupName) -> bool {
        let has = |descriptor: &Descriptor| descriptor.groups.contains(group);
        self.incarnation == other.incarnation
            && has(self)
            && has(other)
            && self.subscription(group).born == other.subscription(group).born
    }

    /// The descriptor that replaces this one when `wanted` is asked for: the same topic under a new generation. Groups
    /// that are new are born with it; those that `wanted` does not name leave.
    pub fn followed_by(&self, wanted: &Descriptor, generation: u64) -> Descriptor {
        let (incarnation, deleted_at) = (self.incarnation, self.deleted_at);
        let mut next = Descriptor { generation, incarnation, deleted: false, deleted_at, ..wanted.clone() };
        next.leaving = self.groups.iter().filter(|group| !next.groups.contains(group)).cloned().collect();
        next.subscriptions.retain(|group, _| wanted.groups.contains(group));
        for group in wanted.groups.iter().filter(|group| !self.groups.contains(group)) {
            next.subscription_mut(group).born = generation;
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::message::TopicName;

    #[test]
    fn recreated_group_has_a_new_identity() -> Result<()> {
        let audit = GroupName::new("audit")?;
        let born = Descriptor::new(TopicName::new("orders")?, Default::default());
        let with = |descriptor: &Descriptor| {
            let mut wanted = descriptor.clone();
            wanted.groups.push(audit.clone());
            wanted
        };
        let first = born.followed_by(&with(&born), 7);
        assert_eq!((first.subscription(&audit).born, first.leaving.len()), (7, 0));
        let same = first.followed_by(&first, 8);
        assert!(same.has_same(&first, &audit));
        let without = same.followed_by(&born, 9);
        assert_eq!((without.leaving.as_slice(), without.subscriptions.len()), ([audit.clone()].as_slice(), 0));
        let again = without.followed_by(&with(&without), 10);
        assert!(!again.has_same(&first, &audit) && !without.has_same(&first, &audit));
        assert!(again.has_same(&first, &GroupName::standard()) && again.leaving.is_empty());
        Ok(())
    }

    #[test]
    fn shares_never_exceed_the_limit_during_a_change() -> Result<()> {
        let group = GroupName::standard();
        let of = |limit| -> Result<Vec<usize>> {
            let mut topic = Descriptor::new(TopicName::new("orders")?, Default::default());
            topic.subscription_mut(&group).max_in_flight = limit;
            topic.check()?;
            Ok(topic.partitions().map(|partition| topic.in_flight_share(&group, partition)).collect())
        };
        assert_eq!(of(None)?, [IN_FLIGHT_MAX; 8]);
        assert_eq!((of(Some(8))?, of(Some(11))?), (vec![1; 8], vec![2, 2, 2, 1, 1, 1, 1, 1]));
        assert!(of(Some(7)).is_err());
        for (old, new) in [(8, 9), (30, 11), (1_000, 999)] {
            let both = of(Some(old))?.into_iter().zip(of(Some(new))?).map(|(old, new)| old.max(new));
            assert!(both.sum::<usize>() <= usize::try_from(old.max(new)).unwrap_or(0));
        }
        Ok(())
    }

    #[test]
    fn timed_pause_ends_on_time() {
        let (now, later) = (Timestamp::from_ms(1_000), Timestamp::from_ms(1_001));
        let paused = |until| Subscription { paused: Some(Pause { until }), ..Subscription::default() };
        assert_eq!(Subscription::default().rest(now), None);
        assert!(paused(None).rest(now).is_some() && paused(Some(later)).rest(now).is_some());
        assert_eq!(paused(Some(later)).rest(later), None);
    }

    #[test]
    fn closed_window_is_a_rest_after_a_pause() -> std::result::Result<(), String> {
        let day = |hours: u64| Timestamp::from_ms(hours * 3_600_000);
        let window = Some("09:00-17:00".parse()?);
        let group = Subscription { window, ..Subscription::default() };
        assert_eq!((group.rest(day(9)), group.closes_at(day(9))), (None, Some(day(17))));
        let closed = Some(Rest::Closed { opens_at: Some(day(33)) });
        assert_eq!((group.rest(day(17)), group.closes_at(day(17))), (closed, None));
        // A pause that ends while it is closed.
        let pause = Pause { until: Some(day(20)) };
        let paused = Subscription { paused: Some(pause), ..group };
        assert_eq!((paused.rest(day(19)), paused.rest(day(20))), (Some(Rest::Paused(pause)), closed));
        Ok(())
    }

    #[test]
    fn older_descriptor_format_is_read() -> serde_json::Result<()> {
        let text = r#"{"topic": "orders", "generation": 5, "incarnation": 5, "deleted": false, "groups": ["default"],
                       "settings": {"partitions": 3}}"#;
        let read: Descriptor = serde_json::from_str(text)?;
        assert!(read.subscriptions.is_empty() && read.leaving.is_empty());
        let written = serde_json::to_string(&read)?;
        assert!(!written.contains("subscriptions") && !written.contains("leaving"), "{written}");
        Ok(())
    }
}
