//! Where the messages stood that an owner has reserved, in a topic with ordering.
//!
//! A place is a score that Redis gave, kept as text so that none of its digits is lost: the millisecond and so many 2048ths.

use std::borrow::Cow;
use std::collections::HashMap;

use super::reply::{Reply, time_of};
use crate::model::error::{Error, Result};
use crate::model::message::MessageId;
use crate::store::{ReservedMessage, Returned, Settlement};

/// The places of what is not settled; none in a topic without ordering.
#[derive(Debug, Default)]
pub(super) struct ReservationOrder(Option<HashMap<MessageId, String>>);

impl ReservationOrder {
    /// Keeps them from now on.
    pub(super) fn keep(&mut self) {
        self.0.get_or_insert_default();
    }

    pub(super) fn are_kept(&self) -> bool {
        self.0.is_some()
    }

    /// Notes what a reservation took, and from where.
    pub(super) fn note(&mut self, messages: &mut [ReservedMessage], mut places: Reply) -> Result<()> {
        let Some(known) = &mut self.0 else { return Ok(()) };
        for message in messages {
            let place = places.text()?;
            message.place =
                time_of(&place).ok_or_else(|| Error::corrupt(format!("Redis answered {place:?} as a place")))?;
            if message.attempts == 0 {
                message.ready_at = message.place;
            }
            known.insert(message.id.clone(), place);
        }
        Ok(())
    }

    /// The score at which a message goes back.
    pub(super) fn score<'a>(&'a self, returned: &Returned) -> Cow<'a, str> {
        match self.of(&returned.id) {
            Some(place) => place.into(),
            None => returned.ready_at.as_ms().to_string().into(),
        }
    }

    /// The entry of a message in its reservation: the id, and its place if that is kept. No id has the byte between them.
    pub(super) fn entry<'a>(&self, id: &'a MessageId) -> Cow<'a, str> {
        match self.of(id) {
            Some(place) => format!("{id}\u{1}{place}").into(),
            None => id.as_str().into(),
        }
    }

    /// Forgets what is reserved no more.
    pub(super) fn forget(&mut self, settlement: &Settlement) {
        let Some(known) = &mut self.0 else { return };
        let gone = settlement.acked.iter().chain(settlement.returned.iter().map(|returned| &returned.id));
        for id in gone.chain(settlement.buried.iter().map(|buried| &buried.id)) {
            known.remove(id);
        }
    }

    fn of(&self, id: &MessageId) -> Option<&str> {
        self.0.as_ref()?.get(id).map(String::as_str)
    }
}
