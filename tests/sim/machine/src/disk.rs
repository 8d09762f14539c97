//! The disk of a simulated machine: the files below a directory, what of them was synced, and what goes wrong.
//!
//! The files are real ones, which the process reads and writes through the C library. Beside them this keeps what a power
//! cut would leave: a file is durable when it was synced, a name when its directory was. Of the rest anything may be
//! there. After a failed sync nothing of what was written before it counts as written any more, as on Linux, where the
//! pages are clean then and a later sync does not write them.
//!
//! The calls that count are those of threads that have entered a machine: they are the same in every run. What other
//! threads do for them, such as those of a library, lies between two of these.

mod left;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use self::left::{Change, torn};
use crate::on_machine;

/// What is free on a disk that is not full.
pub(crate) const FREE_BYTES: u64 = 1 << 40;

/// What a power cut leaves of what was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    Nothing,
    Everything,
    /// So many eighths of the sectors and of the names, wherever they are.
    Sectors(u8),
    /// Of each file what was written first, up to some byte.
    Beginning,
}

/// The directory of a machine, until it is dropped.
#[derive(Debug)]
pub struct Disk {
    root: PathBuf,
}

/// Error numbers, as the C library has them.
pub(crate) type Errno = libc::c_int;

type Object = usize;
pub(crate) type Inode = (u64, u64);
type Names = BTreeMap<String, Object>;

#[derive(Debug)]
enum Node {
    File {
        durable: Vec<u8>,
        pending: Vec<Change>,
    },
    /// Its names as the process sees them, and as they are on the disk.
    Directory {
        now: Names,
        durable: Names,
    },
}

#[derive(Debug)]
enum Power {
    On,
    /// It goes at a call, behind so many more.
    GoesBehind(u32, Keep),
    Off(Vec<(PathBuf, Left)>),
}

/// What is there after a power cut.
#[derive(Debug)]
enum Left {
    Directory,
    File(Vec<u8>),
}

#[derive(Debug)]
struct Full {
    /// By so much may each file grow: that does not depend on the order of writes at several places of a file.
    free: u64,
    /// Bytes of the files that were written since, as they were before.
    before: BTreeMap<Inode, u64>,
    /// Whether who asks is told; otherwise only writes find out.
    is_seen: bool,
}

#[derive(Debug)]
pub(crate) struct State {
    root: String,
    seed: u64,
    cuts: u64,
    nodes: Vec<Node>,
    inodes: BTreeMap<Inode, Object>,
    power: Power,
    full: Option<Full>,
    /// Whether nothing can be written: EIO.
    is_broken: bool,
    /// How many syncs fail from now on, and whether those that are no barrier do too.
    failing: u32,
    only_barriers: bool,
    /// Failed syncs of each file, and how many of them each descriptor was told: each is told once.
    failures: BTreeMap<Inode, u32>,
    told: BTreeMap<(i32, Inode), u32>,
}

static DISKS: Mutex<Vec<State>> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn disks() -> MutexGuard<'static, Vec<State>> {
    DISKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether any call has to be looked at.
pub(crate) fn is_any() -> bool {
    COUNT.load(Relaxed) > 0
}

/// Does something with the disk that has this path.
pub(crate) fn at_path<T>(path: &str, act: impl FnOnce(&mut State, &str) -> T) -> Option<T> {
    let mut disks = disks();
    let state = disks.iter_mut().find(|state| state.inside(path).is_some())?;
    let inside = state.inside(path)?.to_owned();
    Some(act(state, &inside))
}

/// Does something with the disk that has this file.
pub(crate) fn with_inode<T>(inode: Inode, act: impl FnOnce(&mut State) -> T) -> Option<T> {
    disks().iter_mut().find(|state| state.inodes.contains_key(&inode)).map(act)
}

