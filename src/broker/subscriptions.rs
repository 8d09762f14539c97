//! Groups as subscriptions: made, deleted, paused. Each gets every message of its topic.

use std::sync::Arc;
use std::time::Duration;

use super::{Broker, no_group};
use crate::model::error::{Error, Fault, Kind, Result};
use crate::model::limits::{DELAY_MAX, GROUPS_MAX};
use crate::model::message::{GroupName, TopicName};
use crate::model::time::{Timestamp, show_span};
use crate::model::topic::{Descriptor, Pause, Rate, Subscription};

/// How often a change is made again because someone else changed the topic meanwhile.
const TRIES_MAX: usize = 5;

/// How long making a group waits for the copy of another one to be complete; it goes on behind the answer.
const COPY_WAIT: Duration = Duration::from_secs(2);

/// What is asked of a group.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GroupWish {
    /// The group whose messages, scheduled, ready or in flight, a new one gets a copy of. Without it a new one gets what is
    /// pushed from now on.
    pub copy_of: Option<GroupName>,
    /// Messages that are handed out in a second, at most; 0 is without a limit. `None` leaves it as it is.
    pub rate: Option<f64>,
    /// Deliveries in flight, at most; 0 is without a limit. `None` leaves it as it is.
    pub max_in_flight: Option<u32>,
}

impl GroupWish {
    /// Sets what is said of a group that is there.
    fn apply(&self, subscription: &mut Subscription) -> Result<()> {
        if let Some(rate) = self.rate {
            subscription.rate = if rate == 0.0 { None } else { Some(Rate::new(rate)?) };
        }
        if let Some(limit) = self.max_in_flight {
            subscription.max_in_flight = (limit > 0).then_some(limit);
        }
        Ok(())
    }
}

/// Until when a group is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PauseFor {
    /// Until it is resumed.
    Ever,
    /// For so long from now on.
    Span(Duration),
    /// Until then; a time in the past pauses nothing.
    Until(Timestamp),
}

/// What making a group did.
#[derive(Debug, Clone, PartialEq)]
pub struct Subscribed {
    /// The topic as it is now.
    pub descriptor: Arc<Descriptor>,
    /// Whether the group was made by this call.
    pub created: bool,
}

impl Broker {
    /// Makes a group, or changes the limits of one. Once it has answered, the group gets every message that is pushed.
    ///
    /// # Errors
    /// `Invalid` limits; `NotFound` without the topic; `Full` past the limit of groups; `Conflict` for a copy of a group that does not
    /// exist, or is one of a copy itself.
    pub async fn make_group(&self, topic: &TopicName, group: &GroupName, wish: GroupWish) -> Result<Subscribed> {
        let (mut created, mut changed) = (false, false);
        let descriptor = self
            .change(topic, |there| {
                created = !there.groups.contains(group);
                let mut wanted = there.clone();
                let mut subscription = there.subscription(group);
                wish.apply(&mut subscription)?;
                if created {
                    admit(there, &wish)?;
                    wanted.groups.push(group.clone());
                    subscription.copy_of = wish.copy_of.clone();
                }
                if subscription != there.subscription(group) {
                    *wanted.subscription_mut(group) = subscription;
                }
                wanted.check()?;
                changed = wanted != *there;
                Ok(changed.then_some(wanted))
            })
            .await?;
        match (created, changed) {
            (true, _) => tracing::info!(%topic, %group, "group created"),
            (false, true) => tracing::info!(%topic, %group, "group changed"),
            (false, false) => {}
        }
        let copied = self.copy_group(&descriptor, group);
        let clock = self.store.backend.clock().local();
        tokio::select! {
            () = copied => {}
            () = clock.sleep(COPY_WAIT) => {}
        }
        Ok(Subscribed { descriptor: self.topics.get(topic).await?, created })
    }

    /// Deletes a group with all its messages, also those in flight.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` for the only group of a topic, and for one that is being copied.
    pub async fn delete_group(&self, topic: &TopicName, group: &GroupName) -> Result<()> {
        let mut gone = false;
        self.change(topic, |there| {
            if there.leaving.contains(group) {
                // A deletion that was cut short: any change finishes it.
                gone = true;
                return Ok(Some(there.clone()));
            }
            if !there.groups.contains(group) {
                return if gone { Ok(None) } else { Err(no_group(topic, group)) };
            }
            dismiss(there, group)?;
            gone = true;
            let mut wanted = there.clone();
            wanted.groups.retain(|other| other != group);
            Ok(Some(wanted))
        })
        .await?;
        tracing::info!(%topic, %group, "group deleted");
        Ok(())
    }

