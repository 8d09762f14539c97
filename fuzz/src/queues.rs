//! Requests of SQS clients to a real broker, through the gate: method and target, a header a line, an empty line, the body.

use axum::body::Body;
use axum::http::Request;
use libfuzzer_sys::Corpus;

use crate::broker::sqs_answer;
use crate::requests::read;

/// Bytes of an answer that no input explains: the broker has one queue, with a short name.
const ANSWER_BYTES_MAX: usize = 64 << 10;

pub(crate) fn run(data: &[u8]) -> Corpus {
    // Queues that come and go make it slower, and a receive waits.
    let avoided: [&[u8]; 3] = [b"CreateQueue", b"DeleteQueue", b"ReceiveMessage"];
    if avoided.iter().any(|word| data.windows(word.len()).any(|some| some == *word)) {
        return Corpus::Reject;
    }
    let Some(request) = read(data) else { return Corpus::Reject };
    if is_of_v1(&request) {
        return Corpus::Reject;
    }
    let answer = sqs_answer(request);
    assert!(answer.body.len() <= ANSWER_BYTES_MAX, "{} bytes were answered", answer.body.len());
    let text = std::str::from_utf8(&answer.body).expect("an answer is text");
    match answer.content_type.as_str() {
        "text/xml" => drop(roxmltree::Document::parse(text).unwrap_or_else(|error| panic!("{error}: {text}"))),
        // An action without a result answers nothing at all.
        "application/x-amz-json-1.0" if text.is_empty() => assert_eq!(answer.status, 200),
        "application/x-amz-json-1.0" | "application/problem+json" => {
            let value: serde_json::Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
            assert!(value.is_object(), "{text}");
        }
        _ => return Corpus::Reject,
    }
    assert!([200, 400, 403, 404, 405, 503].contains(&answer.status), "{}: {text}", answer.status);
    if answer.status == 200 { Corpus::Keep } else { Corpus::Reject }
}

fn is_of_v1(request: &Request<Body>) -> bool {
    request.uri().path().starts_with("/v1")
}
