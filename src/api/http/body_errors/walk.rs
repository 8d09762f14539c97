//! Compares a body with its schema, field by field, and says what does not fit in the words of the protocol.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserializer as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::api::http::field_errors::{Faults, FieldError, child};
use crate::model::error::Fault;
use crate::model::limits::BATCH_MESSAGES_MAX;
use crate::model::message::{GroupName, Key, MessageId, TopicName};
use crate::model::spelling::nearest;
use crate::model::time::{parse_millis, parse_span, parse_timestamp};
use crate::model::topic::Rate;

/// Bytes of a name for which a similar one is looked for.
const SIMILAR_BYTES_MAX: usize = 64;

/// Characters of a value that an error shows.
const SHOWN_MAX: usize = 60;

type Result<T> = std::result::Result<T, serde_json::Error>;

/// The type of a JSON value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Json {
    Null,
    Boolean,
    Number,
    String,
    List,
    Object,
}

impl Json {
    fn of(raw: &str) -> Json {
        match raw.as_bytes().first() {
            Some(b'{') => Json::Object,
            Some(b'[') => Json::List,
            Some(b'"') => Json::String,
            Some(b't' | b'f') => Json::Boolean,
            Some(b'n') => Json::Null,
            _ => Json::Number,
        }
    }

    fn fits(self, name: &str) -> bool {
        match self {
            Json::Null => name == "null",
            Json::Boolean => name == "boolean",
            Json::Number => name == "number" || name == "integer",
            Json::String => name == "string",
            Json::List => name == "array",
            Json::Object => name == "object",
        }
    }

    fn words(name: &str) -> &'static str {
        match name {
            "boolean" => "true or false",
            "number" => "a number",
            "integer" => "a whole number",
            "string" => "a string",
            "array" => "a list",
            _ => "an object",
        }
    }
}

/// A schema, without the references that lead to it, and the name of its component.
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

    /// The schemas of which one has to fit.
    fn choices(self) -> impl Iterator<Item = &'a Value> {
        ["anyOf", "oneOf"].into_iter().filter_map(|word| self.is[word].as_array()).flatten()
    }

    /// The types that are accepted; none stands for every one.
    fn types(self, document: &'a Value) -> Vec<&'a str> {
        let own = self.is["type"].as_str().into_iter();
        let choices = self.choices().flat_map(|choice| Schema::new(document, choice).types(document));
        let mut types: Vec<_> = own.chain(choices).collect();
        types.dedup();
        types
    }

    /// The choice for a value of this type, and of this kind if a field says which one is meant.
    fn choose(self, document: &'a Value, json: Json, kind: Option<(&str, &str)>) -> Option<Schema<'a>> {
        let fits = |choice: &Schema| match kind {
            Some((field, word)) => choice.is["properties"][field]["enum"][0] == word,
            None => choice.types(document).iter().any(|name| json.fits(name)),
        };
        self.choices().map(|choice| Schema::new(document, choice)).find(fits)
    }

    /// The field that says which choice is meant, and the words that it may be.
    fn discriminator(self) -> Option<(&'a str, Vec<&'a str>)> {
        let is = &self.is["discriminator"];
        let words = is["mapping"].as_object().into_iter().flat_map(Map::keys).map(String::as_str).collect();
        Some((is["propertyName"].as_str()?, words))
    }
}

/// A field of an object.
fn field_of<'a>(raw: &'a str, field: &str) -> Result<Option<&'a RawValue>> {
    let mut fields: std::collections::HashMap<String, &RawValue> = serde_json::from_str(raw)?;
    Ok(fields.remove(field))
}

