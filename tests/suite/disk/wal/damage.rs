//! Files that are damaged, cut, deleted or replaced: the log always opens, the rest is replayed, and what is missing is
//! counted to the last record.

use std::path::{Path, PathBuf};

use dwell::model::error::Result;
use dwell::wal::{Entry, Position, Wal, WalOptions};

use super::support::{Story, all_of, copied, files_below, ids_of, metrics, push, segments_in};
use crate::support::{failed, scratch};

/// A closed log of several segments whose first records are trimmed, and what waits in it.
struct Whole {
    options: WalOptions,
    waiting: Vec<Entry>,
    _dir: tempfile::TempDir,
}

async fn whole() -> Result<Whole> {
    let story = Story::with(|options| options.segment_bytes = 600_000)?;
    for n in 0..120 {
        // Some records have several parts.
        story.wal.append((0..10).map(|m| push(&format!("{n}-{m}"), m * 700)).collect::<Result<_>>()?).await?;
    }
    let first = story.wal.page(None, 30, usize::MAX).await?;
    story.wal.trim(first[29].position).await?;
    let waiting = all_of(&story.wal).await?;
    assert!(waiting.len() == 1_170 && story.segments()? > 4, "{} segments", story.segments()?);
    let Story { wal, options, dir, .. } = story;
    wal.close().await?;
    Ok(Whole { options, waiting, _dir: dir })
}

/// What came of a damage.
struct Seen {
    read: usize,
    lost: u64,
    damaged: u64,
    aside: usize,
}

impl Whole {
    /// Damages a copy of the directory and opens it: everything read is as it was, and what is missing is counted.
    async fn after(&self, what: &str, damage: impl FnOnce(&Path) -> Result<()>) -> Result<Seen> {
        let dir = scratch()?;
        let options = WalOptions { dir: dir.path().join("wal"), ..self.options.clone() };
        copied(&self.options.dir, &options.dir)?;
        damage(&options.dir)?;
        let wal = Wal::open(options.clone(), metrics()?)?;
        let read = all_of(&wal).await?;
        let depth = wal.depth();
        let at = |entry: &Entry| self.waiting.iter().position(|known| known == entry);
        let places: Vec<_> = read.iter().map(at).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{what}: {places:?}");
        assert_eq!(depth.lost as usize, self.waiting.len() - read.len(), "{what}: {depth:?}");
        assert_eq!(depth.damaged > 0, depth.lost > 0, "{what}: {depth:?}");
        assert_eq!(depth.records as usize, read.len(), "{what}: {depth:?}");
        // It goes on as a log, also for the next process.
        wal.append(vec![push("new", 10)?]).await?;
        wal.close().await?;
        drop(wal);
        let wal = Wal::open(options.clone(), metrics()?)?;
        let again = all_of(&wal).await?;
        assert_eq!(ids_of(&again[read.len()..]), ["new"], "{what}");
        assert_eq!(again[..read.len()], read, "{what}");
        wal.trim(again[read.len()].position).await?;
        assert_eq!(wal.depth().records, 0, "{what}");
        let entries = std::fs::read_dir(&options.dir).map_err(failed("the log"))?.flatten();
        let aside = entries.filter(|entry| entry.file_name().to_string_lossy().contains(".damaged-")).count();
        // Of a directory that is gone nothing is left to set aside.
        let expected = usize::from(depth.damaged > 0 && !what.contains("directory deleted"));
        assert_eq!(aside, expected, "{what}");
        Ok(Seen { read: read.len(), lost: depth.lost, damaged: depth.damaged, aside })
    }
}

fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
    let mut bytes = std::fs::read(path).map_err(failed("a file"))?;
    change(&mut bytes);
    std::fs::write(path, bytes).map_err(failed("a file"))
}

/// A file of the segment with this index.
fn file_of(dir: &Path, segment: usize, name: &str) -> Result<PathBuf> {
    Ok(segments_in(dir)?[segment].join(name))
}

#[tokio::test]
async fn bit_flip_loses_only_its_record() -> Result<()> {
    let whole = whole().await?;
    let mut lost = 0;
    for segment in 0..2 {
        for part in 0..9 {
            let seen = whole
                .after(&format!("a bit of segment {segment}, part {part}"), |dir| {
                    edit(&file_of(dir, segment * 4, "db")?, |bytes| {
                        let at = bytes.len() * part / 9 + 123;
                        bytes[at] ^= 1 << (part % 8);
                    })
                })
                .await?;
            // One segment at most.
            assert!(seen.read > 700, "segment {segment}, part {part}: {}", seen.read);
            lost += seen.lost;
        }
    }
    assert!(lost > 0, "no bit hit anything");
    Ok(())
}

