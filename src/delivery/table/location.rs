//! Where a message is in the memory of an owner.

use super::Table;
use crate::model::message::MessageId;
use crate::platform::clock::Instant;

/// Where an owner has a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageLocation {
    /// With a consumer.
    Out {
        /// The attempt, from 1 on.
        attempt: u32,
        /// When it is nacked unless its consumer settles or extends it.
        deadline: Instant,
    },
    /// A consumer has decided about it, and the store has not answered yet.
    Decided,
    /// Fetched ahead of time, for the next consumer who asks.
    Held,
    /// In a topic with ordering: behind an earlier message of its key, or waiting there for its next attempt.
    InLine,
}

impl Table {
    /// Whether as many deliveries are out as may be.
    pub fn is_full(&self) -> bool {
        self.out.len() >= self.policy.in_flight
    }

    /// Where a message is, if it is reserved by this epoch. Looks through all that is.
    pub fn whereabouts(&self, id: &MessageId) -> Option<MessageLocation> {
        if let Some(out) = self.out.values().find(|out| out.id == *id) {
            return Some(MessageLocation::Out { attempt: out.attempt, deadline: out.deadline });
        }
        if self.decided.iter().any(|(decided, ..)| decided == id) {
            return Some(MessageLocation::Decided);
        }
        let mut held = self.ready.iter().chain(&self.uncharged).chain(&self.charging);
        if held.any(|held| held.message.id == *id) {
            return Some(MessageLocation::Held);
        }
        self.order.as_ref().filter(|order| order.has_in_line(id)).map(|_| MessageLocation::InLine)
    }
}
