//! What Redis and dwell do to each other when one of them fails, held to what producers were answered.
//!
//! Each fault is brought about while producers and consumers are at work, and healed; then everything is drained and the
//! ledger closed. What several faults do together the simulator searches: `tests/sim`.

mod story;

use std::time::Duration;

use dwell::model::error::Result;
use rustix::process::Signal;

use self::story::{Story, told};
use crate::support::{Bounds, Mode, RedisServer, Strike};

/// Redis dies and comes back with all it had answered.
#[tokio::test]
async fn redis_killed() -> Result<()> {
    told(Story::durable().await?, Bounds::default(), async |story| {
        story.redis.kill()?;
        story.outage().await?;
        story.redis.restart().await
    })
    .await
}

/// Redis dies and comes back with nothing: the journal has what it took. Acks are lost with it.
#[tokio::test]
async fn redis_emptied_with_a_journal() -> Result<()> {
    let story =
        Story::with(RedisServer::start().await?, &[("DURABILITY", "journal"), ("JOURNAL_WINDOW", "1h")]).await?;
    told(story, Bounds { uncharged: true, again: true }, async |story| {
        story.redis.kill()?;
        story.outage().await?;
        story.redis.restart().await
    })
    .await
}

/// The primary is cut off from its replica and goes on, and then the replica is the primary: what only the old one took
/// is in the journal. Acks are lost with it.
#[tokio::test]
async fn a_split_brain_with_a_journal() -> Result<()> {
    let story =
        Story::with(RedisServer::start().await?, &[("DURABILITY", "journal"), ("JOURNAL_WINDOW", "1h")]).await?;
    told(story, Bounds { uncharged: true, again: true }, async |story| {
        let replica = RedisServer::start().await?;
        story.redis.copy_to(&replica).await?;
        story.outage().await?;
        story.proxy.lead_to(&replica);
        story.redis = replica;
        Ok(())
    })
    .await
}

/// The way to Redis is cut: connections break, and are refused.
#[tokio::test]
async fn connections_refused() -> Result<()> {
    told(Story::durable().await?, Bounds::default(), async |story| {
        story.proxy.set(Mode::Refuse);
        story.outage().await?;
        story.proxy.set(Mode::Pass);
        Ok(())
    })
    .await
}

/// Nothing gets through any more, and nobody says so.
#[tokio::test]
async fn half_open_connections() -> Result<()> {
    told(Story::durable().await?, Bounds::default(), async |story| {
        story.proxy.set(Mode::BlackHole);
        story.outage().await?;
        story.proxy.set(Mode::Pass);
        Ok(())
    })
    .await
}

/// Every call takes 2 s, which is longer than any may.
#[tokio::test]
async fn a_slow_redis() -> Result<()> {
    told(Story::durable().await?, Bounds::default(), async |story| {
        story.proxy.set(Mode::Delay(Duration::from_secs(2)));
        story.outage().await?;
        story.proxy.set(Mode::Pass);
        Ok(())
    })
    .await
}

/// Redis stands still, and applies what was sent to it when it goes on.
#[tokio::test]
async fn a_frozen_redis() -> Result<()> {
    told(Story::durable().await?, Bounds::default(), async |story| {
        story.signal(Signal::STOP)?;
        story.outage().await?;
        story.signal(Signal::CONT)
    })
    .await
}

/// Redis applies calls, and their replies are lost.
#[tokio::test]
async fn replies_cut() -> Result<()> {
    told(Story::durable().await?, Bounds::default(), async |story| story.strikes(Strike::Reply).await).await
}

/// Calls are lost on the way to Redis.
#[tokio::test]
async fn requests_cut() -> Result<()> {
    told(Story::durable().await?, Bounds::default(), async |story| story.strikes(Strike::Request).await).await
}

/// Redis becomes a replica, on the same connection, and a primary again.
#[tokio::test]
async fn a_read_only_redis() -> Result<()> {
    told(Story::durable().await?, Bounds::default(), async |story| {
        story.redis.ask::<String>("REPLICAOF 127.0.0.1 1").await?;
        story.outage().await?;
        story.redis.ask::<String>("REPLICAOF NO ONE").await.map(drop)
    })
    .await
}

/// Redis has no memory left for a push.
#[tokio::test]
async fn a_full_redis() -> Result<()> {
    told(Story::durable().await?, Bounds::default(), async |story| {
        story.redis.ask::<String>("CONFIG SET maxmemory 1").await?;
        story.outage().await?;
        story.redis.ask::<String>("CONFIG SET maxmemory 0").await.map(drop)
    })
    .await
}

/// Redis forgets the scripts: nobody notices.
#[tokio::test]
async fn scripts_forgotten() -> Result<()> {
    told(Story::durable().await?, Bounds::default(), async |story| {
        story.redis.ask::<String>("SCRIPT FLUSH").await?;
        story.outage().await
    })
    .await
}

/// dwell dies while Redis is away: what it answered 202 is on its disk.
#[tokio::test]
async fn dwell_killed_in_an_outage() -> Result<()> {
    told(Story::durable().await?, Bounds::default(), async |story| {
        story.proxy.set(Mode::Refuse);
        story.outage().await?;
        story.dwell_killed().await?;
        story.outage().await?;
        story.proxy.set(Mode::Pass);
        Ok(())
    })
    .await
}

/// Both die, and Redis comes back later.
#[tokio::test]
async fn both_killed() -> Result<()> {
    told(Story::durable().await?, Bounds::default(), async |story| {
        story.redis.kill()?;
        story.outage().await?;
        story.dwell_killed().await?;
        story.redis.restart().await
    })
    .await
}
