//! The numbered calls of an owner on a real Redis: replies are lost, copies arrive late, Redis loses what it
//! had, and other programs change its keys.

mod verify;
mod in_doubt;
mod foreign_changes;
mod forwarding;
mod full_redis;
mod late_calls;
mod lost_replies;
mod moving;
mod rewind;

use dwell::broker::{Broker, Options, ReserveRequest};
use dwell::delivery::{Decision, Delivery, Verdict};
use dwell::model::error::Result;
use dwell::model::message::{GroupName, TopicName};

use std::time::Duration;

use crate::support::{Kept, Proxy, RedisServer, Running, TestTopic, World};

/// The keys of the only partition of the topic `orders`.
const ZSET: &str = "{dwell:orders:0}:default:z";
const HASH: &str = "{dwell:orders:0}:default:h";
const RESERVATIONS: &str = "{dwell:orders:0}:default:r";

/// A topic of one partition in a Redis behind a proxy, under the clock of that Redis.
struct OrderedTopics {
    proxy: Proxy,
    world: World,
    orders: TestTopic,
    server: RedisServer,
}

impl OrderedTopics {
    async fn start() -> Result<OrderedTopics> {
        OrderedTopics::with_timeout(Duration::from_secs(1)).await
    }

    /// With so much time for a call.
    async fn with_timeout(timeout: Duration) -> Result<OrderedTopics> {
        let server = RedisServer::start().await?;
        let proxy = Proxy::before(&server)?;
        let world = World::redis_at(proxy.url(), timeout).await?;
        let orders = world.topic("orders").await?;
        Ok(OrderedTopics { proxy, world, orders, server })
    }

    /// Pushes messages that are due.
    async fn push(&self, ids: &[&str]) -> Result<()> {
        let messages = ids.iter().map(|id| self.orders.message(id, 0)).collect::<Result<Vec<_>>>()?;
        self.orders.push_all(&messages).await.map(drop)
    }

    /// The sequence number of the last call that Redis applied.
    async fn seq(&self) -> Result<String> {
        let line: String = self.server.ask(&format!("HGET {RESERVATIONS} @")).await?;
        Ok(line.split('/').nth(1).unwrap_or_default().to_owned())
    }

    /// Delivers a copy of a call, which must change nothing, and returns what Redis answers.
    async fn without_effect(&self, call: &Kept) -> Result<String> {
        let names_and_values = async || {
            let snapshot = self.server.snapshot().await?;
            Ok::<_, dwell::model::error::Error>(
                snapshot.into_iter().map(|(name, dump, _)| (name, dump)).collect::<Vec<_>>(),
            )
        };
        let before = names_and_values().await?;
        let answer = self.proxy.deliver(call).await?;
        assert_eq!(names_and_values().await?, before, "{answer}");
        Ok(answer)
    }

    /// A broker that consumes.
    fn shop(&self) -> Result<Shop> {
        self.shop_with(Duration::from_secs(1))
    }

    /// One whose leases last so long.
    fn shop_with(&self, lease_ttl: Duration) -> Result<Shop> {
        let options = Options { lease_ttl, ..Options::default() };
        Ok(Shop { running: Running::start(&self.world, options)? })
    }
}

/// A broker and one consumer of the topic `orders`.
struct Shop {
    running: Running,
}

impl Shop {
    fn broker(&self) -> &Broker {
        &self.running.broker
    }

    async fn reserve(&self, max: usize) -> Result<Vec<Delivery>> {
        self.reserve_within(Duration::from_secs(20), max).await
    }

    async fn reserve_within(&self, wait: Duration, max: usize) -> Result<Vec<Delivery>> {
        let request = ReserveRequest { max, wait, visibility_timeout: None };
        self.broker().reserve(&TopicName::new("orders")?, &GroupName::standard(), request).await
    }

    /// Takes messages until it has had so many different ones, and returns their ids, sorted.
    async fn ids(&self, count: usize) -> Result<Vec<String>> {
        let mut ids = std::collections::BTreeSet::new();
        while ids.len() < count {
            let deliveries = self.reserve(10).await?;
            assert!(!deliveries.is_empty(), "nothing more came than {ids:?}");
            ids.extend(deliveries.iter().map(|delivery| delivery.message.id.to_string()));
        }
        Ok(ids.into_iter().collect())
    }

    /// Takes what comes in a moment, and notes what could be acked.
    async fn consume(&self, acked: &mut std::collections::BTreeSet<String>) -> Result<()> {
        for delivery in self.reserve_within(Duration::from_millis(200), 10).await? {
            if self.ack(&delivery).await? == Verdict::Acked {
                acked.insert(delivery.message.id.to_string());
            }
        }
        Ok(())
    }

    async fn ack(&self, delivery: &Delivery) -> Result<Verdict> {
        self.settle(delivery, Decision::Ack).await
    }

    /// Settles a delivery, and waits for the store however long it takes.
    async fn settle(&self, delivery: &Delivery, decision: Decision) -> Result<Verdict> {
        let (topic, group) = (TopicName::new("orders")?, GroupName::standard());
        let decision = vec![(delivery.receipt.to_string(), decision)];
        Ok(self.broker().settle_within(&topic, &group, decision, Duration::from_secs(600)).await?[0])
    }

    fn repairs(&self) -> u64 {
        self.broker().metrics().ownership.repairs.get()
    }
}
