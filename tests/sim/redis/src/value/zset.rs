//! Sorted sets: members by score, equal scores by member.
//!
//! The order is a list of chunks, each a sorted vector: ranks and ranges look at the lengths of the chunks before.

use std::cmp::Ordering;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use super::{ENTRY_COMPACT, ZSET_COMPACT, scan};
use crate::resp::Bytes;

type Entry = (f64, Bytes);

#[derive(Debug, Clone, Default)]
pub(crate) struct Zset {
    scores: IndexMap<Bytes, f64, FxBuildHasher>,
    /// None of them is empty.
    chunks: Vec<Vec<Entry>>,
    is_large: bool,
    size: usize,
}

/// Entries of a chunk before it is split.
const CHUNK_MAX: usize = 256;
const MEMBER_COST: usize = 72;

fn order(score: f64, member: &[u8], entry: &Entry) -> Ordering {
    // No score is NaN.
    entry.0.partial_cmp(&score).unwrap_or(Ordering::Equal).then_with(|| (*entry.1).cmp(member))
}

impl Zset {
    pub(crate) fn len(&self) -> usize {
        self.scores.len()
    }

    pub(crate) fn size(&self) -> usize {
        self.size + 64
    }

    /// Whether it has outgrown the compact form, which it does not take again.
    pub(crate) fn is_large(&self) -> bool {
        self.is_large
    }

    pub(crate) fn score(&self, member: &[u8]) -> Option<f64> {
        self.scores.get(member).copied()
    }

    /// Sets a score; answers the one before.
    pub(crate) fn set(&mut self, member: &[u8], score: f64) -> Option<f64> {
        if let Some((_, shared, there)) = self.scores.get_full_mut(member) {
            let (shared, before) = (shared.clone(), *there);
            if before != score {
                *there = score;
                self.unlist(&shared, before);
                self.list(shared, score);
            }
            return Some(before);
        }
        let shared: Bytes = member.into();
        self.size += member.len() + MEMBER_COST;
        self.scores.insert(shared.clone(), score);
        self.is_large |= member.len() > ENTRY_COMPACT || self.len() > ZSET_COMPACT;
        self.list(shared, score);
        None
    }

    pub(crate) fn remove(&mut self, member: &[u8]) -> bool {
        let Some((shared, score)) = self.scores.swap_remove_entry(member) else { return false };
        self.size -= member.len() + MEMBER_COST;
        self.unlist(&shared, score);
        true
    }

    /// Removes what stands in a range of ranks.
    pub(crate) fn remove_range(&mut self, from: usize, to: usize) -> usize {
        let members: Vec<Bytes> = self.range(from, to).map(|(member, _)| member.clone()).collect();
        members.iter().filter(|member| self.remove(member)).count()
    }

    /// How many stand in front of all for which `is_before` is false; it is true for a first part of the order.
    pub(crate) fn count_before(&self, is_before: impl Fn(f64, &[u8]) -> bool) -> usize {
        let is = |entry: &Entry| is_before(entry.0, &entry.1);
        let chunk = self.chunks.partition_point(|chunk| chunk.last().is_some_and(is));
        let whole: usize = self.chunks[..chunk].iter().map(Vec::len).sum();
        whole + self.chunks.get(chunk).map_or(0, |chunk| chunk.partition_point(is))
    }

    pub(crate) fn rank(&self, member: &[u8]) -> Option<usize> {
        let score = self.score(member)?;
        let (chunk, at) = self.place(score, member);
        Some(self.chunks[..chunk].iter().map(Vec::len).sum::<usize>() + at)
    }