/// The names of the fields that an object has to have.
pub(super) fn required(schema: &Value) -> impl Iterator<Item = &str> {
    schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// The schema of a place in a body.
pub(super) fn schema_at<'a>(document: &'a Value, schema: &'a Value, pointer: &str) -> &'a Value {
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

/// A value that fits a schema.
pub(super) fn stand_in(document: &Value, schema: &Value) -> Value {
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

/// A walk through a body.
pub(super) struct Walk<'a> {
    document: &'a Value,
    faults: &'a mut Faults,
}

impl<'a> Walk<'a> {
    pub(super) fn new(document: &'a Value, faults: &'a mut Faults) -> Walk<'a> {
        Walk { document, faults }
    }

    /// Looks through a whole body. Answers it with something right in place of what is wrong.
    ///
    /// # Errors
    /// A string that has no meaning, such as half of a surrogate pair.
    pub(super) fn whole(mut self, raw: &str, schema: &Value) -> Result<Value> {
        self.value(raw, schema, "")
    }

    fn fault(&mut self, at: &str, fault: Fault, why: impl Into<String>) {
        self.faults.add(FieldError::at(at, fault, why));
    }

    fn value(&mut self, raw: &str, schema: &Value, at: &str) -> Result<Value> {
        let document = self.document;
        let general = Schema::new(document, schema);
        let json = Json::of(raw);
        let read = match json {
            Json::String => read_as(general.name, &serde_json::from_str::<String>(raw)?),
            Json::Number => read_as(general.name, raw).filter(|_| general.name != "Base64"),
            _ => None,
        };
        if let Some(Err(why)) = read {
            self.fault(at, Fault::Format, why);
            return Ok(stand_in(document, general.is));
        }
        let types = general.types(document);
        if types.is_empty() {
            // Any value is right. One of the same size stands for it, which takes no more memory however it is nested.
            return Ok(Value::String("x".repeat(raw.len().saturating_sub(2))));
        }
        if !types.iter().any(|name| json.fits(name)) {
            let words: Vec<_> = types.iter().map(|name| Json::words(name)).collect();
            let unit = if at.ends_with("_ms") { " of milliseconds" } else { "" };
            self.fault(at, Fault::Type, format!("{}{unit} is expected, not {}", words.join(" or "), said(json)));
            return Ok(stand_in(document, general.is));
        }
        let schema = match general.discriminator() {
            Some((field, words)) if json == Json::Object => match self.kind(raw, &child(at, field), field, &words)? {
                Some(kind) => general.choose(document, json, Some((field, &kind))),
                None => return Ok(stand_in(document, general.is)),
            },
            _ => general.choose(document, json, None),
        };
        let schema = schema.unwrap_or(general);
        let wrong = match json {
            Json::Object => return self.object(raw, schema.is, at),
            Json::List => return self.list(raw, schema.is, at),
            Json::String => out_of_words(schema.is, &serde_json::from_str::<String>(raw)?),
            Json::Number if general.name == "Rate" => None,
            Json::Number => out_of_range(schema.is, raw).map(|(fault, why)| match parse_millis(raw) {
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

    /// Which of several kinds of objects is meant.
    fn kind(&mut self, raw: &str, at: &str, field: &str, words: &[&str]) -> Result<Option<String>> {
        let (fault, why) = match field_of(raw, field)? {
            None => (Fault::Missing, "is missing".to_owned()),
            Some(given) if Json::of(given.get()) != Json::String => {
                (Fault::Type, format!("a string is expected, not {}", said(Json::of(given.get()))))
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

    /// A field that the object does not have.
    fn unknown(&mut self, name: &str, schema: &Value, at: &str) {
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

fn said(json: Json) -> &'static str {
    match json {
        Json::Null => "null",
        Json::Boolean => "true or false",
        Json::Number => "a number",
        Json::String => "a string",
        Json::List => "a list",
        Json::Object => "an object",
    }
}

/// Reads a value as the component of this name, if the component has a parser. Numbers are read too, so that one without a
/// unit is told so.
fn read_as(name: &str, text: &str) -> Option<std::result::Result<(), String>> {
    let why = |error: crate::model::error::Error| error.field().map_or_else(String::new, |(_, _, why)| why.to_owned());
    Some(match name {
        "Duration" => parse_span(text).map(drop),
        "Time" => parse_timestamp(text).map(drop),
        "TopicName" => TopicName::new(text).map(drop).map_err(why),
        "GroupName" => GroupName::new(text).map(drop).map_err(why),
        "MessageId" => MessageId::new(text).map(drop).map_err(why),
        "Key" => Key::new(text).map(drop).map_err(why),
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

/// Reads the fields of an object.
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
            if hint.is_object() && Json::of(raw) != Json::String {
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

/// Reads the items of a list, up to one too many.
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
