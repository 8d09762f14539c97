//! A machine whose clock is off by minutes, or is set while nobody can tell what time it is.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dwell::model::error::{Error, Kind, Result};
use dwell::model::message::{MessageId, TopicName};
use dwell::model::time::Timestamp;
use dwell::outage::{BufferedStore, OutageOptions};
use dwell::platform::clock::Clock;
use dwell::store::redis::{Redis, RedisOptions};
use dwell::store::{Backend, ClockNote, Pushed};
use dwell::telemetry::metrics::Metrics;
use dwell::wal::{LIMIT_BYTES, Wal, WalOptions};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::{Outage, TIMEOUT};
use crate::support::{Mode, Process, eventually, failed, kind_of, scratch, shifted_clock};

const OFF: Duration = Duration::from_secs(300);

/// A store that answers nothing by itself, behind what keeps pushes in a directory.
async fn store(dir: &Path) -> Result<(Arc<BufferedStore<Redis>>, Arc<Metrics>)> {
    let metrics = Arc::new(Metrics::new()?);
    let nowhere = RedisOptions::new(format!("redis+unix://{}/none", dir.display()));
    let store = Redis::open(nowhere, Clock::System, metrics.clone()).await?;
    Ok((Arc::new(BufferedStore::open(store, OutageOptions::new(dir), TIMEOUT, metrics.clone()).await?), metrics))
}

/// An answer of a store whose clock is that much ahead of this machine's.
fn answer(store: &impl Backend, ahead: Duration) {
    let us = (Clock::System.now().as_ms() + ahead.as_millis() as u64) * 1_000;
    store.clock().observe(Clock::System.instant(), us);
}

fn ahead(store: &impl Backend) -> Duration {
    store.clock().now().since(Clock::System.now())
}

fn is_about(found: Duration, expected: Duration) -> bool {
    found.abs_diff(expected) < Duration::from_secs(2)
}

#[tokio::test]
async fn clock_offset_is_reported_and_survives_a_kill() -> Result<()> {
    let dir = scratch()?;
    let (buffered, metrics) = store(dir.path()).await?;
    let (running, stop) = (buffered.clone(), CancellationToken::new());
    let run = AbortOnDropHandle::new(tokio::spawn(async move { running.run(&dwell::store::NoOwners, stop).await }));
    assert!(is_about(ahead(&*buffered), Duration::ZERO));
    answer(&*buffered, OFF);
    assert!(is_about(ahead(&*buffered), OFF));
    let note = dir.path().join("wal").join("clock-offset");
    eventually("it is noted", async || Ok(std::fs::metadata(&note).ok().map(drop))).await?;
    let shown = metrics.text()?;
    assert!(
        shown.lines().any(|line| line.starts_with("dwell_clock_offset_seconds -300")
            || line.starts_with("dwell_clock_offset_seconds -299")),
        "{shown}"
    );
    // It dies, and does not close.
    run.abort();
    drop((run, buffered));
    let (buffered, _) = eventually("its directory is free", async || Ok(store(dir.path()).await.ok())).await?;
    assert!(is_about(ahead(&*buffered), OFF), "{:?}", ahead(&*buffered));
    buffered.close().await
}

impl Outage {
    /// What a broker that is gone noted of the clocks, changed before the next one finds it.
    async fn change_note(&self, change: impl FnOnce(ClockNote) -> ClockNote) -> Result<()> {
        let options = WalOptions::new(self.dir.path().join("wal"), LIMIT_BYTES, Clock::System);
        let metrics = Metrics::new()?.wal("wal");
        let open = async || Ok(Wal::open(options.clone(), metrics.clone()).ok());
        let wal = eventually("the log is free", open).await?;
        let note = wal.clock_note().ok_or_else(|| Error::bug("no clock was noted"))?;
        wal.remember_clock(&change(note)).await?;
        wal.close().await
    }
}

/// Another boot of the machine than any.
fn reboot(note: ClockNote) -> ClockNote {
    ClockNote { boot_id: Some("another".into()), since_boot_us: 0, ..note }
}

#[tokio::test]
async fn reboot_without_redis_uses_the_wall_clock() -> Result<()> {
    let outage = Outage::begin().await?;
    outage.dwell().await?.close().await?;
    let off_us = i64::try_from(OFF.as_micros()).unwrap_or(0);
    outage.change_note(|note| ClockNote { ahead_us: off_us, ..reboot(note) }).await?;
    outage.proxy.set(Mode::Refuse);
    let dwell = outage.dwell().await?;
    let outcome = dwell.push_one("orders", "a").await?;
    assert_eq!(outcome.pushed, Pushed::Buffered);
    assert!(is_about(outcome.due_at.since(Clock::System.now()), OFF), "{}", outcome.due_at);
    dwell.close().await?;
    // What was found out on this boot holds on this boot, whatever the wall clock says at the next start.
    outage.change_note(|note| ClockNote { ahead_us: 0, ..note }).await?;
    let dwell = outage.dwell().await?;
    let outcome = dwell.push_one("orders", "b").await?;
    assert!(is_about(outcome.due_at.since(Clock::System.now()), OFF), "{}", outcome.due_at);
    dwell.close().await
}

