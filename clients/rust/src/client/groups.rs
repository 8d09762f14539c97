//! Groups: created, described, paused, purged and deleted; and whether what is stored of them is consistent.

use std::time::Duration;

use hyper::Method;

use super::error::Error;
use super::pages::Pages;
use super::{Call, Client, Put, Query, group_path, key_path, topic_path};
use crate::wire::Word;
use crate::wire::dead_letters::Purged;
use crate::wire::groups::{
    DeliveryWindow, Findings, Group, GroupDescription, GroupList, KeyPause, NewGroup, NewKeyLimit, PauseOf, PurgeOf,
};
use crate::wire::items::{Named, Object};
use crate::wire::time::Timestamp;

impl Client {
    /// The groups of a topic.
    pub async fn groups(&self, topic: &str) -> Result<Vec<Group>, Error> {
        let list: GroupList = self.call(&Call::get(format!("{}/groups", topic_path(topic)?))).await?;
        Ok(list.groups)
    }

    /// A group with its counts and members.
    pub async fn group(&self, topic: &str, group: &str) -> Result<GroupDescription, Error> {
        self.call(&Call::get(group_path(topic, group)?)).await
    }

    /// Creates a group, or changes the limits of one that are given.
    pub async fn put_group(&self, topic: &str, group: &str, settings: NewGroup) -> Result<Put<Group>, Error> {
        self.put(&Call::new(Method::PUT, group_path(topic, group)?).json(&settings)?).await
    }

    /// Deletes a group with all its messages.
    pub async fn delete_group(&self, topic: &str, group: &str) -> Result<(), Error> {
        self.call(&Call::new(Method::DELETE, group_path(topic, group)?)).await
    }

    /// Delivers nothing of a group until it is resumed.
    pub async fn pause(&self, topic: &str, group: &str) -> Result<Group, Error> {
        self.pause_of(topic, group, PauseOf::default()).await
    }

    /// Delivers nothing of a group for so long, unless it is resumed before.
    pub async fn pause_for(&self, topic: &str, group: &str, pause: Duration) -> Result<Group, Error> {
        self.pause_of(topic, group, PauseOf { span_ms: Some(pause), ..PauseOf::default() }).await
    }

    /// Delivers nothing of a group until this time, unless it is resumed before.
    pub async fn pause_until(&self, topic: &str, group: &str, until: impl Into<Timestamp>) -> Result<Group, Error> {
        self.pause_of(topic, group, PauseOf { until: Some(until.into()), ..PauseOf::default() }).await
    }

    async fn pause_of(&self, topic: &str, group: &str, pause: PauseOf) -> Result<Group, Error> {
        self.call(&Call::post(format!("{}/pause", group_path(topic, group)?)).json(&pause)?).await
    }

    /// Ends a pause.
    pub async fn resume(&self, topic: &str, group: &str) -> Result<Group, Error> {
        self.call(&Call::post(format!("{}/resume", group_path(topic, group)?))).await
    }

    /// Delivers nothing of a key of a fair group for so long, unless it is resumed before.
    pub async fn pause_key_for(&self, topic: &str, group: &str, key: &str, pause: Duration) -> Result<KeyPause, Error> {
        self.pause_key_of(topic, group, key, PauseOf { span_ms: Some(pause), ..PauseOf::default() }).await
    }

    /// Delivers nothing of a key of a fair group until this time, unless it is resumed before.
    pub async fn pause_key_until(
        &self,
        topic: &str,
        group: &str,
        key: &str,
        until: impl Into<Timestamp>,
    ) -> Result<KeyPause, Error> {
        self.pause_key_of(topic, group, key, PauseOf { until: Some(until.into()), ..PauseOf::default() }).await
    }

    async fn pause_key_of(&self, topic: &str, group: &str, key: &str, pause: PauseOf) -> Result<KeyPause, Error> {
        self.call(&Call::post(format!("{}/pause", key_path(topic, group, key)?)).json(&pause)?).await
    }

    /// Ends the pause of a key.
    pub async fn resume_key(&self, topic: &str, group: &str, key: &str) -> Result<KeyPause, Error> {
        self.call(&Call::post(format!("{}/resume", key_path(topic, group, key)?))).await
    }

    /// Deletes all messages of a group, also those in flight: `purge("orders", "default", PurgeOf::everything())`. It is not repeated
    /// after a lost answer, since it would also delete what was pushed meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`]: the selection is empty.
    pub async fn purge(&self, topic: &str, group: &str, which: PurgeOf) -> Result<Purged, Error> {
        if !which.all {
            return Err(Error::argument("a purge has to name all messages"));
        }
        self.call(&Call::post(format!("{}/purge", group_path(topic, group)?)).json(&which)?.only_once()).await
    }

    /// Finds what is inconsistent in the stored data of a group. Nothing is changed. Each item is the answer of one request;
    /// [`Pages::total`] has all.
    pub fn verify(&self, topic: &str, group: &str) -> Pages<Findings> {
        self.findings(Method::GET, topic, group)
    }

