//! Requests: method and target, a header a line, an empty line, the body.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Request, Uri};
use libfuzzer_sys::Corpus;

use crate::broker::answer;

pub(crate) fn run(data: &[u8]) -> Corpus {
    match read(data) {
        // The target queues has those.
        Some(request) if is_of_sqs(&request) => Corpus::Reject,
        Some(request) => {
            answer(request);
            Corpus::Keep
        }
        None => Corpus::Reject,
    }
}

fn is_of_sqs(request: &Request<Body>) -> bool {
    let path = request.uri().path();
    let is_here =
        ["/v1", "/ui", "/livez", "/readyz", "/metrics", "/openapi.json"].iter().any(|here| path.starts_with(here));
    !is_here
}

pub(crate) fn read(data: &[u8]) -> Option<Request<Body>> {
    let end = data.windows(2).position(|pair| pair == b"\n\n");
    let (head, body) = end.map_or((data, &b""[..]), |end| (&data[..end], &data[end + 2..]));
    let mut lines = head.split(|byte| *byte == b'\n');
    let (method, target) = std::str::from_utf8(lines.next()?).ok()?.split_once(' ')?;
    let target: Uri = target.parse().ok()?;
    if changes_the_topic(method, target.path()) {
        return None;
    }
    let mut request = Request::builder().method(method).uri(target);
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        request = request.header(name, HeaderValue::from_bytes(&line[colon + 1..]).ok()?);
    }
    request.body(Body::from(body.to_vec())).ok()
}

/// A thousand topics made would only slow it down, and the one that is there has to stay; a stream of it would not end.
fn changes_the_topic(method: &str, path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let of_topic = parts.len() == 4 && matches!(method, "PUT" | "DELETE");
    of_topic || parts.get(3).is_some_and(|topic| method != "GET" && *topic != "absent") || path.ends_with("/stream")
}
