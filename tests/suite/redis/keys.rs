//! What only the keys in Redis show, and what happens when somebody changed them: what can go on goes on, nothing spins.

use std::num::NonZeroU16;
use std::time::Duration;

use dwell::broker::{Options, ReserveRequest};
use dwell::delivery::Delivery;
use dwell::model::error::{Error, Result};
use dwell::model::limits::PAYLOAD_BYTES_MAX;
use dwell::model::message::{Due, GroupName, MessageId, NewMessage, TopicName};
use dwell::model::topic::Settings;
use dwell::store::{ReserveLimit, Settlement};

use crate::support::{Running, World, up_to};

/// A broker with a topic `orders` of one partition.
struct Shop {
    world: World,
    running: Running,
    topic: TopicName,
}

impl Shop {
    async fn open() -> Result<Shop> {
        let world = World::redis().await?;
        let topic_defaults = Settings { partitions: NonZeroU16::MIN, ..Settings::default() };
        let lease_ttl = Duration::from_secs(86_400);
        let running = Running::start(&world, Options { topic_defaults, lease_ttl, ..Options::default() })?;
        Ok(Shop { world, running, topic: TopicName::new("orders")? })
    }

    async fn push(&self, id: &str, delay: Duration) -> Result<()> {
        let mut message = NewMessage::new(id.to_owned());
        (message.id, message.due) = (Some(MessageId::new(id)?), Due::In(delay));
        self.running.broker.push(&self.topic, message).await.map(drop)
    }

    async fn reserve(&self) -> Result<Vec<Delivery>> {
        let request = ReserveRequest { max: 10, wait: Duration::from_secs(60), visibility_timeout: None };
        let group = GroupName::standard();
        let reserved = self.running.broker.reserve(&self.topic, &group, request);
        tokio::time::timeout(Duration::from_secs(5), reserved).await.unwrap_or_else(|_| Ok(Vec::new()))
    }

    async fn meddle(&self, command: &[&str]) -> Result<String> {
        let key = |part: &str| part.replace("T:", "{dwell:orders:0}:default:");
        let command: Vec<String> = command.iter().map(|part| key(part)).collect();
        self.world.meddle(&command).await
    }
}

#[tokio::test]
async fn ids_without_bodies_do_not_block_delivery() -> Result<()> {
    let shop = Shop::open().await?;
    for (id, delay_s) in [("now", 0), ("later", 3_600), ("much later", 7_200)] {
        shop.push(&id.replace(' ', "-"), Duration::from_secs(delay_s)).await?;
    }
    shop.meddle(&["UNLINK", "T:h"]).await?;
    shop.push("whole", Duration::ZERO).await?;
    let deliveries = shop.reserve().await?;
    assert_eq!(deliveries.iter().map(|delivery| delivery.message.id.as_str()).collect::<Vec<_>>(), ["whole"]);
    Ok(())
}

#[tokio::test]
async fn failing_partition_is_retried_with_backoff() -> Result<()> {
    let shop = Shop::open().await?;
    shop.push("a", Duration::ZERO).await?;
    // It can neither be read nor be buried.
    shop.meddle(&["HSET", "T:h", "a", "garbage"]).await?;
    shop.meddle(&["SET", "T:dz", "not a zset"]).await?;
    let consumer = shop.reserve();
    let epochs = async {
        for _ in 0..50 {
            shop.world.settled().await;
        }
        let line = shop.meddle(&["HGET", "T:r", "@"]).await;
        shop.world.pass(60_000);
        line
    };
    let (deliveries, line) = futures_util::future::join(consumer, epochs).await;
    assert_eq!(deliveries?, []);
    let epoch: u64 = line?.split('.').next().and_then(|number| number.parse().ok()).unwrap_or(u64::MAX);
    assert!(epoch < 10, "{epoch} epochs, and the clock stood still");
    Ok(())
}

#[tokio::test]
async fn dedup_memory_of_settled_messages_is_bounded() -> Result<()> {
    let world = World::redis().await?;
    let orders = world.topic("orders").await?;
    let mut owner = orders.owner().await?;
    for round in 0..5 {
        orders.push_many(&format!("{round}-"), 1_000).await?;
        let acked = owner.reserve(up_to(1_000)).await?.messages.into_iter().map(|message| message.id).collect();
        owner.settle(&Settlement { acked, dedup_window: Duration::from_millis(1), ..Settlement::default() }).await?;
        world.pass(1);
    }
    let remembered = world.meddle(&["ZCARD".to_owned(), "{dwell:orders:0}:seen".to_owned()]).await?;
    assert_eq!(remembered, "1000");
    Ok(())
}

#[tokio::test]
async fn reservation_bytes_are_bounded_with_large_messages() -> Result<()> {
    let world = World::redis().await?;
    let orders = world.topic("orders").await?;
    let mut owner = orders.owner().await?;
    orders.push_many("small", 1_000).await?;
    assert_eq!(owner.reserve(ReserveLimit::default()).await?.messages.len(), 1_000);
    let mut large = Vec::new();
    for n in 0..200 {
        let mut message = orders.message(&format!("large{n}"), 0)?;
        message.envelope.payload = vec![b'x'; PAYLOAD_BYTES_MAX].into();
        large.push(message);
    }
    for page in large.chunks(4) {
        orders.push_all(page).await?;
    }
    let memory = async |field: &str| {
        let info = world.meddle(&["INFO".to_owned(), "memory".to_owned()]).await?;
        let value = info.lines().find_map(|line| line.strip_prefix(field)?.trim().parse::<usize>().ok());
        Ok::<_, Error>(value.unwrap_or(0))
    };
    world.meddle(&["CONFIG".to_owned(), "RESETSTAT".to_owned()]).await?;
    let before = memory("used_memory:").await?;
    assert_eq!(owner.reserve(ReserveLimit::default()).await?.messages.len(), 3);
    let more = memory("used_memory_peak:").await? - before;
    assert!(more < 64 * PAYLOAD_BYTES_MAX, "{more} bytes more");
    Ok(())
}
