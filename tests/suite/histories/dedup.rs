//! Pushes with dedup keys: of those with one key, whose window does not end, one is delivered.

use std::collections::{BTreeMap, BTreeSet};

use dwell::model::error::Result;
use serde_json::{Value, json};

use super::exemptions::Identity;
use super::run::Run;

/// Keys that are used at the same time.
const KEYS: usize = 4;

#[derive(Default)]
pub(super) struct Deduped {
    /// Messages that were pushed with a dedup key.
    keys: BTreeMap<String, usize>,
    /// Messages that were refused as duplicates.
    refused: BTreeSet<String>,
    newest: usize,
    /// What was delivered, and should not have been.
    pub(super) wrong: Vec<String>,
}

impl Deduped {
    /// Whether a message of a promised key is among these dead letters.
    pub(super) fn is_dead(&self, promised: &str, dead: &[String]) -> bool {
        dead.iter().filter_map(|id| self.keys.get(id)).any(|key| promised == format!("k{key}"))
    }
}

impl Run {
    pub(super) async fn push_deduped(&mut self) -> Result<()> {
        let key = (self.deduped.newest + 1).saturating_sub(self.rng.usize(0..KEYS));
        self.deduped.newest = self.deduped.newest.max(key);
        let Some(at) = self.broker_for(Some(&format!("m{key}"))) else { return Ok(()) };
        let id = format!("n{}-k{key}", self.batches);
        self.batches += 1;
        self.deduped.keys.insert(id.clone(), key);
        let message = json!({"id": id, "payload": id, "dedup_key": format!("k{key}"), "dedup_for": "6h"});
        let answer = self.client(at)?.post("/v1/topics/orders/messages/batch", &json!({"messages": [message]})).await;
        self.count(answer.as_ref());
        let result = answer.map_or(Value::Null, |(_, body)| body["results"][0].clone());
        for of in [&id, &format!("k{key}")] {
            self.tell(of, at, format!("push of {id}: {result}"));
        }
        let identity = self.brokers[at].identity;
        match result["status"].as_str() {
            Some("stored" | "journaled") => {
                self.by.pushes.insert(id.clone(), identity);
                self.is_promised(key, identity);
                self.by.keys.entry(key).or_insert((id, identity));
            }
            Some("buffered") => self.is_promised(key, identity),
            Some("duplicate") => {
                self.deduped.refused.insert(id);
                self.is_promised(key, identity);
                let of_key = self.deduped.keys.iter().filter(|(_, of)| **of == key);
                self.by.copied.extend(of_key.map(|(id, _)| id.clone()));
            }
            _ => {}
        }
        Ok(())
    }

    /// A message of the key is delivered.
    fn is_promised(&mut self, key: usize, identity: Identity) {
        self.by.pushes.entry(format!("k{key}")).or_insert(identity);
    }

    /// A message is handed out: was it to be, if it has a dedup key?
    pub(super) fn check_key(&mut self, id: &str) {
        let Some(key) = self.deduped.keys.get(id).copied() else { return };
        let is_second = self.by.keys.get(&key).is_some_and(|(first, _)| first != id);
        if self.deduped.refused.contains(id) || (is_second && !self.exempt.may_be_second(key)) {
            self.deduped.wrong.push(id.to_owned());
        }
    }

    pub(super) fn is_acked(&mut self, id: &str, by: Identity) {
        self.by.acks.insert(id.to_owned(), by);
        if let Some(key) = self.deduped.keys.get(id) {
            self.by.acks.insert(format!("k{key}"), by);
        }
    }

    pub(super) fn is_perhaps_acked(&mut self, id: &str) {
        self.perhaps_acked.insert(id.to_owned());
        if let Some(key) = self.deduped.keys.get(id) {
            self.perhaps_acked.insert(format!("k{key}"));
        }
    }

    /// A purge took every message, also those whose pushes were not answered.
    pub(super) fn purged_keys(&mut self, by: Identity, is_done: bool) {
        for id in self.deduped.keys.keys().cloned().collect::<Vec<_>>() {
            if self.by.acks.contains_key(&id) {
                continue;
            }
            if is_done {
                self.exempt.acked_apart(&id);
                self.is_acked(&id, by);
            } else {
                self.is_perhaps_acked(&id);
            }
        }
    }
}
