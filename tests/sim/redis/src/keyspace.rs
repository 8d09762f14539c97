//! All keys of a server, their expiry, and the memory that they take.

use std::collections::BTreeSet;
use std::sync::Arc;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use crate::resp::Bytes;
use crate::time::Time;
use crate::value::{Value, scan};

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// Shared with snapshots until it changes.
    pub(crate) value: Arc<Value>,
    /// Milliseconds since 1970.
    pub(crate) expires_ms: Option<u64>,
    size: usize,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Keyspace {
    entries: IndexMap<Bytes, Entry, FxBuildHasher>,
    expiries: BTreeSet<(u64, Bytes)>,
    size: usize,
}

const KEY_COST: usize = 80;

impl Keyspace {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn expiring(&self) -> usize {
        self.expiries.len()
    }

    /// Bytes in memory, estimated.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&Entry> {
        self.entries.get(key)
    }

    pub(crate) fn value_mut(&mut self, key: &[u8]) -> Option<&mut Value> {
        self.entries.get_mut(key).map(|entry| Arc::make_mut(&mut entry.value))
    }

    /// Sets a key to a new value, which does not expire.
    pub(crate) fn set(&mut self, key: &[u8], value: Value) {
        self.set_shared(key, Arc::new(value), None);
    }

    /// Makes a key that may be empty until the command ends.
    pub(crate) fn make(&mut self, key: &[u8], value: Value) {
        self.remove(key);
        self.size += key.len() + KEY_COST;
        self.entries.insert(key.into(), Entry { value: Arc::new(value), expires_ms: None, size: 0 });
    }

    pub(crate) fn set_shared(&mut self, key: &[u8], value: Arc<Value>, expires_ms: Option<u64>) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.value = value;
        } else {
            self.size += key.len() + KEY_COST;
            self.entries.insert(key.into(), Entry { value, expires_ms: None, size: 0 });
        }
        self.account(key);
        self.expire(key, expires_ms);
    }

    /// Changes when a key expires; nothing for never.
    pub(crate) fn expire(&mut self, key: &[u8], expires_ms: Option<u64>) {
        let Some((_, name, entry)) = self.entries.get_full_mut(key) else { return };
        if entry.expires_ms == expires_ms {
            return;
        }
        if let Some(before) = entry.expires_ms {
            self.expiries.remove(&(before, name.clone()));
        }
        if let Some(after) = expires_ms {
            self.expiries.insert((after, name.clone()));
        }
        entry.expires_ms = expires_ms;
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<Entry> {
        let (name, entry) = self.entries.swap_remove_entry(key)?;
        self.size -= entry.size + name.len() + KEY_COST;
        if let Some(at) = entry.expires_ms {
            self.expiries.remove(&(at, name));
        }
        Some(entry)
    }

    /// Looks at the size of a value that may have changed, and removes the key if nothing is left in it.
    pub(crate) fn account(&mut self, key: &[u8]) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let size = entry.value.size();
        self.size = self.size - entry.size + size;
        entry.size = size;
        if entry.value.is_empty() {
            self.remove(key);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Bytes, &Entry)> {
        self.entries.iter()
    }

    pub(crate) fn scan(&self, cursor: u64, mark: u32, most: usize) -> (Vec<(&Bytes, &Entry)>, u64) {
        let (places, next) = scan(cursor, mark, self.len(), most);
        (places.rev().filter_map(|at| self.entries.get_index(at)).collect(), next)
    }

    /// When the first key expires.
    pub(crate) fn next_expiry(&self) -> Option<Time> {
        self.expiries.first().map(|(ms, _)| Time::from_ms(*ms))
    }

    /// A key that has expired, if there is one.
    pub(crate) fn expired(&self, now: Time) -> Option<Bytes> {
        self.expiries.first().filter(|(ms, _)| *ms < now.as_ms()).map(|(_, key)| key.clone())
    }
}
