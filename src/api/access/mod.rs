//! Who may do what: tokens from files, each with a name and scopes.
//!
//! Without a token in the configuration everyone who reaches the listener may do everything, which is why it is reached
//! from this machine only. A token is compared by its digest and in constant time, and is in no log and no error. Nothing
//! here knows a request.

mod scope;

use std::path::PathBuf;
use std::sync::Arc;

pub use scope::{Scope, Scopes};

use crate::platform::bearer;
use crate::platform::clock::Clock;
use crate::platform::token_file::TokenFile;

/// A token of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// Who has it, for the log.
    pub name: Arc<str>,
    /// The file that holds it and nothing else.
    pub file: PathBuf,
    /// What it is good for.
    pub scopes: Scopes,
}

/// Who made a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// The name of the token, or `local` where none is needed.
    pub name: Arc<str>,
    /// What the actor may do.
    pub scopes: Scopes,
}

impl Actor {
    /// Whoever reaches a listener that asks for no token.
    pub fn local() -> Actor {
        Actor { name: Arc::from("local"), scopes: Scopes::ALL }
    }
}

/// A token that was shown, for looking it up again: it may be revoked meanwhile.
#[derive(Clone, Copy)]
pub struct Shown(bearer::Digest);

impl Shown {
    /// What a request shows.
    pub fn new(token: &str) -> Shown {
        Shown(bearer::digest(token))
    }
}

/// The tokens that are accepted. Clones share what was read.
#[derive(Debug, Clone)]
pub struct Access {
    /// None at all: nobody is asked for one.
    tokens: Arc<[(Actor, TokenFile)]>,
    local: Actor,
    clock: Clock,
}

impl Access {
    /// These tokens, or nobody is asked for one. The files are read when the first request comes, and again, at most once a
    /// second, with those after it: a token that was changed counts without a restart, and one that is gone does not.
    pub fn new(tokens: Vec<Token>, clock: Clock) -> Access {
        let token = |token: Token| (Actor { name: token.name, scopes: token.scopes }, TokenFile::new(token.file));
        Access { tokens: tokens.into_iter().map(token).collect(), local: Actor::local(), clock }
    }

    /// Everyone may do everything.
    pub fn free() -> Access {
        Access::new(Vec::new(), Clock::System)
    }

    /// Reads the files now, so that the log says at the start what is wrong with them.
    pub fn look(&self) {
        let now = self.clock.instant();
        self.tokens.iter().for_each(|(_, file)| drop(file.token(now)));
    }

    /// Whether a request needs a token.
    pub fn asks(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// Whose token this is, if it is anybody's now.
    pub fn who(&self, token: Option<&str>) -> Option<&Actor> {
        if !self.asks() {
            return Some(&self.local);
        }
        self.owner(Shown::new(token?))
    }

    /// Whose token was shown, if it is anybody's now.
    pub fn owner(&self, Shown(given): Shown) -> Option<&Actor> {
        let now = self.clock.instant();
        // All are compared, also behind one that is the same: how long it takes says nothing.
        let matching = self.tokens.iter().filter(|(_, file)| file.token(now).is_ok_and(|held| held.is(&given)));
        matching.map(|(actor, _)| actor).fold(None, |first, actor| first.or(Some(actor)))
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
    fn a_token_counts_from_the_look_after_it_was_changed() -> Outcome {
        let (dir, time) = (tempfile::tempdir()?, Manual::at(Timestamp::from_ms(0)));
        let file = |name: &str| dir.path().join(name);
        std::fs::write(file("a"), format!("{OLD}\n"))?;
        let token =
            |name: &str, scopes: &[Scope]| Token { name: name.into(), file: file(name), scopes: Scopes::of(scopes) };
        let tokens = vec![token("a", &[Scope::Produce]), token("b", &[Scope::Consume])];
        let access = Access::new(tokens, Clock::Manual(time.clone()));
        let who = |token| access.who(token).map(|actor| actor.name.to_string());
        assert!(access.asks());
        assert_eq!(who(Some(OLD)).as_deref(), Some("a"));
        for other in [None, Some(""), Some(NEW), Some("0123456789abcde"), Some("0123456789abcdefg")] {
            assert_eq!(who(other), None, "{other:?}");
        }
        // Within a second nothing is looked at.
        std::fs::write(file("a"), NEW)?;
        std::fs::write(file("b"), OLD)?;
        time.advance(Duration::from_millis(999));
        assert_eq!((who(Some(OLD)).as_deref(), who(Some(NEW))), (Some("a"), None));
        time.advance(Duration::from_millis(1));
        assert_eq!((who(Some(OLD)).as_deref(), who(Some(NEW)).as_deref()), (Some("b"), Some("a")));
        // What holds no token any more keeps nothing open.
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
    fn without_tokens_everyone_is_local_and_may_do_everything() {
        let free = Access::free();
        assert!(!free.asks());
        for token in [None, Some("anything")] {
            assert_eq!(free.who(token), Some(&Actor::local()));
        }
    }
}
