//! Real brokers that are killed and restarted: nothing is lost, and nothing is early. MESSAGES is how many messages each story has.

mod lab;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use dwell_client::{
    Client, ClientBuilder, Delivery, Error, Failure, NewMessage, Producer, PurgeOf, Reschedule, Timestamp,
    TopicSettings, Trace, Worker,
};
use lab::{Outcome, failures, lab, text, turn};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::sync::{Notify, watch};

const PUSHERS: usize = 4;

/// Real brokers, and a client of them.
struct Story {
    client: Client,
    _turn: tokio::sync::MutexGuard<'static, ()>,
}

impl Story {
    async fn begin(name: &str, messages: usize, set_up: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Outcome<Story> {
        let turn = turn().await;
        let begun = lab("/story", json!({"name": name, "messages": messages})).await?;
        let builder = Client::builder().server(text(&begun, "server")).timeout(Duration::from_secs(10));
        let mut builder = set_up(builder.token_file(text(&begun, "token_file")).retry_for(Duration::from_secs(60)));
        if begun["ca_file"].is_string() {
            builder = builder.ca_file(text(&begun, "ca_file"));
        }
        Ok(Story { client: builder.build()?, _turn: turn })
    }

    /// How many faults there were.
    async fn end(self) -> Outcome<u64> {
        let ended = lab("/story/end", json!({})).await?;
        let failures = failures(&ended);
        assert!(failures.is_empty(), "{failures:?}");
        Ok(ended["faults"].as_u64().unwrap_or_default())
    }
}

/// What handlers have seen.
#[derive(Default)]
struct Seen {
    handled: HashMap<String, u32>,
    late: Vec<u64>,
    early: usize,
}

/// How far a story is.
struct Progress {
    messages: usize,
    seen: Mutex<Seen>,
    stale: AtomicU64,
    done: watch::Sender<bool>,
    /// Where the brokers have no faults, the worker is replaced while messages are in flight.
    replace: Option<Notify>,
}

impl Progress {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn handle(&self, delivery: Delivery) -> Result<(), Failure> {
        let (is_new, count) = {
            let mut seen = self.seen();
            seen.early += usize::from(Timestamp::from(SystemTime::now()) < delivery.due_at);
            if delivery.attempt == 1 {
                seen.late.push(delivery.lateness_ms);
            }
            let times = seen.handled.entry(delivery.id.clone()).or_default();
            *times += 1;
            (*times == 1, seen.handled.len())
        };
        let step = (self.messages / 100).max(1);
        if is_new && count.is_multiple_of(step) {
            lab("/mark", json!({"name": "handled", "by": step})).await.map_err(Failure::boxed)?;
        }
        if let Some(replace) = self.replace.as_ref().filter(|_| is_new && count.is_multiple_of(self.messages / 4)) {
            replace.notify_one();
        }
        if is_new && count == self.messages {
            self.done.send_replace(true);
        }
        Ok(())
    }
}

/// Workers, one after the other, until everything is handled.
async fn consume(client: Client, progress: Arc<Progress>) -> Outcome {
    let mut done = progress.done.subscribe();
    while !*done.borrow() {
        let builder = Worker::builder(&client, "orders").concurrency(32).visibility(Duration::from_secs(3));
        let worker = builder.wait(Duration::from_secs(5)).build()?;
        let replaced = async {
            match &progress.replace {
                Some(replace) => replace.notified().await,
                None => std::future::pending().await,
            }
        };
        let stop = async {
            tokio::select! {
                () = replaced => {}
                _ = done.wait_for(|done| *done) => {}
            }
        };
        let seen = progress.clone();
        let handler = move |delivery| {
            let seen = seen.clone();
            async move { seen.handle(delivery).await }
        };
        worker.run_until(stop, handler).await?;
        progress.stale.fetch_add(worker.stats().stale, Ordering::Relaxed);
    }
    Ok(())
}

/// Pushes every fourth message, from this one on.
async fn push(client: Client, pusher: usize, messages: usize, gathers: bool) -> Outcome<usize> {
    // Messages are due within this time: about 1,000 a second.
    let spread = messages.max(1_000) as u64;
    let message = |n: usize| -> Outcome<NewMessage> {
        let delay = Duration::from_millis(n as u64 * 7_919 % spread);
        Ok(NewMessage::json(&json!({"n": n}))?.id(format!("m-{n}")).delay(delay))
    };
    let numbers: Vec<usize> = (pusher..messages).step_by(PUSHERS).collect();
    let mut pushed = 0;
    if gathers {
        let producer = Producer::new(&client)?;
        let mut pushing = tokio::task::JoinSet::new();
        for n in numbers {
            let (producer, message) = (producer.clone(), message(n)?);
            pushing.spawn(async move { producer.push("orders", message).await });
        }
        while let Some(result) = pushing.join_next().await {
            result??;
            pushed += 1;
        }
        producer.close().await;
        return Ok(pushed);
    }
    for part in numbers.chunks(50) {
        let batch: Vec<NewMessage> = part.iter().map(|n| message(*n)).collect::<Outcome<_>>()?;
        pushed += client.push_many("orders", batch).await?.len();
    }
    Ok(pushed)
}

async fn nothing_is_lost(name: &str, faults: u64, gathers: bool) -> Outcome {
    let messages = std::env::var("MESSAGES").ok().and_then(|text| text.parse().ok()).unwrap_or(2_000);
    let story = Story::begin(name, messages, |builder| builder).await?;
    story.client.create_topic("orders", TopicSettings::default().partitions(4)).await?;
    let progress = Arc::new(Progress {
        messages,
        seen: Mutex::default(),
        stale: AtomicU64::default(),
        done: watch::channel(false).0,
        replace: (faults == 0).then(Notify::new),
    });
    let began = Instant::now();
    let consuming = tokio::spawn(consume(story.client.clone(), progress.clone()));
    let pushing: Vec<_> =
        (0..PUSHERS).map(|n| tokio::spawn(push(story.client.clone(), n, messages, gathers))).collect();
    let mut pushed = 0;
    for pusher in pushing {
        pushed += pusher.await??;
    }
    let patience = Duration::from_secs(120) + Duration::from_millis(20) * u32::try_from(messages)?;
    tokio::time::timeout(patience, consuming).await???;
    let took = began.elapsed().as_secs_f32();
    let seen_faults = story.end().await?;
    let mut seen = progress.seen();
    seen.late.sort_unstable();
    let p99 = seen.late.get(seen.late.len() * 99 / 100).copied().unwrap_or_default();
    let again = seen.handled.values().map(|times| times - 1).sum::<u32>();
    let (lost, early, stale) = (messages - seen.handled.len(), seen.early, progress.stale.load(Ordering::Relaxed));
    println!(
        "rust {name}: {messages} messages in {took:.1} s, {seen_faults} faults, {lost} lost, {early} early, {again} again, {stale} stale, p99 of lateness {p99} ms"
    );
    assert!(faults > 0 || (again == 0 && stale == 0), "{again} again, {stale} stale");
    assert_eq!((seen_faults, pushed, lost, early), (faults, messages, 0, 0));
    Ok(())
}

macro_rules! stories {
    ($($test:ident: $name:literal, $faults:literal faults, gathers: $gathers:literal;)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() -> Outcome {
                nothing_is_lost($name, $faults, $gathers).await
            }
        )+
    };
}

