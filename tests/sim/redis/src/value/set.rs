//! Sets of texts.

use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

use super::{HASH_COMPACT, int, scan};
use crate::resp::Bytes;

#[derive(Debug, Clone, Default)]
pub(crate) struct Set {
    members: IndexSet<Bytes, FxBuildHasher>,
    is_large: bool,
    size: usize,
}

const MEMBER_COST: usize = 40;

impl Set {
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn size(&self) -> usize {
        self.size + 64
    }

    pub(crate) fn has(&self, member: &[u8]) -> bool {
        self.members.contains(member)
    }

    pub(crate) fn add(&mut self, member: &[u8]) -> bool {
        if self.has(member) {
            return false;
        }
        self.size += member.len() + MEMBER_COST;
        self.members.insert(member.into());
        self.is_large |= int(member).is_none() || self.len() > HASH_COMPACT;
        true
    }

    pub(crate) fn remove(&mut self, member: &[u8]) -> bool {
        let is_removed = self.members.swap_remove(member);
        if is_removed {
            self.size -= member.len() + MEMBER_COST;
        }
        is_removed
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Bytes> {
        self.members.iter()
    }

    pub(crate) fn scan(&self, cursor: u64, mark: u32, most: usize) -> (Vec<&Bytes>, u64) {
        if !self.is_large {
            return (self.iter().collect(), 0);
        }
        let (places, next) = scan(cursor, mark, self.len(), most);
        (places.rev().filter_map(|at| self.members.get_index(at)).collect(), next)
    }
}
