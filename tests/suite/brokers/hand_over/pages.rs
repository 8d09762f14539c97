//! Pages of records: taken once by whoever replays them first, and only from a broker of the same store.

use std::time::Duration;

use dwell::app::engine::{Engine, OutageOptions, StoreOptions};
use dwell::codec::{NumberedRecord, encode_page};
use dwell::delivery::Decision;
use dwell::model::error::{Kind, Result};
use dwell::model::message::{Conflict, GroupName, MessageId, NewMessage, TopicName};
use dwell::model::topic::{Descriptor, Settings};
use dwell::model::version::{CallId, Version};
use dwell::platform::clock::Clock;
use dwell::store::redis::RedisOptions;
use dwell::store::{HandedOver, LogKind, TakenOver};
use dwell::wal::Record;
use serde_json::json;
use tempfile::TempDir;

use crate::support::{Process, RedisServer, eventually, failed, scratch};

/// A broker in this process.
async fn broker(redis: &RedisServer, dir: &TempDir) -> Result<Engine> {
    let (redis, outage) = (RedisOptions::new(redis.url()), OutageOptions::new(dir.path()));
    let options = dwell::broker::Options { lease_ttl: Duration::from_secs(1), ..Default::default() };
    Engine::start(StoreOptions::Redis { redis, outage }, options, Clock::System).await
}

/// A page with one push, as the broker with the log `origin` would give it.
fn page(store: &str, origin: &str, id: &str, version: Version) -> Result<HandedOver> {
    let at = Clock::System.now();
    let message = NewMessage::new("x").id(MessageId::new(id)?).accept(at)?;
    let (topic, conflict, call) = (TopicName::new("orders")?, Conflict::Keep, None);
    let origin_call = Some(CallId { stream: origin.to_owned(), seq: 7 });
    let record = Record::Push { topic, message, version, conflict, call, origin: origin_call };
    let records = vec![NumberedRecord { number: 7, at, record }];
    Ok(HandedOver {
        store: store.to_owned(),
        heard: None,
        kind: LogKind::Wal,
        log: origin.to_owned(),
        after: 0,
        records,
    })
}

/// A page of a journal with what one call set. Both have this number: the record in its log, and the call in its stream.
fn set(store: &str, origin: &str, seq: u64) -> Result<HandedOver> {
    let mut page = page(store, origin, &format!("m{seq}"), now())?;
    let Record::Push { topic, message, version, .. } = page.records[0].record.clone() else {
        return Err(dwell::model::error::Error::bug("a page of pushes"));
    };
    let call = CallId { stream: "01JZCALLS".to_owned(), seq };
    page.records[0].number = seq;
    page.records[0].record = Record::Set { topic, message, version, groups: Vec::new(), call };
    Ok(HandedOver { kind: LogKind::Journal, ..page })
}

fn kept(taken: u64) -> TakenOver {
    TakenOver::Kept { taken, refused: 0 }
}

/// A broker in this process that keeps a journal.
async fn journaling(redis: &RedisServer, dir: &TempDir) -> Result<Engine> {
    let redis = RedisOptions::new(redis.url());
    let outage = OutageOptions { journal_window: Some(Duration::from_secs(3_600)), ..OutageOptions::new(dir.path()) };
    Engine::start(StoreOptions::Redis { redis, outage }, dwell::broker::Options::default(), Clock::System).await
}

fn now() -> Version {
    Version::from_us(Clock::System.now().as_ms() * 1_000)
}

/// Takes what is due, acks it, and answers the ids.
async fn take(engine: &Engine, wait: Duration) -> Result<Vec<String>> {
    let (topic, group) = (TopicName::new("orders")?, GroupName::standard());
    let request = dwell::broker::ReserveRequest { max: 100, wait, visibility_timeout: None };
    let deliveries = match engine.broker().reserve(&topic, &group, request).await {
        Err(error) if dwell::broker::is_topic_missing(&error) => return Ok(Vec::new()),
        deliveries => deliveries?,
    };
    let decisions = deliveries.iter().map(|delivery| (delivery.receipt.to_string(), Decision::Ack)).collect();
    if !deliveries.is_empty() {
        engine.broker().settle(&topic, &group, decisions).await?;
    }
    Ok(deliveries.iter().map(|delivery| delivery.message.id.to_string()).collect())
}

