//! JSON bodies, read strictly: a misspelt or repeated field must never be passed over.

use std::fmt;

use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use serde::Deserialize;
use serde::de::{self, DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};

use super::problem::{Class, Problem};
use super::{App, body};
use crate::limits::{BATCH_MESSAGES_MAX, REQUEST_BODY_BYTES_MAX};

/// A JSON body.
pub(crate) struct Json<T>(pub(crate) T);

/// A JSON body that may be absent: then every field has its default.
pub(crate) struct JsonOrDefault<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Json<T>, Problem> {
        let (headers, bytes) = read(request, app).await?;
        expect_json(&headers)?;
        parse(&bytes).map(Json)
    }
}

impl<T: DeserializeOwned + Default> FromRequest<App> for JsonOrDefault<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<JsonOrDefault<T>, Problem> {
        let (headers, bytes) = read(request, app).await?;
        if bytes.is_empty() {
            return Ok(JsonOrDefault(T::default()));
        }
        expect_json(&headers)?;
        parse(&bytes).map(JsonOrDefault)
    }
}

/// A body without fields, for a request whose parameters are in its query.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoFields {}

async fn read(request: Request, app: &App) -> Result<(HeaderMap, Bytes), Problem> {
    let (parts, body) = request.into_parts();
    let bytes = body::read(app, &parts.headers, body, REQUEST_BODY_BYTES_MAX, "body").await?;
    Ok((parts.headers, bytes))
}

/// The media type of a body, in lower case and without parameters.
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

/// Reads JSON. # Errors: 400 when it is not JSON, 422 naming the field when it is not what was asked for.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // Where a wrong field stands costs more than the reading itself, so it is only asked for of a body that is wrong.
    if let Ok(Object(value)) = serde_json::from_slice(bytes) {
        return Ok(value);
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let Object(value) = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        match (inner.classify(), path.as_str()) {
            (serde_json::error::Category::Data, ".") => Problem::invalid("body", inner),
            (serde_json::error::Category::Data, path) => Problem::invalid(path, inner),
            _ => Problem::malformed(format!("the body is not JSON: {inner}")),
        }
    })?;
    json.end().map_err(|error| Problem::malformed(format!("the body is not one JSON value: {error}")))?;
    Ok(value)
}

/// For `deserialize_with` beside `default`: a field may be absent, but `null` is not a way to say so.
pub(crate) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// An object with named fields. (serde would also fill a struct from a list, by position.)
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(std::marker::PhantomData)).map(Object)
    }
}

struct ObjectVisitor<T>(std::marker::PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
        T::deserialize(de::value::MapAccessDeserializer::new(fields))
    }
}

/// An object with named fields, or a text that stands for one of them alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextOr<T>(pub(crate) T);

impl<'de, T: Deserialize<'de> + From<String>> Deserialize<'de> for TextOr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrVisitor(std::marker::PhantomData)).map(TextOr)
    }
}

struct TextOrVisitor<T>(std::marker::PhantomData<T>);

impl<'de, T: Deserialize<'de> + From<String>> Visitor<'de> for TextOrVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a JSON object")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        Ok(T::from(text.to_owned()))
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<T, E> {
        Ok(T::from(text))
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
        T::deserialize(de::value::MapAccessDeserializer::new(fields))
    }
}

/// 1 to 1,000 items. Reading ends at the first one too many, so that a hostile list takes no memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Items<T>(pub(crate) Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Items<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ItemsVisitor(std::marker::PhantomData)).map(Items)
    }
}

struct ItemsVisitor<T>(std::marker::PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ItemsVisitor<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of 1 to {BATCH_MESSAGES_MAX} items")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut items = Vec::with_capacity(list.size_hint().unwrap_or(0).min(BATCH_MESSAGES_MAX));
        while items.len() < BATCH_MESSAGES_MAX {
            match list.next_element()? {
                Some(item) => items.push(item),
                None if items.is_empty() => return Err(de::Error::custom("the list is empty")),
                None => return Ok(items),
            }
        }
        match list.next_element::<de::IgnoredAny>()? {
            Some(_) => Err(de::Error::custom(TooMany)),
            None => Ok(items),
        }
    }
}

/// What is said of a list with too many items.
pub(crate) struct TooMany;

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there are more than {BATCH_MESSAGES_MAX} items, 1 to {BATCH_MESSAGES_MAX} are accepted")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::time::span;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        items: Items<Object<Inner>>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[serde(default, with = "span::optional")]
        delay: Option<Duration>,
        #[serde(default, deserialize_with = "present")]
        key: Option<String>,
    }

    fn refused(text: &str) -> (u16, String) {
        match parse::<Outer>(text.as_bytes()) {
            Ok(read) => (200, format!("{read:?}")),
            Err(problem) => (problem.status().as_u16(), problem.detail().to_owned()),
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let cases = [
            (r#"{"items": [{}, {"dealy": "5s"}]}"#, 422, "`items[1].dealy`: unknown field `dealy`"),
            (r#"{"items": [{"delay": "5s", "delay": "6s"}]}"#, 422, "duplicate field `delay`"),
            (r#"{"items": [{}, {"delay": "-5s"}]}"#, 422, "`items[1].delay`: \"-5s\" is negative"),
            (r#"{"items": [{"delay": 5}]}"#, 422, "`items[0].delay`: 5 has no unit; write \"5s\" or \"5ms\""),
            (r#"{"items": [{"delay": -5}]}"#, 422, "`items[0].delay`: \"-5\" is negative"),
            (r#"{"items": [{"delay": null}]}"#, 422, "`items[0].delay`: invalid type: null"),
            (r#"{"items": [{"key": null}]}"#, 422, "`items[0].key`: invalid type: null"),
            (r#"{"items": []}"#, 422, "`items`: the list is empty"),
            (r#"{"items": 7}"#, 422, "`items`: invalid type: integer `7`, expected a list of 1 to 1000 items"),
            ("{}", 422, "`body`: missing field `items`"),
            ("[[{}]]", 422, "`body`: invalid type: sequence, expected a JSON object"),
            (r#"{"items": [["5s", "key"]]}"#, 422, "`items[0]`: invalid type: sequence, expected a JSON object"),
            ("", 400, "the body is not JSON: EOF"),
            ("{", 400, "the body is not JSON: EOF"),
            (r#"{"items": [{}]} x"#, 400, "the body is not one JSON value"),
            (r#"{"items": [{"delay": 1e999}]}"#, 400, "the body is not JSON: number out of range"),
        ];
        for (text, status, detail) in cases {
            let (got, said) = refused(text);
            assert_eq!(got, status, "{text}: {said}");
            assert!(said.contains(detail), "{text}: {said}");
        }
        assert_eq!(refused(&"[".repeat(100_000)).0, 422);
        assert_eq!(refused(&format!(r#"{{"items": [{{"key": {}"#, "[".repeat(100_000))).0, 422);
        assert!(parse::<Outer>(b"{\"items\": [{\"key\": \"\xff\"}]}").is_err_and(|p| p.status() == 400));
    }

    #[test]
    fn a_list_at_its_limit_is_read_and_one_more_is_refused() {
        let list = |n: usize| format!(r#"{{"items": [{}]}}"#, vec!["{}"; n].join(","));
        assert_eq!(refused(&list(BATCH_MESSAGES_MAX)).0, 200);
        let (status, detail) = refused(&list(BATCH_MESSAGES_MAX + 1));
        assert_eq!(status, 422);
        assert!(detail.contains("more than 1000 items"), "{detail}");
    }
}
