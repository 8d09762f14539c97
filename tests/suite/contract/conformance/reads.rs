use std::time::Duration;

use dwell::model::error::Result;
use dwell::model::limits::FORECAST_SPANS_MAX;
use dwell::model::message::{GroupName, MessageId, TopicName};
use dwell::model::partition::Partition;
use dwell::model::topic::GroupPartition;
use dwell::platform::signing_key::SigningKey;
use dwell::store::{DeadLetterPage, Forecast, MessageState, PartitionStats, Retried, Spans, Window};

use crate::support::{World, acks, buries, ids, member, retries, up_to};

pub(super) async fn message_is_found_in_every_state(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let pushed = orders.message("a", 10)?;
    orders.push_all(std::slice::from_ref(&pushed)).await?;
    let look = async || -> Result<_> {
        let peeked = orders.peek("a").await?;
        let message = peeked.as_ref().map(|peeked| peeked.message.clone());
        assert!(message.is_none_or(|message| message == pushed));
        Ok(peeked.map(|peeked| (peeked.state.name(), peeked.next_at, peeked.attempts)))
    };
    assert_eq!(look().await?, Some(("scheduled", Some(pushed.due_at), 0)));
    world.pass(9);
    assert_eq!(look().await?, Some(("scheduled", Some(pushed.due_at), 0)));
    world.pass(1);
    assert_eq!(look().await?, Some(("ready", Some(pushed.due_at), 0)));
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(1)).await?;
    assert_eq!(look().await?, Some(("in_flight", None, 0)));
    let next_at = world.now().plus(Duration::from_millis(5));
    let retried = Retried { id: pushed.id.clone(), next_at, attempts: 1, failure: None };
    owner.settle(&retries(taken.reservation, retried, &[])?).await?;
    assert_eq!(look().await?, Some(("scheduled", Some(next_at), 1)));
    world.pass(5);
    let taken = owner.reserve(up_to(1)).await?;
    owner.settle(&buries(taken.reservation, &["a"], &[])?).await?;
    assert_eq!(look().await?, Some(("dead", None, 1)));
    let died_at = orders.peek("a").await?.and_then(|a| match a.state {
        MessageState::Dead { died_at, .. } => Some(died_at),
        _ => None,
    });
    assert_eq!(died_at, Some(world.now()));
    orders.store.dead_letters.purge(&orders.group_partition(), &ids(&["a"])?).await?;
    assert_eq!(look().await?, None);
    Ok(())
}

pub(super) async fn counts_are_exact_in_every_state(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    assert_eq!(orders.stats().await?, PartitionStats::default());
    orders.push_many("m", 4).await?;
    world.pass(20);
    orders.push_all(&[orders.message("later", 10)?, orders.message("latest", 20)?]).await?;
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(3)).await?;
    owner.settle(&buries(taken.reservation, &["m000001"], &["m000000", "m000002"])?).await?;
    let head = Some(taken.messages[0].ready_at);
    let age = Some(Duration::from_millis(20));
    let stats = PartitionStats {
        scheduled: 2,
        ready: 1,
        in_flight: 2,
        dead: 1,
        head,
        oldest_ready_age: age,
        owner: Some(member("owner")),
        ..PartitionStats::default()
    };
    assert_eq!(orders.stats().await?, stats);
    owner.settle(&acks(&["m000000"])?).await?;
    owner.reserve(up_to(1)).await?;
    let head = Some(world.now().plus(Duration::from_millis(10)));
    assert_eq!(orders.stats().await?, PartitionStats { ready: 0, head, oldest_ready_age: None, ..stats });
    Ok(())
}

pub(super) async fn counts_follow_the_clock(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let all = (1..=100).map(|n| orders.message(&n.to_string(), n)).collect::<Result<Vec<_>>>()?;
    orders.push_all(&all).await?;
    let mut owner = orders.owner().await?;
    for passed in 1..=100_u64 {
        world.pass(1);
        let taken = if passed % 10 == 0 { owner.reserve(up_to(5)).await?.messages.len() as u64 } else { 0 };
        let left = passed - passed / 10 * 5;
        let stats = orders.stats().await?;
        assert_eq!((stats.ready, stats.scheduled, taken % 5), (left, 100 - passed, 0));
    }
    Ok(())
}

pub(super) async fn missing_topics_and_groups_read_as_empty(world: World) -> Result<()> {
    let store = &world.store;
    let group_partition =
        GroupPartition { topic: TopicName::new("nowhere")?, partition: Partition(0), group: GroupName::standard() };
    let ids = [MessageId::new("a")?];
    assert_eq!(store.topics.topic(&group_partition.topic).await?, None);
    assert_eq!(store.reads.peek(&group_partition, &ids[0]).await?, None);
    assert_eq!(
        store.reads.stats(&[group_partition.clone(), group_partition.clone()]).await?,
        [PartitionStats::default(), PartitionStats::default()]
    );
    assert_eq!(store.dead_letters.dead(&group_partition, None, 10).await?, DeadLetterPage::default());
    assert_eq!(store.dead_letters.redrive(&group_partition, &ids).await?, [false]);
    assert_eq!(store.dead_letters.purge(&group_partition, &ids).await?, [None]);
    assert_eq!(store.reads.stats(&[]).await?, []);
    Ok(())
}

pub(super) async fn store_reports_its_info(world: World) -> Result<()> {
    let description = world.store.backend.describe();
    assert!(["embedded", "redis"].contains(&description.kind));
    assert!(!description.location.is_empty() && !description.durability.is_empty());
    world.store.backend.ping().await?;
    assert_eq!(world.store.backend.clock().now(), world.now());
    world.store.backend.close().await
}

