//! Applies an action to the world.

use super::action::Action;
use super::bounds::Bounds;
use super::breach::Breach;
use super::broker::Act;
use super::ledger::Answer;
use super::rules::Rules;
use super::scripts::{Reply, Script};
use super::state::{Answered, Body, Copy, IDS, Name, Redis, Request, World};

pub(super) fn apply(world: &mut World, action: Action, rules: Rules) -> Result<(), Breach> {
    match action {
        Action::Ask(name, kind, id) => return act(world, name, rules).ask(kind, id),
        Action::DeleteTopic(name) => act(world, name, rules).delete_topic(true),
        Action::DeleteTopicUnanswered(name) => {
            act(world, name, rules).delete_topic(false);
            world.left.lost_replies -= 1;
        }
        Action::Purge(name) => act(world, name, rules).purge(true),
        Action::PurgeUnanswered(name) => {
            act(world, name, rules).purge(false);
            world.left.lost_replies -= 1;
        }
        Action::Answered(name) => act(world, name, rules).answered(),
        Action::ReplyLost(name) => {
            act(world, name, rules).execute();
            world.left.lost_replies -= 1;
        }
        Action::LeavesCopy(name) => {
            if let Some(call) = world.broker(name).pending {
                act(world, name, rules).leave_copy(Copy::Call(call));
            }
        }
        Action::GivesUp(name) => {
            if world.broker(name).is_served() {
                world.left.time_outs -= 1;
            }
            act(world, name, rules).give_up();
        }
        Action::LateCopy(at) => return late_copy(world, at, rules),
        Action::Fence(name) => act(world, name, rules).fence(),
        Action::Replay(name, records) => act(world, name, rules).replay(records),
        Action::ReplayReplyLost(name, records) => {
            let page = act(world, name, rules).page(records);
            act(world, name, rules).send_page(&page);
            world.left.lost_replies -= 1;
        }
        Action::ReplayLeavesCopy(name, records) => {
            let page = act(world, name, rules).page(records);
            let sent = page.records.last().map_or(0, |record| record.number);
            act(world, name, rules).leave_copy(Copy::Page(page));
            let broker = world.broker_mut(name);
            broker.sent = broker.sent.max(sent);
        }
        Action::ReplayMovesOn(name) => {
            let page = act(world, name, rules).page(1);
            act(world, name, rules).leave_copy(Copy::Page(page.clone()));
            act(world, name, rules).move_page_on(&page);
        }
        Action::Restore(name) => act(world, name, rules).restore(),
        Action::RestoreReplyLost(name) => {
            world.left.lost_replies -= 1;
            act(world, name, rules).offer();
        }
        Action::HandOut(name, id) => return act(world, name, rules).hand_out(id),
        Action::Ack(name, id) => act(world, name, rules).ack(id, true),
        Action::AckReplyLost(name, id) => {
            act(world, name, rules).ack(id, false);
            world.left.lost_replies -= 1;
        }
        Action::AckAnswered(name) => {
            if let Some(settling) = world.broker(name).settling {
                act(world, name, rules).settled(settling);
            }
        }
        Action::Nack(name, id) => act(world, name, rules).nack(id),
        Action::AckLate(name, id) => act(world, name, rules).ack_late(id, true),
        Action::AckLateReplyLost(name, id) => {
            act(world, name, rules).ack_late(id, false);
            world.left.lost_replies -= 1;
        }
        Action::LeaseLapses(name) => return act(world, name, rules).lose_partition(),
        Action::Connect(name) => act(world, name, rules).connect(),
        Action::Start(name) => act(world, name, rules).start(),
        Action::Kill(name) => {
            act(world, name, rules).kill();
            world.left.kills -= 1;
        }
        Action::HandOver(name) => return act(world, name, rules).hand_over(),
        Action::HandOverUnanswered(name) => return act(world, name, rules).hand_over_unanswered(),
        Action::HandOverInPart(name) => return act(world, name, rules).hand_over_in_part(),
        Action::CutOff(name) => {
            world.left.outages -= 1;
            world.broker_mut(name).reachable = false;
        }
        Action::Snapshot => world.snapshot = Some(Box::new(world.redis.clone())),
        Action::LoseData => {
            if let Some(snapshot) = world.snapshot.take() {
                return lose(world, *snapshot, rules);
            }
        }
        Action::LoseEverything => return lose(world, Redis::default(), rules),
        Action::Silent(name) => {
            world.silent[name as usize] = true;
            world.ledger.key_is_excused = true;
        }
        Action::TtlPasses => {
            world.hold = false;
            for name in Name::BOTH {
                world.silent[name as usize] |= !world.broker(name).is_served();
            }
            world.ledger.key_is_excused |= world.silent.contains(&true);
        }
    }
    Ok(())
}

fn late_copy(world: &mut World, at: usize, rules: Rules) -> Result<(), Breach> {
    let copy = world.copies.remove(at);
    let mut script = Script { redis: &mut world.redis, ledger: &mut world.ledger, rules };
    match copy {
        Copy::Page(page) => {
            script.page(&page);
        }
        Copy::Call(call) => {
            let reply = script.live(call);
            let was_changed = matches!(reply, Reply::Done(verdict, _) if verdict.changed());
            let Request { kind, id, stamp } = call.request;
            if was_changed && !kind.is_push() && world.ledger.operation(stamp).answer == Answer::Unknown {
                return Err(Breach::TookEffectLate(id));
            }
        }
    }
    Ok(())
}

/// Redis comes back as `kept`; each broker finds out when it connects.
pub(super) fn lose(world: &mut World, kept: Redis, rules: Rules) -> Result<(), Breach> {
    world.left.losses = world.left.losses.saturating_sub(1);
    world.snapshot = None;
    // A copy does not outlive the process that it was sent to.
    world.copies.clear();
    world.ledger.key_is_excused |= world.redis.first_of_key.is_some_and(|first| is_in_no_journal(world, first));
    world.redis = kept;
    world.ledger.lose();
    world.lost_data = true;
    world.hold = true;
    world.restored = [false; 2];
    world.silent = [false; 2];
    for name in Name::BOTH {
        act(world, name, rules).lose_partition()?;
        // A restored message has no attempts.
        world.too_late = [None; IDS];
        let broker = world.broker_mut(name);
        broker.connected = false;
        broker.fenced = 0;
        broker.must_offer = true;
        broker.restoring = None;
    }
    Ok(())
}

/// Whether a push left nothing but its dedup key.
fn is_in_no_journal(world: &World, first: Request) -> bool {
    let is_of = |body: Body| body.payload.op == first.stamp.op;
    let mut journaled = world.brokers.iter().flat_map(|broker| &broker.journal);
    let is_journaled = journaled.any(|answered| matches!(answered, Answered::Set { body, .. } if is_of(*body)));
    !is_journaled && !world.redis.messages[first.id].is_some_and(|message| is_of(message.body))
}

/// The world in which a search starts.
pub(super) fn start(bounds: Bounds, rules: Rules) -> World {
    let mut world = World::new(bounds);
    if bounds.pushed_before {
        act(&mut world, Name::A, rules).push_before(0);
    }
    world
}

fn act(world: &mut World, name: Name, rules: Rules) -> Act<'_> {
    Act { world, name, rules }
}
