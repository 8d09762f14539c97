//! Which Redis it is, and what dwell may do there.

use std::collections::BTreeSet;

use super::super::finding::Finding;
use crate::app::engine::NodeFacts;

pub(super) fn version(facts: &NodeFacts) -> Finding {
    let redis = facts.field("redis_version");
    let found = match facts.field("valkey_version") {
        "" => format!("Redis {redis}"),
        valkey => format!("Valkey {valkey}, as Redis {redis}"),
    };
    match facts.is_new_enough() {
        true => Finding::ok("version", found),
        false => {
            Finding::fail("version", found, "install Redis 7.0 or Valkey 7.2, or newer: `dwell serve` refuses this one")
        }
    }
}

pub(super) fn role(facts: &NodeFacts) -> Finding {
    if facts.field("loading") == "1" {
        let left = facts.field("loading_eta_seconds");
        let found = format!("reads its files, about {left} s more");
        return Finding::fail("role", found, "wait: pushes are buffered on dwell's disk until it is done");
    }
    if facts.field("role") == "master" {
        return Finding::ok("role", "primary");
    }
    let (host, port) = (facts.field("master_host"), facts.field("master_port"));
    let advice = format!("let `redis.url` lead to the primary, {host}:{port}, or name the sentinels in it");
    Finding::fail("role", format!("replica of {host}:{port}: it refuses every push"), advice)
}

/// A node of a cluster that is taken for a Redis of its own.
pub(super) fn alone(facts: &NodeFacts) -> Option<Finding> {
    (facts.field("cluster_enabled") == "1").then(|| {
        let advice = "write redis+cluster://HOST:PORT,… into `redis.url`";
        Finding::fail("cluster", "it is a node of a Redis Cluster, and `redis.url` is for a single Redis", advice)
    })
}

pub(super) fn permissions(facts: &NodeFacts, prefix: &str) -> Finding {
    let refused = match &facts.refused {
        Ok(refused) => refused,
        Err(error) => {
            let advice = "give the user of `redis.url` the permissions of deploy/redis.acl";
            return Finding::fail("permissions", error.detail(), advice);
        }
    };
    if !refused.is_empty() {
        let commands: BTreeSet<_> = refused.iter().filter_map(|what| what.split(' ').next()).collect();
        let grant: Vec<_> = commands.iter().map(|command| format!("+{command}")).collect();
        let advice = format!(
            "redis-cli acl setuser USER '~{prefix}:*' '~{{{prefix}:*' {}; deploy/redis.acl has all that dwell needs",
            grant.join(" ")
        );
        return Finding::fail("permissions", format!("the user may not call {}", refused.join(", ")), advice);
    }
    if let Some(error) = &facts.deaf {
        let advice = format!("redis-cli acl setuser USER +ssubscribe +sunsubscribe '&{prefix}:*' '&{{{prefix}:*'");
        let found = format!("announcements are not heard ({}): messages may be late", error.detail());
        return Finding::warn("permissions", found, advice);
    }
    let all = facts.settings.is_some() && facts.slow.is_some() && facts.stalls.is_some();
    Finding::ok(
        "permissions",
        match all {
            true => "the user may do what dwell does",
            false => {
                "the user may do what dwell does, but not CONFIG GET, SLOWLOG GET and LATENCY LATEST: what they say is not looked at"
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::super::super::finding::Status;
    use super::super::testing::node;
    use super::*;
    use crate::model::error::Error;

    #[test]
    fn an_old_redis_and_a_replica_fail() {
        assert_eq!(version(&node(&[], &[])), Finding::ok("version", "Redis 7.0.15"));
        assert_eq!(version(&node(&[("valkey_version", "8.0.1")], &[])).found, "Valkey 8.0.1, as Redis 7.0.15");
        for old in ["6.2.14", "", "none"] {
            assert_eq!(version(&node(&[("redis_version", old)], &[])).status, Status::Fail, "{old}");
        }
        assert_eq!(role(&node(&[], &[])).status, Status::Ok);
        let replica = role(&node(&[("role", "slave"), ("master_host", "a"), ("master_port", "1")], &[]));
        assert!(replica.status == Status::Fail && replica.found.contains("a:1"), "{replica:?}");
        assert_eq!(role(&node(&[("loading", "1")], &[])).status, Status::Fail);
        assert_eq!(alone(&node(&[], &[])), None);
        assert!(alone(&node(&[("cluster_enabled", "1")], &[])).is_some());
    }

    #[test]
    fn a_permission_that_is_missing_is_granted_by_the_advice() {
        let mut facts = node(&[], &[]);
        assert_eq!(permissions(&facts, "dwell").status, Status::Ok);
        facts.deaf = Some(Error::unavailable("NOPERM"));
        assert_eq!(permissions(&facts, "dwell").status, Status::Warn);
        facts.refused =
            Ok(["hset on dwell:id", "hset on {dwell::0}:gen", "zadd on dwell:id"].map(str::to_owned).into());
        let refused = permissions(&facts, "dwell");
        assert!(refused.status == Status::Fail && refused.found.contains("zadd on dwell:id"), "{refused:?}");
        assert!(refused.advice.is_some_and(|advice| advice.contains("'~{dwell:*' +hset +zadd;")));
        facts.refused = Err(Error::unavailable("NOPERM evalsha"));
        assert_eq!(permissions(&facts, "dwell").status, Status::Fail);
    }

    #[test]
    fn what_may_not_be_seen_is_said_and_is_no_fault() {
        let mut facts = node(&[], &[]);
        facts.settings = None;
        let finding = permissions(&facts, "dwell");
        assert!(finding.status == Status::Ok && finding.found.contains("CONFIG GET"), "{finding:?}");
    }
}
