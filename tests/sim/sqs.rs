//! Clients that speak SQS: they send, receive and delete the same messages as others.

use dwell_simulated_redis::Time;
use serde_json::{Value, json};

use crate::client::{CRON, Clients};
use crate::ledger::{Decision, Made, PushFact, Pushed, Settled, Span, Verdict};
use crate::lock;
use crate::operation::{Consume, Policy, Push, Target, name_of_sent};

/// A message that is sent to a queue.
struct Sending {
    /// Its body.
    tag: String,
    target: Target,
    due: Time,
}

fn key_of(number: usize) -> String {
    format!("k{}", number % 7)
}

impl Clients {
    async fn act(&self, broker: usize, action: &str, body: &Value) -> Option<(u16, Value)> {
        let request = axum::http::Request::builder().method("POST").uri("/").header("host", "localhost");
        let request = request.header("x-amz-target", format!("AmazonSQS.{action}"));
        let request = request.header("content-type", "application/x-amz-json-1.0").body(body.to_string().into());
        self.answer(broker, action, request.unwrap_or_default()).await
    }

    /// A queue of a topic is that of its first group.
    fn queue(&self, topic: usize, group: usize) -> String {
        let (topic, group) = (&self.topics[topic].name, &self.topics[topic].groups[group]);
        match group.as_str() {
            "default" => format!("http://localhost/000000000000/{topic}"),
            group => format!("http://localhost/000000000000/{topic}--{group}"),
        }
    }

    /// The broker gives the message its id.
    pub(crate) async fn send_to_queue(&self, number: usize, broker: usize, topic: usize, delay_s: u64) {
        let sent = self.now();
        let key = self.topics[topic].is_fifo().then(|| key_of(number));
        let (mut body, sending) = self.sending(name_of_sent(number), format!("p{number}"), key, topic, delay_s);
        body["QueueUrl"] = json!(self.queue(topic, 0));
        let answer = self.act(broker, "SendMessage", &body).await;
        let span = self.span(sent, &answer);
        let (status, body) = answer.unwrap_or((0, Value::Null));
        self.note_sending(sending, broker, span, status, &body);
    }

    pub(crate) async fn send_many_to_queue(&self, number: usize, broker: usize, topic: usize, delays: &[u64]) {
        let sent = self.now();
        let sending = |(place, delay_s): (usize, &u64)| {
            let (name, tag) = (format!("{}-{place}", name_of_sent(number)), format!("p{number}-{place}"));
            // A standard queue is fair with its first message that has a group.
            let has_key = self.topics[topic].is_fifo() || place.is_multiple_of(3);
            let key = has_key.then(|| key_of(number + place));
            let (mut entry, sending) = self.sending(name, tag, key, topic, *delay_s);
            entry["Id"] = json!(place.to_string());
            (entry, sending)
        };
        let (entries, sendings): (Vec<Value>, Vec<Sending>) = delays.iter().enumerate().map(sending).unzip();
        let body = json!({"QueueUrl": self.queue(topic, 0), "Entries": entries});
        let answer = self.act(broker, "SendMessageBatch", &body).await;
        let span = self.span(sent, &answer);
        let (status, body) = answer.unwrap_or((0, Value::Null));
        for (place, sending) in sendings.into_iter().enumerate() {
            let id = place.to_string();
            let of_entry = |list: &str| {
                let mut entries = body[list].as_array().into_iter().flatten();
                entries.find(|entry| entry["Id"] == id).cloned()
            };
            let failed = of_entry("Failed").map(|entry| (if entry["SenderFault"] == true { 400 } else { 500 }, entry));
            let done = of_entry("Successful").map(|entry| (200, entry));
            // Without either, the whole request has failed.
            let (status, result) = done.or(failed).unwrap_or((if status == 200 { 0 } else { status }, Value::Null));
            self.note_sending(sending, broker, span, status, &result);
        }
    }

    /// What is sent of a message, and what is known of it before.
    fn sending(&self, name: String, tag: String, key: Option<String>, topic: usize, delay_s: u64) -> (Value, Sending) {
        let mut body = json!({"MessageBody": tag});
        // A message of a FIFO queue has no delay of its own.
        let delay_s = if self.topics[topic].is_fifo() { 0 } else { delay_s };
        match self.topics[topic].is_fifo() {
            true => body["MessageDeduplicationId"] = json!(tag),
            false => body["DelaySeconds"] = json!(delay_s),
        }
        if let Some(key) = &key {
            body["MessageGroupId"] = json!(key);
        }
        let target = Target { topic, id: name, key };
        lock(&self.ledger).expect_id(&tag, &target, true);
        (body, Sending { tag, target, due: self.now() + delay_s * 1_000_000 })
    }

