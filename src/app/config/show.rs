//! The configuration in force, as a TOML file that says where each value came from.

use std::fmt::Write as _;

use super::sources::{Layers, TOKEN_KEYS, TOKENS, WEBHOOK_KEYS, WEBHOOKS, item_key, quoted};
use super::tokens::{token_value, webhook_value};
use super::{Config, ConfigErrors, KEYS, Origin, Sources, env_name};
use crate::model::retry::Backoff;
use crate::model::time::show_span;

/// A key of the configuration in force, with the origin of its value; a password is masked.
#[derive(Debug, Clone)]
pub struct Setting {
    /// As in `redis.url`, or `webhook[0].topic` of what may be repeated.
    pub key: String,
    /// In TOML, which is JSON too; none if it is not set.
    pub value: Option<String>,
    pub origin: Origin,
}

/// The configuration in force, key by key. # Errors: everything that is wrong with it.
pub fn settings(sources: &Sources) -> Result<Vec<Setting>, ConfigErrors> {
    let config = Config::load(sources)?;
    let (layers, _) = Layers::read(sources);
    let of = |key: String, value: Option<String>| {
        let is_of_file = key == "redis.url" && value.is_some() && layers.get(&key).is_none();
        let origin = if is_of_file { layers.origin("redis.url_file") } else { layers.origin(&key) };
        Setting { origin: if value.is_some() { origin } else { Origin::Default }, key, value }
    };
    let mut settings: Vec<Setting> = KEYS.iter().map(|key| of((*key).to_owned(), value(&config, key))).collect();
    for (n, token) in config.tokens.iter().enumerate() {
        let item = |name: &&str| of(item_key(TOKENS, n, name), token_value(token, n, name, &layers));
        settings.extend(TOKEN_KEYS.iter().map(item));
    }
    for (n, webhook) in config.webhooks.iter().enumerate() {
        let item = |name: &&str| of(item_key(WEBHOOKS, n, name), webhook_value(webhook, n, name, &layers));
        settings.extend(WEBHOOK_KEYS.iter().map(item));
    }
    Ok(settings)
}

/// The same as TOML, with the origin of each value and its environment variable.
pub fn show(settings: &[Setting]) -> String {
    let (mut text, mut section) = (String::new(), "");
    for Setting { key, value, origin } in settings {
        let (in_section, name) = key.rsplit_once('.').unwrap_or(("", key));
        let tables = in_section.split_once('[').map(|(tables, _)| tables);
        if in_section != section {
            // Writing to a String cannot fail.
            let _ = match tables {
                Some(tables) => write!(text, "\n[[{tables}]]\n"),
                None => write!(text, "\n[{in_section}]\n"),
            };
            section = in_section;
        }
        let line = value.as_ref().map_or_else(|| format!("# {name} ="), |value| format!("{name} = {value}"));
        let described = match origin {
            Origin::Default if tables.is_none() => format!("default; {}", env_name(key)),
            origin => origin.to_string(),
        };
        let _ = writeln!(text, "{line:<44} # {described}");
    }
    text
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
