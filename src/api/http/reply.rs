//! Answers as JSON: single values, created resources with their version, and lists.
//!
//! They end with a newline, so that a shell shows its prompt on a new line.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Serialize;
use serde_json::Value;

use crate::gate::Held;
use crate::model::limits::{JSON_GROWTH_MAX, PAYLOAD_BYTES_MAX};
use crate::model::topic::Descriptor;

#[derive(Debug)]
pub(crate) struct Reply<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Reply<T> {
    fn into_response(self) -> Response {
        let Ok(mut body) = serde_json::to_vec(&self.0) else {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        };
        body.push(b'\n');
        ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
    }
}

/// The path of a resource: kinds and names, as in `("topics", "orders")`.
pub(crate) struct ResourcePath<'a>(pub(crate) &'a [(&'static str, &'a str)]);

impl ResourcePath<'_> {
    fn path(&self) -> String {
        let mut path = "/v1".to_owned();
        for (kind, name) in self.0 {
            path.extend(["/", kind, "/"]);
            encode(name, &mut path);
        }
        path
    }
}

fn encode(name: &str, path: &mut String) {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._~-".contains(byte);
    if name.as_bytes().iter().all(is_plain) {
        return path.push_str(name);
    }
    for byte in name.bytes() {
        match is_plain(&byte) {
            true => path.push(char::from(byte)),
            false => path.push_str(&format!("%{byte:02X}")),
        }
    }
}

