//! Room for messages, and what happens when there is none.

use super::super::finding::Finding;
use super::{Terms, bytes};
use crate::app::engine::NodeFacts;

/// Percent of `maxmemory` from which on it is time to make room.
const NEARLY_FULL: u64 = 80;

/// Memory that is lost between allocations, as a part of what is used, that is worth a word.
const FRAGMENTED: f64 = 1.5;

/// Bytes of it below which that is nothing.
const FRAGMENTED_BYTES: u64 = 256 * 1024 * 1024;

pub(super) fn eviction(facts: &NodeFacts, terms: &Terms) -> Finding {
    const SET: &str = "redis-cli config set maxmemory-policy noeviction, and the same in redis.conf";
    let (policy, evicted) = (facts.field("maxmemory_policy"), facts.number("evicted_keys"));
    match (policy, evicted) {
        ("noeviction", 0) => Finding::ok("eviction", "noeviction: a full Redis refuses, and deletes nothing"),
        ("noeviction", _) => {
            let found = format!("noeviction now, but {evicted} keys were evicted since Redis started");
            Finding::warn("eviction", found, "`dwell verify TOPIC` says whether messages were among them")
        }
        _ => {
            let found = format!("{policy}: a full Redis deletes messages without an error");
            match terms.allow_eviction {
                true => Finding::warn("eviction", format!("{found}; redis.allow_eviction takes the risk"), SET),
                false => Finding::fail("eviction", found, SET),
            }
        }
    }
}

pub(super) fn memory(facts: &NodeFacts) -> Finding {
    let (used, limit) = (facts.number("used_memory"), facts.number("maxmemory"));
    if limit == 0 {
        let total = facts.number("total_system_memory");
        let found = format!("{} used of the machine's {}, and no maxmemory", bytes(used), bytes(total));
        let advice = format!(
            "redis-cli config set maxmemory {}: without it the kernel kills Redis when memory ends; with it pushes go \
             to dwell's disk",
            total / 4 * 3
        );
        return Finding::warn("memory", found, advice);
    }
    let percent = used.saturating_mul(100) / limit;
    let found = format!("{} used of maxmemory {} ({percent} %)", bytes(used), bytes(limit));
    let advice = || {
        format!(
            "consume, `dwell dead-letters purge TOPIC --group GROUP --all`, or redis-cli config set maxmemory {}",
            limit.saturating_mul(2)
        )
    };
    match percent {
        100.. => Finding::fail("memory", format!("{found}: it refuses pushes, which go to dwell's disk"), advice()),
        NEARLY_FULL.. => Finding::warn("memory", found, advice()),
        _ => Finding::ok("memory", format!("{found}; room for {}", bytes(limit - used))),
    }
}

/// Memory that is neither free nor used, and pages that make Redis slow.
pub(super) fn fragmentation(facts: &NodeFacts) -> Finding {
    let ratio: f64 = facts.field("mem_fragmentation_ratio").parse().unwrap_or(1.0);
    let lost = facts.number("mem_fragmentation_bytes");
    if facts.setting("disable-thp") == Some("no") {
        let advice = "`disable-thp yes` in redis.conf, and restart it: huge pages make it slow while it saves";
        return Finding::warn("fragmentation", "disable-thp is no", advice);
    }
    if ratio > FRAGMENTED && lost >= FRAGMENTED_BYTES {
        let found = format!("{ratio} times what is used, {} between allocations", bytes(lost));
        return Finding::warn("fragmentation", found, "redis-cli config set activedefrag yes, or restart Redis");
    }
    Finding::ok("fragmentation", format!("{} between allocations", bytes(lost)))
}

#[cfg(test)]
mod tests {
    use super::super::super::finding::Status;
    use super::super::testing::{node, terms};
    use super::*;

    #[test]
    fn a_redis_that_evicts_fails_unless_the_risk_is_taken() {
        let evicts = node(&[("maxmemory_policy", "allkeys-lru")], &[]);
        let finding = eviction(&evicts, &terms());
        assert_eq!(finding.status, Status::Fail);
        assert!(finding.advice.is_some_and(|advice| advice.contains("config set maxmemory-policy noeviction")));
        let risk = Terms { allow_eviction: true, ..terms() };
        assert_eq!(eviction(&evicts, &risk).status, Status::Warn);
        assert_eq!(eviction(&node(&[], &[]), &terms()).status, Status::Ok);
        assert_eq!(eviction(&node(&[("evicted_keys", "1")], &[]), &terms()).status, Status::Warn);
    }

    #[test]
    fn memory_is_judged_at_its_bounds() {
        let status =
            |used: u64| memory(&node(&[("maxmemory", "1000"), ("used_memory", &used.to_string())], &[])).status;
        assert_eq!(
            [0, 799, 800, 999, 1_000, 2_000].map(status),
            [Status::Ok, Status::Ok, Status::Warn, Status::Warn, Status::Fail, Status::Fail]
        );
        let endless = memory(&node(&[("maxmemory", "0")], &[]));
        assert!(endless.status == Status::Warn && endless.advice.is_some_and(|a| a.contains("maxmemory 6000000000")));
    }

    #[test]
    fn fragmentation_counts_when_it_is_much() {
        let status = |ratio: &str, lost: &str| {
            fragmentation(&node(&[("mem_fragmentation_ratio", ratio), ("mem_fragmentation_bytes", lost)], &[])).status
        };
        assert_eq!([status("9.0", "1000"), status("1.6", "300000000")], [Status::Ok, Status::Warn]);
        assert_eq!(fragmentation(&node(&[], &[("disable-thp", "no")])).status, Status::Warn);
    }
}
