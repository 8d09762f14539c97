//! Clients: they ask brokers over HTTP, without a socket, and note what they asked and were answered.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue};
use dwell::model::time::Timestamp;
use dwell_simulated_machine::Disk;
use dwell_simulated_redis::Time;
use futures_util::StreamExt;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use tower::ServiceExt;

use crate::errors;
use crate::host::Clocks;
use crate::ledger::{
    BatchFact, Control, Controlled, Decision, Delivered, Effect, ErrorSeen, KeySeen, Ledger, PushFact, Pushed, Settled,
    Span, Streamed, Sweep, Swept, Verdict,
};
use crate::lock;
use crate::operation::{Consume, Gather, Look, Operation, Policy, Push, Target};
use crate::plan::Topic;
use crate::spread::moved_ms;

/// The broker that is asked to make the topics.
pub(crate) const SETS_UP: usize = 0;

/// The payload of every message of a cron job.
pub(crate) const CRON: &str = "cron";
/// With it the payloads of others begin, in a Redis of theirs.
pub(crate) const THEIRS: &str = "theirs-";

/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A broker as clients reach it: the runtime of its process, and what answers there.
#[derive(Clone)]
pub(crate) struct Seat {
    pub(crate) handle: Handle,
    pub(crate) router: Router,
    /// What a broker answers once its machine has lost power leaves it no more.
    pub(crate) disk: Arc<Disk>,
}

/// Shared by all clients.
#[derive(Clone)]
pub(crate) struct Clients {
    pub(crate) seats: Arc<Mutex<Vec<Option<Seat>>>>,
    pub(crate) ledger: Arc<Mutex<Ledger>>,
    pub(crate) clocks: Arc<Clocks>,
    pub(crate) topics: Arc<Vec<Topic>>,
}

/// What no other message has: its payload, or the topic and the id of a message of a cron job, which all have the same payload.
fn tag_of(topic: usize, payload: String, id: &str) -> String {
    if payload == CRON && id != CRON { format!("t{topic}/{id}") } else { payload }
}

/// What a look at a group in the end finds.
pub(crate) enum Left {
    Nothing,
    Messages(String),
    NoGroup,
}

fn request(method: &str, path: &str, body: Option<&Value>) -> axum::http::Request<Body> {
    let built = axum::http::Request::builder().method(method).uri(path);
    let built = match body {
        Some(body) => built.header("content-type", "application/json").body(Body::from(body.to_string())),
        None => built.body(Body::empty()),
    };
    built.unwrap_or_default()
}

impl Clients {
    pub(crate) fn now(&self) -> Time {
        self.clocks.now()
    }

    /// Until now, if there is an answer.
    pub(crate) fn span<T>(&self, sent: Time, answer: &Option<T>) -> Span {
        Span { sent, answered: answer.as_ref().map(|_| self.now()) }
    }

    pub(crate) async fn wait(&self, ms: u64) {
        sleep(Duration::from_millis(ms)).await;
    }

    pub(crate) fn note(&self, line: &str) {
        lock(&self.ledger).note(self.now(), line);
    }

    pub(crate) fn failed(&self, failure: String) {
        self.note(&format!("! {failure}"));
        lock(&self.ledger).failures.push(failure);
    }

    fn seat(&self, broker: usize) -> Option<Seat> {
        lock(&self.seats).get(broker).cloned().flatten()
    }

