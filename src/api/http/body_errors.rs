//! Lists everything that is wrong with a refused body.
//!
//! The body is compared with the schema of the OpenAPI document ([`Walk`]). Each wrong value is replaced with a valid one,
//! so that the rules between fields, which no schema contains, can be checked too.

#[cfg(test)]
mod tests;

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dwell_client::wire::items::Object;
use serde::de::{DeserializeOwned, Deserializer as _, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use utoipa::PartialSchema;

use super::document::{self, SERVED};
use super::field_errors::{FieldError, FieldErrors, child};
use super::problem::Problem;
use crate::model::error::Fault;
use crate::model::limits::BATCH_MESSAGES_MAX;
use crate::model::message::{GroupName, Key, MessageId, TopicName};
use crate::model::spelling::nearest;
use crate::model::time::{parse_millis, parse_span, parse_timestamp};
use crate::model::topic::Rate;
use crate::model::window::time_of_day;

/// How often the rules between fields are checked again without the refused fields: more than a message has rules.
const ROUNDS: usize = 12;

/// Bytes read again in all rounds together: a large wrong body must cost little more than a right one.
const ROUNDS_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The beginnings of serde's own messages. They speak of Rust, so no client sees them.
const OF_SERDE: [&str; 7] = [
    "invalid type",
    "invalid value",
    "invalid length",
    "unknown variant",
    "unknown field",
    "missing field",
    "duplicate field",
];

pub(crate) fn explain<T: DeserializeOwned + PartialSchema, M>(
    bytes: &[u8],
    meaning: impl Fn(T) -> Result<M, Problem>,
    refused: Option<Problem>,
) -> Problem {
    let refused = match refused.map(Problem::into_errors) {
        Some(Err(of_something_else)) => return *of_something_else,
        Some(Ok((errors, more))) => Some((errors, more)),
        None => None,
    };
    let mut faults = FieldErrors::default();
    if let Err(problem) = find(bytes, meaning, &mut faults) {
        return problem;
    }
    if faults.is_empty() {
        let (errors, more) = refused.unwrap_or_else(|| (vec![not_accepted("")], 0));
        faults.extend(errors, more);
    }
    Problem::of_faults(faults)
}

fn not_accepted(pointer: &str) -> FieldError {
    FieldError::at(pointer, Fault::Invalid, "is not accepted here; docs/reference/http.md lists what is")
}

fn find<T: DeserializeOwned + PartialSchema, M>(
    bytes: &[u8],
    meaning: impl Fn(T) -> Result<M, Problem>,
    faults: &mut FieldErrors,
) -> Result<(), Problem> {
    if bytes.is_empty() {
        return Err(Problem::malformed("the body is empty; this request takes JSON"));
    }
    let raw: &RawValue = serde_json::from_slice(bytes).map_err(|error| not_json(&error))?;
    let schema = document::schema_of::<T>();
    let walked = Walk::new(&SERVED, faults).whole(raw.get(), &schema);
    let mut repaired = walked.map_err(|error| not_json(&error))?;
    if !raw.get().starts_with('{') {
        return Ok(());
    }
    let mut has_less = false;
    for _ in 0..ROUNDS.min(1 + ROUNDS_BYTES_MAX / bytes.len()) {
        let read: Result<Object<T>, _> = serde_path_to_error::deserialize(&repaired);
        let errors = match read.map(|Object(value)| meaning(value)) {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(problem)) => problem.into_errors().map_or_else(|_| Vec::new(), |(errors, _)| errors),
            Err(error) => vec![unread(&error)],
        };
        let mut is_changed = false;
        for error in errors {
            let error = as_given(error, &repaired);
            let (place, fault) = (error.pointer().unwrap_or_default().to_owned(), error.fault());
            // An error of the whole body may follow from a replaced value, and a missing field from one that was taken out.
            let may_follow = place.is_empty() && !faults.is_empty() || has_less && fault == Fault::Missing;
            let is_new = !may_follow && faults.add(error);
            let takes_out = fault == Fault::Exclusive || !is_new;
            let is_neutral = neutralize(&mut repaired, &place, &schema, takes_out);
            (is_changed, has_less) = (is_changed || is_neutral, has_less || is_neutral && takes_out);
        }
        if !is_changed {
            return Ok(());
        }
    }
    Ok(())
}

