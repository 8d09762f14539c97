//! What producers and consumers of a story were told, message by message.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::sidecar::Taken;

/// Shared by everybody in the story.
#[derive(Default)]
pub(super) struct Ledger(Mutex<Book>);

/// The pages.
#[derive(Default)]
pub(super) struct Book {
    /// Stored, as the broker said.
    pub(super) pushed: BTreeSet<String>,
    /// The attempts of each message that were handed out, in the order they came.
    pub(super) attempts: BTreeMap<String, Vec<u64>>,
    pub(super) acked: BTreeSet<String>,
    /// Acks that were not answered, or not with a verdict: they may count.
    pub(super) doubtful: BTreeSet<String>,
    pub(super) stale: BTreeSet<String>,
}

impl Ledger {
    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn pushed(&self, ids: &[String]) {
        self.book().pushed.extend(ids.iter().cloned());
    }

    pub(super) fn delivered(&self, taken: &[Taken]) {
        let mut book = self.book();
        for taken in taken {
            book.attempts.entry(taken.id.clone()).or_default().push(taken.attempt);
        }
    }

    /// Writes verdicts down; with none of them, that nobody answered.
    pub(super) fn settled(&self, taken: &[Taken], verdicts: &[String]) {
        let mut book = self.book();
        for (index, taken) in taken.iter().enumerate() {
            let page = match verdicts.get(index).map(String::as_str) {
                Some("acked") => &mut book.acked,
                Some("stale") => &mut book.stale,
                _ => &mut book.doubtful,
            };
            page.insert(taken.id.clone());
        }
    }
}

impl Book {
    /// Messages that were stored and never settled.
    pub(super) fn open(&self) -> Vec<&String> {
        self.pushed.iter().filter(|id| !self.acked.contains(*id) && !self.doubtful.contains(*id)).collect()
    }

    /// Messages that came more than once, with their attempts.
    pub(super) fn repeated(&self) -> Vec<(&String, &Vec<u64>)> {
        self.attempts.iter().filter(|(_, attempts)| attempts.len() > 1).collect()
    }

    /// Each message came exactly once, as attempt 1, and its ack counted.
    pub(super) fn is_exactly_once(&self) {
        assert!(self.repeated().is_empty(), "repeated: {:?}", self.repeated());
        let late: Vec<_> = self.attempts.iter().filter(|(_, attempts)| attempts.as_slice() != [1]).collect();
        assert!(late.is_empty(), "not a first attempt: {late:?}");
        assert!(
            self.stale.is_empty() && self.doubtful.is_empty(),
            "stale {:?} doubtful {:?}",
            self.stale,
            self.doubtful
        );
        assert_eq!(self.acked, self.pushed);
    }
}
