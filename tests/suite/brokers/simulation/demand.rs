//! Demand that comes and goes: partitions follow the consumers, and nothing else moves them.

use dwell::coordination::membership::LINGER;
use dwell::model::error::Result;
use dwell::model::partition::Partition;
use fastrand::Rng;

use super::convergence::{DEFAULTS, group};
use super::incidents::Fate;
use super::network::Network;
use super::store::Ms;
use super::world::{What, World};
use super::{Seed, is_long, seeds};

const TTL: Ms = DEFAULTS.0;
const HEARTBEAT: Ms = DEFAULTS.1;

/// How long a member without consumers keeps its partitions at most, when another has consumers and announcements are
/// heard: demand lingers, then they are handed over.
const WAIT_MAX: Ms = 2_000;

fn linger() -> Ms {
    Ms::try_from(LINGER.as_millis()).unwrap_or(Ms::MAX)
}

/// Nobody wants messages but from the first member.
fn only_the_first_wants(world: &mut World) {
    for who in 1..world.processes.len() {
        world.want(who, false);
    }
}

/// Messages that are due, until somebody gets them.
#[derive(Default)]
struct Due {
    waiting: Vec<(Partition, Ms)>,
    waits: Vec<Ms>,
}

impl Due {
    fn push(&mut self, world: &mut World) {
        let partition = Partition(world.random.u16(..world.partitions));
        self.waiting.push((partition, world.now));
    }

    /// Lets happen what happens until then, and notes who got what.
    fn run_until(&mut self, world: &mut World, until: Ms) {
        loop {
            let Due { waiting, waits } = self;
            waiting.retain(|(partition, since)| {
                let is_taken = world.processes.iter().any(|process| process.delivers(*partition, world.now));
                waits.extend(is_taken.then(|| world.now - since));
                !is_taken
            });
            if world.next_at() > until {
                break;
            }
            world.happen();
        }
        world.now = until;
    }
}

/// Members with short visits, and consumers that wait at one of them after the other; a message is due every 200 ms.
/// Returns how long each message waited.
fn visits(seed: u64, network: Network) -> Result<Vec<Ms>> {
    let _told = Seed(seed);
    let mut random = Rng::with_seed(seed);
    let members = random.usize(2..=6);
    let partitions = *random.choice(&[1, 8, 16, 64]).unwrap_or(&1);
    let mut world = group(seed, members, partitions, network)?;
    only_the_first_wants(&mut world);
    let (mut due, mut at) = (Due::default(), 0);
    let end = world.now + 3 * TTL;
    while world.now < end {
        due.push(&mut world);
        let other = random.usize(..members);
        match random.u8(0..40) {
            // A poll that does not wait.
            0..4 if other != at => {
                world.want(other, true);
                world.after(100, What::Fate(Fate::Want(other, false)));
            }
            // The consumers go elsewhere.
            4 if other != at => {
                world.want(other, true);
                world.want(at, false);
                at = other;
            }
            // Whatever a poll ended, they wait where they are.
            _ => world.want(at, true),
        }
        let next = world.now + 200;
        due.run_until(&mut world, next);
        if network.deaf == 0 {
            nobody_keeps_what_another_wants(&world);
        }
    }
    world.want(at, true);
    let last = world.now + 3 * WAIT_MAX;
    due.run_until(&mut world, last);
    assert!(due.waiting.is_empty(), "{:?} wait at {}", due.waiting, world.now);
    Ok(due.waits)
}

fn nobody_keeps_what_another_wants(world: &World) {
    let long_ago = world.now - WAIT_MAX;
    let is_wanted = world.processes.iter().any(|process| process.wants && process.since < long_ago);
    for (who, process) in world.processes.iter().enumerate() {
        let is_idle = !process.wants && process.since < long_ago;
        assert!(!is_wanted || !is_idle || process.owned.is_empty(), "member {who} keeps {:?}", process.owned.keys());
    }
}

fn at_per_mille(waits: &mut [Ms], per_mille: usize) -> Ms {
    waits.sort_unstable();
    let last = waits.len().saturating_sub(1);
    waits.get((waits.len() * per_mille / 1_000).min(last)).copied().unwrap_or(0)
}

#[test]
fn messages_reach_consumers_on_other_members_quickly() -> Result<()> {
    let some_lost = Network { deaf: 3, ..Network::CALM };
    for (name, network) in [("all heard", Network::CALM), ("a third of the announcements lost", some_lost)] {
        let mut waits = Vec::new();
        for seed in seeds(20)? {
            waits.extend(visits(seed, network)?);
        }
        let (p99, longest) = (at_per_mille(&mut waits, 990), at_per_mille(&mut waits, 1_000));
        println!("{name}: {} messages, p99 {p99} ms, longest {longest} ms", waits.len());
        assert!(p99 < 3_000 && longest < TTL, "p99 {p99} ms, longest {longest} ms");
    }
    Ok(())
}