/// Moves the error of a field to the given one of its forms: a rule about `delay` also applies to `delay_ms`.
fn as_given(error: FieldError, body: &Value) -> FieldError {
    let Some(place) = error.pointer().filter(|place| body.pointer(place).is_none()) else { return error };
    let forms = ["_ms", "_base64", "_json"].map(|ending| format!("{place}{ending}"));
    match forms.into_iter().find(|form| body.pointer(form).is_some()) {
        Some(given) => error.moved(given),
        None => error,
    }
}

fn unread(error: &serde_path_to_error::Error<serde_json::Error>) -> FieldError {
    use serde_path_to_error::Segment;
    let mut pointer = String::new();
    for segment in error.path() {
        match segment {
            Segment::Seq { index } => pointer.push_str(&format!("/{index}")),
            Segment::Map { key } => pointer = child(&pointer, key),
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    let why = error.inner().to_string();
    match OF_SERDE.iter().any(|words| why.starts_with(words)) {
        true => not_accepted(&pointer),
        false => FieldError::at(pointer, Fault::Format, why),
    }
}

fn neutralize(body: &mut Value, place: &str, schema: &Value, takes_out: bool) -> bool {
    let Some((parent, token)) = place.rsplit_once('/') else { return false };
    let right = stand_in(&SERVED, schema_at(&SERVED, schema, place));
    let is_required = required(schema_at(&SERVED, schema, parent)).any(|name| name == token);
    match body.pointer_mut(parent) {
        Some(Value::Object(fields)) if takes_out && !is_required => fields.remove(token).is_some(),
        Some(Value::Object(fields)) => fields.insert(token.to_owned(), right.clone()) != Some(right),
        Some(Value::Array(items)) => match token.parse().ok().and_then(|index: usize| items.get_mut(index)) {
            Some(item) => std::mem::replace(item, right.clone()) != right,
            None => false,
        },
        _ => false,
    }
}

fn not_json(error: &serde_json::Error) -> Problem {
    let place = match error.line() {
        0 => String::new(),
        line => format!(" (line {line}, column {})", error.column()),
    };
    Problem::malformed(match error.classify() {
        Category::Eof => "the body is not JSON: it ends too early".to_owned(),
        _ if error.to_string().starts_with("trailing") => format!("the body is not one JSON value{place}"),
        _ => format!("the body is not JSON in UTF-8{place}"),
    })
}

const SIMILAR_BYTES_MAX: usize = 64;

const SHOWN_MAX: usize = 60;

type Result<T, E = serde_json::Error> = std::result::Result<T, E>;

/// The type of a JSON value, as schemas name it.
fn type_of(raw: &str) -> &'static str {
    match raw.as_bytes().first() {
        Some(b'{') => "object",
        Some(b'[') => "array",
        Some(b'"') => "string",
        Some(b't' | b'f') => "boolean",
        Some(b'n') => "null",
        _ => "number",
    }
}

fn fits(json: &str, name: &str) -> bool {
    json == name || (json, name) == ("number", "integer")
}

fn type_words(name: &str) -> &'static str {
    match name {
        "null" => "null",
        "boolean" => "true or false",
        "number" => "a number",
        "integer" => "a whole number",
        "string" => "a string",
        "array" => "a list",
        _ => "an object",
    }
}

#[derive(Clone, Copy)]
struct Schema<'a> {
    name: &'a str,
    is: &'a Value,
}

