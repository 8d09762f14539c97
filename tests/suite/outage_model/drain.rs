//! Checks what a state leads to without further faults, once no call is under way and the logs are empty.

use super::action::Action;
use super::apply::{apply, lose};
use super::breach::Breach;
use super::enabled::may_replay;
use super::rules::Rules;
use super::state::{Name, Redis, World};

/// Far more than two brokers need to empty their logs.
const STEPS_MAX: usize = 100;

/// A promise that is broken some steps after the state that was examined.
pub(super) struct Failed {
    pub(super) breach: Breach,
    pub(super) draining: Vec<Action>,
}

impl From<Breach> for Failed {
    fn from(breach: Breach) -> Self {
        Self { breach, draining: Vec::new() }
    }
}

struct Drain {
    world: World,
    rules: Rules,
    taken: Vec<Action>,
}

/// Lets everything end, consumes what is left, and restarts the brokers; or loses everything, and lets them restore it.
pub(super) fn examine(world: &World, rules: Rules) -> Result<(), Failed> {
    let mut drain = Drain { world: world.clone(), rules, taken: Vec::new() };
    drain.world.copies.clear();
    let outcome = drain.run();
    outcome.map_err(|breach| Failed { breach, draining: drain.taken })
}

impl Drain {
    fn run(&mut self) -> Result<(), Breach> {
        self.settle_down()?;
        if self.world.left.ends_with_loss {
            let mut lost = Drain { world: self.world.clone(), rules: self.rules, taken: self.taken.clone() };
            lost.taken.push(Action::LoseEverything);
            let outcome = lose(&mut lost.world, Redis::default(), self.rules).and_then(|()| lost.settle_down());
            if outcome.is_err() {
                self.taken = lost.taken;
                return outcome;
            }
        }
        self.consume()?;
        for name in Name::BOTH {
            self.world.left.kills = 1;
            self.take(Action::Kill(name))?;
        }
        self.settle_down()
    }

    fn settle_down(&mut self) -> Result<(), Breach> {
        for _ in 0..STEPS_MAX {
            let Some(action) = Name::BOTH.into_iter().find_map(|name| next_step(&self.world, name, self.rules)) else {
                return (0..self.world.left.ids)
                    .try_for_each(|id| self.world.ledger.check_final(&self.world.redis, id));
            };
            self.take(action)?;
        }
        Err(Breach::Stuck)
    }

    fn consume(&mut self) -> Result<(), Breach> {
        for id in 0..self.world.left.ids {
            let Some(message) = self.world.redis.messages[id] else { continue };
            let owner = message.delivery.map(|(owner, _)| owner);
            if owner.is_none() {
                self.take(Action::HandOut(Name::A, id))?;
            }
            self.take(Action::Ack(owner.unwrap_or(Name::A), id))?;
        }
        Ok(())
    }

    fn take(&mut self, action: Action) -> Result<(), Breach> {
        self.taken.push(action);
        apply(&mut self.world, action, self.rules)
    }
}

fn next_step(world: &World, name: Name, rules: Rules) -> Option<Action> {
    let broker = world.broker(name);
    if !broker.up {
        return Some(Action::Start(name));
    }
    if !broker.connected || !broker.reachable {
        return Some(Action::Connect(name));
    }
    if broker.settling.is_some() {
        return Some(Action::AckAnswered(name));
    }
    if broker.pending.is_some() {
        return Some(Action::Answered(name));
    }
    if broker.restoring.is_some() {
        return Some(Action::Restore(name));
    }
    let is_fenced = broker.replayable().next().is_some();
    may_replay(world, name, rules).then_some(if is_fenced { Action::Replay(name, 1) } else { Action::Fence(name) })
}
