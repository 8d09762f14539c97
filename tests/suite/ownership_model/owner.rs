//! What an owner sends, and what it makes of the answers.

use super::action::Action;
use super::breach::Breach;
use super::rules::{Rule, Rules};
use super::scripts::{Answer, Body};
use super::state::{Call, Decision, Ids, MESSAGES_MAX, Name, Settled, Slot, Stage, Table, Validity, Verb, World};

pub(super) fn act(world: &mut World, action: Action, rules: Rules) -> Result<(), Breach> {
    match action {
        Action::Acquire(name) => acquire(world, name, rules),
        Action::Release(name) => release(world, name, rules),
        Action::Recover(name) => send(world, name, Verb::Recover),
        Action::Reserve(name) => send(world, name, Verb::Reserve),
        Action::Start(name) => {
            let counts = world.table(name).map_or_else(Vec::new, |table| to_charge(table, rules));
            send(world, name, Verb::Start { counts });
        }
        Action::Settle(name) => {
            if let Some(verb) = world.table(name).map(|table| settle(table, rules)) {
                send(world, name, verb);
            }
        }
        Action::HandOut(name, id) => hand_out(world, name, id)?,
        Action::Ack(name, id) => {
            world.ledger.ack_asked.add(id);
            if !rules.has(Rule::VerdictWaitsForChain) {
                world.ledger.ack_told.add(id);
            }
            decide(world, name, id, Decision::Ack);
        }
        Action::Nack(name, id) | Action::DeadlineAfterAck(name, id) => {
            decide(world, name, id, Decision::Nack);
        }
        Action::AckOfEarlierEpoch(name, id) => decide(world, name, id, Decision::AckOfEarlierEpoch),
        Action::GiveBack(name) => give_back(world, name, rules),
        _ => {}
    }
    Ok(())
}

fn send(world: &mut World, name: Name, verb: Verb) {
    let owner = world.owner_mut(name);
    if let Some(table) = &owner.table {
        owner.call = Some(Call { member: owner.member, prev: table.prev, verb });
    }
}

fn acquire(world: &mut World, name: Name, rules: Rules) {
    world.left.acquires -= 1;
    forget(world, name, rules);
    let fresh = rules.has(Rule::TokenIsNeverReused);
    let token = if fresh { world.fresh_token() } else { 1 + name as u8 };
    let prev = world.redis.line;
    let owner = world.owner_mut(name);
    owner.last_epoch = None;
    owner.call = Some(Call { member: owner.member, prev, verb: Verb::Acquire { token, overlapped: false } });
}

/// From here on the owner hands nothing out and keeps nothing, whatever becomes of the call.
fn release(world: &mut World, name: Name, rules: Rules) {
    world.left.releases -= 1;
    send(world, name, Verb::Release);
    let call = world.owner_mut(name).call.take();
    forget(world, name, rules);
    let owner = world.owner_mut(name);
    owner.call = call;
    owner.held = Ids::NONE;
    owner.last_epoch = None;
}

/// The table is dropped, and with it what was to be said about its messages.
pub(super) fn forget(world: &mut World, name: Name, rules: Rules) {
    let lost_data = world.lost_data;
    let owner = world.owner_mut(name);
    let was_valid = owner.validity != Validity::Lapsed;
    owner.validity = Validity::Lapsed;
    let Some(table) = owner.table.take() else { return };
    owner.call = None;
    if lost_data || !was_valid {
        owner.held = Ids::NONE;
    }
    if !rules.has(Rule::ResumeNeedsTable) {
        owner.last_epoch = Some(table.prev.epoch);
    }
    if !rules.has(Rule::AckNeedsItsDelivery) {
        owner.old_receipts = owner.old_receipts.or(table.with_consumers());
    }
}

pub(super) fn decided(table: &Table) -> Ids {
    table.select(|stage| matches!(stage, Stage::Decided(..)))
}

pub(super) fn may_reserve(table: &Table, rules: Rules) -> bool {
    table.recovered || !rules.has(Rule::RecoverBeforeReserve)
}

/// Without one an owner sleeps.
pub(super) fn has_reason_to_reserve(world: &World, table: &Table, rules: Rules) -> bool {
    let reconnected = table.reconnected && rules.has(Rule::ReserveAfterReconnect);
    reconnected || !world.redis.scheduled.is_empty()
}

/// What must be charged before a consumer may have it.
pub(super) fn to_start(table: &Table, rules: Rules) -> Ids {
    let charges = rules.has(Rule::StartChargesBeforeHandOut);
    table.select(|stage| charges && matches!(stage, Stage::Prefetched(1..)))
}

pub(super) fn to_hand_out(table: &Table, rules: Rules) -> Ids {
    let charges = rules.has(Rule::StartChargesBeforeHandOut);
    table.select(|stage| match stage {
        Stage::Prefetched(count) => count == 0 || !charges,
        Stage::Started(_) => true,
        Stage::Handed(_) | Stage::Decided(..) => false,
    })
}

fn to_charge(table: &Table, rules: Rules) -> Vec<(usize, u8)> {
    let count = |id| match table.stage(id) {
        Some(Stage::Prefetched(count)) => count + 1,
        _ => 0,
    };
    to_start(table, rules).iter().map(|id| (id, count(id))).collect()
}

