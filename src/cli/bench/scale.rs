//! Throughput with more partitions, and with more members that share them.

use std::num::NonZeroU16;

use futures_util::future::try_join_all;

use super::ceiling::ceiling;
use super::target::Target;
use super::workload::{Load, per_second};
use super::{BATCH, Bench, LANES};
use crate::app::embed::Dwell;
use crate::cli::failure::Failure;
use crate::platform::clock::Clock;

/// Partitions of a topic with one member.
const PARTITIONS: [u16; 4] = [1, 4, 16, 64];

/// Members that share a topic of 16 partitions.
const MEMBERS: [usize; 3] = [1, 2, 4];

/// Measures every size once. Several members need a store that they share.
pub(super) async fn run(bench: &Bench) -> Result<(), Failure> {
    let one = Target::Library(bench.library.broker().clone());
    let of = || ceiling(if bench.stores.bare.is_some() { "bare life" } else { "write and fsync" });
    for partitions in PARTITIONS {
        let topic = bench.topic_of(&one, "scale", NonZeroU16::new(partitions).unwrap_or(NonZeroU16::MIN)).await?;
        let load = Load { door: &one, topic, payload: &bench.payload, batch: BATCH, lanes: LANES };
        let rate = load.life(bench.plan.messages).await?;
        bench.note(("scale", format!("{partitions} partitions, 1 member")), "messages/s", rate, of());
        one.delete(&load.topic).await?;
    }
    for members in MEMBERS.into_iter().filter(|_| bench.stores.bare.is_some()) {
        let mut fleet = Vec::new();
        for n in 0..members {
            fleet.push(bench.stores.library("scale", &format!("member-{n}")).await?);
        }
        let rate = shared(bench, &fleet).await?;
        bench.note(("scale", format!("16 partitions, {members} members")), "messages/s", rate, of());
        for member in fleet {
            member.close().await?;
        }
    }
    Ok(())
}

/// A backlog that the members drain together, after each has taken its share of the partitions.
async fn shared(bench: &Bench, fleet: &[Dwell]) -> Result<f64, Failure> {
    let doors: Vec<Target> = fleet.iter().map(|member| Target::Library(member.broker().clone())).collect();
    let Some(first) = doors.first() else { return Ok(0.0) };
    let topic = bench.topic_of(first, "fleet", NonZeroU16::new(16).unwrap_or(NonZeroU16::MIN)).await?;
    let each = bench.plan.messages.div_ceil(fleet.len());
    // Until each has its share: it asks, and waits a moment.
    let joining = doors.iter().map(|door| door.reserve(&topic, 1, std::time::Duration::from_millis(1_500)));
    try_join_all(joining).await?;
    let began = Clock::System.instant();
    let lanes = LANES.div_ceil(fleet.len());
    let loads: Vec<Load> = doors
        .iter()
        .map(|door| Load { door, topic: topic.clone(), payload: &bench.payload, batch: BATCH, lanes })
        .collect();
    let tally = super::workload::Tally::new(each * fleet.len());
    let pushing = try_join_all(loads.iter().map(|load| load.push(each, |_| Default::default())));
    let consuming = try_join_all(loads.iter().map(|load| load.share(&tally)));
    futures_util::future::try_join(pushing, consuming).await?;
    let rate = per_second(each * fleet.len(), Clock::System.instant().since(began));
    first.delete(&topic).await?;
    Ok(rate)
}
