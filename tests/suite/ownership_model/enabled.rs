//! Which actions are possible in a state.

use super::action::Action;
use super::owner;
use super::rules::{Rule, Rules};
use super::scripts::same_member;
use super::state::{Decision, Line, Name, Push, Stage, Validity, Verb, World};

/// Everything that can happen in `world`, in a fixed order.
pub(super) fn enabled(world: &World, rules: Rules) -> Vec<Action> {
    let mut actions = Vec::new();
    (0..usize::from(world.left.messages)).for_each(|id| pushes(world, id, &mut actions));
    for name in Name::BOTH {
        calls(world, name, rules, &mut actions);
        network(world, name, rules, &mut actions);
        consumers(world, name, rules, &mut actions);
        time(world, name, rules, &mut actions);
    }
    actions.extend((0..world.late_copies.len()).map(Action::LateCopy));
    if lease_may_lapse(world, rules) {
        actions.push(Action::LeaseLapses);
    }
    if world.hold && world.owners.iter().all(|owner| owner.validity != Validity::BeforeLoss) {
        actions.push(Action::HoldEnds);
    }
    if world.snapshot.is_some() {
        actions.push(Action::LoseData);
    } else if world.left.losses > 0 {
        actions.push(Action::Snapshot);
    }
    actions
}

fn pushes(world: &World, id: usize, actions: &mut Vec<Action>) {
    if world.pushes[id] != Push::Answered {
        actions.push(Action::Push(id));
        if world.left.lost_replies > 0 {
            actions.push(Action::PushReplyLost(id));
        }
        if world.left.late_copies > 0 && !world.late_pushes.has(id) {
            actions.push(Action::PushLeavesCopy(id));
        }
    }
    if world.late_pushes.has(id) {
        actions.push(Action::LatePush(id));
    }
    if world.redis.seen.has(id) && world.pushes[id] == Push::Answered && world.left.windows > 0 {
        actions.push(Action::WindowEnds(id));
    }
}

fn calls(world: &World, name: Name, rules: Rules, actions: &mut Vec<Action>) {
    let owner = world.owner(name);
    let in_chain = owner.call.as_ref().is_some_and(|call| in_chain(&call.verb));
    if owner.table.is_some() && (owner.call.is_none() || in_chain) && world.left.releases > 0 {
        actions.push(Action::Release(name));
    }
    if owner.call.is_some() {
        return;
    }
    if may_acquire(world, name, rules) {
        actions.push(Action::Acquire(name));
    }
    let Some(table) = &owner.table else { return };
    if owner.validity != Validity::Lapsed {
        if !table.recovered {
            actions.push(Action::Recover(name));
        }
        if owner::may_reserve(table, rules) && owner::has_reason_to_reserve(world, table, rules) {
            actions.push(Action::Reserve(name));
        }
        if !owner::to_start(table, rules).is_empty() {
            actions.push(Action::Start(name));
        }
    }
    if !owner::decided(table).is_empty() {
        actions.push(Action::Settle(name));
    }
}

fn in_chain(verb: &Verb) -> bool {
    matches!(verb, Verb::Reserve | Verb::Settle { .. } | Verb::Start { .. })
}

fn may_acquire(world: &World, name: Name, rules: Rules) -> bool {
    let owner = world.owner(name);
    let mine = world.redis.lease.is_some_and(|holder| same_member(rules, holder, owner.member));
    let free = world.redis.lease.is_none() || mine || !rules.has(Rule::LeaseExcludesOthers);
    let spared = mine && (owner.valid_at_loss || !rules.has(Rule::HoldSparesOnlyValidOwners));
    let held_back = owner.holds_back && !spared;
    let idle = owner.table.is_none() || owner.validity == Validity::Lapsed;
    // The owners are alike: the first to come is A.
    let in_turn = name == Name::A || world.redis.line != Line::default() || world.lost_data;
    idle && free && !held_back && in_turn && world.left.acquires > 0
}

fn network(world: &World, name: Name, rules: Rules, actions: &mut Vec<Action>) {
    let Some(call) = &world.owner(name).call else { return };
    actions.push(Action::Answered(name));
    if world.left.lost_replies > 0 {
        actions.push(Action::ReplyLost(name));
    }
    if world.left.late_copies > 0 {
        actions.push(Action::LeavesCopy(name));
    }
    if matches!(call.verb, Verb::Acquire { .. } | Verb::Release) && world.left.give_ups > 0 {
        actions.push(Action::GivesUp(name));
    }
    if in_chain(&call.verb) && !rules.has(Rule::UnansweredCallIsRepeated) {
        actions.push(Action::MovesOn(name));
    }
}

fn consumers(world: &World, name: Name, rules: Rules, actions: &mut Vec<Action>) {
    let owner = world.owner(name);
    let Some(table) = &owner.table else { return };
    let lapsed = owner.validity == Validity::Lapsed && rules.has(Rule::LapsedOwnerHandsOutNothing);
    if !lapsed && !owner.waits {
        actions.extend(owner::to_hand_out(table, rules).iter().map(|id| Action::HandOut(name, id)));
    }
    for id in table.with_consumers().iter() {
        actions.push(Action::Ack(name, id));
        actions.push(Action::Nack(name, id));
    }
    let unread = table.select(|stage| matches!(stage, Stage::Prefetched(_) | Stage::Started(_)));
    if world.left.give_backs > 0 && !unread.is_empty() {
        actions.push(Action::GiveBack(name));
    }
    if !rules.has(Rule::FirstDecisionStands) {
        let acks = table.select(|stage| matches!(stage, Stage::Decided(Decision::Ack, _)));
        actions.extend(acks.iter().map(|id| Action::DeadlineAfterAck(name, id)));
    }
    if !rules.has(Rule::AckNeedsItsDelivery) {
        let undecided = table.select(|stage| !matches!(stage, Stage::Decided(..)));
        let receipts = world.owners[0].old_receipts.or(world.owners[1].old_receipts);
        actions.extend(undecided.and(receipts).iter().map(|id| Action::AckOfEarlierEpoch(name, id)));
    }
}

fn time(world: &World, name: Name, rules: Rules, actions: &mut Vec<Action>) {
    let owner = world.owner(name);
    if owner.validity == Validity::BeforeLoss || (owner.validity == Validity::Valid && world.left.lapses > 0) {
        actions.push(Action::Expires(name));
    }
    let knows_epoch = owner.table.is_some() || (owner.call.is_none() && owner.last_epoch.is_some());
    let lease_open = world.redis.lease.is_none_or(|holder| same_member(rules, holder, owner.member));
    if knows_epoch && lease_open && owner.validity != Validity::Valid {
        actions.push(Action::Resumes(name));
    }
    if owner.validity == Validity::Valid && world.left.slow_renewals > 0 {
        actions.push(Action::RenewalIsSlow(name));
    }
    if owner.renewal_under_way {
        actions.push(Action::RenewalAnswered(name));
    }
    let remembers = owner.table.is_some() || owner.call.is_some() || owner.holds_back;
    if world.left.crashes > 0 && remembers {
        actions.push(Action::Crash(name));
    }
}

/// An owner's validity ends before its lease does, unless Redis forgot the renewal.
fn lease_may_lapse(world: &World, rules: Rules) -> bool {
    world.redis.lease.is_some_and(|holder| {
        let valid = |name| {
            world.owner(name).validity == Validity::Valid && same_member(rules, holder, world.owner(name).member)
        };
        !Name::BOTH.into_iter().any(valid)
    })
}