stories! {
    nothing_is_lost_without_faults: "calm", 0 faults, gathers: false;
    nothing_is_lost_when_the_broker_is_killed: "kills", 4 faults, gathers: false;
    nothing_is_lost_when_the_broker_of_a_gathering_producer_is_killed: "kills", 4 faults, gathers: true;
    nothing_is_lost_when_the_broker_is_restarted: "restarts", 4 faults, gathers: false;
    nothing_is_lost_when_redis_is_killed: "outages", 4 faults, gathers: false;
    nothing_is_lost_when_one_of_two_brokers_is_killed: "brokers", 4 faults, gathers: false;
}

#[tokio::test]
async fn messages_are_pushed_changed_and_found() -> Outcome {
    let story = Story::begin("calm", 0, |builder| builder).await?;
    let client = &story.client;
    let name = ("close-4713", "order-4713");
    let order = json!({"order": 4713});
    let message = NewMessage::json(&order)?.id(name.0).key(name.1).delay(Duration::from_secs(1_800)).meta("shop", "7");
    let pushed = client.push("orders", message.clone()).await?;
    assert_eq!((&*pushed.id, &*pushed.status, pushed.topic_created), (name.0, "stored", true));
    let again = client.push("orders", message).await?;
    assert_eq!((&*again.status, again.due_at), ("duplicate", pushed.due_at));
    let found = client.get("orders", name).await?;
    assert_eq!((&*found.state, found.contents.meta.get("shop")), ("scheduled", Some("7")));
    assert_eq!(found.contents.json::<Value>()?, order);
    let to = Reschedule::after(Duration::from_secs(5_400)).etag(&found.etag);
    let moved = client.reschedule("orders", name, to).await?;
    let later = moved.due_at.unwrap_or_default().since(pushed.due_at.unwrap_or_default());
    assert!(later.abs_diff(Duration::from_secs(3_600)) < Duration::from_secs(30), "{later:?}");
    let stale = client.reschedule("orders", name, Reschedule::after(Duration::ZERO).etag(&found.etag)).await;
    assert!(stale.is_err_and(|error| error.is("precondition-failed")));
    assert_eq!(client.cancel("orders", name).await?.status, "cancelled");
    assert!(client.get("orders", name).await.is_err_and(|error| error.is("not-found")));
    story.end().await.map(drop)
}

