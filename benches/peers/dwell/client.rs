//! dwell through its Rust client, as an application uses it: callers that push one message after the other through one
//! [`Producer`], and one [`Worker`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use dwell_client::{Client, Event, Failure, NewMessage, Producer, TopicSettings, Worker};
use futures_util::future::try_join_all;
use tokio::sync::Notify;

use crate::measures::{self, Peer, Result, Tally};

const HANDLERS: usize = 100;
const TOPIC: &str = "bench";

pub(crate) struct Application {
    client: Client,
    producer: Producer,
}

impl Application {
    pub(crate) async fn open() -> Result<Application> {
        let client = Client::connect(format!("http://127.0.0.1:{}", std::env::var("PORT")?))?;
        client.create_topic(TOPIC, TopicSettings::default()).await?;
        let producer = Producer::new(&client)?;
        Ok(Application { client, producer })
    }
}

impl Peer for Application {
    const BATCH: usize = 100;
    const CALLERS: usize = 32;

    async fn push(&self, _: usize, messages: Vec<(u64, String)>) -> Result<()> {
        let message = |(due, payload)| NewMessage::text(payload).due_at(UNIX_EPOCH + Duration::from_millis(due));
        let pushes = messages.into_iter().map(|one| self.producer.push(TOPIC, message(one)));
        try_join_all(pushes).await?;
        Ok(())
    }

    async fn consume(self: Arc<Self>, count: u64) -> Result<Tally> {
        let (tally, acked, all_acked) = (Arc::new(Mutex::new(Tally::default())), AtomicU64::new(0), Arc::new(Notify::new()));
        let done = all_acked.clone();
        let worker = Worker::builder(&self.client, TOPIC)
            .concurrency(measures::callers(HANDLERS))
            .on_event(move |event, _| {
                if event == Event::Acked && acked.fetch_add(1, Ordering::Relaxed) + 1 == count {
                    done.notify_one();
                }
            })
            .build()?;
        let received = tally.clone();
        let handler = move |delivery: dwell_client::Delivery| {
            let received = received.clone();
            async move {
                let mut tally = received.lock().unwrap_or_else(PoisonError::into_inner);
                tally.received(&delivery.text()).map_err(Failure::boxed)
            }
        };
        let ended = async {
            all_acked.notified().await;
            tally.lock().unwrap_or_else(PoisonError::into_inner).end();
        };
        worker.run_until(ended, handler).await?;
        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(std::mem::take(&mut *tally))
    }
}
