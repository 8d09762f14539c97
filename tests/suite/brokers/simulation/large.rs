//! A thousand members, ten thousand partitions.

use dwell::model::error::Result;

use super::convergence::DEFAULTS;
use super::network::Network;
use super::store::Ms;
use super::world::World;
use super::{Seed, is_long, seeds};

const TTL: Ms = DEFAULTS.0;
const HEARTBEAT: Ms = DEFAULTS.1;

/// Nobody hears anything.
const DEAF: Network = Network { deaf: 1, delay: (0, 1), ..Network::CALM };

/// The last free partition was swept, offered and kept again, each time before the one that missed it came by.
const SWEPT_AGAIN_AND_AGAIN: u64 = 6_581_398_652_583_826_851;

/// A group of this size.
struct Large {
    members: usize,
    partitions: u16,
    /// How many change together.
    few: usize,
    world: World,
}

impl Large {
    /// All begin at once.
    fn begin(seed: u64, members: usize, partitions: u16, network: Network) -> Result<Large> {
        let mut world = World::new(seed, partitions, DEFAULTS, network)?;
        for _ in 0..members {
            world.join();
        }
        let mut large = Large { members, partitions, few: members / 50, world };
        let took = large.world.run_until_settled(large.limit());
        let record = &large.world.record;
        let (acquires, moves) = (record.acquires, record.moves);
        println!(
            "{members} members, {partitions} partitions: at rest after {took} ms, {acquires} tried, {moves} moved"
        );
        Ok(large)
    }

    /// The leases of the dead end within a ttl. Then, or at once, who misses a partition tries 34 after a heartbeat and
    /// twice as many after each further one, until all were tried. What is given up unheard just after it was tried is
    /// found by the next such search.
    fn limit(&self) -> Ms {
        let doublings = (u64::from(self.partitions) / 34).checked_ilog2().map_or(0, |doublings| doublings + 1);
        TTL + 2 * u64::from(doublings + 1) * HEARTBEAT
    }

    /// Some crash and some leave, at the same time.
    fn lose_some(&mut self) {
        let (before, mut had) = (self.world.record.moves, 0);
        for number in 0..self.few {
            if let Some(who) = self.world.someone() {
                had += self.world.processes[who].owned.len();
                if number % 2 == 0 { self.world.crash(who) } else { self.world.leave(who) }
            }
        }
        let took = self.world.run_until_settled(self.limit());
        let moved = self.world.record.moves - before;
        println!("{} less: {took} ms, {moved} moved of {had}", self.few);
        assert!(moved <= had + self.few, "{moved} moved, {had} had to");
    }

    /// Some come at the same time.
    fn gain_some(&mut self) {
        let before = self.world.record.moves;
        for _ in 0..self.few {
            self.world.join();
        }
        let took = self.world.run_until_settled(self.limit());
        let moved = self.world.record.moves - before;
        println!("{} more: {took} ms, {moved} moved", self.few);
        let share = usize::from(self.partitions) / self.members + 1;
        assert!(moved <= self.few * (share + 1), "{moved} moved for {} new members", self.few);
    }
}

fn story(seed: u64, members: usize, partitions: u16) -> Result<()> {
    let _told = Seed(seed);
    let mut large = Large::begin(seed, members, partitions, Network::CALM)?;
    large.lose_some();
    large.gain_some();
    Ok(())
}

#[test]
fn a_hundred_members_and_a_thousand_partitions() -> Result<()> {
    seeds(1)?.into_iter().try_for_each(|seed| story(seed, 100, 1_024))
}

#[test]
fn more_members_than_partitions() -> Result<()> {
    seeds(1)?.into_iter().try_for_each(|seed| story(seed, 200, 64))
}

/// What each member hears of the others is the larger part of such a world, so nobody hears anything: heartbeats do.
#[test]
fn a_thousand_members_find_ten_thousand_partitions_that_a_sweep_kept() -> Result<()> {
    let seed = if is_long() { seeds(1)?[0] } else { SWEPT_AGAIN_AND_AGAIN };
    let _told = Seed(seed);
    let mut large = Large::begin(seed, 1_000, 10_000, DEAF)?;
    if is_long() {
        large.lose_some();
        large.gain_some();
    }
    Ok(())
}
