//! A thousand members, ten thousand partitions.

use dwell::error::Result;

use super::network::Network;
use super::rest::DEFAULTS;
use super::store::Ms;
use super::world::World;
use super::{Seed, is_long, seeds};

const TTL: Ms = DEFAULTS.0;

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
        println!("{members} members, {partitions} partitions: at rest after {took} ms");
        Ok(large)
    }

    /// Who misses one partition looks for it one round trip after the other.
    fn limit(&self) -> Ms {
        TTL + u64::from(self.partitions) * 6
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
    seeds(2)?.into_iter().try_for_each(|seed| story(seed, 100, 1_024))
}

#[test]
fn more_members_than_partitions() -> Result<()> {
    seeds(2)?.into_iter().try_for_each(|seed| story(seed, 200, 64))
}

/// What each member hears of the others is the larger part of such a world, so nobody hears anything: heartbeats do.
#[test]
fn a_thousand_members_and_ten_thousand_partitions() -> Result<()> {
    let seed = seeds(1)?[0];
    let _told = Seed(seed);
    let mut large = Large::begin(seed, 1_000, 10_000, Network { deaf: 1, delay: (0, 1), ..Network::CALM })?;
    if is_long() {
        large.lose_some();
        large.gain_some();
    }
    Ok(())
}
