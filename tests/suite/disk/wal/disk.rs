//! Limits, and disks that are full, cannot be written, or fail.
//!
//! Children are this very binary, each running one test alone, which does nothing unless it is told a directory.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use dwell::codec::UnnumberedRecord;
use dwell::model::error::{Error, Kind, Result};
use dwell::model::time::Timestamp;
use dwell::platform::clock::{Clock, Manual};
use dwell::store::ClockNote;
use dwell::wal::{Wal, WalOptions};
use futures_util::future::join_all;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::support::{Story, all_of, files_below, ids_of, metrics, push};
use crate::support::{eventually, failed, kind_of, scratch};

/// Where a child finds its directory.
const DIR: &str = "DWELL_CHILD_DISK";

#[tokio::test]
async fn two_processes_do_not_share_a_directory() -> Result<()> {
    let mut story = Story::new()?;
    let second = Wal::open(story.options.clone(), metrics()?).map(|_| ());
    let error = second.err().ok_or_else(|| Error::bug("two logs in one directory"))?;
    assert_eq!(error.kind(), Kind::Conflict);
    assert!(error.detail().contains("another dwell uses") && error.detail().contains("--data-dir"), "{error}");
    for _ in 0..20 {
        story.append(&["a"]).await?;
        story = story.reopened().await?;
    }
    assert_eq!(story.ids().await?.len(), 20);
    Ok(())
}

#[tokio::test]
async fn log_size_limit_is_exact() -> Result<()> {
    let mut story = Story::new()?;
    let record = push("a", 10_000)?;
    let bytes = UnnumberedRecord::new(&record, Timestamp::ZERO)?.size() as u64;
    story.wal.append(vec![record.clone()]).await?;
    // With all files of its own: sled's snapshot, and the one before.
    for _ in 0..2 {
        story = story.reopened().await?;
    }
    let size = story.wal.depth().bytes;
    for (limit_bytes, fits) in [(size + bytes - 1, false), (size + bytes, true)] {
        story.options.limit_bytes = limit_bytes;
        story = story.reopened().await?;
        assert_eq!(story.wal.depth().bytes, size);
        let outcome = story.wal.append(vec![record.clone()]).await;
        assert_eq!(kind_of(outcome), (!fits).then_some(Kind::Full), "{limit_bytes}");
    }
    assert_eq!(story.wal.depth().records, 2);
    Ok(())
}

/// What only hastens an opening is no reason to lose what was answered.
#[tokio::test]
async fn damaged_snapshots_lose_nothing() -> Result<()> {
    let mut story = Story::new()?;
    for name in ["a", "b", "c"] {
        story.append(&[name]).await?;
        story = story.reopened().await?;
    }
    let mut damaged = 0;
    let story = story
        .reopened_after(|dir| {
            for file in files_below(dir)? {
                if file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("snap")) {
                    std::fs::write(&file, b"this is no snapshot of sled").map_err(failed("a snapshot"))?;
                    damaged += 1;
                }
            }
            Ok(())
        })
        .await?;
    assert_eq!(damaged, 2, "the one of the last opening, and the one before");
    assert_eq!(story.ids().await?, ["a", "b", "c"]);
    Ok(())
}

#[tokio::test]
async fn full_log_accepts_records_after_trimming() -> Result<()> {
    let story = Story::with(|options| (options.limit_bytes, options.segment_bytes) = (4_000_000, 700_000))?;
    let mut taken = 0;
    let refused = loop {
        match story.wal.append(vec![push(&taken.to_string(), 50_000)?]).await {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), Kind::Full);
    // What sled adds to the last records may go past the limit.
    assert!(story.bytes_on_disk()? <= 5_000_000 && taken > 20, "{taken} records, {} bytes", story.bytes_on_disk()?);
    let all = all_of(&story.wal).await?;
    assert_eq!(all.len(), taken);
    story.wal.trim(all[taken / 2].position).await?;
    story.append(&["more"]).await
}

