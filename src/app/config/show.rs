//! The configuration in force, as a TOML file that says where each value came from.

use std::fmt::Write as _;

use super::sources::{Layers, TOKEN_KEYS, TOKENS, WEBHOOK_KEYS, WEBHOOKS, item_key, quoted};
use super::tokens::{token_value, webhook_value};
use super::{Config, ConfigErrors, KEYS, Origin, Sources, env_name};
use crate::model::retry::Backoff;
use crate::model::time::show_span;

/// The configuration in force as TOML, with the origin of each value and its environment variable; passwords are masked.
pub fn show(sources: &Sources) -> Result<String, ConfigErrors> {
    let config = Config::load(sources)?;
    let (layers, _) = Layers::read(sources);
    let (mut text, mut section) = (String::new(), "");
    for key in KEYS {
        let (in_section, name) = key.rsplit_once('.').unwrap_or(("", key));
        if in_section != section {
            // Writing to a String cannot fail.
            let _ = write!(text, "\n[{in_section}]\n");
            section = in_section;
        }
        let (line, origin) = match value(&config, key) {
            Some(value) if key == "redis.url" && layers.get(key).is_none() => {
                (format!("{name} = {value}"), layers.origin("redis.url_file"))
            }
            Some(value) => (format!("{name} = {value}"), layers.origin(key)),
            None => (format!("# {name} ="), Origin::Default),
        };
        let _ = writeln!(text, "{line:<44} # {}", described(key, &origin));
    }
    for (n, token) in config.tokens.iter().enumerate() {
        table(&mut text, &layers, (TOKENS, n), &TOKEN_KEYS, |name| token_value(token, n, name, &layers));
    }
    for (n, webhook) in config.webhooks.iter().enumerate() {
        table(&mut text, &layers, (WEBHOOKS, n), &WEBHOOK_KEYS, |name| webhook_value(webhook, n, name, &layers));
    }
    Ok(text)
}

fn table(
    text: &mut String,
    layers: &Layers,
    (tables, n): (&str, usize),
    keys: &[&str],
    value: impl Fn(&str) -> Option<String>,
) {
    // Writing to a String cannot fail.
    let _ = write!(text, "\n[[{tables}]]\n");
    for name in keys {
        let line = match value(name) {
            Some(value) => format!("{name} = {value}"),
            None => format!("# {name} ="),
        };
        let _ = writeln!(text, "{line:<44} # {}", layers.origin(&item_key(tables, n, name)));
    }
}

fn described(key: &str, origin: &Origin) -> String {
    match origin {
        Origin::Default => format!("default; {}", env_name(key)),
        origin => origin.to_string(),
    }
}

