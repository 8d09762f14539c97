//! Annotations of a topic: texts that dwell keeps and shows, and does not read.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::model::error::{Error, Result};
use crate::model::limits::{ANNOTATION_NAME_BYTES_MAX, ANNOTATIONS_BYTES_MAX};

/// Names of 1 to 128 bytes and their texts, at most 16 KiB together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Annotations(BTreeMap<String, String>);

impl Annotations {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    /// These with changes: an empty text removes an annotation.
    pub fn changed_by(mut self, changes: Annotations) -> Annotations {
        self.0.extend(changes.0);
        self.0.retain(|_, text| !text.is_empty());
        self
    }

    /// Adds an annotation, or changes its text.
    pub fn set(&mut self, name: impl Into<String>, text: impl Into<String>) {
        self.0.insert(name.into(), text.into());
    }

    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Errors: `Invalid` for a name or a size that is out of range.
    pub fn check(&self) -> Result<()> {
        let names = 1..=ANNOTATION_NAME_BYTES_MAX;
        if let Some(name) = self.0.keys().find(|name| !names.contains(&name.len())) {
            let why = format!("a name has {} bytes, not 1 to {ANNOTATION_NAME_BYTES_MAX}", name.len());
            return Err(Error::range("annotations", why));
        }
        let bytes: usize = self.iter().map(|(name, text)| name.len() + text.len()).sum();
        if bytes > ANNOTATIONS_BYTES_MAX {
            let why = format!("has {bytes} bytes of names and texts, at most {ANNOTATIONS_BYTES_MAX}");
            return Err(Error::range("annotations", why));
        }
        Ok(())
    }
}

impl FromIterator<(String, String)> for Annotations {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(annotations: I) -> Annotations {
        Annotations(annotations.into_iter().collect())
    }
}

/// A name that comes twice is an error.
impl<'de> Deserialize<'de> for Annotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Annotations, D::Error> {
        deserializer.deserialize_map(AnnotationsVisitor)
    }
}

struct AnnotationsVisitor;

impl<'de> Visitor<'de> for AnnotationsVisitor {
    type Value = Annotations;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> std::result::Result<Annotations, A::Error> {
        let mut annotations = BTreeMap::new();
        while let Some((name, text)) = fields.next_entry::<String, String>()? {
            if annotations.contains_key(&name) {
                return Err(de::Error::custom(format_args!("{name:?} is given twice")));
            }
            annotations.insert(name, text);
        }
        Ok(Annotations(annotations))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(json: &str) -> serde_json::Result<Annotations> {
        serde_json::from_str(json)
    }

    #[test]
    fn an_empty_text_removes_an_annotation() -> serde_json::Result<()> {
        let before = annotations(r#"{"team": "checkout", "tier": "1"}"#)?;
        let after = before.changed_by(annotations(r#"{"tier": "", "owner": "ada", "absent": ""}"#)?);
        assert_eq!(after, annotations(r#"{"owner": "ada", "team": "checkout"}"#)?);
        assert!(annotations(r#"{"a": "1", "a": "2"}"#).is_err_and(|error| error.to_string().contains("given twice")));
        assert!(annotations(r#"{"a": 1}"#).is_err() && annotations(r#"{"a": null}"#).is_err());
        Ok(())
    }

    #[test]
    fn limits_are_checked() {
        let one = |name: usize, text: usize| Annotations::from_iter([("n".repeat(name), "é".repeat(text))]).check();
        assert!(one(ANNOTATION_NAME_BYTES_MAX, 1).is_ok());
        assert!(one(0, 1).is_err() && one(ANNOTATION_NAME_BYTES_MAX + 1, 1).is_err());
        assert!(one(2, ANNOTATIONS_BYTES_MAX / 2 - 1).is_ok());
        assert!(one(2, ANNOTATIONS_BYTES_MAX / 2).is_err());
    }
}
