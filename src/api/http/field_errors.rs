//! The `errors` of a problem: the wrong fields of a request.

use std::collections::HashSet;
use std::fmt;

use dwell_client::wire::problem;

use crate::model::error::{Error, Fault};
use crate::model::limits::LISTED_ERRORS_MAX;
use crate::model::spelling::beginning;

/// Bytes of a name in a pointer: the sender chose it.
const NAME_BYTES_MAX: usize = 128;

/// One thing that is wrong, and what kind of mistake it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldError {
    wire: problem::FieldError,
    fault: Fault,
}

impl FieldError {
    fn new(fault: Fault, detail: impl Into<String>) -> FieldError {
        let (pointer, parameter, header, line) = (None, None, None, None);
        let (code, detail) = (fault.code().into(), detail.into());
        FieldError { wire: problem::FieldError { pointer, parameter, header, line, code, detail }, fault }
    }

    pub(crate) fn at(pointer: impl Into<String>, fault: Fault, detail: impl Into<String>) -> FieldError {
        FieldError::new(fault, detail).moved(pointer.into())
    }

    pub(crate) fn of_parameter(name: &str, fault: Fault, detail: impl Into<String>) -> FieldError {
        let mut error = FieldError::new(fault, detail);
        error.wire.parameter = Some(shown(name).to_owned());
        error
    }

    pub(crate) fn of_header(name: &str, fault: Fault, detail: impl Into<String>) -> FieldError {
        let mut error = FieldError::new(fault, detail);
        error.wire.header = Some(name.to_owned());
        error
    }

    pub(crate) fn of(error: &Error) -> Option<FieldError> {
        let (name, fault, why) = error.field()?;
        let pointer = if name == "body" { String::new() } else { child("", name) };
        Some(FieldError::at(pointer, fault, why))
    }

    /// The error as it is answered.
    pub(crate) fn into_wire(self) -> problem::FieldError {
        self.wire
    }

    pub(crate) fn pointer(&self) -> Option<&str> {
        self.wire.pointer.as_deref()
    }

    pub(crate) fn fault(&self) -> Fault {
        self.fault
    }

    pub(crate) fn under(mut self, place: &str) -> FieldError {
        self.wire.pointer = self.wire.pointer.map(|pointer| format!("{place}{pointer}"));
        self
    }

    pub(crate) fn moved(mut self, pointer: String) -> FieldError {
        self.wire.pointer = Some(pointer);
        self
    }

    pub(crate) fn in_line(mut self, number: usize) -> FieldError {
        self.wire.line = Some(number);
        self
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.wire.line {
            write!(f, "line {line}: ")?;
        }
        let place = match (&self.wire.pointer, &self.wire.parameter, &self.wire.header) {
            (Some(pointer), _, _) => dotted(pointer),
            (None, Some(name), _) | (None, None, Some(name)) => name.clone(),
            (None, None, None) => "request".to_owned(),
        };
        write!(f, "`{place}`: {}", self.wire.detail)
    }
}

pub(crate) fn child(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", shown(name).replace('~', "~0").replace('/', "~1"))
}

/// A pointer as people write it: `messages[17].delay`.
fn dotted(pointer: &str) -> String {
    let mut path = String::new();
    for token in pointer.split('/').skip(1) {
        match token.parse::<usize>() {
            Ok(index) => path.push_str(&format!("[{index}]")),
            Err(_) => {
                path.push_str(if path.is_empty() { "" } else { "." });
                path.push_str(&token.replace("~1", "/").replace("~0", "~"));
            }
        }
    }
    if path.is_empty() { "body".to_owned() } else { path }
}

fn shown(name: &str) -> &str {
    beginning(name, NAME_BYTES_MAX)
}

/// Places of errors that are known; one further on is counted as another error. A body of 8 MiB has a million places for one.
const PLACES_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct FieldErrors {
    listed: Vec<FieldError>,
    more: usize,
    places: HashSet<String>,
}

impl FieldErrors {
    /// Adds an error unless its place is known already; returns whether it was new.
    pub(crate) fn add(&mut self, error: FieldError) -> bool {
        if self.places.len() >= PLACES_MAX {
            self.more += 1;
            return true;
        }
        if let Some(pointer) = error.pointer()
            && !self.places.insert(format!("{}{pointer}", error.wire.line.unwrap_or_default()))
        {
            return false;
        }
        self.push(error);
        true
    }

    /// Adds an error even if its place is known, as that of an unknown field may be.
    pub(crate) fn push(&mut self, error: FieldError) {
        match self.listed.len() < LISTED_ERRORS_MAX {
            true => self.listed.push(error),
            false => self.more += 1,
        }
    }

    /// Whether further errors are only counted: then nobody reads what they say.
    pub(crate) fn is_full(&self) -> bool {
        self.listed.len() >= LISTED_ERRORS_MAX
    }

    pub(crate) fn count(&mut self) {
        self.more += 1;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    pub(crate) fn into_parts(self) -> (Vec<FieldError>, usize) {
        (self.listed, self.more)
    }

    pub(crate) fn extend(&mut self, errors: Vec<FieldError>, more: usize) {
        errors.into_iter().for_each(|error| {
            self.add(error);
        });
        self.more += more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_pointer_is_shown_as_a_readable_path() {
        let cases = [
            ("", "body"),
            ("/delay", "delay"),
            ("/messages/17/delay", "messages[17].delay"),
            ("/meta/a~1b~0c", "meta.a/b~c"),
        ];
        for (pointer, path) in cases {
            assert_eq!(dotted(pointer), path, "{pointer}");
        }
        assert_eq!(child("/meta", "a/b~c"), "/meta/a~1b~0c");
        assert_eq!(child("", &"é".repeat(1_000)).len(), 1 + NAME_BYTES_MAX);
        let error = FieldError::at("/delay", Fault::Format, "is wrong");
        assert_eq!(error.clone().under("/messages/17").to_string(), "`messages[17].delay`: is wrong");
        assert_eq!(error.in_line(18).to_string(), "line 18: `delay`: is wrong");
    }

    #[test]
    fn error_list_is_bounded_and_counts_the_rest() {
        let mut faults = FieldErrors::default();
        for i in 0..LISTED_ERRORS_MAX + 5 {
            assert!(faults.add(FieldError::at(format!("/{i}"), Fault::Type, "is wrong")));
        }
        assert!(!faults.add(FieldError::at("/3", Fault::Range, "is wrong again")));
        let (listed, more) = faults.into_parts();
        assert_eq!((listed.len(), more), (LISTED_ERRORS_MAX, 5));
    }

    #[test]
    fn memory_of_a_million_errors_is_bounded() {
        let mut faults = FieldErrors::default();
        for i in 0..1_000_000 {
            faults.add(FieldError::at(format!("/{i}"), Fault::Type, "is wrong"));
        }
        assert_eq!((faults.places.len(), faults.listed.len()), (PLACES_MAX, LISTED_ERRORS_MAX));
        assert_eq!(faults.into_parts().1, 1_000_000 - LISTED_ERRORS_MAX);
    }
}
