//! The kinds of requests, with everything that the gate has to know about each.
//!
//! Each surface has a table of its actions. An [`Action`] has no defaults, so a surface that does not say what an action needs,
//! changes, reads and holds does not compile.

use super::access::{Scope, Scopes};

/// The tokens that may make a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// None: anybody may.
    Nothing,
    /// Any token.
    Token,
    /// A token with one of these scopes, or `admin`.
    OneOf(Scopes),
}

impl Needs {
    pub const PRODUCE: Needs = Needs::OneOf(Scopes::of(&[Scope::Produce]));
    pub const CONSUME: Needs = Needs::OneOf(Scopes::of(&[Scope::Consume]));
    pub const EITHER: Needs = Needs::OneOf(Scopes::of(&[Scope::Produce, Scope::Consume]));
    pub const HAND_OVER: Needs = Needs::OneOf(Scopes::of(&[Scope::HandOver]));
    pub const ADMIN: Needs = Needs::OneOf(Scopes::of(&[Scope::Admin]));

    /// Whether a token with these scopes is enough.
    pub fn are_met_by(self, scopes: Scopes) -> bool {
        match self {
            Needs::Nothing | Needs::Token => true,
            Needs::OneOf(needed) => scopes.grant(needed),
        }
    }

    pub fn name(self) -> String {
        match self {
            Needs::Nothing => "nothing".to_owned(),
            Needs::Token => "any token".to_owned(),
            Needs::OneOf(scopes) => {
                scopes.each().map(|scope| format!("`{}`", scope.name())).collect::<Vec<_>>().join(" or ")
            }
        }
    }
}

/// Whether a request changes anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Reads,
    /// It stores, changes, delivers, settles or deletes. A link cannot do it: a GET only counts with a signature that was checked.
    Changes,
}

impl Effect {
    pub fn name(self) -> &'static str {
        match self {
            Effect::Reads => "reads",
            Effect::Changes => "changes",
        }
    }
}

/// The thing that a request acts on. A request about one group never acts on its topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// This process, or the list of topics.
    Broker,
    /// A topic with all its groups, or its cron jobs.
    Topic,
    /// One group.
    Group,
    /// Messages of a topic, in all its groups or in one that is named.
    Messages,
}

impl Resource {
    pub fn name(self) -> &'static str {
        match self {
            Resource::Broker => "broker",
            Resource::Topic => "topic",
            Resource::Group => "group",
            Resource::Messages => "messages",
        }
    }
}

/// How large an answer may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerSize {
    /// A few KiB at most: it is neither counted nor delayed.
    Small,
    /// It begins only while there is memory for it, among all answers and in the share of its token, and it is counted until its
    /// client has read it.
    Counted,
}

impl AnswerSize {
    pub fn name(self) -> &'static str {
        match self {
            AnswerSize::Small => "small",
            AnswerSize::Counted => "counted",
        }
    }
}

/// The things beside memory that a request holds; of each a token has at most its share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    Nothing,
    /// A turn among the reads of whole topics.
    WholeRead,
    /// A place of a waiting consumer, and the membership of this broker in the group.
    Place,
}

impl Holds {
    pub fn name(self) -> &'static str {
        match self {
            Holds::Nothing => "nothing",
            Holds::WholeRead => "a whole read",
            Holds::Place => "a waiting place, a membership",
        }
    }
}

/// One kind of request of one surface.
#[derive(Debug, PartialEq, Eq)]
pub struct Action {
    /// The method of HTTP; of an action of SQS `POST`, which may also be a GET.
    pub method: &'static str,
    /// The route, as in `/v1/topics/{topic}`, or the name of the action.
    pub name: &'static str,
    pub needs: Needs,
    pub effect: Effect,
    pub acts_on: Resource,
    /// Bytes of the largest body; 0 where none is read.
    pub body_bytes: usize,
    pub answer: AnswerSize,
    pub holds: Holds,
}

impl Action {
    /// Whether it only shows what a token with `view` shows: names and numbers, and no payload.
    pub fn only_shows(&self) -> bool {
        self.effect == Effect::Reads && matches!(self.needs, Needs::Nothing | Needs::Token)
    }

    /// Whether it is written to the audit log, whoever makes it.
    pub fn is_of_operators(&self) -> bool {
        self.effect == Effect::Changes && self.needs == Needs::ADMIN
    }
}

/// Any request that no table has.
pub static UNKNOWN: Action = Action {
    method: "POST",
    name: "",
    needs: Needs::ADMIN,
    effect: Effect::Changes,
    acts_on: Resource::Broker,
    body_bytes: 0,
    answer: AnswerSize::Counted,
    holds: Holds::Nothing,
};