pub(crate) fn created<T: Serialize>(status: StatusCode, place: &ResourcePath, body: T) -> Response {
    let mut response = (status, Reply(body)).into_response();
    if status == StatusCode::CREATED
        && let Ok(location) = HeaderValue::try_from(place.path())
    {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

pub(crate) fn created_status(created: bool) -> StatusCode {
    if created { StatusCode::CREATED } else { StatusCode::OK }
}

pub(crate) fn tagged(mut response: Response, descriptor: &Descriptor) -> Response {
    if let Ok(tag) = HeaderValue::try_from(format!("\"{}\"", descriptor.generation)) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

/// As JSON, a batch of 100 small messages fits into one piece.
const PIECE_BYTES: usize = 64 * 1024;

const ITEM_BYTES: usize = 2 * 1024;

/// Bytes of an item with a small payload.
const ITEM_BYTES_USUAL: usize = 512;

/// Bytes of memory that a list takes: the payloads, and the largest item as JSON.
pub(crate) fn weigh(payloads: impl Iterator<Item = usize>) -> usize {
    let weigh = |(all, largest): (usize, usize), payload: usize| (all + payload + ITEM_BYTES, largest.max(payload));
    let (all, largest) = payloads.fold((0, 0), weigh);
    all + JSON_GROWTH_MAX * largest
}

/// The most that [`weigh`] returns for so many bytes of payloads.
pub(crate) const fn weight_max(payloads: usize) -> usize {
    payloads + JSON_GROWTH_MAX * PAYLOAD_BYTES_MAX
}

/// Answers `{"<name>": [<items>], "next_cursor": "<next>"}`, as [`list_and`] does.
pub(crate) fn list<T: Serialize>(
    name: &'static str,
    items: impl Iterator<Item = T> + Send + 'static,
    next_cursor: Option<String>,
    held: Held,
) -> Response {
    list_and(name, items, next_cursor.map(|next| ("next_cursor", next.into())), held)
}

/// Answers `{"<name>": [<items>], "<last>": <value>}`. Items are serialized one after the other, as fast as the client
/// reads. `held` is their part of the memory budget.
pub(crate) fn list_and<T: Serialize>(
    name: &'static str,
    items: impl Iterator<Item = T> + Send + 'static,
    last: Option<(&'static str, Value)>,
    held: Held,
) -> Response {
    let mut pieces = Pieces { head: Some(name), items, is_first: true, is_over: false, last, _held: held };
    let first = pieces.next().unwrap_or_default();
    let body = match pieces.is_over {
        true => Body::from(first),
        false => Body::from_stream(stream::iter(std::iter::once(first).chain(pieces).map(Ok::<_, Infallible>))),
    };
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}

struct Pieces<I> {
    head: Option<&'static str>,
    items: I,
    is_first: bool,
    is_over: bool,
    /// The field after the items.
    last: Option<(&'static str, Value)>,
    _held: Held,
}

impl<T: Serialize, I: Iterator<Item = T>> Iterator for Pieces<I> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        // Growing step by step would copy what is written several times.
        let expected = self.items.size_hint().0.saturating_mul(ITEM_BYTES_USUAL) + ITEM_BYTES_USUAL;
        let mut piece = Vec::with_capacity(expected.min(PIECE_BYTES + ITEM_BYTES));
        if let Some(name) = self.head.take() {
            piece.extend_from_slice(format!("{{\"{name}\":[").as_bytes());
        }
        while piece.len() < PIECE_BYTES {
            let Some(item) = self.items.next() else {
                self.end(&mut piece);
                break;
            };
            if !std::mem::take(&mut self.is_first) {
                piece.push(b',');
            }
            write(&mut piece, &item);
        }
        Some(piece.into())
    }
}

impl<I> Pieces<I> {
    fn end(&mut self, piece: &mut Vec<u8>) {
        piece.push(b']');
        if let Some((name, value)) = self.last.take() {
            piece.extend_from_slice(format!(",\"{name}\":").as_bytes());
            write(piece, &value);
        }
        piece.extend_from_slice(b"}\n");
        self.is_over = true;
    }
}

fn write(piece: &mut Vec<u8>, value: &impl Serialize) {
    // Writing to memory cannot fail, and these values serialize.
    let _ = serde_json::to_writer(piece, value);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::body::HttpBody as _;
    use http_body_util::BodyExt as _;
    use serde_json::json;

    use super::*;
    use crate::gate::{AnswerBudget, Identity};

    #[test]
    fn location_is_percent_encoded_and_only_on_201() {
        let place = ResourcePath(&[("topics", "orders"), ("messages", "a/b?é~._-")]);
        assert_eq!(place.path(), "/v1/topics/orders/messages/a%2Fb%3F%C3%A9~._-");
        let location = |status| created(status, &place, "x").headers().get(header::LOCATION).is_some();
        assert!(location(StatusCode::CREATED) && !location(StatusCode::OK) && !location(StatusCode::ACCEPTED));
    }

    async fn read(items: Vec<String>, next: Option<&str>) -> Result<(Option<u64>, Value), Box<dyn std::error::Error>> {
        let held = AnswerBudget::new(100, Duration::ZERO).take(&Identity::LOCAL, 1);
        let body = list("items", items.into_iter(), next.map(str::to_owned), held).into_body();
        let size = body.size_hint().exact();
        Ok((size, serde_json::from_slice(&body.collect().await?.to_bytes())?))
    }

    #[tokio::test]
    async fn list_json_is_the_same_whole_and_chunked() -> Result<(), Box<dyn std::error::Error>> {
        let items = |n: usize| -> Vec<String> { (0..n).map(|i| format!("{i}\u{1}")).collect() };
        for n in [0, 1, 2, 100, 10_000] {
            for next in [None, Some("3.w\"")] {
                let (size, read) = read(items(n), next).await?;
                let mut expected = json!({"items": items(n)});
                if let Some(next) = next {
                    expected["next_cursor"] = next.into();
                }
                assert_eq!(read, expected, "{n}");
                assert_eq!(size.is_some(), n < 10_000, "{n}");
            }
        }
        Ok(())
    }

    #[tokio::test]
    async fn list_items_are_serialized_lazily() -> Result<(), Box<dyn std::error::Error>> {
        let (made, seen) = std::sync::mpsc::channel();
        let items = (0..100).map(move |i| {
            let _ = made.send(i);
            "x".repeat(PIECE_BYTES)
        });
        let budget = AnswerBudget::new(100, Duration::ZERO);
        let mut body = list("items", items, None, budget.take(&Identity::LOCAL, 1)).into_body();
        assert_eq!(seen.try_iter().count(), 1);
        for _ in 0..3 {
            body.frame().await.transpose()?;
        }
        assert_eq!(seen.try_iter().count(), 2);
        Ok(())
    }
}
