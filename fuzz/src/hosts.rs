//! `Host` and `Origin`, a line each: only this machine is answered.

use axum::body::Body;
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderValue, Request, StatusCode};
use libfuzzer_sys::Corpus;

use crate::broker::answer;

pub(crate) fn run(data: &[u8]) -> Corpus {
    let mut lines = data.splitn(2, |byte| *byte == b'\n');
    let (host, origin) = (lines.next().unwrap_or_default(), lines.next());
    let Ok(host) = HeaderValue::from_bytes(host) else { return Corpus::Reject };
    let mut request = Request::builder().uri("/livez").header(HOST, &host);
    if let Some(origin) = origin {
        let Ok(origin) = HeaderValue::from_bytes(origin) else { return Corpus::Reject };
        request = request.header(ORIGIN, origin);
    }
    let answer = answer(request.body(Body::empty()).expect("a request of our own"));
    if answer.status == StatusCode::OK {
        let host = host.to_str().unwrap_or_else(|_| panic!("{host:?}")).to_ascii_lowercase();
        assert!(is_here(&host), "{host:?} was let in");
        if let Some(origin) = origin {
            let origin = String::from_utf8_lossy(origin).to_ascii_lowercase();
            assert_eq!(origin, format!("http://{host}"));
        }
    }
    Corpus::Keep
}

/// What a browser would call this machine, written down once more.
fn is_here(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let octets: Vec<_> = name.split('.').map(str::parse::<u8>).collect();
    let is_v4 = octets.len() == 4 && octets.iter().all(Result::is_ok) && octets[0] == Ok(127);
    let is_v6 = name.contains(':') && name.trim_start_matches(['0', ':']) == "1";
    name == "localhost" || is_v4 || is_v6
}
