//! A clock that tests move: what becomes due, times out, fires and ends by it.

mod served;
mod shop;

use std::collections::BTreeSet;
use std::time::Duration;

use dwell::app::embed::Dwell;
use dwell::app::engine::StoreOptions;
use dwell::broker::{Options, PauseFor};
use dwell::delivery::{Decision, Verdict};
use dwell::model::error::{Kind, Result};
use dwell::model::message::{CronJobName, DedupKey, GroupName, MessageId, NewMessage};
use dwell::model::retry::{Backoff, LadderStep};
use dwell::model::schedule::{Missed, Timing};
use dwell::model::time::Timestamp;

use crate::support::{cron_job, kind_of};
use shop::{DAY, HOUR, Shop, due_of, message, orders};

const NACK: Decision = Decision::Nack { delay: None, reason: None };

#[tokio::test]
async fn reminder_of_30_days_is_delivered_exactly_when_due() -> Result<()> {
    let shop = Shop::open(|_| {}).await?;
    shop.push("reminder", DAY * 30).await?;
    assert!(shop.is_empty().await?);
    let moved = shop.time.advance(DAY * 30 - HOUR).await?;
    assert_eq!(due_of(&moved), 0);
    assert!(shop.is_empty().await?);
    let moved = shop.time.advance(HOUR).await?;
    assert_eq!(
        (moved.due[0].topic.clone(), moved.due[0].group.clone(), due_of(&moved)),
        (orders()?, GroupName::standard(), 1)
    );
    assert_eq!(shop.one().await?.0, "reminder");
    Ok(())
}

#[tokio::test]
async fn due_messages_are_delivered_in_due_time_order() -> Result<()> {
    let shop = Shop::open(|_| {}).await?;
    for (id, days) in [("third", 29), ("first", 1), ("fourth", 30), ("second", 2), ("later", 31)] {
        shop.push(id, DAY * days).await?;
    }
    assert_eq!(due_of(&shop.time.advance(DAY * 30).await?), 4);
    let ids: Vec<_> = shop.take().await?.iter().map(|delivery| delivery.message.id.to_string()).collect();
    assert_eq!(ids, ["first", "second", "third", "fourth"]);
    Ok(())
}

#[tokio::test]
async fn retry_backoff_over_three_hours() -> Result<()> {
    let steps = vec![LadderStep(HOUR / 2), LadderStep(HOUR), LadderStep(HOUR + HOUR / 2)];
    let shop = Shop::open(|settings| {
        (settings.backoff, settings.max_attempts) = (Backoff::Ladder { steps: steps.clone() }, 4);
    })
    .await?;
    shop.push("order", Duration::ZERO).await?;
    for (number, step) in steps.iter().enumerate() {
        let (_, attempt, delivery) = shop.one().await?;
        assert_eq!(attempt as usize, number + 1);
        assert_eq!(shop.decide(&delivery, NACK).await?, Verdict::Nacked);
        assert_eq!(due_of(&shop.time.advance(step.0 - Duration::from_secs(60)).await?), 0);
        assert!(shop.is_empty().await?);
        assert_eq!(due_of(&shop.time.advance(Duration::from_secs(60)).await?), 1);
    }
    let (_, attempt, delivery) = shop.one().await?;
    assert_eq!((attempt, shop.decide(&delivery, NACK).await?), (4, Verdict::Buried));
    Ok(())
}

#[tokio::test]
async fn delivery_times_out_and_is_due_after_the_backoff() -> Result<()> {
    let shop = Shop::open(|settings| {
        let jitter = 0.0;
        settings.backoff = Backoff::Exponential { initial: HOUR, max: HOUR, factor: 1.0, jitter };
    })
    .await?;
    shop.push("order", Duration::ZERO).await?;
    let (_, _, first) = shop.one().await?;
    let moved = shop.time.advance(HOUR / 2).await?;
    assert_eq!((moved.timed_out, due_of(&moved)), (1, 0));
    assert!(matches!(shop.decide(&first, Decision::Ack).await?, Verdict::Stale(_)));
    assert!(shop.is_empty().await?);
    // 30 s and an hour after it was handed out.
    assert_eq!(due_of(&shop.time.advance(HOUR / 2 + Duration::from_secs(30)).await?), 1);
    let (_, attempt, second) = shop.one().await?;
    assert_eq!(attempt, 2);
    // Both within one move: it is in flight, times out, and is due again.
    let moved = shop.time.advance(DAY).await?;
    assert_eq!((moved.timed_out, due_of(&moved)), (1, 1));
    let (_, attempt, third) = shop.one().await?;
    assert_eq!(attempt, 3);
    // The broker counts finer than in milliseconds.
    let (due, millisecond) = (second.deadline.plus(HOUR), Duration::from_millis(1));
    assert!((due..=due.plus(millisecond)).contains(&third.ready_at), "{due:?} {third:?}");
    Ok(())
}

