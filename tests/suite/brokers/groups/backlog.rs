//! A large backlog, and a process that is killed half-way through its stream.

use dwell::model::error::Result;
use serde_json::{Value, json};

use super::fleet::{Fleet, ORDERS};
use super::printer::Got;
use super::sidecar::Sidecar;
use crate::support::eventually;

/// Deliveries of one stream that are not settled.
pub(super) const IN_FLIGHT: usize = 500;

/// The command line of a consumer of the sidecar `a`.
pub(super) fn consume(fleet: &Fleet) -> Vec<String> {
    let server = fleet.file("a.sock").display().to_string();
    let line = format!("consume {ORDERS} --stream --json --max {IN_FLIGHT} --server unix:{server}");
    line.split(' ').map(str::to_owned).collect()
}

/// Id and attempt of a line that it prints.
pub(super) fn read(line: &str) -> Option<(String, u64)> {
    let delivery: Value = serde_json::from_str(line).ok()?;
    Some((delivery["id"].as_str()?.to_owned(), delivery["attempt"].as_u64()?))
}

pub(super) async fn push(dwell: &Sidecar, messages: usize) -> Result<()> {
    for page in (0..messages).collect::<Vec<_>>().chunks(1_000) {
        let message = |n: &usize| json!({"id": format!("m{n}"), "payload": "x"});
        dwell.push(ORDERS, &page.iter().map(message).collect::<Vec<_>>()).await?;
    }
    Ok(())
}

pub(super) async fn emptied(dwell: &Sidecar) -> Result<()> {
    eventually("the topic is empty", async || Ok((dwell.counts(ORDERS).await? == [0; 4]).then_some(()))).await
}

/// Two processes read a stream each, and the first is killed half-way.
pub(super) async fn with_one_killed(messages: usize) -> Result<Got> {
    let (fleet, members) = Fleet::with(16, &["a"]).await?;
    push(&members[0], messages).await?;
    let (mut got, args) = (Got::nothing(), consume(&fleet));
    let killed = got.start(&args, read)?;
    let _stays = got.start(&args, read)?;
    got.until(messages / 2).await?;
    killed.kill().await?;
    got.until(messages).await?;
    emptied(&members[0]).await?;
    Ok(got)
}

#[cfg(test)]
#[tokio::test]
async fn killed_stream_consumer_loses_nothing() -> Result<()> {
    let got = with_one_killed(5_000).await?;
    let again = got.again();
    println!("{} came, {} as a later attempt, {} of them for the second time", got.count(), again.later, again.twice);
    assert!(again.is_right && (1..=IN_FLIGHT).contains(&again.later), "{} {}", again.later, again.is_right);
    Ok(())
}
