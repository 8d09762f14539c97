//! What must hold in every state.

use super::breach::Breach;
use super::state::{Ids, MESSAGES_MAX, World};

/// What holds in every state.
pub(super) fn check(world: &World) -> Result<(), Breach> {
    let redis = &world.redis;
    let counted: Ids = (0..MESSAGES_MAX).filter(|&id| redis.attempts[id] > 0).collect();
    if let Some(id) = redis.scheduled.or(counted).minus(redis.bodies).iter().next() {
        return Err(Breach::Misplaced(id));
    }
    for id in redis.bodies.iter() {
        let reserved = redis.reservations.iter().filter(|reservation| reservation.ids.has(id)).count();
        if reserved + usize::from(redis.scheduled.has(id)) != 1 {
            return Err(Breach::Misplaced(id));
        }
    }
    let accounted = redis.bodies.or(redis.dead).or(world.ledger.ack_asked);
    if let Some(id) = world.ledger.stored.minus(accounted).iter().next() {
        return Err(Breach::Lost(id));
    }
    check_attempts(world)
}

/// Exact to one, but for owners that were gone between charging and handing out: nobody can tell
/// whether they had handed out. A Redis that lost data may have lost charges too.
fn check_attempts(world: &World) -> Result<(), Breach> {
    if world.lost_data {
        return Ok(());
    }
    let redis = &world.redis;
    for id in redis.bodies.iter() {
        let charged = redis.attempts[id];
        let handed_out = world.ledger.handed_out[id];
        let under_way = u8::from(redis.started.has(id));
        let lost = if world.left.strict_attempts { 0 } else { redis.charges_lost[id] };
        if charged > handed_out + 1 + under_way + lost {
            return Err(Breach::Overcharged(id));
        }
        if charged + 1 < handed_out {
            return Err(Breach::Undercharged(id));
        }
    }
    Ok(())
}