    /// Repairs what is inconsistent in the stored data of a group, and says what it was, as [`Client::verify`] does.
    pub fn repair(&self, topic: &str, group: &str) -> Pages<Findings> {
        self.findings(Method::POST, topic, group)
    }

    fn findings(&self, method: Method, topic: &str, group: &str) -> Pages<Findings> {
        let (topic, group) = (topic.to_owned(), group.to_owned());
        let ask = move |cursor: Option<&str>| {
            let query = Query::default().with("cursor", cursor);
            Ok(Call::new(method.clone(), format!("{}/verify{query}", group_path(&topic, &group)?)))
        };
        Pages::new(self, ask, |page: Findings| {
            let next = page.next_cursor.clone();
            (vec![page], next)
        })
    }
}

impl PurgeOf {
    /// All messages of the group, scheduled, ready and in flight.
    pub fn everything() -> PurgeOf {
        PurgeOf { all: true, ..PurgeOf::default() }
    }

    /// Its dead letters too.
    pub fn and_dead_letters(self) -> PurgeOf {
        PurgeOf { dead_letters: true, ..self }
    }

    /// Only count them.
    pub fn dry_run(self) -> PurgeOf {
        PurgeOf { dry_run: true, ..self }
    }
}

impl NewGroup {
    /// Begins with a copy of the messages of this group.
    pub fn copy_of(group: impl Into<String>) -> NewGroup {
        NewGroup { copy_of: Some(group.into()), ..NewGroup::default() }
    }

    /// Messages that are delivered in a second by all brokers together, at most; 0 is without a limit.
    pub fn rate(mut self, rate: f64) -> NewGroup {
        self.rate = Some(rate);
        self
    }

    /// Deliveries in flight in all partitions together, at most; 0 is without a limit.
    pub fn max_in_flight(mut self, deliveries: u32) -> NewGroup {
        self.max_in_flight = Some(deliveries);
        self
    }

    /// When messages are delivered; outside of it the group is closed.
    pub fn window(mut self, window: DeliveryWindow) -> NewGroup {
        self.window = Some(Object(window));
        self
    }

    /// Deliveries of one key in flight, at most; 0 is without a limit. Only in a fair group.
    pub fn key_max_in_flight(mut self, deliveries: u32) -> NewGroup {
        self.key_max_in_flight = Some(deliveries);
        self
    }

    /// Deliveries of one key in a second, at most; 0 is without a limit. Only in a fair group.
    pub fn key_rate(mut self, rate: f64) -> NewGroup {
        self.key_rate = Some(rate);
        self
    }

    /// Deliveries of one key that may be made at once, where keys have a rate.
    pub fn key_burst(mut self, deliveries: u32) -> NewGroup {
        self.key_burst = Some(deliveries);
        self
    }

    /// How large the shares of some keys are, where others have 1: by names of keys, or beginnings of names with a `*` behind them.
    /// Replaces all weights; no entry removes them. Only in a fair group.
    pub fn weights<K: Into<String>>(mut self, weights: impl IntoIterator<Item = (K, u32)>) -> NewGroup {
        self.weights = Some(Named(weights.into_iter().map(|(key, weight)| (key.into(), weight)).collect()));
        self
    }

    /// Other limits for some keys, by names and beginnings as for [`NewGroup::weights`]. Replaces all of them; no entry removes them. Only
    /// in a fair group.
    pub fn key_limits<K: Into<String>>(mut self, limits: impl IntoIterator<Item = (K, NewKeyLimit)>) -> NewGroup {
        self.key_limits = Some(Named(limits.into_iter().map(|(key, limit)| (key.into(), Object(limit))).collect()));
        self
    }

    /// Whether the keys that have due messages take turns, so that none delays another.
    pub fn fair(mut self, fair: bool) -> NewGroup {
        self.fair = Some(if fair { "key" } else { "none" }.into());
        self
    }
}

impl DeliveryWindow {
    /// Every day from one time to the other, such as `09:00` and `17:30`, by the clock of UTC. It ends on the next day, unless `to` is
    /// later than `from`.
    pub fn new(from: impl Into<String>, to: impl Into<String>) -> DeliveryWindow {
        DeliveryWindow { from: Some(from.into()), to: Some(to.into()), ..DeliveryWindow::default() }
    }

    /// Removes the window of a group: it is always open.
    pub fn always() -> DeliveryWindow {
        DeliveryWindow::default()
    }

    /// Opens on these days only, such as `mon` and `fri`.
    pub fn days<D: Into<Word>>(mut self, days: impl IntoIterator<Item = D>) -> DeliveryWindow {
        self.days = Some(days.into_iter().map(Into::into).collect());
        self
    }

    /// By the clock of this time zone, such as `Europe/Berlin`.
    pub fn time_zone(mut self, name: impl Into<String>) -> DeliveryWindow {
        self.time_zone = Some(name.into());
        self
    }
}