impl<'a> Schema<'a> {
    fn new(document: &'a Value, mut is: &'a Value) -> Schema<'a> {
        let mut name = "";
        while let Some(place) = is["$ref"].as_str().and_then(|place| place.strip_prefix('#')) {
            name = place.rsplit('/').next().unwrap_or_default();
            is = document.pointer(place).unwrap_or(&Value::Null);
        }
        Schema { name, is }
    }

    fn choices(self) -> impl Iterator<Item = &'a Value> {
        ["anyOf", "oneOf"].into_iter().filter_map(|word| self.is[word].as_array()).flatten()
    }

    fn types(self, document: &'a Value) -> Vec<&'a str> {
        let own = self.is["type"].as_str().into_iter();
        let choices = self.choices().flat_map(|choice| Schema::new(document, choice).types(document));
        let mut types: Vec<_> = own.chain(choices).collect();
        types.dedup();
        types
    }

    fn choose(self, document: &'a Value, json: &str, kind: Option<(&str, &str)>) -> Option<Schema<'a>> {
        let fits = |choice: &Schema| match kind {
            Some((field, word)) => choice.is["properties"][field]["enum"][0] == word,
            None => choice.types(document).iter().any(|name| fits(json, name)),
        };
        self.choices().map(|choice| Schema::new(document, choice)).find(fits)
    }

    fn discriminator(self) -> Option<(&'a str, Vec<&'a str>)> {
        let is = &self.is["discriminator"];
        let words = is["mapping"].as_object().into_iter().flat_map(Map::keys).map(String::as_str).collect();
        Some((is["propertyName"].as_str()?, words))
    }
}

fn field_of<'a>(raw: &'a str, field: &str) -> Result<Option<&'a RawValue>> {
    let mut fields: std::collections::HashMap<String, &RawValue> = serde_json::from_str(raw)?;
    Ok(fields.remove(field))
}

fn required(schema: &Value) -> impl Iterator<Item = &str> {
    schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn schema_at<'a>(document: &'a Value, schema: &'a Value, pointer: &str) -> &'a Value {
    let mut at = Schema::new(document, schema);
    for token in pointer.split('/').skip(1) {
        let object =
            at.choices().map(|choice| Schema::new(document, choice)).find(|choice| choice.is["properties"].is_object());
        let is = object.unwrap_or(at).is;
        let next = [&is["properties"][token], &is["items"]].into_iter().find(|next| !next.is_null());
        at = Schema::new(document, next.unwrap_or(&Value::Null));
    }
    at.is
}

fn stand_in(document: &Value, schema: &Value) -> Value {
    let schema = Schema::new(document, schema).is;
    let given = [&schema["examples"][0], &schema["example"], &schema["enum"][0], &schema["minimum"]];
    if let Some(given) = given.into_iter().find(|given| !given.is_null()) {
        return given.clone();
    }
    match schema["type"].as_str() {
        Some("integer" | "number") => 1.into(),
        Some("boolean") => false.into(),
        Some("array") => Value::Array(vec![stand_in(document, &schema["items"])]),
        Some("object") => {
            let field = |name: &str| (name.to_owned(), stand_in(document, &schema["properties"][name]));
            Value::Object(required(schema).map(field).collect())
        }
        Some(_) => "x".into(),
        None => match ["anyOf", "oneOf"].into_iter().find_map(|word| schema[word].get(0)) {
            Some(first) => stand_in(document, first),
            None => Value::Null,
        },
    }
}

struct Walk<'a> {
    document: &'a Value,
    faults: &'a mut FieldErrors,
}

