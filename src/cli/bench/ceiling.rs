//! What the same machine does without dwell, in the same run: no figure of a broker means much by itself.

use std::cell::Cell;
use std::fs::File;
use std::io::Write as _;

use futures_util::future::try_join_all;

use super::results::Name;
use super::speed::CONNECTIONS;
use super::workload::per_second;
use super::{BATCH, Bench, LANES};
use crate::app::engine::{BaselineRedis, BaselineStyle};
use crate::cli::failure::Failure;
use crate::platform::clock::Clock;

/// PINGs of one write.
const PINGS: usize = 100;

/// The name of a ceiling.
pub(super) fn ceiling(way: &str) -> Option<Name> {
    Some(("ceiling", way.to_owned()))
}

/// The name of the ceiling of `/livez`.
pub(super) fn livez(connections: usize) -> String {
    format!("GET /livez, {connections} connections")
}

/// Measures every ceiling once.
pub(super) async fn run(bench: &Bench) -> Result<(), Failure> {
    let messages = bench.plan.messages;
    let note = |way: &str, unit, value| bench.note(("ceiling", way.to_owned()), unit, value, None);
    match &bench.stores.bare {
        Some(bare) => {
            let key = |lane: usize| format!("{}:{lane}", bench.bare_prefix());
            let lanes = PushBatcher { bare, payload: bench.payload.as_bytes(), key: &key };
            note("bare push", "messages/s", lanes.run(messages, Step::Push).await?);
            note("bare drain", "messages/s", lanes.run(messages, Step::Take).await?);
            note("bare life", "messages/s", lanes.run(messages, Step::Both).await?);
            let began = Clock::System.instant();
            for _ in 0..messages.div_ceil(PINGS) {
                bare.ping(PINGS).await?;
            }
            let pings = messages.div_ceil(PINGS) * PINGS;
            note("PING, pipelined", "requests/s", per_second(pings, Clock::System.instant().since(began)));
        }
        None => note("write and fsync", "messages/s", fsyncs(bench)?),
    }
    for connections in CONNECTIONS {
        let requests = bench.plan.single_messages(connections);
        let left = Cell::new(requests);
        let lane = async || {
            while left.get() > 0 {
                left.set(left.get() - 1);
                bench.sidecar.client.live().await?;
            }
            Ok::<_, Failure>(())
        };
        let (began, processor) = (Clock::System.instant(), bench.processor()?);
        try_join_all((0..connections).map(|_| lane())).await?;
        let spent = bench.processor()?.saturating_sub(processor);
        bench.note_processor(livez(connections), spent, requests, None);
        note(&livez(connections), "requests/s", per_second(requests, Clock::System.instant().since(began)));
    }
    Ok(())
}

/// Bytes of a batch appended to a file and fsynced, again and again.
fn fsyncs(bench: &Bench) -> Result<f64, Failure> {
    let path = bench.stores.scratch.path().join("ceiling");
    let failed = |error: std::io::Error| Failure::new(format!("cannot write {}: {error}", path.display()));
    let mut file = File::create(&path).map_err(failed)?;
    let batch = bench.payload.repeat(BATCH);
    let batches = bench.plan.messages.div_ceil(BATCH);
    let began = Clock::System.instant();
    for _ in 0..batches {
        file.write_all(batch.as_bytes()).map_err(failed)?;
        file.sync_data().map_err(failed)?;
    }
    let took = Clock::System.instant().since(began);
    std::fs::remove_file(&path).map_err(failed)?;
    Ok(per_second(batches * BATCH, took))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Push,
    Take,
    Both,
}

/// As many callers as a load of batches has, each with keys of its own as a partition has.
struct PushBatcher<'a> {
    bare: &'a BaselineRedis,
    payload: &'a [u8],
    key: &'a dyn Fn(usize) -> String,
}

impl PushBatcher<'_> {
    /// Answers messages a second.
    async fn run(&self, messages: usize, step: Step) -> Result<f64, Failure> {
        let batches = messages.div_ceil(LANES * BATCH).max(1);
        let lane = async |lane: usize| {
            let key = (self.key)(lane);
            for n in 0..batches {
                if step != Step::Take {
                    self.bare.push(&key, &ids(n), self.payload, BaselineStyle::Together).await?;
                }
                if step != Step::Push && self.bare.take(&key, BATCH, BaselineStyle::Together).await? != BATCH {
                    return Err(Failure::new("bare messages are missing"));
                }
            }
            Ok(())
        };
        let began = Clock::System.instant();
        try_join_all((0..LANES).map(lane)).await?;
        Ok(per_second(batches * LANES * BATCH, Clock::System.instant().since(began)))
    }
}

/// The ids of a batch, as long as dwell's own.
pub(super) fn ids(batch: usize) -> Vec<String> {
    (0..BATCH).map(|n| format!("{:026}", batch * BATCH + n)).collect()
}
