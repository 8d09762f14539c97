//! A Redis as it should be, for tests that change one thing of it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Terms;
use crate::app::engine::{Confirmation, NodeFacts};

const INFO: &[(&str, &str)] = &[
    ("redis_version", "7.0.15"),
    ("role", "master"),
    ("maxmemory_policy", "noeviction"),
    ("maxmemory", "1000000000"),
    ("used_memory", "1000000"),
    ("total_system_memory", "8000000000"),
    ("mem_fragmentation_ratio", "1.10"),
    ("aof_enabled", "1"),
    ("aof_last_write_status", "ok"),
    ("aof_last_bgrewrite_status", "ok"),
    ("rdb_last_bgsave_status", "ok"),
    ("connected_clients", "3"),
    ("maxclients", "10000"),
];

const SETTINGS: &[(&str, &str)] = &[
    ("appendfsync", "always"),
    ("no-appendfsync-on-rewrite", "no"),
    ("timeout", "0"),
    ("tcp-keepalive", "300"),
    ("client-output-buffer-limit", "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60"),
    ("cluster-require-full-coverage", "no"),
    ("disable-thp", "yes"),
    ("latency-monitor-threshold", "100"),
];

pub(super) fn node(info: &[(&str, &str)], settings: &[(&str, &str)]) -> NodeFacts {
    let map = |base: &[(&str, &str)], changed: &[(&str, &str)]| -> BTreeMap<String, String> {
        base.iter().chain(changed).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    NodeFacts {
        info: map(INFO, info),
        settings: Some(map(SETTINGS, settings)),
        reads_all: Some(true),
        refused: Ok(Vec::new()),
        deaf: None,
        pings: vec![Duration::from_micros(80); 50],
        ahead_us: Some(0),
        now_s: Some(1_000_000),
        stalls: Some(Vec::new()),
        slow: Some(Vec::new()),
    }
}

pub(super) fn terms() -> Terms {
    Terms {
        timeout: Duration::from_secs(1),
        allow_eviction: false,
        confirmation: Confirmation::default(),
        journal: None,
        prefix: "dwell".to_owned(),
    }
}