async fn replayed(engine: &Engine) -> Result<()> {
    eventually("nothing is buffered", async || {
        let health = engine.broker().health().await;
        Ok((health.ready && health.detail.is_none()).then_some(()))
    })
    .await
}

#[tokio::test]
async fn page_taken_by_two_brokers_is_delivered_once() -> Result<()> {
    let (redis, dirs) = (RedisServer::start().await?, [scratch()?, scratch()?]);
    let (first, second) = (broker(&redis, &dirs[0]).await?, broker(&redis, &dirs[1]).await?);
    first.broker().push(&TopicName::new("orders")?, NewMessage::new("y").id(MessageId::new("own")?)).await?;
    let store: String = redis.ask("GET dwell:id").await?;
    let page = page(&store, "01JZAAAAAAAAAAAAAAAAAAAAAA", "handed", now())?;
    assert_eq!(first.broker().take_over(page.clone(), false).await?, kept(1));
    replayed(&first).await?;
    let mut got = take(&first, Duration::from_secs(5)).await?;
    while got.len() < 2 {
        got.extend(take(&first, Duration::from_secs(5)).await?);
    }
    got.sort();
    assert_eq!(got, ["handed", "own"]);
    // The answer was lost, so the page was given again: to the same broker, and to another one.
    for engine in [&first, &second] {
        assert_eq!(engine.broker().take_over(page.clone(), false).await?, kept(1));
        replayed(engine).await?;
    }
    assert_eq!(take(&first, Duration::from_millis(500)).await?, Vec::<String>::new());
    first.close().await?;
    second.close().await
}

/// The journal of a broker that forwarded dead letters names the pages of them as calls.
#[tokio::test]
async fn journal_with_forwarded_dead_letters_is_handed_over() -> Result<()> {
    let (redis, dir) = (RedisServer::start().await?, scratch()?);
    let engine = journaling(&redis, &dir).await?;
    replayed(&engine).await?;
    let store: String = redis.ask("GET dwell:id").await?;
    let at = Clock::System.now();
    let message = NewMessage::new("x").id(MessageId::new("forwarded")?).accept(at)?;
    let call = CallId { stream: "a1B2c3D4e5F6@g7H8i9J0k1L2".to_owned(), seq: 1 };
    let (topic, groups) = (TopicName::new("orders")?, vec![GroupName::standard()]);
    let record = Record::Set { topic, message, version: now(), groups, call };
    let records = vec![NumberedRecord { number: 1, at, record }];
    let log = "01JZAAAAAAAAAAAAAAAAAAAAAA".to_owned();
    let page = HandedOver { store, heard: None, kind: LogKind::Journal, log, after: 0, records };
    assert_eq!(engine.broker().take_over(page, false).await?, kept(1));
    let came = async || Ok(Some(take(&engine, Duration::from_secs(1)).await?).filter(|ids| !ids.is_empty()));
    assert_eq!(eventually("it is restored and delivered", came).await?, ["forwarded"]);
    engine.close().await
}