#[tokio::test]
async fn delivery_before_its_deadline_stays_with_its_consumer() -> Result<()> {
    let shop = Shop::open(|settings| settings.visibility_timeout = HOUR).await?;
    shop.push("order", Duration::ZERO).await?;
    let (_, _, delivery) = shop.one().await?;
    assert_eq!(shop.time.advance(HOUR / 2).await?.timed_out, 0);
    let receipts = [delivery.receipt.to_string()];
    shop.broker().extend(&orders()?, &GroupName::standard(), &receipts, HOUR).await?;
    assert_eq!(shop.time.advance(HOUR / 2 + HOUR / 4).await?.timed_out, 0);
    assert_eq!(shop.decide(&delivery, Decision::Ack).await?, Verdict::Acked);
    assert_eq!(shop.time.advance(DAY).await?.timed_out, 0);
    Ok(())
}

#[tokio::test]
async fn a_message_past_its_time_to_live_is_not_delivered() -> Result<()> {
    let shop = Shop::open(|settings| settings.ttl = HOUR).await?;
    shop.push("stale", HOUR).await?;
    shop.push("fresh", HOUR * 3).await?;
    shop.time.advance(HOUR * 3).await?;
    assert_eq!(shop.one().await?.0, "fresh");
    Ok(())
}

#[tokio::test]
async fn a_dedup_key_is_free_again_after_its_window() -> Result<()> {
    let shop = Shop::open(|_| {}).await?;
    let push = async |id: &str| {
        let new = message(id, DAY)?.dedup(DedupKey::new("close-17")?, HOUR);
        Ok::<_, dwell::model::error::Error>(shop.broker().push(&orders()?, new).await?.duplicate_of)
    };
    assert_eq!(push("a").await?, None);
    shop.time.advance(HOUR / 2).await?;
    assert_eq!(push("b").await?, Some(MessageId::new("a")?));
    shop.time.advance(HOUR).await?;
    assert_eq!(push("c").await?, None);
    Ok(())
}

#[tokio::test]
async fn a_cron_job_fires_once_in_each_of_its_periods() -> Result<()> {
    let shop = Shop::open(|_| {}).await?;
    let every = |every| Timing::Every { every, from: Timestamp::ZERO };
    shop.broker().put_cron_job(&orders()?, cron_job("daily", every(DAY), Missed::Skip)?).await?;
    shop.broker().put_cron_job(&orders()?, cron_job("weekly", every(DAY * 7), Missed::Skip)?).await?;
    let moved = shop.time.advance(DAY * 28).await?;
    let fired: Vec<_> = moved.fired.iter().map(|fired| (fired.name.as_str(), fired.times)).collect();
    assert_eq!((fired, due_of(&moved)), (vec![("daily", 28), ("weekly", 4)], 32));
    let mut due = vec![];
    while due.len() < 32 {
        let taken = shop.take().await?;
        assert!(!taken.is_empty(), "{due:?}");
        due.extend(taken.iter().map(|delivery| delivery.message.due_at));
    }
    assert!(due.is_sorted(), "{due:?}");
    assert_eq!(due.iter().collect::<BTreeSet<_>>().len(), 28);
    assert!(shop.is_empty().await?);
    Ok(())
}

#[tokio::test]
async fn a_cron_expression_fires_next_march() -> Result<()> {
    let shop = Shop::open(|_| {}).await?;
    let timing = Timing::Cron { cron: "0 9 1 3 *".to_owned(), time_zone: "Europe/Berlin".to_owned() };
    shop.broker().put_cron_job(&orders()?, cron_job("spring", timing.clone(), Missed::Skip)?).await?;
    let march = timing.next(shop.time.now()).unwrap_or_default();
    assert!(shop.time.advance_to(march.minus(HOUR)).await?.fired.is_empty());
    let moved = shop.time.advance_to(march).await?;
    assert_eq!((moved.fired[0].times, moved.now >= march), (1, true));
    let (id, ..) = shop.one().await?;
    assert_eq!(id, format!("spring@{march}"));
    assert_eq!(shop.time.advance(DAY * 366 * 3).await?.fired[0].times, 3);
    Ok(())
}

#[tokio::test]
async fn waiting_consumer_gets_due_messages_immediately() -> Result<()> {
    let shop = Shop::open(|_| {}).await?;
    shop.push("reminder", DAY * 30).await?;
    let waits = shop.wait(Duration::from_secs(60));
    let moves = async {
        // The consumer has asked before: it waits.
        assert!(shop.is_empty().await?);
        shop.time.advance(DAY * 30).await
    };
    let (taken, moved) = tokio::join!(waits, moves);
    assert_eq!((taken?.len(), due_of(&moved?)), (1, 1));
    Ok(())
}

