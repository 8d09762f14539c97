//! Reading or removing whole ranges of the tree: counting at open, deletion in pages.

use std::collections::HashMap;

use sled::{Batch, Tree};

use super::keys::{self, Kind, Place, place_of, score_of};
use super::open::broken;
use super::topics::{Topic, Topics, locked};
use crate::model::error::Result;

/// Entries that one step of a deletion removes: it runs beside live traffic.
const PAGE: usize = 1_000;

/// Counts what every pair holds, and removes what a deletion that was cut short left behind. Run before anything else
/// uses the tree.
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
        // ChunkedValue of large values have nothing to count, and may be most of the disk.
        let ranges = [(place.prefix(), place.of(Kind::Part)), (place.behind(Kind::Part), place.end())];
        if place.is_shared() {
            state.seen = count_kind(tree, place, Kind::SeenById)?;
            state.cancelled = count_kind(tree, place, Kind::CancelledById)?;
        } else {
            let counts = &mut state.pairs.entry(place.group).or_default().counts;
            for entry in ranges.into_iter().flat_map(|(from, to)| tree.range(from..to).keys()) {
                let key = entry.map_err(broken)?;
                match place_of(&key) {
                    Some((_, kind)) if kind == Kind::ByScore as u8 => counts.scheduled(score_of(&key)?),
                    Some((_, kind)) if kind == Kind::Hash as u8 => counts.hash += 1,
                    Some((_, kind)) if kind == Kind::DeadHash as u8 => counts.dead += 1,
                    _ => {}
                }
            }
        }
        from = place.end();
    }
    Ok(())
}

/// The place of the first key from `from` on.
fn next_place(tree: &Tree, from: &[u8]) -> Result<Option<Place>> {
    let first = tree.range(from..).keys().next().transpose().map_err(broken)?;
    Ok(first.and_then(|key| place_of(&key)).map(|(place, _)| place))
}

fn count_kind(tree: &Tree, place: Place, kind: Kind) -> Result<u64> {
    let mut count = 0;
    for key in tree.scan_prefix(place.of(kind)).keys() {
        key.map_err(broken)?;
        count += 1;
    }
    Ok(count)
}

/// A batch that removes a page of the entries whose keys begin so; none if there are no such entries.
pub(super) fn page_to_remove(tree: &Tree, prefix: &[u8]) -> Result<Option<Batch>> {
    let mut page = None;
    for key in tree.scan_prefix(prefix).keys().take(PAGE) {
        page.get_or_insert_with(Batch::default).remove(key.map_err(broken)?);
    }
    Ok(page)
}
