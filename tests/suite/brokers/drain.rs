//! `dwell drain`: a broker hands over what it has, and ends by itself.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use dwell::model::error::Result;
use rustix::process::Signal;
use serde_json::json;

use crate::http::api::served::Outcome;
use crate::support::{Mode, PROGRAM, Process, Proxy, RedisServer, eventually, scratch, signal_to};

/// Runs a command to its end beside the runtime.
async fn run(args: &[&str]) -> Outcome<Output> {
    let mut command = Command::new(PROGRAM);
    command.env_clear().args(args).stdin(Stdio::null());
    Ok(tokio::task::spawn_blocking(move || command.output()).await??)
}

#[tokio::test]
async fn drained_broker_ends_and_another_has_its_partitions() -> Outcome {
    let redis = RedisServer::start().await?;
    let (one, other) = (scratch()?, scratch()?);
    let settings = [("REDIS_URL", redis.url()), ("LOG_LEVEL", "info".to_owned())];
    let settings = settings.each_ref().map(|(name, value)| (*name, value.as_str()));
    let mut first = Process::serve(one.path(), &settings).await?;
    let second = Process::serve(other.path(), &settings).await?;
    let reserve = "/v1/topics/t/groups/default/reserve";
    for process in [&first, &second] {
        process.client.post("/v1/topics/t/messages", &json!({"payload": "x", "delay": "1d"})).await;
        process.client.post(reserve, &json!({"wait": "100ms"})).await;
    }
    let waits = [first.client.clone(), second.client.clone()]
        .map(|client| tokio::spawn(async move { client.post(reserve, &json!({"wait": "50s"})).await }));
    let owners = async |member: usize| -> Result<Option<()>> {
        let (_, topic) = second.client.get("/v1/topics/t").await.unwrap_or_default();
        let all: Vec<_> = topic["partitions"].as_array().into_iter().flatten().collect();
        let owned = |partition: &&&serde_json::Value| partition.to_string().contains("\"owner\":\"");
        let names: std::collections::BTreeSet<_> = all
            .iter()
            .filter(owned)
            .map(|partition| {
                partition.to_string().split("\"owner\":\"").nth(1).map(|rest| rest.split('"').next().map(str::to_owned))
            })
            .collect();
        Ok((names.len() == member && all.iter().filter(owned).count() == all.len()).then_some(()))
    };
    eventually("both own partitions", async || owners(2).await).await?;
    let socket = format!("unix:{}", one.path().join("dwell.sock").display());
    let said = run(&["drain", "--server", &socket]).await?;
    assert!(said.status.success(), "{said:?}");
    assert_eq!(String::from_utf8_lossy(&said.stdout), "drained: it has ended\n");
    first.ended().await?;
    let log = std::fs::read_to_string(one.path().join("dwell.log"))?;
    assert!(log.contains("POST /v1/drain") && log.contains("stopped"), "{log}");
    eventually("the other one owns all", async || owners(1).await).await?;
    waits.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(())
}

#[tokio::test]
async fn broker_that_lingers_takes_pushes_and_is_not_ready() -> Outcome {
    let dir = scratch()?;
    let mut process = Process::serve(dir.path(), &[("HTTP_LINGER", "3s"), ("LOG_LEVEL", "info")]).await?;
    assert_eq!(process.client.post("/v1/topics/t/messages", &json!({"payload": "x"})).await.map(|(s, _)| s), Some(201));
    let id = process.id().to_string();
    let draining =
        tokio::spawn(async move { run(&["drain", "--pid", &id, "--timeout", "60s"]).await.map_err(|e| e.to_string()) });
    let status = async || process.client.get("/readyz").await.map(|(status, _)| status);
    eventually("it is not ready", async || Ok(status().await.filter(|status| *status == 503))).await?;
    for _ in 0..5 {
        tokio::time::timeout(Duration::from_secs(2), async {
            let pushed = process.client.post("/v1/topics/t/messages", &json!({"payload": "x"})).await;
            assert_eq!(pushed.map(|(status, _)| status), Some(201));
        })
        .await?;
    }
    let refused = process.client.post("/v1/topics/t/groups/default/reserve", &json!({"wait": "0s"})).await;
    assert_eq!(refused.map(|(status, _)| status), Some(503));
    let said = draining.await??;
    assert!(said.status.success(), "{said:?}");
    process.ended().await?;
    // What was pushed meanwhile is there.
    let again = Process::serve(dir.path(), &[]).await?;
    let (_, topic) = again.client.get("/v1/topics/t").await.ok_or("no answer")?;
    assert_eq!(topic["totals"][0]["ready"], 6, "{topic}");
    Ok(())
}

/// Messages of a log that takes seconds to replay, since each call to Redis takes a while.
const BUFFERED: usize = 4_000;
const CALL_TAKES: Duration = Duration::from_millis(20);

/// A broker is told to stop while it replays: it ends when Redis has everything.
async fn is_replayed_before_the_end(tell: impl AsyncFn(&Process) -> Outcome) -> Outcome {
    let (redis, dir) = (RedisServer::start().await?, scratch()?);
    let proxy = Proxy::before(&redis)?;
    let url = proxy.url();
    let settings =
        [("REDIS_URL", url.as_str()), ("LOG_LEVEL", "info"), ("REDIS_TIMEOUT", "8s"), ("GROUP_DRAIN_TIMEOUT", "50s")];
    let mut process = Process::serve(dir.path(), &settings).await?;
    process.client.put("/v1/topics/t", &json!({"partitions": 2})).await.ok_or("no topic")?;
    proxy.set(Mode::Refuse);
    for _ in 0..BUFFERED / 1_000 {
        let batch = json!({"messages": vec![json!({"payload": "x", "delay": "1d"}); 1_000]});
        let (status, answer) = process.client.post("/v1/topics/t/messages/batch", &batch).await.ok_or("no answer")?;
        assert_eq!((status, &answer["results"][0]["status"]), (202, &json!("buffered")), "{status}");
    }
    proxy.set(Mode::Delay(CALL_TAKES));
    let replays = async || {
        let (_, ready) = process.client.get("/readyz").await.unwrap_or_default();
        Ok(ready["detail"].as_str().is_some_and(|detail| detail.starts_with("replaying")).then_some(()))
    };
    eventually("the broker replays", replays).await?;
    tell(&process).await?;
    process.ended().await?;
    let log = std::fs::read_to_string(dir.path().join("dwell.log"))?;
    assert!(log.contains("stopping: buffered messages are replayed") && log.contains("stopped"), "{log}");
    assert!(!log.contains("stay buffered"), "{log}");
    let mut stored = 0;
    for partition in 0..2 {
        stored += redis.ask::<usize>(&format!("ZCARD {{dwell:t:{partition}}}:default:z")).await?;
    }
    assert_eq!(stored, BUFFERED);
    Ok(())
}

#[tokio::test]
async fn sigterm_replays_what_is_buffered_before_the_end() -> Outcome {
    is_replayed_before_the_end(async |process| Ok(signal_to(process.id(), Signal::TERM)?)).await
}

#[tokio::test]
async fn drain_replays_what_is_buffered_before_the_end() -> Outcome {
    is_replayed_before_the_end(async |process| {
        let said = run(&["drain", "--pid", &process.id().to_string(), "--timeout", "2m"]).await?;
        assert!(said.status.success(), "{said:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_process_that_is_none_cannot_drain() -> Outcome {
    for pid in ["0", "-1", "4194305"] {
        let said = run(&["drain", &format!("--pid={pid}")]).await?;
        assert!(!said.status.success(), "{pid}: {said:?}");
    }
    Ok(())
}
