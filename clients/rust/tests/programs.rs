//! Small programs against a broker whose time they move.

mod lab;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use dwell_client::testing::Broker;
use dwell_client::wire::operations::DueMessages;
use dwell_client::{
    Backoff, Bury, Client, DeadLetterFilter, DeadLetterSelector, Delivery, Failure, MessageFilter, NewCronJob,
    NewMessage, Retry, TopicSettings, Worker,
};
use lab::{Outcome, broker};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const DAY: Duration = Duration::from_secs(86_400);
const MINUTE: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(30);

/// A worker that runs, and what it handled: each id with its attempt.
struct Running {
    worker: Worker,
    ending: JoinHandle<Result<(), dwell_client::Error>>,
    handled: mpsc::UnboundedReceiver<(String, u32)>,
}

impl Running {
    fn start(client: &Client, topic: &str, handler: fn(&Delivery) -> Result<(), Failure>) -> Outcome<Running> {
        let worker = Worker::new(client, topic)?;
        let (send, handled) = mpsc::unbounded_channel();
        let ending = tokio::spawn({
            let worker = worker.clone();
            async move {
                let handle = move |delivery: Delivery| {
                    let _ = send.send((delivery.id.clone(), delivery.attempt));
                    let result = handler(&delivery);
                    async move { result }
                };
                worker.run(handle).await
            }
        });
        Ok(Running { worker, ending, handled })
    }

    async fn next(&mut self) -> Outcome<(String, u32)> {
        Ok(timeout(PATIENCE, self.handled.recv()).await?.ok_or("the worker ended")?)
    }