#[tokio::test]
async fn wall_clock_set_back_before_a_start_fixes_no_due_time() -> Result<()> {
    let outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    assert_eq!(dwell.push_one("orders", "before").await?.pushed, Pushed::Stored);
    dwell.close().await?;
    let off_us = i64::try_from(OFF.as_micros()).unwrap_or(0);
    outage.change_note(|note| ClockNote { store_us: note.store_us + off_us, ..reboot(note) }).await?;
    outage.proxy.set(Mode::Refuse);
    let dwell = outage.dwell().await?;
    let refused = dwell.push_one("orders", "refused").await.err();
    let why = "the clock of this machine is behind what was noted before";
    assert!(refused.is_some_and(|error| error.kind() == Kind::Unavailable && error.detail().contains(why)));
    let cancelled = dwell.broker().cancel(&TopicName::new("orders")?, &MessageId::new("before")?, None).await;
    assert_eq!(kind_of(cancelled), Some(Kind::Unavailable));
    let health = dwell.broker().health().await;
    assert!(!health.ready && health.detail.is_some_and(|detail| detail.contains(why)));
    outage.proxy.set(Mode::Pass);
    dwell.recovered().await?;
    let outcome = dwell.push_one("orders", "after").await?;
    assert_eq!(outcome.pushed, Pushed::Stored);
    assert!(is_about(outcome.due_at.since(Clock::System.now()), Duration::ZERO));
    dwell.delivers("orders", &["after", "before"]).await?;
    dwell.close().await
}

#[tokio::test]
async fn a_wall_clock_behind_the_newest_record_fixes_no_due_time() -> Result<()> {
    let outage = Outage::begin().await?;
    outage.proxy.set(Mode::Refuse);
    let dwell = outage.dwell().await?;
    assert_eq!(dwell.push_one("orders", "a").await?.pushed, Pushed::Buffered);
    dwell.close().await?;
    // Redis was never there, so nothing is noted but the record, which says that this is a later time than now.
    let manual = dwell::platform::clock::Manual::at(Clock::System.now().plus(OFF));
    let options = WalOptions::new(outage.dir.path().join("wal"), LIMIT_BYTES, Clock::Manual(manual));
    let wal =
        eventually("the log is free", async || Ok(Wal::open(options.clone(), Metrics::new()?.wal("wal")).ok())).await?;
    let newest = wal.page(None, 9, 1_000_000).await?;
    wal.append(vec![newest[newest.len() - 1].record.clone()]).await?;
    wal.close().await?;
    let dwell = outage.dwell().await?;
    assert_eq!(kind_of(dwell.push_one("orders", "b").await), Some(Kind::Unavailable));
    assert!(!dwell.broker().health().await.ready);
    outage.proxy.set(Mode::Pass);
    dwell.recovered().await?;
    assert_eq!(dwell.push_one("orders", "b").await?.pushed, Pushed::Stored);
    dwell.close().await
}

/// Other brokers know an emptied Redis from one of somebody else by when it was named.
#[tokio::test]
async fn redis_is_named_by_its_own_clock() -> Result<()> {
    let (dir, outage) = (scratch()?, Outage::begin().await?);
    let (library, file) = (shifted_clock(dir.path())?, dir.path().join("shift"));
    std::fs::write(&file, "-600").map_err(failed("the shift"))?;
    let preloaded = [("LD_PRELOAD", library.as_ref()), ("WALL_SHIFT", file.as_os_str())];
    let (command, url) = (std::process::Command::new(crate::support::PROGRAM), outage.proxy.url());
    let process = Process::serve_by(command, outage.dir.path(), &[("REDIS_URL", &url)], &preloaded).await?;
    let name: String = outage.redis.ask("GET dwell:id").await?;
    let named = ulid::Ulid::from_string(&name).map_err(|error| Error::bug(error.to_string()))?;
    let off = Clock::System.now().since(Timestamp::from_ms(named.timestamp_ms()));
    assert!(off < OFF, "{off:?} ago");
    drop(process);
    Ok(())
}

#[tokio::test]
async fn wall_clock_set_during_an_outage_moves_no_due_time() -> Result<()> {
    let dir = scratch()?;
    let (library, file) = (shifted_clock(dir.path())?, dir.path().join("shift").display().to_string());
    let shift = |seconds: &str| std::fs::write(&file, seconds).map_err(failed("the shift"));
    for seconds in ["-600", "600"] {
        let outage = Outage::begin().await?;
        let url = outage.proxy.url();
        let start = async || {
            let settings = [("REDIS_URL", url.as_str()), ("REDIS_TIMEOUT", "800ms")];
            let text = std::ffi::OsStr::new;
            let preloaded = [("LD_PRELOAD", text(&library)), ("WALL_SHIFT", text(&file))];
            Process::serve_by(
                std::process::Command::new(crate::support::PROGRAM),
                outage.dir.path(),
                &settings,
                &preloaded,
            )
            .await
        };
        let push = async |process: &Process, id: &str, expected: &str| {
            let message = json!({"messages": [{"id": id, "payload": id, "delay": "1h"}]});
            let answer = process.client.post("/v1/topics/orders/messages/batch", &message).await;
            let (_, answer) = answer.ok_or_else(|| Error::unavailable("no answer to a push"))?;
            let result = &answer["results"][0];
            assert_eq!(result["status"], expected, "{answer}");
            let due_at: Timestamp =
                result["due_at"].as_str().unwrap_or_default().parse().map_err(|_| Error::bug("a due time"))?;
            let delay = due_at.since(Clock::System.now());
            assert!(delay.abs_diff(Duration::from_secs(3_600)) < OFF, "{id} after {seconds}: {delay:?}");
            Ok::<_, Error>(())
        };
        shift("0")?;
        let mut process = start().await?;
        push(&process, "before", "stored").await?;
        outage.proxy.set(Mode::Refuse);
        push(&process, "away", "buffered").await?;
        shift(seconds)?;
        push(&process, "set", "buffered").await?;
        process.kill()?;
        let mut process = start().await?;
        push(&process, "killed", "buffered").await?;
        shift("0")?;
        push(&process, "back", "buffered").await?;
        process.kill()?;
        let process = start().await?;
        push(&process, "killed-again", "buffered").await?;
        drop(process);
    }
    Ok(())
}
