//! A worker: takes messages that are due, runs a handler for each, and settles them. It takes a message only if a handler can begin at
//! once.

mod outcome;
mod delivery;
mod state;
mod settle;

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::warn;

use crate::client::{Call, Client, Error, Transport, backoff, group_path, happened, may_pass};
use crate::wire::consume::{Deliveries, Reserve};
pub use delivery::Delivery;
pub use outcome::{Bury, Failure, Retry};
use outcome::{HANDLING, Reason, note_panics};
use state::{Abort, Decision, Hook, Shared, Slot};
pub use state::{Event, Stats};

/// How long handlers that were told to end have for it.
const GRACE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
struct Options {
    concurrency: usize,
    visibility: Option<Duration>,
    max_runtime: Duration,
    drain: Duration,
    wait: Duration,
    error_details: bool,
}

/// How a worker is set up.
pub struct WorkerBuilder {
    client: Client,
    topic: String,
    group: String,
    options: Options,
    hook: Option<Hook>,
}

impl std::fmt::Debug for WorkerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerBuilder").field("topic", &self.topic).field("group", &self.group).finish_non_exhaustive()
    }
}

impl WorkerBuilder {
    /// The group to consume. Default `default`.
    pub fn group(mut self, group: impl Into<String>) -> WorkerBuilder {
        self.group = group.into();
        self
    }

    /// How many handlers run at a time. Default 8.
    pub fn concurrency(mut self, handlers: usize) -> WorkerBuilder {
        self.options.concurrency = handlers;
        self
    }

    /// How long the broker waits for a settlement or an extension. Default: the visibility timeout of the topic.
    pub fn visibility(mut self, visibility: Duration) -> WorkerBuilder {
        self.options.visibility = Some(visibility);
        self
    }

    /// For how long the deadline of a delivery is moved. Default 1 h.
    pub fn max_runtime(mut self, max_runtime: Duration) -> WorkerBuilder {
        self.options.max_runtime = max_runtime;
        self
    }

    /// How long a worker that stops waits for handlers. Default 25 s.
    pub fn drain(mut self, drain: Duration) -> WorkerBuilder {
        self.options.drain = drain;
        self
    }

    /// The length of a poll, up to 60 s. Default 30 s.
    pub fn wait(mut self, wait: Duration) -> WorkerBuilder {
        self.options.wait = wait;
        self
    }

    /// Whether the broker keeps the type and the stack of an error beside its text. Default true: the first worker then adds a panic hook,
    /// which notes where a handler panicked, and calls the hook before it.
    pub fn error_details(mut self, with_details: bool) -> WorkerBuilder {
        self.options.error_details = with_details;
        self
    }

    /// Called with each event; there is no delivery if a poll failed. It must neither block nor call the worker.
    pub fn on_event(mut self, hook: impl Fn(Event, Option<&Delivery>) + Send + Sync + 'static) -> WorkerBuilder {
        self.hook = Some(Box::new(hook));
        self
    }

    /// Makes the worker.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`]: the topic or the group is empty, or no handler may run.
    pub fn build(self) -> Result<Worker, Error> {
        let path = group_path(&self.topic, &self.group)?;
        if self.options.concurrency == 0 {
            return Err(Error::argument("concurrency is at least 1"));
        }
        if self.options.visibility.is_some_and(|visibility| visibility.is_zero()) {
            return Err(Error::argument("visibility is longer than zero"));
        }
        Ok(Worker { shared: Arc::new(Shared::new(self.client, path, self.options, self.hook)) })
    }
}

/// Handles the messages of a group. A clone is the same worker, to stop it or to read its counters.
///
/// ```no_run
/// use dwell_client::{Client, Delivery, Failure, Worker, terminated};
///
/// # async fn example() -> Result<(), dwell_client::Error> {
/// let client = Client::from_env()?;
/// let worker = Worker::new(&client, "orders")?;
/// let handler = |delivery: Delivery| async move {
///     let order: u64 = delivery.json()?;
///     println!("close order {order}");
///     Ok::<(), Failure>(())
/// };
/// worker.run_until(terminated(), handler).await
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Worker {
    shared: Arc<Shared>,
}

impl Worker {
    /// A worker of the group `default`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`]: the topic is empty.
    pub fn new(client: &Client, topic: &str) -> Result<Worker, Error> {
        Worker::builder(client, topic).build()
    }

