//! Sorted messages of a fair group in Redis: where they stand, that each verb finds them there, and that groups without any
//! pay nothing.

use std::time::Duration;

use dwell::model::error::{Error, Kind, Result};
use dwell::model::limits::{CALL_IDS_MAX, SORTED_KEYS_MAX};
use dwell::model::message::{GroupName, Key, Message, MessageId};
use dwell::model::partition::Partition;
use dwell::model::time::Timestamp;
use dwell::model::topic::Descriptor;
use dwell::store::{
    Expected, Fate, KeyCount, LateFate, LateSettlement, MessageState, Owner, Purge, Renewal, Rescheduled, ReserveLimit,
    Reserved, ReservedMessage, Retried, Returned, Settlement, Sorted, Spans, WaitingCursor, Window,
};

use crate::support::{
    LEASE, Proxy, RedisServer, Strike, TestTopic, World, acks, ids_of, kind_of, member, new_call, retries, returns,
    up_to,
};

const BY_KEY: &str = "{dwell:orders:0}:default:k";

/// The key of a message of these stories: the first letter of its id, or none for a dash.
fn key_of(id: &str) -> Result<Option<Key>> {
    id.chars().next().filter(|first| *first != '-').map(|first| Key::new(first.to_string())).transpose()
}

fn ask(key: &str, messages: u64) -> Result<KeyCount> {
    Ok(KeyCount { key: key_of(key)?, messages })
}

/// A Redis, one for a user who may do no more than dwell needs, and the simulated one.
async fn worlds() -> Result<[World; 3]> {
    Ok([World::redis().await?, World::redis_as_user().await?, World::simulated().await?])
}

/// Gives all that was taken back, sorted.
fn sorts(taken: &Reserved) -> Result<Settlement> {
    let sorted = |message: &ReservedMessage| {
        let key = message.message.as_ref().ok().and_then(|message| message.envelope.key.clone());
        Sorted { id: message.id.clone(), key, ready_at: message.ready_at }
    };
    let sorted = taken.messages.iter().map(sorted).collect();
    Ok(Settlement { sorted, remaining: vec![(taken.reservation, Vec::new())], ..Settlement::default() })
}

/// A topic of one partition and its owner.
struct Shop {
    world: World,
    orders: TestTopic,
    owner: Box<dyn Owner>,
}

impl Shop {
    async fn open() -> Result<Shop> {
        Shop::of(World::redis().await?).await
    }

    async fn of(world: World) -> Result<Shop> {
        let orders = world.topic("orders").await?;
        let owner = orders.owner().await?;
        Ok(Shop { world, orders, owner })
    }

    fn message(&self, id: &str) -> Result<Message> {
        let mut message = self.orders.message(id, 0)?;
        message.envelope.key = key_of(id)?;
        Ok(message)
    }

    /// Pushes messages that are due, and lets a millisecond pass before each.
    async fn push(&self, ids: &[&str]) -> Result<()> {
        for id in ids {
            self.world.pass(1);
            self.orders.push_all(&[self.message(id)?]).await?;
        }
        Ok(())
    }

    /// Pushes messages and sorts them, with all others that are due.
    async fn sort(&mut self, ids: &[&str]) -> Result<Reserved> {
        self.push(ids).await?;
        let taken = self.owner.reserve(up_to(CALL_IDS_MAX)).await?;
        self.owner.settle(&sorts(&taken)?).await?;
        Ok(taken)
    }

    async fn meddle(&self, command: &[&str]) -> Result<String> {
        self.world.meddle(&command.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).await
    }

    async fn entries(&self) -> Result<String> {
        self.meddle(&["ZCARD", BY_KEY]).await
    }

    /// Ids and times of what waits in a window, read in pages of so many messages: from the list, and from the range of a bulk change.
    async fn listed(&self, window: Window, limit: usize) -> Result<Vec<(u64, String)>> {
        let (reads, partition) = (&self.orders.store.reads, self.orders.group_partition());
        let (mut waiting, mut after) = (Vec::new(), None);
        loop {
            let page = reads.waiting(&partition, window, after.as_ref(), limit).await?;
            let times = page.messages.iter().map(|listed| (listed.next_at.unwrap_or_default(), listed.id.clone()));
            waiting.extend(times.map(|(at, id)| (at.as_ms(), id.to_string())));
            after = page.next;
            if after.is_none() || waiting.len() > 100 {
                break;
            }
        }
        let (mut range, mut after) = (Vec::new(), None);
        loop {
            let page = reads.window(&partition, window, after.as_ref(), limit).await?;
            assert_eq!(page.count, waiting.len() as u64);
            range.extend(page.messages.iter().map(|(at, id)| (at.as_ms(), id.to_string())));
            match page.messages.last() {
                Some(last) if range.len() <= 100 => after = Some(last.clone()),
                _ => break,
            }
        }
        assert_eq!(range, waiting);
        Ok(waiting)
    }
}

