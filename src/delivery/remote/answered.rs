//! Requests that an owner has been asked: one that is repeated, because its answer was lost, gets the same answer, also
//! when the epoch is over by then.

use std::collections::{HashMap, VecDeque};

use super::wire::RequestName;
use crate::delivery::Verdict;
use crate::model::limits::REMOTE_VERDICTS_MAX;
use crate::model::time::Timestamp;

/// What an entry counts as, beside its verdicts.
const ENTRY: usize = 8;

/// The requests whose senders may still wait.
#[derive(Debug, Default)]
pub(super) struct Answered {
    entries: HashMap<RequestName, Entry>,
    /// When each one ends, in the order in which they came.
    order: VecDeque<(Timestamp, RequestName)>,
    size: usize,
}

#[derive(Debug)]
struct Entry {
    size: usize,
    /// None while it is being worked on.
    verdicts: Option<Vec<Verdict>>,
}

/// What to do with a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// Work on it.
    New,
    /// It is being worked on: a copy.
    Busy,
    /// Answer the same again.
    Again(Vec<Verdict>),
    /// There is no room to remember it, so nothing may be done for it.
    Full,
}

impl Answered {
    /// A request about so many receipts has come, whose sender waits until `until`.
    pub(super) fn admit(&mut self, name: &RequestName, receipts: usize, until: Timestamp, now: Timestamp) -> Admission {
        self.forget_until(now);
        if let Some(entry) = self.entries.get(name) {
            return entry.verdicts.clone().map_or(Admission::Busy, Admission::Again);
        }
        let size = ENTRY + receipts;
        if self.size + size > REMOTE_VERDICTS_MAX {
            return Admission::Full;
        }
        self.size += size;
        self.entries.insert(name.clone(), Entry { size, verdicts: None });
        self.order.push_back((until, name.clone()));
        Admission::New
    }

    /// It was answered.
    pub(super) fn answered(&mut self, name: &RequestName, verdicts: &[Verdict]) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.verdicts = Some(verdicts.to_vec());
        }
    }

    /// Nothing was done for it: a copy is worked on.
    pub(super) fn withdraw(&mut self, name: &RequestName) {
        if let Some(entry) = self.entries.remove(name) {
            self.size -= entry.size;
        }
    }

    fn forget_until(&mut self, now: Timestamp) {
        while self.order.front().is_some_and(|(until, _)| *until <= now) {
            if let Some((_, name)) = self.order.pop_front() {
                self.withdraw(&name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_worked_on_once_and_answered_alike_until_it_ends() {
        let (mut answered, at) = (Answered::default(), Timestamp::from_ms);
        let name = RequestName::fresh();
        assert_eq!(answered.admit(&name, 1, at(100), at(0)), Admission::New);
        assert_eq!(answered.admit(&name, 1, at(100), at(1)), Admission::Busy);
        answered.answered(&name, &[Verdict::Acked]);
        assert_eq!(answered.admit(&name, 1, at(100), at(99)), Admission::Again(vec![Verdict::Acked]));
        assert_eq!(answered.admit(&RequestName::fresh(), 1, at(200), at(100)), Admission::New);
        assert_eq!((answered.entries.len(), answered.order.len(), answered.size), (1, 1, ENTRY + 1));
    }

    #[test]
    fn what_cannot_be_remembered_is_not_admitted() {
        let (mut answered, at) = (Answered::default(), Timestamp::from_ms);
        let mut admit = |now| answered.admit(&RequestName::fresh(), 1_000, at(100), at(now));
        let fits = REMOTE_VERDICTS_MAX / (ENTRY + 1_000);
        assert!((0..fits).all(|_| admit(0) == Admission::New));
        assert_eq!(admit(0), Admission::Full);
        assert_eq!(admit(100), Admission::New);
    }
}