    /// Asks a broker; no answer if it is not there, dies meanwhile, or takes too long.
    pub(crate) async fn call(
        &self,
        broker: usize,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> Option<(u16, Value)> {
        self.answer(broker, &format!("{method} {path}"), request(method, path, body.as_ref())).await
    }

    pub(crate) async fn answer(
        &self,
        broker: usize,
        what: &str,
        request: axum::http::Request<Body>,
    ) -> Option<(u16, Value)> {
        let Seat { handle, router, disk } = self.seat(broker)?;
        let (sender, answered) = oneshot::channel();
        let task = handle.spawn(async move {
            let Ok(response) = router.oneshot(request).await;
            let status = response.status().as_u16();
            if let Ok(bytes) = response.into_body().collect().await
                && !disk.is_without_power()
            {
                let _ = sender.send((status, bytes.to_bytes()));
            }
        });
        tokio::select! {
            biased;
            answer = answered => {
                let (status, bytes) = answer.ok()?;
                let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
                if status == 500 {
                    self.failed(format!("broker {broker} answers 500 to {what}: {body}"));
                }
                Some((status, body))
            }
            // The connection closes, so nobody works on the request any more.
            () = sleep(PATIENCE) => {
                task.abort();
                None
            }
        }
    }

    pub(crate) async fn operate(&self, number: usize, broker: usize, operation: Operation) {
        let Some(operation) = self.with_ids(operation) else { return };
        match operation {
            Operation::Push(push) => self.push(number, broker, push).await,
            Operation::PushBatch(topic, pushes) => self.push_batch(number, broker, topic, pushes).await,
            Operation::Cancel(target) => self.cancel(broker, target).await,
            Operation::Reschedule(target, delay_ms) => self.reschedule(broker, target, delay_ms).await,
            Operation::Consume(consume) if consume.is_stream => self.stream(broker, consume).await,
            Operation::Consume(consume) => self.consume(number, broker, consume).await,
            Operation::PurgeGroup(topic, group) => self.sweep(broker, topic, group, Sweep::PurgeGroup).await,
            Operation::PurgeDead(topic, group) => self.sweep(broker, topic, group, Sweep::PurgeDead).await,
            Operation::Redrive(topic, group) => self.sweep(broker, topic, group, Sweep::Redrive).await,
            Operation::Get(target) => self.get(broker, &target).await,
            Operation::SendToQueue(topic, delay_s) => self.send_to_queue(number, broker, topic, delay_s).await,
            Operation::SendManyToQueue(topic, delays) => self.send_many_to_queue(number, broker, topic, &delays).await,
            Operation::ReceiveFromQueue(consume) => self.receive_from_queue(broker, consume).await,
            Operation::Pause(topic, group, for_ms) => self.pause(broker, topic, group, for_ms).await,
            Operation::PauseKey(topic, group, key, for_ms) => {
                self.pause_key(broker, (topic, group), &key, for_ms).await
            }
            Operation::Limit(limit) => drop(self.limit(broker, limit).await),
            Operation::Fair(topic, group, fair) => self.take_turns(broker, topic, group, fair).await,
            Operation::Window(change) => drop(self.window(broker, change).await),
            Operation::Bulk(bulk) => self.bulk(broker, bulk).await,
            Operation::Cron(change) => drop(self.cron(broker, change).await),
            Operation::Delete(topic, group) => self.delete(broker, topic, group, false).await,
            Operation::Copy(topic, group) => self.delete(broker, topic, Some(group), true).await,
            Operation::Move(from, to) => self.move_topic(broker, from, to).await,
            Operation::Look(look, target, group) => self.look(broker, look, &target, group).await,
        }
    }

    // Producing.

    fn message(push: &Push, tag: &str, sent: Time) -> (Value, Time) {
        let mut due = sent + push.delay_ms * 1_000;
        if push.is_absolute && push.is_rounded {
            due = Time(due.0 - due.0 % 1_000_000);
        }
        let moved_ms = push.spread_ms.map_or(0, |spread_ms| moved_ms(&push.target.id, spread_ms));
        let mut message = json!({"payload": tag});
        if !push.is_nameless {
            message["id"] = json!(push.target.id);
        }
        if let Some(key) = &push.target.key {
            message["key"] = json!(key);
        }
        match push.is_absolute {
            true => message["due_at"] = json!(due.as_ms()),
            false => message["delay_ms"] = json!(push.delay_ms),
        }
        if let Some(spread) = push.spread_ms {
            message["spread_ms"] = json!(spread);
        }
        if let Some(ttl) = push.ttl_ms {
            message["ttl_ms"] = json!(ttl);
        }
        if push.priority > 0 {
            message["priority"] = json!(push.priority);
        }
        match push.policy {
            Policy::Keep | Policy::Idempotent => {}
            Policy::Reject => message["conflict"] = json!("reject"),
            Policy::Replace => message["conflict"] = json!("replace"),
            Policy::Debounce => message["conflict"] = json!("debounce"),
            Policy::After => message["conflict"] = json!("after"),
        }
        let mut due = Time::from_ms(due.as_ms() + moved_ms);
        if let Some(max) = push.debounce_max_ms {
            message["debounce_max_ms"] = json!(max);
            due = due.min(Time::from_ms((sent + max * 1_000).as_ms()));
        }
        (message, due)
    }

    fn pushed(status: u16, result: &Value) -> Pushed {
        match (status, result["status"].as_str().unwrap_or_default()) {
            (200..=299, "stored") => Pushed::Stored,
            (200..=299, "journaled") => Pushed::Journaled,
            (200..=299, "buffered") => Pushed::Buffered,
            (200..=299, "replaced") => Pushed::Replaced,
            (200..=299, "debounced") => Pushed::Debounced,
            (200..=299, "duplicate") => Pushed::Duplicate,
            (400..=499 | 503, _) => Pushed::Refused,
            _ => Pushed::Unknown,
        }
    }

    pub(crate) fn note_push(&self, fact: PushFact) {
        let mut ledger = lock(&self.ledger);
        let PushFact { tag, target, policy, outcome, broker, .. } = ledger.add_push(fact);
        let line = format!("push {} as {tag} {policy:?} at broker {broker}: {outcome:?}", target.name());
        ledger.note(self.clocks.now(), &line);
    }

    async fn push(&self, number: usize, broker: usize, push: Push) {
        self.push_as(format!("p{number}"), broker, push).await;
    }

    async fn push_as(&self, tag: String, broker: usize, push: Push) {
        self.sends(&tag, &push);
        let (mut span, due, mut outcome) = self.ask_to_push(&tag, broker, &push).await;
        if outcome == Pushed::Unknown
            && let Some((again, repeated)) = self.repeat(&tag, broker, &push).await
        {
            (span.answered, outcome) = (again.answered, repeated);
        }
        self.note_push(PushFact::of(push, tag, due, span, outcome, broker));
    }

    /// Sends a push; answers also when it is due.
    pub(crate) async fn ask_to_push(&self, tag: &str, broker: usize, push: &Push) -> (Span, Time, Pushed) {
        let sent = self.now();
        let (mut message, due) = Clients::message(push, tag, sent);
        let path = format!("/v1/topics/{}/messages", self.topics[push.target.topic].name);
        let key = HeaderValue::from_str(&push.target.id).ok().filter(|_| push.policy == Policy::Idempotent);
        if key.is_some() {
            message.as_object_mut().map(|fields| fields.remove("id"));
        }
        let mut request = request("POST", &path, Some(&message));
        request.headers_mut().extend(key.map(|key| (HeaderName::from_static("idempotency-key"), key)));
        let answer = self.answer(broker, &format!("POST {path}"), request).await;
        let span = self.span(sent, &answer);
        if let Some((_, result)) = &answer {
            self.learn_from(tag, broker, push, span, result);
        }
        let outcome = match (push.policy, answer) {
            (_, None) => Pushed::Unknown,
            (Policy::Idempotent, Some((422, _))) => Pushed::Duplicate,
            (_, Some((status, result))) => Clients::pushed(status, &result),
        };
        (span, due, outcome)
    }

    async fn push_batch(&self, number: usize, broker: usize, topic: usize, pushes: Vec<Push>) {
        let sent = self.now();
        let tag = |place: usize| format!("p{number}-{place}");
        let messages = pushes.iter().enumerate().map(|(place, push)| Clients::message(push, &tag(place), sent));
        let (messages, dues): (Vec<_>, Vec<_>) = messages.unzip();
        pushes.iter().enumerate().for_each(|(place, push)| self.sends(&tag(place), push));
        let path = format!("/v1/topics/{}/messages/batch", self.topics[topic].name);
        let answer = self.call(broker, "POST", &path, Some(json!({"messages": messages}))).await;
        let span = self.span(sent, &answer);
        let (status, body) = answer.unwrap_or((0, Value::Null));
        for (place, (push, due)) in pushes.into_iter().zip(dues).enumerate() {
            let result = &body["results"][place];
            let status = match result["error"]["status"].as_u64() {
                Some(status) => u16::try_from(status).unwrap_or(0),
                None => status,
            };
            let outcome = Clients::pushed(status, result);
            let tag = tag(place);
            self.learn_from(&tag, broker, &push, span, result);
            self.note_push(PushFact::of(push, tag, due, span, outcome, broker));
        }
    }

    /// Lets a broker have something that it keeps for this Redis.
    pub(crate) async fn bind(&self, broker: usize) {
        let target = Target { topic: 0, id: "bound".to_owned(), key: None };
        let push = Push::of(target, Policy::Keep);
        while !lock(&self.ledger).pushes.iter().any(|push| push.outcome == Pushed::Journaled) {
            self.push(usize::MAX, broker, push.clone()).await;
        }
    }

    /// What others have in a Redis of theirs: of the ids that ours have too.
    pub(crate) async fn push_of_others(&self) {
        for topic in self.topics.iter() {
            let message = |number: u64| json!({"id": format!("m{number}"), "payload": format!("{THEIRS}{number}"), "delay": "1h"});
            let path = format!("/v1/topics/{}/messages/batch", topic.name);
            let messages: Vec<Value> = (0..6).map(message).collect();
            let answer = self.call(SETS_UP, "POST", &path, Some(json!({"messages": messages}))).await;
            self.note(&format!("others push to {}: {}", topic.name, answer.map_or(0, |(status, _)| status)));
        }
    }

    fn path_of(&self, target: &Target) -> String {
        let key = target.key.as_ref().map_or(String::new(), |key| format!("?key={key}"));
        format!("/v1/topics/{}/messages/{}{key}", self.topics[target.topic].name, target.id)
    }

    async fn cancel(&self, broker: usize, target: Target) {
        let sent = self.now();
        let answer = self.call(broker, "DELETE", &self.path_of(&target), None).await;
        self.controlled(broker, target, Control::Cancel, sent, answer);
    }

    async fn reschedule(&self, broker: usize, target: Target, delay_ms: u64) {
        let sent = self.now();
        let due = Time::from_ms((sent + delay_ms * 1_000).as_ms());
        let body = json!({"delay_ms": delay_ms});
        let answer = self.call(broker, "PATCH", &self.path_of(&target), Some(body)).await;
        self.controlled(broker, target, Control::Reschedule(due), sent, answer);
    }

    fn controlled(&self, broker: usize, target: Target, control: Control, sent: Time, answer: Option<(u16, Value)>) {
        let span = self.span(sent, &answer);
        let topic = &self.topics[target.topic];
        let (status, body) = answer.unwrap_or((0, Value::Null));
        let is_buffered = body["buffered"] == true;
        let done = if control == Control::Cancel { "cancelled" } else { "rescheduled" };
        let effect = |group: &String| {
            let fates = body["groups"].as_array().into_iter().flatten();
            let fate = fates.filter(|fate| fate["group"] == **group).find_map(|fate| fate["status"].as_str());
            match (status, fate) {
                (200..=299, Some(fate)) if fate == done => Effect::Done,
                (200..=299, Some(_)) => Effect::None,
                (200..=299, None) if is_buffered => Effect::Done,
                (400..=499 | 503, _) => Effect::None,
                _ => Effect::Unknown,
            }
        };
        let effects: Vec<Effect> = topic.groups.iter().map(effect).collect();
        self.note(&format!("{control:?} {} at broker {broker}: {status} {effects:?} {}", target.name(), body["type"]));
        lock(&self.ledger).controls.push(Controlled { target, control, span, effects, is_buffered, broker });
    }

    async fn get(&self, broker: usize, target: &Target) {
        let sent = self.now();
        let answer = self.call(broker, "GET", &self.path_of(target), None).await;
        let (status, body) = answer.unwrap_or((0, Value::Null));
        self.note(&format!("get {} at broker {broker}: {status} {} {}", target.name(), body["state"], body["payload"]));
        let groups = &self.topics[target.topic].groups;
        if let (200, Some(group)) = (status, groups.iter().position(|group| group == "default")) {
            self.note_error(target.topic, group, self.span(sent, &Some(())), &body);
        }
    }

    fn note_error(&self, topic: usize, group: usize, span: Span, shown: &Value) {
        let text = |field: &str| shown[field].as_str().unwrap_or_default().to_owned();
        let (topic, id) = (self.topics[topic].takes_from.unwrap_or(topic), text("id"));
        let (tag, error) = (tag_of(topic, text("payload"), &id), errors::shown(&shown["last_error"]));
        self.learn(&tag, &id);
        lock(&self.ledger).errors.push(ErrorSeen { tag, topic, group, id, error, span });
    }

    async fn sweep(&self, broker: usize, topic: usize, group: usize, sweep: Sweep) {
        let place = self.group_path(topic, group);
        let (path, body) = match sweep {
            Sweep::PurgeGroup => (format!("{place}/purge"), json!({"all": true})),
            Sweep::PurgeDead => (format!("{place}/dead-letters/purge"), json!({"all": true})),
            Sweep::Redrive => (format!("{place}/dead-letters/redrive"), json!({"all": true})),
        };
        let sent = self.now();
        let answer = self.call(broker, "POST", &path, Some(body)).await;
        let span = self.span(sent, &answer);
        self.note(&format!("{sweep:?} {place} at broker {broker}: {answer:?}"));
        let is_done = matches!(answer, Some((200, _)));
        lock(&self.ledger).sweeps.push(Swept { topic, group, sweep, span, is_done, broker });
    }

    // Looking.

    async fn look(&self, broker: usize, look: Look, target: &Target, group: usize) {
        let topic = format!("/v1/topics/{}", self.topics[target.topic].name);
        let (name, place) = (&self.topics[target.topic].groups[group], self.group_path(target.topic, group));
        let path = match look {
            Look::Explain => self.path_of(target).replacen(&target.id, &format!("{}/explain", target.id), 1),
            Look::List => format!("{topic}/messages?group={name}&limit=50"),
            Look::ListByDue => format!("{topic}/messages?group={name}&order=due&limit=50"),
            Look::ListDeadByAge => format!("{place}/dead-letters?order=newest&limit=50"),
            Look::Forecast => format!("{place}/forecast?step=1s&spans=20"),
            Look::Verify => format!("{place}/verify"),
            Look::Topic => topic,
            Look::Group => place,
        };
        let sent = self.now();
        let answer = self.call(broker, "GET", &path, None).await;
        let span = self.span(sent, &answer);
        let (status, body) = answer.unwrap_or((0, Value::Null));
        self.note(&format!("{look:?} at broker {broker}: {status} {}", body["keys"]));
        for shown in body["keys"]["busiest"].as_array().into_iter().flatten() {
            let Some(key) = shown["key"].as_str().map(str::to_owned) else { continue };
            let count = |field: &str| shown[field].as_u64().unwrap_or(u64::MAX);
            let (topic, messages) = (target.topic, count("ready").saturating_add(count("in_flight")));
            lock(&self.ledger).keys.push(KeySeen { topic, group, key, messages, span });
        }
        for listed in body["messages"].as_array().into_iter().flatten() {
            let text = |field: &str| listed[field].as_str().unwrap_or_default();
            self.learn(text("payload"), text("id"));
        }
    }

    // Consuming.

    pub(crate) fn group_path(&self, topic: usize, group: usize) -> String {
        format!("/v1/topics/{}/groups/{}", self.topics[topic].name, self.topics[topic].groups[group])
    }

    /// Notes a delivery; answers its number and its receipt.
    pub(crate) fn delivered(&self, broker: usize, consume: &Consume, sent: Time, delivery: &Value) -> (usize, String) {
        let text = |field: &str| delivery[field].as_str().unwrap_or_default().to_owned();
        // A stream gives back what it has when it ends; the later messages of a key return when an earlier one fails.
        let is_alone = !consume.is_stream && consume.per_key == 1;
        let visibility_ms = if is_alone { self.topics[consume.topic].visibility_ms } else { 0 };
        // What was moved is still the message that was pushed.
        let topic = self.topics[consume.topic].takes_from.unwrap_or(consume.topic);
        let id = text("id");
        let fact = Delivered {
            tag: tag_of(topic, text("payload"), &id),
            topic,
            place: consume.topic,
            group: consume.group,
            id,
            partition: delivery["partition"].as_u64(),
            attempt: delivery["attempt"].as_u64().unwrap_or(0),
            due: delivery["due_at"]
                .as_str()
                .and_then(|at| at.parse::<Timestamp>().ok())
                .map(|at| Time::from_ms(at.as_ms())),
            span: Span { sent, answered: Some(self.now()) },
            visibility_ms,
            is_batch: !is_alone,
            broker,
        };
        let Delivered { tag, topic, id, attempt, group, .. } = &fact;
        let (how, waited) = (if consume.is_stream { "stream" } else { "reserve" }, self.now().since(sent) / 1_000);
        self.note(&format!(
            "deliver t{topic}/{id} as {tag} group {group} attempt {attempt} by broker {broker} ({how} {}, {waited} ms)",
            consume.seed % 10_000
        ));
        self.learn(tag, id);
        let mut ledger = lock(&self.ledger);
        ledger.deliveries.push(fact);
        (ledger.deliveries.len() - 1, text("receipt"))
    }

    async fn reserve(&self, broker: usize, consume: &Consume) -> Vec<(usize, String)> {
        let sent = self.now();
        let mut body = json!({"max": consume.max, "wait_ms": consume.wait_ms});
        if consume.per_key > 1 {
            body["per_key"] = json!(consume.per_key);
        }
        let Gather { min, linger_ms, same_key } = consume.gather;
        if consume.gather != Gather::default() {
            body["min"] = json!(min);
            body["same_key"] = json!(same_key);
        }
        if linger_ms > 0 {
            body["linger_ms"] = json!(linger_ms);
        }
        let path = format!("{}/reserve", self.group_path(consume.topic, consume.group));
        let answer = self.call(broker, "POST", &path, Some(body)).await;
        let (status, body) = answer.unwrap_or((0, Value::Null));
        if status != 200 {
            self.note(&format!("reserve at broker {broker}: {status} {}", body["detail"]));
        }
        let found = body["deliveries"].as_array().filter(|_| status == 200).into_iter().flatten();
        let taken: Vec<_> = found.map(|delivery| self.delivered(broker, consume, sent, delivery)).collect();
        if consume.gather != Gather::default() {
            let (place, group, gather) = (consume.topic, consume.group, consume.gather);
            let span = Span { sent, answered: (status > 0).then(|| self.now()) };
            let deliveries = taken.iter().map(|(delivery, _)| *delivery).collect();
            lock(&self.ledger).batches.push(BatchFact { place, group, gather, span, deliveries });
        }
        taken
    }

    /// Pushes another message of the id of one that was delivered.
    async fn push_again(&self, tag: String, broker: usize, delivery: usize, policy: Policy) {
        let target = {
            let ledger = lock(&self.ledger);
            let Delivered { tag, id, .. } = &ledger.deliveries[delivery];
            let pushed = ledger.pushes.iter().find(|push| push.tag == *tag && push.target.id == *id);
            pushed.map(|push| push.target.clone())
        };
        // SQS shows another id than the one that it knows a message by.
        let Some(target) = target else { return };
        self.push_as(tag, broker, Push::of(target, policy)).await;
    }

    async fn consume(&self, number: usize, broker: usize, consume: Consume) {
        let mut random = fastrand::Rng::with_seed(consume.seed);
        let taken = self.reserve(broker, &consume).await;
        let (mut together, mut back) = (Vec::new(), Vec::new());
        let gathers = random.bool();
        for (place, (delivery, receipt)) in taken.into_iter().enumerate() {
            if random.u8(0..8) == 0 {
                // It has to be done once more.
                self.push_again(format!("p{number}-{place}a"), broker, delivery, Policy::After).await;
            }
            match random.u8(0..22) {
                0..11 if gathers => together.push((delivery, receipt)),
                0..11 => {
                    self.think(&mut random).await;
                    self.settle(&mut random, broker, &consume, Decision::Ack, false, &[(delivery, receipt)]).await;
                }
                11..13 => {
                    let decision = Decision::Nack { delay_ms: random.bool().then(|| random.u64(0..4_000)) };
                    self.settle(&mut random, broker, &consume, decision, false, &[(delivery, receipt)]).await;
                }
                13 => self.settle(&mut random, broker, &consume, Decision::Bury, false, &[(delivery, receipt)]).await,
                14..16 => {
                    let decision = Decision::Extend { visibility_ms: random.u64(100..6_000) };
                    self.settle(&mut random, broker, &consume, decision, false, &[(delivery, receipt.clone())]).await;
                    self.think(&mut random).await;
                    self.settle(&mut random, broker, &consume, Decision::Ack, false, &[(delivery, receipt)]).await;
                }
                16 => {
                    sleep(Duration::from_millis(random.u64(0..8_000))).await;
                    let decision = if random.bool() { Decision::Ack } else { Decision::Nack { delay_ms: Some(500) } };
                    self.settle(&mut random, broker, &consume, decision, true, &[(delivery, receipt)]).await;
                }
                17 => {
                    // Two decisions: the first one stands.
                    let only = [(delivery, receipt)];
                    self.settle(&mut random, broker, &consume, Decision::Ack, false, &only).await;
                    let other = Decision::Nack { delay_ms: None };
                    self.settle(&mut random, broker, &consume, other, false, &only).await;
                }
                18 => {
                    // Long after its deadline: meanwhile it was delivered again, changed, or is another one.
                    let is_replaced = random.bool();
                    if is_replaced {
                        sleep(Duration::from_millis(self.topics[consume.topic].visibility_ms + 200)).await;
                        self.push_again(format!("p{number}-{place}"), broker, delivery, Policy::Replace).await;
                    }
                    sleep(Duration::from_millis(random.u64(if is_replaced { 200..6_000 } else { 3_000..20_000 })))
                        .await;
                    let decision =
                        if random.u8(0..4) > 0 { Decision::Ack } else { Decision::Nack { delay_ms: Some(500) } };
                    self.settle(&mut random, broker, &consume, decision, true, &[(delivery, receipt)]).await;
                }
                // As a worker does that stops: it gives back what it has not begun.
                19..21 if gathers => back.push((delivery, receipt)),
                19..21 => {
                    self.settle(&mut random, broker, &consume, Decision::Release, false, &[(delivery, receipt)]).await
                }
                // Forgotten: it comes again after its deadline.
                _ => {}
            }
        }
        if !back.is_empty() {
            self.settle(&mut random, broker, &consume, Decision::Release, false, &back).await;
        }
        if !together.is_empty() {
            self.think(&mut random).await;
            self.settle(&mut random, broker, &consume, Decision::Ack, false, &together).await;
        }
    }

    pub(crate) async fn think(&self, random: &mut fastrand::Rng) {
        if random.bool() {
            sleep(Duration::from_millis(random.u64(0..1_500))).await;
        }
    }

    async fn stream(&self, broker: usize, consume: Consume) {
        let Some(Seat { handle, router, disk }) = self.seat(broker) else { return };
        let mut random = fastrand::Rng::with_seed(consume.seed);
        let sent = self.now();
        let path = format!("{}/stream?max_in_flight={}", self.group_path(consume.topic, consume.group), consume.max);
        let (sender, mut lines) = mpsc::unbounded_channel();
        let request = request("POST", &path, None);
        let task = handle.spawn(async move {
            let Ok(response) = router.oneshot(request).await;
            let mut chunks = response.into_body().into_data_stream();
            while let Some(Ok(chunk)) = chunks.next().await {
                if disk.is_without_power() || sender.send(chunk).is_err() {
                    break;
                }
            }
        });
        let ends = sleep(Duration::from_millis(consume.wait_ms + 500));
        tokio::pin!(ends);
        loop {
            let chunk = tokio::select! {
                biased;
                () = &mut ends => break,
                chunk = lines.recv() => chunk,
            };
            let Some(chunk) = chunk else { break };
            for line in chunk.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                let Ok(delivery) = serde_json::from_slice::<Value>(line) else { continue };
                if delivery["receipt"].is_null() {
                    continue;
                }
                let taken = self.delivered(broker, &consume, sent, &delivery);
                if random.u8(0..4) > 0 {
                    self.settle(&mut random, broker, &consume, Decision::Ack, false, &[taken]).await;
                }
            }
        }
        task.abort();
        let span = Span { sent, answered: Some(self.now()) };
        lock(&self.ledger).streams.push(Streamed { topic: consume.topic, group: consume.group, span });
    }

