//! Random walks: fewer states than a search sees, but far deeper ones.

use super::action::Action;
use super::apply::{apply, start};
use super::bounds::Bounds;
use super::drain::{Failed, examine};
use super::enabled::enabled;
use super::rules::Rules;
use super::search::{Counterexample, Report};
use super::state::World;

/// Where a random walk ends if nothing else ends it.
const WALK_STEPS_MAX: usize = 120;

/// Takes about `steps_max` steps.
pub(super) fn walk(rules: Rules, bounds: Bounds, steps_max: usize) -> Report {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut report = Report { states: 0, depth: 0, exhausted: false, counterexample: None };
    while report.states < steps_max && report.counterexample.is_none() {
        let mut actions = Vec::new();
        let outcome = walk_once(start(bounds, rules), rules, &mut dice, &mut actions);
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

/// A small pseudo-random generator (xorshift): the same walks on every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % (count.max(1) as u64)) as usize
    }
}
