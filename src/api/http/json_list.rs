//! Answers that are lists: their items become JSON one after the other, as fast as the client reads, so that a list takes
//! the memory of what was read from the store and of one item.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use serde::Serialize;

use super::answer_budget::Held;
use crate::model::limits::{JSON_GROWTH_MAX, PAYLOAD_BYTES_MAX};

/// Bytes of small items that are sent together.
const PIECE_BYTES: usize = 16 * 1024;

/// Bytes that an item takes beside its payload, roughly.
const ITEM_BYTES: usize = 2 * 1024;

/// Bytes that a list takes: what was read, and the largest item as JSON.
pub(crate) fn weigh(payloads: impl Iterator<Item = usize>) -> usize {
    let weigh = |(all, largest): (usize, usize), payload: usize| (all + payload + ITEM_BYTES, largest.max(payload));
    let (all, largest) = payloads.fold((0, 0), weigh);
    all + JSON_GROWTH_MAX * largest
}

/// Bytes that a list of at most so many bytes of payloads may take.
pub(crate) const fn weight_max(payloads: usize) -> usize {
    payloads + JSON_GROWTH_MAX * PAYLOAD_BYTES_MAX
}

/// Answers `{"<name>": [<items>], "next_cursor": "<next>"}` and a newline. `held` is what the items take of the budget.
pub(crate) fn answer<T: Serialize>(
    name: &'static str,
    items: impl Iterator<Item = T> + Send + 'static,
    next_cursor: Option<String>,
    held: Held,
) -> Response {
    let mut pieces = Pieces { head: Some(name), items, is_first: true, is_over: false, next_cursor, _held: held };
    let first = pieces.next().unwrap_or_default();
    let body = match pieces.is_over {
        true => Body::from(first),
        false => Body::from_stream(stream::iter(std::iter::once(first).chain(pieces).map(Ok::<_, Infallible>))),
    };
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}

/// What is left to be sent.
struct Pieces<I> {
    /// The name of the list, until it is written.
    head: Option<&'static str>,
    items: I,
    is_first: bool,
    is_over: bool,
    next_cursor: Option<String>,
    _held: Held,
}

impl<T: Serialize, I: Iterator<Item = T>> Iterator for Pieces<I> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        let mut piece = Vec::new();
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
        if let Some(next_cursor) = self.next_cursor.take() {
            piece.extend_from_slice(b",\"next_cursor\":");
            write(piece, &next_cursor);
        }
        piece.extend_from_slice(b"}\n");
        self.is_over = true;
    }
}

fn write(piece: &mut Vec<u8>, value: &impl Serialize) {
    // Memory takes whatever is written to it, and these values have texts as names.
    let _ = serde_json::to_writer(piece, value);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::body::HttpBody as _;
    use http_body_util::BodyExt as _;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::http::answer_budget::AnswerBudget;

    async fn read(items: Vec<String>, next: Option<&str>) -> Result<(Option<u64>, Value), Box<dyn std::error::Error>> {
        let held = AnswerBudget::new(100, Duration::ZERO).take(1);
        let body = answer("items", items.into_iter(), next.map(str::to_owned), held).into_body();
        let size = body.size_hint().exact();
        Ok((size, serde_json::from_slice(&body.collect().await?.to_bytes())?))
    }

    #[tokio::test]
    async fn a_list_is_the_same_json_in_one_piece_and_in_many() -> Result<(), Box<dyn std::error::Error>> {
        let items = |n: usize| -> Vec<String> { (0..n).map(|i| format!("{i}\u{1}")).collect() };
        for n in [0, 1, 2, 100, 10_000] {
            for next in [None, Some("3.w\"")] {
                let (size, read) = read(items(n), next).await?;
                let mut expected = json!({"items": items(n)});
                if let Some(next) = next {
                    expected["next_cursor"] = next.into();
                }
                assert_eq!(read, expected, "{n}");
                // What fits into one piece says its length.
                assert_eq!(size.is_some(), n < 10_000, "{n}");
            }
        }
        Ok(())
    }

    #[tokio::test]
    async fn an_item_becomes_json_when_it_is_asked_for() -> Result<(), Box<dyn std::error::Error>> {
        let (made, seen) = std::sync::mpsc::channel();
        let items = (0..100).map(move |i| {
            let _ = made.send(i);
            "x".repeat(PIECE_BYTES)
        });
        let budget = AnswerBudget::new(100, Duration::ZERO);
        let mut body = answer("items", items, None, budget.take(1)).into_body();
        assert_eq!(seen.try_iter().count(), 1);
        for _ in 0..3 {
            body.frame().await.transpose()?;
        }
        assert_eq!(seen.try_iter().count(), 2);
        Ok(())
    }
}