    /// Begins with the defaults.
    pub fn builder(client: &Client, topic: &str) -> WorkerBuilder {
        let options = Options {
            concurrency: 8,
            visibility: None,
            max_runtime: Duration::from_secs(3_600),
            drain: Duration::from_secs(25),
            wait: Duration::from_secs(30),
            error_details: true,
        };
        WorkerBuilder {
            client: client.clone(),
            topic: topic.to_owned(),
            group: "default".to_owned(),
            options,
            hook: None,
        }
    }

    /// Counters since the start, and the state now.
    pub fn stats(&self) -> Stats {
        let state = self.shared.state();
        Stats { in_flight: state.slots.len() as u64, ..state.stats.clone() }
    }

    /// Stops the worker: it takes no more messages, waits for handlers, and gives the rest back. [`Worker::run`] returns then.
    pub fn stop(&self) {
        self.shared.stop.send_replace(true);
    }

    /// Works until `signal` is ready, such as [`terminated`]; then stops as [`Worker::stop`] says.
    ///
    /// # Errors
    ///
    /// Those of [`Worker::run`].
    pub async fn run_until<F, R>(&self, signal: impl Future<Output = ()>, handler: F) -> Result<(), Error>
    where
        F: Fn(Delivery) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let mut running = std::pin::pin!(self.run(handler));
        tokio::select! {
            result = &mut running => return result,
            () = signal => self.stop(),
        }
        running.await
    }

    /// Works until [`Worker::stop`]. A handler that answers `Ok` acknowledges its message; after an error the message is delivered
    /// again, and [`Retry`] and [`Bury`] say otherwise. A panic is an error too. A worker that has stopped cannot run again.
    ///
    /// When the future is dropped, handlers are aborted and nothing is settled: the messages are delivered again after their deadlines.
    ///
    /// # Errors
    ///
    /// An error that cannot pass, such as [`Error::Refused`] with `invalid`.
    pub async fn run<F, R>(&self, handler: F) -> Result<(), Error>
    where
        F: Fn(Delivery) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let shared = &self.shared;
        if shared.options.error_details {
            note_panics();
        }
        let _abort = Abort(shared.clone());
        let work = async {
            let result = poll(shared, Arc::new(handler)).await;
            drain(shared).await;
            result
        };
        let (result, (), ()) = tokio::join!(work, settle::settle(shared), settle::keep(shared));
        result
    }
}

/// Ready at SIGTERM or SIGINT, for [`Worker::run_until`] and for the graceful shutdown of a server. Without a runtime of tokio, never.
pub async fn terminated() {
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    let (Ok(mut terminate), Ok(mut interrupt)) = signals else { return std::future::pending().await };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Takes messages until the worker stops, or an error cannot pass.
async fn poll<F, R>(shared: &Arc<Shared>, handler: Arc<F>) -> Result<(), Error>
where
    F: Fn(Delivery) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), Failure>> + Send + 'static,
{
    // A broker hands out the messages of the partitions that it owns, so polls that change between brokers would move them around.
    let transport = shared.client.transport.sibling();
    let mut stop = shared.stop.subscribe();
    let mut failures = 0;
    loop {
        let free = tokio::select! {
            free = free(shared) => free,
            () = happened(&mut stop) => return Ok(()),
        };
        match reserve(shared, &transport, free).await {
            Ok(None) => return Ok(()),
            Ok(Some(reserved)) => {
                failures = 0;
                begin(shared, reserved, &handler);
            }
            Err(error) => {
                shared.update(|state| shared.event(state, Event::PollFailed, None));
                warn!(%error, "reserve failed");
                let Some(asked) = patience(&error) else { return Err(error) };
                let wait = asked.max(backoff(failures, Duration::from_millis(100), Duration::from_secs(2)));
                failures += 1;
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = happened(&mut stop) => return Ok(()),
                }
            }
        }
    }
}

/// Waits until a handler can begin, and answers how many.
async fn free(shared: &Shared) -> usize {
    loop {
        let changed = shared.changed.notified();
        let free = shared.free(&shared.state());
        if free > 0 {
            return free;
        }
        changed.await;
    }
}

/// One poll; `None` if the worker stopped meanwhile.
async fn reserve(shared: &Shared, transport: &Transport, free: usize) -> Result<Option<Deliveries>, Error> {
    let Options { wait, visibility, .. } = shared.options;
    let body =
        Reserve { max: Some(free), wait_ms: Some(wait), visibility_timeout_ms: visibility, ..Reserve::default() };
    let mut call = Call::post(format!("{}/reserve", shared.path)).json(&body)?;
    call.timeout = Some(wait + Duration::from_secs(10));
    call.retry_for = Some(Duration::ZERO);
    call.stop = Some(shared.stop.subscribe());
    transport.call(&call).await
}