    async fn settle(
        &self,
        random: &mut fastrand::Rng,
        broker: usize,
        consume: &Consume,
        decision: Decision,
        is_late: bool,
        taken: &[(usize, String)],
    ) {
        // Any broker takes any receipt.
        let brokers = lock(&self.seats).len();
        let broker = if random.u8(0..4) == 0 { random.usize(0..brokers) } else { broker };
        let receipts: Vec<Value> =
            taken.iter().map(|(delivery, receipt)| Clients::settled(decision, *delivery, receipt)).collect();
        let mut body = json!({"receipts": receipts});
        if is_late {
            body["late"] = json!(true);
        }
        let verb = match decision {
            Decision::Ack => "ack",
            Decision::Extend { visibility_ms } => {
                body["visibility_timeout_ms"] = json!(visibility_ms);
                "extend"
            }
            Decision::Nack { delay_ms } => {
                if let Some(delay) = delay_ms {
                    body["delay_ms"] = json!(delay);
                    if self.topics[consume.topic].is_fair && random.u8(0..3) > 0 {
                        body["pause_key"] = json!(true);
                    }
                }
                "nack"
            }
            Decision::Release => "release",
            Decision::Bury => {
                body["bury"] = json!(true);
                "nack"
            }
        };
        let path = format!("{}/{verb}", self.group_path(consume.topic, consume.group));
        let mut tries = if random.bool() { 3 } else { 1 };
        loop {
            tries -= 1;
            let is_again = self.settle_once(broker, &path, body.clone(), decision, is_late, taken).await;
            if !is_again || tries == 0 {
                return;
            }
            sleep(Duration::from_millis(300)).await;
        }
    }

