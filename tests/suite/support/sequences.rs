//! Whether the messages of each key come one after the other, whoever hands them out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What was pushed and what came. An id is its key, a dash, and how many of that key were pushed before it.
#[derive(Debug, Default)]
pub(crate) struct Sequences(Mutex<Book>);

/// The pages.
#[derive(Debug, Default)]
pub(crate) struct Book {
    /// How many of each key were promised.
    pub(crate) pushed: BTreeMap<String, u64>,
    /// The furthest of each key that came.
    reached: BTreeMap<String, u64>,
    /// Every one that came.
    pub(crate) came: BTreeSet<(String, u64)>,
    /// What came after a later one of its key: the id, and that one.
    pub(crate) inversions: Vec<(String, u64)>,
}

impl Sequences {
    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next message of a key was promised.
    pub(crate) fn pushed(&self, id: &str) {
        let (key, number) = parts(id);
        self.book().pushed.insert(key, number + 1);
    }

    /// A delivery came.
    pub(crate) fn came(&self, id: &str) {
        let (key, number) = parts(id);
        let mut book = self.book();
        let reached = *book.reached.get(&key).unwrap_or(&0);
        if number < reached {
            book.inversions.push((id.to_owned(), reached));
        }
        book.reached.insert(key.clone(), number.max(reached));
        book.came.insert((key, number));
    }
}

impl Book {
    /// How many messages were promised.
    pub(crate) fn promised(&self) -> usize {
        self.pushed.values().map(|count| *count as usize).sum()
    }

    /// What was promised and never came.
    pub(crate) fn missing(&self) -> Vec<(String, u64)> {
        let all = self.pushed.iter().flat_map(|(key, count)| (0..*count).map(|number| (key.clone(), number)));
        all.filter(|entry| !self.came.contains(entry)).take(20).collect()
    }
}

fn parts(id: &str) -> (String, u64) {
    let (key, number) = id.rsplit_once('-').unwrap_or((id, "0"));
    (key.to_owned(), number.parse().unwrap_or(u64::MAX))
}
