//! The files of a server: what is in them, and what of it survives a crash.

use std::sync::Arc;

use crate::config::{Config, Fsync};
use crate::core::{Core, Effect, Effects};
use crate::keyspace::Keyspace;
use crate::time::Time;

/// All data at a moment, with its place in the replication.
#[derive(Debug, Clone, Default)]
pub(crate) struct Image {
    pub(crate) data: Keyspace,
    pub(crate) replid: String,
    pub(crate) offset: u64,
}

#[derive(Debug)]
pub(crate) struct Files {
    aof: Option<Fsync>,
    /// What the append-only file begins with; behind it come the changes.
    base: Image,
    tail: Effects,
    /// How many changes of the tail are fsynced.
    synced: usize,
    /// The replication offset up to which all is fsynced.
    pub(crate) synced_offset: u64,
    fsync_at: Option<Time>,
    /// The last snapshot, and when the next one is due.
    pub(crate) rdb: Option<Image>,
    rdb_every: Option<u64>,
    rdb_at: Option<Time>,
    pub(crate) last_save: Time,
    /// Changes since the last snapshot.
    pub(crate) changes: u64,
    bytes: u64,
}

/// Changes behind the beginning of the append-only file before it is written anew.
const TAIL_MAX: usize = 4_096;
const SECOND: u64 = 1_000_000;
/// How long the kernel may keep what was not fsynced.
const KERNEL: u64 = 30 * SECOND;

impl Files {
    pub(crate) fn new(config: &Config) -> Files {
        Files {
            aof: config.aof,
            base: Image::default(),
            tail: Effects::new(),
            synced: 0,
            synced_offset: 0,
            fsync_at: None,
            rdb: None,
            rdb_every: config.rdb.map(|seconds| seconds * SECOND),
            rdb_at: None,
            last_save: Time::default(),
            changes: 0,
            bytes: 0,
        }
    }

    /// Whether it is of interest what changes.
    pub(crate) fn are_kept(&self) -> bool {
        self.aof.is_some() || self.rdb_every.is_some()
    }

    pub(crate) fn has_aof(&self) -> bool {
        self.aof.is_some()
    }

    pub(crate) fn fsync(&self) -> Option<Fsync> {
        self.aof
    }

    pub(crate) fn size(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn append(&mut self, effect: &Arc<Effect>, now: Time, is_failing: bool) {
        if let (Some(every), None) = (self.rdb_every, self.rdb_at) {
            self.rdb_at = Some(now + every);
        }
        let Some(fsync) = self.aof else { return };
        self.bytes += effect.commands.iter().flatten().map(|word| word.len() as u64 + 6).sum::<u64>();
        self.tail.push_back(effect.clone());
        match fsync {
            Fsync::Always if !is_failing => self.mark_synced(),
            Fsync::Always | Fsync::EverySecond => self.fsync_at = self.fsync_at.or(Some(now + SECOND)),
            Fsync::No => self.fsync_at = self.fsync_at.or(Some(now + KERNEL)),
        }
    }

    fn mark_synced(&mut self) {
        self.synced = self.tail.len();
        self.synced_offset = self.tail.back().map_or(self.synced_offset, |effect| effect.offset);
        self.fsync_at = None;
    }

    pub(crate) fn next_event(&self) -> Option<Time> {
        self.fsync_at.into_iter().chain(self.rdb_at).min()
    }

    /// Begins with what was loaded.
    pub(crate) fn start(&mut self, image: Image) {
        if self.aof.is_none() && image.data.len() > 0 {
            self.rdb = Some(image.clone());
        }
        self.rewrite(image);
    }

    /// Begins the append-only file anew, with what is there now.
    pub(crate) fn rewrite(&mut self, image: Image) {
        self.synced_offset = image.offset;
        self.base = image;
        self.tail.clear();
        self.synced = 0;
        self.fsync_at = None;
    }

    /// What a start finds after the process ended: everything that it wrote.
    fn written(&self) -> (Image, Vec<Arc<Effect>>) {
        (self.base.clone(), self.tail.iter().cloned().collect())
    }

    /// What a start finds after power was cut: what was fsynced, and so many of the changes behind.
    fn survived(&self, more: usize) -> (Image, Vec<Arc<Effect>>) {
        (self.base.clone(), self.tail.iter().take(self.synced + more).cloned().collect())
    }

    pub(crate) fn unsynced(&self) -> usize {
        self.tail.len() - self.synced
    }

    /// What a start loads: an image, and the changes behind it.
    pub(crate) fn found(&self, is_power_lost: bool, more: usize) -> (Image, Vec<Arc<Effect>>) {
        match (self.aof, is_power_lost) {
            (Some(_), false) => self.written(),
            (Some(_), true) => self.survived(more),
            (None, _) => (self.rdb.clone().unwrap_or_default(), Vec::new()),
        }
    }
}

impl Core {
    pub(crate) fn image(&self) -> Image {
        Image { data: self.data.clone(), replid: self.log.replid.clone(), offset: self.log.offset }
    }

    /// Writes to the disk what is due.
    pub(crate) fn write_files(&mut self) {
        let (now, failing) = (self.now, self.state.is_failing);
        if self.files.fsync_at.is_some_and(|at| at <= now) {
            if failing {
                self.files.fsync_at = Some(now + SECOND);
            } else {
                self.files.mark_synced();
            }
        }
        if self.files.tail.len() > TAIL_MAX && self.files.unsynced() == 0 && !failing {
            let image = self.image();
            self.files.rewrite(image);
        }
        if self.files.rdb_at.is_some_and(|at| at <= now) {
            if failing {
                self.files.rdb_at = Some(now + SECOND);
            } else {
                self.save();
            }
        }
    }

    /// Makes a snapshot.
    pub(crate) fn save(&mut self) {
        self.files.rdb = Some(self.image());
        self.files.rdb_at = None;
        self.files.last_save = self.now;
        self.files.changes = 0;
    }
}
