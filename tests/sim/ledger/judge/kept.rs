//! The sentence about a Redis that has all that it answered.

use super::super::Life;
use super::{Breach, Judge};

const KEPT: &str = "a clean restart restores nothing";

const RESTORES: &str = "dwell_redis_call_seconds_count{verb=\"restore\"}";

impl Judge<'_> {
    /// For histories in which Redis lost nothing, however often it was restarted.
    pub(super) fn kept(&self) -> Vec<Breach> {
        let mut faults = self.ledger.faults.iter().map(|fault| fault.fault);
        if !faults.all(|fault| fault.keeps_redis(self.scenario)) {
            return Vec::new();
        }
        self.ledger.lives.iter().filter_map(|life| self.kept_by(life)).collect()
    }

    fn kept_by(&self, life: &Life) -> Option<Breach> {
        if !self.is_bound(life.broker) {
            return None;
        }
        let (losses, restores) = (life.count("dwell_redis_losses_total"), life.count(RESTORES));
        // Each process offers what it finds in its journal.
        let finds_journal = !life.is_first || self.ledger.hands_over;
        let is_kept = losses == Some(0) && (finds_journal || restores == Some(0));
        let detail = format!("broker {}: losses {losses:?}, calls of its journal {restores:?}", life.broker);
        (!is_kept).then(|| Breach { sentence: KEPT, detail, id: String::new() })
    }
}