#[tokio::test]
async fn hand_over_from_a_foreign_store_is_refused() -> Result<()> {
    let (redis, dir) = (RedisServer::start().await?, scratch()?);
    let engine = broker(&redis, &dir).await?;
    let store: String = redis.ask("GET dwell:id").await?;
    let log = "01JZAAAAAAAAAAAAAAAAAAAAAA";
    let refused = async |page: HandedOver, may_create| {
        engine.broker().take_over(page, may_create).await.err().map(|error| error.kind())
    };
    assert_eq!(refused(page("01JZOTHER", log, "a", now())?, true).await, Some(Kind::Conflict));
    assert_eq!(refused(page(&store, log, "a", Version::from_us(u64::MAX))?, true).await, Some(Kind::Invalid));
    assert_eq!(refused(page(&store, "c:{x}", "a", now())?, true).await, Some(Kind::Invalid));
    let of_a_journal = HandedOver { kind: LogKind::Journal, ..page(&store, log, "a", now())? };
    assert_eq!(refused(of_a_journal, true).await, Some(Kind::Invalid));
    let mut created = page(&store, log, "a", now())?;
    let settings = Settings { max_attempts: 3, ..Settings::default() };
    created.records[0].record = Record::Create(Descriptor::new(TopicName::new("other")?, settings));
    assert_eq!(refused(created.clone(), false).await, Some(Kind::Forbidden));
    assert_eq!(refused(created, true).await, None);
    engine.close().await
}

#[tokio::test]
async fn hand_over_needs_a_token_of_its_own_scope() -> Result<()> {
    let (redis, dir) = (RedisServer::start().await?, scratch()?);
    let mut config = String::new();
    for scope in ["produce", "hand_over"] {
        let file = dir.path().join(format!("{scope}.token"));
        std::fs::write(&file, format!("{scope}-0123456789abcdef0123456789abcdef")).map_err(failed("a token"))?;
        config +=
            &format!("[[auth.token]]\nname = \"{scope}\"\nfile = \"{}\"\nscopes = [\"{scope}\"]\n", file.display());
    }
    let file = dir.path().join("dwell.toml");
    std::fs::write(&file, config).map_err(failed("a configuration"))?;
    let (url, file) = (redis.url(), file.display().to_string());
    let dwell = Process::serve(dir.path(), &[("REDIS_URL", url.as_str()), ("CONFIG", file.as_str())]).await?;
    let store: String = redis.ask("GET dwell:id").await?;
    let log = "01JZAAAAAAAAAAAAAAAAAAAAAA";
    let bytes = encode_page(&page(&store, log, "handed", now())?.records)?;
    let place = [("dwell-store", store.as_str()), ("dwell-log", "wal"), ("dwell-log-id", log)];
    let status = async |token: &str, headers: &[(&str, &str)], bytes: Vec<u8>| {
        let authorization = format!("Bearer {token}-0123456789abcdef0123456789abcdef");
        let headers = [headers, &[("authorization", authorization.as_str())]].concat();
        dwell.client.hand_over(&headers, bytes).await.map(|(status, _)| status)
    };
    assert_eq!(dwell.client.hand_over(&place, bytes.clone()).await.map(|(status, _)| status), Some(401));
    assert_eq!(status("produce", &place, bytes.clone()).await, Some(403));
    assert_eq!(status("hand_over", &place[1..], bytes.clone()).await, Some(422));
    assert_eq!(status("hand_over", &place, bytes[1..].to_vec()).await, Some(400));
    let other = [("dwell-store", "01JZOTHER"), place[1], place[2]];
    assert_eq!(status("hand_over", &other, bytes.clone()).await, Some(409));
    assert_eq!(status("hand_over", &place, bytes.clone()).await, Some(200));
    let stored = async || {
        let ids: Vec<String> = redis.ask("KEYS {dwell:orders:*}:default:h").await?;
        Ok((!ids.is_empty()).then_some(json!(ids)))
    };
    eventually("it is replayed", stored).await.map(drop)
}

