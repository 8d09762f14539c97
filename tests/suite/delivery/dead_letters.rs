//! Dead messages as a tool: searched, redriven at a rate, purged, and bounded by age and count.

use std::time::Duration;

use dwell::broker::{Broker, DeadLetterFilter, DeadLetterSweep, Options, ReserveRequest};
use dwell::codec::DeadLetterReason;
use dwell::delivery::{Decision, Verdict};
use dwell::model::error::{Kind, Result};
use dwell::model::limits::{DEAD_REQUEST_MAX, DEAD_TEXT_BYTES_MAX};
use dwell::model::message::{GroupName, NewMessage, TopicName};
use dwell::model::retry::{Backoff, LadderStep};
use dwell::model::topic::Settings;

use crate::support::{Running, World, kind_of, stories};

stories! {
    dead_letters_are_found_by_reason_age_and_text, redrive_and_purge_honour_the_filter,
    redrive_rate_holds_and_a_long_run_returns_a_cursor, redrive_skips_messages_that_died_again,
    dead_letters_past_the_retention_age_are_dropped, dead_letters_past_the_retention_count_are_dropped,
    history_is_visible_before_a_message_dies, message_with_unlimited_attempts_never_dies_of_them,
}

struct Shop {
    broker: Broker,
    topic: TopicName,
    group: GroupName,
    _running: Running,
}

impl Shop {
    async fn open(world: &World, settings: Settings) -> Result<Shop> {
        // Time moves in leaps, and neither a lease nor the patience with consumers must end in one.
        let day = Duration::from_secs(86_400);
        let options = Options { topic_defaults: settings, lease_ttl: day, idle_timeout: day, ..Options::default() };
        let running = Running::start(world, options)?;
        let topic = TopicName::new("orders")?;
        Ok(Shop { broker: running.broker.clone(), topic, group: GroupName::standard(), _running: running })
    }

    /// Pushes messages, hands them out, and has them settled so.
    async fn settle(&self, world: &World, payloads: &[&str], decision: Decision) -> Result<()> {
        for payload in payloads {
            self.broker.push(&self.topic, NewMessage::new((*payload).to_owned())).await?;
        }
        self.settle_again(world, payloads.len(), decision).await
    }

    async fn settle_again(&self, world: &World, count: usize, decision: Decision) -> Result<()> {
        let mut left = count;
        while left > 0 {
            let request = ReserveRequest { max: left, wait: Duration::from_secs(60), visibility_timeout: None };
            let taken = world.as_time_passes(self.broker.reserve(&self.topic, &self.group, request)).await?;
            left -= taken.len();
            let decisions = taken.iter().map(|delivery| (delivery.receipt.to_string(), decision.clone())).collect();
            let verdicts = world.as_time_passes(self.broker.settle(&self.topic, &self.group, decisions)).await?;
            assert!(
                verdicts.iter().all(|verdict| matches!(verdict, Verdict::Buried | Verdict::Nacked)),
                "{verdicts:?}"
            );
        }
        Ok(())
    }

    /// The payloads of the dead that are meant, sorted.
    async fn found(&self, filter: DeadLetterFilter) -> Result<Vec<String>> {
        let (mut payloads, mut cursor) = (Vec::new(), None);
        loop {
            let page = self.broker.dead_matching(&self.topic, &self.group, &filter, cursor.as_deref(), 2).await?;
            let payload = |message: &dwell::model::message::Message| message.envelope.payload.to_vec();
            for (_, dead) in &page.dead {
                let bytes = dead.message.as_ref().map(payload).unwrap_or_default();
                payloads.push(String::from_utf8_lossy(&bytes).into_owned());
            }
            cursor = page.next;
            if cursor.is_none() {
                payloads.sort();
                return Ok(payloads);
            }
        }
    }

    /// Waits until so many are counted as dropped past this bound.
    async fn dropped(&self, world: &World, bound: &str, count: u64) -> Result<()> {
        let series = "group=\"default\",topic=\"orders\"} ";
        let line = format!("dwell_dead_dropped_total{{bound=\"{bound}\",{series}{count}");
        let counted = async || Ok(self.broker.metrics().text()?.lines().any(|said| said == line));
        world.as_time_passes(world.until("they are dropped", counted)).await
    }

    async fn dead(&self) -> Result<u64> {
        Ok(self.broker.stats(&self.topic).await?.iter().map(|(_, stats)| stats.dead).sum())
    }
}

fn bury(reason: &str) -> Decision {
    Decision::Bury { reason: Some(reason.into()) }
}

fn nack(reason: &str) -> Decision {
    Decision::Nack { delay: Some(Duration::ZERO), reason: Some(reason.into()) }
}

fn text(text: &str) -> DeadLetterFilter {
    DeadLetterFilter { text: Some(text.to_owned()), ..DeadLetterFilter::default() }
}