#[tokio::test]
async fn append_keeps_the_free_space_reserve() -> Result<()> {
    let mut story = Story::new()?;
    story.append(&["a"]).await?;
    story.options.disk_reserve_bytes = u64::MAX;
    story = story.reopened().await?;
    assert_eq!(kind_of(story.wal.check()), Some(Kind::Full));
    let refused = story.append(&["b"]).await;
    assert!(refused.as_ref().is_err_and(|error| error.detail().contains("bytes left")), "{refused:?}");
    assert_eq!(kind_of(refused), Some(Kind::Full));
    // What is there is replayed all the same.
    let page = story.wal.page(None, 9, 1_000).await?;
    assert_eq!(ids_of(&page), ["a"]);
    story.wal.trim(page[0].position).await?;
    assert_eq!(story.wal.depth().records, 0);
    Ok(())
}

#[tokio::test]
async fn concurrent_appends_are_all_answered() -> Result<()> {
    let story = Story::new()?;
    let caller = async |caller: usize| {
        for n in 0..20 {
            story.wal.append(vec![push(&format!("{caller}-{n}"), 100)?]).await?;
        }
        Ok::<_, Error>(())
    };
    for outcome in join_all((0..64).map(caller)).await {
        outcome?;
    }
    let ids = story.ids().await?;
    assert_eq!(ids.len(), 64 * 20);
    for caller in 0..64 {
        let own = ids.iter().filter(|id| id.split_once('-').is_some_and(|(of, _)| of == caller.to_string()));
        let expected: Vec<_> = (0..20).map(|n| format!("{caller}-{n}")).collect();
        assert_eq!(own.cloned().collect::<Vec<_>>(), expected);
    }
    Ok(())
}

#[tokio::test]
async fn closed_log_refuses_appends_and_drop_answers_all() -> Result<()> {
    let story = Story::new()?;
    let append = story.wal.append(vec![push("a", 10)?]);
    append.await?;
    story.wal.close().await?;
    assert_eq!(kind_of(story.append(&["b"]).await), Some(Kind::Unavailable));
    assert_eq!(kind_of(story.wal.close().await), Some(Kind::Unavailable));
    Ok(())
}

#[tokio::test]
async fn notes_persist_and_a_damaged_one_is_ignored() -> Result<()> {
    let mut story = Story::new()?;
    let clock = ClockNote { boot_id: Some("a".into()), since_boot_us: 5, ahead_us: -1_234_567, store_us: 7 };
    assert_eq!((story.wal.store_identity(), story.wal.clock_note()), (None, None));
    story.wal.remember_store("redis://a/0 run 1").await?;
    story.wal.remember_clock(&clock).await?;
    story.wal.remember_store(&"x".repeat(1_024)).await?;
    assert_eq!(kind_of(story.wal.remember_store(&"x".repeat(1_025)).await), Some(Kind::TooLarge));
    story = story.reopened().await?;
    assert_eq!((story.wal.store_identity(), story.wal.clock_note()), (Some("x".repeat(1_024)), Some(clock.clone())));
    let damage = |dir: &Path| std::fs::write(dir.join("store-identity"), "none of ours").map_err(failed("a note"));
    story = story.reopened_after(damage).await?;
    assert_eq!((story.wal.store_identity(), story.wal.clock_note()), (None, Some(clock)));
    Ok(())
}

#[tokio::test]
async fn log_of_a_newer_version_is_refused_unless_empty() -> Result<()> {
    let story = Story::new()?;
    story.append(&["a"]).await?;
    let Story { wal, options, dir: _dir, .. } = story;
    wal.close().await?;
    let says = |format: &str| {
        let note = [&crc32fast::hash(format.as_bytes()).to_be_bytes(), format.as_bytes()].concat();
        std::fs::write(options.dir.join("format"), note).map_err(failed("a note"))
    };
    let newer = (dwell::codec::LOG_FORMAT + 1).to_string();
    says(&newer)?;
    let refused = Wal::open(options.clone(), metrics()?).err().ok_or_else(|| Error::bug("it was opened"))?;
    assert_eq!(refused.kind(), Kind::Conflict);
    assert!(refused.detail().contains("a newer dwell wrote the log"), "{}", refused.detail());

    says(&dwell::codec::LOG_FORMAT.to_string())?;
    let wal = Wal::open(options.clone(), metrics()?)?;
    let entries = wal.page(None, 10, 1 << 20).await?;
    let last = entries.last().ok_or_else(|| Error::bug("what was appended is gone"))?;
    wal.trim(last.position).await?;
    wal.close().await?;
    assert!(!options.dir.join("format").exists(), "an empty log still has a format");
    Wal::open(options, metrics()?).map(drop)
}

