//! Verbs under the descriptor that this process knows: where it turned out to be old, the verb is said again under the
//! newer one.

use std::sync::Arc;

use super::topics::Topics;
use crate::model::error::{Error, Kind, Result};
use crate::model::message::TopicName;
use crate::model::partition::Partition;
use crate::model::topic::Descriptor;
use crate::store::Call;

/// How often a verb loads the topic again because it changed on the way.
const RELOADS_MAX: usize = 3;

impl Topics {
    /// Says a verb about a topic that exists. # Errors: `NotFound`, `Unavailable` while the topic is being changed, and the
    /// verb's.
    pub(super) async fn say<T, F: Future<Output = Result<T>>>(
        &self,
        topic: &TopicName,
        verb: impl Fn(Arc<Descriptor>) -> F,
    ) -> Result<T> {
        let mut descriptor = self.get(topic).await?;
        for _ in 0..RELOADS_MAX {
            match verb(descriptor).await {
                Err(error) if error.kind() == Kind::Stale => descriptor = self.load(topic).await?,
                outcome => return outcome,
            }
        }
        Err(changing(topic))
    }

    /// Pushes to a partition of a topic. One that is gone is made again, if that is allowed; but not where it has other
    /// partitions, since the messages may belong into another one there.
    pub(super) async fn push<T, F: Future<Output = Result<T>>>(
        &self,
        mut descriptor: Arc<Descriptor>,
        push: impl Fn(Arc<Descriptor>) -> F,
    ) -> Result<T> {
        for _ in 0..RELOADS_MAX {
            match push(descriptor.clone()).await {
                Err(error) if error.kind() == Kind::Stale => {}
                outcome => return outcome,
            }
            let (newer, _) = self.load_or_create(&descriptor.topic).await?;
            if newer.settings.partitions != descriptor.settings.partitions {
                return Err(Error::unavailable(format!("topic {} was made anew; push again", newer.topic)));
            }
            descriptor = newer;
        }
        Err(changing(&descriptor.topic))
    }
}

impl Topics {
    /// Makes a call of so many messages to a partition. `is_applied` says of an answer whether the store applied the call.
    pub(super) async fn call<T>(
        &self,
        topic: &TopicName,
        partition: Partition,
        messages: usize,
        make: impl AsyncFnOnce(&Call) -> Result<T>,
        is_applied: impl FnOnce(&T) -> bool,
    ) -> Result<T> {
        let call = self.calls.begin(topic, partition, self.store.backend.clock(), messages);
        let answer = make(&call).await?;
        if is_applied(&answer) {
            self.calls.applied(topic, partition, self.store.backend.clock(), call);
        }
        Ok(answer)
    }
}

fn changing(topic: &TopicName) -> Error {
    Error::unavailable(format!("topic {topic} is being changed or deleted; try again"))
}
