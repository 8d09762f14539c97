//! Everything that is wrong with a body that was refused.
//!
//! The body is compared with the schema that the OpenAPI document publishes for it ([`walk`]). What that finds wrong is
//! replaced with something that is right, so that the rules between fields, which no schema has, can be asked too.

mod walk;
#[cfg(test)]
mod tests;

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::error::Category;
use serde_json::value::RawValue;
use utoipa::PartialSchema;

use self::walk::{Walk, required, schema_at, stand_in};
use super::document::{self, SERVED};
use super::field_errors::{Faults, FieldError, child};
use super::problem::Problem;
use super::strict_json::Object;
use crate::model::error::Fault;

/// How often the rules between fields are asked again, without what they have refused. More rounds than a message has rules.
const ROUNDS: usize = 12;

/// Bytes of a body that are read again in all rounds together, so that a large one that is wrong costs little more than one
/// that is right.
const ROUNDS_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How the messages of serde's own errors begin. They speak of Rust, and are shown to nobody.
const OF_SERDE: [&str; 7] = [
    "invalid type",
    "invalid value",
    "invalid length",
    "unknown variant",
    "unknown field",
    "missing field",
    "duplicate field",
];

/// Says everything that is wrong with a body. `refused` is what was found first, if the body could be read.
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
    let mut faults = Faults::default();
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
    faults: &mut Faults,
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
            // What is said of the whole body may follow from what was replaced.
            let is_new = (!place.is_empty() || faults.is_empty()) && faults.add(error);
            is_changed |= neutralize(&mut repaired, &place, &schema, fault == Fault::Exclusive || !is_new);
        }
        if !is_changed {
            return Ok(());
        }
    }
    Ok(())
}

/// The error of a field, at the one of its forms that was given: a rule about `delay` is one about `delay_ms` too.
fn as_given(error: FieldError, body: &Value) -> FieldError {
    let Some(place) = error.pointer().filter(|place| body.pointer(place).is_none()) else { return error };
    let forms = ["_ms", "_base64", "_json"].map(|ending| format!("{place}{ending}"));
    match forms.into_iter().find(|form| body.pointer(form).is_some()) {
        Some(given) => error.moved(given),
        None => error,
    }
}

/// What a parser of a single field has against it.
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

/// Puts something right in the place of what was refused, or takes it out. Says whether that changed anything.
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

/// Says where a body stops to be JSON.
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