#[tokio::test]
async fn sorted_messages_are_taken_by_key_oldest_first() -> Result<()> {
    let mut shop = Shop::open().await?;
    shop.sort(&["a1", "b1", "a2", "-1", "a3", "ab"]).await?;
    let none = shop.owner.reserve(up_to(9)).await?;
    assert_eq!((none.messages.len(), none.head, none.unsettled, none.sorted_left.len()), (0, None, 0, 0));
    let Renewal::Kept(state) = shop.orders.renew(&member("owner"), &*shop.owner, LEASE).await? else {
        return Err(Error::bug("the lease is lost"));
    };
    assert_eq!(state.head, None);
    shop.push(&["c1", "c2"]).await?;
    let head = shop.world.now();
    let taken = shop.owner.reserve_by_key(up_to(1), &[ask("a", 2)?, ask("-", 5)?, ask("x", 1)?], None).await?;
    assert_eq!(ids_of(&taken.messages), ["a1", "a2", "-1", "c1"]);
    assert_eq!(
        (taken.sorted_left.clone(), taken.head, taken.unsettled, taken.dropped),
        (vec![2, 0, 0], Some(head), 4, 0)
    );
    assert_eq!(shop.entries().await?, "3");
    shop.owner
        .settle(&Settlement { remaining: vec![(taken.reservation, vec![])], ..acks(&["a1", "a2", "-1", "c1"])? })
        .await?;
    let rest = shop.owner.reserve_by_key(up_to(9), &[ask("b", 9)?, ask("a", 9)?], None).await?;
    assert_eq!(ids_of(&rest.messages), ["b1", "a3", "ab", "c2"]);
    assert_eq!((rest.sorted_left, rest.head, rest.unsettled), (vec![0, 0], None, 4));
    assert_eq!(shop.entries().await?, "0");
    Ok(())
}

#[tokio::test]
async fn reservation_by_key_keeps_its_limits() -> Result<()> {
    let mut shop = Shop::open().await?;
    shop.sort(&["a1", "a2", "b1"]).await?;
    shop.push(&["c1"]).await?;
    let asked = [ask("a", 2)?, ask("b", 1)?];
    let one = shop.owner.reserve_by_key(ReserveLimit { messages: 9, bytes: 1 }, &asked, None).await?;
    assert_eq!((ids_of(&one.messages), one.sorted_left), (vec!["a1"], vec![1, 1]));
    let counted = shop.owner.reserve_by_key(ReserveLimit { messages: 1, bytes: 1 }, &[ask("a", 0)?], None).await?;
    assert_eq!((ids_of(&counted.messages), counted.sorted_left), (vec!["c1"], vec![1]));
    let too_many = [ask("a", CALL_IDS_MAX as u64)?, ask("b", 1)?];
    assert_eq!(kind_of(shop.owner.reserve_by_key(up_to(1), &too_many, None).await), Some(Kind::Bug));
    let too_many = vec![ask("a", 0)?; SORTED_KEYS_MAX + 1];
    assert_eq!(kind_of(shop.owner.reserve_by_key(up_to(1), &too_many, None).await), Some(Kind::Bug));
    let rest = shop.owner.reserve_by_key(up_to(CALL_IDS_MAX), &asked, None).await?;
    assert_eq!((ids_of(&rest.messages), rest.sorted_left), (vec!["a2", "b1"], vec![0, 0]));
    Ok(())
}