#[tokio::test]
async fn truncation_loses_only_the_cut_records() -> Result<()> {
    let whole = whole().await?;
    for segment in [1, 4] {
        for part in 0..4 {
            let seen = whole
                .after(&format!("segment {segment} cut at {part}/4"), |dir| {
                    edit(&file_of(dir, segment, "db")?, |bytes| bytes.truncate(bytes.len() * part / 4))
                })
                .await?;
            assert!(seen.read > 700, "segment {segment}, part {part}: {}", seen.read);
            assert!(part > 0 || (seen.lost > 0 && seen.aside == 1), "segment {segment}, part {part}: {}", seen.lost);
        }
    }
    Ok(())
}

#[tokio::test]
async fn log_opens_with_any_file_deleted_or_replaced() -> Result<()> {
    let whole = whole().await?;
    for path in files_below(&whole.options.dir)? {
        let name = path.strip_prefix(&whole.options.dir).unwrap_or(&path).to_owned();
        // A lost `done` offers again what was trimmed in the first segment: allowed, and told elsewhere.
        let segments = segments_in(&whole.options.dir)?;
        let is_chosen = path.parent().is_some_and(|dir| dir == segments[1] || dir == segments[segments.len() - 1]);
        if name.ends_with("done") || !(is_chosen || path.parent() == Some(&whole.options.dir)) {
            continue;
        }
        whole
            .after(&format!("{name:?} deleted"), |dir| std::fs::remove_file(dir.join(&name)).map_err(failed("a file")))
            .await?;
        whole
            .after(&format!("{name:?} replaced"), |dir| edit(&dir.join(&name), |bytes| *bytes = vec![b'%'; 5_000]))
            .await?;
    }
    Ok(())
}

#[tokio::test]
async fn log_opens_with_a_missing_or_foreign_segment() -> Result<()> {
    let whole = whole().await?;
    for segment in [0, 2] {
        let deleted = |dir: &Path| std::fs::remove_dir_all(&segments_in(dir)?[segment]).map_err(failed("a segment"));
        let seen = whole.after(&format!("segment {segment}: directory deleted"), deleted).await?;
        assert!(seen.lost > 30 && seen.damaged == 1, "segment {segment}: {} lost", seen.lost);
        let replaced = |dir: &Path| {
            let path = segments_in(dir)?.swap_remove(segment);
            std::fs::remove_dir_all(&path).map_err(failed("a segment"))?;
            std::fs::write(path, "no directory").map_err(failed("a file"))
        };
        let seen = whole.after(&format!("segment {segment}: a file"), replaced).await?;
        assert!(seen.lost > 30 && seen.aside == 1, "segment {segment}: {} lost", seen.lost);
    }
    let garbage = |dir: &Path| {
        for name in ["0", "abc", "00000000000000000001.damaged-1", "99999999999999999999"] {
            std::fs::create_dir(dir.join(name)).map_err(failed("a directory"))?;
        }
        std::fs::write(dir.join("noise"), "noise").map_err(failed("a file"))
    };
    let dir = scratch()?;
    std::fs::create_dir(dir.path().join("wal")).map_err(failed("a directory"))?;
    garbage(&dir.path().join("wal"))?;
    let wal = Wal::open(WalOptions { dir: dir.path().join("wal"), ..whole.options.clone() }, metrics()?)?;
    wal.append(vec![push("a", 10)?]).await?;
    assert_eq!(ids_of(&all_of(&wal).await?), ["a"]);
    Ok(())
}

#[tokio::test]
async fn lost_progress_marker_repeats_but_loses_nothing() -> Result<()> {
    let whole = whole().await?;
    let dir = scratch()?;
    let options = WalOptions { dir: dir.path().join("wal"), ..whole.options.clone() };
    copied(&whole.options.dir, &options.dir)?;
    std::fs::remove_file(options.dir.join("done")).map_err(failed("a file"))?;
    let wal = Wal::open(options, metrics()?)?;
    let again = all_of(&wal).await?;
    assert_eq!(again.len(), 1_200);
    assert_eq!(again[30..], whole.waiting);
    assert_eq!((wal.depth().lost, wal.depth().damaged), (0, 0));
    let positions: Vec<Position> = again.iter().map(|entry| entry.position).collect();
    wal.trim(positions[1_199]).await?;
    assert_eq!(wal.depth().records, 0);
    Ok(())
}
