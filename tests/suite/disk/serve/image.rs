//! A disk as the file system promises it: what was synced is there; of the rest, each sector and each name may be.
//!
//! A file is durable when it was synced, its name when its directory was. After a failed sync nothing of what was
//! written before it counts as written any more: the kernel marks the pages clean, so a later sync does not write them.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use dwell::model::error::Result;
use fastrand::Rng;

use super::recorded::unrecorded;
use super::trace::Event;
use crate::support::failed;

/// Bytes that a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;

type Object = usize;
type Names = BTreeMap<String, Object>;

/// A file or a directory.
enum Node {
    File {
        durable: Vec<u8>,
        pending: Vec<Change>,
    },
    /// Its names as the process sees them, and as they are on the disk.
    Dir {
        now: Names,
        durable: Names,
    },
}

/// What was done to a file and not synced.
#[derive(Clone)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Length(usize),
}

/// All objects that ever were; the first one is the root.
pub(super) struct Disk {
    nodes: Vec<Node>,
    inodes: HashMap<u64, Object>,
}

impl Disk {
    pub(super) fn new(root: u64) -> Disk {
        Disk { nodes: vec![directory()], inodes: HashMap::from([(root, 0)]) }
    }

    /// Does what the process did. After a failed sync a share of what was pending, in eighths, is on the disk.
    pub(super) fn apply(&mut self, event: &Event, rng: &mut Rng, share: u8) -> Result<()> {
        match event {
            Event::Created { inode, path, is_dir } => {
                let node = if *is_dir { directory() } else { Node::File { durable: Vec::new(), pending: Vec::new() } };
                self.nodes.push(node);
                let object = self.nodes.len() - 1;
                self.inodes.insert(*inode, object);
                self.name(path, Some(object))?;
            }
            Event::Wrote { inode, offset, bytes } => {
                self.change(*inode, Change::Write { offset: *offset, bytes: bytes.clone() });
            }
            Event::Cut { inode, length } => self.change(*inode, Change::Length(*length)),
            Event::Synced { inode } => match self.inodes.get(inode).map(|object| &mut self.nodes[*object]) {
                Some(Node::File { durable, pending }) => {
                    pending.drain(..).for_each(|change| change.apply(durable, |_| true));
                }
                Some(Node::Dir { now, durable }) => *durable = now.clone(),
                None => {}
            },
            Event::SyncFailed { inode } => {
                if let Some(Node::File { durable, pending }) =
                    self.inodes.get(inode).map(|object| &mut self.nodes[*object])
                {
                    pending.drain(..).for_each(|change| change.apply(durable, |_| rng.u8(0..8) < share));
                }
            }
            Event::Renamed { from, to } => {
                let object = self.name(from, None)?;
                self.name(to, object)?;
            }
            Event::Removed { path } => drop(self.name(path, None)?),
        }
        Ok(())
    }

    /// Writes what a power cut leaves into a directory: of what was not synced a share in eighths.
    pub(super) fn cut(&self, to: &Path, rng: &mut Rng, share: u8) -> Result<()> {
        self.write(0, to, rng, share)
    }

    fn write(&self, object: Object, to: &Path, rng: &mut Rng, share: u8) -> Result<()> {
        match &self.nodes[object] {
            Node::File { durable, pending } => {
                let mut bytes = durable.clone();
                pending.iter().for_each(|change| change.clone().apply(&mut bytes, |_| rng.u8(0..8) < share));
                std::fs::write(to, bytes).map_err(failed("a file"))
            }
            Node::Dir { now, durable } => {
                std::fs::create_dir_all(to).map_err(failed("a directory"))?;
                let names: std::collections::BTreeSet<&String> = now.keys().chain(durable.keys()).collect();
                for name in names {
                    let (old, new) = (durable.get(name), now.get(name));
                    let is_new = old == new || rng.u8(0..8) < share;
                    if let Some(object) = if is_new { new } else { old } {
                        self.write(*object, &to.join(name), rng, share)?;
                    }
                }
                Ok(())
            }
        }
    }

    /// Files that existed before the recording are not known, and not changed.
    fn change(&mut self, inode: u64, change: Change) {
        if let Some(Node::File { pending, .. }) = self.inodes.get(&inode).map(|object| &mut self.nodes[*object]) {
            pending.push(change);
        }
    }

    /// Gives an object a name, or takes a name away. Answers what had it.
    fn name(&mut self, path: &Path, object: Option<Object>) -> Result<Option<Object>> {
        let names = path.iter().map(|name| name.to_string_lossy().into_owned()).collect::<Vec<_>>();
        let Some((last, dirs)) = names.split_last() else { return Err(unrecorded("a change of the root")) };
        let mut at = 0;
        for name in dirs {
            at = match &self.nodes[at] {
                Node::Dir { now, .. } => *now.get(name).ok_or_else(|| unrecorded(path.display()))?,
                Node::File { .. } => return Err(unrecorded(path.display())),
            };
        }
        let Node::Dir { now, .. } = &mut self.nodes[at] else { return Err(unrecorded(path.display())) };
        Ok(match object {
            Some(object) => now.insert(last.clone(), object),
            None => now.remove(last),
        })
    }
}

fn directory() -> Node {
    Node::Dir { now: Names::new(), durable: Names::new() }
}

impl Change {
    /// Does it to the sectors that get there.
    fn apply(self, file: &mut Vec<u8>, mut gets_there: impl FnMut(usize) -> bool) {
        match self {
            Change::Length(length) => {
                if gets_there(length) {
                    file.resize(length, 0);
                }
            }
            Change::Write { offset, bytes } => {
                let mut from = offset;
                while from < offset + bytes.len() {
                    let to = ((from / SECTOR_BYTES + 1) * SECTOR_BYTES).min(offset + bytes.len());
                    if gets_there(from) {
                        if file.len() < to {
                            file.resize(to, 0);
                        }
                        file[from..to].copy_from_slice(&bytes[from - offset..to - offset]);
                    }
                    from = to;
                }
            }
        }
    }
}
