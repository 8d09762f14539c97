//! Throughput: pushing, draining a backlog, and the whole life of messages at once.

use std::time::Duration;

use super::ceiling::{ceiling, livez};
use super::target::{Target, Wanted};
use super::workload::Load;
use super::{BATCH, Bench, LANES};
use crate::cli::failure::Failure;

/// Connections of the load of single messages.
pub(super) const CONNECTIONS: [usize; 3] = [1, 32, 256];

/// Measures every way once.
pub(super) async fn run(bench: &Bench) -> Result<(), Failure> {
    let library = Target::Library(bench.library.broker().clone());
    let http = Target::Http(bench.sidecar.client.clone());
    batches(bench, &library).await?;
    batches(bench, &http).await?;
    for connections in CONNECTIONS {
        single(bench, &http, connections).await?;
    }
    Ok(())
}

async fn batches(bench: &Bench, door: &Target) -> Result<(), Failure> {
    let way = format!("{}, batch {BATCH}", door.name());
    let of = |what: &str| match bench.stores.bare {
        Some(_) => ceiling(&format!("bare {what}")),
        None => ceiling("write and fsync").filter(|_| what != "drain"),
    };
    measured(bench, door, &way, (BATCH, LANES), bench.plan.messages, of).await
}

async fn single(bench: &Bench, door: &Target, connections: usize) -> Result<(), Failure> {
    let way = format!("{}, single, {connections} connections", door.name());
    let messages = bench.plan.single_messages(connections);
    measured(bench, door, &way, (1, connections), messages, |_| ceiling(&livez(connections))).await
}

async fn measured(
    bench: &Bench,
    door: &Target,
    way: &str,
    (batch, lanes): (usize, usize),
    messages: usize,
    of: impl Fn(&str) -> Option<super::results::Name>,
) -> Result<(), Failure> {
    let note = |what: &'static str, value| bench.note((what, way.to_owned()), "messages/s", value, of(what));
    // What it costs the sidecar says more than how fast it was, where others want the processors too.
    let cost = |what: &str, spent: Duration| match door {
        Target::Http(_) => bench.note_processor(format!("{what}, {way}"), spent, messages, ceiling_processor()),
        Target::Library(_) => {}
    };
    if bench.plan.wants("push") || bench.plan.wants("drain") {
        let topic = bench.topic(door, "backlog").await?;
        let load = Load { door, topic, payload: &bench.payload, batch, lanes };
        let before = bench.processor()?;
        note("push", load.push(messages, |_| Wanted::default()).await?);
        let between = bench.processor()?;
        note("drain", load.drain(messages).await?);
        cost("push", between.saturating_sub(before));
        cost("drain", bench.processor()?.saturating_sub(between));
        door.delete(&load.topic).await?;
    }
    if bench.plan.wants("life") {
        let topic = bench.topic(door, "life").await?;
        let load = Load { door, topic, payload: &bench.payload, batch, lanes };
        let before = bench.processor()?;
        note("life", load.life(messages).await?);
        cost("life", bench.processor()?.saturating_sub(before));
        door.delete(&load.topic).await?;
    }
    Ok(())
}

/// What the sidecar's processor time for a message is compared with: that for the smallest request.
fn ceiling_processor() -> Option<super::results::Name> {
    Some(("processor", livez(32)))
}
