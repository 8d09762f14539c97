//! Listing messages, a page at a time.

use crate::codec::Failure;
use crate::model::error::Result;
use crate::model::message::{Message, MessageId};
use crate::model::time::Timestamp;

/// A span of time: from its beginning on, and before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The first time in it.
    pub from: Timestamp,
    /// The first time behind it.
    pub to: Timestamp,
}

impl Window {
    /// All times.
    pub const ALL: Window = Window { from: Timestamp::from_ms(0), to: Timestamp::from_ms(u64::MAX) };

    /// Whether a time is in it.
    pub fn has(&self, at: Timestamp) -> bool {
        self.from <= at && at < self.to
    }
}

/// A position among messages that wait: behind this one, whether or not it is still there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingCursor {
    /// When the last message before it is tried next.
    pub next_at: Timestamp,
    /// Its id.
    pub id: MessageId,
}

/// A position among messages in flight. Meaningful to the store only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InFlightCursor {
    /// A step, without spaces and full stops.
    pub step: String,
    /// The last message of it that was listed; `None` at its beginning.
    pub after: Option<MessageId>,
}

/// A message of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its id.
    pub id: MessageId,
    /// When it is tried next; `None` while it is in flight.
    pub next_at: Option<Timestamp>,
    /// Attempts that were charged.
    pub attempts: u32,
    /// How the last attempts failed, oldest first.
    pub history: Vec<Failure>,
    /// The message; an error when its body is unreadable.
    pub message: Result<Message>,
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<C> {
    /// The messages.
    pub messages: Vec<Listed>,
    /// Where the next page begins, if there is more. There may be more although this page is empty.
    pub next: Option<C>,
}

impl<C> Default for Page<C> {
    fn default() -> Page<C> {
        Page { messages: Vec::new(), next: None }
    }
}