    fn note_sending(&self, sending: Sending, broker: usize, span: Span, status: u16, result: &Value) {
        // It says no more than that the message is safe: on the disk of the broker, or in the store.
        let outcome = match status {
            200 => Pushed::Safe,
            400..=499 => Pushed::Refused,
            _ => Pushed::Unknown,
        };
        let Sending { tag, target, due } = sending;
        if let Some(id) = result["MessageId"].as_str() {
            let (topic, partition, id) = (target.topic, None, id.to_owned());
            self.learn(&tag, &id);
            let made = Made { tag: tag.clone(), topic, id, partition, broker, span, is_of_queue: true };
            lock(&self.ledger).made.push(made);
        }
        let push = Push { is_nameless: true, ..Push::of(target, Policy::Keep) };
        self.note_push(PushFact::of(push, tag, due, span, outcome, broker));
    }

    pub(crate) async fn receive_from_queue(&self, broker: usize, consume: Consume) {
        let mut random = fastrand::Rng::with_seed(consume.seed);
        // Several messages of a group come together.
        let consume = Consume { per_key: if self.topics[consume.topic].is_fifo() { 10 } else { 1 }, ..consume };
        let (sent, queue) = (self.now(), self.queue(consume.topic, consume.group));
        let wait_s = consume.wait_ms / 1_000;
        let body = json!({"QueueUrl": queue, "MaxNumberOfMessages": consume.max, "WaitTimeSeconds": wait_s,
            "MessageSystemAttributeNames": ["ApproximateReceiveCount"]});
        let answer = self.act(broker, "ReceiveMessage", &body).await;
        let Some((200, body)) = answer else {
            return self.note(&format!("receive at broker {broker}: {answer:?}"));
        };
        let messages = body["Messages"].as_array().into_iter().flatten().map(|message| {
            let count = message["Attributes"]["ApproximateReceiveCount"].as_str().and_then(|count| count.parse().ok());
            let id = message["Body"].as_str().and_then(|tag| match tag {
                // SQS does not say of which time it is.
                CRON => Some(CRON.to_owned()),
                tag => lock(&self.ledger).id_in_queue(tag, message["MessageId"].as_str().unwrap_or_default()),
            });
            let id = id.map_or(message["MessageId"].clone(), Value::from);
            let delivery = json!({"id": id, "payload": message["Body"],
                "receipt": message["ReceiptHandle"], "attempt": count.unwrap_or(0_u64)});
            self.delivered(broker, &consume, sent, &delivery)
        });
        for (delivery, handle) in messages.collect::<Vec<_>>() {
            self.think(&mut random).await;
            if random.u8(0..8) == 0 {
                // Perhaps others have it, or its content is another one, when the handle comes.
                self.wait(random.u64(0..8_000)).await;
            }
            let (action, more, decision) = match random.u8(0..10) {
                0..7 => ("DeleteMessage", None, Decision::Ack),
                7 => ("ChangeMessageVisibility", Some(0), Decision::Nack { delay_ms: Some(0) }),
                8 => ("ChangeMessageVisibility", Some(2), Decision::Extend { visibility_ms: 2_000 }),
                // Forgotten: it comes again.
                _ => continue,
            };
            let mut body = json!({"QueueUrl": queue, "ReceiptHandle": handle});
            if let Some(seconds) = more {
                body["VisibilityTimeout"] = json!(seconds);
            }
            let at = if random.u8(0..4) == 0 { random.usize(0..lock(&self.seats).len()) } else { broker };
            let sent = self.now();
            let answer = self.act(at, action, &body).await;
            let span = self.span(sent, &answer);
            let (status, body) = answer.unwrap_or((0, Value::Null));
            let verdict = match status {
                // The queue does not have it any more: perhaps another one does.
                200 if self.may_be_in_another_queue(delivery, sent) => Verdict::Unknown,
                200 => Verdict::Counts,
                400..=499 => Verdict::Stale,
                _ => Verdict::Unknown,
            };
            let id = lock(&self.ledger).deliveries[delivery].id.clone();
            let line =
                format!("{action} t{}/{id} at broker {at}: {verdict:?} {status} {}", consume.topic, body["__type"]);
            self.note(&line);
            lock(&self.ledger).settlements.push(Settled { delivery, decision, span, verdict, is_told: false });
        }
    }
    /// Whether the message of a delivery may have been moved by then, or forwarded as a dead letter after its deadline.
    fn may_be_in_another_queue(&self, delivery: usize, by: Time) -> bool {
        let ledger = lock(&self.ledger);
        let delivery = &ledger.deliveries[delivery];
        let topic = &self.topics[delivery.place];
        let may_be_late = delivery.span.sent + topic.visibility_ms * 1_000 <= by;
        let may_be_dead = may_be_late && topic.forwards_to.is_some();
        may_be_dead || ledger.moves.iter().any(|of| of.topic == delivery.place)
    }
}
