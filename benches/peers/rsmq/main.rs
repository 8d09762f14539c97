//! Measures rsmq_async: `peer-rsmq push|drain|lateness|burst|idle`.

#[path = "../measures.rs"]
mod measures;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::try_join_all;
use measures::{Peer, Result, Taken, Taker, Tally};
use rsmq_async::{Rsmq, RsmqConnection, RsmqOptions};

const NAME: &str = "bench";
/// How long a consumer that found nothing waits before it asks again.
const POLL: Duration = Duration::from_millis(10);

/// One connection for each caller, each multiplexed.
struct Connections(Vec<Rsmq>);

#[tokio::main]
async fn main() -> Result<()> {
    let measure = std::env::args().nth(1).unwrap_or_default();
    let options =
        RsmqOptions { host: "127.0.0.1".to_owned(), port: std::env::var("REDIS_PORT")?.parse()?, ..Default::default() };
    let mut connections = Vec::new();
    for _ in 0..measures::callers(Connections::CALLERS) {
        connections.push(Rsmq::new(options.clone()).await?);
    }
    connections[0].create_queue(NAME, Some(Duration::from_secs(300)), None, None).await?;
    measures::run(Arc::new(Connections(connections)), &measure).await
}

/// How long from now until then, for an interface that knows delays only. In whole milliseconds, rounded up: it drops
/// the fraction, and early would be wrong.
fn until(due: u64) -> Option<Duration> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    Some(Duration::from_millis(due.saturating_sub(now)))
}

impl Peer for Connections {
    const BATCH: usize = 1_000;
    const CALLERS: usize = 4;

    async fn push(&self, caller: usize, messages: Vec<(u64, String)>) -> Result<()> {
        let due = messages.first().map_or(0, |message| message.0);
        if messages.iter().all(|message| message.0 == due) {
            let payloads = messages.into_iter().map(|message| message.1).collect();
            self.0[caller].clone().send_message_batch(NAME, payloads, until(due)).await?;
        } else {
            // A batch has one delay for all: these go one by one, all at the same time over one connection.
            let one = |(due, payload)| {
                let mut connection = self.0[caller].clone();
                async move { connection.send_message(NAME, payload, until(due)).await }
            };
            try_join_all(messages.into_iter().map(one)).await?;
        }
        Ok(())
    }

    async fn consume(self: Arc<Self>, count: u64) -> Result<Tally> {
        measures::take_and_ack(self, count).await
    }
}

impl Taker for Connections {
    async fn take(&self, caller: usize) -> Result<Vec<Taken>> {
        let messages = self.0[caller].clone().receive_message_batch::<String>(NAME, None, self.batch() as u32).await?;
        if messages.is_empty() {
            tokio::time::sleep(POLL).await;
        }
        Ok(messages.into_iter().map(|message| Taken { receipt: message.id, payload: message.message }).collect())
    }

    async fn ack(&self, caller: usize, taken: Vec<Taken>) -> Result<usize> {
        // There is no delete of many: all at the same time over one connection.
        let one = |taken: Taken| {
            let mut connection = self.0[caller].clone();
            async move { connection.delete_message(NAME, &taken.receipt).await }
        };
        let deleted = try_join_all(taken.into_iter().map(one)).await?;
        Ok(deleted.into_iter().filter(|deleted| *deleted).count())
    }
}
