//! Random walks: fewer states than a search sees, but far deeper ones.

use super::action::Action;
use super::apply::apply;
use super::bounds::Bounds;
use super::drain::{Failed, examine};
use super::enabled::enabled;
use super::rules::Rules;
use super::search::{Counterexample, Report};
use super::state::World;

/// Where a random walk ends if nothing else ends it: longer than the life of three messages.
const WALK_STEPS_MAX: usize = 150;

/// Takes about `steps_max` steps.
pub(super) fn walk(rules: Rules, bounds: Bounds, steps_max: usize) -> Report {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut report = Report { states: 0, depth: 0, exhausted: false, counterexample: None };
    while report.states < steps_max && report.counterexample.is_none() {
        let mut actions = Vec::new();
        let outcome = walk_once(World::new(bounds.draw(&mut dice)), rules, &mut dice, &mut actions);
        report.states += actions.len();
        report.depth = report.depth.max(actions.len());
        report.counterexample = outcome.err().map(|failed| Counterexample::new(actions, failed));
    }
    report
}

fn walk_once(mut world: World, rules: Rules, dice: &mut Dice, taken: &mut Vec<Action>) -> Result<(), Failed> {
    while taken.len() < WALK_STEPS_MAX {
        let choices = enabled(&world, rules);
        let Some(&action) = choices.get(dice.below(choices.len())) else { break };
        taken.push(action);
        apply(&mut world, action, rules)?;
        examine(&world, rules)?;
    }
    Ok(())
}

impl Bounds {
    /// The same world with some of its faults.
    fn draw(self, dice: &mut Dice) -> Self {
        Self {
            reserve_limit: 1 + dice.up_to(self.reserve_limit - 1),
            releases: dice.up_to(self.releases),
            crashes: dice.up_to(self.crashes),
            lapses: dice.up_to(self.lapses),
            slow_renewals: dice.up_to(self.slow_renewals),
            lost_replies: dice.up_to(self.lost_replies),
            late_copies: dice.up_to(self.late_copies),
            give_ups: dice.up_to(self.give_ups),
            give_backs: dice.up_to(self.give_backs),
            losses: dice.up_to(self.losses),
            ..self
        }
    }
}

/// A small deterministic generator (xorshift), so that a walk can be walked again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end.max(1) as u64) as usize
    }

    fn up_to(&mut self, count: u8) -> u8 {
        self.below(usize::from(count) + 1) as u8
    }
}
