//! Measures RabbitMQ: `peer-rabbitmq transient|persistent push|drain|lateness|burst`.
//!
//! A message that is due later goes to a queue nobody reads, with its own time to live; when that is over it is
//! dead-lettered to the queue that is read. Only the head of a queue expires, so a message with a long delay would hold
//! back the ones behind it. Each producer has a queue of its own to wait in, in which its messages are in due order.

#[path = "../measures.rs"]
mod measures;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::FutureExt;
use futures_util::stream::StreamExt;
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions,
    QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, Consumer};
use measures::{Peer, Result, Taken, Taker, Tally};
use tokio::sync::Mutex;

const READY: &str = "ready";
/// Unacked messages that a consumer is sent ahead.
const PREFETCH: u16 = 2_000;
/// How long a consumer waits for a first message.
const WAIT: Duration = Duration::from_millis(500);

struct Rabbit {
    persistent: bool,
    callers: Vec<Caller>,
}

/// Two connections, one to push, and one to take and ack. Who does not take yet is sent nothing.
struct Caller {
    waiting: String,
    producer: Channel,
    reader: Channel,
    consumer: Mutex<Option<Consumer>>,
    _connections: [Connection; 2],
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (mode, measure) = (arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default());
    let persistent = match mode.as_str() {
        "transient" => false,
        "persistent" => true,
        _ => return Err(format!("no mode {mode:?}").into()),
    };
    let mut callers = Vec::new();
    for number in 0..measures::callers(Rabbit::CALLERS) {
        callers.push(Caller::open(number, persistent).await?);
    }
    measures::run(Arc::new(Rabbit { persistent, callers }), &measure).await
}

impl Caller {
    async fn open(number: usize, durable: bool) -> Result<Caller> {
        let uri = format!("amqp://127.0.0.1:{}", std::env::var("PORT")?);
        let connect = || Connection::connect(&uri, ConnectionProperties::default());
        let connections = [connect().await?, connect().await?];
        let (producer, reader) = (connections[0].create_channel().await?, connections[1].create_channel().await?);
        producer.confirm_select(ConfirmSelectOptions::default()).await?;
        reader.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
        let options = QueueDeclareOptions { durable, ..Default::default() };
        producer.queue_declare(READY.into(), options, FieldTable::default()).await?;
        let mut to_ready = FieldTable::default();
        to_ready.insert("x-dead-letter-exchange".into(), AMQPValue::LongString("".into()));
        to_ready.insert("x-dead-letter-routing-key".into(), AMQPValue::LongString(READY.into()));
        let waiting = format!("waiting-{number}");
        producer.queue_declare(waiting.as_str().into(), options, to_ready).await?;
        Ok(Caller { waiting, producer, reader, consumer: Mutex::default(), _connections: connections })
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

impl Peer for Rabbit {
    const BATCH: usize = 500;
    const CALLERS: usize = 4;

    async fn push(&self, caller: usize, messages: Vec<(u64, String)>) -> Result<()> {
        let caller = &self.callers[caller];
        let mut confirms = Vec::with_capacity(messages.len());
        for (due, payload) in messages {
            let properties = BasicProperties::default().with_delivery_mode(if self.persistent { 2 } else { 1 });
            // What is due needs no wait.
            let (queue, properties) = match due.saturating_sub(now_ms()) {
                0 => (READY, properties),
                ms => (caller.waiting.as_str(), properties.with_expiration(ms.to_string().into())),
            };
            let options = BasicPublishOptions::default();
            confirms.push(
                caller.producer.basic_publish("".into(), queue.into(), options, payload.as_bytes(), properties).await?,
            );
        }
        for confirm in confirms {
            let confirm = confirm.await?;
            if !confirm.is_ack() {
                return Err(format!("a publish was answered {confirm:?}").into());
            }
        }
        Ok(())
    }

    async fn consume(self: Arc<Self>, count: u64) -> Result<Tally> {
        measures::take_and_ack(self, count).await
    }
}

impl Taker for Rabbit {
    async fn take(&self, caller: usize) -> Result<Vec<Taken>> {
        let caller = &self.callers[caller];
        let mut consumer = caller.consumer.lock().await;
        if consumer.is_none() {
            let options = BasicConsumeOptions::default();
            *consumer =
                Some(caller.reader.basic_consume(READY.into(), "".into(), options, FieldTable::default()).await?);
        }
        let consumer = consumer.as_mut().ok_or("no consumer")?;
        let mut taken = Vec::new();
        let mut next = tokio::time::timeout(WAIT, consumer.next()).await.ok();
        while let Some(delivery) = next {
            let Delivery { delivery_tag, data, .. } = delivery.ok_or("RabbitMQ hung up")??;
            taken.push(Taken { receipt: delivery_tag.to_string(), payload: String::from_utf8(data)? });
            // No more than what is there already.
            next = if taken.len() < self.batch() { consumer.next().now_or_never() } else { None };
        }
        Ok(taken)
    }

    async fn ack(&self, caller: usize, taken: Vec<Taken>) -> Result<usize> {
        // One ack for all up to the last; RabbitMQ answers none.
        let last = taken.last().ok_or("nothing to ack")?.receipt.parse()?;
        self.callers[caller].reader.basic_ack(last, BasicAckOptions { multiple: true }).await?;
        Ok(taken.len())
    }
}