#[tokio::test]
async fn log_with_an_unwritable_format_marker_refuses_appends() -> Result<()> {
    let time = Manual::at(Timestamp::from_ms(1_767_323_045_678));
    let dir = scratch()?;
    let mut options = WalOptions::new(dir.path().join("wal"), 1 << 30, Clock::Manual(time.clone()));
    options.disk_reserve_bytes = 0;
    // A note is written beside its place first: so that cannot be.
    let beside = options.dir.join("format.new");
    std::fs::create_dir_all(&beside).map_err(failed("a directory"))?;
    let wal = Wal::open(options.clone(), metrics()?)?;
    assert_eq!(kind_of(wal.append(vec![push("a", 10)?]).await), Some(Kind::Unavailable));
    std::fs::remove_dir(&beside).map_err(failed("a directory"))?;
    mended(&wal, &time).await?;
    wal.append(vec![push("b", 10)?]).await?;
    assert!(options.dir.join("format").exists(), "the log has records, and no format");
    assert_eq!(wal.page(None, 10, 1 << 20).await?.len(), 1);
    wal.close().await
}

/// A log in a directory that the parent made, and its clock.
fn open(dir: &str) -> Result<(Wal, Manual)> {
    let time = Manual::at(Timestamp::from_ms(1_767_323_045_678));
    let mut options = WalOptions::new(Path::new(dir).join("wal"), 1 << 30, Clock::Manual(time.clone()));
    options.disk_reserve_bytes = 0;
    Ok((Wal::open(options, metrics()?)?, time))
}

/// Appends until it is refused: how many were taken, and why no more were.
async fn fill(wal: &Wal, prefix: &str) -> Result<(usize, Error)> {
    for n in 0..1_000 {
        if let Err(error) = wal.append(vec![push(&format!("{prefix}-{n}"), 100_000)?]).await {
            return Ok((n, error));
        }
    }
    Err(Error::bug("nothing was ever refused"))
}

/// Waits until the log says that it takes records, which it finds out by trying.
async fn mended(wal: &Wal, time: &Manual) -> Result<()> {
    time.advance(Duration::from_secs(1));
    eventually("the log can be written again", async || Ok(wal.check().ok())).await
}

/// Writes into files that may not grow past a limit, which is what a full disk is to sled.
#[tokio::test]
async fn child_on_a_full_disk() -> Result<()> {
    let Ok(dir) = std::env::var(DIR) else { return Ok(()) };
    let (wal, time) = open(&dir)?;
    let limit = |bytes| {
        let maximum = getrlimit(Resource::Fsize).maximum;
        setrlimit(Resource::Fsize, Rlimit { current: bytes, maximum }).map_err(|errno| failed("a limit")(errno.into()))
    };
    limit(Some(3 << 20))?;
    let (first, error) = fill(&wal, "first").await?;
    assert!(first > 3 && error.kind() == Kind::Unavailable, "{first}: {error}");
    assert_eq!(kind_of(wal.append(vec![push("early", 10)?]).await), Some(Kind::Unavailable));
    assert_eq!(kind_of(wal.check()), Some(Kind::Unavailable));
    // Another file has room.
    mended(&wal, &time).await?;
    let (second, error) = fill(&wal, "second").await?;
    assert!(second > 3 && error.kind() == Kind::Unavailable, "{second}: {error}");
    // No file takes anything.
    mended(&wal, &time).await?;
    wal.append(vec![push("third", 10)?]).await?;
    limit(Some(0))?;
    assert_eq!(kind_of(wal.append(vec![push("unknown", 10)?]).await), Some(Kind::OutcomeUnknown));
    time.advance(Duration::from_secs(1));
    assert_eq!(kind_of(wal.append(vec![push("late", 10)?]).await), Some(Kind::Unavailable));
    assert_eq!(kind_of(wal.check()), Some(Kind::Unavailable));
    // The limit is gone.
    limit(None)?;
    mended(&wal, &time).await?;
    // The first write into a new segment fails, which is then made anew.
    limit(Some(0))?;
    assert!(wal.append(vec![push("refused", 10_000)?, push("refused-too", 10_000)?]).await.is_err());
    limit(None)?;
    mended(&wal, &time).await?;
    wal.append(vec![push("last", 10)?]).await?;
    let expected: Vec<_> = (0..first)
        .map(|n| format!("first-{n}"))
        .chain((0..second).map(|n| format!("second-{n}")))
        .chain(["third".to_owned(), "last".to_owned()])
        .collect();
    assert_eq!(ids_of(&all_of(&wal).await?), expected);
    wal.close().await?;
    drop(wal);
    let (wal, _) = open(&dir)?;
    assert_eq!(ids_of(&all_of(&wal).await?), expected);
    assert_eq!((wal.depth().lost, wal.depth().damaged), (0, 0));
    let all = all_of(&wal).await?;
    wal.trim(all[expected.len() - 2].position).await?;
    assert_eq!(ids_of(&all_of(&wal).await?), ["last"]);
    Ok(())
}

