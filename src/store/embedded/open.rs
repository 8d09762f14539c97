//! Opening the directory, what sled's errors mean, counting at open, and deleting whole ranges in pages.

use std::collections::HashMap;
use std::path::Path;

use sled::{Batch, Tree};

use super::commit::{Checked, Tail, broken};
use super::keys::{self, Kind as KeyKind, Place, place_of, score_of};
use super::topics::{Topic, Topics, locked};
use crate::model::error::{Error, Kind, Result};
use crate::model::spelling::counted;
use crate::platform::disk::{self, Disk, Refusal, sync_directory};

/// Bytes that sled may use for its cache. Its default of 1 GiB is no sidecar's.
const CACHE_BYTES: u64 = 64 * 1024 * 1024;

const VERSION: &[u8] = b"1";

/// Opens a store with `open`, and uses nothing of it after a panic. Errors: `Corrupt` for a panic.
pub(super) fn guarded<T>(dir: &Path, open: impl FnOnce() -> Result<T>) -> Result<T> {
    disk::guarded(open).unwrap_or_else(|()| Err(unreadable(dir, "it is damaged")))
}

/// Opens sled in a directory and makes sure that the directory itself survives a power cut. Errors: `Conflict` when
/// another process has it, `Unavailable` when the disk does not let it, `Corrupt` when it is unreadable.
pub(super) fn open(dir: &Path) -> Result<(Disk, Tail)> {
    let place = dir.display();
    let unavailable = |error: std::io::Error| Error::unavailable(format!("the store in {place}: {error}"));
    let disk = Disk::open(dir, CACHE_BYTES).map_err(|refusal| match refusal {
        Refusal::Locked => {
            let detail = format!("another dwell uses the store in {place}: stop it, or use another --data-dir");
            Error::new(Kind::Conflict, detail)
        }
        Refusal::Io(error) => unavailable(error),
        Refusal::Damaged(why) => unreadable(dir, &why),
    })?;
    let db = disk.tree();
    let tail = match Tail::check(db, dir).map_err(unavailable)? {
        Checked::Whole(tail) => tail,
        Checked::Lost(commits) => {
            let why =
                format!("it lacks the last {}; deleting {place}/commits accepts that", counted(commits, "commit"));
            return Err(unreadable(dir, &why));
        }
    };
    match db.get(keys::version()).map_err(broken)? {
        Some(version) if version == VERSION => {}
        Some(version) => {
            let found = String::from_utf8_lossy(&version).into_owned();
            return Err(unreadable(dir, &format!("its layout is {found:?}, this dwell reads \"1\"")));
        }
        None if db.iter().next().is_none() => {
            db.insert(keys::version(), VERSION).map_err(broken)?;
        }
        None => return Err(unreadable(dir, "it is not a store of dwell, or its beginning is lost")),
    }
    db.flush().map_err(broken)?;
    sync_directory(dir).map_err(unavailable)?;
    Ok((disk, tail))
}

fn unreadable(dir: &Path, why: &str) -> Error {
    let place = dir.display();
    Error::corrupt(format!(
        "the store in {place} cannot be read ({why}): restore it from a copy, or move the directory away to begin with \
         an empty one"
    ))
}

/// Entries that one step of a deletion removes: it runs beside live traffic.
const PAGE: usize = 1_000;

/// Counts what every partition holds, and finishes interrupted deletions. Run before anything else uses the tree.
pub(super) fn count(tree: &Tree, topics: &Topics) -> Result<()> {
    let live: HashMap<u32, &Topic> = topics.all().map(|topic| (topic.number(), topic)).collect();
    let owner = |place: Place| live.get(&place.topic).filter(|topic| topic.has_group(place.group) || place.is_shared());
    let mut from = keys::topic_data(keys::FIRST_TOPIC);
    while let Some(place) = next_place(tree, &from)? {
        let Some(topic) = owner(place) else {
            while let Some(page) = page_to_remove(tree, &place.prefix())? {
                tree.apply_batch(page).map_err(broken)?;
            }
            continue;
        };
        let state = topic.partition(place.partition);
        let mut state = locked(&state);
        // Parts of large values have nothing to count, and may be most of the disk.
        let ranges = [(place.prefix(), place.of(KeyKind::Part)), (place.behind(KeyKind::Part), place.end())];
        if place.is_shared() {
            state.seen = count_kind(tree, place, KeyKind::SeenById)?;
            state.cancelled = count_kind(tree, place, KeyKind::CancelledById)?;
        } else {
            let counts = &mut state.groups.entry(place.group).or_default().counts;
            for entry in ranges.into_iter().flat_map(|(from, to)| tree.range(from..to).keys()) {
                let key = entry.map_err(broken)?;
                match place_of(&key) {
                    Some((_, kind)) if kind == KeyKind::ByScore as u8 => counts.scheduled(score_of(&key)?),
                    Some((_, kind)) if kind == KeyKind::Hash as u8 => counts.hash += 1,
                    Some((_, kind)) if kind == KeyKind::DeadHash as u8 => counts.dead += 1,
                    _ => {}
                }
            }
        }
        from = place.end();
    }
    Ok(())
}

fn next_place(tree: &Tree, from: &[u8]) -> Result<Option<Place>> {
    let first = tree.range(from..).keys().next().transpose().map_err(broken)?;
    Ok(first.and_then(|key| place_of(&key)).map(|(place, _)| place))
}

fn count_kind(tree: &Tree, place: Place, kind: KeyKind) -> Result<u64> {
    let mut count = 0;
    for key in tree.scan_prefix(place.of(kind)).keys() {
        key.map_err(broken)?;
        count += 1;
    }
    Ok(count)
}

pub(super) fn page_to_remove(tree: &Tree, prefix: &[u8]) -> Result<Option<Batch>> {
    let mut page = None;
    for key in tree.scan_prefix(prefix).keys().take(PAGE) {
        page.get_or_insert_with(Batch::default).remove(key.map_err(broken)?);
    }
    Ok(page)
}