/// A member whose consumers went gives everything up, and takes part again at once.
#[test]
fn partitions_follow_consumers_within_two_seconds() -> Result<()> {
    let (mut gone, mut back) = (0, 0);
    for seed in seeds(15)? {
        let _told = Seed(seed);
        let (members, partitions) = *Rng::with_seed(seed).choice(&[(2, 8), (3, 32), (16, 128)]).unwrap_or(&(2, 8));
        let mut world = group(seed, members, partitions, Network::CALM)?;
        let who = world.random.usize(..members);
        let (had, before) = (world.processes[who].owned.len(), world.record.moves);
        world.want(who, false);
        let took = world.run_until_settled(3 * TTL);
        assert!(took <= WAIT_MAX, "{took} ms");
        assert_eq!(world.record.moves - before, had, "only what it had moves");
        gone = gone.max(took);
        // Before the first sweep: one that begins within the milliseconds of a change moves a partition twice.
        world.stay_at_rest(TTL / 4);
        let before = world.record.moves;
        world.want(who, true);
        let took = world.run_until_settled(3 * TTL);
        assert!(took <= HEARTBEAT / 4, "{took} ms");
        let (moved, share) = (world.record.moves - before, usize::from(partitions) / members);
        assert!((share..=share + 1).contains(&moved), "{moved} moved");
        back = back.max(took);
    }
    println!("without demand: gone after {gone} ms; with demand again: back after {back} ms");
    Ok(())
}

#[test]
fn nothing_moves_without_demand() -> Result<()> {
    for seed in seeds(10)? {
        let _told = Seed(seed);
        let mut world = group(seed, 3, 16, Network::CALM)?;
        for who in 0..3 {
            world.want(who, false);
            let over = world.now + WAIT_MAX;
            world.run_until(over);
        }
        let (moves, acquires) = (world.record.moves, world.record.acquires);
        let until = world.now + 5 * TTL;
        world.run_until(until);
        assert_eq!((world.record.moves, world.record.acquires), (moves, acquires));
        let owned: usize = world.processes.iter().map(|process| process.owned.len()).sum();
        assert_eq!(owned, 16, "the last one with demand serves the next request at once");
        let who = world.random.usize(..3);
        world.want(who, true);
        let took = world.run_until_settled(TTL);
        assert!(took <= HEARTBEAT / 4, "{took} ms");
    }
    Ok(())
}

/// Consumers with pauses shorter than demand lingers: they ask, work and ask again.
#[test]
fn pauses_between_two_requests_move_nothing() -> Result<()> {
    for seed in seeds(6)? {
        let _told = Seed(seed);
        let mut world = group(seed, 4, 32, Network::CALM)?;
        let moves = world.record.moves;
        for _ in 0..100 {
            let who = world.random.usize(..4);
            world.want(who, false);
            let pause = world.random.u64(1..linger());
            world.after(pause, What::Fate(Fate::Want(who, true)));
            let next = world.now + linger();
            world.run_until(next);
        }
        assert_eq!(world.record.moves, moves);
    }
    Ok(())
}

/// Each change moves a share, however many members there are.
#[test]
fn rebalancing_is_bounded_under_fluctuating_demand() -> Result<()> {
    let (members, partitions, changes) = if is_long() { (1_000, 1_024, 1_000) } else { (200, 256, 40) };
    let seed = seeds(1)?[0];
    let _told = Seed(seed);
    let network = Network { deaf: 1, delay: (0, 1), ..Network::CALM };
    let mut world = group(seed, members, partitions, network)?;
    let before = world.record.moves;
    for _ in 0..changes {
        let who = world.random.usize(..members);
        let wants = !world.processes[who].wants;
        world.want(who, wants);
        let next = world.now + world.random.u64(0..HEARTBEAT);
        world.run_until(next);
    }
    let took = world.run_until_settled(6 * TTL);
    let moved = world.record.moves - before;
    println!("{members} members, {partitions} partitions, {changes} changes: {moved} moved, at rest {took} ms later");
    // A share is one partition or two, and so is what the others get of it.
    assert!(moved <= 4 * changes, "{moved} moved for {changes} changes");
    Ok(())
}

/// A member that is killed while its consumers wait is taken over when its leases end, by those with demand.
#[test]
fn partitions_of_a_dead_member_go_to_those_with_demand() -> Result<()> {
    for seed in seeds(10)? {
        let _told = Seed(seed);
        let mut world = group(seed, 4, 16, Network::CALM)?;
        world.want(1, false);
        world.want(2, false);
        world.run_until_settled(TTL);
        world.crash(0);
        let took = world.run_until_settled(2 * TTL);
        assert!(took <= TTL + HEARTBEAT / 2, "{took} ms");
        assert_eq!(world.processes[3].owned.len(), 16);
    }
    Ok(())
}

/// Demand that changes while the store is unavailable counts when it is back.
#[test]
fn demand_changed_during_an_outage_applies_after_it() -> Result<()> {
    let mut longest = 0;
    for seed in seeds(10)? {
        let _told = Seed(seed);
        let mut world = group(seed, 3, 16, Network::CALM)?;
        only_the_first_wants(&mut world);
        world.run_until_settled(TTL);
        let outage = world.random.u64(HEARTBEAT..2 * TTL);
        world.away_until = world.now + outage;
        let half = world.now + outage / 2;
        world.run_until(half);
        world.want(0, false);
        world.want(1, true);
        let back = world.away_until;
        world.run_until(back);
        let took = world.run_until_settled(2 * TTL);
        assert_eq!(world.processes[1].owned.len(), 16);
        longest = longest.max(took);
    }
    println!("demand that changed during an outage: at rest {longest} ms after it at most");
    Ok(())
}
