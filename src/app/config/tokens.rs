//! The access tokens of a configuration: one table each.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Origin;
use super::reader::Reader;
use super::show::quoted;
use super::sources::{Layers, Raw, item_key};
use crate::api::access::{Scope, Scopes, Token};
use crate::model::limits::{NAME_BYTES_MAX, TOKEN_BYTES_MIN, TOKENS_MAX};
use crate::platform::secret::Bearer;
use crate::platform::secret::TokenFile;

/// Where the tables are.
pub(super) const TOKENS: &str = "auth.token";

/// Every key of an `[[auth.token]]`.
pub const TOKEN_KEYS: [&str; 3] = ["name", "file", "scopes"];

impl Reader<'_> {
    /// Every token that could be read; what is wrong with the others is noted.
    pub(super) fn tokens(&mut self) -> Vec<Token> {
        let origins = self.layers.tables(TOKENS).to_vec();
        if origins.len() > TOKENS_MAX {
            let why = format!("is one of {} tokens", origins.len());
            self.refuse(&item_key(TOKENS, TOKENS_MAX, ""), &format!("at most {TOKENS_MAX}"), why);
        }
        let mut read: Vec<(Token, Bearer)> = Vec::new();
        for (n, origin) in origins.into_iter().enumerate() {
            let Some((token, bearer)) = self.token(n, &origin) else { continue };
            if read.iter().any(|(other, _)| other.name == token.name) {
                self.refuse(&item_key(TOKENS, n, "name"), "a name of its own", "is the name of another token");
            } else if let Some((other, _)) = read.iter().find(|(_, other)| *other == bearer) {
                let why = format!("holds the token of {:?}", other.name);
                self.refuse(&item_key(TOKENS, n, "file"), "a token of its own", why);
            }
            read.push((token, bearer));
        }
        read.into_iter().map(|(token, _)| token).collect()
    }

    /// Whether there is a token in the configuration, right or wrong.
    pub(super) fn asks(&self) -> bool {
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
        let accepted = r#"a list of "view", "produce", "consume" and "admin", which includes the others"#;
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
        _ => match layers.get(&item_key(TOKENS, n, name))? {
            (Raw::Text(text), _) => quoted(text),
            (Raw::List(_) | Raw::Other(_), _) => return None,
        },
    })
}
