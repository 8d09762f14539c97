//! Makes a failing history smaller: fewer faults, then fewer operations, as long as the same sentence is broken.
//!
//! Halves are left out, then quarters, and so on: delta debugging (Zeller and Hildebrandt, 2002).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::plan::Action;
use crate::run::{Case, Failure, Report, child};

/// Works no longer than that, but for the last try.
pub(crate) fn shrink(case: &Case, sentence: &str, span: Duration) -> Result<(Case, Report), Failure> {
    let mut search = Search { case: case.clone(), sentence, until: Instant::now() + span };
    let steps = case.plan()?.steps;
    let (faults, operations): (Vec<_>, Vec<_>) =
        steps.into_iter().partition(|step| matches!(step.action, Action::Fault(_)));
    search.case.only = Some(faults.iter().chain(&operations).map(|step| step.number).collect());
    search.leave_out(faults.iter().map(|step| step.number).collect())?;
    search.leave_out(operations.iter().map(|step| step.number).collect())?;
    let report = child(&search.case, false)?;
    Ok((search.case, report))
}

struct Search<'a> {
    case: Case,
    sentence: &'a str,
    until: Instant,
}

impl Search<'_> {
    /// Leaves out of these steps what the failure does not need.
    fn leave_out(&mut self, mut steps: Vec<usize>) -> Result<(), Failure> {
        let mut parts = 1;
        while !steps.is_empty() && Instant::now() < self.until {
            let size = steps.len().div_ceil(parts);
            let mut needed = Vec::new();
            for part in steps.chunks(size) {
                if !self.fails_without(part)? {
                    needed.extend_from_slice(part);
                }
            }
            let is_done = size == 1 && needed.len() == steps.len();
            steps = needed;
            if is_done {
                break;
            }
            parts = (parts * 2).min(steps.len().max(1));
        }
        Ok(())
    }

    /// Whether it still fails without them; then they stay out.
    fn fails_without(&mut self, part: &[usize]) -> Result<bool, Failure> {
        if Instant::now() >= self.until {
            return Ok(false);
        }
        let mut smaller = self.case.clone();
        let without: BTreeSet<usize> = part.iter().copied().collect();
        smaller.only = smaller.only.map(|only| &only - &without);
        let fails = child(&smaller, false)?.broken.iter().any(|broken| broken == self.sentence);
        if fails {
            self.case = smaller;
        }
        Ok(fails)
    }
}
