//! Small worlds in which everything goes wrong by chance, then nothing more: the group comes to rest.

use dwell::model::error::Result;
use fastrand::Rng;

use super::incidents::Fate;
use super::network::Network;
use super::store::Ms;
use super::world::{What, World};
use super::{Seed, seeds};

/// How long it takes at most until the group is at rest, in ttls, from one ttl after the last trouble: until then a late
/// request may arrive.
const REST_MAX: Ms = 4;

/// How long things go wrong, in ttls.
const TROUBLE: Ms = 5;

const TTL: Ms = 10_000;

fn story(seed: u64) -> Result<Ms> {
    let _told = Seed(seed);
    let mut random = Rng::with_seed(seed);
    let partitions = *random.choice(&[1, 2, 7, 8, 16, 33]).unwrap_or(&1);
    let heartbeat = TTL / random.u64(3..=10);
    let mut world = World::new(random.u64(..), partitions, (TTL, heartbeat), weather(&mut random))?;
    for _ in 0..random.u32(1..6) {
        let delay = random.u64(0..TTL);
        world.after(delay, What::Fate(Fate::Join));
    }
    for _ in 0..random.u32(0..12) {
        let at = random.u64(0..TROUBLE * TTL);
        let fate = fate(&mut random);
        if let Fate::Rewind = fate {
            let earlier = at.saturating_sub(random.u64(0..1_000));
            world.after(earlier, What::Fate(Fate::Save));
        }
        world.after(at, What::Fate(fate));
    }
    let over = world.now + TROUBLE * TTL;
    world.run_until(over);
    let deaf = random.u32(0..2);
    world.network = Network { deaf, ..Network::CALM };
    world.run_until(world.trouble_until());
    if world.someone().is_none() {
        world.join();
    }
    let took = world.run_until_settled(REST_MAX * TTL);
    world.stay_at_rest(TTL);
    Ok(took)
}

fn weather(random: &mut Rng) -> Network {
    Network {
        delay: (0, *random.choice(&[2, 20, 400]).unwrap_or(&2)),
        loss: *random.choice(&[0, 0, 50, 5]).unwrap_or(&0),
        late: *random.choice(&[0, 50]).unwrap_or(&0),
        deaf: *random.choice(&[0, 3, 1]).unwrap_or(&0),
        timeout: *random.choice(&[300, 2_000]).unwrap_or(&300),
        drain: *random.choice(&[0, 50, 5_000]).unwrap_or(&0),
    }
}

fn fate(random: &mut Rng) -> Fate {
    match random.u8(0..24) {
        0..4 => Fate::Join,
        4..6 => Fate::Leave,
        6 => Fate::Hesitate,
        7..10 => Fate::Crash,
        10..14 => Fate::Pause(random.u64(0..3 * TTL)),
        14..16 => Fate::Outage(random.u64(0..2 * TTL)),
        16..18 => Fate::Rewind,
        18..22 => Fate::Want(random.usize(0..6), random.bool()),
        _ => Fate::Weather(weather(random)),
    }
}

#[test]
fn group_converges_after_random_faults() -> Result<()> {
    let mut longest = 0;
    for seed in seeds(100)? {
        longest = longest.max(story(seed)?);
    }
    println!("at rest after at most {longest} ms");
    Ok(())
}