/// Two that failed too often, an hour later three that were buried.
async fn morgue(world: &World) -> Result<Shop> {
    let shop = Shop::open(world, Settings { max_attempts: 1, ..Settings::default() }).await?;
    shop.settle(world, &["mail 1", "mail 2"], nack("smtp: 451 later")).await?;
    world.pass(3_600_000);
    shop.settle(world, &["order 1", "order 2", "smtp spelled out"], bury("no such customer")).await?;
    Ok(shop)
}

async fn dead_letters_are_found_by_reason_age_and_text(world: World) -> Result<()> {
    let shop = morgue(&world).await?;
    let failed = DeadLetterFilter { reason: Some(DeadLetterReason::MaxAttempts), ..DeadLetterFilter::default() };
    assert_eq!(shop.found(failed.clone()).await?, ["mail 1", "mail 2"]);
    let half_an_hour = Some(Duration::from_secs(1_800));
    let old = DeadLetterFilter { older_than: half_an_hour, ..DeadLetterFilter::default() };
    assert_eq!(shop.found(old).await?, ["mail 1", "mail 2"]);
    let young = DeadLetterFilter { younger_than: half_an_hour, ..DeadLetterFilter::default() };
    assert_eq!(shop.found(young.clone()).await?, ["order 1", "order 2", "smtp spelled out"]);
    assert_eq!(shop.found(text("smtp")).await?, ["mail 1", "mail 2", "smtp spelled out"]);
    assert_eq!(shop.found(DeadLetterFilter { text: Some("smtp".to_owned()), ..young }).await?, ["smtp spelled out"]);
    assert_eq!(shop.found(DeadLetterFilter { text: Some("SMTP".to_owned()), ..failed }).await?, Vec::<String>::new());
    assert_eq!(shop.found(DeadLetterFilter::default()).await?.len(), 5);
    assert_eq!(kind_of(shop.found(text("")).await), Some(Kind::Invalid));
    assert_eq!(kind_of(shop.found(text(&"x".repeat(DEAD_TEXT_BYTES_MAX + 1))).await), Some(Kind::Invalid));
    assert!(shop.found(text(&"x".repeat(DEAD_TEXT_BYTES_MAX))).await?.is_empty());
    Ok(())
}

async fn redrive_and_purge_honour_the_filter(world: World) -> Result<()> {
    let shop = morgue(&world).await?;
    let sweep = DeadLetterSweep { filter: text("mail"), limit: Some(1), ..DeadLetterSweep::default() };
    let swept = shop.broker.redrive_many(&shop.topic, &shop.group, &sweep).await?;
    assert_eq!(swept.count, 1);
    // From where it ended there is one more.
    let sweep = DeadLetterSweep { limit: None, cursor: swept.next, ..sweep };
    let swept = shop.broker.redrive_many(&shop.topic, &shop.group, &sweep).await?;
    assert_eq!((swept.count, swept.next), (1, None));
    let sweep = DeadLetterSweep { filter: text("order"), ..DeadLetterSweep::default() };
    assert_eq!(shop.broker.purge_many(&shop.topic, &shop.group, &sweep).await?.count, 2);
    assert_eq!(shop.found(DeadLetterFilter::default()).await?, ["smtp spelled out"]);
    assert_eq!(shop.broker.redrive(&shop.topic, &shop.group, None).await?, 1);
    Ok(())
}

async fn redrive_rate_holds_and_a_long_run_returns_a_cursor(world: World) -> Result<()> {
    let shop = Shop::open(&world, Settings::default()).await?;
    let payloads: Vec<String> = (0..40).map(|n| format!("order {n}")).collect();
    shop.settle(&world, &payloads.iter().map(String::as_str).collect::<Vec<_>>(), bury("no")).await?;
    let began = world.now();
    let mut sweep = DeadLetterSweep { rate: Some(5), ..DeadLetterSweep::default() };
    let mut count = 0;
    let mut requests = 0;
    loop {
        let since = world.now();
        let redrive = shop.broker.redrive_many(&shop.topic, &shop.group, &sweep);
        let swept = world.as_time_passes(redrive).await?;
        (count, requests) = (count + swept.count, requests + 1);
        let took = world.now().since(since);
        // Time passes while the store works, too.
        assert!(took < DEAD_REQUEST_MAX + Duration::from_secs(10), "{took:?}");
        assert!(swept.count <= took.as_secs() * 5 + 6, "{swept:?} in {took:?}");
        sweep.cursor = swept.next;
        if sweep.cursor.is_none() {
            break;
        }
    }
    let took = world.now().since(began);
    assert_eq!((count, shop.dead().await?), (40, 0));
    assert!(requests >= 2 && took >= Duration::from_secs(8), "{requests} requests in {took:?}");
    for wrong in [0, 100_001] {
        let sweep = DeadLetterSweep { rate: Some(wrong), ..DeadLetterSweep::default() };
        let swept = shop.broker.redrive_many(&shop.topic, &shop.group, &sweep).await;
        assert_eq!(kind_of(swept), Some(Kind::Invalid));
    }
    Ok(())
}

