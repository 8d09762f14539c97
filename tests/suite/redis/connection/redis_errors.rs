//! Redis answers, but refuses: each call says why, nothing is half done, and it goes on by itself when that is over.

use std::time::Duration;

use dwell::model::error::{Error, Kind, Result};
use dwell::model::time::Timestamp;
use dwell::store::Renewal;

use crate::support::{LEASE, RedisServer, TestTopic, World, acks, connect, eventually, failed, ids_of, member, up_to};

/// A topic on a Redis with these options.
async fn topic_on(options: &[&str]) -> Result<(RedisServer, World, TestTopic)> {
    let server = RedisServer::start_with(&[&["--appendonly", "no", "--save", ""], options].concat()).await?;
    let world = World::redis_at(server.url(), Duration::from_millis(500)).await?;
    let orders = world.topic("orders").await?;
    orders.push("before", 0).await?;
    Ok((server, world, orders))
}

/// Pushes until the push is refused with this reason, and looks that nothing was stored.
async fn refused(orders: &TestTopic, reason: &str) -> Result<Error> {
    let error = eventually(reason, async || {
        Ok(orders.push("refused", 0).await.err().filter(|error| error.detail().contains(reason)))
    })
    .await?;
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    Ok(error)
}

/// Pushes until it is stored.
async fn goes_on(orders: &TestTopic) -> Result<()> {
    eventually("it goes on", async || Ok(orders.push("after", 0).await.ok())).await?;
    let ready = orders.stats().await?.ready;
    assert_eq!(ready, 2, "what was refused is stored");
    Ok(())
}

#[tokio::test]
async fn full_redis_refuses_only_pushes() -> Result<()> {
    let (server, _world, orders) = topic_on(&[]).await?;
    let mut owner = orders.owner().await?;
    orders.push_many("m", 9).await?;
    server.ask::<()>("CONFIG SET maxmemory 100kb").await?;
    assert!(refused(&orders, "OOM").await?.detail().contains("purge dead messages"));
    let taken = owner.reserve(up_to(5)).await?;
    assert_eq!(taken.messages.len(), 5);
    owner.settle(&acks(&ids_of(&taken.messages))?).await?;
    assert!(matches!(orders.renew(&member("owner"), &*owner, LEASE).await?, Renewal::Kept(_)));
    owner.release(Timestamp::ZERO).await?;
    let mut owner = orders.owner().await?;
    assert_eq!(orders.recover(&mut owner).await?, 0);
    assert_eq!(owner.reserve(up_to(9)).await?.messages.len(), 5);
    assert_eq!(orders.store.backend.store_id("full").await.err().map(|error| error.kind()), Some(Kind::Unavailable));
    server.ask::<()>("CONFIG SET maxmemory 0").await?;
    eventually("it goes on", async || Ok(orders.push("after", 0).await.ok())).await.map(drop)
}

/// The limit is looked at when a script begins: what begins below it ends above it, and is whole.
#[tokio::test]
async fn filling_redis_applies_each_push_atomically() -> Result<()> {
    let (server, _world, orders) = topic_on(&[]).await?;
    let info: String = server.ask("INFO memory").await?;
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")?.trim().parse::<u64>().ok());
    server.ask::<()>(&format!("CONFIG SET maxmemory {}", used.unwrap_or(0) + 400_000)).await?;
    let mut stored = 1;
    let refusal = loop {
        match orders.push_many(&format!("{stored}-"), 1_000).await {
            Ok(()) => stored += 1_000,
            Err(error) => break error,
        }
    };
    assert_eq!(refusal.kind(), Kind::Unavailable);
    assert!(refusal.detail().contains("OOM") && stored > 1, "{stored}: {refusal}");
    let stats = orders.stats().await?;
    assert_eq!((stats.ready, stats.in_flight), (stored, 0));
    Ok(())
}

#[tokio::test]
async fn a_redis_without_enough_replicas_refuses_before_it_begins() -> Result<()> {
    let (server, _world, orders) = topic_on(&[]).await?;
    server.ask::<()>("CONFIG SET min-replicas-to-write 1").await?;
    assert!(refused(&orders, "NOREPLICAS").await?.detail().contains("min-replicas-to-write"));
    server.ask::<()>("CONFIG SET min-replicas-to-write 0").await?;
    goes_on(&orders).await
}

