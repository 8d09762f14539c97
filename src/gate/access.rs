//! Access control: tokens from files, each with a name and scopes.
//!
//! Without a token in the configuration every client may do everything, so the listener is then bound to this machine
//! only. Tokens are compared by digest and in constant time, and appear in no log and no error.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use super::identity::{Identity, Trust};
use crate::platform::clock::Clock;
use crate::platform::secret::{self, Secret, TokenFile};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub name: Arc<str>,
    pub file: PathBuf,
    pub scopes: Scopes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// The name of the token, or `local` where none is needed.
    pub name: Arc<str>,
    pub scopes: Scopes,
    /// Whose share counts what its requests hold.
    pub identity: Identity,
}

impl Actor {
    pub fn local() -> Actor {
        Actor { name: Arc::from("local"), scopes: Scopes::ALL, identity: Identity::LOCAL }
    }

    /// A client of the listener for operators without a token, while none is required. It has a share, unlike `local`.
    pub fn visitor() -> Actor {
        let name: Arc<str> = Arc::from("visitor");
        let identity = Identity::new(name.clone(), Trust::Anonymous);
        Actor { name, scopes: Scopes::of(&[Scope::View]), identity }
    }
}

/// A token that a request showed, to be looked up again later: it may be revoked meanwhile.
#[derive(Clone, Copy)]
pub struct Shown(secret::Digest);

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shown")
    }
}

impl Shown {
    pub fn new(token: &str) -> Shown {
        Shown(secret::digest(token))
    }
}

#[derive(Debug, Clone)]
pub struct Access {
    /// Empty: no token is required. Clones share them, and see what [`Access::renew`] makes of them.
    tokens: Arc<RwLock<Arc<[Known]>>>,
    local: Actor,
    clock: Clock,
}

/// A token of the configuration, and the file that holds it.
#[derive(Debug, Clone)]
struct Known {
    actor: Actor,
    file: Arc<TokenFile>,
    path: PathBuf,
}

impl Known {
    fn new(Token { name, file, scopes }: Token) -> Known {
        let identity = Identity::new(name.clone(), Trust::Known);
        Known { actor: Actor { name, scopes, identity }, file: Arc::new(TokenFile::new(file.clone())), path: file }
    }
}

impl Access {
    /// The files are read with the first request and again, at most once a second, with later ones: a changed token counts
    /// without a restart, and a removed one no longer does.
    pub fn new(tokens: Vec<Token>, clock: Clock) -> Access {
        let tokens: Arc<[Known]> = tokens.into_iter().map(Known::new).collect();
        Access { tokens: Arc::new(RwLock::new(tokens)), local: Actor::local(), clock }
    }

    /// Other tokens from now on. One that stays keeps its share and what its clients hold, also with other scopes.
    pub fn renew(&self, tokens: Vec<Token>) {
        let before = self.tokens();
        let token = |token: Token| {
            let same = before.iter().find(|known| known.actor.name == token.name && known.path == token.file);
            match same {
                Some(known) => Known { actor: Actor { scopes: token.scopes, ..known.actor.clone() }, ..known.clone() },
                None => Known::new(token),
            }
        };
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = tokens.into_iter().map(token).collect();
        self.look();
    }

    fn tokens(&self) -> Arc<[Known]> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn free() -> Access {
        Access::new(Vec::new(), Clock::System)
    }

    /// Reads the files now, so that the log reports at the start what is wrong with them.
    pub fn look(&self) {
        let now = self.clock.instant();
        self.tokens().iter().for_each(|known| drop(known.file.token(now)));
    }

