//! The disk, and what lies on it.

use std::process::Command;

use dwell::model::error::Result;
use serde_json::json;

use super::{Doctor, read};
use crate::support::{Process, RedisServer, eventually, failed};

#[tokio::test]
async fn embedded_store_is_checked_while_a_broker_owns_it() -> Result<()> {
    let doctor = Doctor::new()?;
    let fresh = doctor.asked(&[])?;
    assert!(fresh.code == Some(0) && fresh.says("store", "skip", "not there yet"), "{fresh:#?}");
    assert!(fresh.says("broker", "skip", "none answers"), "{fresh:#?}");
    let broker = Process::serve(doctor.dir(), &[]).await?;
    let push = broker.client.post("/v1/topics/orders/messages?id=a&raw=true", &json!("x")).await;
    assert_eq!(push.map(|(status, _)| status), Some(201));
    let said = doctor.asked(&[])?;
    assert_eq!((said.code, said.complaints().len()), (Some(0), 0), "{said:#?}");
    assert!(said.says("store", "ok", "commits") && said.says("store", "ok", "has it"), "{said:#?}");
    assert!(!said.says("store", "ok", "no process") && said.says("broker", "ok", "ready"), "{said:#?}");
    assert!(said.says("redis", "skip", "embedded store") && said.of("wal").is_empty(), "{said:#?}");
    drop(broker);
    assert!(doctor.asked(&[])?.says("store", "ok", "no process has it"));
    Ok(())
}

#[tokio::test]
async fn low_memory_full_and_unwritable_disks_are_named() -> Result<()> {
    let doctor = Doctor::new()?;
    let memory = tempfile::tempdir_in("/dev/shm").map_err(failed("a directory in memory"))?;
    let said = doctor.asked(&["--data-dir", &memory.path().display().to_string()])?;
    assert!(said.says("data-dir", "warn", "tmpfs") && said.says("data-dir", "warn", "volume"), "{said:#?}");
    let refused = doctor.asked(&["--data-dir", "/proc"])?;
    assert!(refused.code == Some(1) && refused.says("data-dir", "fail", "cannot be written"), "{refused:#?}");
    // Going past a limit is an error, as on a full disk, and not a signal.
    let mut full = Command::new("sh");
    let limited = "trap '' XFSZ; ulimit -f 0; exec \"$0\" doctor --json";
    full.args(["-c", limited, env!("CARGO_BIN_EXE_dwell")]).env_clear().env("DWELL_DATA_DIR", doctor.dir());
    full.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let said = read(&mut full)?;
    assert!(said.code == Some(1) && said.says("data-dir", "fail", "make room"), "{said:#?}");
    assert_eq!(std::fs::read_dir(doctor.dir()).map_err(failed("the directory"))?.count(), 0);
    Ok(())
}

#[tokio::test]
async fn buffered_records_are_counted_and_foreign_redis_detected() -> Result<()> {
    let doctor = Doctor::new()?;
    let mut server = RedisServer::durable().await?;
    let url = server.url();
    let mut broker = Process::serve(doctor.dir(), &[("REDIS_URL", &url), ("REDIS_TIMEOUT", "200ms")]).await?;
    let push = async |id: &str| {
        let answer = broker.client.post(&format!("/v1/topics/orders/messages?id={id}&raw=true"), &json!("x")).await;
        Ok(answer.map(|(status, _)| status))
    };
    assert_eq!(push("a").await?, Some(201));
    server.kill()?;
    eventually("a push is buffered", async || Ok(push("b").await?.filter(|status| *status == 202))).await?;
    let away = doctor.asked(&["--redis", &url])?;
    assert!(away.code == Some(69) && away.says("wal", "warn", "bring Redis back"), "{away:#?}");
    assert!(away.says("broker", "warn", "degraded"), "{away:#?}");
    broker.kill()?;
    server.restart().await?;
    let left = doctor.asked(&["--redis", &url])?;
    assert!(
        left.says("wal", "warn", "waiting: 1 record,") && left.says("wal", "warn", "start `dwell serve`"),
        "{left:#?}"
    );
    let other = RedisServer::durable().await?;
    other.ask::<()>("SET dwell:id another").await?;
    let foreign = doctor.asked(&["--redis", &other.url()])?;
    assert!(foreign.code == Some(1) && foreign.says("wal", "fail", "dwell serve --adopt"), "{foreign:#?}");
    Ok(())
}
