//! Judges a Redis, the nodes of a cluster, or a primary behind sentinels. Like `persistence` and `speed` it is pure: it asks
//! nobody anything.

use std::collections::BTreeSet;

use super::persistence::{eviction, fragmentation, fsync, last_writes, memory, persistence, replicas};
use super::speed::{clock, clocks, latency, slow_log, stalls};
use super::{ConfiguredRedis, Finding};
use crate::app::engine::{Diagnostics, KeyDiagnostics, NodeDiagnostics, NodeFacts, Outcome, Quorum};
use crate::model::spelling::counted;

const SENTINELS_MIN: u64 = 3;

pub(super) fn redis(diagnostics: &Diagnostics, configured: &ConfiguredRedis) -> Vec<Finding> {
    let mut findings: Vec<Finding> =
        diagnostics.sentinels.iter().map(|(place, answer)| sentinel(answer).at(place)).collect();
    let is_cluster = diagnostics.unserved_slots.is_some();
    for node in &diagnostics.nodes {
        let of_node = node_findings(node, is_cluster, configured);
        // The first one names it already.
        let several = diagnostics.nodes.len() > 1;
        let named = |one: Finding| if several && one.check != "redis" { one.at(&node.location) } else { one };
        findings.extend(of_node.into_iter().map(named));
    }
    findings.extend(diagnostics.unserved_slots.map(coverage));
    if is_cluster {
        let facts = diagnostics.nodes.iter().filter_map(answered);
        findings.extend(clocks(&facts.filter_map(|facts| facts.ahead_us).collect::<Vec<_>>()));
    }
    if let Some(found) = &diagnostics.keys {
        findings.extend([keys(found), members(found)]);
    }
    findings
}

fn answered(node: &NodeDiagnostics) -> Option<&NodeFacts> {
    match &node.outcome {
        Outcome::Answered(facts) => Some(facts),
        Outcome::Unreachable(_) | Outcome::Refused(_) => None,
    }
}

fn node_findings(node: &NodeDiagnostics, is_cluster: bool, configured: &ConfiguredRedis) -> Vec<Finding> {
    let facts = match &node.outcome {
        Outcome::Answered(facts) => facts,
        // The errors of these two say themselves what helps.
        Outcome::Unreachable(error) => {
            let found = format!("{} does not answer: {}", node.location, error.detail());
            let advice = "start it, or correct `redis.url`; pushes are buffered on dwell's disk meanwhile";
            return vec![Finding::fail("redis", found, advice)];
        }
        Outcome::Refused(error) => {
            let found = format!("{} refuses: {}", node.location, error.detail());
            return vec![Finding::fail("redis", found, refusal_advice(error.detail()))];
        }
    };
    let mut findings = vec![Finding::ok("redis", format!("{} answers", node.location)), version(facts), role(facts)];
    findings.extend(alone(facts).filter(|_| !is_cluster));
    findings.extend(is_cluster.then(|| full_coverage(facts)).flatten());
    findings.extend([
        permissions(facts, &configured.prefix),
        eviction(facts, configured),
        memory(facts),
        fragmentation(facts),
        persistence(facts, configured),
        last_writes(facts),
        replicas(facts, configured),
        latency(facts, configured),
        stalls(facts),
        slow_log(facts, &configured.prefix),
        clock(facts),
    ]);
    findings.extend(fsync(facts, configured));
    findings.extend(clients(facts));
    findings
}

fn refusal_advice(detail: &str) -> &'static str {
    match detail {
        detail if detail.contains("NOAUTH") => "put the password into a file and name it in `redis.password_file`",
        detail if detail.contains("WRONGPASS") => {
            "redis-cli acl getuser USER; then correct user or password of `redis.url`"
        }
        detail if detail.contains("NOPERM") => "give the user the permissions of deploy/redis.acl",
        detail if detail.contains("BUSY") => "redis-cli script kill",
        _ => "look at the log of Redis",
    }
}

fn coverage(unserved: u16) -> Finding {
    match unserved {
        0 => Finding::ok("cluster", "every slot has a node"),
        slots => {
            let found = format!("{slots} slots have no node: partitions in them wait");
            Finding::fail("cluster", found, "redis-cli --cluster check HOST:PORT, then --cluster fix")
        }
    }
}

fn full_coverage(facts: &NodeFacts) -> Option<Finding> {
    (facts.setting("cluster-require-full-coverage") == Some("yes")).then(|| {
        let found =
            "cluster-require-full-coverage is yes: while one node is unavailable all partitions wait, not only its own";
        Finding::warn("cluster", found, "redis-cli config set cluster-require-full-coverage no, on every node")
    })
}

