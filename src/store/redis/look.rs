//! Looking at messages without taking them.

use super::owner::{read_charge, read_history};
use super::scripts::{Call, SCRIPTS};
use super::{Shared, dead};
use crate::codec::decode_body;
use crate::error::Result;
use crate::message::MessageId;
use crate::store::{MemberId, Peeked, State};
use crate::time::Timestamp;
use crate::topic::Pair;

impl Shared {
    pub(super) async fn peek(&self, pair: &Pair, id: &MessageId) -> Result<Option<Peeked>> {
        let keys = self.keys.pair(pair);
        let all = [&keys.zset, &keys.hash, &keys.attempts, &keys.dead_zset, &keys.dead_hash, &keys.lease];
        let call = Call::new(&SCRIPTS.peek, &all.map(String::as_str)).arg(id.as_str()).arg(self.time_override());
        let (status, mut reply) = self.ask(&call).await?;
        if status == "NONE" {
            return Ok(None);
        }
        let owner = reply.maybe_text()?.map(|owner| MemberId::from_store(&owner));
        if status == "LIVE" {
            let message = decode_body(id.clone(), reply.bytes()?)?;
            let next_at = reply.time()?;
            let charge = reply.maybe_text()?.unwrap_or_default();
            let attempts = if charge.is_empty() { 0 } else { read_charge(&charge).0 };
            let history = read_history(&charge)?;
            let state = state_at(next_at, self.clock.now());
            return Ok(Some(Peeked { message, state, next_at, attempts, owner, history }));
        }
        let dead = dead::read(id.clone(), reply.bytes()?, reply.time()?.unwrap_or_default())?;
        let (attempts, message) = (dead.record.attempts, dead.message?);
        let state = State::Dead { died_at: dead.died_at, record: dead.record };
        Ok(Some(Peeked { message, state, next_at: None, attempts, owner, history: Vec::new() }))
    }
}

/// The state of a message that is tried next at this time; a body without a score is in a reservation.
fn state_at(next_at: Option<Timestamp>, now: Timestamp) -> State {
    match next_at {
        Some(at) if at > now => State::Scheduled,
        Some(_) => State::Ready,
        None => State::InFlight,
    }
}