    /// Waits until so many deliveries are settled.
    async fn settled(&self, count: u64) -> Outcome {
        let settled = async {
            loop {
                let stats = self.worker.stats();
                if stats.acked + stats.nacked + stats.buried >= count {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        Ok(timeout(PATIENCE, settled).await?)
    }

    async fn stop(self) -> Outcome {
        self.worker.stop();
        Ok(timeout(PATIENCE, self.ending).await???)
    }
}

#[tokio::test]
async fn a_reminder_of_30_days() -> Outcome {
    let broker = broker().await?;
    let began = SystemTime::now();
    broker.client().push("reminders", NewMessage::text("renew").id("renew").delay(30 * DAY)).await?;
    assert_eq!(broker.advance(29 * DAY).await?.due, []);
    let due = DueMessages { topic: "reminders".to_owned(), group: "default".to_owned(), messages: 1 };
    assert_eq!(broker.advance(DAY).await?.due, [due]);
    let mut running = Running::start(broker.client(), "reminders", |_| Ok(()))?;
    assert_eq!(running.next().await?, ("renew".to_owned(), 1));
    running.stop().await?;
    assert!(broker.now().await? >= began.into());
    Ok(())
}

#[tokio::test]
async fn a_ladder_of_retries_over_three_hours() -> Outcome {
    let broker = broker().await?;
    let ladder = Backoff::ladder([30 * MINUTE, 60 * MINUTE, 90 * MINUTE]);
    broker.client().create_topic("payments", TopicSettings::default().backoff(ladder)).await?;
    let mut running = Running::start(broker.client(), "payments", |delivery| match delivery.attempt {
        4 => Ok(()),
        _ => Err(Failure::new("no answer of the bank")),
    })?;
    broker.client().push("payments", NewMessage::text("pay").id("pay")).await?;
    for (n, step) in [30 * MINUTE, 60 * MINUTE, 90 * MINUTE, Duration::ZERO].into_iter().enumerate() {
        let attempt = u32::try_from(n)? + 1;
        assert_eq!(running.next().await?, ("pay".to_owned(), attempt));
        running.settled(attempt.into()).await?;
        broker.advance(step).await?;
    }
    running.stop().await
}

#[tokio::test]
async fn a_cron_job_of_every_day() -> Outcome {
    let broker = broker().await?;
    let cron = NewCronJob::at("0 9 * * *").time_zone("Europe/Berlin").text("report").missed("all");
    broker.client().put_cron("reports", "daily", cron).await?;
    let names: Vec<String> = broker.client().crons("reports").all().await?.into_iter().map(|cron| cron.name).collect();
    assert_eq!(names, ["daily"]);
    let moved = broker.advance_to(broker.now().await?.plus(3 * DAY)).await?;
    assert_eq!(moved.fired.iter().map(|fired| fired.times).collect::<Vec<_>>(), [3]);
    broker.client().delete_cron("reports", "daily").await?;
    Ok(())
}

/// Pushes 1,000 messages, and cancels every second one.
#[tokio::test]
async fn a_thousand_messages_of_which_half_are_cancelled() -> Outcome {
    let broker = broker().await?;
    let client = broker.client();
    let message = |n: usize| NewMessage::text("x").id(format!("m-{n}")).key(format!("k-{n}")).delay(MINUTE);
    assert_eq!(client.push_many("orders", (0..1_000).map(message)).await?.len(), 1_000);
    let cancelled =
        client.cancel_many("orders", (0..1_000).step_by(2).map(|n| (format!("m-{n}"), format!("k-{n}")))).await?;
    assert!(cancelled.iter().all(|result| result.as_ref().is_ok_and(|control| control.status == "cancelled")));
    let left = client.list("orders", MessageFilter::default().by_due_time().page(300)).all().await?;
    let ids: BTreeSet<String> = left.into_iter().map(|message| message.id).collect();
    assert_eq!(ids, (1..1_000).step_by(2).map(|n| format!("m-{n}")).collect());
    broker.advance(MINUTE).await?;
    let mut running = Running::start(client, "orders", |_| Ok(()))?;
    let mut handled = BTreeSet::new();
    for _ in 0..500 {
        handled.insert(running.next().await?.0);
    }
    assert_eq!(handled, ids);
    running.stop().await
}

/// An error of a program.
#[derive(Debug)]
struct Missing;

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no such order")
    }
}

impl std::error::Error for Missing {}

fn fail(delivery: &Delivery) -> Result<(), Failure> {
    match &*delivery.id {
        "retry" if delivery.attempt == 1 => Err(Retry::after(MINUTE).reason("busy").into()),
        "bury" => Err(Bury::new("broken").into()),
        "error" => Err(Missing.into()),
        _ => Ok(()),
    }
}

#[tokio::test]
async fn a_worker_that_fails() -> Outcome {
    let broker = broker().await?;
    let client = broker.client();
    client.create_topic("orders", TopicSettings::default().max_attempts(1)).await?;
    for id in ["retry", "bury", "error"] {
        client.push("orders", NewMessage::text("x").id(id).max_attempts(if id == "retry" { 2 } else { 1 })).await?;
    }
    let mut running = Running::start(client, "orders", fail)?;
    for _ in 0..3 {
        running.next().await?;
    }
    running.settled(3).await?;
    let dead = client.dead_letters("orders", "default", DeadLetterFilter::default().oldest_first()).all().await?;
    assert_eq!(dead.iter().map(|dead| &*dead.id).collect::<BTreeSet<_>>(), BTreeSet::from(["bury", "error"]));
    let error =
        dead.iter().find(|dead| dead.id == "error").and_then(|dead| dead.last_error.clone()).ok_or("no error")?;
    assert_eq!((error.class.as_deref(), &*error.message), (Some("programs::Missing"), "no such order"));
    assert!(error.stack.is_some_and(|stack| stack.contains("tests/programs.rs")));
    assert_eq!(client.redrive("orders", "default", DeadLetterSelector::of(["bury"])).total().await?.redriven, 1);
    assert_eq!(
        client
            .purge_dead_letters("orders", "default", DeadLetterSelector::default().reason("max_attempts"))
            .total()
            .await?
            .purged,
        1
    );
    assert_eq!(running.next().await?.0, "bury");
    broker.advance(MINUTE).await?;
    assert_eq!(running.next().await?, ("retry".to_owned(), 2));
    running.stop().await
}

/// A handler that has begun ends, and its message is done; nothing else is lost.
#[tokio::test]
async fn a_graceful_stop() -> Outcome {
    let broker = broker().await?;
    let client = broker.client();
    client.push_many("orders", ["a", "b", "c"].map(|id| NewMessage::text("x").id(id))).await?;
    let worker = Worker::builder(client, "orders").concurrency(1).build()?;
    let (begun, may_end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let running = tokio::spawn({
        let (worker, begun, may_end) = (worker.clone(), begun.clone(), may_end.clone());
        async move {
            let handler = move |_| {
                let (begun, may_end) = (begun.clone(), may_end.clone());
                async move {
                    begun.notify_one();
                    may_end.notified().await;
                    Ok(())
                }
            };
            worker.run(handler).await
        }
    });
    timeout(PATIENCE, begun.notified()).await?;
    worker.stop();
    may_end.notify_one();
    timeout(PATIENCE, running).await???;
    let stats = worker.stats();
    assert_eq!((stats.acked, stats.nacked, stats.in_flight), (1, 0, 0));
    let totals = client.topic("orders").await?.totals;
    assert_eq!(totals.iter().map(|total| (total.counts.ready, total.counts.in_flight)).collect::<Vec<_>>(), [(2, 0)]);
    Ok(())
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named() {
    let error = Broker::start_program("/no/such/dwell").await.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("/no/such/dwell") && error.contains("DWELL_BIN"), "{error}");
}
