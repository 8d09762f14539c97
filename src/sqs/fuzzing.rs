//! For fuzz/: what strangers send, read without a broker.

use super::errors::Failure;
use super::model::{Action, Request};
use super::sigv4::{Signature, Signed};
use super::{eta, json, query};
use crate::model::time::Timestamp;

/// Reads a request of one of both protocols; says whether it is one.
pub fn read(action: &str, is_json: bool, body: &[u8]) -> bool {
    let Some(action) = Action::named(action) else { return false };
    let read: Result<Request, Failure> = match (is_json, str::from_utf8(body)) {
        (true, _) => json::decode(action, body),
        (false, Ok(form)) => query::pairs(form).and_then(|pairs| query::decode(action, &pairs)),
        (false, Err(_)) => return false,
    };
    let Ok(request) = read else { return false };
    for entry in &request.entries {
        let _ = eta::of_body(entry.message_body.as_deref().unwrap_or_default(), Timestamp::from_ms(0));
    }
    true
}

/// Reads a signature, as a header or as a query; answers whether it was read, and whether it was taken for valid.
pub fn signature(authorization: Option<&str>, date: &str, query: Option<&str>) -> (bool, bool) {
    let header = |name: &str| match name {
        "authorization" => authorization.map(str::to_owned),
        "x-amz-date" => Some(date.to_owned()),
        _ => None,
    };
    let signed = Signed { method: "POST", path: "/", query, header: &header };
    let Ok(Some(read)) = Signature::read(&signed) else { return (false, false) };
    (true, read.verify(&signed, b"", "a secret that no input has", Timestamp::from_ms(1_767_323_045_000)).is_ok())
}