impl<'a> Walk<'a> {
    fn new(document: &'a Value, faults: &'a mut FieldErrors) -> Walk<'a> {
        Walk { document, faults }
    }

    /// Returns the body with valid values instead of wrong ones. # Errors: A string without a meaning, such as half of
    /// a surrogate pair.
    fn whole(mut self, raw: &str, schema: &Value) -> Result<Value> {
        self.value(raw, schema, "")
    }

    fn fault(&mut self, at: &str, fault: Fault, why: impl Into<String>) {
        self.faults.add(FieldError::at(at, fault, why));
    }

    fn value(&mut self, raw: &str, schema: &Value, at: &str) -> Result<Value> {
        let document = self.document;
        let general = Schema::new(document, schema);
        let json = type_of(raw);
        let read = match json {
            "string" => read_as(general.name, &serde_json::from_str::<String>(raw)?),
            "number" => read_as(general.name, raw).filter(|_| general.name != "Base64"),
            _ => None,
        };
        if let Some(Err(why)) = read {
            self.fault(at, Fault::Format, why);
            return Ok(stand_in(document, general.is));
        }
        let types = general.types(document);
        if types.is_empty() {
            // Any value is valid. A string of the same size stands for it, which takes no more memory however deep it is nested.
            return Ok(Value::String("x".repeat(raw.len().saturating_sub(2))));
        }
        if !types.iter().any(|name| fits(json, name)) {
            let words: Vec<_> = types.iter().map(|name| type_words(name)).collect();
            let unit = if at.ends_with("_ms") { " of milliseconds" } else { "" };
            self.fault(at, Fault::Type, format!("{}{unit} is expected, not {}", words.join(" or "), type_words(json)));
            return Ok(stand_in(document, general.is));
        }
        let schema = match general.discriminator() {
            Some((field, words)) if json == "object" => match self.kind(raw, &child(at, field), field, &words)? {
                Some(kind) => general.choose(document, json, Some((field, &kind))),
                None => return Ok(stand_in(document, general.is)),
            },
            _ => general.choose(document, json, None),
        };
        let schema = schema.unwrap_or(general);
        let wrong = match json {
            "object" => return self.object(raw, schema.is, at),
            "array" => return self.list(raw, schema.is, at),
            "string" => out_of_words(schema.is, &serde_json::from_str::<String>(raw)?),
            "number" if general.name == "Rate" => None,
            "number" => out_of_range(schema.is, raw).map(|(fault, why)| match parse_millis(raw) {
                Err(why) if at.ends_with("_ms") => (fault, why),
                _ => (fault, why),
            }),
            _ => None,
        };
        match wrong {
            Some((fault, why)) => {
                self.fault(at, fault, why);
                Ok(stand_in(document, schema.is))
            }
            None => serde_json::from_str(raw),
        }
    }

    fn kind(&mut self, raw: &str, at: &str, field: &str, words: &[&str]) -> Result<Option<String>> {
        let (fault, why) = match field_of(raw, field)? {
            None => (Fault::Missing, "is missing".to_owned()),
            Some(given) if type_of(given.get()) != "string" => {
                (Fault::Type, format!("a string is expected, not {}", type_words(type_of(given.get()))))
            }
            Some(given) => match serde_json::from_str::<String>(given.get())? {
                word if words.contains(&word.as_str()) => return Ok(Some(word)),
                word => (Fault::Choice, none_of(&word, words)),
            },
        };
        self.fault(at, fault, why);
        Ok(None)
    }

    fn object(&mut self, raw: &str, schema: &Value, at: &str) -> Result<Value> {
        let fields = serde_json::Deserializer::from_str(raw).deserialize_map(Fields { walk: self, schema, at })?;
        Ok(Value::Object(fields))
    }

    fn list(&mut self, raw: &str, schema: &Value, at: &str) -> Result<Value> {
        let most =
            schema["maxItems"].as_u64().and_then(|most| usize::try_from(most).ok()).unwrap_or(BATCH_MESSAGES_MAX);
        let (items, is_longer) =
            serde_json::Deserializer::from_str(raw).deserialize_seq(List { walk: self, schema, at, most })?;
        if is_longer {
            let why = format!("there are more than {most} items, 1 to {most} are accepted");
            self.fault(at, Fault::Range, why);
        }
        if items.is_empty() && schema["minItems"].as_u64() > Some(0) {
            self.fault(at, Fault::Range, format!("the list is empty; 1 to {most} items are accepted"));
            return Ok(Value::Array(vec![stand_in(self.document, &schema["items"])]));
        }
        Ok(Value::Array(items))
    }

    fn unknown(&mut self, name: &str, schema: &Value, at: &str) {
        if self.faults.is_full() {
            return self.faults.count();
        }
        let known = || schema["properties"].as_object().into_iter().flat_map(Map::keys).map(String::as_str);
        let shown: String = name.chars().take(SHOWN_MAX).collect();
        let meant = (name.len() <= SIMILAR_BYTES_MAX).then(|| nearest(name, known())).flatten();
        let why = match meant {
            Some(meant) => format!("unknown field `{shown}`; did you mean `{meant}`?"),
            None if known().next().is_none() => format!("unknown field `{shown}`; there are none here"),
            None => format!("unknown field `{shown}`; there are {}", known().collect::<Vec<_>>().join(", ")),
        };
        self.faults.push(FieldError::at(child(at, name), Fault::Unknown, why));
    }
}

/// Parses a value as the component of this name, if the component has a parser. Numbers are parsed too, to report a
/// missing unit.
fn read_as(name: &str, text: &str) -> Option<std::result::Result<(), String>> {
    let why = |error: crate::model::error::Error| error.field().map_or_else(String::new, |(_, _, why)| why.to_owned());
    Some(match name {
        "Duration" => parse_span(text).map(drop),
        "Time" => parse_timestamp(text).map(drop),
        "TopicName" => TopicName::new(text).map(drop).map_err(why),
        "GroupName" => GroupName::new(text).map(drop).map_err(why),
        "MessageId" => MessageId::new(text).map(drop).map_err(why),
        "Key" => Key::new(text).map(drop).map_err(why),
        "TimeOfDay" => time_of_day(text).map(drop),
        "Rate" => Rate::read_limit(text).map(drop),
        "Base64" => {
            STANDARD.decode(text).map(drop).map_err(|why| format!("is not standard base64 with padding: {why}"))
        }
        _ => return None,
    })
}

