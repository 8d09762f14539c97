//! Cursors of lists: the first byte chooses the list, the rest is the cursor. What begins a page that is there is followed.

use axum::http::StatusCode;
use libfuzzer_sys::Corpus;
use serde_json::json;

use crate::broker::{Answer, answer, request};
use crate::kept;

pub(crate) fn run(data: &[u8]) -> Corpus {
    let Some((list, cursor)) = data.split_first() else { return Corpus::Reject };
    let Ok(cursor) = std::str::from_utf8(cursor) else { return Corpus::Reject };
    let Some(page) = page(*list, cursor) else { return Corpus::Reject };
    if let Some(next) = page.body["next_cursor"].as_str() {
        let next = self::page(*list, next).unwrap_or_else(|| panic!("{next}"));
        assert_eq!(next.status, StatusCode::OK, "{}", next.body);
    }
    kept(page.status == StatusCode::OK)
}

fn page(list: u8, cursor: &str) -> Option<Answer> {
    let group = "/v1/topics/orders/groups/default";
    // Nothing was due then, and nothing died of it: nothing is changed.
    let window =
        json!({"from": "1970-01-01T00:00:01Z", "to": "1970-01-01T00:00:02Z", "action": "cancel", "cursor": cursor});
    let redrive = json!({"reason": "unreadable", "cursor": cursor});
    let (method, path, body) = match list {
        b'w' => ("GET", "/v1/topics/orders/messages?limit=2&state=scheduled".to_owned(), None),
        b'i' => ("GET", "/v1/topics/orders/messages?limit=2&state=in_flight".to_owned(), None),
        b'm' => ("GET", "/v1/topics/orders/messages?limit=2&state=dead".to_owned(), None),
        b'd' => ("GET", format!("{group}/dead-letters?limit=2"), None),
        b'a' => ("GET", format!("{group}/verify?"), None),
        b's' => ("GET", "/v1/topics/orders/cron?".to_owned(), None),
        b'c' => ("POST", format!("{group}/bulk"), Some(window)),
        b'r' => ("POST", format!("{group}/dead-letters/redrive"), Some(redrive)),
        _ => return None,
    };
    let target = match body {
        Some(_) => path,
        None => format!("{path}&cursor={}", encoded(cursor)).replace("?&", "?"),
    };
    Some(answer(request(method, &target, body.map_or(String::new(), |body| body.to_string()))))
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
