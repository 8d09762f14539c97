//! One gate for every surface: each request passes it twice.
//!
//! Before its body is read: whose the request claims to be ([`Gate::enter`]); from then on what it holds counts as that identity's.
//! After it, before any effect: what it asks for ([`Gate::pass`]), with the scope, the method, and room for the answer. A handler
//! needs a [`Pass`], and only the gate makes one. The gate keeps no message, and knows neither HTTP nor the store.

mod identity;
pub mod access;
mod action;
mod answers;
mod bodies;
mod places;
mod reads;

use std::sync::Arc;
use std::time::Duration;

use self::access::{Access, Actor, Shown};
pub use self::action::{Action, AnswerSize, Effect, Holds, Needs, Resource, UNKNOWN};
pub(crate) use self::answers::{AnswerBudget, Held};
pub(crate) use self::bodies::{BodyBudget, NoRoom};
pub use self::identity::{Identity, Trust};
pub(crate) use self::places::{Place, Places};
pub(crate) use self::reads::{HeavyRead, PARTITIONS_AT_ONCE, PartitionRead, ReadLimiter};
use crate::model::error::{Error, Result};
use crate::model::limits::{
    ANSWER_PATIENCE, ANSWERS_BYTES_MAX, BODIES_BYTES_MAX, CONNECTIONS_MAX, SMALL_BODY_BYTES_MAX, WAITING_TENTHS,
};

/// Whose a request claims to be, before its body is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim<'a> {
    /// A bearer token, if one is shown.
    Token(Option<&'a str>),
    /// The key id of a signature, and where the request comes from: everybody may name a key.
    Key { id: &'a str, peer: &'a str },
}

/// Whom the listener serves that a request came by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    Clients,
    /// Its listener lets in only what [`Action::only_shows`]. Without tokens everybody who reaches it has `view`.
    Operators,
}

/// A request whose body may be read.
#[derive(Debug, Clone)]
pub struct Entrant {
    audience: Audience,
    identity: Identity,
    /// `None` until a signature is checked, and for requests that need no token.
    actor: Option<Actor>,
    shown: Option<Shown>,
}

impl Entrant {
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    pub fn actor(&self) -> Option<&Actor> {
        self.actor.as_ref()
    }
}

/// How a request was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// By a GET or HEAD without a checked signature: anybody can make somebody else's browser send it.
    ByLink,
    /// By another method, or with a signature that was checked.
    OnPurpose,
}

/// Why the gate let a request not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// A token is needed and none is shown.
    NoToken,
    UnknownToken,
    /// The token lacks the scope.
    Scope(String),
    /// The request changes something and was sent by a link.
    ByLink(String),
    /// The request came by the listener for operators, which does not let it in.
    OtherListener(String),
    /// There is no room for the answer.
    Full(Error),
}

impl Refusal {
    pub fn detail(&self) -> &str {
        match self {
            Refusal::NoToken => "a token is needed: `Authorization: Bearer TOKEN`",
            Refusal::UnknownToken => "the token is none of those that are known here",
            Refusal::Scope(why) | Refusal::ByLink(why) | Refusal::OtherListener(why) => why,
            Refusal::Full(error) => error.detail(),
        }
    }
}

/// Permission for one action. Only [`Gate::pass`] makes one.
#[derive(Debug, Clone)]
pub struct Pass {
    action: &'static Action,
    entrant: Entrant,
}

impl Pass {
    pub fn action(&self) -> &'static Action {
        self.action
    }

    pub fn identity(&self) -> &Identity {
        &self.entrant.identity
    }

    /// `None` for a request that needs no token.
    pub fn actor(&self) -> Option<&Actor> {
        self.entrant.actor.as_ref()
    }

    /// To look the token up again later: it may be revoked meanwhile.
    pub fn shown(&self) -> Option<Shown> {
        self.entrant.shown
    }

    /// Permission for a further action that a request turns out to need, such as creating what it sends to. Errors: as
    /// [`Gate::pass`], but for `Full`.
    pub fn also(&self, action: &'static Action, sent: Sent) -> Result<Pass, Refusal> {
        permit(self.entrant.clone(), action, sent)
    }

    /// Whether the token has `admin`.
    pub fn is_admin(&self) -> bool {
        self.actor().is_some_and(|actor| Needs::ADMIN.are_met_by(actor.scopes))
    }
}

/// The tokens, and the memory and places that all requests share.
#[derive(Debug, Clone)]
pub struct Gate {
    audience: Audience,
    access: Access,
    anonymous: Identity,
    /// A client of the listener for operators without a token, while none is required.
    visitor: Actor,
    pub(crate) bodies: Arc<BodyBudget>,
    pub(crate) answers: Arc<AnswerBudget>,
    pub(crate) places: Arc<Places>,
}

impl Gate {
    pub fn new(access: Access) -> Gate {
        Gate {
            audience: Audience::Clients,
            access,
            anonymous: Identity::new("".into(), Trust::Anonymous),
            visitor: Actor::visitor(),
            bodies: Arc::new(BodyBudget::new(BODIES_BYTES_MAX)),
            answers: AnswerBudget::new(ANSWERS_BYTES_MAX, ANSWER_PATIENCE),
            places: places_of(CONNECTIONS_MAX),
        }
    }

    /// The same gate, with the same memory and places, for requests that come by `audience`.
    pub(crate) fn behind(&self, audience: Audience) -> Gate {
        Gate { audience, ..self.clone() }
    }

