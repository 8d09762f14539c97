//! Answers of a broker, for tests.

use std::time::Duration;

use super::snapshot::{Asked, Described, Seen, Snapshot};
use super::state::{Event, State};
use crate::cli::api::Group;
use crate::cli::client::{Readiness, StoreOf};
use crate::cli::figures;
use crate::platform::clock::Instant;

const METRICS: &str = "dwell_build_info{version=\"1.2.3\"} 1\ndwell_redis_up 1\ndwell_wal_records{log=\"wal\"} 3\n\
                       dwell_wal_bytes{log=\"wal\"} 4096\ndwell_wal_oldest_age_seconds{log=\"wal\"} 1.5\n";

/// A broker's answers so many seconds after the start; by then it has taken 10 messages a second.
pub(super) fn seen(seconds: u64, names: Option<&[String]>, described: Vec<(String, Option<Described>)>) -> Seen {
    let at = Instant::START.plus(Duration::from_secs(seconds));
    let pushes = format!("dwell_pushes_total{{topic=\"t0000\",outcome=\"stored\"}} {}\n", seconds * 10);
    let store = StoreOf {
        kind: "redis".to_owned(),
        location: "127.0.0.1:6379".to_owned(),
        durability: "Redis 7.0.15, fsync always".to_owned(),
    };
    let answer = Asked {
        readiness: Ok(Readiness { detail: None, store }),
        reading: Snapshot::new(at, &figures::read(&format!("{METRICS}{pushes}"))),
        topics: names.map(<[String]>::to_vec),
        described,
        trouble: None,
    };
    Seen { at, answer: Ok(answer) }
}

pub(super) fn state(size: (u16, u16), names: &[String]) -> State {
    let mut state = State::new("http://127.0.0.1:7373".to_owned(), size);
    state.update(Event::Seen(Box::new(seen(1, Some(names), vec![]))));
    state
}

pub(super) fn topic(name: &str) -> serde_json::Result<Described> {
    let topic = serde_json::from_str(&format!(
        r#"{{"topic": "{name}", "groups": ["default"], "settings": {{"partitions": 2}},
            "totals": [{{"group": "default", "scheduled": 1200, "ready": 3, "in_flight": 2, "dead": 1,
                         "oldest_ready_age_ms": 12000}}],
            "partitions": [
              {{"partition": 0, "group": "default", "scheduled": 700, "ready": 3, "in_flight": 2, "dead": 1,
                "oldest_ready_age_ms": 12000, "owner": "host-abc"}},
              {{"partition": 1, "group": "default", "scheduled": 500, "ready": 0, "in_flight": 0, "dead": 0}}]}}"#
    ))?;
    let group: Group = serde_json::from_str(r#"{"group": "default", "state": "active"}"#)?;
    Ok(Described { topic, groups: vec![group] })
}
