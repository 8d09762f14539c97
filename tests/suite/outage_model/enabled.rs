//! Which actions are possible in a state.

use super::action::Action;
use super::rules::{Rule, Rules};
use super::state::{Broker, Kind, Name, World};

/// Everything that can happen in `world`, in a fixed order.
pub(super) fn enabled(world: &World, rules: Rules) -> Vec<Action> {
    let mut actions = Vec::new();
    for name in Name::BOTH {
        clients(world, name, &mut actions);
        calls(world, name, &mut actions);
        replay(world, name, rules, &mut actions);
        consumers(world, name, rules, &mut actions);
        faults(world, name, &mut actions);
    }
    actions.extend((0..world.copies.len()).map(Action::LateCopy));
    let look = |broker: &Broker| !broker.up || !broker.reachable || broker.connected;
    if world.hold && world.brokers.iter().all(look) {
        actions.push(Action::TtlPasses);
    }
    if world.left.losses > 0 {
        actions.push(Action::LoseEverything);
        actions.push(if world.snapshot.is_some() { Action::LoseData } else { Action::Snapshot });
    }
    actions
}

fn clients(world: &World, name: Name, actions: &mut Vec<Action>) {
    let (broker, left) = (world.broker(name), &world.left);
    // The brokers are alike: the first to be asked is A.
    let is_turn = name == Name::A || !(left.one_broker || left.lag == 0 && world.ledger.operations.is_empty());
    if !broker.up || !is_turn || broker.pending.is_some() {
        return;
    }
    if left.operations > 0 {
        for &kind in left.kinds {
            let ids = (0..left.ids).filter(|&id| may_ask(broker, kind, id));
            actions.extend(ids.map(|id| Action::Ask(name, kind, id)));
        }
    }
    purges(world, name, actions);
    if left.deletions > 0 && broker.is_served() && world.redis.topic.is_some() {
        actions.push(Action::DeleteTopic(name));
        if left.lost_replies > 0 {
            actions.push(Action::DeleteTopicUnanswered(name));
        }
    }
}

/// A purge is refused while a broker restores what a loss took.
fn purges(world: &World, name: Name, actions: &mut Vec<Action>) {
    let (broker, left) = (world.broker(name), &world.left);
    if left.purges == 0 || !broker.is_served() || broker.must_offer || world.restored.contains(&false) {
        return;
    }
    actions.push(Action::Purge(name));
    if left.lost_replies > 0 {
        actions.push(Action::PurgeUnanswered(name));
    }
}

/// Whether a broker answers with anything but 503.
fn may_ask(broker: &Broker, kind: Kind, id: usize) -> bool {
    let mut buffered = broker.wal.iter().filter(|record| record.request.id == id && record.request.kind.is_push());
    let was_sent = |number| number <= broker.sent;
    match (kind, broker.is_served()) {
        (Kind::Push | Kind::Deduped | Kind::Replace, _) => true,
        (Kind::Reschedule, is_served) => is_served,
        (Kind::Cancel, true) => !buffered.any(|record| record.is_elsewhere() || was_sent(record.number)),
        (Kind::Cancel, false) => buffered.next().is_some(),
    }
}

fn calls(world: &World, name: Name, actions: &mut Vec<Action>) {
    let (broker, left) = (world.broker(name), &world.left);
    if !broker.up || broker.pending.is_none() {
        return;
    }
    if broker.is_served() {
        actions.push(Action::Answered(name));
        if left.lost_replies > 0 {
            actions.push(Action::ReplyLost(name));
        }
        if left.late_copies > 0 {
            actions.push(Action::LeavesCopy(name));
        }
    }
    if !broker.is_served() || left.time_outs > 0 {
        actions.push(Action::GivesUp(name));
    }
}

fn replay(world: &World, name: Name, rules: Rules, actions: &mut Vec<Action>) {
    let (broker, left) = (world.broker(name), &world.left);
    if !broker.is_served() {
        return;
    }
    if broker.restoring.is_some() {
        actions.push(Action::Restore(name));
        if left.lost_replies > 0 {
            actions.push(Action::RestoreReplyLost(name));
        }
    }
    if may_replay(world, name, rules) {
        let fenced = broker.replayable().count();
        if fenced == 0 {
            actions.push(Action::Fence(name));
        }
        for records in 1..=fenced.min(left.page_records) {
            actions.push(Action::Replay(name, records));
            if left.lost_replies > 0 {
                actions.push(Action::ReplayReplyLost(name, records));
            }
            if left.late_copies > 0 {
                actions.push(Action::ReplayLeavesCopy(name, records));
            }
        }
        if fenced > 0 && left.late_copies > 0 && !rules.has(Rule::UnknownOutcomeHoldsPage) {
            actions.push(Action::ReplayMovesOn(name));
        }
    }
}

pub(super) fn may_replay(world: &World, name: Name, rules: Rules) -> bool {
    let broker = world.broker(name);
    let is_held_back = broker.wal.iter().any(|record| world.holds_back(name, record.request.kind, rules));
    let is_restored = !broker.must_offer || !rules.has(Rule::ReplayWaitsForRestore);
    broker.is_served() && is_restored && !is_held_back && !broker.wal.is_empty()
}

fn consumers(world: &World, name: Name, rules: Rules, actions: &mut Vec<Action>) {
    let broker = world.broker(name);
    if !broker.is_served() {
        return;
    }
    if broker.settling.is_some() {
        return actions.push(Action::AckAnswered(name));
    }
    for id in 0..world.left.ids {
        let Some(message) = world.redis.messages[id] else { continue };
        match message.delivery {
            None => {
                let is_due = world.ledger.operations[message.body.due.op].kind != Kind::Reschedule;
                if is_due && world.left.deliveries > 0 && world.is_restored(name, rules) {
                    actions.push(Action::HandOut(name, id));
                }
                if world.left.late_acks > 0 && world.too_late[id].is_some() {
                    actions.push(Action::AckLate(name, id));
                    if world.left.lost_replies > 0 {
                        actions.push(Action::AckLateReplyLost(name, id));
                    }
                }
            }
            Some((owner, _)) if owner == name => {
                actions.push(Action::Ack(name, id));
                if world.left.lost_replies > 0 {
                    actions.push(Action::AckReplyLost(name, id));
                }
                if world.left.deliveries > 0 {
                    actions.push(Action::Nack(name, id));
                }
            }
            Some(_) => {}
        }
    }
}

fn faults(world: &World, name: Name, actions: &mut Vec<Action>) {
    let (broker, left) = (world.broker(name), &world.left);
    let delivers =
        world.redis.messages.iter().flatten().any(|message| message.delivery.is_some_and(|(owner, _)| owner == name));
    if broker.up {
        if broker.reachable && left.outages > 0 {
            actions.push(Action::CutOff(name));
        }
        if !broker.connected || !broker.reachable {
            actions.push(Action::Connect(name));
        }
        if !broker.reachable && (delivers || broker.settling.is_some()) {
            actions.push(Action::LeaseLapses(name));
        }
        if left.kills > 0 {
            actions.push(Action::Kill(name));
        }
        let is_idle = broker.pending.is_none() && broker.settling.is_none();
        if left.hand_overs > 0 && is_idle && !broker.is_served() && world.broker(name.other()).up {
            actions.extend([Action::HandOver, Action::HandOverUnanswered, Action::HandOverInPart].map(|act| act(name)));
        }
    } else {
        actions.push(Action::Start(name));
    }
    let is_silent = !broker.up || !broker.reachable;
    if world.lost_data && is_silent && !world.restored[name as usize] && !world.silent[name as usize] {
        actions.push(Action::Silent(name));
    }
}