async fn redrive_skips_messages_that_died_again(world: World) -> Result<()> {
    let shop = morgue(&world).await?;
    let first = DeadLetterSweep { limit: Some(1), ..DeadLetterSweep::default() };
    let swept = shop.broker.redrive_many(&shop.topic, &shop.group, &first).await?;
    world.pass(1);
    shop.settle_again(&world, 1, bury("still no such customer")).await?;
    let rest = DeadLetterSweep { cursor: swept.next, ..DeadLetterSweep::default() };
    assert_eq!(shop.broker.redrive_many(&shop.topic, &shop.group, &rest).await?.count, 4);
    assert_eq!(shop.dead().await?, 1);
    Ok(())
}

async fn dead_letters_past_the_retention_age_are_dropped(world: World) -> Result<()> {
    let settings = Settings { dead_max_age: Duration::from_secs(3_600), ..Settings::default() };
    let shop = Shop::open(&world, settings).await?;
    shop.settle(&world, &["order 1", "order 2"], bury("no")).await?;
    world.pass(1_800_000);
    shop.settle(&world, &["order 3"], bury("no")).await?;
    assert_eq!(shop.dead().await?, 3);
    world.pass(1_801_000);
    shop.dropped(&world, "age", 2).await?;
    assert_eq!(shop.found(DeadLetterFilter::default()).await?, ["order 3"]);
    Ok(())
}

async fn dead_letters_past_the_retention_count_are_dropped(world: World) -> Result<()> {
    let settings = Settings { dead_max_count: 2, partitions: std::num::NonZeroU16::MIN, ..Settings::default() };
    let shop = Shop::open(&world, settings).await?;
    for n in 0..4 {
        shop.settle(&world, &[format!("order {n}").as_str()], bury("no")).await?;
        world.pass(1);
    }
    shop.dropped(&world, "count", 2).await?;
    assert_eq!(shop.found(DeadLetterFilter::default()).await?, ["order 2", "order 3"]);
    Ok(())
}

async fn history_is_visible_before_a_message_dies(world: World) -> Result<()> {
    let shop = Shop::open(&world, Settings { max_attempts: 3, ..Settings::default() }).await?;
    shop.settle(&world, &["order 1"], nack("smtp: 451")).await?;
    shop.settle_again(&world, 1, nack("smtp: 452")).await?;
    let request = ReserveRequest { max: 1, wait: Duration::from_secs(60), visibility_timeout: None };
    let third = world.as_time_passes(shop.broker.reserve(&shop.topic, &shop.group, request)).await?;
    let (_, peeked) = shop.broker.peek(&shop.topic, &shop.group, &third[0].message.id, None).await?;
    let said: Vec<_> = peeked.history.iter().map(|failure| (failure.attempt, failure.reason.as_deref())).collect();
    assert_eq!(said, [(1, Some("smtp: 451")), (2, Some("smtp: 452"))]);
    // Nobody answers.
    world.pass(31_000);
    world.as_time_passes(world.until("it is dead", async || Ok(shop.dead().await? == 1))).await?;
    let dead = shop.broker.dead(&shop.topic, &shop.group, None, 1).await?.dead;
    let last = dead[0].1.record.history.last().map(|failure| (failure.attempt, failure.reason.as_deref()));
    assert_eq!(last, Some((3, Some("not settled within the visibility timeout"))));
    assert_eq!(dead[0].1.record.history.len(), 3);
    Ok(())
}

async fn message_with_unlimited_attempts_never_dies_of_them(world: World) -> Result<()> {
    let backoff =
        Backoff::Ladder { steps: vec![LadderStep(Duration::from_millis(10)), LadderStep(Duration::from_millis(20))] };
    let shop = Shop::open(&world, Settings { max_attempts: 1, backoff, ..Settings::default() }).await?;
    let mut unlimited = NewMessage::new("unlimited");
    unlimited.max_attempts = Some(0);
    shop.broker.push(&shop.topic, unlimited).await?;
    let nack = Decision::Nack { delay: None, reason: None };
    shop.settle_again(&world, 15, nack.clone()).await?;
    let settings = Settings { max_attempts: 0, ..shop.broker.topic(&shop.topic).await?.settings.clone() };
    shop.broker.declare(shop.topic.clone(), settings).await?;
    shop.settle(&world, &["by the topic"], nack.clone()).await?;
    shop.settle_again(&world, 15, nack).await?;
    assert_eq!(shop.found(DeadLetterFilter::default()).await?, Vec::<String>::new());
    Ok(())
}