/// Handles messages until there are so many, by their ids.
async fn receive(client: &Client, count: usize) -> Outcome<HashMap<String, Delivery>> {
    let (seen, done) = (Arc::new(Mutex::new(HashMap::new())), watch::channel(false).0);
    let worker = Worker::new(client, "orders")?;
    let mut waiting = done.subscribe();
    let stop = async move {
        let _ = tokio::time::timeout(Duration::from_secs(30), waiting.wait_for(|done| *done)).await;
    };
    let deliveries = seen.clone();
    let handler = move |delivery: Delivery| {
        let mut deliveries = deliveries.lock().unwrap_or_else(PoisonError::into_inner);
        deliveries.insert(delivery.id.clone(), delivery);
        done.send_replace(deliveries.len() == count);
        async { Ok(()) }
    };
    worker.run_until(stop, handler).await?;
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert_eq!(seen.len(), count);
    Ok(seen)
}

async fn payloads_arrive(name: &str) -> Outcome {
    let story = Story::begin(name, 0, |builder| builder).await?;
    let payloads = [
        ("bytes", NewMessage::bytes([0, 255]), b"\x00\xff".as_slice()),
        ("none", NewMessage::bytes([]), b""),
        ("text", NewMessage::text("käse"), "käse".as_bytes()),
        ("empty", NewMessage::text(""), b""),
        ("json", NewMessage::json(&json!([1, null, "🧀"]))?, "[1,null,\"🧀\"]".as_bytes()),
        ("null", NewMessage::json(&Value::Null)?, b"null"),
    ];
    for (id, message, _) in &payloads {
        story.client.push("orders", message.clone().id(*id)).await?;
    }
    let seen = receive(&story.client, payloads.len()).await?;
    for (id, _, expected) in &payloads {
        assert_eq!(seen.get(*id).map(Delivery::payload), Some(*expected), "{id}");
    }
    story.end().await.map(drop)
}

#[tokio::test]
async fn payloads_arrive_over_a_unix_socket_with_a_token() -> Outcome {
    payloads_arrive("restarts").await
}

#[tokio::test]
async fn payloads_arrive_over_tls() -> Outcome {
    payloads_arrive("tls").await
}

#[tokio::test]
async fn pushes_carry_the_trace_of_their_caller() -> Outcome {
    tokio::task_local! {
        static PARENT: &'static str;
    }
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let tracer = || PARENT.try_with(|parent| Trace { traceparent: (*parent).to_owned(), tracestate: None }).ok();
    let story = Story::begin("calm", 0, |builder| builder.trace(tracer)).await?;
    let client = &story.client;
    let one = PARENT.scope(parent, client.push("orders", NewMessage::text("x").id("one"))).await?;
    PARENT.scope(parent, client.push_many("orders", [NewMessage::text("x").id("many")])).await?;
    let producer = Producer::new(client)?;
    PARENT.scope(parent, producer.push("orders", NewMessage::text("x").id("gathered"))).await?;
    client.push("orders", NewMessage::text("x").id("none")).await?;
    assert_eq!(one.status, "stored");
    let seen = receive(client, 4).await?;
    let carried = |id: &str| seen.get(id).and_then(|delivery| delivery.contents.traceparent.as_deref());
    assert_eq!(
        [carried("one"), carried("many"), carried("gathered"), carried("none")],
        [Some(parent), Some(parent), Some(parent), None]
    );
    story.end().await.map(drop)
}

/// A server that is not there: the error says where it was looked for, and why there was no answer.
#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() -> Outcome {
    let client = Client::builder().server("http://127.0.0.1:1").retry_for(Duration::from_millis(200)).build()?;
    let Err(error) = client.push("orders", NewMessage::text("x")).await else { return Err("it was stored".into()) };
    assert!(error.is_unavailable() && error.to_string().contains("http://127.0.0.1:1"), "{error}");
    assert!(std::error::Error::source(&error).is_some_and(|cause| cause.to_string().contains("refused")));
    Ok(())
}

/// A request whose second time would have another effect is sent once, also where others are repeated.
#[tokio::test]
async fn a_purge_is_not_repeated_after_a_lost_answer() -> Outcome {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let client = Client::builder().server(format!("http://{}", listener.local_addr()?));
    let client = client.retry_for(Duration::from_millis(500)).build()?;
    let requests = Arc::new(AtomicU64::default());
    let counted = requests.clone();
    let serving = tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let _ = connection.read(&mut [0; 4_096]).await;
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let Err(Error::Unavailable(lost)) = client.purge("orders", "default", PurgeOf::everything()).await else {
        return Err("there was an answer".into());
    };
    assert_eq!((lost.repeated, requests.load(Ordering::Relaxed)), (true, 1));
    assert!(client.pause("orders", "default").await.is_err_and(|error| error.is_unavailable()));
    assert!(requests.load(Ordering::Relaxed) > 2);
    serving.abort();
    Ok(())
}
