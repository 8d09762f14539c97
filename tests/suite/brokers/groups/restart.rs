//! A new version is rolled out: one member after the other stops and starts again.

use std::time::{Duration, Instant};

use dwell::model::error::Result;
use rustix::process::Signal;

use super::fleet::{Fleet, ORDERS};
use super::load::Load;
use super::rounds;

#[tokio::test]
async fn rolling_restart_neither_loses_nor_repeats() -> Result<()> {
    let (fleet, mut members) = Fleet::with(32, &["a", "b", "c"]).await?;
    let mut load = Load::start(&members);
    members[0].shared(ORDERS, &[11, 11, 10]).await?;
    for round in 0..rounds(1) {
        for index in 0..members.len() {
            load.flows(100).await?;
            let (leaves, stays) = (members[index].clone(), members[(index + 1) % members.len()].clone());
            load.leave(&leaves);
            let since = Instant::now();
            leaves.signal(Signal::TERM)?;
            stays.shared(ORDERS, &[16, 16]).await?;
            let taken = since.elapsed();
            assert!(leaves.ended().await?.success(), "{}", leaves.log());
            let ended = since.elapsed();

            members[index] = fleet.start(&format!("{}{round}", leaves.name)).await?;
            load.join(&members[index]);
            let joined = stays.shared(ORDERS, &[11, 11, 10]).await?;
            println!("{}: taken over in {taken:?}, ended after {ended:?}, joined in {joined:?}", leaves.name);
            assert!(taken < Duration::from_secs(3) && joined < Duration::from_secs(3), "{taken:?} {joined:?}");
        }
    }
    load.drained(&members[0], |book| book.is_exactly_once()).await
}
