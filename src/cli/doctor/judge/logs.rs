//! What lies in `data_dir`: the two logs beside Redis, or the embedded store.

use std::time::Duration;

use super::super::finding::Finding;
use super::bytes;
use crate::cli::output::thousands;
use crate::model::time::show_span;
use crate::wal::Inspection;

/// Percent of `wal.limit_bytes` from which on it is time to act.
const NEARLY_FULL: u64 = 80;

/// What was seen of an embedded store.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct StoreFacts {
    /// Whether there is one.
    pub(in super::super) is_there: bool,
    /// Bytes of its files.
    pub(in super::super) bytes: u64,
    /// The number of its last commit.
    pub(in super::super) commits: Option<u64>,
    /// How long ago that was.
    pub(in super::super) age: Option<Duration>,
    /// The process that has it.
    pub(in super::super) holder: Option<u32>,
}

/// A log that may take so many bytes; `identity` is which data Redis holds, if it says so.
pub(in super::super) fn log(
    check: &'static str,
    survey: &Result<Option<Inspection>, String>,
    limit_bytes: u64,
    identity: Option<&str>,
) -> Finding {
    let survey = match survey {
        Ok(Some(survey)) => survey,
        Ok(None) => return Finding::skip(check, "not there yet: nothing is buffered"),
        Err(error) => {
            return Finding::fail(
                check,
                format!("cannot be read: {error}"),
                "chown -R USER DATA_DIR, for the user that runs dwell",
            );
        }
    };
    let held = survey.holder.map_or("no process has it".to_owned(), |pid| format!("process {pid} has it"));
    let records = thousands(survey.records);
    let found = format!("{records} records wait, {} on disk; {held}", bytes(survey.bytes));
    let of_another = identity.zip(survey.store_identity.as_deref()).is_some_and(|(redis, log)| redis != log);
    if of_another && survey.records > 0 {
        let found = format!("{found}; they were buffered for another Redis, or another `redis.prefix`");
        return Finding::fail(
            check,
            found,
            "correct `redis.url`; or, if this Redis is its successor, `dwell serve --adopt` once",
        );
    }
    if survey.bytes >= limit_bytes {
        let found = format!("{found}; it is full, and takes nothing more");
        return Finding::fail(check, found, "bring Redis back, or raise `wal.limit_bytes` and restart dwell");
    }
    if survey.set_aside > 0 {
        let found = format!("{found}; {} segments were damaged and set aside", survey.set_aside);
        return Finding::warn(
            check,
            found,
            "look at the disk and at dwell's log; keep them until it is clear what was lost",
        );
    }
    if survey.bytes.saturating_mul(100) / limit_bytes.max(1) >= NEARLY_FULL {
        let found = format!("{found}; {} is the limit", bytes(limit_bytes));
        return Finding::warn(check, found, "bring Redis back, or raise `wal.limit_bytes` and restart dwell");
    }
    // A journal holds what Redis has too; records of a log are in no other place.
    if check == "wal" && survey.records > 0 {
        let advice = match survey.holder {
            Some(_) => "bring Redis back if it is away; otherwise they are being replayed: look again in a moment",
            None => "start `dwell serve` with this --data-dir: they are nowhere else",
        };
        return Finding::warn(check, found, advice);
    }
    Finding::ok(check, found)
}

/// The embedded store.
pub(in super::super) fn store(facts: &StoreFacts) -> Finding {
    if !facts.is_there {
        return Finding::skip("store", "embedded; not there yet");
    }
    let held = facts.holder.map_or("no process has it".to_owned(), |pid| format!("process {pid} has it"));
    let size = bytes(facts.bytes);
    match facts.commits {
        None => Finding::fail(
            "store",
            format!("embedded, {size}, and its mark of the last commit cannot be read; {held}"),
            "restore it from a copy; `dwell serve` says what is missing",
        ),
        Some(commits) => {
            let age = facts.age.map_or(String::new(), |age| format!(", the last {} ago", show_span(age)));
            Finding::ok("store", format!("embedded, {size}, {} commits{age}; {held}", thousands(commits)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::finding::Status;
    use super::*;

    const LIMIT: u64 = 1_000;

    fn judged(survey: Inspection) -> Finding {
        log("wal", &Ok(Some(survey)), LIMIT, Some("here"))
    }

    #[test]
    fn records_that_wait_are_a_warning_and_those_of_another_redis_fail() {
        assert_eq!(log("wal", &Ok(None), LIMIT, None).status, Status::Skip);
        assert_eq!(log("wal", &Err("denied".to_owned()), LIMIT, None).status, Status::Fail);
        let empty = Inspection { holder: Some(7), ..Inspection::default() };
        assert_eq!(judged(empty.clone()).found, "0 records wait, 0 B on disk; process 7 has it");
        let waiting = Inspection { records: 3, store_identity: Some("here".to_owned()), ..empty };
        assert!(judged(waiting.clone()).advice.is_some_and(|advice| advice.contains("bring Redis back")));
        let left = Inspection { holder: None, ..waiting.clone() };
        assert!(judged(left).advice.is_some_and(|advice| advice.contains("start `dwell serve`")));
        assert_eq!(log("journal", &Ok(Some(waiting.clone())), LIMIT, Some("here")).status, Status::Ok);
        let other = Inspection { store_identity: Some("there".to_owned()), ..waiting };
        assert!(judged(other.clone()).advice.is_some_and(|advice| advice.contains("--adopt")));
        assert_eq!(judged(Inspection { records: 0, ..other }).status, Status::Ok);
    }

    #[test]
    fn a_log_is_judged_by_its_size_and_by_damage() {
        let status = |bytes| judged(Inspection { bytes, ..Inspection::default() }).status;
        assert_eq!([799, 800, 999, 1_000].map(status), [Status::Ok, Status::Warn, Status::Warn, Status::Fail]);
        assert_eq!(judged(Inspection { set_aside: 1, ..Inspection::default() }).status, Status::Warn);
    }

    #[test]
    fn a_store_without_its_mark_fails() {
        assert_eq!(store(&StoreFacts::default()).status, Status::Skip);
        let there = StoreFacts { is_there: true, bytes: 4_096, ..StoreFacts::default() };
        assert_eq!(store(&there).status, Status::Fail);
        let sound = StoreFacts { commits: Some(1_200), age: Some(Duration::from_secs(3)), holder: Some(9), ..there };
        assert_eq!(store(&sound).found, "embedded, 4.0 KiB, 1,200 commits, the last 3s ago; process 9 has it");
    }
}
