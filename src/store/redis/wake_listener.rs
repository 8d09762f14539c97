//! Listens to the wake channels of the partitions where someone sleeps, at the node that has each of them.
//!
//! Announcements may be lost, so after every (re)subscription everyone concerned looks for themselves. Channels are those
//! of one slot, as keys are, so that an announcement stays in its node.

use std::collections::{BTreeSet, HashMap};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, PushInfo, PushKind, Value};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{Shared, failure};
use crate::model::error::{Error, Result};
use crate::model::partition::Partition;
use crate::platform::clock::Clock;
use crate::store::{Channel, Wakes};
use crate::telemetry::metrics::{Metrics, RemoteDrop};

const RECONNECT_AFTER: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Timeouts of a call after which a silent connection is tested: announcements into a half-open one are late by these.
const PING_AFTER: u32 = 5;

/// Payload of the announcement by `release`; that of `push` and `redrive` is the due time of the earlier head.
const RELEASED: &[u8] = b"released";

const CHANGED: &[u8] = b"changed";

type Channels = HashMap<String, Channel>;

struct Subscriptions {
    channels: Mutex<Channels>,
    wakes: Wakes,
    metrics: Arc<Metrics>,
    lost: Notify,
}

impl Subscriptions {
    fn channels(&self) -> MutexGuard<'_, Channels> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deliver(&self, datagram: &[u8]) {
        if !self.wakes.deliver(Bytes::copy_from_slice(datagram)) {
            self.metrics.remote.dropped(RemoteDrop::Full);
        }
    }

    fn receive(&self, info: &PushInfo) {
        let name = match info.data.first() {
            Some(Value::BulkString(name)) => String::from_utf8_lossy(name),
            _ => "".into(),
        };
        let channel = self.channels().get(&*name).cloned();
        let text = || match info.data.get(1) {
            Some(Value::BulkString(text)) => text.as_slice(),
            _ => b"",
        };
        match (&info.kind, channel) {
            (PushKind::SMessage, Some(Channel::Member(_))) => self.deliver(text()),
            (PushKind::SMessage, Some(channel)) => self.wakes.wake(&meant(channel, text())),
            // Redis says so unasked when the slot of the channel has moved.
            (PushKind::SUnsubscribe, Some(_)) | (PushKind::Disconnection, _) => self.lost.notify_one(),
            _ => {}
        }
    }
}

fn meant(channel: Channel, payload: &[u8]) -> Channel {
    let is_meant = |channel: &Channel| match channel {
        Channel::Head(..) => payload != RELEASED && payload != CHANGED,
        Channel::Release(..) => payload == RELEASED,
        Channel::Changed(..) => payload == CHANGED,
        Channel::Members(..) | Channel::CronJobs | Channel::Member(_) => true,
    };
    channel.beside().into_iter().find(is_meant).unwrap_or(channel)
}

pub(super) async fn run(shared: &Shared, stop: CancellationToken) {
    let mut places = shared.connection.places();
    let mut listened = BTreeSet::new();
    let mut listening = FuturesUnordered::new();
    loop {
        let there = places.borrow_and_update().clone();
        for place in there.difference(&listened) {
            listening.push(listen_at(shared, place.clone()));
        }
        listened.extend(there);
        tokio::select! {
            () = stop.cancelled() => return,
            Ok(()) = places.changed() => {}
            Some(gone) = listening.next() => {
                listened.remove(&gone);
            }
        }
    }
}

/// Listens at a node for as long as it is one, and returns which it was.
async fn listen_at(shared: &Shared, place: String) -> String {
    let mut pause = RECONNECT_AFTER.0;
    while shared.connection.places().borrow().contains(&place) {
        let (wakes, metrics) = (shared.wakes.clone(), shared.metrics.clone());
        let subscriptions = Arc::new(Subscriptions { channels: Mutex::default(), wakes, metrics, lost: Notify::new() });
        let receiver = subscriptions.clone();
        let sink = move |info: PushInfo| -> Result<()> {
            receiver.receive(&info);
            Ok(())
        };
        match shared.connection.subscribe(&place, sink).await {
            Ok(connection) => {
                pause = RECONNECT_AFTER.0;
                if let Err(error) = listen(shared, &place, connection, &subscriptions).await {
                    log(&place, &error, pause);
                }
                // Perhaps its channels are elsewhere now.
                shared.connection.look_again().await;
            }
            Err(error) => log(&place, &error, pause),
        }
        Clock::System.sleep(pause).await;
        pause = (pause * 2).min(RECONNECT_AFTER.1);
    }
    place
}

