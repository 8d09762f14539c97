//! Receives of FIFO queues that name their attempt: a client whose answer was lost asks again and gets the same messages.
//!
//! In the memory of this broker, since a receive hands out what this broker owns.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::queue::Queue;
use crate::model::limits::RECEIVE_ATTEMPTS_MAX;
use crate::platform::clock::Instant;

/// As at AWS.
const REMEMBERED: Duration = Duration::from_secs(300);

#[derive(Debug, Default)]
pub(crate) struct Attempts(Mutex<VecDeque<Attempt>>);

#[derive(Debug)]
struct Attempt {
    queue: String,
    id: String,
    at: Instant,
    receipts: Vec<String>,
}

impl Attempts {
    /// The receipts that the attempt got within the last five minutes.
    pub(crate) fn receipts(&self, queue: &Queue, id: &str, now: Instant) -> Option<Vec<String>> {
        let attempts = self.lock();
        let is_it = |attempt: &&Attempt| attempt.queue == queue.name && attempt.id == id;
        let attempt = attempts.iter().rev().find(is_it)?;
        (now.since(attempt.at) < REMEMBERED).then(|| attempt.receipts.clone())
    }

    pub(crate) fn remember(&self, queue: &Queue, id: &str, receipts: Vec<String>, now: Instant) {
        let mut attempts = self.lock();
        attempts.retain(|attempt| now.since(attempt.at) < REMEMBERED);
        if attempts.len() >= RECEIVE_ATTEMPTS_MAX {
            attempts.pop_front();
        }
        attempts.push_back(Attempt { queue: queue.name.clone(), id: id.to_owned(), at: now, receipts });
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Attempt>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
