//! What has to come together with a fault, so that somebody misses what it breaks.

use super::{Action, DiskFault, Fault, Plan, Rest, Scenario};

impl Plan {
    pub(super) fn follow_up(&mut self, random: &mut fastrand::Rng, at_ms: u64, fault: Fault) {
        match fault {
            Fault::StopBroker(broker, _) if self.hands_over && random.u8(0..4) > 0 => {
                self.cut_off(random, at_ms, broker);
            }
            Fault::Disk(broker, DiskFault::Syncs { .. }) if self.scenario == Scenario::Disks && random.bool() => {
                self.lose_what_was_not_synced(random, at_ms, broker);
            }
            _ => {}
        }
    }

    /// A broker that is stopped has something to hand over only if it was without Redis for a while: it alone, or all.
    fn cut_off(&mut self, random: &mut fastrand::Rng, at_ms: u64, broker: usize) {
        let (before, for_ms) = (random.u64(300..2_500), random.u64(4_000..16_000));
        let is_alone = random.bool();
        for node in 0..self.nodes() {
            let fault = match is_alone {
                true => Fault::CutLink { broker, node, way: 0, for_ms },
                false => Fault::KillRedis { node, power: false, down_ms: for_ms, loading_ms: 0 },
            };
            self.add(at_ms.saturating_sub(before), Action::Fault(fault));
        }
    }

    /// What a failed sync did not keep is missed only if the power goes before Redis has it, or if Redis forgets it then.
    pub(super) fn lose_what_was_not_synced(&mut self, random: &mut fastrand::Rng, at_ms: u64, broker: usize) {
        let (down_ms, cut_at) = (random.u64(1_000..4_000), at_ms + random.u64(50..2_000));
        let rest = if random.bool() { Rest::Nothing } else { Rest::Sectors(random.u8(1..8)) };
        let loss_at = if random.bool() { at_ms.saturating_sub(500) } else { cut_at };
        self.add(loss_at, Action::Fault(Fault::Replace { node: 0, down_ms }));
        self.add(cut_at, Action::Fault(Fault::Disk(broker, DiskFault::Power { behind: 0, rest, down_ms })));
    }
}