fn settle(table: &Table, rules: Rules) -> Verb {
    let mut settled = Vec::new();
    let mut left = Vec::new();
    for (id, slot) in table.slots.iter().enumerate() {
        let Some(Slot { seq, stage: Stage::Decided(decision, attempts) }) = *slot else { continue };
        settled.push(Settled { id, decision, attempts });
        let in_field = |wanted: fn(Stage) -> bool| -> Ids {
            (0..MESSAGES_MAX)
                .filter(|&id| table.slots[id].is_some_and(|slot| slot.seq == seq && wanted(slot.stage)))
                .collect()
        };
        let remaining = in_field(|stage| !matches!(stage, Stage::Decided(..)));
        let scheduled = in_field(|stage| matches!(stage, Stage::Decided(Decision::Nack | Decision::GiveBack, _)));
        let rewrite = if remaining.is_empty() {
            rules.has(Rule::EmptyReservationGoes)
        } else {
            !scheduled.is_empty() && rules.has(Rule::NackRewritesReservation)
        };
        if rewrite && !left.contains(&(seq, remaining)) {
            left.push((seq, remaining));
        }
    }
    Verb::Settle { settled, left }
}

fn hand_out(world: &mut World, name: Name, id: usize) -> Result<(), Breach> {
    if world.owners.iter().any(|owner| owner.held.has(id)) {
        return Err(Breach::TwoConsumers(id));
    }
    if world.ledger.ack_told.has(id) {
        return Err(Breach::AckedYetHandedOut(id));
    }
    world.ledger.handed_out[id] += 1;
    world.redis.started.remove(id);
    let owner = world.owner_mut(name);
    owner.held.add(id);
    if let Some(table) = &mut owner.table {
        let attempt = match table.stage(id) {
            Some(Stage::Started(count)) => count,
            Some(Stage::Prefetched(count)) => count + 1,
            _ => 0,
        };
        table.set(id, Stage::Handed(attempt));
    }
    Ok(())
}

fn decide(world: &mut World, name: Name, id: usize, decision: Decision) {
    let max_attempts = world.left.max_attempts;
    let owner = world.owner_mut(name);
    owner.held.remove(id);
    let Some(table) = &mut owner.table else { return };
    let attempt = match table.stage(id) {
        Some(Stage::Handed(attempt) | Stage::Decided(_, attempt)) => attempt,
        _ => 0,
    };
    let exhausted = decision == Decision::Nack && attempt >= max_attempts;
    let decision = if exhausted { Decision::Bury } else { decision };
    table.set(id, Stage::Decided(decision, attempt));
}

fn give_back(world: &mut World, name: Name, rules: Rules) {
    world.left.give_backs -= 1;
    let charge = u8::from(!rules.has(Rule::GiveBackIsUncharged));
    let Some(table) = &mut world.owner_mut(name).table else { return };
    for id in 0..MESSAGES_MAX {
        match table.stage(id) {
            Some(Stage::Prefetched(count)) => table.set(id, Stage::Decided(Decision::GiveBack, count + charge)),
            Some(Stage::Started(count)) => table.set(id, Stage::Decided(Decision::GiveBack, count - 1 + charge)),
            _ => {}
        }
    }
}

pub(super) fn answered(world: &mut World, call: &Call, answer: Answer, rules: Rules) -> Result<(), Breach> {
    let name = call.member.name;
    match answer {
        Answer::Acquired(line) => {
            let overlapped = matches!(call.verb, Verb::Acquire { overlapped: true, .. });
            let hold = world.hold;
            let owner = world.owner_mut(name);
            owner.validity = Validity::Valid;
            owner.waits = overlapped && hold && rules.has(Rule::OverlappingAcquireWaits);
            owner.table = Some(Table::new(line));
        }
        Answer::Refused | Answer::Released => {}
        Answer::Recovered { more } => {
            if let Some(table) = &mut world.owner_mut(name).table {
                table.recovered = !more;
            }
        }
        Answer::Stale | Answer::Rewound | Answer::Late => forget(world, name, rules),
        Answer::Applied { line, bodies, in_flight } => {
            let max_attempts = world.left.max_attempts;
            let owner = world.owner_mut(name);
            let Some(table) = &mut owner.table else { return Ok(()) };
            table.prev = line;
            match &call.verb {
                Verb::Reserve => {
                    take_in(table, &bodies, max_attempts)?;
                    audit(world, name, in_flight, rules)?;
                }
                Verb::Start { counts } => counts.iter().for_each(|&(id, count)| table.set(id, Stage::Started(count))),
                Verb::Settle { settled, .. } => {
                    let told = clear(table, settled);
                    world.ledger.ack_told = world.ledger.ack_told.or(told);
                }
                Verb::Acquire { .. } | Verb::Release | Verb::Recover => {}
            }
        }
    }
    Ok(())
}

/// A message that has used up its attempts is not handed out again.
fn take_in(table: &mut Table, bodies: &[Body], max_attempts: u8) -> Result<(), Breach> {
    for &(id, count) in bodies {
        if table.slots[id].is_some() {
            return Err(Breach::TwoConsumers(id));
        }
        let exhausted = count >= max_attempts;
        let stage = if exhausted { Stage::Decided(Decision::Bury, count) } else { Stage::Prefetched(count) };
        table.slots[id] = Some(Slot { seq: table.prev.seq, stage });
    }
    table.reconnected = false;
    Ok(())
}

/// What Redis says is in flight must be what the owner holds.
fn audit(world: &mut World, name: Name, in_flight: usize, rules: Rules) -> Result<(), Breach> {
    let holds = world.table(name).map_or(0, |table| table.select(|_| true).len());
    if holds == in_flight || !rules.has(Rule::AuditEndsEpoch) {
        return Ok(());
    }
    if !world.lost_data {
        return Err(Breach::FalseAlarm);
    }
    forget(world, name, rules);
    Ok(())
}

/// Returns the acks that now count.
fn clear(table: &mut Table, settled: &[Settled]) -> Ids {
    let mut told = Ids::NONE;
    for one in settled {
        if table.stage(one.id) == Some(Stage::Decided(one.decision, one.attempts)) {
            table.slots[one.id] = None;
            if one.decision == Decision::Ack {
                told.add(one.id);
            }
        }
    }
    told
}
