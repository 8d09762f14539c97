//! All of Redis: one, the nodes of a cluster, or a primary behind sentinels.

use super::super::finding::Finding;
use super::Terms;
use super::clients::clients;
use super::keyspace::{keys, members};
use super::memory::{eviction, fragmentation, memory};
use super::persistence::{fsync, last_writes, persistence, replicas};
use super::server::{alone, permissions, role, version};
use super::speed::{clock, clocks, latency, slow_log, stalls};
use crate::app::engine::{Checkup, NodeCheckup, NodeFacts, Outcome, Quorum};

/// Sentinels below which one that is lost leaves no majority.
const SENTINELS_MIN: u64 = 3;

/// Everything about Redis.
pub(in super::super) fn redis(checkup: &Checkup, terms: &Terms) -> Vec<Finding> {
    let mut findings: Vec<Finding> = checkup.sentinels.iter().map(|(place, said)| sentinel(said).at(place)).collect();
    let is_cluster = checkup.unserved_slots.is_some();
    for node in &checkup.nodes {
        let of_node = self::node(node, is_cluster, terms);
        // The first one names it already.
        let several = checkup.nodes.len() > 1;
        let named = |one: Finding| if several && one.check != "redis" { one.at(&node.location) } else { one };
        findings.extend(of_node.into_iter().map(named));
    }
    findings.extend(checkup.unserved_slots.map(coverage));
    if is_cluster {
        let facts = checkup.nodes.iter().filter_map(answered);
        findings.extend(clocks(&facts.filter_map(|facts| facts.ahead_us).collect::<Vec<_>>()));
    }
    if let Some(found) = &checkup.keys {
        findings.extend([keys(found), members(found)]);
    }
    findings
}

fn answered(node: &NodeCheckup) -> Option<&NodeFacts> {
    match &node.outcome {
        Outcome::Answered(facts) => Some(facts),
        Outcome::Unreachable(_) | Outcome::Refused(_) => None,
    }
}

fn node(node: &NodeCheckup, is_cluster: bool, terms: &Terms) -> Vec<Finding> {
    let facts = match &node.outcome {
        Outcome::Answered(facts) => facts,
        // What was refused or not reached says itself what helps.
        Outcome::Unreachable(error) => {
            let found = format!("{} does not answer: {}", node.location, error.detail());
            return vec![Finding::fail(
                "redis",
                found,
                "start it, or correct `redis.url`; pushes are buffered on dwell's disk meanwhile",
            )];
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
        permissions(facts, &terms.prefix),
        eviction(facts, terms),
        memory(facts),
        fragmentation(facts),
        persistence(facts, terms),
        last_writes(facts),
        replicas(facts, terms),
        latency(facts, terms),
        stalls(facts),
        slow_log(facts, &terms.prefix),
        clock(facts),
    ]);
    findings.extend(fsync(facts, terms));
    findings.extend(clients(facts));
    findings
}

fn refusal_advice(said: &str) -> &'static str {
    match said {
        said if said.contains("NOAUTH") => "put the password into a file and name it in `redis.password_file`",
        said if said.contains("WRONGPASS") => {
            "redis-cli acl getuser USER; then correct user or password of `redis.url`"
        }
        said if said.contains("NOPERM") => "give the user the permissions of deploy/redis.acl",
        said if said.contains("BUSY") => "redis-cli script kill",
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
            "cluster-require-full-coverage is yes: while one node is away all partitions wait, not only its own";
        Finding::warn("cluster", found, "redis-cli config set cluster-require-full-coverage no, on every node")
    })
}

fn sentinel(said: &crate::model::error::Result<Quorum>) -> Finding {
    let quorum = match said {
        Ok(quorum) => quorum,
        Err(error) => {
            let found = format!("does not say where the primary is: {}", error.detail());
            return Finding::warn("sentinels", found, "start it, or take it out of `redis.url`");
        }
    };
    let Quorum { needed, sentinels, replicas, flags, failure } = quorum;
    let found = format!("{sentinels} sentinels, {needed} have to agree; {replicas} replicas; the primary is {flags}");
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

#[cfg(test)]
mod tests {
    use super::super::super::finding::Status;
    use super::super::testing::{node as sound, terms};
    use super::*;
    use crate::app::engine::KeysCheckup;
    use crate::model::error::Error;

    fn checkup(outcomes: Vec<Outcome>, unserved_slots: Option<u16>) -> Checkup {
        let node = |(n, outcome)| NodeCheckup { location: format!("h:{n}"), outcome };
        let nodes = outcomes.into_iter().enumerate().map(node).collect();
        Checkup { nodes, sentinels: Vec::new(), unserved_slots, keys: Some(KeysCheckup::default()) }
    }

    fn answers() -> Outcome {
        Outcome::Answered(Box::new(sound(&[], &[])))
    }

    #[test]
    fn a_sound_redis_is_all_ok_and_each_check_is_there_once() {
        let findings = redis(&checkup(vec![answers()], None), &terms());
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
    fn nodes_are_named_and_slots_counted() {
        let away = Outcome::Unreachable(Error::unavailable("refused"));
        let findings = redis(&checkup(vec![answers(), away], Some(7)), &terms());
        let failed: Vec<_> = findings.iter().filter(|finding| finding.status == Status::Fail).collect();
        assert_eq!(failed.len(), 2, "{failed:?}");
        assert!(failed[0].found.starts_with("h:1 does not answer") && failed[1].found.starts_with("7 slots"));
        let careful = Outcome::Answered(Box::new(sound(&[], &[("cluster-require-full-coverage", "yes")])));
        let findings = redis(&checkup(vec![careful], Some(0)), &terms());
        assert!(findings.iter().any(|finding| finding.check == "cluster" && finding.status == Status::Warn));
    }

    #[test]
    fn a_wrong_password_says_what_to_do() {
        let refused = Outcome::Refused(Error::unavailable("Redis: WRONGPASS invalid"));
        let findings = redis(&checkup(vec![refused], None), &terms());
        assert!(findings[0].advice.as_ref().is_some_and(|advice| advice.contains("acl getuser")), "{findings:?}");
    }

    #[test]
    fn sentinels_that_cannot_agree_fail() {
        let quorum = Quorum { needed: 2, sentinels: 3, replicas: 1, flags: "master".to_owned(), failure: None };
        let status = |quorum: Quorum| sentinel(&Ok(quorum)).status;
        assert_eq!(status(quorum.clone()), Status::Ok);
        assert_eq!(status(Quorum { failure: Some("NOQUORUM".to_owned()), ..quorum.clone() }), Status::Fail);
        assert_eq!(status(Quorum { flags: "master,s_down".to_owned(), ..quorum.clone() }), Status::Fail);
        assert_eq!(status(Quorum { replicas: 0, ..quorum.clone() }), Status::Warn);
        assert_eq!(status(Quorum { sentinels: 2, ..quorum }), Status::Warn);
        assert_eq!(sentinel(&Err(Error::unavailable("away"))).status, Status::Warn);
    }
}
