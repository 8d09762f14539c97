//! Hashes: fields with values, in the order of their making while the hash is small.

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use super::{ENTRY_COMPACT, HASH_COMPACT, scan};
use crate::resp::Bytes;

#[derive(Debug, Clone, Default)]
pub(crate) struct Hash {
    fields: IndexMap<Bytes, Bytes, FxBuildHasher>,
    /// It was small all its life: one step of a scan answers all of it.
    is_large: bool,
    size: usize,
}

const FIELD_COST: usize = 48;

impl Hash {
    pub(crate) fn len(&self) -> usize {
        self.fields.len()
    }

    pub(crate) fn size(&self) -> usize {
        self.size + 64
    }

    pub(crate) fn get(&self, field: &[u8]) -> Option<&Bytes> {
        self.fields.get(field)
    }

    pub(crate) fn has(&self, field: &[u8]) -> bool {
        self.fields.contains_key(field)
    }

    /// Whether the field is new.
    pub(crate) fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        self.is_large |= field.len() > ENTRY_COMPACT || value.len() > ENTRY_COMPACT;
        if let Some(there) = self.fields.get_mut(field) {
            self.size = self.size - there.len() + value.len();
            *there = value.into();
            return false;
        }
        self.size += field.len() + value.len() + FIELD_COST;
        self.fields.insert(field.into(), value.into());
        self.is_large |= self.fields.len() > HASH_COMPACT;
        true
    }

    pub(crate) fn remove(&mut self, field: &[u8]) -> bool {
        let removed =
            if self.is_large { self.fields.swap_remove_entry(field) } else { self.fields.shift_remove_entry(field) };
        if let Some((field, value)) = &removed {
            self.size -= field.len() + value.len() + FIELD_COST;
        }
        removed.is_some()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.fields.iter()
    }

    pub(crate) fn scan(&self, cursor: u64, mark: u32, most: usize) -> (Vec<(&Bytes, &Bytes)>, u64) {
        if !self.is_large {
            return (self.iter().collect(), 0);
        }
        let (places, next) = scan(cursor, mark, self.len(), most);
        (places.rev().filter_map(|at| self.fields.get_index(at)).collect(), next)
    }
}
