//! The webhooks of a configuration: one table each.

use std::path::Path;
use std::time::Duration;

use super::Origin;
use super::reader::Reader;
use super::show::quoted;
use super::sources::{Layers, Raw, item_key, read_text};
use crate::api::webhook::{TARGET_ACCEPTED, Target, Webhook};
use crate::model::error::Error;
use crate::model::limits::{
    NAME_BYTES_MAX, WEBHOOK_CONCURRENCY_MAX, WEBHOOK_TIMEOUT_MAX, WEBHOOK_TIMEOUT_MIN, WEBHOOKS_MAX,
};
use crate::model::message::{GroupName, TopicName};
use crate::model::time::show_span;
use crate::platform::secret::Secret;

/// Every key of a `[[webhook]]`.
pub const WEBHOOK_KEYS: [&str; 9] =
    ["topic", "group", "url", "concurrency", "timeout", "secret_file", "ca_file", "allow_remote", "enabled"];

/// POSTs at the same time, unless the webhook says otherwise.
const CONCURRENCY: usize = 8;

/// The time for a POST, unless the webhook says otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Where the tables are.
pub(super) const WEBHOOKS: &str = "webhook";

impl Reader<'_> {
    /// Every webhook that could be read; what is wrong with the others is noted.
    pub(super) fn webhooks(&mut self) -> Vec<Webhook> {
        let origins = self.layers.tables(WEBHOOKS).to_vec();
        if origins.len() > WEBHOOKS_MAX {
            let why = format!("is one of {} webhooks", origins.len());
            self.refuse(&item_key(WEBHOOKS, WEBHOOKS_MAX, ""), &format!("at most {WEBHOOKS_MAX}"), why);
        }
        origins.into_iter().enumerate().filter_map(|(n, origin)| self.webhook(n, &origin)).collect()
    }

    fn webhook(&mut self, n: usize, origin: &Origin) -> Option<Webhook> {
        let key = |name| item_key(WEBHOOKS, n, name);
        let name = format!("1 to {NAME_BYTES_MAX} of A-Z a-z 0-9 . _ -");
        let topic = self.required(key("topic"), origin, &name, |text| TopicName::new(text).map_err(why));
        let standard = GroupName::standard();
        let group = self.parsed(&key("group"), &name, standard, |text| GroupName::new(text).map_err(why));
        let allow_remote = self.switch(&key("allow_remote"), false);
        let target = self.required(key("url"), origin, TARGET_ACCEPTED, |text| Target::parse(text, allow_remote));
        let concurrency = self.number(&key("concurrency"), 1..=WEBHOOK_CONCURRENCY_MAX, CONCURRENCY);
        let timeout = self.span(&key("timeout"), WEBHOOK_TIMEOUT_MIN..=WEBHOOK_TIMEOUT_MAX, TIMEOUT);
        let secret = self.parsed(&key("secret_file"), "a file that holds the secret and nothing else", None, |path| {
            let text = read_text(Path::new(path))?;
            match text.trim() {
                "" => Err("is empty".to_owned()),
                secret => Ok(Some(Secret::new(secret))),
            }
        });
        let ca_file = self.certificates(&key("ca_file"));
        let enabled = self.switch(&key("enabled"), true);
        let (topic, target) = (topic?, target?);
        Some(Webhook { topic, group, target, concurrency, timeout, secret, ca_file, enabled })
    }
}

/// What is wrong with a name; the error names its field, which is the key here.
fn why(error: Error) -> String {
    error.detail().split_once(": ").map_or(error.detail(), |(_, why)| why).to_owned()
}

/// The value of a key as TOML; nothing when it has none. A secret is not shown, only where it is.
pub(super) fn webhook_value(webhook: &Webhook, n: usize, name: &str, layers: &Layers) -> Option<String> {
    Some(match name {
        "topic" => quoted(webhook.topic.as_str()),
        "group" => quoted(webhook.group.as_str()),
        "url" => quoted(&webhook.target.to_string()),
        "concurrency" => webhook.concurrency.to_string(),
        "timeout" => quoted(&show_span(webhook.timeout)),
        "allow_remote" => webhook.target.allows_remote().to_string(),
        "enabled" => webhook.enabled.to_string(),
        _ => match layers.get(&item_key(WEBHOOKS, n, name))? {
            (Raw::Text(text), _) => quoted(text),
            (Raw::List(_) | Raw::Other(_), _) => return None,
        },
    })
}