impl Disk {
    /// The disk of a directory that is empty.
    ///
    /// # Errors
    /// It is not there.
    pub fn new(root: &Path, seed: u64) -> io::Result<Disk> {
        let there = std::fs::metadata(root)?;
        let state = State {
            root: root.to_string_lossy().into_owned(),
            seed,
            cuts: 0,
            nodes: vec![directory()],
            inodes: BTreeMap::from([((there.dev(), there.ino()), 0)]),
            power: Power::On,
            full: None,
            is_broken: false,
            failing: 0,
            only_barriers: false,
            failures: BTreeMap::new(),
            told: BTreeMap::new(),
        };
        let mut disks = disks();
        disks.push(state);
        COUNT.store(disks.len(), Relaxed);
        Ok(Disk { root: root.to_owned() })
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> Option<T> {
        at_path(&self.root.to_string_lossy(), |state, _| act(state))
    }

    /// The power goes at a call that changes the disk, behind so many more, which is not done any more.
    pub fn lose_power(&self, behind: u32, keep: Keep) {
        self.with(|state| state.power = Power::GoesBehind(behind, keep));
    }

    /// The power goes now, if it is to go.
    pub fn lose_power_now(&self) {
        self.with(|state| {
            if let Power::GoesBehind(_, keep) = state.power {
                state.cut(keep);
            }
        });
    }

    pub fn is_without_power(&self) -> bool {
        self.with(|state| matches!(state.power, Power::Off(_))).unwrap_or(false)
    }

    /// From here on there are so many bytes free; `None`: as many as anybody wants. `is_seen`: and it is told so.
    pub fn set_free(&self, free: Option<u64>, is_seen: bool) {
        self.with(|state| state.full = free.map(|free| Full { free, before: BTreeMap::new(), is_seen }));
    }

    /// The next syncs fail, so many. `only_barriers`: not those that are no barrier.
    pub fn fail_syncs(&self, count: u32, only_barriers: bool) {
        self.with(|state| (state.failing, state.only_barriers) = (count, only_barriers));
    }

    /// From here on every write fails with EIO, or none does.
    pub fn set_broken(&self, is_broken: bool) {
        self.with(|state| state.is_broken = is_broken);
    }

    /// After the end of the process: so many bits are flipped in what is there, wherever the seed says.
    ///
    /// # Errors
    /// The real disk fails.
    pub fn flip(&self, bits: u32) -> io::Result<()> {
        let left = self.with(|state| {
            state.settle();
            state.cuts += 1;
            let mut left = Vec::new();
            state.leave(0, Path::new(""), Keep::Everything, &mut left);
            let (seed, cuts) = (state.seed, state.cuts);
            for bit in 0..u64::from(bits) {
                flip_one(&mut left, mixed([seed, cuts, bit, 0]));
            }
            left
        });
        self.renew(left.unwrap_or_default())
    }

    /// After a power cut and the end of the process: the files are what was left.
    ///
    /// # Errors
    /// The real disk fails.
    pub fn restore(&self) -> io::Result<()> {
        let power = self.with(|state| std::mem::replace(&mut state.power, Power::On));
        match power {
            Some(Power::Off(left)) => self.renew(left),
            _ => Ok(()),
        }
    }

    /// After the end of the process: nothing is there any more.
    ///
    /// # Errors
    /// The real disk fails.
    pub fn wipe(&self) -> io::Result<()> {
        self.renew(Vec::new())
    }

    fn renew(&self, left: Vec<(PathBuf, Left)>) -> io::Result<()> {
        let Some(before) = self.forget() else { return Ok(()) };
        for entry in std::fs::read_dir(&self.root)? {
            let path = entry?.path();
            if path.is_dir() { std::fs::remove_dir_all(path)? } else { std::fs::remove_file(path)? }
        }
        let renewed = Disk::new(&self.root, before.seed)?;
        renewed.with(|state| {
            (state.cuts, state.full) = (before.cuts, before.full);
            (state.failing, state.only_barriers, state.is_broken) = (before.failing, before.only_barriers, false);
        });
        // Its own disk writes down what is made here, and that is durable.
        let full = renewed.with(|state| state.full.take()).flatten();
        for (path, left) in left {
            let path = self.root.join(path);
            match left {
                Left::Directory => DirBuilder::new().mode(0o700).create(path)?,
                Left::File(bytes) => write(&path, &bytes)?,
            }
        }
        renewed.with(|state| {
            state.full = full;
            state.is_broken = before.is_broken;
            state.settle();
        });
        std::mem::forget(renewed);
        Ok(())
    }

    fn forget(&self) -> Option<State> {
        let (root, mut disks) = (self.root.to_string_lossy(), disks());
        let place = disks.iter().position(|state| state.root == root)?;
        let state = disks.remove(place);
        COUNT.store(disks.len(), Relaxed);
        Some(state)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.forget();
    }
}

/// Flips a bit of a file: of one of the bytes through the last one that is not zero, behind which nothing was written.
fn flip_one(left: &mut [(PathBuf, Left)], place: u64) {
    let used = |bytes: &[u8]| bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let files = left.iter_mut().filter_map(|(_, left)| match left {
        Left::File(bytes) => Some(bytes),
        Left::Directory => None,
    });
    let mut files: Vec<&mut Vec<u8>> = files.filter(|bytes| used(bytes) > 0).collect();
    let count = files.len() as u64;
    let Some(bytes) = place.checked_rem(count).and_then(|file| files.get_mut(file as usize)) else { return };
    let (at, bit) = ((place >> 8) as usize % used(bytes), (place >> 3) % 8);
    bytes[at] ^= 1 << bit;
}

/// Zeros at the end take no time.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let length = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(&bytes[..length])?;
    file.set_len(bytes.len() as u64)
}