    /// Pauses a group: nothing is handed out until it is resumed, or the pause ends. What is out may still be settled.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` for a pause that ends too late.
    pub async fn pause_group(&self, topic: &TopicName, group: &GroupName, pause: PauseFor) -> Result<Arc<Descriptor>> {
        let now = self.store.backend.clock().now();
        let (field, until) = match pause {
            PauseFor::Ever => ("for", None),
            PauseFor::Span(span) => ("for", Some(now.plus(span))),
            PauseFor::Until(until) => ("until", Some(until)),
        };
        if until.is_some_and(|until| until > now.plus(DELAY_MAX)) {
            let why = format!("a pause lasts {} at most", show_span(DELAY_MAX));
            return Err(Error::wrong(Fault::Range, field, why));
        }
        self.set_pause(topic, group, Some(Pause { until })).await
    }

    /// Resumes a group. One that is not paused stays as it is.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn resume_group(&self, topic: &TopicName, group: &GroupName) -> Result<Arc<Descriptor>> {
        self.set_pause(topic, group, None).await
    }

    async fn set_pause(&self, topic: &TopicName, group: &GroupName, pause: Option<Pause>) -> Result<Arc<Descriptor>> {
        let mut changed = false;
        let change = self.change(topic, |there| {
            if !there.groups.contains(group) {
                return Err(no_group(topic, group));
            }
            let mut wanted = there.clone();
            wanted.subscription_mut(group).paused = pause;
            changed = wanted != *there;
            Ok(changed.then_some(wanted))
        });
        let descriptor = change.await?;
        match pause {
            _ if !changed => {}
            Some(Pause { until: Some(until) }) => tracing::info!(%topic, %group, %until, "group paused"),
            Some(Pause { until: None }) => tracing::info!(%topic, %group, "group paused"),
            None => tracing::info!(%topic, %group, "group resumed"),
        }
        Ok(descriptor)
    }

    /// Changes a topic as the store has it now; `None` changes nothing. Either way every partition knows, once it has
    /// answered.
    pub(super) async fn change(
        &self,
        topic: &TopicName,
        mut change: impl FnMut(&Descriptor) -> Result<Option<Descriptor>>,
    ) -> Result<Arc<Descriptor>> {
        let mut outcome = Err(Error::bug("a change was never tried"));
        for _ in 0..TRIES_MAX {
            let there = self.topics.load(topic).await?;
            outcome = match change(&there)? {
                Some(wanted) => self.store.topics.update(&wanted).await,
                // The change that made it so may have been cut short before every partition knew.
                None => self.store.topics.publish_settings(&there).await.map(|()| there.as_ref().clone()),
            };
            if !matches!(&outcome, Err(error) if error.kind() == Kind::Stale) {
                break;
            }
        }
        let descriptor = self.topics.learn(outcome?);
        self.groups.follow(&descriptor);
        Ok(descriptor)
    }
}

/// Whether a topic may get another group that begins so.
fn admit(there: &Descriptor, wish: &GroupWish) -> Result<()> {
    if there.groups.len() >= GROUPS_MAX {
        let detail = format!("topic {} has {GROUPS_MAX} groups, which is the limit; delete one first", there.topic);
        return Err(Error::new(Kind::Full, detail));
    }
    let Some(source) = &wish.copy_of else { return Ok(()) };
    if !there.groups.contains(source) {
        return Err(Error::new(Kind::Conflict, format!("topic {} has no group {source} to copy", there.topic)));
    }
    if there.subscription(source).copy_of.is_some() {
        return Err(Error::new(Kind::Conflict, format!("group {source} is being copied itself; try again later")));
    }
    Ok(())
}

/// Whether a group may go.
fn dismiss(there: &Descriptor, group: &GroupName) -> Result<()> {
    if there.groups.len() == 1 {
        let detail =
            format!("{group} is the only group of topic {}; delete the topic, or make another one first", there.topic);
        return Err(Error::new(Kind::Conflict, detail));
    }
    let copies = |(_, subscription): &(_, &Subscription)| subscription.copy_of.as_ref() == Some(group);
    match there.subscriptions.iter().find(copies) {
        None => Ok(()),
        Some((copy, _)) => {
            let detail = format!("group {group} is being copied to {copy}; delete that one, or try again later");
            Err(Error::new(Kind::Conflict, detail))
        }
    }
}
