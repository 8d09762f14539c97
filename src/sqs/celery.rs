//! Messages of Celery: their `eta` and `expires` become due time and time to live.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::model::time::{Timestamp, parse_timestamp};
#[derive(Deserialize)]
struct Task {
    headers: Headers,
}

#[derive(Deserialize)]
struct Headers {
    /// Tells a message of Celery from others.
    #[serde(rename = "task")]
    _task: String,
    eta: Option<String>,
    expires: Option<String>,
}

/// The due time of a message of Celery, and how long after it the message is delivered; `None` for any other message and
/// one that says neither. Without it every task of the future is held in the memory of a worker.
pub(crate) fn due_and_ttl(body: &str, now: Timestamp) -> Option<(Timestamp, Option<Duration>)> {
    let headers = match body.starts_with('{') {
        true => serde_json::from_str::<Task>(body).ok()?.headers,
        false => serde_json::from_slice::<Task>(&STANDARD.decode(body.trim()).ok()?).ok()?.headers,
    };
    let time = |text: Option<String>| text.and_then(|text| parse_timestamp(&text).ok());
    let (eta, expires) = (time(headers.eta), time(headers.expires));
    let due = eta.unwrap_or(now).max(now);
    // A message that expired already is for the worker to refuse.
    let ttl = expires.map(|expires| expires.since(due)).filter(|ttl| !ttl.is_zero());
    (eta.is_some() || ttl.is_some()).then_some((due, ttl))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_ms(1_767_323_045_000);

    #[test]
    fn eta_and_expires_are_read_from_json_and_base64_only() {
        let body =
            |headers: &str| format!(r#"{{"body": "W10=", "headers": {{"task": "t", {headers}}}, "properties": {{}}}}"#);
        let later = |secs| NOW.plus(Duration::from_secs(secs));
        let eta = body(r#""eta": "2026-01-02T04:04:05.500000+01:00", "expires": null"#);
        assert_eq!(due_and_ttl(&eta, NOW), Some((later(0).plus(Duration::from_millis(500)), None)));
        assert_eq!(due_and_ttl(&STANDARD.encode(&eta), NOW), due_and_ttl(&eta, NOW));
        let both = body(r#""eta": "2026-01-02T03:05:05+00:00", "expires": "2026-01-02T03:06:05+00:00""#);
        assert_eq!(due_and_ttl(&both, NOW), Some((later(60), Some(Duration::from_secs(60)))));
        let past = body(r#""eta": "2020-01-02T03:05:05+00:00""#);
        assert_eq!(due_and_ttl(&past, NOW), Some((NOW, None)));
        for other in ["hello", "{}", "{", "", &body(r#""eta": null"#), &body(r#""eta": "tomorrow""#), "aGVsbG8="] {
            assert_eq!(due_and_ttl(other, NOW), None, "{other}");
        }
        let no_task = r#"{"headers": {"eta": "2026-01-02T03:05:05+00:00"}}"#;
        assert_eq!(due_and_ttl(no_task, NOW), None);
    }
}
