//! The client that measures dwell beside its peers: `peer http|library push|drain|lateness|burst|idle`.

#[path = "../measures.rs"]
mod measures;
mod side;

use std::sync::Arc;

use measures::Result;
use side::Side;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (mode, measure) = (arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default());
    measures::run(Arc::new(Side::open(&mode).await?), &measure).await
}