fn sentinel(answer: &crate::model::error::Result<Quorum>) -> Finding {
    let quorum = match answer {
        Ok(quorum) => quorum,
        Err(error) => {
            let found = format!("does not say where the primary is: {}", error.detail());
            return Finding::warn("sentinels", found, "start it, or take it out of `redis.url`");
        }
    };
    let Quorum { needed, sentinels, replicas, flags, failure } = quorum;
    let found = format!(
        "{}, of which {needed} have to agree; {}; the primary is {flags}",
        counted(*sentinels, "sentinel"),
        counted(*replicas, "replica")
    );
    if let Some(failure) = failure {
        return Finding::fail("sentinels", format!("{found}: {failure}"), "start the sentinels that are missing");
    }
    if flags.contains("down") {
        return Finding::fail("sentinels", found, "start the primary, or wait until a replica is promoted");
    }
    if *replicas == 0 {
        return Finding::warn("sentinels", found, "start a replica: without one nothing can take over");
    }
    if *sentinels < SENTINELS_MIN {
        return Finding::warn("sentinels", found, "run three sentinels, on three machines");
    }
    Finding::ok("sentinels", found)
}

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

/// Bytes of announcements that a broker may be behind. They are small, but a take-over makes many at once.
const PUBSUB_BYTES: u64 = 1024 * 1024;
const NEARLY_ALL: u64 = 80;

pub(super) fn clients(facts: &NodeFacts) -> Vec<Finding> {
    let (there, most) = (facts.number("connected_clients"), facts.number("maxclients"));
    let mut findings = Vec::new();
    if most > 0 && there.saturating_mul(100) / most >= NEARLY_ALL {
        let found = format!("{there} of {most} connections are in use: Redis refuses those past that");
        let advice = format!("redis-cli config set maxclients {}", most.saturating_mul(2));
        findings.push(Finding::warn("clients", found, advice));
    }
    if let Some(seconds) = facts.setting("timeout").filter(|seconds| *seconds != "0") {
        let found = format!(
            "Redis closes connections that are idle for {seconds} s: the next call of a quiet broker fails once"
        );
        findings.push(Finding::warn("clients", found, "redis-cli config set timeout 0"));
    }
    if facts.setting("tcp-keepalive") == Some("0") {
        let found = "tcp-keepalive is 0: Redis keeps connections of brokers that are gone without a word";
        findings.push(Finding::warn("clients", found, "redis-cli config set tcp-keepalive 300"));
    }
    let limit = facts.setting("client-output-buffer-limit").and_then(pubsub_limit).filter(|limit| *limit > 0);
    if let Some(limit) = limit.filter(|limit| *limit < PUBSUB_BYTES) {
        let found =
            format!("Redis cuts off whoever is {limit} bytes of announcements behind: messages may be late then");
        let advice = "redis-cli config set client-output-buffer-limit 'pubsub 32mb 8mb 60'";
        findings.push(Finding::warn("clients", found, advice));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("clients", format!("{there} of {most} connections in use; idle ones stay")));
    }
    findings
}

fn pubsub_limit(setting: &str) -> Option<u64> {
    let mut words = setting.split_ascii_whitespace().skip_while(|word| *word != "pubsub");
    words.nth(1)?.parse().ok()
}

const NAMED: usize = 5;

pub(super) fn keys(keys: &KeyDiagnostics) -> Finding {
    if !keys.foreign.is_empty() {
        let named = keys.foreign.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        let found = format!("{} that this dwell did not write: {named}", counted(keys.foreign.len(), "key"));
        let advice = "another program, or a newer dwell, uses this prefix: look with `redis-cli type KEY`, and give dwell a \
                      separate `redis.prefix`";
        return Finding::fail("keys", found, advice);
    }
    let topics = counted(keys.topics, "topic");
    if let Some(error) = &keys.failure {
        let found = format!("{} of {topics} looked at: {}", keys.looked_at, error.detail());
        return Finding::warn("keys", found, "try again when Redis is less busy, or raise `redis.timeout`");
    }
    let found = format!("{} of {topics} looked at, all keys as they should be", keys.looked_at);
    Finding::ok("keys", format!("{found}; `dwell verify TOPIC` reads all of one"))
}

