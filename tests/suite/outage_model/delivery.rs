//! A broker and its consumers, as the owner of the partition.

use super::breach::Breach;
use super::broker::Act;
use super::rules::Rule;
use super::state::{Answered, Settling};

impl Act<'_> {
    pub(super) fn hand_out(&mut self, id: usize) -> Result<(), Breach> {
        let name = self.name;
        let world = &mut *self.world;
        let Some(message) = &mut world.redis.messages[id] else { return Ok(()) };
        let body = message.body;
        message.delivery = Some((name, body));
        world.left.deliveries = world.left.deliveries.saturating_sub(1);
        world.too_late[id] = None;
        world.ledger.check_hand_out(id, body, world.lost_data, world.silent)
    }

    pub(super) fn ack(&mut self, id: usize, is_answered: bool) {
        let delivery = self.world.redis.messages[id].and_then(|message| message.delivery);
        let Some((_, body)) = delivery.filter(|(owner, _)| *owner == self.name) else { return };
        let is_restoring = self.world.restored.contains(&false);
        self.script().settle(id, body, is_restoring);
        if is_answered {
            self.settled(Settling { id, body });
        } else {
            self.world.ledger.perhaps_settle(id, body);
            self.world.broker_mut(self.name).settling = Some(Settling { id, body });
        }
    }

    pub(super) fn settled(&mut self, Settling { id, body }: Settling) {
        self.world.broker_mut(self.name).settling = None;
        self.world.ledger.settle(id, body, self.name);
        if self.rules.has(Rule::SettlementsAreJournaled) {
            self.keep(Answered::End { id, version: body.payload.version });
        }
    }

    /// A consumer fails, or is too late.
    pub(super) fn nack(&mut self, id: usize) {
        let Some(message) = &mut self.world.redis.messages[id] else { return };
        self.world.too_late[id] = message.delivery.take().map(|(_, body)| body);
    }

    /// An ack of a delivery that is over, at any broker.
    pub(super) fn ack_late(&mut self, id: usize, is_answered: bool) {
        self.world.left.late_acks -= 1;
        let Some(body) = self.world.too_late[id].take() else { return };
        if !self.script().settle_late(id, body) {
            return;
        }
        if !is_answered {
            self.world.ledger.perhaps_settle(id, body);
            return;
        }
        self.world.ledger.settle(id, body, self.name);
        if self.rules.has(Rule::LateAcksAreJournaled) {
            self.keep(Answered::End { id, version: body.version() });
        }
    }

    /// The owner lost the partition before its settlement was answered.
    pub(super) fn lose_partition(&mut self) -> Result<(), Breach> {
        let name = self.name;
        for (message, too_late) in self.world.redis.messages.iter_mut().zip(&mut self.world.too_late) {
            let Some(message) = message else { continue };
            if let Some((_, body)) = message.delivery.take_if(|(owner, _)| *owner == name) {
                *too_late = Some(body);
            }
        }
        if self.world.broker_mut(name).settling.take().is_none() {
            return Ok(());
        }
        if self.rules.has(Rule::UnknownOutcomesAreNamed) { Ok(()) } else { Err(Breach::FalseStale) }
    }
}