    /// A delivery in a request that settles it: a nack says why.
    fn settled(decision: Decision, delivery: usize, receipt: &str) -> Value {
        match decision {
            Decision::Nack { .. } | Decision::Bury => json!({"receipt": receipt, "reason": errors::reason(delivery)}),
            _ => json!(receipt),
        }
    }

    /// Answers whether a verdict is unknown.
    async fn settle_once(
        &self,
        broker: usize,
        path: &str,
        body: Value,
        decision: Decision,
        is_late: bool,
        taken: &[(usize, String)],
    ) -> bool {
        let sent = self.now();
        let paused_ms = body["delay_ms"].as_u64().filter(|_| body["pause_key"] == true);
        let answer = self.call(broker, "POST", path, Some(body)).await;
        let span = self.span(sent, &answer);
        let (status, body) = answer.unwrap_or((0, Value::Null));
        let mut is_unknown = false;
        for (place, (delivery, _)) in taken.iter().enumerate() {
            let result = &body["results"][place];
            let verdict = match (result["status"].as_str(), status) {
                (Some("acked" | "nacked" | "released" | "buried" | "extended"), _) => Verdict::Counts,
                (Some("pending"), _) => Verdict::Pending,
                (Some("stale" | "unknown"), _) => Verdict::Stale,
                (Some(_), _) => Verdict::Unknown,
                (None, 400..=499 | 503) => Verdict::Stale,
                (None, _) => Verdict::Unknown,
            };
            is_unknown |= verdict == Verdict::Unknown;
            let reason = result["reason"].as_str().unwrap_or_default();
            let mut ledger = lock(&self.ledger);
            let line = {
                let Delivered { topic, id, tag, .. } = &ledger.deliveries[*delivery];
                let late = if is_late { " late" } else { "" };
                format!("{decision:?}{late} t{topic}/{id} as {tag} at broker {broker}: {verdict:?} {reason} {status}")
            };
            ledger.note(self.clocks.now(), &line);
            if let Some(for_ms) = paused_ms {
                ledger.paused_by_nack(*delivery, for_ms, span, verdict == Verdict::Counts);
            }
            ledger.settlements.push(Settled { delivery: *delivery, decision, span, verdict, is_told: true });
        }
        is_unknown
    }

