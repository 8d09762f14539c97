//! Topics: their descriptors, and how these change.

use async_trait::async_trait;

use crate::model::error::Result;
use crate::model::message::TopicName;
use crate::model::topic::Descriptor;

#[async_trait]
pub trait Topics: Send + Sync + 'static {
    async fn topic(&self, topic: &TopicName) -> Result<Option<Descriptor>>;

    /// The same without remembering the topic for the time when the store is unavailable.
    async fn topic_uncached(&self, topic: &TopicName) -> Result<Option<Descriptor>> {
        self.topic(topic).await
    }

    async fn topics(&self) -> Result<Vec<TopicName>>;

    /// Creates a topic, or returns the existing one. The store sets generation and incarnation. A descriptor with an
    /// incarnation is of a topic that the store may have lost, and is created again as that very topic. Errors: `Full`
    /// past [`crate::model::limits::TOPICS_MAX`] topics; `NotFound` when that very topic was deleted.
    async fn create(&self, wanted: &Descriptor) -> Result<Descriptor>;

    /// Replaces the descriptor that has `wanted.generation`, and returns the new one with its new generation. Once it
    /// has answered no partition takes a push under an older one, so a group that is new gets all that is pushed from
    /// then on, and of groups that `wanted` does not name everything is gone. Errors: `Stale` when the topic has
    /// another generation now, `NotFound` when it is gone.
    async fn update(&self, wanted: &Descriptor) -> Result<Descriptor>;

    /// Makes sure that no partition takes a push under an older descriptor than this one, which is in place. Errors:
    /// `Stale` when a partition has seen a newer one, or the topic is gone.
    async fn publish_settings(&self, descriptor: &Descriptor) -> Result<()>;

    /// Deletes a topic with all its messages. Deleting one that is gone does nothing.
    async fn delete(&self, descriptor: &Descriptor) -> Result<()>;

    /// The same, if the generation is still that of `descriptor`. Errors: `Stale` when it is not.
    async fn delete_unchanged(&self, descriptor: &Descriptor) -> Result<()>;
}