#[tokio::test]
async fn full_disk_yields_no_false_success_and_recovers() -> Result<()> {
    let dir = scratch()?;
    // Going past a limit is an error, as on a full disk, and not a signal.
    let mut command = Command::new("sh");
    let this = std::env::current_exe().map_err(failed("the path of this binary"))?;
    command.args(["-c", "trap '' XFSZ; exec \"$0\" --exact disk::wal::disk::child_on_a_full_disk"]).arg(this);
    succeeds(command.env(DIR, dir.path()))
}

fn succeeds(command: &mut Command) -> Result<()> {
    let output = command.output().map_err(failed("a child"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    Ok(())
}

/// Opens a log in a directory that it may not write, and then may.
#[tokio::test]
async fn child_without_write_permission() -> Result<()> {
    let Ok(dir) = std::env::var(DIR) else { return Ok(()) };
    let permit =
        |mode| std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(mode)).map_err(failed("permissions"));
    permit(0o555)?;
    let (wal, time) = open(&dir)?;
    let refused = wal.check().err().ok_or_else(|| Error::bug("a read-only disk was written"))?;
    assert!(refused.kind() == Kind::Unavailable && refused.detail().contains("ermission denied"), "{refused}");
    assert_eq!(kind_of(wal.append(vec![push("a", 10)?]).await), Some(Kind::Unavailable));
    assert_eq!(kind_of(wal.page(None, 9, 9).await), Some(Kind::Unavailable));
    assert_eq!(kind_of(wal.remember_store("a").await), Some(Kind::Unavailable));
    assert_eq!(wal.depth().records, 0);
    permit(0o755)?;
    mended(&wal, &time).await?;
    wal.append(vec![push("b", 10)?]).await?;
    wal.remember_store("b").await?;
    drop(wal);
    // What is there cannot be read while it cannot be locked and marked.
    for (mode, readable) in [(0o555, false), (0o755, true)] {
        for path in [Path::new(&dir).join("wal"), Path::new(&dir).join("wal/done")] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(failed("permissions"))?;
        }
        let (wal, _) = open(&dir)?;
        assert_eq!(all_of(&wal).await.ok().map(|all| ids_of(&all)), readable.then(|| vec!["b".to_owned()]));
        assert_eq!(wal.depth().damaged, 0);
    }
    Ok(())
}

#[tokio::test]
async fn unwritable_disk_opens_and_recovers() -> Result<()> {
    const NOBODY: u32 = 65_534;
    let dir = scratch()?;
    // By this name a user who may not look into its directory can run it too.
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", "disk::wal::disk::child_without_write_permission"]).env(DIR, dir.path());
    if rustix::process::geteuid().is_root() {
        // Nothing is forbidden to root.
        std::os::unix::fs::chown(dir.path(), Some(NOBODY), Some(NOBODY)).map_err(failed("another owner"))?;
        command.current_dir("/").uid(NOBODY).gid(NOBODY);
    }
    succeeds(&mut command)
}