pub(super) fn members(keys: &KeyDiagnostics) -> Finding {
    Finding::ok(
        "members",
        match keys.members.len() {
            0 => "no broker is in a group of these topics now".to_owned(),
            count => format!("{} in groups of these topics", counted(count, "broker")),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::super::tests::{configured, node, node as sound};
    use super::*;
    use crate::app::engine::KeyDiagnostics;
    use crate::model::error::Error;

    fn diagnostics(outcomes: Vec<Outcome>, unserved_slots: Option<u16>) -> Diagnostics {
        let node = |(n, outcome)| NodeDiagnostics { location: format!("h:{n}"), outcome };
        let nodes = outcomes.into_iter().enumerate().map(node).collect();
        Diagnostics { nodes, sentinels: Vec::new(), unserved_slots, keys: Some(KeyDiagnostics::default()) }
    }

    fn answers() -> Outcome {
        Outcome::Answered(Box::new(sound(&[], &[])))
    }

    #[test]
    fn healthy_redis_passes_every_check_once() {
        let findings = redis(&diagnostics(vec![answers()], None), &configured());
        assert!(
            findings.iter().all(|finding| finding.status == Status::Ok && finding.advice.is_none()),
            "{findings:#?}"
        );
        let mut names: Vec<_> = findings.iter().map(|finding| finding.check).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), findings.len());
    }

    #[test]
    fn nodes_are_named_and_missing_slots_counted() {
        let away = Outcome::Unreachable(Error::unavailable("refused"));
        let findings = redis(&diagnostics(vec![answers(), away], Some(7)), &configured());
        let failed: Vec<_> = findings.iter().filter(|finding| finding.status == Status::Fail).collect();
        assert_eq!(failed.len(), 2, "{failed:?}");
        assert!(failed[0].found.starts_with("h:1 does not answer") && failed[1].found.starts_with("7 slots"));
        let careful = Outcome::Answered(Box::new(sound(&[], &[("cluster-require-full-coverage", "yes")])));
        let findings = redis(&diagnostics(vec![careful], Some(0)), &configured());
        assert!(findings.iter().any(|finding| finding.check == "cluster" && finding.status == Status::Warn));
    }

    #[test]
    fn wrong_password_fails_with_advice() {
        let refused = Outcome::Refused(Error::unavailable("Redis: WRONGPASS invalid"));
        let findings = redis(&diagnostics(vec![refused], None), &configured());
        assert!(findings[0].advice.as_ref().is_some_and(|advice| advice.contains("acl getuser")), "{findings:?}");
    }

    #[test]
    fn sentinels_without_a_quorum_fail() {
        let quorum = Quorum { needed: 2, sentinels: 3, replicas: 1, flags: "master".to_owned(), failure: None };
        let status = |quorum: Quorum| sentinel(&Ok(quorum)).status;
        assert_eq!(status(quorum.clone()), Status::Ok);
        assert_eq!(status(Quorum { failure: Some("NOQUORUM".to_owned()), ..quorum.clone() }), Status::Fail);
        assert_eq!(status(Quorum { flags: "master,s_down".to_owned(), ..quorum.clone() }), Status::Fail);
        assert_eq!(status(Quorum { replicas: 0, ..quorum.clone() }), Status::Warn);
        assert_eq!(status(Quorum { sentinels: 2, ..quorum }), Status::Warn);
        assert_eq!(sentinel(&Err(Error::unavailable("away"))).status, Status::Warn);
    }

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
    fn advice_grants_the_missing_permission() {
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
    fn unreadable_values_are_reported_and_do_not_fail() {
        let mut facts = node(&[], &[]);
        facts.settings = None;
        let finding = permissions(&facts, "dwell");
        assert!(finding.status == Status::Ok && finding.found.contains("CONFIG GET"), "{finding:?}");
    }

    #[test]
    fn each_setting_that_cuts_connections_is_named() {
        assert_eq!(clients(&node(&[], &[]))[0].status, Status::Ok);
        let limits = |pubsub: &str| format!("normal 0 0 0 slave 1 1 1 pubsub {pubsub} 0 0");
        assert_eq!(clients(&node(&[], &[("client-output-buffer-limit", &limits("0"))]))[0].status, Status::Ok);
        let small = limits("1048575");
        let all = [("timeout", "30"), ("tcp-keepalive", "0"), ("client-output-buffer-limit", small.as_str())];
        let findings = clients(&node(&[("connected_clients", "8000")], &all));
        let advice: Vec<_> = findings.iter().filter_map(|finding| finding.advice.as_deref()).collect();
        assert_eq!(advice.len(), 4);
        for (advice, says) in advice.iter().zip(["maxclients 20000", "timeout 0", "tcp-keepalive 300", "pubsub 32mb"]) {
            assert!(advice.contains(says), "{advice}");
        }
    }

    #[test]
    fn foreign_keys_fail() {
        let sound = KeyDiagnostics { topics: 1_200, looked_at: 20, ..KeyDiagnostics::default() };
        assert_eq!(keys(&sound).status, Status::Ok);
        assert!(keys(&sound).found.starts_with("20 of 1,200 topics"));
        let slow = KeyDiagnostics { failure: Some(Error::unavailable("slow")), ..KeyDiagnostics::default() };
        assert_eq!(keys(&slow).status, Status::Warn);
        let foreign = KeyDiagnostics { foreign: (0..9).map(|n| format!("k{n}")).collect(), ..slow };
        let finding = keys(&foreign);
        assert!(
            finding.status == Status::Fail
                && finding.found.ends_with("9 keys that this dwell did not write: k0, k1, k2, k3, k4"),
            "{finding:?}"
        );
    }
}
