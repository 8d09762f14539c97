//! Bodies of requests: the first byte chooses the request, the rest is its body.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use libfuzzer_sys::Corpus;

use crate::broker::{answer, request};
use crate::kept;

/// A letter, a method and a target. A topic that is not there is asked for last, when everything else was read. The
/// topic that is there gets settings.
const REQUESTS: [(u8, &str, &str); 18] = [
    (b'a', "POST", "/v1/topics/absent/groups/default/ack"),
    (b'b', "POST", "/v1/topics/absent/messages/batch"),
    (b'c', "PATCH", "/v1/topics/absent/messages/order-1"),
    (b'd', "POST", "/v1/topics/absent/groups/default/dead-letters/redrive"),
    (b'e', "POST", "/v1/topics/absent/groups/default/extend"),
    (b'g', "PUT", "/v1/topics/absent/groups/mail"),
    (b'j', "POST", "/v1/topics/absent/messages"),
    (b'l', LINES, "/v1/topics/absent/messages/batch"),
    (b'm', "POST", "/v1/topics/absent/move"),
    (b'n', "POST", "/v1/topics/absent/groups/default/nack"),
    (b'p', "POST", "/v1/topics/absent/groups/default/pause"),
    (b'r', "POST", "/v1/topics/absent/groups/default/reserve"),
    (b'R', "POST", "/v1/topics/absent/groups/default/release"),
    (b's', "PUT", "/v1/topics/absent/cron/nightly"),
    (b't', "PUT", "/v1/topics/orders"),
    (b'u', "PUT", "/v1/topics/orders/groups/default"),
    (b'w', "POST", "/v1/topics/absent/groups/default/bulk"),
    (b'x', "POST", "/v1/topics/absent/groups/default/dead-letters/purge"),
];

/// A POST of a batch as NDJSON.
const LINES: &str = "LINES";

pub(crate) fn run(data: &[u8]) -> Corpus {
    let Some((letter, body)) = data.split_first() else { return Corpus::Reject };
    let Some((_, method, target)) = REQUESTS.iter().find(|(first, ..)| first == letter) else { return Corpus::Reject };
    let mut wanted = match *method {
        LINES => request("POST", target, body.to_vec()),
        method => request(method, target, body.to_vec()),
    };
    if *method == LINES {
        wanted.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    }
    let read = answer(wanted);
    if *method != LINES && !body.is_empty() {
        agrees_with_serde(body, read.status);
    }
    if *letter == b't' && read.status.is_success() {
        settings_are_said_again(&read.body["settings"]);
    }
    // What is read as something else than an error of the request gets as far as the topic that is not there.
    kept(read.status == StatusCode::NOT_FOUND || read.status.is_success() || read.status == 422)
}

/// What is JSON to serde_json is JSON here, whatever is wrong with it otherwise, and nothing else is.
fn agrees_with_serde(body: &[u8], status: StatusCode) {
    match serde_json::from_slice::<serde_json::Value>(body) {
        Ok(_) => assert_ne!(status, StatusCode::BAD_REQUEST, "it is JSON"),
        // A number that is too large is one that is not in range, where a number is expected.
        Err(error) if error.to_string().contains("number out of range") => {}
        Err(error) => assert_eq!(status, StatusCode::BAD_REQUEST, "{error}"),
    }
}

/// Settings that were answered are accepted, and are the same settings.
fn settings_are_said_again(settings: &serde_json::Value) {
    let again = answer(request("PUT", "/v1/topics/orders", Body::from(settings.to_string())));
    assert_eq!(again.status, StatusCode::OK, "{}", again.body);
    assert_eq!(&again.body["settings"], settings);
}
