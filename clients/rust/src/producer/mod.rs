//! A producer that gathers: single pushes of many callers travel as batches. The way of a batch after it was sent is in `batch`.

mod batch;
mod buffer;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::client::{BATCH_BYTES, BATCH_MESSAGES, Client, Error, NewMessage, topic_path};
use crate::wire::push::PushResult;
use batch::send;
use buffer::{Buffer, Next, Ticket};

/// Permits of the buffer for so many bytes: one for each KiB.
fn permits(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1_024)).unwrap_or(u32::MAX).clamp(1, u32::MAX >> 4)
}

/// Gathers pushes into batches, each of one topic. A clone shares its buffer.
///
/// Each [`push`](Producer::push) has an answer of the broker. While a batch is under way the next one gathers, so many callers need few
/// requests. Messages that are pushed at the same time have no order.
///
/// ```no_run
/// use dwell_client::{Client, NewMessage, Producer};
///
/// # async fn example(client: Client) -> Result<(), dwell_client::Error> {
/// let producer = Producer::new(&client)?;
/// let pushed = producer.push("orders", NewMessage::text("close order 4711")).await?;
/// println!("{} is {}", pushed.id, pushed.status);
/// producer.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Producer {
    handle: Arc<Handle>,
}

/// Closes the buffer when the last clone of a producer is dropped. Its messages are still sent.
#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.buffer.close();
    }
}

#[derive(Debug)]
struct Shared {
    client: Client,
    options: Options,
    buffer: Buffer,
    messages: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
}

#[derive(Debug, Clone)]
struct Options {
    linger: Duration,
    batch: usize,
    batch_bytes: usize,
    buffer: usize,
    buffer_bytes: usize,
    at_once: usize,
}

/// How a producer is set up.
#[derive(Debug)]
pub struct ProducerBuilder {
    client: Client,
    options: Options,
}

impl ProducerBuilder {
    /// How long a message waits for others, while a batch has room. Default zero: messages gather while a batch of their topic is under
    /// way, for 20 ms at most.
    pub fn linger(mut self, linger: Duration) -> ProducerBuilder {
        self.options.linger = linger;
        self
    }

    /// Messages of a batch, 1 to 1,000. Default 1,000.
    pub fn batch(mut self, messages: usize) -> ProducerBuilder {
        self.options.batch = messages;
        self
    }

    /// Messages and bytes that wait or are under way, at most; a push waits while there is no room. Default 10,000 and 32 MiB.
    pub fn buffer(mut self, messages: usize, bytes: usize) -> ProducerBuilder {
        (self.options.buffer, self.options.buffer_bytes) = (messages, bytes);
        self
    }

    /// Batches that are under way at a time. Default 4.
    pub fn batches_at_once(mut self, batches: usize) -> ProducerBuilder {
        self.options.at_once = batches;
        self
    }

    /// Starts the producer, on the runtime of the caller.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`]: a number is out of its range. [`Error::Setup`]: there is no runtime of tokio.
    pub fn build(self) -> Result<Producer, Error> {
        let ProducerBuilder { client, options } = self;
        if !(1..=BATCH_MESSAGES).contains(&options.batch) {
            return Err(Error::argument("a batch has 1 to 1,000 messages"));
        }
        if options.buffer == 0 || options.buffer_bytes == 0 || options.at_once == 0 {
            return Err(Error::argument("the buffer and the number of batches at a time are at least 1"));
        }
        let runtime = tokio::runtime::Handle::try_current().map_err(|error| Error::Setup(error.to_string()))?;
        let shared = Arc::new(Shared {
            client,
            buffer: Buffer::default(),
            messages: Arc::new(Semaphore::new(options.buffer)),
            bytes: Arc::new(Semaphore::new(permits(options.buffer_bytes) as usize)),
            options,
        });
        runtime.spawn(dispatch(shared.clone()));
        Ok(Producer { handle: Arc::new(Handle { shared }) })
    }
}

/// A message that waits, or is under way.
#[derive(Debug)]
struct Pending {
    body: Vec<u8>,
    answer: oneshot::Sender<Result<PushResult, Error>>,
    since: Instant,
    _room: (OwnedSemaphorePermit, OwnedSemaphorePermit),
    _ticket: Ticket,
}

impl Producer {
    /// A producer for all topics. Call it within a runtime of tokio.
    ///
    /// # Errors
    ///
    /// [`Error::Setup`]: there is no runtime of tokio.
    pub fn new(client: &Client) -> Result<Producer, Error> {
        Producer::builder(client).build()
    }

    /// Begins with the defaults.
    pub fn builder(client: &Client) -> ProducerBuilder {
        let options = Options {
            linger: Duration::ZERO,
            batch: BATCH_MESSAGES,
            batch_bytes: BATCH_BYTES,
            buffer: 10_000,
            buffer_bytes: 32 << 20,
            at_once: 4,
        };
        ProducerBuilder { client: client.clone(), options }
    }

    /// Pushes a message, and answers once the broker has it. Waits while the buffer is full. A push that is dropped before its batch was
    /// sent is not sent.
    ///
    /// # Errors
    ///
    /// Those of [`Client::push`], for this message alone; and [`Error::Closed`].
    pub async fn push(&self, topic: &str, message: NewMessage) -> Result<PushResult, Error> {
        let shared = &self.handle.shared;
        let path = format!("{}/messages/batch", topic_path(topic)?);
        let body = shared.client.trace(message).encode()?;
        let ticket = shared.buffer.enter().ok_or(Error::Closed)?;
        let size = permits(body.len()).min(permits(shared.options.buffer_bytes));
        let one = shared.messages.clone().acquire_owned().await.map_err(|_| Error::Closed)?;
        let room = shared.bytes.clone().acquire_many_owned(size).await.map_err(|_| Error::Closed)?;
        let (answer, answered) = oneshot::channel();
        shared.buffer.add(path, Pending { body, answer, since: Instant::now(), _room: (one, room), _ticket: ticket });
        answered.await.unwrap_or(Err(Error::Closed))
    }

    /// Waits until everything that was pushed before has its answer.
    pub async fn flush(&self) {
        self.handle.shared.buffer.flush().await;
    }

    /// Refuses later pushes, and waits until everything that was pushed before has its answer.
    pub async fn close(&self) {
        self.handle.shared.buffer.close();
        self.flush().await;
    }
}

/// Sends batches until the buffer is closed and empty.
async fn dispatch(shared: Arc<Shared>) {
    let under_way = Arc::new(Semaphore::new(shared.options.at_once));
    loop {
        let Ok(permit) = under_way.clone().acquire_owned().await else { return };
        let (path, batch) = loop {
            // Callers that have their answers push again, and these messages go together.
            tokio::task::yield_now().await;
            let changed = shared.buffer.changed();
            match shared.buffer.take(&shared.options) {
                Next::Batch(path, batch) => break (path, batch),
                Next::Closed => return,
                Next::Wait(None) => changed.await,
                Next::Wait(Some(at)) => tokio::select! {
                    () = changed => {}
                    () = sleep_until(at) => {}
                },
            }
        };
        let shared = shared.clone();
        tokio::spawn(async move {
            send(&shared.client, &path, batch).await;
            drop(permit);
            shared.buffer.answered(&path);
        });
    }
}
