//! Values for some keys: by the name of a key, or by the beginning of names.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::error::{Error, Fault, Result};
use crate::model::limits::KEY_PATTERNS_MAX;
use crate::model::message::Key;
use crate::model::spelling::beginning;

/// The value of a name counts for that key alone; that of a beginning, written with a `*` behind it, for all keys that begin so. Of
/// several, that of the name counts, or else that of the longest beginning.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(
    from = "BTreeMap<String, T>",
    into = "BTreeMap<String, T>",
    bound(serialize = "T: Clone + Serialize", deserialize = "T: Clone + Deserialize<'de>")
)]
pub struct KeyPatterns<T>(Arc<Patterns<T>>);

#[derive(Debug, PartialEq)]
struct Patterns<T> {
    all: BTreeMap<String, T>,
    names: HashMap<String, T>,
    /// By their length in bytes, the longest first: there are few lengths.
    beginnings: Vec<(usize, HashMap<String, T>)>,
}

const ANY_REST: char = '*';

/// Bytes of a wrong entry that an error shows.
const SHOWN_BYTES: usize = 64;

impl<T> Default for KeyPatterns<T> {
    fn default() -> KeyPatterns<T> {
        KeyPatterns(Arc::new(Patterns { all: BTreeMap::new(), names: HashMap::new(), beginnings: Vec::new() }))
    }
}

/// Copies of one value are compared at no cost.
impl<T: PartialEq> PartialEq for KeyPatterns<T> {
    fn eq(&self, other: &KeyPatterns<T>) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl<T: Clone> From<BTreeMap<String, T>> for KeyPatterns<T> {
    fn from(all: BTreeMap<String, T>) -> KeyPatterns<T> {
        let (mut names, mut beginnings) = (HashMap::new(), BTreeMap::<usize, HashMap<String, T>>::new());
        for (pattern, value) in &all {
            match pattern.strip_suffix(ANY_REST) {
                Some(begin) => beginnings.entry(begin.len()).or_default().insert(begin.to_owned(), value.clone()),
                None => names.insert(pattern.clone(), value.clone()),
            };
        }
        KeyPatterns(Arc::new(Patterns { all, names, beginnings: beginnings.into_iter().rev().collect() }))
    }
}

impl<T: Clone> From<KeyPatterns<T>> for BTreeMap<String, T> {
    fn from(patterns: KeyPatterns<T>) -> BTreeMap<String, T> {
        patterns.0.all.clone()
    }
}

impl<T: Clone> KeyPatterns<T> {
    /// Errors: `Invalid` about `field`: more than [`KEY_PATTERNS_MAX`], one that no key matches, or a `*` that is not at the end.
    pub fn new(field: &str, all: BTreeMap<String, T>) -> Result<KeyPatterns<T>> {
        if all.len() > KEY_PATTERNS_MAX {
            let why =
                format!("has {} entries, {KEY_PATTERNS_MAX} at most; name keys that begin alike with a `*`", all.len());
            return Err(Error::range(field, why));
        }
        for pattern in all.keys() {
            let begin = pattern.strip_suffix(ANY_REST).unwrap_or(pattern);
            if begin.contains(ANY_REST) {
                let why = format!("{pattern:?} has a `*` that is not at its end");
                return Err(Error::wrong(Fault::Format, field, why));
            }
            if let Err(error) = Key::new(pattern.as_str()) {
                let why = error.field().map_or("", |(_, _, why)| why);
                return Err(Error::wrong(
                    Fault::Format,
                    field,
                    format!("{:?}: {why}", beginning(pattern, SHOWN_BYTES)),
                ));
            }
        }
        Ok(KeyPatterns::from(all))
    }
}

impl<T> KeyPatterns<T> {
    pub fn is_empty(&self) -> bool {
        self.0.all.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.all.iter().map(|(pattern, value)| (pattern.as_str(), value))
    }

    pub fn get(&self, key: &Key) -> Option<&T> {
        let key = key.as_str();
        let mut begins = self.0.beginnings.iter().filter_map(|(length, values)| values.get(key.get(..*length)?));
        self.0.names.get(key).or_else(|| begins.next())
    }
}
