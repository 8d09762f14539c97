//! What an action changes.

use super::action::Action;
use super::breach::Breach;
use super::owner;
use super::rules::{Rule, Rules};
use super::scripts::{Answer, Script, same_epoch};
use super::state::{Call, Ids, MESSAGES_MAX, Name, Push, Table, Validity, Verb, World};

pub(super) fn apply(world: &mut World, action: Action, rules: Rules) -> Result<(), Breach> {
    match action {
        Action::Push(id) | Action::PushReplyLost(id) | Action::PushLeavesCopy(id) => push(world, id, action, rules),
        Action::LatePush(id) => {
            world.late_pushes.remove(id);
            execute_push(world, id, rules);
        }
        Action::WindowEnds(id) => {
            world.left.windows -= 1;
            world.redis.seen.remove(id);
            if rules.has(Rule::PushExpires) {
                world.late_pushes.remove(id);
            }
        }
        Action::LateCopy(at) => {
            let call = world.late_copies.remove(at);
            execute(world, &call, rules)?;
        }
        Action::LeaseLapses => lapse_lease(world),
        Action::HoldEnds => {
            world.hold = false;
            for owner in &mut world.owners {
                owner.holds_back = false;
                owner.waits = false;
                owner.valid_at_loss = false;
            }
        }
        Action::Snapshot => world.snapshot = Some(Box::new(world.redis.clone())),
        Action::LoseData => lose_data(world, rules),
        Action::Answered(name)
        | Action::ReplyLost(name)
        | Action::LeavesCopy(name)
        | Action::GivesUp(name)
        | Action::MovesOn(name) => {
            return deliver(world, name, action, rules);
        }
        Action::Expires(name) | Action::Resumes(name) | Action::RenewalIsSlow(name) | Action::RenewalAnswered(name) => {
            renew(world, name, action, rules);
        }
        Action::Crash(name) => {
            world.left.crashes -= 1;
            owner::forget(world, name, rules);
            let holds_back = world.hold && rules.has(Rule::HoldCoversNewProcesses);
            world.owner_mut(name).restart(holds_back);
        }
        _ => return owner::act(world, action, rules),
    }
    Ok(())
}

fn push(world: &mut World, id: usize, action: Action, rules: Rules) {
    world.pushes[id] = if action == Action::Push(id) { Push::Answered } else { Push::Unanswered };
    if action == Action::PushLeavesCopy(id) {
        world.left.late_copies -= 1;
        world.late_pushes.add(id);
        return;
    }
    if action == Action::PushReplyLost(id) {
        world.left.lost_replies -= 1;
    }
    execute_push(world, id, rules);
}

fn execute_push(world: &mut World, id: usize, rules: Rules) {
    let redis = &mut world.redis;
    let exists = redis.bodies.or(redis.dead).has(id) && rules.has(Rule::PushLeavesExistingAlone);
    let acked = redis.seen.has(id) && rules.has(Rule::PushRemembersAcked);
    if !exists && !acked {
        redis.scheduled.add(id);
        redis.bodies.add(id);
        world.ledger.stored.add(id);
    }
}

fn execute(world: &mut World, call: &Call, rules: Rules) -> Result<Answer, Breach> {
    let stamp = world.fresh_stamp();
    let reserve_limit = usize::from(world.left.reserve_limit);
    Script { redis: &mut world.redis, call, rules, stamp, reserve_limit }.run()
}

fn deliver(world: &mut World, name: Name, action: Action, rules: Rules) -> Result<(), Breach> {
    let Some(call) = world.owner(name).call.clone() else { return Ok(()) };
    match action {
        Action::ReplyLost(_) => {
            world.left.lost_replies -= 1;
            execute(world, &call, rules)?;
        }
        Action::LeavesCopy(_) => {
            world.left.late_copies -= 1;
            world.late_copies.push(call);
            world.late_copies.sort();
        }
        Action::GivesUp(_) => {
            world.left.give_ups -= 1;
            world.owner_mut(name).call = None;
        }
        Action::MovesOn(_) => world.owner_mut(name).call = None,
        _ => {
            let answer = execute(world, &call, rules)?;
            world.owner_mut(name).call = None;
            owner::answered(world, &call, answer, rules)?;
        }
    }
    Ok(())
}