fn directory() -> Node {
    Node::Directory { now: Names::new(), durable: Names::new() }
}

/// Bits that depend on these numbers alone, and on no order.
fn mixed(numbers: [u64; 4]) -> u64 {
    numbers.into_iter().fold(0x9e37_79b9_7f4a_7c15, |sum, number| {
        let bits = (sum ^ number).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let bits = (bits ^ (bits >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 32)
    })
}

impl State {
    fn inside<'a>(&self, path: &'a str) -> Option<&'a str> {
        let rest = path.strip_prefix(&*self.root)?;
        if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
    }

    fn is_off(&self) -> bool {
        matches!(self.power, Power::Off(_))
    }

    /// A call that changes something is about to be done.
    fn call(&mut self) {
        if on_machine(|_| ()).is_none() {
            return;
        }
        match self.power {
            Power::GoesBehind(0, keep) => self.cut(keep),
            Power::GoesBehind(more, keep) => self.power = Power::GoesBehind(more - 1, keep),
            Power::On | Power::Off(_) => {}
        }
    }

    // What the process does.

    pub(crate) fn created(&mut self, path: &str, inode: Inode, is_directory: bool) {
        self.call();
        let node = if is_directory { directory() } else { Node::File { durable: Vec::new(), pending: Vec::new() } };
        self.nodes.push(node);
        let object = self.nodes.len() - 1;
        self.inodes.insert(inode, object);
        self.failures.remove(&inode);
        self.name(path, Some(object));
    }

    pub(crate) fn opened(&mut self, descriptor: i32, inode: Inode) {
        let failures = self.failures.get(&inode).copied().unwrap_or(0);
        self.told.retain(|(other, _), _| *other != descriptor);
        self.told.insert((descriptor, inode), failures);
    }

    pub(crate) fn wrote(&mut self, inode: Inode, offset: u64, bytes: &[u8]) {
        self.call();
        self.change(inode, Change::Write { offset: offset as usize, bytes: bytes.to_vec() });
    }

    pub(crate) fn cut_to(&mut self, inode: Inode, length: u64) {
        self.call();
        self.change(inode, Change::Length(length as usize));
    }

    pub(crate) fn renamed(&mut self, from: &str, to: &str) {
        self.call();
        let object = self.name(from, None);
        self.name(to, object);
    }

    pub(crate) fn removed(&mut self, path: &str, bytes: u64) {
        self.call();
        self.name(path, None);
        self.give(bytes);
    }

    /// A sync, as it answers. `is_barrier`: what it covers survives a power cut.
    pub(crate) fn synced(&mut self, descriptor: i32, inode: Inode, is_barrier: bool) -> Result<(), Errno> {
        let Some(object) = self.inodes.get(&inode).copied().filter(|_| !self.is_off()) else { return Ok(()) };
        let is_changed = match &self.nodes[object] {
            Node::File { pending, .. } => !pending.is_empty(),
            Node::Directory { now, durable } => now != durable,
        };
        if is_changed && is_barrier {
            self.call();
        }
        if self.is_off() {
            return Ok(());
        }
        if !is_barrier {
            // It comes from any thread, in any order: nothing that is counted depends on it.
            return if self.failing > 0 && is_changed && !self.only_barriers { Err(libc::EIO) } else { Ok(()) };
        }
        if self.failing > 0 && is_changed {
            self.failing -= 1;
            *self.failures.entry(inode).or_default() += 1;
            self.lose(object);
        } else {
            match &mut self.nodes[object] {
                Node::File { durable, pending } => pending.drain(..).for_each(|change| change.apply(durable)),
                Node::Directory { now, durable } => durable.clone_from(now),
            }
        }
        let failures = self.failures.get(&inode).copied().unwrap_or(0);
        let told = self.told.entry((descriptor, inode)).or_insert(failures.saturating_sub(1));
        let is_news = *told != failures;
        *told = failures;
        if is_news { Err(libc::EIO) } else { Ok(()) }
    }

    /// A failed sync: some of what was written is on the disk, and nobody writes the rest any more.
    fn lose(&mut self, object: Object) {
        self.cuts += 1;
        let (seed, cuts) = (self.seed, self.cuts);
        if let Node::File { durable, pending } = &mut self.nodes[object] {
            let pending = std::mem::take(pending);
            *durable = torn(durable, &pending, Keep::Sectors(4), |place| mixed([seed, cuts, object as u64, place]));
        }
    }

    // Space.

    /// How many of the bytes can be written to a file that has so many.
    pub(crate) fn takes(&mut self, inode: Inode, size: u64, offset: u64, count: u64) -> Result<u64, Errno> {
        if self.is_broken && !self.is_off() && count > 0 {
            return Err(libc::EIO);
        }
        let Some(full) = self.full.as_mut().filter(|_| !matches!(self.power, Power::Off(_))) else { return Ok(count) };
        let before = *full.before.entry(inode).or_insert(size);
        let fits = before.saturating_add(full.free).saturating_sub(offset).min(count);
        if fits == 0 && count > 0 { Err(libc::ENOSPC) } else { Ok(fits) }
    }

    /// Whether a new name can be made.
    pub(crate) fn has_room(&self) -> bool {
        self.is_off() || self.full.as_ref().is_none_or(|full| full.free > 0)
    }

    fn give(&mut self, bytes: u64) {
        if let Some(full) = &mut self.full {
            full.free = full.free.saturating_add(bytes);
        }
    }

    /// What is free, as the disk tells it.
    pub(crate) fn free(&self) -> u64 {
        self.full.as_ref().filter(|full| full.is_seen).map_or(FREE_BYTES, |full| full.free)
    }

    // What is there.

    /// Nothing is changed any more once the power is off.
    fn change(&mut self, inode: Inode, change: Change) {
        if self.is_off() {
            return;
        }
        let object = self.inodes.get(&inode).copied();
        if let Some(Node::File { pending, .. }) = object.map(|object| &mut self.nodes[object]) {
            pending.push(change);
        }
    }

    /// Gives an object a name, or takes a name away. Answers what had it.
    fn name(&mut self, path: &str, object: Option<Object>) -> Option<Object> {
        if self.is_off() {
            return None;
        }
        let (parents, last) = path.rsplit_once('/').unwrap_or(("", path));
        let mut at = 0;
        for name in parents.split('/').filter(|name| !name.is_empty()) {
            let Node::Directory { now, .. } = &self.nodes[at] else { return None };
            at = *now.get(name)?;
        }
        let Node::Directory { now, .. } = &mut self.nodes[at] else { return None };
        match object {
            Some(object) => now.insert(last.to_owned(), object),
            None => now.remove(last),
        }
    }

    /// Everything that is there now is durable.
    fn settle(&mut self) {
        for node in &mut self.nodes {
            match node {
                Node::File { durable, pending } => pending.drain(..).for_each(|change| change.apply(durable)),
                Node::Directory { now, durable } => durable.clone_from(now),
            }
        }
    }

    fn cut(&mut self, keep: Keep) {
        self.cuts += 1;
        let mut left = Vec::new();
        self.leave(0, Path::new(""), keep, &mut left);
        self.power = Power::Off(left);
    }

    fn leave(&self, object: Object, path: &Path, keep: Keep, left: &mut Vec<(PathBuf, Left)>) {
        let chance = |place: u64| mixed([self.seed, self.cuts, object as u64, place]);
        match &self.nodes[object] {
            Node::File { durable, pending } => {
                left.push((path.to_owned(), Left::File(torn(durable, pending, keep, chance))));
            }
            Node::Directory { now, durable } => {
                if object > 0 {
                    left.push((path.to_owned(), Left::Directory));
                }
                let names: BTreeSet<&String> = now.keys().chain(durable.keys()).collect();
                for (place, name) in names.into_iter().enumerate() {
                    let is_new = match keep {
                        Keep::Nothing => false,
                        Keep::Everything => true,
                        Keep::Sectors(eighths) => chance(place as u64) % 8 < u64::from(eighths),
                        Keep::Beginning => chance(place as u64).is_multiple_of(2),
                    };
                    if let Some(object) = if is_new { now.get(name) } else { durable.get(name) } {
                        self.leave(*object, &path.join(name), keep, left);
                    }
                }
            }
        }
    }
}
