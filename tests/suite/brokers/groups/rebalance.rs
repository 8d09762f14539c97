//! Members come and go, and the partitions are shared evenly among those that are there.

use dwell::model::error::Result;
use rustix::process::Signal;
use std::time::{Duration, Instant};

use super::fleet::Fleet;
use super::fleet::ORDERS;
use super::load::Load;

#[tokio::test]
async fn rebalance_moves_shares_without_loss_or_duplicates() -> Result<()> {
    let (fleet, mut members) = Fleet::with(32, &["a", "b", "c"]).await?;
    let mut load = Load::start(&members);
    let three = members[0].shared(ORDERS, &[11, 11, 10]).await?;
    load.flows(200).await?;

    members.push(fleet.start("d").await?);
    load.join(&members[3]);
    let four = members[0].shared(ORDERS, &[8, 8, 8, 8]).await?;
    load.flows(200).await?;

    load.leave(&members[3]);
    let since = Instant::now();
    members[3].signal(Signal::TERM)?;
    members[0].shared(ORDERS, &[11, 11, 10]).await?;
    let left = since.elapsed();
    assert!(members[3].ended().await?.success());
    load.flows(200).await?;

    println!("32 partitions: 3 members share after {three:?}, a 4th joins in {four:?}, and leaves in {left:?}");
    let limit = Duration::from_secs(3);
    assert!(four < limit && left < limit, "{four:?} {left:?}");
    load.drained(&members[0], |book| book.is_exactly_once()).await
}
