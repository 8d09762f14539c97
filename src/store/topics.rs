//! Topics: their descriptors, and how these change.

use crate::model::error::Result;
use crate::model::message::TopicName;
use crate::model::topic::Descriptor;
use async_trait::async_trait;

/// Topics: their descriptors, and how these change.
///
/// Errors beside those of each method: see [`crate::store`].
#[async_trait]
pub trait Topics: Send + Sync + 'static {
    /// The descriptor of a topic, if it exists and was not deleted.
    async fn topic(&self, topic: &TopicName) -> Result<Option<Descriptor>>;

    /// The same for who only looks: nothing is remembered of the topic for the time when the store is away.
    async fn topic_uncached(&self, topic: &TopicName) -> Result<Option<Descriptor>> {
        self.topic(topic).await
    }

    /// The names of all topics, sorted.
    async fn topics(&self) -> Result<Vec<TopicName>>;

    /// Makes a topic, or returns the one that exists. The store sets generation and incarnation. A descriptor that has an
    /// incarnation is of a topic that the store may have lost: it is made again as that very topic.
    ///
    /// # Errors
    /// `Full` past [`crate::model::limits::TOPICS_MAX`] topics; `NotFound` when that very topic was deleted.
    async fn create(&self, wanted: &Descriptor) -> Result<Descriptor>;

    /// Replaces the descriptor that has `wanted.generation`, and returns the new one with its new generation. Once it has
    /// answered no partition takes a push under an older one, so a group that is new gets all that is pushed from then on,
    /// and of groups that `wanted` does not name everything is gone.
    ///
    /// # Errors
    /// `Stale` when the topic has another generation now, `NotFound` when it is gone.
    async fn update(&self, wanted: &Descriptor) -> Result<Descriptor>;

    /// Makes sure that no partition takes a push under an older descriptor than this one, which is in place: the update
    /// that made it may have been cut short.
    ///
    /// # Errors
    /// `Stale` when a partition has seen a newer one, or the topic is gone.
    async fn publish_settings(&self, descriptor: &Descriptor) -> Result<()>;

    /// Deletes a topic with all its messages. Deleting one that is gone does nothing.
    async fn delete(&self, descriptor: &Descriptor) -> Result<()>;

    /// The same, if the topic still has the generation of `descriptor`: of two that change it at once one succeeds.
    ///
    /// # Errors
    /// `Stale` when it has another one.
    async fn delete_unchanged(&self, descriptor: &Descriptor) -> Result<()>;
}
