//! How Redis treats its connections.

use super::super::finding::Finding;
use crate::app::engine::NodeFacts;

/// Bytes of announcements that a broker may be behind. They are small, but a take-over makes many at once.
const PUBSUB_BYTES: u64 = 1024 * 1024;

/// Percent of `maxclients` from which on it is time to raise it.
const NEARLY_ALL: u64 = 80;

pub(super) fn clients(facts: &NodeFacts) -> Vec<Finding> {
    let (there, most) = (facts.number("connected_clients"), facts.number("maxclients"));
    let mut findings = Vec::new();
    if most > 0 && there.saturating_mul(100) / most >= NEARLY_ALL {
        let found = format!("{there} of {most} connections are in use: Redis refuses those past that");
        findings.push(Finding::warn(
            "clients",
            found,
            format!("redis-cli config set maxclients {}", most.saturating_mul(2)),
        ));
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

/// The hard limit in `normal 0 0 0 slave … pubsub <hard> <soft> <seconds>`.
fn pubsub_limit(setting: &str) -> Option<u64> {
    let mut words = setting.split_ascii_whitespace().skip_while(|word| *word != "pubsub");
    words.nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::super::finding::Status;
    use super::super::testing::node;
    use super::*;

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
}