    /// What stands at ranks from `from` up to `to`, without `to`.
    pub(crate) fn range(&self, from: usize, to: usize) -> impl DoubleEndedIterator<Item = (&Bytes, f64)> {
        let (mut first, mut skip) = (0, from);
        while self.chunks.get(first).is_some_and(|chunk| chunk.len() <= skip) {
            skip -= self.chunks[first].len();
            first += 1;
        }
        let mut wanted = to.min(self.len()).saturating_sub(from);
        let mut parts = Vec::new();
        for chunk in &self.chunks[first..] {
            let some = wanted.min(chunk.len() - skip);
            if some == 0 {
                break;
            }
            parts.push(&chunk[skip..skip + some]);
            wanted -= some;
            skip = 0;
        }
        parts.into_iter().flatten().map(|(score, member)| (member, *score))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Bytes, f64)> {
        self.chunks.iter().flatten().map(|(score, member)| (member, *score))
    }

    pub(crate) fn scan(&self, cursor: u64, mark: u32, most: usize) -> (Vec<(&Bytes, f64)>, u64) {
        if !self.is_large {
            return (self.iter().collect(), 0);
        }
        let (places, next) = scan(cursor, mark, self.len(), most);
        let entry = |at| self.scores.get_index(at).map(|(member, score): (&Bytes, &f64)| (member, *score));
        (places.rev().filter_map(entry).collect(), next)
    }

    /// The chunk, and the place in it, where an entry is or has to be.
    fn place(&self, score: f64, member: &[u8]) -> (usize, usize) {
        let is_before = |entry: &Entry| order(score, member, entry) == Ordering::Less;
        let chunk = self.chunks.partition_point(|chunk| chunk.last().is_some_and(is_before));
        (chunk, self.chunks.get(chunk).map_or(0, |chunk| chunk.partition_point(is_before)))
    }

    fn list(&mut self, member: Bytes, score: f64) {
        let (mut chunk, mut at) = self.place(score, &member);
        if chunk == self.chunks.len() {
            // Behind all: into the last chunk.
            match self.chunks.last() {
                Some(last) => (chunk, at) = (chunk - 1, last.len()),
                None => self.chunks.push(Vec::new()),
            }
        }
        let into = &mut self.chunks[chunk];
        into.insert(at, (score, member));
        if into.len() > CHUNK_MAX {
            let half = into.split_off(CHUNK_MAX / 2);
            self.chunks.insert(chunk + 1, half);
        }
    }

    fn unlist(&mut self, member: &[u8], score: f64) {
        let (chunk, at) = self.place(score, member);
        self.chunks[chunk].remove(at);
        if self.chunks[chunk].is_empty() {
            self.chunks.remove(chunk);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn order_and_ranks_are_those_of_a_sorted_list() {
        let (mut zset, mut plain, mut random) = (Zset::default(), BTreeMap::new(), fastrand::Rng::with_seed(1));
        for _ in 0..20_000 {
            let member = random.u32(..2_000).to_string();
            if random.u8(..3) == 0 {
                assert_eq!(zset.remove(member.as_bytes()), plain.remove(&member).is_some());
            } else {
                let score = random.u32(..50);
                let before = plain.insert(member.clone(), score).map(f64::from);
                assert_eq!(zset.set(member.as_bytes(), score.into()), before);
            }
        }
        let mut sorted: Vec<_> = plain.iter().map(|(member, score)| (*score, member.as_bytes())).collect();
        sorted.sort_unstable();
        let listed: Vec<_> = zset.iter().map(|(member, score)| (score as u32, &**member)).collect();
        assert_eq!(listed, sorted);
        for (rank, (_, member)) in sorted.iter().enumerate() {
            assert_eq!(zset.rank(member), Some(rank));
        }
        assert_eq!(zset.count_before(|score, _| score < 20.0), sorted.iter().filter(|(score, _)| *score < 20).count());
        let some: Vec<_> = zset.range(300, 310).map(|(member, _)| &**member).collect();
        assert_eq!(some, sorted[300..310].iter().map(|(_, member)| *member).collect::<Vec<_>>());
        assert_eq!(zset.remove_range(10, 900), 890);
        assert_eq!(zset.len(), sorted.len() - 890);
    }
}
