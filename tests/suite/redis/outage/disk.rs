//! The local disk takes nothing while Redis is there, while it is away, and at the start.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use dwell::model::error::{Kind, Result};
use dwell::store::Pushed;

use super::Outage;
use crate::support::{Mode, eventually, failed, kind_of};

/// In place of the directory of the WAL stands a file, which keeps even root from making it.
fn blocked(dir: &Path) -> Result<()> {
    std::fs::write(dir.join("wal"), "in the way").map_err(failed("a file in the way"))
}

fn unblocked(dir: &Path) -> Result<()> {
    std::fs::remove_file(dir.join("wal")).map_err(failed("the file in the way"))
}

#[tokio::test]
async fn unwritable_wal_blocks_no_push_to_redis_and_buffers_none() -> Result<()> {
    let outage = Outage::begin().await?;
    blocked(outage.dir.path())?;
    let dwell = outage.dwell().await?;
    assert_eq!(dwell.push_one("orders", "a").await?.pushed, Pushed::Stored);
    outage.proxy.set(Mode::Refuse);
    // The first one met a connection that broke: perhaps Redis has it.
    let met = kind_of(dwell.push_one("orders", "b").await);
    assert!(matches!(met, Some(Kind::OutcomeUnknown | Kind::Unavailable)), "{met:?}");
    assert_eq!(kind_of(dwell.push_one("orders", "c").await), Some(Kind::Unavailable));
    let health = dwell.broker().health().await;
    assert!(!health.ready, "{health:?}");
    // It mends itself once the disk does, without a restart.
    unblocked(outage.dir.path())?;
    eventually("the disk takes pushes again", async || {
        dwell.broker().health().await;
        Ok(dwell.push_one("orders", "d").await.ok().filter(|outcome| outcome.pushed == Pushed::Buffered).map(drop))
    })
    .await?;
    outage.proxy.set(Mode::Pass);
    dwell.recovered().await?;
    let got = dwell.drain("orders", 2).await?;
    assert!(got.contains_key("a") && got.contains_key("d") && !got.contains_key("c"), "{got:?}");
    dwell.close().await
}

/// Files that are removed can be written, and are gone with the process.
#[tokio::test]
async fn removed_wal_takes_no_push() -> Result<()> {
    let outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    assert_eq!(dwell.push_one("orders", "a").await?.pushed, Pushed::Stored);
    std::fs::remove_dir_all(outage.dir.path().join("wal")).map_err(failed("the WAL"))?;
    assert_eq!(dwell.push_one("orders", "b").await?.pushed, Pushed::Stored);
    outage.proxy.set(Mode::Refuse);
    eventually("the reason is known", async || match dwell.push_one("orders", "c").await {
        Ok(outcome) => Err(dwell::model::error::Error::bug(format!("{outcome:?}"))),
        Err(error) => Ok(error.detail().contains("was removed").then_some(())),
    })
    .await?;
    let health = dwell.broker().health().await;
    assert!(!health.ready, "{health:?}");
    outage.proxy.set(Mode::Pass);
    dwell.delivers("orders", &["a", "b"]).await?;
    dwell.close().await
}

#[tokio::test]
async fn unwritable_journal_fails_no_push_and_is_reported() -> Result<()> {
    let outage = Outage { journal: Some(std::time::Duration::from_secs(60)), ..Outage::begin().await? };
    std::fs::write(outage.dir.path().join("journal"), "in the way").map_err(failed("a file in the way"))?;
    let dwell = outage.dwell().await?;
    assert_eq!(dwell.push_one("orders", "a").await?.pushed, Pushed::Stored);
    let health = dwell.broker().health().await;
    assert!(health.ready && health.detail.as_deref().is_some_and(|why| why.contains("journal")), "{health:?}");
    dwell.delivers("orders", &["a"]).await?;
    dwell.close().await
}

#[tokio::test]
async fn full_wal_refuses_pushes_and_is_replayed() -> Result<()> {
    let outage = Outage { limit_bytes: dwell::model::limits::WAL_BYTES_MIN, ..Outage::begin().await? };
    let dwell = outage.dwell().await?;
    dwell.push_one("orders", "first").await?;
    outage.proxy.set(Mode::Refuse);
    let (mut accepted, mut refused) = (1, None);
    while refused.is_none() {
        let push = dwell.push_sized("orders", &format!("m{accepted}"), 500_000).await;
        match push {
            Ok(_) => accepted += 1,
            Err(error) => refused = Some(error),
        }
        assert!(accepted < 100, "it never is full");
    }
    assert_eq!(refused.map(|error| error.kind()), Some(Kind::Full));
    // Ready is who still takes something, if only a small message. A segment that the replay opens again may be larger or
    // smaller than it was, so only what was said both before and after the push holds for it.
    eventually("ready says what a push finds", async || {
        let before = dwell.broker().health().await.ready;
        let small = dwell.push_one("orders", &format!("small{accepted}")).await;
        accepted += usize::from(small.is_ok());
        let after = dwell.broker().health().await.ready;
        assert!(before != after || before == small.is_ok(), "{before} {small:?}");
        Ok((before == after).then_some(()))
    })
    .await?;
    outage.proxy.set(Mode::Pass);
    dwell.recovered().await?;
    let got = dwell.drain("orders", accepted).await?;
    assert_eq!(got.len(), accepted);
    // Its space is there again.
    outage.proxy.set(Mode::Refuse);
    assert_eq!(dwell.push_sized("orders", "again", 500_000).await?.pushed, Pushed::Buffered);
    outage.proxy.set(Mode::Pass);
    dwell.close().await
}

#[tokio::test]
async fn half_full_wal_needs_attention() -> Result<()> {
    let outage = Outage { limit_bytes: dwell::model::limits::WAL_BYTES_MIN, ..Outage::begin().await? };
    let dwell = outage.dwell().await?;
    dwell.push_one("orders", "first").await?;
    outage.proxy.set(Mode::Refuse);
    for n in 0..12 {
        dwell.push_sized("orders", &format!("m{n}"), 500_000).await?;
    }
    let filling = async || {
        let attention = dwell.broker().attention().await?;
        Ok(attention.concerns.iter().find(|concern| concern.kind.name() == "wal_filling").cloned())
    };
    let concern = filling().await?;
    let cause = concern.map(|concern| concern.cause).unwrap_or_default();
    assert!(cause.contains("% full, with") && cause.contains("records that wait"), "{cause}");
    outage.proxy.set(Mode::Pass);
    dwell.recovered().await?;
    eventually("its space is free again", async || Ok(filling().await?.is_none().then_some(()))).await?;
    dwell.close().await
}

#[tokio::test]
async fn data_directory_is_private() -> Result<()> {
    let outage = Outage::begin().await?;
    let dwell = outage.dwell().await?;
    outage.proxy.set(Mode::Refuse);
    dwell.push_one("orders", "a").await?;
    let wal = std::fs::metadata(outage.dir.path().join("wal")).map_err(failed("the WAL"))?;
    assert_eq!(wal.permissions().mode() & 0o077, 0, "payloads are not for others to read");
    dwell.close().await
}
