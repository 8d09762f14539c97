//! From every state, with no more faults, either owner alone must be able to settle everything.

use super::action::Action;
use super::apply::apply;
use super::bounds::Bounds;
use super::breach::Breach;
use super::check::check;
use super::owner;
use super::rules::Rules;
use super::state::{Ids, MESSAGES_MAX, Name, Push, Validity, World};

/// Far more than draining any of the small worlds takes.
const DRAIN_STEPS_MAX: usize = 200;

/// A breach in a state, or on the way on from it without further faults.
pub(super) struct Failed {
    pub(super) breach: Breach,
    pub(super) draining: Vec<Action>,
}

impl From<Breach> for Failed {
    fn from(breach: Breach) -> Self {
        Self { breach, draining: Vec::new() }
    }
}

/// Whether everything holds in `world`, and either owner can settle what is left.
pub(super) fn examine(world: &World, rules: Rules) -> Result<(), Failed> {
    check(world)?;
    for survivor in Name::BOTH {
        let mut draining = Vec::new();
        drain(world.clone(), survivor, rules, &mut draining).map_err(|breach| Failed { breach, draining })?;
    }
    Ok(())
}

fn drain(mut world: World, survivor: Name, rules: Rules, taken: &mut Vec<Action>) -> Result<(), Breach> {
    end_faults(&mut world, survivor);
    for action in time_passes(&world, survivor) {
        taken.push(action);
        apply(&mut world, action, rules)?;
    }
    for _ in 0..DRAIN_STEPS_MAX {
        let Some(action) = next_step(&world, survivor, rules) else {
            return check_drained(&world);
        };
        taken.push(action);
        apply(&mut world, action, rules)?;
        check(&world)?;
    }
    Err(Breach::Stuck)
}

/// The other owner dies, its lease lapses, late copies never arrive.
fn end_faults(world: &mut World, survivor: Name) {
    world.owner_mut(survivor.other()).restart(false);
    world.late_copies.clear();
    world.late_pushes = Ids::NONE;
    world.snapshot = None;
    world.left = Bounds { acquires: u8::MAX, ..world.left };
    if world.redis.lease.is_some_and(|holder| holder != world.owner(survivor).member) {
        world.redis.lease = None;
    }
}

/// The survivor renews its lease, and a hold passes.
fn time_passes(world: &World, survivor: Name) -> impl Iterator<Item = Action> + use<> {
    let owner = world.owner(survivor);
    let resumes = owner.table.is_some() && owner.validity != Validity::Valid;
    let resumes = resumes.then_some(Action::Resumes(survivor));
    resumes.into_iter().chain(world.hold.then_some(Action::HoldEnds))
}

fn next_step(world: &World, name: Name, rules: Rules) -> Option<Action> {
    let owner = world.owner(name);
    if let Some(id) = (0..MESSAGES_MAX).find(|&id| world.pushes[id] == Push::Unanswered) {
        return Some(Action::Push(id));
    }
    if owner.call.is_some() {
        return Some(Action::Answered(name));
    }
    let Some(table) = &owner.table else {
        return Some(Action::Acquire(name));
    };
    if let Some(id) = table.with_consumers().iter().next() {
        return Some(Action::Ack(name, id));
    }
    if let Some(id) = owner::to_hand_out(table, rules).iter().next() {
        return Some(Action::HandOut(name, id));
    }
    let reserves = owner::has_reason_to_reserve(world, table, rules);
    let recovers = !(table.recovered || reserves && owner::may_reserve(table, rules));
    if recovers {
        Some(Action::Recover(name))
    } else if !owner::decided(table).is_empty() {
        Some(Action::Settle(name))
    } else if !owner::to_start(table, rules).is_empty() {
        Some(Action::Start(name))
    } else {
        reserves.then_some(Action::Reserve(name))
    }
}

fn check_drained(world: &World) -> Result<(), Breach> {
    let redis = &world.redis;
    if !redis.bodies.is_empty() {
        return Err(Breach::Stuck);
    }
    let clean =
        redis.scheduled.is_empty() && redis.reservations.is_empty() && redis.attempts.iter().all(|&count| count == 0);
    if clean { Ok(()) } else { Err(Breach::Leak) }
}