#[tokio::test]
async fn journal_hand_over_must_start_at_its_beginning() -> Result<()> {
    let (redis, dir) = (RedisServer::start().await?, scratch()?);
    let engine = journaling(&redis, &dir).await?;
    let store: String = redis.ask("GET dwell:id").await?;
    let log = "01JZAAAAAAAAAAAAAAAAAAAAAA";
    let set = |seq: u64, after: u64| Ok(HandedOver { after, ..set(&store, log, seq)? });
    let take = async |page: HandedOver| engine.broker().take_over(page, false).await;
    // What the calls of a stream set is restored in their order: the second one alone would hide the first one for good.
    assert_eq!(take(set(2, 1)?).await?, TakenOver::LacksEarlier);
    assert_eq!(take(set(1, 0)?).await?, kept(1));
    assert_eq!(take(set(2, 1)?).await?, kept(1));
    let both = async || {
        let ids: Vec<String> = redis.ask("KEYS {dwell:orders:*}:default:h").await?;
        let mut stored = 0;
        for hash in ids {
            stored += redis.ask::<u64>(&format!("HLEN {hash}")).await?;
        }
        Ok((stored == 2).then_some(()))
    };
    eventually("both are restored", both).await?;
    engine.close().await
}

#[tokio::test]
async fn deletion_record_needs_admin_scope() -> Result<()> {
    let (redis, dir) = (RedisServer::start().await?, scratch()?);
    let engine = journaling(&redis, &dir).await?;
    let store: String = redis.ask("GET dwell:id").await?;
    let mut deleted = page(&store, "01JZAAAAAAAAAAAAAAAAAAAAAA", "m", now())?;
    deleted.kind = LogKind::Journal;
    deleted.records[0].record = Record::Delete(Descriptor::new(TopicName::new("orders")?, Settings::default()));
    let take = async |is_admin| engine.broker().take_over(deleted.clone(), is_admin).await;
    assert_eq!(take(false).await?, TakenOver::Kept { taken: 0, refused: 1 });
    assert_eq!(take(true).await?, kept(1));
    engine.close().await
}

#[tokio::test]
async fn records_of_another_store_are_kept_and_not_replayed() -> Result<()> {
    let (mut redis, dir) = (RedisServer::durable().await?, scratch()?);
    redis.ask::<()>("SET dwell:id 01JZAAAAAAAAAAAAAAAAAAAAAA").await?;
    redis.kill()?;
    let outage = OutageOptions::new(dir.path());
    let options = RedisOptions { timeout: Duration::from_millis(300), ..RedisOptions::new(redis.url()) };
    let options = StoreOptions::Redis { redis: options, outage };
    let engine = Engine::start(options, dwell::broker::Options::default(), Clock::System).await?;
    let handed = page("01JZBBBBBBBBBBBBBBBBBBBBBB", "01JZCCCCCCCCCCCCCCCCCCCCCC", "foreign", now())?;
    assert_eq!(engine.broker().take_over(handed, true).await?, kept(1));
    redis.restart().await?;
    eventually("the broker says that it holds records of another store", async || {
        let health = engine.broker().health().await;
        Ok(health.detail.filter(|detail| !health.ready && detail.contains("buffered for another store")))
    })
    .await?;
    assert_eq!(redis.ask::<Vec<String>>("KEYS *orders*").await?, Vec::<String>::new());
    engine.close().await
}

/// What no broker buffers is refused, whoever hands it over, and nothing of the page is kept.
/// Makes a message wrong, at a time.
type Change = fn(&mut dwell::model::message::Message, dwell::model::time::Timestamp);

