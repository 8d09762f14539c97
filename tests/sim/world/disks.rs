//! What happens to the disks of brokers.

use dwell_simulated_machine::Keep;
use dwell_simulated_redis::Time;

use super::{Later, SECOND, World};
use crate::plan::{DiskFault, Rest};
use crate::run::Failure;

/// How long the power waits for a call to the disk.
const POWER_WAITS: u64 = 2 * SECOND;

impl World {
    /// Answers how long it lasts at most, ms.
    pub(super) fn damage(&mut self, number: usize, fault: DiskFault) -> Result<u64, Failure> {
        let now = self.now;
        let disk = self.brokers[number].disk.clone();
        Ok(match fault {
            DiskFault::Power { behind, rest, down_ms } => {
                self.brokers[number].down_us = down_ms * 1_000;
                disk.lose_power(behind, keep(rest));
                self.later.push((now + POWER_WAITS, Later::PowerCut(number)));
                down_ms + POWER_WAITS / 1_000
            }
            DiskFault::Full { free, is_seen, for_ms } => {
                disk.set_free(Some(free), is_seen);
                self.later.push((now + for_ms * 1_000, Later::Room(number)));
                for_ms
            }
            DiskFault::Syncs { count, only_barriers, for_ms } => {
                disk.fail_syncs(count, only_barriers);
                self.later.push((now + for_ms * 1_000, Later::Syncs(number)));
                for_ms
            }
            DiskFault::Broken { for_ms } => {
                disk.set_broken(true);
                self.later.push((now + for_ms * 1_000, Later::Writes(number)));
                for_ms
            }
            DiskFault::Flipped { bits, down_ms } => {
                self.kill(number);
                disk.flip(bits)?;
                self.later.push((now + down_ms * 1_000, Later::Start(number)));
                down_ms
            }
            DiskFault::Wipe { down_ms } => {
                self.kill(number);
                disk.wipe()?;
                self.later.push((now + down_ms * 1_000, Later::Start(number)));
                down_ms
            }
        })
    }

    /// Ends the brokers whose machines have no power any more: what they sent since is lost.
    pub(super) fn lose_power(&mut self, end: Time) -> Result<(), Failure> {
        for number in 0..self.brokers.len() {
            let disk = self.brokers[number].disk.clone();
            if disk.is_without_power() {
                self.note(&format!("! broker {number} has lost power"));
                self.network.lose(number);
                self.kill(number);
                disk.restore()?;
                self.later.push((end + self.brokers[number].down_us, Later::Start(number)));
            }
        }
        Ok(())
    }
}

fn keep(rest: Rest) -> Keep {
    match rest {
        Rest::Nothing => Keep::Nothing,
        Rest::Everything => Keep::Everything,
        Rest::Sectors(eighths) => Keep::Sectors(eighths),
        Rest::Beginning => Keep::Beginning,
    }
}