    pub fn asks(&self) -> bool {
        !self.tokens.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    pub fn authenticate(&self, token: Option<&str>) -> Option<Actor> {
        if !self.asks() {
            return Some(self.local.clone());
        }
        self.owner(Shown::new(token?))
    }

    /// The token with this name, and its text: for clients that sign with it.
    pub fn named(&self, name: &str) -> Option<(Actor, Secret)> {
        let (now, tokens) = (self.clock.instant(), self.tokens());
        let known = tokens.iter().find(|known| *known.actor.name == *name)?;
        Some((known.actor.clone(), known.file.token(now).ok()?.secret().clone()))
    }

    pub fn owner(&self, Shown(given): Shown) -> Option<Actor> {
        let (now, tokens) = (self.clock.instant(), self.tokens());
        // All are compared, also after a match: the time it takes must reveal nothing.
        let matching = tokens.iter().filter(|known| known.file.token(now).is_ok_and(|held| held.is(&given)));
        matching.map(|known| &known.actor).fold(None, |first, actor| first.or(Some(actor))).cloned()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Names and numbers, but no payloads. Every scope includes it.
    View,
    Produce,
    Consume,
    /// For brokers that stop.
    HandOver,
    Admin,
}

impl Scope {
    pub const ALL: [Scope; 5] = [Scope::View, Scope::Produce, Scope::Consume, Scope::HandOver, Scope::Admin];

    pub fn name(self) -> &'static str {
        match self {
            Scope::View => "view",
            Scope::Produce => "produce",
            Scope::Consume => "consume",
            Scope::HandOver => "hand_over",
            Scope::Admin => "admin",
        }
    }

    pub fn about(self) -> &'static str {
        match self {
            Scope::View => "see names and numbers, but no payloads.",
            Scope::Produce => "push, get, cancel and reschedule messages.",
            Scope::Consume => "reserve, stream and settle messages, and see payloads.",
            Scope::HandOver => "give what is buffered to another broker; for brokers, not for applications.",
            Scope::Admin => "do everything.",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Scopes(u8);

impl Scopes {
    pub const ALL: Scopes = Scopes::of(&Scope::ALL);

    pub const fn of(scopes: &[Scope]) -> Scopes {
        let (mut bits, mut at) = (0, 0);
        while at < scopes.len() {
            bits |= scopes[at].bit();
            at += 1;
        }
        Scopes(bits)
    }

    pub fn grant(self, needed: Scopes) -> bool {
        self.0 & (needed.0 | Scope::Admin.bit()) != 0
    }

    pub fn each(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.0 & scope.bit() != 0)
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.each().map(Scope::name).collect();
        f.write_str(&names.join(" or "))
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.each().map(Scope::name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::time::Timestamp;
    use crate::platform::clock::Manual;

    type Outcome = Result<(), Box<dyn std::error::Error>>;

    const OLD: &str = "0123456789abcdef";
    const NEW: &str = "fedcba9876543210";

    #[test]
    fn changed_token_takes_effect_at_the_next_check() -> Outcome {
        let (dir, time) = (tempfile::tempdir()?, Manual::at(Timestamp::from_ms(0)));
        let file = |name: &str| dir.path().join(name);
        std::fs::write(file("a"), format!("{OLD}\n"))?;
        let token =
            |name: &str, scopes: &[Scope]| Token { name: name.into(), file: file(name), scopes: Scopes::of(scopes) };
        let tokens = vec![token("a", &[Scope::Produce]), token("b", &[Scope::Consume])];
        let access = Access::new(tokens, Clock::Manual(time.clone()));
        let who = |token| access.authenticate(token).map(|actor| actor.name.to_string());
        assert!(access.asks());
        assert_eq!(who(Some(OLD)).as_deref(), Some("a"));
        for other in [None, Some(""), Some(NEW), Some("0123456789abcde"), Some("0123456789abcdefg")] {
            assert_eq!(who(other), None, "{other:?}");
        }
        std::fs::write(file("a"), NEW)?;
        std::fs::write(file("b"), OLD)?;
        time.advance(Duration::from_millis(999));
        assert_eq!((who(Some(OLD)).as_deref(), who(Some(NEW))), (Some("a"), None));
        time.advance(Duration::from_millis(1));
        assert_eq!((who(Some(OLD)).as_deref(), who(Some(NEW)).as_deref()), (Some("b"), Some("a")));
        std::fs::remove_file(file("a"))?;
        std::fs::write(file("b"), "\n")?;
        time.advance(Duration::from_secs(1));
        for token in ["", "\n", OLD, NEW] {
            assert_eq!(who(Some(token)), None, "{token:?}");
        }
        std::fs::write(file("b"), OLD)?;
        time.advance(Duration::from_secs(1));
        assert_eq!(who(Some(OLD)).as_deref(), Some("b"));
        Ok(())
    }

    #[test]
    fn without_tokens_every_caller_is_local_admin() {
        let free = Access::free();
        assert!(!free.asks());
        for token in [None, Some("anything")] {
            assert_eq!(free.authenticate(token), Some(Actor::local()));
        }
    }

    #[test]
    fn any_required_scope_or_admin_is_sufficient() {
        let [view, produce, consume, hand_over, admin] = Scope::ALL.map(|scope| Scopes::of(&[scope]));
        let either = Scopes::of(&[Scope::Produce, Scope::Consume]);
        for (given, needed, expected) in [
            (produce, produce, true),
            (view, produce, false),
            (view, either, false),
            (view, admin, false),
            (produce, consume, false),
            (produce, admin, false),
            (produce, either, true),
            (consume, either, true),
            (consume, produce, false),
            (either, admin, false),
            (either, hand_over, false),
            (hand_over, hand_over, true),
            (hand_over, either, false),
            (admin, hand_over, true),
            (admin, produce, true),
            (admin, consume, true),
            (admin, admin, true),
            (Scopes::of(&[]), produce, false),
        ] {
            assert_eq!(given.grant(needed), expected, "{given:?} for {needed:?}");
        }
        assert_eq!(either.to_string(), "produce or consume");
    }
}
