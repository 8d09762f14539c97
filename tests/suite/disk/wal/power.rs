//! Power cuts, simulated: what was not synced is on the disk or not, sector by sector.
//!
//! After every answered call the directory is copied. Between two copies lies one call, so the disk that a power cut
//! during it leaves is a mixture: of what was answered before it, everything; of what the call wrote, whatever the disk
//! got to. What the call writes only after a sync is there only if everything before it is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use dwell::model::error::Result;
use dwell::model::message::{MessageId, TopicName};
use dwell::wal::{Wal, WalOptions};
use fastrand::Rng;

use super::support::{Story, all_of, files_below, ids_of, metrics, push};
use crate::support::{failed, scratch};

const SEEDS: u64 = 3;
const CALLS: usize = 25;
const MIXTURES: usize = 3;
/// Bytes that a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;

/// The files of a directory.
type Image = BTreeMap<PathBuf, Vec<u8>>;

fn image(dir: &Path) -> Result<Image> {
    let read = |path: PathBuf| {
        let bytes = std::fs::read(&path).map_err(failed("a file"))?;
        Ok((path.strip_prefix(dir).unwrap_or(&path).to_owned(), bytes))
    };
    files_below(dir)?.into_iter().map(read).collect()
}

/// Whether a file is written only after everything else of a call was synced.
fn is_written_last(path: &Path) -> bool {
    path.ends_with("last") || path.ends_with("done")
}

/// One of the disks that a cut between two images leaves.
fn mixture(rng: &mut Rng, before: &Image, after: &Image) -> Image {
    // How much of the call got there, in eighths.
    let share = rng.u8(0..=8);
    let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let mut mixed = Image::new();
    for name in names {
        let (old, new) = (before.get(name), after.get(name));
        let got_there = |rng: &mut Rng| rng.u8(0..8) < share;
        let bytes = match (old, new) {
            (Some(old), Some(_)) if is_written_last(name) && share < 8 => Some(old.clone()),
            (Some(old), Some(new)) => {
                // A file has its new length or its old one; of what was never written there are zeros.
                let mut bytes = old.clone();
                bytes.resize(if got_there(rng) { new.len() } else { old.len() }, 0);
                let length = bytes.len();
                for from in (0..length.min(new.len())).step_by(SECTOR_BYTES) {
                    if got_there(rng) {
                        let to = (from + SECTOR_BYTES).min(length).min(new.len());
                        bytes[from..to].copy_from_slice(&new[from..to]);
                    }
                }
                Some(bytes)
            }
            // A name that was made or removed.
            (Some(old), None) => (!got_there(rng)).then(|| old.clone()),
            // sled syncs a snapshot before it gives it its name.
            (None, Some(new)) if name.to_string_lossy().contains("/snap.") => got_there(rng).then(|| new.clone()),
            (None, Some(new)) => got_there(rng).then(|| if got_there(rng) { new.clone() } else { vec![0; new.len()] }),
            (None, None) => None,
        };
        mixed.extend(bytes.map(|bytes| (name.clone(), bytes)));
    }
    mixed
}

/// Opens a disk and holds it to what was answered before the cut: `answered` is there, and nothing but `perhaps` besides.
async fn check(options: &WalOptions, disk: &Image, answered: &[String], perhaps: &[String], what: &str) -> Result<()> {
    let dir = scratch()?;
    let options = WalOptions { dir: dir.path().join("wal"), ..options.clone() };
    for (name, bytes) in disk {
        let path = options.dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(&path)).map_err(failed("a directory"))?;
        std::fs::write(path, bytes).map_err(failed("a file"))?;
    }
    let wal = Wal::open(options, metrics()?)?;
    let ids = ids_of(&all_of(&wal).await?);
    let present: BTreeSet<_> = ids.iter().collect();
    let lost: Vec<_> = answered.iter().filter(|id| !present.contains(id)).collect();
    let known: BTreeSet<_> = answered.iter().chain(perhaps).collect();
    let phantoms: Vec<_> = present.difference(&known).collect();
    assert!(lost.is_empty() && phantoms.is_empty(), "{what}: lost {lost:?}, phantoms {phantoms:?}, {:?}", wal.depth());
    // It goes on.
    wal.append(vec![push("new", 10)?]).await?;
    assert_eq!(ids_of(&all_of(&wal).await?).last().map(String::as_str), Some("new"), "{what}");
    Ok(())
}

#[tokio::test]
async fn no_acknowledged_record_is_lost_in_a_power_cut() -> Result<()> {
    for seed in 0..SEEDS {
        let mut rng = Rng::with_seed(seed);
        let story = Story::with(|options| options.segment_bytes = 700_000)?;
        let dir = story.options.dir.clone();
        let (mut waiting, mut trimmed) = (Vec::<String>::new(), Vec::new());
        let mut before = image(&dir)?;
        for call in 0..CALLS {
            let mut answered = waiting.clone();
            let mut perhaps: Vec<String> = trimmed.clone();
            if call % 6 == 5 {
                let page = story.wal.page(None, rng.usize(1..80), usize::MAX).await?;
                let through = page.last().map(|entry| entry.position);
                if let Some(through) = through {
                    story.wal.trim(through).await?;
                }
                answered.drain(..page.len());
                trimmed.extend(waiting.drain(..page.len()));
                perhaps.extend(ids_of(&page));
            } else {
                let new: Vec<String> = (0..rng.usize(1..30)).map(|n| format!("{call}-{n}")).collect();
                let records = new.iter().map(|id| push(id, rng.usize(0..9_000))).collect::<Result<_>>()?;
                story.wal.append(records).await?;
                perhaps.extend(new.iter().cloned());
                waiting.extend(new);
            }
            let after = image(&dir)?;
            for number in 0..MIXTURES {
                let disk = mixture(&mut rng, &before, &after);
                let what = format!("seed {seed}, call {call}, mixture {number}");
                check(&story.options, &disk, &answered, &perhaps, &what).await?;
            }
            before = after;
        }
    }
    Ok(())
}

/// The mark of the last record is not synced: a power cut leaves an older one, even the first.
#[tokio::test]
async fn stale_marker_of_the_last_record_loses_nothing() -> Result<()> {
    for trimmed in [0, 7] {
        let mut story = Story::new()?;
        story.append(&["a", "b", "c", "d", "e", "f", "g"]).await?;
        let last = story.options.dir.join("00000000000000000001").join("last");
        let old = std::fs::read(&last).map_err(failed("a mark"))?;
        let page = story.wal.page(None, 7, usize::MAX).await?;
        if trimmed > 0 {
            story.wal.trim(page[trimmed - 1].position).await?;
        }
        let ids: Vec<String> = (0..40).map(|n| n.to_string()).collect();
        for id in &ids {
            story.wal.append(vec![push(id, 100_000)?]).await?;
        }
        story.wal.cancel(&TopicName::new("orders")?, &MessageId::new("39")?).await?;
        let restore = |_: &Path| std::fs::write(&last, old).map_err(failed("a mark"));
        story = story.reopened_after(restore).await?;
        story.append(&["h"]).await?;
        let kept = page[trimmed..].iter().flat_map(|entry| ids_of(std::slice::from_ref(entry)));
        let expected: Vec<String> = kept.chain(ids[..39].iter().cloned()).chain(["h".to_owned()]).collect();
        assert_eq!(story.ids().await?, expected);
        assert_eq!((story.wal.depth().lost, story.wal.depth().damaged), (0, 0));
    }
    Ok(())
}