#[tokio::test]
async fn entries_of_messages_that_are_elsewhere_are_dropped_where_they_are_met() -> Result<()> {
    let mut shop = Shop::open().await?;
    let ids: Vec<String> = (1..=80).map(|n| format!("a{n:02}")).collect();
    shop.sort(&ids.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    for id in &ids[..60] {
        assert_eq!(shop.orders.cancel(id).await?, [Fate::Done]);
    }
    assert_eq!(shop.orders.reschedule("a61", 60_000).await?, [Fate::Done]);
    // A body is lost.
    shop.meddle(&["HDEL", "{dwell:orders:0}:default:h", "a62"]).await?;
    let taken = shop.owner.reserve_by_key(up_to(9), &[ask("a", 2)?], None).await?;
    assert_eq!((ids_of(&taken.messages), taken.sorted_left, taken.dropped), (vec!["a63", "a64"], vec![16], 1));
    assert_eq!(shop.entries().await?, "16");
    // The same id again, with another time: its old entry does not count.
    shop.orders.cancel("a65").await?;
    shop.sort(&["a65"]).await?;
    let taken = shop.owner.reserve_by_key(up_to(9), &[ask("a", 99)?], None).await?;
    assert_eq!((taken.messages.len(), taken.messages.last().map(|last| last.id.as_str())), (16, Some("a65")));
    assert_eq!((taken.sorted_left, shop.entries().await?), (vec![0], "0".to_owned()));
    Ok(())
}

#[tokio::test]
async fn calls_about_sorted_messages_are_applied_once() -> Result<()> {
    for strike in [Strike::Reply, Strike::Request] {
        let server = RedisServer::start().await?;
        let proxy = Proxy::before(&server)?;
        let mut shop = Shop::of(World::redis_at(proxy.url(), Duration::from_secs(1)).await?).await?;
        shop.orders.push_all(&[shop.message("a1")?, shop.message("a2")?, shop.message("b1")?]).await?;
        let taken = shop.owner.reserve(up_to(9)).await?;
        proxy.next(strike);
        shop.owner.settle(&sorts(&taken)?).await?;
        proxy.struck()?;
        assert_eq!((shop.orders.stats().await?.ready, server.ask::<u64>(&format!("ZCARD {BY_KEY}")).await?), (3, 3));
        // Redis knows the script.
        shop.owner.reserve_by_key(up_to(9), &[ask("x", 1)?], None).await?;
        proxy.next(strike);
        let taken = shop.owner.reserve_by_key(up_to(9), &[ask("b", 1)?, ask("a", 1)?], None).await?;
        proxy.struck()?;
        assert_eq!((ids_of(&taken.messages), taken.sorted_left, taken.unsettled), (vec!["b1", "a1"], vec![0, 1], 2));
        let payload = taken.messages[0].message.as_ref().map(|message| message.envelope.payload.as_ref());
        assert_eq!(payload, Ok(b"b1".as_slice()));
        let rest = shop.owner.reserve_by_key(up_to(9), &[ask("a", 9)?], None).await?;
        assert_eq!((ids_of(&rest.messages), rest.unsettled), (vec!["a2"], 3));
        // A repeat answers all keys with sorted messages, since it does not know which its first copy has sorted.
        shop.push(&["c1", "c2", "c3", "d1", "d2", "e1"]).await?;
        proxy.next(strike);
        let taken = shop.owner.reserve_by_key(up_to(9), &[ask("e", 1)?], Some(1)).await?;
        proxy.struck()?;
        assert_eq!((ids_of(&taken.messages), taken.sorted_left), (vec!["c1", "d1", "e1"], vec![0]));
        assert_eq!(taken.sorted, [ask("c", 2)?, ask("d", 1)?]);
    }
    Ok(())
}

/// The script reads the key in the body: a damaged one is for the owner to judge, whatever stands there.
#[tokio::test]
async fn keys_of_damaged_bodies_are_not_sorted_by() -> Result<()> {
    let mut shop = Shop::open().await?;
    let hash = "{dwell:orders:0}:default:h";
    shop.push(&["a1", "a2", "a3", "a4", "a5"]).await?;
    let damage = "local body = redis.call('HGET', KEYS[1], 'a1')
            local with = function(key) return string.sub(body, 1, 26) .. key .. string.sub(body, 28) end
            redis.call('HSET', KEYS[1], 'a2', with('\\1'), 'a3', with('\\200'), 'a4', string.sub(body, 1, 20), 'a5', '')
            return 'OK'";
    shop.meddle(&["EVAL", damage, "1", hash]).await?;
    let taken = shop.owner.reserve_by_key(up_to(9), &[], Some(1)).await?;
    assert_eq!(ids_of(&taken.messages), ["a1", "a2", "a3", "a4"]);
    // Where the place of the key is lost, it is as if there were none.
    let rest = shop.owner.reserve_by_key(up_to(0), &taken.sorted, Some(1)).await?;
    assert_eq!((taken.sorted, ids_of(&rest.messages)), (vec![ask("-", 1)?], vec!["a5"]));
    let readable = taken.messages.iter().chain(&rest.messages).filter(|taken| taken.message.is_ok()).count();
    assert_eq!(readable, 1);
    Ok(())
}

#[tokio::test]
async fn keys_in_any_script_are_sorted_by() -> Result<()> {
    for world in worlds().await? {
        let mut shop = Shop::of(world).await?;
        let mut messages = Vec::new();
        for (n, key) in ["é", "客户", "\u{ffff}", "\u{10ffff}", "👍", "\u{d7ff}", "a b"].into_iter().enumerate() {
            for copy in 0..2 {
                let mut message = shop.message(&format!("m{n}-{copy}"))?;
                message.envelope.key = Some(Key::new(key)?);
                messages.push(message);
            }
        }
        shop.orders.push_all(&messages).await?;
        let taken = shop.owner.reserve_by_key(up_to(99), &[], Some(1)).await?;
        assert_eq!((taken.messages.len(), taken.sorted.len()), (7, 7));
        let rest = shop.owner.reserve_by_key(up_to(0), &taken.sorted, Some(1)).await?;
        assert_eq!((rest.messages.len(), rest.sorted_left), (7, vec![0; 7]));
    }
    Ok(())
}

#[tokio::test]
async fn next_epoch_finds_what_is_sorted_and_recovers_what_was_taken() -> Result<()> {
    for world in worlds().await? {
        next_epoch_finds_what_is_sorted(Shop::of(world).await?).await?;
    }
    Ok(())
}

async fn next_epoch_finds_what_is_sorted(mut shop: Shop) -> Result<()> {
    assert!(!shop.owner.recover().await?.has_sorted);
    let count = SORTED_KEYS_MAX + 1;
    let mut messages = vec![shop.message("-1")?, shop.message("-2")?];
    for n in 0..count {
        let id = format!("m{n:04}");
        let mut message = shop.message(&id)?;
        message.envelope.key = Some(Key::new(&id)?);
        messages.push(message);
    }
    shop.orders.push_all(&messages).await?;
    shop.sort(&[]).await?;
    let taken = shop.owner.reserve_by_key(up_to(9), &[ask("-", 1)?], None).await?;
    assert_eq!(ids_of(&taken.messages), ["-1"]);

    let mut owner = shop.orders.owner().await?;
    let recovered = owner.recover().await?;
    assert_eq!((recovered.messages, recovered.has_sorted, recovered.orphans), (1, true, 0));
    let first = owner.sorted_keys(None).await?;
    assert_eq!((first.keys.len(), first.more), (SORTED_KEYS_MAX, true));
    assert_eq!(first.keys[..2], [ask("-", 1)?, KeyCount { key: Some(Key::new("m0000")?), messages: 1 }]);
    let second = owner.sorted_keys(first.keys.last()).await?;
    let names: Vec<String> = second.keys.iter().filter_map(|count| Some(count.key.as_ref()?.to_string())).collect();
    assert_eq!((names, second.more), (vec!["m0499".to_owned(), "m0500".to_owned()], false));
    assert_eq!(owner.sorted_keys(second.keys.last()).await?.keys, []);
    // Behind those without a key.
    assert_eq!(owner.sorted_keys(Some(&ask("-", 1)?)).await?.keys.first(), first.keys.get(1));
    // What was taken is due again, and not sorted.
    let again = owner.reserve(up_to(9)).await?;
    assert_eq!((ids_of(&again.messages), again.messages[0].attempts), (vec!["-1"], 1));
    Ok(())
}

#[tokio::test]
async fn sorted_message_is_found_by_the_verbs_of_clients() -> Result<()> {
    let mut shop = Shop::open().await?;
    let taken = shop.sort(&["a1", "a2", "a3", "a4"]).await?;
    let due = |n: usize| taken.messages[n].ready_at;
    let peeked = shop.orders.peek("a1").await?.ok_or_else(|| Error::bug("no message"))?;
    assert_eq!((peeked.state, peeked.next_at), (MessageState::Ready, Some(due(0))));
    assert_eq!(shop.orders.cancel("a1").await?, [Fate::Done]);
    // It has the due time that is asked for, whatever was expected.
    let expected = Expected { due_at: Some(Timestamp::from_ms(1)), attempts: None };
    let there = shop.orders.reschedule_if("a2", due(1), expected).await?;
    assert!(matches!(there, Rescheduled::Done(_)), "{there:?}");
    let version = taken.messages[2].version;
    let id = MessageId::new("a3")?;
    let ack =
        LateSettlement { pauses_key: false, id, version, attempt: 1, redelivered: false, next_at: None, failure: None };
    let call = new_call(&*shop.orders.store.backend, 1);
    let (group, messages) = (GroupName::standard(), &shop.orders.store.messages);
    let late = messages.settle_late(&shop.orders.descriptor, Partition(0), &group, &call, &[ack]).await?;
    // It was never handed out.
    assert_eq!(late, [LateFate::Over]);
    assert_eq!(shop.orders.reschedule("a4", 60_000).await?, [Fate::Done]);
    let left = shop.owner.reserve_by_key(up_to(9), &[ask("a", 9)?], None).await?;
    // One that was rescheduled is not sorted any more, even to the same time.
    assert_eq!((ids_of(&left.messages), left.sorted_left), (vec!["a3", "a2"], vec![0]));
    Ok(())
}

#[tokio::test]
async fn late_settlement_ends_a_sorted_message_that_was_delivered() -> Result<()> {
    let mut shop = Shop::open().await?;
    shop.push(&["a1"]).await?;
    let taken = shop.owner.reserve(up_to(1)).await?;
    let (version, next_at) = (taken.messages[0].version, shop.world.now().plus(Duration::from_millis(5)));
    let retried = Retried { id: MessageId::new("a1")?, next_at, attempts: 1, failure: None };
    shop.owner.settle(&retries(taken.reservation, retried, &[])?).await?;
    shop.world.pass(5);
    let again = shop.sort(&[]).await?;
    assert_eq!((ids_of(&again.messages), again.messages[0].ready_at), (vec!["a1"], next_at));
    let id = MessageId::new("a1")?;
    let ack =
        LateSettlement { pauses_key: false, id, version, attempt: 1, redelivered: false, next_at: None, failure: None };
    let call = new_call(&*shop.orders.store.backend, 1);
    let (group, messages) = (GroupName::standard(), &shop.orders.store.messages);
    let late = messages.settle_late(&shop.orders.descriptor, Partition(0), &group, &call, &[ack]).await?;
    assert_eq!(late, [LateFate::Done]);
    let none = shop.owner.reserve_by_key(up_to(9), &[ask("a", 9)?], None).await?;
    assert_eq!((none.messages.len(), none.dropped, none.unsettled, none.sorted_left), (0, 0, 0, vec![0]));
    Ok(())
}

#[tokio::test]
async fn lists_and_counts_have_sorted_messages_at_their_due_times() -> Result<()> {
    for world in worlds().await? {
        lists_have_sorted_messages_at_their_due_times(Shop::of(world).await?).await?;
    }
    Ok(())
}

async fn lists_have_sorted_messages_at_their_due_times(mut shop: Shop) -> Result<()> {
    let start = shop.world.now().as_ms();
    shop.sort(&["b1", "b4"]).await?;
    // In the millisecond of b4: two that are sorted, three that are not.
    shop.orders.push_all(&[shop.message("b6")?, shop.message("b2")?]).await?;
    shop.sort(&[]).await?;
    shop.orders.push_all(&[shop.message("b3")?, shop.message("b1x")?, shop.message("b7")?]).await?;
    shop.orders.push("later", 10_000).await?;
    let expected: Vec<(u64, String)> =
        [(1, "b1"), (2, "b1x"), (2, "b2"), (2, "b3"), (2, "b4"), (2, "b6"), (2, "b7"), (10_002, "later")]
            .map(|(at, id)| (start + at, id.to_owned()))
            .to_vec();
    for limit in [1, 2, 3, 100] {
        assert_eq!(shop.listed(Window::ALL, limit).await?, expected, "{limit}");
        let window = |from, to| Window { from: Timestamp::from_ms(start + from), to: Timestamp::from_ms(start + to) };
        assert_eq!(shop.listed(window(0, 2), limit).await?, expected[..1], "{limit}");
        assert_eq!(shop.listed(window(2, 3), limit).await?, expected[1..7], "{limit}");
        assert_eq!(shop.listed(window(3, 10_003), limit).await?, expected[7..], "{limit}");
    }
    // Behind one that is gone.
    shop.orders.cancel("b3").await?;
    let after = WaitingCursor { next_at: Timestamp::from_ms(start + 2), id: MessageId::new("b3")? };
    let partition = shop.orders.group_partition();
    let page = shop.orders.store.reads.waiting(&partition, Window::ALL, Some(&after), 2).await?;
    assert_eq!(page.messages.iter().map(|listed| listed.id.as_str()).collect::<Vec<_>>(), ["b4", "b6"]);
    shop.counts(start).await
}

impl Shop {
    async fn counts(&self, start: u64) -> Result<()> {
        let partition = self.orders.group_partition();
        let spans = [Duration::from_secs(1), Duration::from_secs(20)];
        let depth = self.orders.store.reads.depth(std::slice::from_ref(&partition), &spans).await?;
        let stats = &depth[0].stats;
        assert_eq!((stats.ready, stats.scheduled, stats.in_flight), (6, 1, 0));
        assert_eq!((stats.head, &depth[0].due), (Some(Timestamp::from_ms(start + 1)), &vec![0, 1]));
        let forecast = async |step: u64, count| {
            let spans = Spans { from: self.world.now(), step: Duration::from_millis(step), count };
            let forecast = self.orders.store.reads.forecast(std::slice::from_ref(&partition), spans).await?;
            forecast.into_iter().next().ok_or_else(|| Error::bug("no forecast"))
        };
        let near = forecast(1_000, 2).await?;
        assert_eq!((near.ready, near.spans, near.later), (6, vec![0, 0], 1));
        let far = forecast(u64::from(u32::MAX) * 1_000, 2).await?;
        assert_eq!((far.ready, far.spans, far.later), (6, vec![1, 0], 0));
        Ok(())
    }
}

#[tokio::test]
async fn earliest_due_time_is_that_of_the_first_message_of_any_kind() -> Result<()> {
    let mut shop = Shop::open().await?;
    shop.push(&["b1"]).await?;
    let first = shop.owner.reserve(up_to(1)).await?;
    shop.push(&["b2"]).await?;
    let second = shop.owner.reserve(up_to(1)).await?;
    shop.owner.settle(&sorts(&second)?).await?;
    assert_eq!(shop.orders.stats().await?.head, Some(second.messages[0].ready_at));
    let ready_at = first.messages[0].ready_at;
    let returned = Returned { id: MessageId::new("b1")?, ready_at };
    shop.owner.settle(&returns(first.reservation, returned, &[])?).await?;
    assert_eq!(shop.orders.stats().await?.head, Some(ready_at));
    Ok(())
}

#[tokio::test]
async fn sorted_messages_move_to_another_topic_with_their_due_times() -> Result<()> {
    let mut shop = Shop::open().await?;
    let taken = shop.sort(&["a1", "a2"]).await?;
    shop.orders.push("later", 10_000).await?;
    let other = shop.world.topic("other").await?;
    let (maintenance, partition) = (shop.orders.store.maintenance.clone(), shop.orders.group_partition());
    let (first, second) = (taken.messages[0].ready_at.as_ms(), taken.messages[1].ready_at.as_ms());
    loop {
        let page = maintenance.move_page(&shop.orders.descriptor, &partition, &other.descriptor).await?;
        if !page.more {
            break;
        }
        // What would come back if the page were called back.
        let on_its_way = shop.meddle(&["HGET", "{dwell:orders:0}:default:m", "a1"]).await?;
        assert!(on_its_way.ends_with(&format!(" {first}")), "{on_its_way}");
        maintenance.moved(&partition, &page).await?;
    }
    let Shop { world, orders, owner } = shop;
    let there = Shop { world, orders: other, owner };
    let arrived = there.listed(Window::ALL, 9).await?;
    assert_eq!(arrived[..2], [(first, "a1".to_owned()), (second, "a2".to_owned())]);
    assert_eq!((arrived.len(), orders.stats().await?.ready), (3, 0));
    Ok(())
}

#[tokio::test]
async fn copy_for_a_new_group_has_sorted_messages_at_their_due_times() -> Result<()> {
    let mut shop = Shop::open().await?;
    let taken = shop.sort(&["a1"]).await?;
    let audit = GroupName::new("audit")?;
    let mut wanted: Descriptor = shop.orders.descriptor.clone();
    wanted.groups.push(audit.clone());
    wanted.subscription_mut(&audit).copy_of = Some(GroupName::standard());
    let copy = shop.world.existing(shop.world.store.topics.update(&wanted).await?);
    let copied = copy.store.maintenance.copy(&copy.descriptor, Partition(0), &audit, None).await?;
    assert_eq!((copied.messages, copied.next), (1, None));
    let stats = copy.stats_of(&copy.partition_of("audit")?).await?;
    assert_eq!((stats.ready, stats.head), (1, Some(taken.messages[0].ready_at)));
    let score = shop.meddle(&["ZSCORE", "{dwell:orders:0}:audit:z", "a1"]).await?;
    assert_eq!(score, taken.messages[0].ready_at.as_ms().to_string());
    Ok(())
}

#[tokio::test]
async fn purge_and_deletion_leave_no_sorted_messages() -> Result<()> {
    let mut shop = Shop::open().await?;
    shop.sort(&["a1", "a2"]).await?;
    let (call, purge) =
        (new_call(&*shop.orders.store.backend, 1), Purge { group: GroupName::standard(), dead_letters: false });
    let purged = shop.orders.store.messages.purge_group(&shop.orders.descriptor, Partition(0), &call, &purge).await?;
    assert_eq!((purged.messages, shop.meddle(&["EXISTS", BY_KEY]).await?), (2, "0".to_owned()));
    // The member that owned the partition takes it anew.
    shop.owner = shop.orders.owner().await?;
    shop.sort(&["a3"]).await?;
    assert_eq!(shop.meddle(&["EXISTS", BY_KEY]).await?, "1");
    shop.world.store.topics.delete(&shop.orders.descriptor).await?;
    assert_eq!(shop.meddle(&["EXISTS", BY_KEY]).await?, "0");
    Ok(())
}

#[tokio::test]
async fn group_that_leaves_takes_its_sorted_messages_with_it() -> Result<()> {
    let world = World::redis().await?;
    let orders = world.topic_with_groups("orders", &["default", "audit"]).await?;
    let owner = orders.owner().await?;
    let mut shop = Shop { world, orders, owner };
    shop.sort(&["a1"]).await?;
    let mut wanted = shop.orders.descriptor.clone();
    wanted.groups.retain(|group| *group != GroupName::standard());
    shop.world.store.topics.update(&wanted).await?;
    assert_eq!(shop.meddle(&["EXISTS", BY_KEY]).await?, "0");
    Ok(())
}

/// Words of a call behind the name of its script: how many keys, the keys, the arguments.
fn words(call: &str) -> Vec<&str> {
    call.split("\r\n").skip(2).step_by(2).skip(2).collect()
}

/// A group without sorted messages makes the calls that it made before there were any.
#[tokio::test]
async fn calls_without_sorted_messages_name_none() -> Result<()> {
    let server = RedisServer::start().await?;
    let proxy = Proxy::before(&server)?;
    let world = World::redis_at(proxy.url(), Duration::from_secs(1)).await?;
    let orders = world.topic("orders").await?;
    let mut owner = orders.owner().await?;
    orders.push("a", 0).await?;
    owner.reserve(up_to(9)).await?;
    proxy.next(Strike::Copy);
    let taken = owner.reserve(up_to(9)).await?;
    let reserve = proxy.struck()?.text();
    let named = words(&reserve);
    assert_eq!((named.first(), named.len()), (Some(&"4"), 12), "{reserve}");
    owner.settle(&Settlement::default()).await?;
    proxy.next(Strike::Copy);
    owner.settle(&Settlement { remaining: vec![(taken.reservation, vec![])], ..acks(&["a"])? }).await?;
    let settle = proxy.struck()?.text();
    let named = words(&settle);
    assert_eq!((named.first(), named.len()), (Some(&"8"), 21), "{settle}");
    Ok(())
}