fn out_of_words(schema: &Value, text: &str) -> Option<(Fault, String)> {
    let words: Vec<_> = schema["enum"].as_array()?.iter().filter_map(Value::as_str).collect();
    (!words.contains(&text)).then(|| (Fault::Choice, none_of(text, &words)))
}

fn none_of(text: &str, words: &[&str]) -> String {
    let shown: String = text.chars().take(SHOWN_MAX).collect();
    format!("{shown:?} is none of {}", words.join(", "))
}

fn out_of_range(schema: &Value, raw: &str) -> Option<(Fault, String)> {
    let shown: String = raw.chars().take(SHOWN_MAX).collect();
    let is_whole = schema["type"] == "integer";
    if is_whole && raw.contains(['.', 'e', 'E']) {
        return Some((Fault::Type, format!("a whole number is expected, not {shown}")));
    }
    let Ok(number) = raw.parse::<f64>() else { return None };
    let (least, most) = (schema["minimum"].as_f64(), schema["maximum"].as_f64());
    let most = most.or(is_whole.then_some(i64::MAX as f64));
    if least.is_some_and(|least| number < least) || most.is_some_and(|most| number > most) || !number.is_finite() {
        let least = least.map_or_else(String::new, |least| format!("{least} to "));
        return Some((Fault::Range, format!("{shown} is not in {least}{}", most.unwrap_or(f64::MAX))));
    }
    None
}

struct Fields<'w, 'a> {
    walk: &'w mut Walk<'a>,
    schema: &'w Value,
    at: &'w str,
}

impl<'de> Visitor<'de> for Fields<'_, '_> {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut given: A) -> std::result::Result<Self::Value, A::Error> {
        let Fields { walk, schema, at } = self;
        let document = walk.document;
        let mut fields = Map::new();
        while let Some(name) = given.next_key::<String>()? {
            let raw: &RawValue = given.next_value()?;
            let of_all = &schema["additionalProperties"];
            let known = [&schema["properties"][&name], of_all].into_iter().find(|known| known.is_object());
            let Some(known) = known else {
                walk.unknown(&name, schema, at);
                continue;
            };
            let place = child(at, &name);
            if fields.contains_key(&name) {
                walk.fault(&place, Fault::Repeated, "is given twice");
                continue;
            }
            let hint = &schema["properties"][format!("{name}_json")];
            let raw = raw.get();
            if hint.is_object() && type_of(raw) != "string" {
                walk.fault(&place, Fault::Type, format!("a string is expected; for JSON use `{name}_json`"));
                fields.insert(name, stand_in(document, known));
                continue;
            }
            let value = walk.value(raw, known, &place).map_err(serde::de::Error::custom)?;
            if schema["maxProperties"].as_u64().is_none_or(|most| fields.len() as u64 <= most) {
                fields.insert(name, value);
            }
        }
        for name in required(schema) {
            if !fields.contains_key(name) {
                walk.fault(&child(at, name), Fault::Missing, "is missing");
                fields.insert(name.to_owned(), stand_in(document, &schema["properties"][name]));
            }
        }
        Ok(fields)
    }
}

struct List<'w, 'a> {
    walk: &'w mut Walk<'a>,
    schema: &'w Value,
    at: &'w str,
    most: usize,
}

impl<'de> Visitor<'de> for List<'_, '_> {
    type Value = (Vec<Value>, bool);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut given: A) -> std::result::Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(raw) = given.next_element::<&RawValue>()? {
            if items.len() == self.most {
                while given.next_element::<serde::de::IgnoredAny>()?.is_some() {}
                return Ok((items, true));
            }
            let place = format!("{}/{}", self.at, items.len());
            let item = self.walk.value(raw.get(), &self.schema["items"], &place);
            items.push(item.map_err(serde::de::Error::custom)?);
        }
        Ok((items, false))
    }
}
