//! Looking at a pair without changing it.

use super::Inner;
use super::dead::read_dead;
use super::pair::Stored;
use super::topics::locked;
use crate::codec::{decode_body, decode_history};
use crate::error::Result;
use crate::message::MessageId;
use crate::store::{PairStats, Peeked, State};
use crate::topic::Pair;

impl Inner {
    pub(super) fn peek(&self, pair: &Pair, id: &MessageId) -> Result<Option<Peeked>> {
        let topics = self.topics();
        let Some((topic, place)) = topics.pair(pair) else { return Ok(None) };
        let state = topic.partition(place.partition);
        let state = locked(&state);
        let lease = state.pairs.get(&place.group).and_then(|pair| pair.lease.as_ref());
        let owner = lease.and_then(|lease| lease.member(self.clock.local().instant())).cloned();
        let stored = Stored::new(&self.tree, place);
        if let Some(body) = stored.hash().get(id)? {
            let next_at = stored.zset().score(id)?.map(|score| score.at);
            let state = match next_at {
                Some(at) if at > self.now() => State::Scheduled,
                Some(_) => State::Ready,
                None => State::InFlight,
            };
            let attempts = stored.attempts(id)?.unwrap_or(0);
            let history = decode_history(&stored.history(id, None)?)?;
            return Ok(Some(Peeked {
                message: decode_body(id.clone(), body)?,
                state,
                next_at,
                attempts,
                owner,
                history,
            }));
        }
        let (Some(died_at), Some(value)) = (stored.dead_zset().score(id)?, stored.dead_hash().get(id)?) else {
            return Ok(None);
        };
        let (record, body) = read_dead(&value)?;
        let (message, attempts) = (decode_body(id.clone(), body)?, record.attempts);
        Ok(Some(Peeked {
            message,
            state: State::Dead { died_at: died_at.at, record },
            next_at: None,
            attempts,
            owner,
            history: Vec::new(),
        }))
    }

    pub(super) fn stats(&self, pair: &Pair) -> Result<PairStats> {
        let topics = self.topics();
        let Some((topic, place)) = topics.pair(pair) else { return Ok(PairStats::default()) };
        let state = topic.partition(place.partition);
        let mut state = locked(&state);
        let Some(state) = state.pairs.get_mut(&place.group) else { return Ok(PairStats::default()) };
        let zset = Stored::new(&self.tree, place).zset();
        let (now, head) = (self.now(), zset.head()?);
        let ready = state.counts.ready(zset, now)?;
        let counts = state.counts;
        Ok(PairStats {
            scheduled: counts.zset.saturating_sub(ready),
            ready,
            in_flight: counts.hash.saturating_sub(counts.zset),
            dead: counts.dead,
            head,
            oldest_ready_age: head.filter(|head| *head <= now).map(|head| now.since(head)),
            owner: state.lease.as_ref().and_then(|lease| lease.member(self.clock.local().instant())).cloned(),
        })
    }
}
