//! Strict JSON bodies: misspelt and repeated fields are errors.

use std::marker::PhantomData;

use axum::body::{Body, HttpBody as _};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use dwell_client::wire::items::Object;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::{PartialSchema, ToSchema};

use super::problem::{Class, Problem};
use super::{App, body, body_errors};
use crate::gate::Pass;
use crate::model::error::Kind;

pub(crate) struct Json<T> {
    bytes: Bytes,
    asked: PhantomData<fn() -> T>,
}

/// An absent body stands for the defaults.
pub(crate) struct JsonOrDefault<T>(Json<T>);

impl<T: DeserializeOwned + PartialSchema> Json<T> {
    pub(crate) fn read<M>(self, meaning: impl Fn(T) -> Result<M, Problem>) -> Result<M, Problem> {
        parse(&self.bytes, meaning)
    }
}

impl<T: DeserializeOwned + PartialSchema + Default> JsonOrDefault<T> {
    pub(crate) fn read<M>(self, meaning: impl Fn(T) -> Result<M, Problem>) -> Result<M, Problem> {
        if self.0.bytes.is_empty() { meaning(T::default()) } else { self.0.read(meaning) }
    }
}

impl<T> FromRequest<App> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Json<T>, Problem> {
        let (headers, bytes) = read(request, app).await?;
        expect_json(&headers)?;
        Ok(Json { bytes, asked: PhantomData })
    }
}

impl<T> FromRequest<App> for JsonOrDefault<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<JsonOrDefault<T>, Problem> {
        let (headers, bytes) = read(request, app).await?;
        if !bytes.is_empty() {
            expect_json(&headers)?;
        }
        Ok(JsonOrDefault(Json { bytes, asked: PhantomData }))
    }
}

/// Bytes of a body that has no fields: `{}`, and room to say what is wrong with another one.
const NO_FIELDS_BYTES_MAX: usize = 64 * 1024;

/// The body of a request that has no fields.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NoFields {}

/// Takes the body off a request that has none but `{}`: what somebody meant by a field would be lost without a word.
pub(crate) async fn without_fields(app: &App, pass: &Pass, request: Request) -> Result<Request, Problem> {
    if request.body().is_end_stream() {
        return Ok(request);
    }
    let (parts, body) = request.into_parts();
    let bytes = body::read(app, (pass.identity(), &parts.headers), body, NO_FIELDS_BYTES_MAX, "body").await?;
    if !bytes.is_empty() {
        expect_json(&parts.headers)?;
        parse(&bytes, |NoFields {}| Ok(()))?;
    }
    Ok(Request::from_parts(parts, Body::empty()))
}

async fn read(request: Request, app: &App) -> Result<(HeaderMap, Bytes), Problem> {
    let (parts, body) = request.into_parts();
    let ungated = || Problem::new(Class::Verb(Kind::Bug), "the request did not pass the gate");
    let pass = parts.extensions.get::<Pass>().ok_or_else(ungated)?;
    let bytes = body::read_for(app, (pass, &parts.headers), body, pass.action().body_bytes, "body").await?;
    Ok((parts.headers, bytes))
}

pub(crate) fn media_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::CONTENT_TYPE)?;
    let text = String::from_utf8_lossy(value.as_bytes());
    Some(text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

fn expect_json(headers: &HeaderMap) -> Result<(), Problem> {
    match media_type(headers) {
        Some(other) if other != "application/json" => {
            let detail = format!("the content type is {other:?}, this request takes application/json (curl: --json)");
            Err(Problem::new(Class::UnsupportedMediaType, detail))
        }
        _ => Ok(()),
    }
}

/// Parses JSON and applies `meaning`, which checks and converts. # Errors: 400 when it is not JSON; 422 with everything
/// that is wrong, in the words of the document and of `meaning`.
pub(crate) fn parse<T: DeserializeOwned + PartialSchema, M>(
    bytes: &[u8],
    meaning: impl Fn(T) -> Result<M, Problem>,
) -> Result<M, Problem> {
    // Finding all errors costs more than parsing, so only a refused body is examined.
    let refused = match serde_json::from_slice(bytes) {
        Ok(Object(value)) => match meaning(value) {
            Ok(meant) => return Ok(meant),
            Err(problem) => Some(problem),
        },
        Err(_) => None,
    };
    Err(body_errors::explain(bytes, meaning, refused))
}

#[cfg(test)]
mod tests {
    use dwell_client::wire::items::Items;
    use dwell_client::wire::present;

    use super::*;
    use crate::model::limits::BATCH_MESSAGES_MAX;

    #[derive(Debug, PartialEq, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[schema(value_type = Vec<Inner>, min_items = 1, max_items = 1000)]
        items: Items<Object<Inner>>,
    }

    #[derive(Debug, PartialEq, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[serde(default, deserialize_with = "present")]
        key: Option<String>,
    }

    fn status(text: &str) -> u16 {
        parse(text.as_bytes(), |outer: Outer| Ok(outer)).map_or_else(|problem| problem.status().as_u16(), |_| 200)
    }

    #[test]
    fn objects_are_not_lists_and_null_is_not_absent() {
        let cases = [
            (r#"{"items": [{}, {"key": "a"}]}"#, 200),
            (r#"{"items": [{"key": null}]}"#, 422),
            (r#"{"items": [["a"]]}"#, 422),
            ("[[{}]]", 422),
            ("{", 400),
        ];
        for (text, expected) in cases {
            assert_eq!(status(text), expected, "{text}");
        }
        assert_eq!(status(&"[".repeat(100_000)), 400);
        assert_eq!(status(&format!(r#"{{"items": [{{"key": {}"#, "[".repeat(100_000))), 400);
        assert!(
            parse(b"{\"items\": [{\"key\": \"\xff\"}]}", |outer: Outer| Ok(outer)).is_err_and(|p| p.status() == 400)
        );
    }

    #[test]
    fn list_at_its_limit_is_read_and_one_more_item_is_refused() {
        let list = |n: usize| format!(r#"{{"items": [{}]}}"#, vec!["{}"; n].join(","));
        assert_eq!(status(&list(BATCH_MESSAGES_MAX)), 200);
        assert_eq!(status(&list(BATCH_MESSAGES_MAX + 1)), 422);
    }
}