#[tokio::test]
async fn timed_pause_ends_and_dead_letters_expire() -> Result<()> {
    let shop = Shop::open(|settings| settings.dead_max_age = DAY).await?;
    let group = GroupName::standard();
    shop.push("bad", Duration::ZERO).await?;
    let (_, _, delivery) = shop.one().await?;
    shop.decide(&delivery, Decision::Bury { reason: None }).await?;
    shop.push("good", Duration::ZERO).await?;
    shop.broker().pause_group(&orders()?, &group, PauseFor::Span(DAY * 2)).await?;
    shop.time.advance(DAY).await?;
    assert!(shop.is_empty().await?);
    shop.time.advance(DAY).await?;
    assert_eq!(shop.one().await?.0, "good");
    crate::support::eventually("the dead letter is dropped", async || {
        let stats = shop.broker().stats(&orders()?).await?;
        Ok((stats.iter().map(|(_, stats)| stats.dead).sum::<u64>() == 0).then_some(()))
    })
    .await
}

#[tokio::test]
async fn test_clock_moves_forward_at_most_ten_years() -> Result<()> {
    let shop = Shop::open(|_| {}).await?;
    let now = shop.time.now();
    assert_eq!(kind_of(shop.time.advance_to(now.minus(HOUR)).await), Some(Kind::Invalid));
    assert_eq!(kind_of(shop.time.advance(DAY * 3_651).await), Some(Kind::Invalid));
    let every = Timing::Every { every: Duration::from_secs(60), from: Timestamp::ZERO };
    shop.broker().put_cron_job(&orders()?, cron_job("minutely", every, Missed::Skip)?).await?;
    let refused = shop.time.advance(DAY * 30).await;
    assert!(refused.as_ref().is_err_and(|error| error.detail().contains("10000 times")), "{refused:?}");
    assert!(shop.time.now() < now.plus(HOUR));
    shop.broker().delete_cron_job(&orders()?, &CronJobName::new("minutely")?).await?;
    shop.time.advance(DAY * 3_650).await?;
    shop.time.advance(Duration::ZERO).await?;
    assert!(shop.time.now() >= now.plus(DAY * 3_650));
    Ok(())
}

#[tokio::test]
async fn restart_keeps_the_test_time_and_real_clock_is_refused() -> Result<()> {
    let shop = Shop::open(|_| {}).await?;
    shop.push("reminder", DAY * 30).await?;
    shop.time.advance(DAY * 20).await?;
    let (dir, before) = (shop.dir.path().join("store"), shop.time.now());
    shop.dwell.close().await?;
    drop(shop.time);
    let real = Dwell::open(StoreOptions::Embedded { dir: dir.clone() }, Options::default()).await;
    assert_eq!(kind_of(real), Some(Kind::Conflict));
    let (dwell, time) = Dwell::open_on_test_clock(dir, Options::default()).await?;
    assert!(time.now() >= before);
    let shop = Shop { dwell, time, dir: shop.dir };
    assert!(shop.is_empty().await?);
    shop.time.advance(DAY * 10).await?;
    assert_eq!(shop.one().await?.0, "reminder");
    Ok(())
}

#[tokio::test]
async fn directory_of_the_real_clock_is_refused() -> Result<()> {
    let dir = crate::support::scratch()?;
    let store = dir.path().join("store");
    let dwell = Dwell::open(StoreOptions::Embedded { dir: store.clone() }, Options::default()).await?;
    dwell.producer("orders")?.push(NewMessage::new("real")).await?;
    dwell.close().await?;
    assert_eq!(kind_of(Dwell::open_on_test_clock(store, Options::default()).await), Some(Kind::Conflict));
    Ok(())
}

#[tokio::test]
async fn concurrent_clock_moves_are_serialized() -> Result<()> {
    let shop = Shop::open(|_| {}).await?;
    let every = Timing::Every { every: DAY, from: Timestamp::ZERO };
    shop.broker().put_cron_job(&orders()?, cron_job("daily", every, Missed::Skip)?).await?;
    let before = shop.time.now();
    let moves = (0..4).map(|_| shop.time.advance(DAY * 7));
    let moved = futures_util::future::try_join_all(moves).await?;
    let fired: u64 = moved.iter().flat_map(|moved| &moved.fired).map(|fired| fired.times).sum();
    assert_eq!((fired, shop.time.now() >= before.plus(DAY * 28)), (28, true));
    Ok(())
}
