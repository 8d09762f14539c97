//! Where a resource is found that a request has created, and which version of it there is.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::origin_guard::single;
use super::problem::{Class, Problem};
use super::reply::Reply;
use crate::broker::Precondition;
use crate::model::error::{Error, Fault, Kind};
use crate::model::topic::Descriptor;

/// The path of a resource: each name behind the kind that it is of, as in `("topics", "orders")`.
pub(crate) struct Place<'a>(pub(crate) &'a [(&'static str, &'a str)]);

impl Place<'_> {
    fn path(&self) -> String {
        let mut path = "/v1".to_owned();
        for (kind, name) in self.0 {
            path.extend(["/", kind, "/"]);
            encode(name, &mut path);
        }
        path
    }
}

/// Adds a name to a path: everything but `A-Z a-z 0-9 . _ ~ -` is percent-encoded.
fn encode(name: &str, path: &mut String) {
    for byte in name.bytes() {
        match byte.is_ascii_alphanumeric() || b"._~-".contains(&byte) {
            true => path.push(char::from(byte)),
            false => path.push_str(&format!("%{byte:02X}")),
        }
    }
}

/// The answer to a request that creates what does not exist: 201 with its `Location`, otherwise the other status.
pub(crate) fn answer<T: Serialize>(status: StatusCode, place: &Place, body: T) -> Response {
    let mut response = (status, Reply(body)).into_response();
    if status == StatusCode::CREATED
        && let Ok(location) = HeaderValue::try_from(place.path())
    {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// The status of a request that creates what does not exist.
pub(crate) fn status(created: bool) -> StatusCode {
    if created { StatusCode::CREATED } else { StatusCode::OK }
}

/// Names the version of a topic: its settings, its groups and their limits.
pub(crate) fn tagged(mut response: Response, descriptor: &Descriptor) -> Response {
    if let Ok(tag) = HeaderValue::try_from(format!("\"{}\"", descriptor.generation)) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

/// What `If-Match` says of a topic.
pub(crate) fn precondition(headers: &HeaderMap) -> Result<Precondition, Problem> {
    let Some(text) = single(headers, header::IF_MATCH)? else { return Ok(Precondition::None) };
    if text.trim() == "*" {
        return Ok(Precondition::Exists);
    }
    let tag = text.trim().strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let generation = tag.filter(|tag| tag.bytes().all(|digit| digit.is_ascii_digit())).and_then(|tag| tag.parse().ok());
    let wrong = || Problem::of_header("If-Match", Fault::Format, "is not one `ETag` that dwell gave, or `*`");
    generation.map(Precondition::Generation).ok_or_else(wrong)
}

/// The problem of a request with `If-Match`.
pub(crate) fn unmatched(precondition: Precondition, error: Error) -> Problem {
    match (precondition, error.kind()) {
        (Precondition::Exists | Precondition::Generation(_), Kind::Stale) => {
            Problem::new(Class::PreconditionFailed, error.detail().to_owned())
        }
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_percent_encoded_and_only_a_201_has_it() {
        let place = Place(&[("topics", "orders"), ("messages", "a/b?é~._-")]);
        assert_eq!(place.path(), "/v1/topics/orders/messages/a%2Fb%3F%C3%A9~._-");
        let location = |status| answer(status, &place, "x").headers().get(header::LOCATION).is_some();
        assert!(location(StatusCode::CREATED) && !location(StatusCode::OK) && !location(StatusCode::ACCEPTED));
    }

    #[test]
    fn if_match_is_one_tag_or_any() {
        let read = |text: &'static str| {
            precondition(&HeaderMap::from_iter([(header::IF_MATCH, HeaderValue::from_static(text))])).ok()
        };
        assert_eq!(precondition(&HeaderMap::new()).ok(), Some(Precondition::None));
        assert_eq!(read("\"4711\""), Some(Precondition::Generation(4_711)));
        assert_eq!(read("*"), Some(Precondition::Exists));
        for bad in ["", "4711", "\"\"", "\"-1\"", "\"+1\"", "W/\"1\"", "\"1\", \"2\"", "\"1.2\""] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}