fn value(config: &Config, key: &str) -> Option<String> {
    let span = |span| quoted(&show_span(span));
    let topic = &config.topic_defaults;
    Some(match key {
        "listen" => quoted(&config.listen.to_string()),
        "console" => quoted(config.console.name()),
        "socket_mode" => quoted(&config.socket_mode.to_string()),
        "data_dir" => quoted(&config.data_dir.as_ref()?.display().to_string()),
        "durability" => quoted(config.durability.name()),
        "tls.cert_file" => quoted(&config.tls.as_ref()?.cert.display().to_string()),
        "tls.key_file" => quoted(&config.tls.as_ref()?.key.display().to_string()),
        "tls.client_ca_file" => quoted(&config.tls.as_ref()?.client_ca.as_ref()?.display().to_string()),
        "http.idle_timeout" => span(config.http_idle_timeout),
        "sqs.enabled" => config.sqs.enabled.to_string(),
        "sqs.public_url" => quoted(&config.sqs.public_url),
        "sqs.region" => quoted(&config.sqs.region),
        "sqs.account" => quoted(&config.sqs.account),
        "sqs.partitions" => config.sqs.partitions.to_string(),
        "sqs.max_delay" => span(config.sqs.max_delay),
        "sqs.strict" => config.sqs.strict.to_string(),
        "sqs.auto_create" => config.sqs.auto_create.to_string(),
        "sqs.celery_eta" => config.sqs.celery_eta.to_string(),
        "wal.limit_bytes" => config.wal_limit_bytes.to_string(),
        "wal.hand_over" => quoted(&config.hand_over.as_ref()?.url),
        "wal.hand_over_token_file" => quoted(&config.hand_over.as_ref()?.token_file.as_ref()?.display().to_string()),
        "wal.hand_over_ca_file" => quoted(&config.hand_over.as_ref()?.ca_file.as_ref()?.display().to_string()),
        "journal.window" => span(config.journal_span),
        "redis.url" => quoted(&config.redis.url.as_ref()?.to_string()),
        "redis.password_file" => config.redis.password_file.as_ref()?.shown(),
        "redis.ca_file" => config.redis.ca_file.as_ref()?.shown(),
        "redis.cert_file" => config.redis.cert_file.as_ref()?.shown(),
        "redis.key_file" => config.redis.key_file.as_ref()?.shown(),
        "redis.prefix" => quoted(&config.redis.prefix),
        "redis.timeout" => span(config.redis.timeout),
        "redis.allow_eviction" => config.redis.allow_eviction.to_string(),
        "redis.start_without" => config.redis.start_without.to_string(),
        "redis.min_replicas" => config.redis.confirmation.replicas.to_string(),
        "redis.fsync" => config.redis.confirmation.fsync.to_string(),
        "lease.ttl" => span(config.lease_ttl),
        "group.heartbeat" => span(config.heartbeat),
        "group.idle_timeout" => span(config.idle_timeout),
        "group.drain_timeout" => span(config.drain_timeout),
        "group.prefetch_limit_bytes" => config.prefetch_limit_bytes.to_string(),
        "topic.partitions" => topic.partitions.to_string(),
        "topic.visibility_timeout" => span(topic.visibility_timeout),
        "topic.max_attempts" => topic.max_attempts.to_string(),
        "topic.dedup_window" => span(topic.dedup_window),
        "topic.ordering" => quoted(topic.ordering.name()),
        "topic.ttl" => span(topic.ttl),
        "topic.on_expiry" => quoted(topic.on_expiry.name()),
        "topic.dead_max_age" => span(topic.dead_max_age),
        "topic.dead_max_count" => topic.dead_max_count.to_string(),
        "topic.auto_create" => config.auto_create.to_string(),
        "log.level" => quoted(config.log.level.name()),
        "log.format" => quoted(config.log.format.name()),
        "trace.otlp_endpoint" => quoted(&config.trace.endpoint.as_ref()?.to_string()),
        "trace.otlp_ca_file" => quoted(&config.trace.ca_file.as_ref()?.display().to_string()),
        "trace.sample_ratio" => format!("{:?}", config.trace.ratio),
        _ => return backoff_value(&topic.backoff, key.strip_prefix("topic.backoff.")?),
    })
}

fn backoff_value(backoff: &Backoff, name: &str) -> Option<String> {
    Some(match (backoff, name) {
        (Backoff::Exponential { .. }, "kind") => quoted("exponential"),
        (Backoff::Exponential { initial, .. }, "initial") => quoted(&show_span(*initial)),
        (Backoff::Exponential { max, .. }, "max") => quoted(&show_span(*max)),
        (Backoff::Exponential { factor, .. }, "factor") => format!("{factor:?}"),
        (Backoff::Exponential { jitter, .. }, "jitter") => format!("{jitter:?}"),
        (Backoff::Ladder { .. }, "kind") => quoted("ladder"),
        (Backoff::Ladder { steps }, "steps") => {
            let steps: Vec<String> = steps.iter().map(|step| quoted(&show_span(step.0))).collect();
            format!("[{}]", steps.join(", "))
        }
        _ => return None,
    })
}