#[tokio::test]
async fn records_are_checked_as_pushes_are() -> Result<()> {
    let (redis, dir) = (RedisServer::start().await?, scratch()?);
    let engine = journaling(&redis, &dir).await?;
    replayed(&engine).await?;
    let store: String = redis.ask("GET dwell:id").await?;
    let log = "01JZAAAAAAAAAAAAAAAAAAAAAA";
    let at = Clock::System.now();
    let later = at.plus(Duration::from_secs(3_600));
    let cases: [(&str, Change); 7] = [
        ("due", |message, now| message.due_at = now.plus(Duration::from_secs(4_000 * 86_400))),
        ("attempts", |message, _| message.envelope.max_attempts = Some(1_000_000)),
        ("priority", |message, _| message.envelope.priority = 10),
        ("pushed", |message, now| message.envelope.pushed_at = now.plus(Duration::from_secs(3_600))),
        ("content type", |message, _| message.envelope.content_type = Some("é".to_owned())),
        ("meta", |message, _| message.envelope.meta = vec![("a".to_owned(), "v".repeat(10_000))]),
        ("meta names", |message, _| {
            message.envelope.meta = (0..200).map(|n| (format!("n{n}"), String::new())).collect()
        }),
    ];
    for (what, change) in cases {
        let mut wrong = page(&store, log, "wrong", now())?;
        let Record::Push { topic, mut message, version, .. } = wrong.records[0].record.clone() else {
            return Err(dwell::model::error::Error::bug("a page of pushes"));
        };
        change(&mut message, at);
        let call = CallId { stream: "01JZCALLS".to_owned(), seq: 1 };
        let set = Record::Set { topic, message: message.clone(), version, groups: Vec::new(), call };
        if let Record::Push { message: pushed, .. } = &mut wrong.records[0].record {
            *pushed = message;
        }
        let refused = engine.broker().take_over(wrong.clone(), true).await;
        assert_eq!(refused.err().map(|error| error.kind()), Some(Kind::Invalid), "{what}");
        wrong.records[0].record = set;
        let journal = HandedOver { kind: LogKind::Journal, ..wrong };
        let refused = engine.broker().take_over(journal, true).await;
        assert_eq!(refused.err().map(|error| error.kind()), Some(Kind::Invalid), "{what} in a journal");
    }
    // Nobody has fired what is still to come, and nothing but a cron job fires.
    for (id, kind) in [
        (format!("nightly@{later}"), LogKind::Wal),
        (format!("nightly@{at}"), LogKind::Wal),
        (format!("nightly@{later}"), LogKind::Journal),
    ] {
        let mut early = page(&store, log, "wrong", now())?;
        let Record::Push { topic, mut message, version, .. } = early.records[0].record.clone() else {
            return Err(dwell::model::error::Error::bug("a page of pushes"));
        };
        message.id = MessageId::new(id.as_str())?;
        early.kind = kind;
        early.records[0].record = match kind {
            LogKind::Wal => Record::Push {
                topic,
                message,
                version,
                conflict: Conflict::Keep,
                call: None,
                origin: Some(CallId { stream: log.to_owned(), seq: 7 }),
            },
            LogKind::Journal => Record::Set {
                topic,
                message,
                version,
                groups: Vec::new(),
                call: CallId { stream: "01JZCALLS".to_owned(), seq: 1 },
            },
        };
        let refused = engine.broker().take_over(early, true).await.err().map(|error| error.kind());
        assert_eq!(refused, Some(Kind::Invalid), "{id} {}", kind.name());
    }
    let ahead = page(&store, log, "ahead", Version::from_us((at.as_ms() + 400_000) * 1_000))?;
    assert!(engine.broker().take_over(ahead, true).await.is_err(), "it could not be cancelled");
    assert_eq!(engine.broker().take_over(page(&store, log, "good", now())?, false).await?, kept(1));
    assert_eq!(take(&engine, Duration::from_secs(5)).await?, ["good"]);
    engine.close().await
}

/// Without `admin` the sender does not say which store this broker has, and a page without records says nothing at all.
#[tokio::test]
async fn only_an_admin_says_which_store_a_broker_has() -> Result<()> {
    let (mut redis, dir) = (RedisServer::start().await?, scratch()?);
    let url = redis.url();
    redis.kill()?;
    let (redis, outage) = (RedisOptions::new(url), OutageOptions::new(dir.path()));
    let engine =
        Engine::start(StoreOptions::Redis { redis, outage }, dwell::broker::Options::default(), Clock::System).await?;
    let log = "01JZAAAAAAAAAAAAAAAAAAAAAA";
    let page_of = |store: &str| page(store, log, "handed", now());
    let empty =
        |store: &str| Ok::<_, dwell::model::error::Error>(HandedOver { records: Vec::new(), ..page_of(store)? });
    for page in [page_of("01JZEVIL")?, empty("01JZEVIL")?] {
        assert_eq!(
            engine.broker().take_over(page, false).await.err().map(|error| error.kind()),
            Some(Kind::Unavailable)
        );
    }
    assert_eq!(engine.broker().take_over(empty("01JZEVIL")?, true).await?, kept(0));
    assert_eq!(engine.broker().take_over(page_of("01JZGOOD")?, true).await?, kept(1), "nothing was fixed before");
    let other = engine.broker().take_over(page_of("01JZEVIL")?, true).await.err().map(|error| error.kind());
    assert_eq!(other, Some(Kind::Conflict));
    engine.close().await
}

