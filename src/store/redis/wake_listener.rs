//! Listens to the wake channels of the partitions where someone sleeps.
//!
//! Pub/sub may lose announcements, so after every (re)subscription everyone concerned looks for themselves.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt;
use redis::RedisResult;
use redis::aio::PubSub;
use tokio_util::sync::CancellationToken;

use super::Shared;
use crate::clock::Clock;
use crate::store::Channel;

/// The pause before a lost connection is made anew: from the first to the longest.
const RECONNECT_AFTER: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Timeouts of a call that nothing may be heard on a connection before it is asked whether it is still one: announcements
/// that went into a half-open one are late by these and one more.
const PING_AFTER: u32 = 5;

/// What `release` says where `push` and `redrive` say when the earlier head is due.
const RELEASED: &[u8] = b"released";

/// What is announced in each channel of Redis, or one of two things.
type Channels = HashMap<String, Channel>;

/// Listens until `stop`.
pub(super) async fn run(shared: &Shared, stop: CancellationToken) {
    let mut pause = RECONNECT_AFTER.0;
    while !stop.is_cancelled() {
        let listening = async {
            if let Ok(connection) = shared.connection.listen().await {
                pause = RECONNECT_AFTER.0;
                // Any failure means a new connection.
                let _ = listen(shared, connection).await;
            }
            Clock::System.sleep(pause).await;
            pause = (pause * 2).min(RECONNECT_AFTER.1);
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = listening => {}
        }
    }
}

async fn listen(shared: &Shared, connection: PubSub) -> RedisResult<()> {
    let (mut sink, mut messages) = connection.split();
    let mut changes = shared.wakes.changes();
    let mut subscribed = Channels::new();
    changes.mark_changed();
    loop {
        tokio::select! {
            () = Clock::System.sleep(shared.connection.timeout() * PING_AFTER) => {
                tokio::select! {
                    answered = sink.ping::<redis::Value>() => answered.map(drop)?,
                    () = Clock::System.sleep(shared.connection.timeout()) => return Ok(()),
                }
            }
            changed = changes.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
                changes.mark_unchanged();
                let wanted = channels(shared);
                for channel in subscribed.keys().filter(|channel| !wanted.contains_key(*channel)) {
                    sink.unsubscribe(channel).await?;
                }
                let fresh: Vec<&String> = wanted.keys().filter(|channel| !subscribed.contains_key(*channel)).collect();
                if !fresh.is_empty() {
                    sink.subscribe(&fresh).await?;
                }
                for channel in fresh.iter().filter_map(|name| wanted.get(*name)) {
                    shared.wakes.wake(channel);
                    channel.twin().iter().for_each(|twin| shared.wakes.wake(twin));
                }
                subscribed = wanted;
            }
            message = messages.next() => {
                let Some(message) = message else { return Ok(()) };
                if let Some(channel) = subscribed.get(message.get_channel_name()) {
                    let is_release = message.get_payload_bytes() == RELEASED;
                    let twin = channel.twin().filter(|_| matches!(channel, Channel::Release(..)) != is_release);
                    shared.wakes.wake(twin.as_ref().unwrap_or(channel));
                }
            }
        }
    }
}

fn channels(shared: &Shared) -> Channels {
    let named = |channel: Channel| {
        let name = match &channel {
            Channel::Head(topic, partition) | Channel::Release(topic, partition) => {
                shared.keys.partition(topic, *partition).wake
            }
            Channel::Members(topic, group) => shared.keys.members(topic, group).wake,
        };
        (name, channel)
    };
    shared.wakes.channels().into_iter().map(named).collect()
}