fn renew(world: &mut World, name: Name, action: Action, rules: Rules) {
    match action {
        Action::Expires(_) => {
            if world.owner(name).validity == Validity::Valid {
                world.left.lapses -= 1;
            }
            let owner = world.owner_mut(name);
            owner.validity = Validity::Lapsed;
            owner.held = Ids::NONE;
        }
        Action::RenewalIsSlow(_) => {
            world.left.slow_renewals -= 1;
            world.owner_mut(name).renewal_under_way = true;
        }
        Action::RenewalAnswered(_) => {
            world.owner_mut(name).renewal_under_way = false;
            // Counted from its send time, the answer says nothing the owner did not know.
            if !rules.has(Rule::ValidityCountsFromSend) {
                become_valid(world, name);
            }
        }
        _ => resume(world, name, rules),
    }
}

fn resume(world: &mut World, name: Name, rules: Rules) {
    let line = world.redis.line;
    let owner = world.owner_mut(name);
    let epoch = owner.table.as_ref().map(|table| table.prev.epoch).or(owner.last_epoch);
    if !epoch.is_some_and(|epoch| same_epoch(rules, epoch, line.epoch)) && rules.has(Rule::ResumeNeedsEpoch) {
        owner.last_epoch = None;
        return owner::forget(world, name, rules);
    }
    if owner.table.is_none() {
        owner.table = Some(Table { recovered: true, ..Table::new(line) });
    }
    world.redis.lease = Some(world.owner(name).member);
    become_valid(world, name);
}

fn become_valid(world: &mut World, name: Name) {
    let owner = world.owner_mut(name);
    if let Some(table) = &owner.table {
        owner.validity = Validity::Valid;
        owner.held = owner.held.or(table.with_consumers());
    }
}

/// A snapshot's lease was renewed no later than the present one: it has lapsed too.
fn lapse_lease(world: &mut World) {
    let holder = world.redis.lease.take();
    if let Some(snapshot) = &mut world.snapshot {
        snapshot.lease = None;
    }
    for owner in world.owners.iter_mut().filter(|owner| Some(owner.member) == holder) {
        owner.held = Ids::NONE;
    }
}

/// Redis comes back as it was at the snapshot. What it forgot of pushes is offered again by the
/// journal; what it forgot of acks is delivered again, which at-least-once allows.
fn lose_data(world: &mut World, rules: Rules) {
    let Some(snapshot) = world.snapshot.take() else { return };
    world.redis = *snapshot;
    world.left.losses -= 1;
    world.hold = true;
    world.lost_data = true;
    world.ledger.ack_told = Ids::NONE;
    let kept = world.redis.bodies.or(world.redis.dead);
    world.ledger.stored = world.ledger.stored.and(kept);
    let known = kept.or(world.redis.acked);
    for id in (0..MESSAGES_MAX).filter(|&id| !known.has(id)) {
        if world.pushes[id] == Push::Answered {
            world.pushes[id] = Push::Unanswered;
        }
    }
    Name::BOTH.into_iter().for_each(|name| notice_loss(world, name, rules));
}

fn notice_loss(world: &mut World, name: Name, rules: Rules) {
    let owner = world.owner_mut(name);
    owner.holds_back = rules.has(Rule::HoldAfterLoss);
    owner.valid_at_loss = owner.validity == Validity::Valid;
    if owner.validity == Validity::Valid {
        owner.validity = Validity::BeforeLoss;
    } else if owner.table.is_some() && rules.has(Rule::InvalidOwnerForgets) {
        owner::forget(world, name, rules);
    }
    let owner = world.owner_mut(name);
    if let Some(table) = &mut owner.table {
        table.reconnected = true;
    }
    if let Some(Call { verb: Verb::Acquire { overlapped, .. }, .. }) = &mut owner.call {
        *overlapped = true;
    }
}
