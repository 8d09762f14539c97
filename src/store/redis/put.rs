//! Pushes with a policy about ids that are there.

use super::changes::with_groups;
use super::deadline_call::DeadlineCall;
use super::owner::check_ids;
use super::reply::Reply;
use super::scripts::{Call, SCRIPTS};
use super::{Shared, topics};
use crate::codec::encode_body;
use crate::model::error::{Error, Result};
use crate::model::limits::{PAIR_MESSAGES_MAX, PUT_IDS_MAX};
use crate::model::message::{Conflict, Message};
use crate::model::partition::Partition;
use crate::model::topic::Descriptor;
use crate::platform::clock::Clock;
use crate::store::{self, Pushed, Put};

impl Shared {
    pub(super) async fn put_all(
        &self,
        descriptor: &Descriptor,
        partition: Partition,
        id: &store::Call,
        conflict: Conflict,
        messages: &[Message],
    ) -> Result<Vec<Put>> {
        check_ids(messages.len(), PUT_IDS_MAX)?;
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let shared = self.keys.partition(&descriptor.topic, partition);
        let groups = self.pairs(descriptor, partition);
        let memory = self.keys.call(&descriptor.topic, partition, &id.id.stream);
        let front = [&shared.generation, &memory, &shared.seen, &shared.cancelled, &shared.gone, &shared.wake];
        let mut keys = with_groups(&front, &groups);
        let script = if descriptor.is_ordered() { &SCRIPTS.put_ordered } else { &SCRIPTS.put };
        keys.extend(descriptor.is_ordered().then_some(shared.order.as_str()));
        let until = Clock::System.instant().plus(self.connection.timeout());
        let make = || {
            let call = Call::new(script, &keys)
                .arg(topics::sixteen_digits(descriptor.generation))
                .arg(self.valid_until(until))
                .arg(PAIR_MESSAGES_MAX)
                .arg(conflict.name())
                .arg(self.time_override())
                .arg(id.id.seq)
                .arg(id.version.as_us());
            messages.iter().enumerate().try_fold(call, |call, (n, message)| {
                let body = encode_body(message, id.version.plus(n))?;
                Ok(call.arg(message.due_at.as_ms()).arg(message.id.as_str()).arg(body))
            })
        };
        let read = |mut reply: Reply| messages.iter().map(|_| outcome(&reply.text()?)).collect();
        self.until_answered(&DeadlineCall { descriptor, partition, until }, make, read).await
    }
}

pub(super) fn outcome(said: &str) -> Result<Put> {
    Ok(match said {
        "stored" => Put::Pushed(Pushed::Stored),
        "duplicate" => Put::Pushed(Pushed::Duplicate),
        "replaced" => Put::Pushed(Pushed::Replaced),
        "debounced" => Put::Pushed(Pushed::Debounced),
        "in_flight" => Put::InFlight,
        "dead" => Put::Dead,
        "other_key" => Put::OtherKey,
        "expires" => Put::Expires,
        other => return Err(Error::corrupt(format!("a script answered {other:?} for a message"))),
    })
}
