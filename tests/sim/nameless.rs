//! Clients that push without an id, and mean the message afterwards by the id that the broker made.
//!
//! A push without an id that had no answer is not repeated: its repeat would be another message. If the answer says that the outcome is
//! unknown, it has the id, and a repeat with that is safe.

use serde_json::Value;

use crate::client::Clients;
use crate::ledger::{Made, Pushed, Span};
use crate::lock;
use crate::operation::{NAME, Operation, Policy, Push};

impl Clients {
    /// With the ids that brokers made for the messages that it means; nothing if no client knows an id yet.
    pub(crate) fn with_ids(&self, mut operation: Operation) -> Option<Operation> {
        if let Some(target) = operation.meant().filter(|target| target.id.starts_with(NAME)) {
            let named = lock(&self.ledger).named(&target.id);
            let Some(named) = named else {
                self.note(&format!("nobody knows the id of {}", target.id));
                return None;
            };
            *target = named;
        }
        Some(operation)
    }

    /// Notes before a push which payload is whose.
    pub(crate) fn sends(&self, tag: &str, push: &Push) {
        let mut ledger = lock(&self.ledger);
        match push.is_nameless {
            true => ledger.expect_id(tag, &push.target, false),
            false => drop(ledger.ids.insert(tag.to_owned(), push.target.id.clone())),
        }
    }

    /// Learns the id of a message from whatever shows it together with its payload.
    pub(crate) fn learn(&self, tag: &str, id: &str) {
        lock(&self.ledger).learn(self.now(), tag, id);
    }

    /// Learns the id of a push from its answer, which may be an error.
    pub(crate) fn learn_from(&self, tag: &str, broker: usize, push: &Push, span: Span, answer: &Value) {
        let Some(id) = answer["id"].as_str().filter(|_| push.is_nameless) else { return };
        // A broker that does not know the topic yet, and buffers, answers the partition of a topic with the default settings.
        let is_certain = push.target.key.is_none() && answer["status"] != "buffered";
        let partition = answer["partition"].as_u64().filter(|_| is_certain);
        let (tag, topic, id) = (tag.to_owned(), push.target.topic, id.to_owned());
        self.learn(&tag, &id);
        lock(&self.ledger).made.push(Made { tag, topic, id, partition, broker, span, is_of_queue: false });
    }

    /// Repeats a push whose outcome is unknown with the id of its answer, at any broker. The time of the message is that of either push.
    pub(crate) async fn repeat(&self, tag: &str, broker: usize, push: &Push) -> Option<(Span, Pushed)> {
        if !push.is_nameless || push.policy != Policy::Keep {
            return None;
        }
        let target = lock(&self.ledger).named(&push.target.id)?;
        self.wait(300).await;
        let push = Push { target, is_nameless: false, ..push.clone() };
        let (span, _, outcome) = self.ask_to_push(tag, broker, &push).await;
        self.note(&format!("push {} as {tag} again at broker {broker}: {outcome:?}", push.target.name()));
        let outcome = match outcome {
            Pushed::Stored | Pushed::Duplicate => Pushed::Found,
            Pushed::Journaled | Pushed::Buffered => Pushed::Safe,
            _ => Pushed::Unknown,
        };
        Some((span, outcome))
    }
}
