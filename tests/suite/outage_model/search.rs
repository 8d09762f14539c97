//! Breadth-first search of all states within bounds: the first breach found is a shortest one.

use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::action::Action;
use super::apply::{apply, start};
use super::bounds::Bounds;
use super::breach::Breach;
use super::drain::{Failed, examine};
use super::enabled::enabled;
use super::rules::Rules;
use super::state::World;

/// How much of a drain is worth printing: one that is stuck repeats itself.
const DRAINING_SHOWN: usize = 30;

/// How the search ended.
pub(super) struct Report {
    pub(super) states: usize,
    pub(super) depth: usize,
    /// Every state within the bounds was seen.
    pub(super) exhausted: bool,
    pub(super) counterexample: Option<Counterexample>,
}

pub(super) struct Counterexample {
    pub(super) breach: Breach,
    /// From the start to the breach.
    actions: Vec<Action>,
    /// And, if the breach is not there yet, from there on without faults.
    draining: Vec<Action>,
}

impl Counterexample {
    pub(super) fn new(actions: Vec<Action>, failed: Failed) -> Self {
        Self { breach: failed.breach, actions, draining: failed.draining }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extent = if self.exhausted { "all" } else { "bounded" };
        write!(f, "{} states ({extent}), depth {}", self.states, self.depth)?;
        let Some(found) = &self.counterexample else { return write!(f, ", no breach") };
        write!(f, ", {:?} after {:?}", found.breach, found.actions)?;
        let shown = &found.draining[..found.draining.len().min(DRAINING_SHOWN)];
        if shown.is_empty() { Ok(()) } else { write!(f, " and then, without faults, {shown:?}") }
    }
}

/// The first entry of `Search::steps`, which no action led to.
const START: (usize, Action) = (0, Action::TtlPasses);

struct Search {
    rules: Rules,
    /// Fingerprints: 64 bits are enough for millions of states.
    seen: HashSet<u64>,
    /// How each state was reached: from which one, by what.
    steps: Vec<(usize, Action)>,
}

/// Looks at up to `states_max` states.
pub(super) fn search(rules: Rules, bounds: Bounds, states_max: usize) -> Report {
    let world = start(bounds, rules);
    let mut search = Search { rules, seen: HashSet::from([fingerprint(&world)]), steps: vec![START] };
    let mut level = vec![(0, world)];
    let mut depth = 0;
    while !level.is_empty() {
        let mut next = Vec::new();
        for (at, world) in level {
            if let Err(counterexample) = search.expand(at, &world, &mut next) {
                return search.report(depth, false, Some(counterexample));
            }
            if search.seen.len() >= states_max {
                return search.report(depth, false, None);
            }
        }
        level = next;
        depth += 1;
    }
    search.report(depth, true, None)
}

impl Search {
    fn expand(&mut self, at: usize, world: &World, next: &mut Vec<(usize, World)>) -> Result<(), Counterexample> {
        for action in enabled(world, self.rules) {
            let mut reached = world.clone();
            let applied = apply(&mut reached, action, self.rules);
            if applied.is_ok() && !self.seen.insert(fingerprint(&reached)) {
                continue;
            }
            let reached_at = self.steps.len();
            self.steps.push((at, action));
            applied
                .map_err(Failed::from)
                .and_then(|()| examine(&reached, self.rules))
                .map_err(|failed| Counterexample::new(self.actions_to(reached_at), failed))?;
            next.push((reached_at, reached));
        }
        Ok(())
    }

    fn actions_to(&self, mut at: usize) -> Vec<Action> {
        let mut actions = Vec::new();
        while at != 0 {
            let (before, action) = self.steps[at];
            actions.push(action);
            at = before;
        }
        actions.reverse();
        actions
    }

    fn report(&self, depth: usize, exhausted: bool, counterexample: Option<Counterexample>) -> Report {
        Report { states: self.seen.len(), depth, exhausted, counterexample }
    }
}

fn fingerprint(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}