    // The end.

    /// Takes and acks everything of a group until `idle_ms` have passed without a delivery.
    pub(crate) async fn drain(&self, broker: usize, topic: usize, group: usize, idle_ms: u64) {
        let consume = Consume {
            topic,
            group,
            max: 100,
            wait_ms: 1_000,
            per_key: 1,
            is_stream: false,
            seed: 0,
            gather: Gather::default(),
        };
        let mut random = fastrand::Rng::with_seed(0);
        let mut last = self.now();
        while self.now().since(last) < idle_ms * 1_000 {
            let taken = self.reserve(broker, &consume).await;
            if taken.is_empty() {
                sleep(Duration::from_millis(50)).await;
                continue;
            }
            last = self.now();
            self.settle(&mut random, broker, &consume, Decision::Ack, false, &taken).await;
        }
    }

    /// The payloads of all dead letters of a group.
    pub(crate) async fn dead(&self, topic: usize, group: usize) -> Result<Vec<String>, String> {
        let (mut cursor, mut dead) = (String::new(), Vec::new());
        loop {
            let path = format!("{}/dead-letters?limit=1000{cursor}", self.group_path(topic, group));
            let sent = self.now();
            let (status, body) = self.call(0, "GET", &path, None).await.ok_or("no answer")?;
            if status == 404 {
                return Ok(dead);
            }
            if status != 200 {
                return Err(format!("dead letters: {status} {body}"));
            }
            let found = body["dead_letters"].as_array().into_iter().flatten();
            for letter in found.clone() {
                self.note_error(topic, group, self.span(sent, &Some(())), letter);
            }
            dead.extend(found.map(|letter| {
                let text = |field: &str| letter[field].as_str().unwrap_or_default().to_owned();
                let source = self.topics[topic].takes_from.unwrap_or(topic);
                tag_of(source, text("payload"), &text("id"))
            }));
            match body["next_cursor"].as_str() {
                None => return Ok(dead),
                Some(next) => cursor = format!("&cursor={next}"),
            }
        }
    }

    /// What is in a group beside dead letters.
    pub(crate) async fn left(&self, topic: usize, group: usize) -> Result<Left, String> {
        let (status, body) = self.call(0, "GET", &self.group_path(topic, group), None).await.ok_or("no answer")?;
        if status == 404 {
            return Ok(Left::NoGroup);
        }
        let totals = &body["totals"];
        let states = ["scheduled", "ready", "blocked", "backoff", "in_flight"];
        let counts: Option<Vec<u64>> = states.iter().map(|state| totals[state].as_u64()).collect();
        let counts = counts.ok_or_else(|| format!("counts: {status} {body}"))?;
        if counts.iter().all(|count| *count == 0) {
            return Ok(Left::Nothing);
        }
        let partitions = body["partitions"].as_array().into_iter().flatten();
        let held = partitions.filter(|partition| states.iter().any(|state| partition[state] != 0));
        let held: Vec<String> = held.map(Value::to_string).collect();
        Ok(Left::Messages(format!("{} of {}", held.join(", "), body["members"])))
    }
}