/// Once is enough: what it costs is lateness.
fn log(place: &str, error: &Error, pause: Duration) {
    if pause == RECONNECT_AFTER.0 {
        tracing::warn!(%error, place, "announcements are not heard: messages may be late");
    } else {
        tracing::debug!(%error, place, "announcements are not heard");
    }
}

async fn listen(
    shared: &Shared,
    place: &str,
    mut connection: MultiplexedConnection,
    subscriptions: &Subscriptions,
) -> Result<()> {
    let (mut changes, mut places) = (shared.wakes.changes(), shared.connection.places());
    let mut renewed = pin!(shared.connection.renewed());
    loop {
        follow(shared, place, &mut connection, subscriptions).await?;
        tokio::select! {
            () = subscriptions.lost.notified() => return Ok(()),
            () = &mut renewed => return Ok(()),
            Ok(()) = changes.changed() => {}
            Ok(()) = places.changed() => {}
            () = Clock::System.sleep(shared.connection.timeout() * PING_AFTER) => {
                let answer = connection.send_packed_command(&redis::cmd("PING")).await;
                answer.map_err(|error| failure::of_call(&error))?;
            }
        }
    }
}

async fn follow(
    shared: &Shared,
    place: &str,
    connection: &mut MultiplexedConnection,
    subscriptions: &Subscriptions,
) -> Result<()> {
    let wanted = channels(shared, place);
    let (unwanted, fresh) = {
        let mut subscribed = subscriptions.channels();
        let only_in = |these: &Channels, others: &Channels| -> Vec<String> {
            these.keys().filter(|name| !others.contains_key(*name)).cloned().collect()
        };
        let changes = (only_in(&subscribed, &wanted), only_in(&wanted, &subscribed));
        *subscribed = wanted;
        changes
    };
    send(connection, "SUNSUBSCRIBE", &unwanted).await?;
    send(connection, "SSUBSCRIBE", &fresh).await?;
    for name in &fresh {
        let channel = subscriptions.channels().get(name).cloned();
        channel.iter().flat_map(Channel::beside).for_each(|beside| shared.wakes.wake(&beside));
    }
    Ok(())
}

/// One command for each channel, since the slots of one command's channels have to be the same.
async fn send(connection: &mut MultiplexedConnection, command: &str, names: &[String]) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    let mut commands = Pipeline::with_capacity(names.len());
    for name in names {
        commands.cmd(command).arg(name);
    }
    let sent = connection.send_packed_commands(&commands, 0, names.len()).await;
    let refused = sent.map_err(|error| failure::of_call(&error))?.into_iter().find_map(|answer| match answer {
        Value::ServerError(error) => Some(failure::of_call(&error.into())),
        _ => None,
    });
    refused.map_or(Ok::<(), Error>(()), Err)
}

fn channels(shared: &Shared, place: &str) -> Channels {
    let named = |channel: Channel| {
        let name = match &channel {
            Channel::Head(topic, partition) | Channel::Release(topic, partition) => shared.keys.wake(topic, *partition),
            Channel::Changed(topic) => shared.keys.wake(topic, Partition(0)),
            Channel::Members(topic, group) => shared.keys.members(topic, group).wake,
            Channel::CronJobs => shared.keys.cron_partitions(),
            Channel::Member(member) => shared.keys.member(member),
        };
        (shared.connection.place_of(&name) == place).then_some((name, channel))
    };
    shared.wakes.channels().into_iter().filter_map(named).collect()
}
