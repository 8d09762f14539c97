//! What a token is good for.

use std::fmt;

/// One thing that a token may be good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// See names and numbers, but no payload: metrics, topics, groups, and how a message stands. Every scope includes it.
    View,
    /// Push, and cancel or reschedule by id.
    Produce,
    /// Take deliveries and settle them, and see payloads.
    Consume,
    /// Everything.
    Admin,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Scope; 4] = [Scope::View, Scope::Produce, Scope::Consume, Scope::Admin];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Scope::View => "view",
            Scope::Produce => "produce",
            Scope::Consume => "consume",
            Scope::Admin => "admin",
        }
    }

    /// What a token with it may do.
    pub fn about(self) -> &'static str {
        match self {
            Scope::View => "see names and numbers, but no payloads.",
            Scope::Produce => "push, get, cancel and reschedule messages.",
            Scope::Consume => "reserve, stream and settle messages, and see payloads.",
            Scope::Admin => "do everything.",
        }
    }

    const fn bit(self) -> u8 {
        match self {
            Scope::View => 1,
            Scope::Produce => 2,
            Scope::Consume => 4,
            Scope::Admin => 8,
        }
    }
}

/// Some scopes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Scopes(u8);

impl Scopes {
    /// All of them.
    pub const ALL: Scopes = Scopes::of(&Scope::ALL);

    /// These.
    pub const fn of(scopes: &[Scope]) -> Scopes {
        let (mut bits, mut at) = (0, 0);
        while at < scopes.len() {
            bits |= scopes[at].bit();
            at += 1;
        }
        Scopes(bits)
    }

    /// Whether a token with these scopes may do what needs one of `needed`.
    pub fn grant(self, needed: Scopes) -> bool {
        self.0 & (needed.0 | Scope::Admin.bit()) != 0
    }

    /// Each of them.
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
    use super::*;

    #[test]
    fn one_of_the_needed_scopes_is_enough_and_admin_always_is() {
        let [view, produce, consume, admin] = Scope::ALL.map(|scope| Scopes::of(&[scope]));
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