pub(super) async fn receipt_key_is_made_once(world: World) -> Result<()> {
    let offers = (0..20).map(|_| SigningKey::fresh()).collect::<Result<Vec<_>>>()?;
    let ask = |offer| world.store.backend.receipt_key(offer);
    let answers = futures_util::future::try_join_all(offers.iter().map(ask)).await?;
    assert!(answers.iter().all(|answer| *answer == answers[0]) && offers.contains(&answers[0]));
    assert_eq!(world.store.backend.receipt_key(&SigningKey::fresh()?).await?, answers[0]);
    Ok(())
}

pub(super) async fn store_id_is_permanent(world: World) -> Result<()> {
    let offers: Vec<String> = (0..20).map(|n| format!("identity-{n}")).collect();
    let answers =
        futures_util::future::try_join_all(offers.iter().map(|offer| world.store.backend.store_id(offer))).await?;
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    let orders = world.topic("orders").await?;
    orders.push_many("m", 10).await?;
    world.store.topics.delete(&orders.descriptor).await?;
    assert_eq!(world.store.backend.store_id("another").await?, answers[0]);
    assert_eq!(world.store.topics.topics().await?, []);
    Ok(())
}

pub(super) async fn forecast_counts_messages_by_due_time(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    for (id, delay_ms) in [("a", 0), ("b", 1), ("c", 100), ("d", 101), ("e", 200), ("f", 301), ("g", 5_000)] {
        orders.push(id, delay_ms).await?;
    }
    let spans = Spans { from: world.now(), step: Duration::from_millis(100), count: 3 };
    let forecast =
        async |spans| Result::Ok(orders.store.reads.forecast(&[orders.group_partition()], spans).await?.remove(0));
    assert_eq!(forecast(spans).await?, Forecast { ready: 1, spans: vec![2, 2, 0], later: 2, backoff: 0 });
    let most = Spans { step: Duration::from_millis(10), count: FORECAST_SPANS_MAX, ..spans };
    let counted = forecast(most).await?;
    assert_eq!((counted.spans.len(), counted.spans.iter().sum::<u64>(), counted.later), (FORECAST_SPANS_MAX, 6, 0));
    // What was taken is not counted; another group has its own.
    assert_eq!(orders.owner().await?.reserve(up_to(1)).await?.messages.len(), 1);
    assert_eq!(forecast(spans).await?.ready, 0);
    let unknown = orders.partition_of("unknown")?;
    let partitions = [unknown, orders.group_partition()];
    let both = orders.store.reads.forecast(&partitions, spans).await?;
    assert_eq!((both[0].spans.clone(), both[1].spans.clone()), (vec![0, 0, 0], vec![2, 2, 0]));
    Ok(())
}

pub(super) async fn due_time_range_is_read_in_pages(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    for (id, delay_ms) in [("a", 99), ("b", 100), ("d", 150), ("c", 150), ("e", 199), ("f", 200)] {
        orders.push(id, delay_ms).await?;
    }
    let at = |ms: u64| world.now().plus(Duration::from_millis(ms));
    let window = Window { from: at(100), to: at(200) };
    let all = vec![(at(100), "b"), (at(150), "c"), (at(150), "d"), (at(199), "e")];
    for limit in 1..=5 {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = orders.store.reads.window(&orders.group_partition(), window, after.as_ref(), limit).await?;
            assert_eq!(page.count, 4);
            assert!(page.messages.len() <= limit);
            let full = page.messages.len() == limit;
            after = page.messages.last().cloned();
            found.extend(page.messages);
            if !full {
                break;
            }
        }
        assert_eq!(found.iter().map(|(due, id)| (*due, id.as_str())).collect::<Vec<_>>(), all, "pages of {limit}");
    }
    let counted = orders.store.reads.window(&orders.group_partition(), window, None, 0).await?;
    assert_eq!((counted.count, counted.messages), (4, vec![]));
    Ok(())
}

pub(super) async fn forecast_bounds_are_exact_to_the_millisecond(world: World) -> Result<()> {
    let (orders, ordered) = (world.topic("orders").await?, world.ordered("ordered", &["default"]).await?);
    let spans = [10, 100, 1_000].map(Duration::from_millis);
    for topic in [&orders, &ordered] {
        for (id, delay_ms) in [("a", 0), ("b", 1), ("c", 10), ("d", 11), ("e", 100), ("f", 1_000), ("g", 1_001)] {
            topic.push(id, delay_ms).await?;
        }
        let partitions =
            [topic.group_partition(), GroupPartition { group: GroupName::new("nobody")?, ..topic.group_partition() }];
        let depth = async || topic.store.reads.depth(&partitions, &spans).await;
        let now = depth().await?;
        assert_eq!((now[0].stats.ready, now[0].stats.scheduled, &now[0].due), (1, 6, &vec![2, 4, 5]));
        assert_eq!(now[0].stats, topic.stats().await?);
        // A group that is not there has nothing.
        assert_eq!((&now[1].stats, &now[1].due), (&PartitionStats::default(), &vec![0, 0, 0]));
        assert_eq!(topic.store.reads.depth(&partitions[..1], &[]).await?[0].due, Vec::<u64>::new());
    }
    world.pass(1);
    let later = orders.store.reads.depth(&[orders.group_partition()], &spans).await?.remove(0);
    assert_eq!((later.stats.ready, later.stats.scheduled, later.due), (2, 5, vec![2, 3, 5]));
    Ok(())
}
