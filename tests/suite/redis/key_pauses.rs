//! Pauses of keys in Redis: their calls are applied once, and there are only so many.

use std::time::Duration;

use dwell::model::error::{Kind, Result};
use dwell::model::limits::PAUSED_KEYS_MAX;
use dwell::model::message::{GroupName, Key};
use dwell::model::partition::Partition;
use dwell::model::time::Timestamp;
use dwell::store::{Call, KeyPause, Store};

use crate::support::{Proxy, RedisServer, Strike, TestTopic, World, kind_of, new_call};

const PAUSED: &str = "{dwell:orders:0}:default:p";

struct Shop {
    server: RedisServer,
    proxy: Proxy,
    orders: TestTopic,
    world: World,
}

impl Shop {
    async fn open() -> Result<Shop> {
        let server = RedisServer::start().await?;
        let proxy = Proxy::before(&server)?;
        let world = World::redis_at(proxy.url(), Duration::from_secs(5)).await?;
        let orders = world.topic("orders").await?;
        let shop = Shop { server, proxy, orders, world };
        // So that the script is known.
        shop.set("none", None).await?;
        Ok(shop)
    }

    fn store(&self) -> &Store {
        &self.orders.store
    }

    async fn set_by(&self, call: &Call, key: &str, until: Option<Timestamp>) -> Result<()> {
        let pause = KeyPause { group: GroupName::standard(), key: Key::new(key)?, until };
        self.store().messages.pause_key(&self.orders.descriptor, Partition(0), call, &pause).await
    }

    async fn set(&self, key: &str, until: Option<Timestamp>) -> Result<()> {
        self.set_by(&new_call(&*self.store().backend, 1), key, until).await
    }

    async fn paused(&self) -> Result<u64> {
        Ok(self.store().reads.paused_keys(&self.orders.group_partition(), 9).await?.0)
    }

    fn soon(&self) -> Option<Timestamp> {
        Some(self.world.now().plus(Duration::from_secs(600)))
    }
}

#[tokio::test]
async fn pause_whose_answer_is_lost_is_made_once() -> Result<()> {
    let shop = Shop::open().await?;
    for strike in [Strike::Reply, Strike::Request] {
        shop.proxy.next_with(strike, PAUSED);
        shop.set("busy", shop.soon()).await?;
        shop.proxy.struck()?;
        assert_eq!(shop.paused().await?, 1);
        shop.proxy.next_with(strike, PAUSED);
        shop.set("busy", None).await?;
        shop.proxy.struck()?;
        assert_eq!(shop.paused().await?, 0);
    }
    Ok(())
}

/// A copy of a call that arrives after the key was resumed does not pause it again.
#[tokio::test]
async fn late_copy_of_a_pause_does_nothing() -> Result<()> {
    let shop = Shop::open().await?;
    let first = new_call(&*shop.store().backend, 1);
    shop.proxy.next_with(Strike::Copy, PAUSED);
    shop.set_by(&first, "busy", shop.soon()).await?;
    let late = shop.proxy.struck()?;
    // The same stream continues with the end of the pause.
    let mut second = first.clone();
    second.id.seq += 1;
    shop.set_by(&second, "busy", None).await?;
    assert!(shop.proxy.deliver(&late).await?.contains("LATE"));
    assert_eq!(shop.paused().await?, 0);
    // What is answered again is not done again.
    shop.set("busy", shop.soon()).await?;
    shop.set_by(&second, "busy", None).await?;
    assert_eq!(shop.paused().await?, 1);
    Ok(())
}

#[tokio::test]
async fn only_so_many_keys_are_paused() -> Result<()> {
    let shop = Shop::open().await?;
    let later = shop.world.now().plus(Duration::from_secs(60)).as_ms();
    let members: Vec<String> = (0..PAUSED_KEYS_MAX).map(|n| format!("{later} k{n}")).collect();
    shop.server.ask::<u64>(&format!("ZADD {PAUSED} {}", members.join(" "))).await?;
    assert_eq!(kind_of(shop.set("one-more", shop.soon()).await), Some(Kind::Full));
    shop.set("k7", shop.soon()).await?;
    shop.set("k8", None).await?;
    shop.set("one-more", shop.soon()).await?;
    assert_eq!(kind_of(shop.set("another", shop.soon()).await), Some(Kind::Full));
    // Those that are over make room, and leave.
    let over: Vec<String> = (9..PAUSED_KEYS_MAX).map(|n| format!("1 k{n}")).collect();
    shop.server.ask::<u64>(&format!("ZADD {PAUSED} {}", over.join(" "))).await?;
    shop.set("another", shop.soon()).await?;
    let left = shop.server.ask::<u64>(&format!("ZCARD {PAUSED}")).await?;
    assert_eq!((shop.paused().await?, left), (10, 10), "eight of the first, and two");
    Ok(())
}