#[tokio::test]
async fn demoted_primary_is_abandoned() -> Result<()> {
    let (server, _world, orders) = topic_on(&[]).await?;
    let connections = async || {
        let info: String = server.ask("INFO stats").await?;
        Ok::<_, Error>(info.lines().find_map(|line| line.strip_prefix("total_connections_received:")?.parse().ok()))
    };
    server.ask::<()>("REPLICAOF 127.0.0.1 1").await?;
    assert!(refused(&orders, "READONLY").await?.detail().contains("primary"));
    let before: Option<u64> = connections().await?;
    // The question itself is one.
    let again = eventually("it connects anew", async || {
        refused(&orders, "READONLY").await?;
        Ok(Some(connections().await?).filter(|now| now.zip(before).is_some_and(|(now, before)| now >= before + 2)))
    })
    .await?;
    assert!(again > before);
    server.ask::<()>("REPLICAOF NO ONE").await?;
    goes_on(&orders).await
}

#[tokio::test]
async fn busy_script_of_another_client_is_waited_for() -> Result<()> {
    let (server, _world, orders) = topic_on(&["--busy-reply-threshold", "20"]).await?;
    let busy = async {
        // It ends by SCRIPT KILL, which is an error for who called it.
        let _ = server.call::<()>(redis::cmd("EVAL").arg("while true do end").arg(0)).await;
        Ok(())
    };
    let story = async {
        eventually("it is busy", async || Ok(server.ask::<String>("PING").await.err())).await?;
        assert!(refused(&orders, "BUSY").await?.detail().contains("SCRIPT KILL"));
        server.ask::<()>("SCRIPT KILL").await?;
        goes_on(&orders).await
    };
    futures_util::future::try_join(busy, story).await.map(drop)
}

#[tokio::test]
async fn misconf_error_is_reported() -> Result<()> {
    let (server, _world, orders) = topic_on(&["--dbfilename", "dump"]).await?;
    server.call::<()>(redis::cmd("CONFIG").arg("SET").arg("save").arg("3600 1")).await?;
    // Nothing can be saved under the name of a directory.
    let dump = server.dir().join("dump");
    std::fs::create_dir(&dump).map_err(failed("a directory in the way"))?;
    server.ask::<()>("BGSAVE").await?;
    assert!(refused(&orders, "MISCONF").await?.detail().contains("its disk"));
    std::fs::remove_dir(&dump).map_err(failed("out of the way"))?;
    server.ask::<()>("BGSAVE").await?;
    eventually("it goes on", async || Ok(orders.push("after", 0).await.ok())).await.map(drop)
}

#[tokio::test]
async fn loading_redis_is_waited_for() -> Result<()> {
    let mut server = RedisServer::durable().await?;
    let world = World::redis_at(server.url(), Duration::from_millis(500)).await?;
    let orders = world.topic("orders").await?;
    orders.push("before", 0).await?;
    server.ask::<()>("CONFIG SET rdbcompression no").await?;
    for n in 0..40 {
        server.ask::<()>(&format!("SETRANGE other:{n} 4096 x")).await?;
    }
    server.ask::<()>("BGREWRITEAOF").await?;
    eventually("all of it is in one file", async || {
        let info: String = server.ask("INFO persistence").await?;
        Ok((info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0")).then_some(()))
    })
    .await?;
    server.kill()?;
    // Microseconds for each key.
    server.restart_with(&["--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024"]).await?;
    assert!(refused(&orders, "LOADING").await?.detail().contains("reads its files"));
    goes_on(&orders).await
}

#[tokio::test]
async fn max_clients_error_is_reported() -> Result<()> {
    let (server, _world, orders) = topic_on(&[]).await?;
    let client = redis::Client::open(server.url()).map_err(|error| Error::bug(error.to_string()))?;
    let connected = connect(&client).await;
    let mut one = connected.map_err(|error| Error::unavailable(error.to_string()))?;
    let mut ask = async |command: &str| {
        let words: Vec<&str> = command.split(' ').collect();
        let answered = redis::cmd(words[0]).arg(&words[1..]).query_async::<redis::Value>(&mut one).await;
        answered.map_err(|error| Error::unavailable(error.to_string()))
    };
    ask("CONFIG SET maxclients 1").await?;
    ask("CLIENT KILL SKIPME yes").await?;
    refused(&orders, "`maxclients` may be reached").await?;
    ask("CONFIG SET maxclients 1000").await?;
    goes_on(&orders).await
}
