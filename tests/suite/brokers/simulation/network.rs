//! What lies between a process and the store: delays and losses.

use fastrand::Rng;

use super::store::Ms;

/// The longest time that any request takes to arrive.
pub(super) const LATE_MAX: Ms = 10_000;

/// How well it works at the moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Network {
    /// One way, at least and at most.
    pub(super) delay: (Ms, Ms),
    /// One in so many is lost: a request, or an answer. 0 is never.
    pub(super) loss: u32,
    /// One in so many requests arrives late, when its sender has given up. 0 is never.
    pub(super) late: u32,
    /// One in so many announcements is lost. 0 is never, 1 always.
    pub(super) deaf: u32,
    /// How long a process waits for an answer.
    pub(super) timeout: Ms,
    /// How long an owner drains before it gives up its lease, at most.
    pub(super) drain: Ms,
}

impl Network {
    pub(super) const CALM: Network = Network { delay: (0, 2), loss: 0, late: 0, deaf: 0, timeout: 500, drain: 5 };

    pub(super) fn delay(&self, random: &mut Rng) -> Ms {
        random.u64(self.delay.0..=self.delay.1)
    }

    /// When a request arrives, if ever.
    pub(super) fn request(&self, random: &mut Rng) -> Option<Ms> {
        if one_in(random, self.loss) {
            return None;
        }
        let late = if one_in(random, self.late) { random.u64(self.timeout..LATE_MAX - self.delay.1) } else { 0 };
        Some(self.delay(random) + late)
    }

    /// When an answer arrives, if ever.
    pub(super) fn answer(&self, random: &mut Rng) -> Option<Ms> {
        (!one_in(random, self.loss)).then(|| self.delay(random))
    }

    /// When an announcement arrives, if ever.
    pub(super) fn announcement(&self, random: &mut Rng) -> Option<Ms> {
        (!one_in(random, self.deaf)).then(|| self.delay(random))
    }
}

fn one_in(random: &mut Rng, many: u32) -> bool {
    many > 0 && random.u32(0..many) == 0
}