/// How long to wait before the next poll at least; `None` if the error cannot pass. A new token, scope or topic ends some refusals.
pub(super) fn patience(error: &Error) -> Option<Duration> {
    match error {
        Error::Unavailable(unavailable) => {
            Some(unavailable.answer.as_ref().and_then(|refused| refused.retry_after).unwrap_or_default())
        }
        Error::Refused(refused) if may_pass(refused.status) || matches!(refused.status, 401 | 403 | 404 | 500) => {
            Some(refused.retry_after.unwrap_or_default())
        }
        Error::Setup(_) | Error::Unreadable(_) => Some(Duration::ZERO),
        _ => None,
    }
}

/// Starts a handler for each delivery; gives them back if the worker has stopped meanwhile.
fn begin<F, R>(shared: &Arc<Shared>, reserved: Deliveries, handler: &Arc<F>)
where
    F: Fn(Delivery) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let is_stopping = *shared.stop.borrow();
    let visibility = shared.options.visibility.unwrap_or(reserved.visibility_timeout_ms);
    // One time for all of them, so that they are extended together.
    let now = Instant::now();
    shared.update(|state| {
        state.stats.last_poll = Some(SystemTime::now());
        while state.handlers.try_join_next().is_some() {}
        for fields in reserved.deliveries {
            let (end, ended) = watch::channel(false);
            let receipt = fields.receipt.clone();
            state.stats.lateness_ms = fields.lateness_ms;
            let delivery = Delivery::new(fields, ended, shared.clone());
            shared.event(state, Event::Delivered, Some(&delivery));
            let mut slot = Slot::new(delivery.clone(), end, visibility, shared.options.max_runtime, now);
            if is_stopping {
                slot.decide(Decision::Release);
            } else {
                let (shared, handler, receipt) = (shared.clone(), handler.clone(), receipt.clone());
                state.handlers.spawn(async move {
                    let handling = HANDLING.scope((), async move { handler(delivery).await });
                    let result = AssertUnwindSafe(handling).catch_unwind().await;
                    shared.ended(&receipt, result.unwrap_or_else(|panic| Err(Failure::panicked(&*panic))));
                });
            }
            state.slots.insert(receipt, slot);
        }
    });
}

/// Waits for handlers, ends those that take too long, and waits until all decisions are sent or given up.
async fn drain(shared: &Arc<Shared>) {
    shared.until(Instant::now() + shared.options.drain, |state| state.slots.is_empty()).await;
    let longest = shared.update(|state| {
        let mut longest = Duration::from_secs(5);
        for slot in state.slots.values_mut() {
            longest = longest.max(slot.visibility);
            if slot.decision.is_none() && !slot.is_lost {
                let reason = Reason::Text("the worker stopped before the handler had finished".to_owned());
                slot.decide(Decision::Nack {
                    delay: Some(Duration::ZERO),
                    reason: Some(reason),
                    bury: false,
                    pause_key: false,
                });
                slot.end();
            }
        }
        longest
    });
    let is_sent = |state: &state::State| state.slots.values().all(|slot| slot.decision.is_none());
    shared.until(Instant::now() + longest, is_sent).await;
    let handlers = shared.update(|state| {
        state.is_over = true;
        std::mem::take(&mut state.handlers)
    });
    let ending = async move {
        let mut handlers = handlers;
        while handlers.join_next().await.is_some() {}
    };
    // Those that do not end are aborted.
    let _ = tokio::time::timeout(GRACE, ending).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_arguments_are_refused() -> Result<(), Error> {
        let client = &Client::connect("http://127.0.0.1:1")?;
        let wrong = |worker: WorkerBuilder| matches!(worker.build(), Err(Error::Argument(_)));
        assert!(wrong(Worker::builder(client, "")));
        assert!(wrong(Worker::builder(client, "orders").group("")));
        assert!(wrong(Worker::builder(client, "orders").concurrency(0)));
        Ok(())
    }

    #[test]
    fn a_worker_runs_on_any_thread() -> Result<(), Error> {
        fn is_send<T: Send>(_: T) {}
        let worker = Worker::new(&Client::connect("http://127.0.0.1:1")?, "orders")?;
        is_send(worker.run(|_| async { Ok(()) }));
        is_send(worker.run_until(terminated(), |_| async { Ok(()) }));
        Ok(())
    }
}
