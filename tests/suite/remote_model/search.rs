//! Breadth-first search of all states: the first wrong verdict found is a shortest one.

use std::collections::HashSet;
use std::fmt;

use super::world::{Action, Breach, World};

/// How the search ended.
pub(super) struct Report {
    pub(super) states: usize,
    /// Every state was seen.
    pub(super) exhausted: bool,
    pub(super) breach: Option<Breach>,
    /// From the start to the breach.
    actions: Vec<Action>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extent = if self.exhausted { "all" } else { "bounded" };
        write!(f, "{} states ({extent})", self.states)?;
        match self.breach {
            None => write!(f, ", no breach"),
            Some(breach) => write!(f, ", {breach:?} after {:?}", self.actions),
        }
    }
}

pub(super) fn search(start: &World, states_max: usize) -> Report {
    let mut seen = HashSet::from([start.clone()]);
    // How each state was reached: from which one, by what.
    let mut reached = vec![(start.clone(), 0, None)];
    let mut next = 0;
    while next < reached.len() {
        if reached.len() > states_max {
            return Report { states: reached.len(), exhausted: false, breach: None, actions: Vec::new() };
        }
        let world = reached[next].0.clone();
        for action in world.enabled() {
            let mut after = world.clone();
            if let Err(breach) = after.apply(action).and_then(|()| after.check()) {
                let mut actions = vec![action];
                let mut at = next;
                while let (_, before, Some(action)) = &reached[at] {
                    actions.push(*action);
                    at = *before;
                }
                actions.reverse();
                return Report { states: reached.len(), exhausted: false, breach: Some(breach), actions };
            }
            if seen.insert(after.clone()) {
                reached.push((after, next, Some(action)));
            }
        }
        next += 1;
    }
    Report { states: reached.len(), exhausted: true, breach: None, actions: Vec::new() }
}
