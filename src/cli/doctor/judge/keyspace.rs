//! What is in dwell's keys, and who works with them.

use super::super::finding::Finding;
use crate::app::engine::KeysCheckup;
use crate::cli::output::thousands;

/// Keys that are named.
const NAMED: usize = 5;

pub(super) fn keys(keys: &KeysCheckup) -> Finding {
    if !keys.foreign.is_empty() {
        let named = keys.foreign.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        let found = format!("{} keys are not as this dwell writes them: {named}", keys.foreign.len());
        let advice = "another program, or a newer dwell, uses this prefix: look with `redis-cli type KEY`, and give dwell a \
                      `redis.prefix` of its own";
        return Finding::fail("keys", found, advice);
    }
    let topics = thousands(keys.topics as u64);
    if let Some(error) = &keys.failure {
        let found = format!("{} of {topics} topics looked at: {}", keys.looked_at, error.detail());
        return Finding::warn("keys", found, "try again when Redis is less busy, or raise `redis.timeout`");
    }
    let found = format!("{} of {topics} topics looked at, all keys as they should be", keys.looked_at);
    Finding::ok("keys", format!("{found}; `dwell verify TOPIC` reads all of one"))
}

pub(super) fn members(keys: &KeysCheckup) -> Finding {
    Finding::ok(
        "members",
        match keys.members.len() {
            0 => "no broker is in a group of these topics now".to_owned(),
            1 => "1 broker is in groups of these topics".to_owned(),
            count => format!("{count} brokers are in groups of these topics"),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::super::super::finding::Status;
    use super::*;
    use crate::model::error::Error;

    #[test]
    fn what_dwell_did_not_write_fails() {
        let sound = KeysCheckup { topics: 1_200, looked_at: 20, ..KeysCheckup::default() };
        assert_eq!(keys(&sound).status, Status::Ok);
        assert!(keys(&sound).found.starts_with("20 of 1,200 topics"));
        let slow = KeysCheckup { failure: Some(Error::unavailable("slow")), ..KeysCheckup::default() };
        assert_eq!(keys(&slow).status, Status::Warn);
        let foreign = KeysCheckup { foreign: (0..9).map(|n| format!("k{n}")).collect(), ..slow };
        let finding = keys(&foreign);
        assert!(
            finding.status == Status::Fail
                && finding.found.ends_with("9 keys are not as this dwell writes them: k0, k1, k2, k3, k4"),
            "{finding:?}"
        );
    }
}
