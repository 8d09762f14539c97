//! The sentence about the keys that a fair group shows.

use super::super::{KeySeen, PushFact, Pushed};
use super::{Breach, Judge};

const KEYS: &str = "a group shows no more messages of a key than were pushed with it";

impl Judge<'_> {
    /// Owners remember how many messages of a key are sorted, and what became of some of them they learn later. But each message counts
    /// once.
    pub(super) fn key(&self, seen: &KeySeen) -> Option<Breach> {
        let comes_from = [Some(seen.topic), self.topics[seen.topic].takes_from];
        let of_key = comes_from.into_iter().flatten().filter_map(|topic| self.by_key.get(&(topic, &*seen.key)));
        let may_be = |push: &&&PushFact| push.outcome != Pushed::Refused && push.span.sent <= seen.span.end();
        let pushed = of_key.flatten().filter(may_be).count() as u64;
        // The messages of a cron job have its name as their key.
        let is_of_job = seen.key.strip_prefix('c').is_some_and(|job| job.parse::<usize>().is_ok());
        let is_wrong = seen.messages > pushed && !is_of_job && !self.met_others(seen.span.end());
        is_wrong.then(|| {
            let group = &self.topics[seen.topic].groups[seen.group];
            let detail = format!("group {group}: {} messages of {} and {pushed} pushes", seen.messages, seen.key);
            self.breach(KEYS, seen.topic, &seen.key, detail)
        })
    }
}
