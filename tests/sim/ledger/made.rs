//! Messages that are pushed without an id: how clients learn what brokers called them.
//!
//! Each payload is there once, so an answer tells the id, and without an answer whatever shows the message.

use dwell_simulated_redis::Time;

use super::{Ledger, PushFact, Span};
use crate::operation::Target;

/// An id that a broker made, as its answer shows it.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    /// The payload.
    pub(crate) tag: String,
    pub(crate) topic: usize,
    pub(crate) id: String,
    /// Of a message whose id decides it.
    pub(crate) partition: Option<u64>,
    pub(crate) broker: usize,
    pub(crate) span: Span,
    /// By SQS, whose ids have another form.
    pub(crate) is_of_queue: bool,
}

/// A push without an id.
#[derive(Debug)]
pub(super) struct Unnamed {
    /// With the name that the plan has for it.
    target: Target,
    is_of_queue: bool,
    /// Once a client has seen it.
    id: Option<String>,
}

impl Ledger {
    /// Before the request.
    pub(crate) fn expect_id(&mut self, tag: &str, target: &Target, is_of_queue: bool) {
        self.unnamed.insert(tag.to_owned(), Unnamed { target: target.clone(), is_of_queue, id: None });
    }

    /// The first id that is seen is the one of the message. Another one is for the judge.
    pub(crate) fn learn(&mut self, at: Time, tag: &str, id: &str) {
        let Some(unnamed) = self.unnamed.get_mut(tag).filter(|unnamed| unnamed.id.is_none()) else { return };
        unnamed.id = Some(id.to_owned());
        let line = format!("t{}/{id} is {}, pushed as {tag}", unnamed.target.topic, unnamed.target.id);
        self.pushes.iter_mut().filter(|push| push.tag == tag).for_each(|push| id.clone_into(&mut push.target.id));
        self.note(at, &line);
    }

    /// Answers it with its id, if that is known.
    pub(crate) fn add_push(&mut self, mut fact: PushFact) -> &PushFact {
        if let Some(id) = self.unnamed.get(&fact.tag).and_then(|unnamed| unnamed.id.clone()) {
            fact.target.id = id;
        }
        let place = self.pushes.len();
        self.pushes.push(fact);
        &self.pushes[place]
    }

    /// The message that a plan calls by this name, with its id and its key, once a client knows them.
    pub(crate) fn named(&self, name: &str) -> Option<Target> {
        let unnamed = self.unnamed.values().find(|unnamed| unnamed.target.id == name)?;
        Some(Target { id: unnamed.id.clone()?, ..unnamed.target.clone() })
    }

    /// The id of a message that SQS shows with another one, or the same.
    pub(crate) fn id_in_queue(&self, tag: &str, shown: &str) -> Option<String> {
        let Some(unnamed) = self.unnamed.get(tag) else { return self.ids.get(tag).cloned() };
        if unnamed.is_of_queue {
            return Some(shown.to_owned());
        }
        let bits = u128::from_str_radix(&shown.replace('-', ""), 16).ok()?;
        Some(ulid::Ulid(bits).to_string())
    }
}
