//! A move that dies between placing a page and forgetting it: what arrived is not placed again, not even when it was
//! consumed meanwhile.

use dwell::model::error::Result;
use dwell::model::message::TopicName;
use dwell::model::partition::Partition;
use dwell::model::topic::{Descriptor, Settings};
use dwell::store::MemberId;

use crate::support::{LEASE, World, acks, up_to};

fn said(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[tokio::test]
async fn interrupted_move_page_is_placed_once() -> Result<()> {
    let world = World::redis().await?;
    let orders = world.topic("orders").await?;
    orders.push("a", 0).await?;
    let settings = Settings { partitions: std::num::NonZeroU16::MIN, ..Settings::default() };
    let to = world.store.topics.create(&Descriptor::new(TopicName::new("wider")?, settings)).await?;
    // What the page will be, kept aside.
    let keep = "redis.call('HSET', KEYS[1], 'a', 'w ' .. redis.call('ZSCORE', KEYS[2], 'a') .. ' 0 ' .. \
                redis.call('HGET', KEYS[3], 'a')) return 'OK'";
    let (z, h, m) = ("{dwell:orders:0}:default:z", "{dwell:orders:0}:default:h", "{dwell:orders:0}:default:m");
    let aside = "{dwell:orders:0}:aside";
    assert_eq!(world.meddle(&said(&["EVAL", keep, "3", aside, z, h])).await?, "OK");
    let moved = orders.store.maintenance.move_page(&orders.descriptor, &orders.group_partition(), &to).await?;
    assert_eq!((moved.waiting, moved.dead, moved.there_already, moved.more), (1, 0, 0, true));
    orders.store.maintenance.moved(&orders.group_partition(), &moved).await?;
    let there = crate::support::TestTopic { descriptor: to.clone(), ..orders.clone() };
    let mut owner = there.acquire(&there.group_partition(), &MemberId::from_store("owner"), LEASE).await?;
    assert_eq!(owner.reserve(up_to(9)).await?.messages.len(), 1);
    owner.settle(&acks(&["a"])?).await?;
    // As if it had died before the page was forgotten.
    let back = "redis.call('HSET', KEYS[1], 'a', redis.call('HGET', KEYS[2], 'a')) return 'OK'";
    assert_eq!(world.meddle(&said(&["EVAL", back, "2", m, aside])).await?, "OK");
    let again = orders.store.maintenance.move_page(&orders.descriptor, &orders.group_partition(), &to).await?;
    assert!(again.arrived.messages.iter().all(|message| message.was_stored));
    orders.store.maintenance.moved(&orders.group_partition(), &again).await?;
    let stats = there.stats().await?;
    assert_eq!((stats.ready, stats.in_flight), (0, 0));
    assert!(!orders.store.maintenance.move_page(&orders.descriptor, &orders.group_partition(), &to).await?.more);
    // And one that was taken and never placed arrives.
    let page =
        "redis.call('HSET', KEYS[1], 'a', redis.call('HGET', KEYS[2], 'a'), ' ', '9000000000000000 s') return 'OK'";
    assert_eq!(world.meddle(&said(&["EVAL", page, "2", m, aside])).await?, "OK");
    assert!(orders.store.maintenance.move_page(&orders.descriptor, &orders.group_partition(), &to).await?.more);
    assert_eq!(there.stats().await?.ready, 1);
    assert_eq!(
        to.group_partition(Partition(0), &dwell::model::message::GroupName::standard()),
        there.group_partition()
    );
    Ok(())
}
