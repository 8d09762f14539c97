//! A condition on the topic that a request changes.

use crate::model::error::{Error, Result};
use crate::model::message::TopicName;
use crate::model::topic::Descriptor;

/// A condition on a topic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Precondition {
    /// Anything, also absent.
    #[default]
    None,
    /// There.
    Exists,
    /// There, with this generation: unchanged since it was read.
    Generation(u64),
}

impl Precondition {
    /// # Errors
    /// `Stale`.
    pub fn check(self, topic: &TopicName, there: Option<&Descriptor>) -> Result<()> {
        let holds = match self {
            Precondition::None => true,
            Precondition::Exists => there.is_some(),
            Precondition::Generation(generation) => there.is_some_and(|there| there.generation == generation),
        };
        match holds {
            true => Ok(()),
            false => Err(Error::stale(format!("topic {topic} is not as `If-Match` says; nothing changed"))),
        }
    }
}
