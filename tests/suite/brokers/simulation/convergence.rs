//! One change of a group at rest: how long until it is at rest again, and how much moved. The bounds are those of
//! docs/internals/groups.md.

use dwell::model::error::Result;
use fastrand::Rng;

use super::network::Network;
use super::store::{Ms, Who};
use super::world::World;
use super::{Seed, seeds};

/// The defaults: lease ttl and heartbeat.
pub(super) const DEFAULTS: (Ms, Ms) = (10_000, 1_000);

const TTL: Ms = DEFAULTS.0;
const HEARTBEAT: Ms = DEFAULTS.1;

/// Members before the change, and partitions.
const SIZES: [(usize, u16); 8] = [(1, 1), (1, 8), (2, 3), (3, 32), (4, 32), (7, 5), (16, 128), (30, 100)];

const DEAF: Network = Network { deaf: 1, ..Network::CALM };

/// What a change came to.
struct Change {
    took: Ms,
    moved: usize,
}

/// A group that came to rest, some time before its first sweep: a sweep may take what is on its way to another.
pub(super) fn group(seed: u64, members: usize, partitions: u16, network: Network) -> Result<World> {
    let mut world = World::new(seed, partitions, DEFAULTS, network)?;
    for _ in 0..members {
        world.join();
    }
    world.run_until_settled(3 * TTL);
    let later = world.now + world.random.u64(0..TTL);
    world.run_until(later);
    Ok(world)
}

/// Someone of the group, what it owns, and what follows when it goes.
fn go(world: &mut World, how: fn(&mut World, Who)) -> (usize, Change) {
    let who = world.someone().unwrap_or(0);
    let had = world.processes[who].owned.len();
    (had, change(world, |world| how(world, who)))
}

fn change(world: &mut World, how: impl FnOnce(&mut World)) -> Change {
    let before = world.record.moves;
    how(world);
    let took = world.run_until_settled(3 * TTL);
    Change { took, moved: world.record.moves - before }
}

/// Tells a story for every seed and some size. None takes longer than `limit`.
fn each(name: &str, network: Network, limit: Ms, story: impl Fn(World, usize) -> Ms) -> Result<()> {
    let (mut longest, count) = (0, 15);
    for seed in seeds(count)? {
        let _told = Seed(seed);
        let (members, partitions) = *Rng::with_seed(seed).choice(&SIZES).unwrap_or(&SIZES[0]);
        let took = story(group(seed, members, partitions, network)?, members);
        assert!(took <= limit, "{took} ms with {members} members and {partitions} partitions");
        longest = longest.max(took);
    }
    println!("{name}: at most {longest} ms");
    Ok(())
}

/// A new member gets its share and nothing else moves.
fn join(mut world: World, members: usize) -> Ms {
    let Change { took, moved } = change(&mut world, |world| {
        world.join();
    });
    let least = usize::from(world.partitions) / (members + 1);
    assert!((least..=least + 1).contains(&moved), "{moved} moved, at least {least} had to");
    took
}

/// What the member had goes to the others and nothing else moves.
fn lose(mut world: World, how: fn(&mut World, Who)) -> Ms {
    let (had, Change { took, moved }) = go(&mut world, how);
    let has_heirs = world.someone().is_some();
    assert!(moved == had || !has_heirs, "{moved} moved, {had} had to");
    took
}

/// Each takes what it finds and learns of the others then: a race for every partition.
#[test]
fn members_starting_together_converge_quickly() -> Result<()> {
    let mut longest = 0;
    for seed in seeds(15)? {
        let _told = Seed(seed);
        let (members, partitions) = *Rng::with_seed(seed).choice(&SIZES).unwrap_or(&SIZES[0]);
        let mut world = World::new(seed, partitions, DEFAULTS, Network::CALM)?;
        for _ in 0..members {
            world.join();
        }
        let took = world.run_until_settled(3 * TTL);
        assert!(took <= HEARTBEAT / 2, "{took} ms with {members} members and {partitions} partitions");
        longest = longest.max(took);
    }
    println!("members that begin together: at most {longest} ms");
    Ok(())
}

#[test]
fn join_moves_the_new_members_share_immediately() -> Result<()> {
    each("a join", Network::CALM, 250, join)
}

#[test]
fn unannounced_join_converges_by_heartbeat() -> Result<()> {
    each("an unheard join", DEAF, TTL + 2 * HEARTBEAT, join)
}

#[test]
fn graceful_leave_frees_partitions_immediately() -> Result<()> {
    each("a leave", Network::CALM, 250, |world, _| lose(world, World::leave))
}

#[test]
fn unannounced_leave_converges_by_heartbeat() -> Result<()> {
    each("an unheard leave", DEAF, 3 * HEARTBEAT, |world, _| lose(world, World::leave))
}

#[test]
fn crashed_member_is_replaced_at_lease_expiry() -> Result<()> {
    for network in [Network::CALM, DEAF] {
        each("a crash", network, TTL + HEARTBEAT / 2, |world, _| lose(world, World::crash))?;
    }
    Ok(())
}

#[test]
fn long_member_pause_moves_partitions_once_and_back() -> Result<()> {
    each("a pause", Network::CALM, TTL, |mut world, members| {
        let mut had = 0;
        let Change { took, moved } = change(&mut world, |world| {
            let who = world.someone().unwrap_or(0);
            had = world.processes[who].owned.len();
            let awake = world.now + 3 * TTL;
            world.processes[who].asleep_until = awake;
            world.run_until(awake - 1);
        });
        assert!(moved <= 2 * had + 1 || members == 1, "{moved} moved, {had} twice had to");
        took
    })
}

/// Leases lapse while the store is unavailable. Then owners resume their own before anyone takes more.
#[test]
fn outage_longer_than_leases_moves_nothing() -> Result<()> {
    each("an outage, from its end", Network::CALM, TTL, |mut world, _| {
        let outage = world.random.u64(TTL..3 * TTL);
        let Change { took, moved } = change(&mut world, |world| {
            world.away_until = world.now + outage;
            world.run_until(world.away_until);
        });
        assert_eq!(moved, 0);
        took
    })
}

/// At rest a group costs heartbeats, renewals and the rare sweep: no member looks for anything.
#[test]
fn stable_group_makes_few_acquire_attempts() -> Result<()> {
    let mut world = group(1, 4, 32, Network::CALM)?;
    let until = world.now + 200 * TTL;
    let before = world.record.acquires;
    world.run_until(until);
    let tried = world.record.acquires - before;
    println!("{tried} tries in 200 ttl");
    // Rounds at 2, 6, 14, 30 ttl and then each 32 ttl; in each, one member tries a partition, unless it is its own.
    assert!(tried <= 9 * 32, "{tried}");
    Ok(())
}

/// A member that beats and never takes anything costs what was released for it some time, not for ever.
#[test]
fn partition_released_to_a_broken_member_is_taken() -> Result<()> {
    let mut longest = 0;
    for seed in seeds(15)? {
        let _told = Seed(seed);
        let mut world = group(seed, 3, 16, Network::CALM)?;
        let broken = world.join();
        world.processes[broken].is_broken = true;
        let released = world.now + TTL;
        world.run_until(released);
        assert!(world.unrest().is_some(), "its share is free");
        let took = TTL + world.run_until_settled(6 * TTL);
        longest = longest.max(took);
    }
    println!("a broken member: all owned after at most {longest} ms");
    Ok(())
}
