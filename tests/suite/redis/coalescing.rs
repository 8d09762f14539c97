//! Pushes that arrive while a call to their partition is out go together with the next one.

use std::time::Duration;

use dwell::broker::Options;
use dwell::model::error::{Error, Kind, Result};
use dwell::model::message::{Conflict, Due, MessageId, NewMessage, TopicName};
use dwell::model::topic::Settings;
use dwell::store::Pushed;
use futures_util::future::{join_all, select_all};

use crate::support::{Mode, Proxy, RedisServer, Running, World, eventually};

/// A broker whose Redis is a moment away, and a topic of one partition.
async fn far_away() -> Result<(RedisServer, Proxy, World, Running, TopicName)> {
    let server = RedisServer::start().await?;
    let proxy = Proxy::before(&server)?;
    let world = World::redis_at(proxy.url(), Duration::from_secs(5)).await?;
    let running = Running::start(&world, Options::default())?;
    let orders = TopicName::new("orders")?;
    let settings = Settings { partitions: std::num::NonZeroU16::MIN, ..Settings::default() };
    running.broker.declare(orders.clone(), settings).await?;
    running.broker.push(&orders, NewMessage::new("so that the script is known")).await?;
    proxy.set(Mode::Delay(Duration::from_millis(50)));
    Ok((server, proxy, world, running, orders))
}

/// Calls of scripts so far.
async fn calls(server: &RedisServer) -> Result<u64> {
    let stats: String = server.ask("INFO commandstats").await?;
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    let calls = line.and_then(|line| line.split(',').next()).and_then(|calls| calls.parse().ok());
    calls.ok_or_else(|| Error::bug(stats.clone()))
}

#[tokio::test]
async fn concurrent_pushes_share_calls_and_get_own_results() -> Result<()> {
    let (server, _proxy, _world, running, orders) = far_away().await?;
    let before = calls(&server).await?;
    let push = |n: usize| {
        // Every id comes twice, from two producers.
        let id = MessageId::new(format!("m{}", n % 300));
        let (broker, orders) = (running.broker.clone(), orders.clone());
        async move { broker.push(&orders, NewMessage::new("x").id(id?)).await }
    };
    let outcomes = join_all((0..600).map(push)).await.into_iter().collect::<Result<Vec<_>>>()?;
    for (n, outcome) in outcomes.iter().enumerate() {
        assert_eq!(outcome.id.as_str(), format!("m{}", n % 300));
        assert_eq!(outcome.pushed, if n < 300 { Pushed::Stored } else { Pushed::Duplicate }, "{n}");
    }
    // The first one, and all that had gathered; with a margin for a scheduler that lets them come in parts.
    let calls = calls(&server).await? - before;
    assert!(calls <= 6, "{calls} calls for 600 pushes");
    Ok(())
}

#[tokio::test]
async fn concurrent_pushes_with_policies_share_calls_and_get_own_results() -> Result<()> {
    let (server, _proxy, _world, running, orders) = far_away().await?;
    let before = calls(&server).await?;
    let policies = [Conflict::Replace, Conflict::Debounce, Conflict::Reject];
    let push = |n: usize| {
        // Every id comes twice, from two producers, the second time due later.
        let (broker, orders, conflict) = (running.broker.clone(), orders.clone(), policies[n % 3]);
        let id = MessageId::new(format!("{}-{}", conflict.name(), n % 300));
        let due = Due::In(Duration::from_secs(if n < 300 { 600 } else { 700 }));
        async move { broker.push(&orders, NewMessage { due, conflict, ..NewMessage::new("x").id(id?) }).await }
    };
    let outcomes = join_all((0..600).map(push)).await;
    for (n, outcome) in outcomes.into_iter().enumerate() {
        let expected = match policies[n % 3] {
            _ if n < 300 => Ok(Pushed::Stored),
            Conflict::Replace => Ok(Pushed::Replaced),
            Conflict::Debounce => Ok(Pushed::Debounced),
            Conflict::Keep | Conflict::Reject | Conflict::After => Err(Kind::Conflict),
        };
        assert_eq!(outcome.map(|outcome| outcome.pushed).map_err(|error| error.kind()), expected, "{n}");
    }
    // The first one of each policy, and all that had gathered; with a margin for a scheduler that lets them come in parts.
    let calls = calls(&server).await? - before;
    assert!(calls <= 18, "{calls} calls for 600 pushes");
    Ok(())
}

#[tokio::test]
async fn push_of_a_disconnected_producer_is_stored() -> Result<()> {
    let (_server, proxy, _world, running, orders) = far_away().await?;
    let push = |n: usize| {
        let (broker, orders) = (running.broker.clone(), orders.clone());
        Box::pin(async move { broker.push(&orders, NewMessage::new(format!("{n}"))).await })
    };
    // All are on their way when the first answer comes; then nobody waits for the others any more.
    let (first, _, others) = select_all((0..50).map(push)).await;
    first?;
    drop(others);
    proxy.set(Mode::Pass);
    running.broker.push(&orders, NewMessage::new("after")).await?;
    eventually("all of them are stored", async || Ok((running.messages(&orders).await? == 52).then_some(()))).await
}