    pub(crate) fn with_access(self, access: Access) -> Gate {
        Gate { access, ..self }
    }

    #[cfg(test)]
    pub(crate) fn with_bodies(self, bytes: usize) -> Gate {
        Gate { bodies: Arc::new(BodyBudget::new(bytes)), ..self }
    }

    pub(crate) fn with_answers(self, bytes: usize, patience: Duration) -> Gate {
        Gate { answers: AnswerBudget::new(bytes, patience), ..self }
    }

    pub(crate) fn with_connections(self, max: usize) -> Gate {
        Gate { places: places_of(max), ..self }
    }

    pub fn access(&self) -> &Access {
        &self.access
    }

    /// The first passing, before the body is read. Errors: `NoToken`, `UnknownToken`: also for a key id that no token has.
    pub fn enter(&self, claim: Claim<'_>) -> Result<Entrant, Refusal> {
        let audience = self.audience;
        if !self.access.asks() {
            let actor = match audience {
                Audience::Clients => Actor::local(),
                Audience::Operators => self.visitor.clone(),
            };
            return Ok(Entrant { audience, identity: actor.identity.clone(), actor: Some(actor), shown: None });
        }
        match claim {
            Claim::Token(None) => Err(Refusal::NoToken),
            Claim::Token(Some(token)) => {
                let shown = Shown::new(token);
                let actor = self.access.owner(shown).ok_or(Refusal::UnknownToken)?;
                Ok(self.known(&actor, shown))
            }
            Claim::Key { id, peer } => {
                self.access.named(id).ok_or(Refusal::UnknownToken)?;
                let identity = Identity::new(format!("{id} at {peer}").into(), Trust::Claimed);
                Ok(Entrant { audience, identity, actor: None, shown: None })
            }
        }
    }

    /// A request that needs no token.
    pub fn enter_anonymously(&self) -> Entrant {
        let is_local = self.audience == Audience::Clients && !self.access.asks();
        let identity = if is_local { Identity::LOCAL } else { self.anonymous.clone() };
        Entrant { audience: self.audience, identity, actor: None, shown: None }
    }

    /// Believes the claim of a key once `check` has found its signature right, with the token's text. Errors: `missing`, if the token
    /// is gone by now; those of `check`.
    pub fn verify<E>(
        &self,
        key_id: &str,
        missing: impl FnOnce() -> E,
        check: impl FnOnce(&str) -> Result<(), E>,
    ) -> Result<Entrant, E> {
        let (actor, secret) = self.access.named(key_id).ok_or_else(missing)?;
        check(secret.expose())?;
        Ok(self.known(&actor, Shown::new(secret.expose())))
    }

    fn known(&self, actor: &Actor, shown: Shown) -> Entrant {
        Entrant {
            audience: self.audience,
            identity: actor.identity.clone(),
            actor: Some(actor.clone()),
            shown: Some(shown),
        }
    }

    /// The second passing, of a request whose body of so many bytes was read before: a large one does not wait for room, since what
    /// it holds counts nowhere. Errors: as [`Gate::pass`].
    pub async fn pass_with_body(
        &self,
        entrant: Entrant,
        action: &'static Action,
        sent: Sent,
        body_bytes: usize,
    ) -> Result<Pass, Refusal> {
        if body_bytes > SMALL_BODY_BYTES_MAX && action.answer == AnswerSize::Counted {
            self.answers.check_room(entrant.identity()).map_err(Refusal::Full)?;
        }
        self.pass(entrant, action, sent).await
    }

    /// The second passing, before any effect. Errors: `OtherListener`, `NoToken`, `Scope`, `ByLink`, `Full`.
    pub async fn pass(&self, entrant: Entrant, action: &'static Action, sent: Sent) -> Result<Pass, Refusal> {
        let pass = permit(entrant, action, sent)?;
        if action.answer == AnswerSize::Counted {
            self.answers.while_room(pass.identity(), async {}).await.map_err(Refusal::Full)?;
        }
        Ok(pass)
    }
}

fn permit(entrant: Entrant, action: &'static Action, sent: Sent) -> Result<Pass, Refusal> {
    if entrant.audience == Audience::Operators && !action.only_shows() {
        let why = "this listener is for operators and only shows names and numbers (`admin.listen`): ask at `listen`";
        return Err(Refusal::OtherListener(why.to_owned()));
    }
    match (action.needs, &entrant.actor) {
        (Needs::Nothing, _) => {}
        (Needs::Token | Needs::OneOf(_), None) => return Err(Refusal::NoToken),
        (Needs::Token, Some(_)) => {}
        (Needs::OneOf(needed), Some(actor)) if !actor.scopes.grant(needed) => {
            let has: Vec<_> = actor.scopes.each().map(|scope| scope.name()).collect();
            let why = format!("this needs a token with the scope {needed}; `{}` has {}", actor.name, has.join(", "));
            return Err(Refusal::Scope(why));
        }
        (Needs::OneOf(_), Some(_)) => {}
    }
    if action.effect == Effect::Changes && sent == Sent::ByLink {
        let why = format!("{} changes something, so it is no GET without a signature: send it with POST", action.name);
        return Err(Refusal::ByLink(why));
    }
    Ok(Pass { action, entrant })
}

fn places_of(connections: usize) -> Arc<Places> {
    Places::new(connections.saturating_mul(WAITING_TENTHS) / 10)
}
