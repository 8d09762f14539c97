//! The name of every key.

/// Every key of the configuration, as in `section.key`.
pub const KEYS: [&str; 49] = [
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
    "wal.limit_bytes",
    "journal.window",
    "lease.ttl",
    "group.advertise",
    "group.token_file",
    "group.ca_file",
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
/// assert_eq!(dwell::config::env_name("redis.url"), "DWELL_REDIS_URL");
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

/// The name among `known` that was probably meant.
pub(super) fn nearest<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let last = |name: &str| name.rsplit('.').next().unwrap_or(name).to_owned();
    known
        .map(|name| {
            let whole = distance(wrong, name);
            // `timeout` at the top is probably `redis.timeout`: the section is what was forgotten.
            (if last(wrong) == last(name) { whole.min(1) } else { whole }, name)
        })
        .filter(|(distance, name)| *distance <= name.len().div_ceil(4).max(2))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// How many letters have to be added, removed or changed to get from one text to the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in to.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_found_and_nonsense_has_none() {
        let cases = [
            ("redis.timout", Some("redis.timeout")),
            ("redis.Url", Some("redis.url")),
            ("lsten", Some("listen")),
            ("topic.visibilty_timeout", Some("topic.visibility_timeout")),
            ("drain_timeout", Some("group.drain_timeout")),
            ("completely.different", None),
        ];
        for (wrong, right) in cases {
            assert_eq!(nearest(wrong, KEYS.into_iter()), right, "{wrong}");
        }
    }

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
