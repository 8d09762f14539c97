//! The name of every key.

/// Every key of the configuration, as in `section.key`.
pub const KEYS: [&str; 51] = [
    "listen",
    "console",
    "socket_mode",
    "data_dir",
    "durability",
    "tls.cert_file",
    "tls.key_file",
    "tls.client_ca_file",
    "redis.url",
    "redis.url_file",
    "redis.password_file",
    "redis.ca_file",
    "redis.cert_file",
    "redis.key_file",
    "redis.prefix",
    "redis.timeout",
    "redis.allow_eviction",
    "redis.start_without",
    "redis.min_replicas",
    "redis.fsync",
    "wal.limit_bytes",
    "wal.hand_over",
    "wal.hand_over_token_file",
    "wal.hand_over_ca_file",
    "journal.window",
    "lease.ttl",
    "group.heartbeat",
    "group.idle_timeout",
    "group.drain_timeout",
    "group.prefetch_limit_bytes",
    "topic.partitions",
    "topic.visibility_timeout",
    "topic.max_attempts",
    "topic.dedup_window",
    "topic.ordering",
    "topic.ttl",
    "topic.on_expiry",
    "topic.dead_max_age",
    "topic.dead_max_count",
    "topic.auto_create",
    "topic.backoff.kind",
    "topic.backoff.initial",
    "topic.backoff.max",
    "topic.backoff.factor",
    "topic.backoff.jitter",
    "topic.backoff.steps",
    "log.level",
    "log.format",
    "trace.otlp_endpoint",
    "trace.otlp_ca_file",
    "trace.sample_ratio",
];

/// The environment variable of a key.
///
/// ```
/// assert_eq!(dwell::app::config::env_name("redis.url"), "DWELL_REDIS_URL");
/// ```
pub fn env_name(key: &str) -> String {
    format!("DWELL_{}", key.to_uppercase().replace('.', "_"))
}

/// Variables that begin with `DWELL_` and are not keys: the command line's own, and what `consume --exec` gives to the
/// command it runs, which may well be dwell again.
const OTHERS: [&str; 16] = [
    "DWELL_CONFIG",
    "DWELL_SERVER",
    "DWELL_TOKEN_FILE",
    "DWELL_CA_FILE",
    "DWELL_TOPIC",
    "DWELL_GROUP",
    "DWELL_ID",
    "DWELL_KEY",
    "DWELL_ATTEMPT",
    "DWELL_PARTITION",
    "DWELL_DUE_AT",
    "DWELL_PUSHED_AT",
    "DWELL_LATENESS_MS",
    "DWELL_CONTENT_TYPE",
    "DWELL_TRACEPARENT",
    "DWELL_TRACESTATE",
];

/// Whether a variable beginning with `DWELL_` is somebody's misspelt key.
///
/// Kubernetes gives every container variables for every service, so a service named `dwell` or `dwell-metrics` adds
/// `DWELL_SERVICE_HOST`, `DWELL_METRICS_PORT_9100_TCP_ADDR` and the like. Those are nobody's mistake.
pub(super) fn is_foreign(variable: &str) -> bool {
    let kubernetes = variable.ends_with("_SERVICE_HOST")
        || variable.contains("_SERVICE_PORT")
        || variable.ends_with("_PORT")
        || variable.contains("_TCP")
        || variable.contains("_UDP");
    kubernetes || variable.starts_with("DWELL_META_") || OTHERS.contains(&variable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_kubernetes_and_of_commands_are_not_keys() {
        for foreign in ["DWELL_SERVICE_HOST", "DWELL_PORT_7373_TCP_ADDR", "DWELL_PORT", "DWELL_SERVER", "DWELL_META_A"]
        {
            assert!(is_foreign(foreign), "{foreign}");
        }
        for key in KEYS {
            assert!(!is_foreign(&env_name(key)), "{key}");
        }
        assert!(!is_foreign("DWELL_REDIS_TIMOUT"));
    }
}
