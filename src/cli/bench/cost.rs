//! What the life of a message costs Redis, by its own account, beside what it costs bare.

use std::num::NonZeroU16;

use super::ceiling::ids;
use super::pending::{lives, ratio};
use super::target::Target;
use super::{BATCH, Bench};
use crate::app::engine::{BaselineRedis, BaselineStyle, RedisUsage};
use crate::cli::failure::Failure;

/// The commands of a bare life.
const BARE: [&str; 6] = ["zadd", "hset", "zrange", "zrem", "hmget", "hdel"];

/// The commands that the scripts of a life spend their time with.
const INSIDE: [&str; 5] = ["zadd", "hset", "zrange", "hmget", "hdel"];

/// What the other costs are compared with: a command for each message, as one pipelines without scripts.
const CEILING: &str = "bare, a command for each message";

/// Batches of one partition: pushed, reserved, acked, and the next.
pub(super) async fn run(bench: &Bench, bare: &BaselineRedis) -> Result<(), Failure> {
    let lives_count = bench.plan.messages.div_ceil(BATCH);
    let key = format!("{}:cost", bench.bare_prefix());
    for (style, way) in [(BaselineStyle::Each, CEILING), (BaselineStyle::Together, "bare, a command for each batch")] {
        let before = bare.usage().await?;
        for n in 0..lives_count {
            bare.push(&key, &ids(n), bench.payload.as_bytes(), style).await?;
            bare.take(&key, BATCH, style).await?;
        }
        note(bench, bare, way, &BARE, &before).await?;
    }
    let door = Target::Library(bench.library.broker().clone());
    let topic = bench.topic_of(&door, "cost", NonZeroU16::MIN).await?;
    // The lease is taken before.
    door.reserve(&topic, 1, std::time::Duration::ZERO).await?;
    let before = bare.usage().await?;
    lives(bench, &door, &topic, lives_count).await?;
    note(bench, bare, "dwell", &["evalsha"], &before).await?;
    inside(bench, bare, &before).await?;
    door.delete(&topic).await
}

/// What the commands took that the scripts called; the rest of the scripts' time is Lua.
async fn inside(bench: &Bench, bare: &BaselineRedis, before: &RedisUsage) -> Result<(), Failure> {
    let after = bare.usage().await?;
    let messages = bench.plan.messages.div_ceil(BATCH) * BATCH;
    let of_scripts = Some(("cost", "dwell, commands".to_owned()));
    for command in INSIDE {
        let (_, micros) = after.of(&[command], before);
        let way = format!("dwell, inside the scripts: {}", command.to_uppercase());
        bench.note(("cost", way), "µs/message", ratio(micros, messages), of_scripts.clone());
    }
    Ok(())
}

async fn note(
    bench: &Bench,
    bare: &BaselineRedis,
    way: &str,
    commands: &[&str],
    before: &RedisUsage,
) -> Result<(), Failure> {
    let after = bare.usage().await?;
    let messages = bench.plan.messages.div_ceil(BATCH) * BATCH;
    let (_, micros) = after.of(commands, before);
    let of = |what: &str| Some(("cost", format!("{CEILING}, {what}")));
    let name = |what: &str| ("cost", format!("{way}, {what}"));
    bench.note(name("commands"), "µs/message", ratio(micros, messages), of("commands"));
    let cpu = after.cpu_us.saturating_sub(before.cpu_us);
    bench.note(name("whole process"), "µs/message", ratio(cpu, messages), of("whole process"));
    Ok(())
}