/// A PUT that is answered during an outage promises the topic as it was: whoever stops then hands over what every broker knows.
#[tokio::test]
async fn promise_of_a_topic_that_is_there_needs_no_admin_scope() -> Result<()> {
    let (redis, dir) = (RedisServer::start().await?, scratch()?);
    let engine = broker(&redis, &dir).await?;
    let store: String = redis.ask("GET dwell:id").await?;
    let orders = TopicName::new("orders")?;
    let settings = Settings { max_attempts: 3, ..Settings::default() };
    let promised = async |settings: Settings, log: &str| {
        let there = engine.broker().topic(&orders).await.map(|there| there.as_ref().clone());
        let there = there.unwrap_or_else(|_| Descriptor::new(orders.clone(), Settings::default()));
        let mut handed = page(&store, log, "m", now())?;
        let incarnation = now().as_us() / 1_000;
        handed.records[0].record = Record::Create(Descriptor { generation: 0, incarnation, settings, ..there });
        engine.broker().take_over(handed, false).await
    };
    let refused = promised(settings.clone(), "01JZAAAAAAAAAAAAAAAAAAAAAA").await.err().map(|error| error.kind());
    assert_eq!(refused, Some(Kind::Forbidden), "it is not there");
    engine.broker().declare(orders.clone(), settings.clone()).await?;
    let other = Settings { max_attempts: 4, ..settings.clone() };
    let refused = promised(other, "01JZAAAAAAAAAAAAAAAAAAAAAA").await.err().map(|error| error.kind());
    assert_eq!(refused, Some(Kind::Forbidden), "it has other settings");
    assert_eq!(promised(settings, "01JZAAAAAAAAAAAAAAAAAAAAAA").await?, kept(1));
    engine.close().await
}

/// Where pushes create no topics, pages of neither log do.
#[tokio::test]
async fn page_for_an_unknown_topic_is_left_out_without_auto_create() -> Result<()> {
    for kind in [LogKind::Wal, LogKind::Journal] {
        let (redis, dir) = (RedisServer::start().await?, scratch()?);
        let journal_window = Some(Duration::from_secs(3_600));
        let outage = OutageOptions { journal_window, ..OutageOptions::new(dir.path()) };
        let strict = dwell::broker::Options { auto_create: false, ..Default::default() };
        let store = StoreOptions::Redis { redis: RedisOptions::new(redis.url()), outage };
        let engine = Engine::start(store, strict, Clock::System).await?;
        replayed(&engine).await?;
        let store: String = redis.ask("GET dwell:id").await?;
        let log = "01JZAAAAAAAAAAAAAAAAAAAAAA";
        let handed = || match kind {
            LogKind::Wal => page(&store, log, "handed", now()),
            LogKind::Journal => set(&store, log, 1),
        };
        let unknown = engine.broker().take_over(handed()?, false).await?;
        assert_eq!(unknown, TakenOver::Kept { taken: 0, refused: 1 }, "{kind:?}");
        assert_eq!(engine.broker().topics().await?, []);
        engine.broker().declare(TopicName::new("orders")?, Settings::default()).await?;
        assert_eq!(engine.broker().take_over(handed()?, false).await?, kept(1), "{kind:?}");
        assert_eq!(take(&engine, Duration::from_secs(5)).await?.len(), 1, "{kind:?}");
        engine.close().await?;
    }
    Ok(())
}
