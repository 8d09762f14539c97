//! The access tokens and webhooks of a configuration: one table each.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::Origin;
use super::reader::Reader;
use super::sources::{Layers, Raw, TOKENS, WEBHOOKS, item_key, quoted, read_text};
use crate::api::webhook::{TARGET_ACCEPTED, Target, Webhook};
use crate::gate::access::{Scope, Scopes, Token};
use crate::model::error::Error;
use crate::model::limits::{
    NAME_BYTES_MAX, TOKEN_BYTES_MIN, TOKENS_MAX, WEBHOOK_CONCURRENCY_MAX, WEBHOOK_TIMEOUT_MAX, WEBHOOK_TIMEOUT_MIN,
    WEBHOOKS_MAX,
};
use crate::model::message::{GroupName, TopicName};
use crate::model::time::show_span;
use crate::platform::secret::Secret;
use crate::platform::secret::{Bearer, TokenFile};

impl Reader<'_> {
    pub(super) fn tokens(&mut self) -> Vec<Token> {
        let origins = self.tables(TOKENS, TOKENS_MAX, "tokens");
        let mut read: Vec<(Token, Bearer)> = Vec::new();
        for (n, origin) in origins.into_iter().enumerate() {
            let Some((token, bearer)) = self.token(n, &origin) else { continue };
            if read.iter().any(|(other, _)| other.name == token.name) {
                self.refuse(&item_key(TOKENS, n, "name"), "a unique name", "is the name of another token");
            } else if let Some((other, _)) = read.iter().find(|(_, other)| *other == bearer) {
                let why = format!("holds the token of {:?}", other.name);
                self.refuse(&item_key(TOKENS, n, "file"), "a unique token", why);
            }
            read.push((token, bearer));
        }
        read.into_iter().map(|(token, _)| token).collect()
    }

    /// Where each of several tables came from; one too many is refused.
    fn tables(&mut self, name: &str, max: usize, what: &str) -> Vec<Origin> {
        let origins = self.layers.tables(name).to_vec();
        if origins.len() > max {
            let why = format!("is one of {} {what}", origins.len());
            self.refuse(&item_key(name, max, ""), &format!("at most {max}"), why);
        }
        origins
    }

    pub(super) fn has_tokens(&self) -> bool {
        !self.layers.tables(TOKENS).is_empty()
    }

    fn token(&mut self, n: usize, origin: &Origin) -> Option<(Token, Bearer)> {
        let key = |name| item_key(TOKENS, n, name);
        let accepted = format!("1 to {NAME_BYTES_MAX} of A-Z a-z 0-9 . _ -");
        let name = self.required(key("name"), origin, &accepted, |text| {
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            match text {
                // The log calls those so who need no token.
                "local" => Err("is the name of whoever needs no token".to_owned()),
                _ if text.is_empty() || text.len() > NAME_BYTES_MAX => Err("is too short or too long".to_owned()),
                _ if !text.chars().all(allowed) => Err("has another character".to_owned()),
                _ => Ok(Arc::from(text)),
            }
        });
        let accepted =
            format!("a file that holds a token of {TOKEN_BYTES_MIN} or more visible characters and nothing else");
        let file = self.required(key("file"), origin, &accepted, |path| {
            TokenFile::read(Path::new(path)).map(|(bearer, _)| (PathBuf::from(path), bearer))
        });
        let scopes = self.scopes(key("scopes"), origin);
        let (name, (file, bearer), scopes) = (name?, file?, scopes?);
        Some((Token { name, file, scopes }, bearer))
    }

    fn scopes(&mut self, key: String, origin: &Origin) -> Option<Scopes> {
        let accepted = r#"a list of "view", "produce", "consume", "hand_over" and "admin", which includes the others"#;
        let names = match self.layers.get(&key) {
            None => {
                self.miss(key, origin.clone(), accepted);
                return None;
            }
            Some((Raw::List(names), _)) => names.as_slice(),
            Some((Raw::Text(_) | Raw::Other(_), _)) => {
                self.refuse(&key, accepted, "is no list");
                return None;
            }
        };
        let named = |name: &String| Scope::ALL.into_iter().find(|scope| scope.name() == name);
        match names.iter().map(named).collect::<Option<Vec<_>>>() {
            Some(scopes) if !scopes.is_empty() => Some(Scopes::of(&scopes)),
            Some(_) => {
                self.refuse(&key, accepted, "is empty: the token would be good for nothing");
                None
            }
            None => {
                self.refuse(&key, accepted, "has another word");
                None
            }
        }
    }
}

/// The value of a key as TOML; nothing when it has none. Of a file only its path is shown.
pub(super) fn token_value(token: &Token, n: usize, name: &str, layers: &Layers) -> Option<String> {
    Some(match name {
        "name" => quoted(&token.name),
        "scopes" => {
            let scopes: Vec<_> = token.scopes.each().map(|scope| quoted(scope.name())).collect();
            format!("[{}]", scopes.join(", "))
        }
        _ => return path_of(layers, &item_key(TOKENS, n, name)),
    })
}

const CONCURRENCY: usize = 8;
const TIMEOUT: Duration = Duration::from_secs(10);

impl Reader<'_> {
    pub(super) fn webhooks(&mut self) -> Vec<Webhook> {
        let origins = self.tables(WEBHOOKS, WEBHOOKS_MAX, "webhooks");
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
        _ => return path_of(layers, &item_key(WEBHOOKS, n, name)),
    })
}

/// A path as it was given, as TOML.
fn path_of(layers: &Layers, key: &str) -> Option<String> {
    match layers.get(key)? {
        (Raw::Text(text), _) => Some(quoted(text)),
        (Raw::List(_) | Raw::Other(_), _) => None,
    }
}
