use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use dwell::model::error::{Error, Kind, Result};
use dwell::model::limits::{CALL_IDS_MAX, RECOVER_IDS_MAX};
use dwell::model::message::{Key, Message, MessageId};
use dwell::store::{
    Channel, KeyCount, Owner, Renewal, ReserveLimit, Reserved, Returned, Settlement, Sorted, SortedKeys,
};
use tokio::sync::Notify;

use super::audited;
use crate::support::{LEASE, TestTopic, World, acks, eventually, ids, ids_of, kind_of, member, up_to};

/// A message of a key, or of none, that is due so many milliseconds from now.
pub(super) fn keyed(orders: &TestTopic, id: &str, key: Option<&str>, delay_ms: u64) -> Result<Message> {
    let mut message = orders.message(id, delay_ms)?;
    message.envelope.key = key.map(Key::new).transpose()?;
    Ok(message)
}

/// So many messages of a key.
pub(super) fn of(key: Option<&str>, messages: u64) -> Result<KeyCount> {
    Ok(KeyCount { key: key.map(Key::new).transpose()?, messages })
}

/// A settlement that sorts all that was reserved.
pub(super) fn sorts(reserved: &Reserved) -> Result<Settlement> {
    let mut sorted = Vec::new();
    for taken in &reserved.messages {
        let key = taken.message.clone()?.envelope.key;
        sorted.push(Sorted { id: taken.id.clone(), key, ready_at: taken.ready_at });
    }
    Ok(Settlement { sorted, remaining: vec![(reserved.reservation, vec![])], ..Settlement::default() })
}

/// Sorts all that is due, and answers how many messages that are.
pub(super) async fn sort_due(owner: &mut Box<dyn Owner>) -> Result<usize> {
    let mut sorted = 0;
    loop {
        let reserved = owner.reserve(up_to(CALL_IDS_MAX)).await?;
        if reserved.messages.is_empty() {
            return Ok(sorted);
        }
        owner.settle(&sorts(&reserved)?).await?;
        sorted += reserved.messages.len();
    }
}

/// Two messages of `a`, one of `b` and one without a key, all due by now and sorted.
pub(super) async fn few(world: &World, orders: &TestTopic) -> Result<Box<dyn Owner>> {
    let (a, b) = (Some("a"), Some("b"));
    let messages = [("a2", a, 2), ("a1", a, 1), ("b1", b, 1), ("none", None, 3)];
    let messages = messages.map(|(id, key, delay_ms)| keyed(orders, id, key, delay_ms));
    orders.push_all(&messages.into_iter().collect::<Result<Vec<_>>>()?).await?;
    world.pass(10);
    let mut owner = orders.owner().await?;
    assert_eq!(sort_due(&mut owner).await?, 4);
    Ok(owner)
}

/// All keys that may have sorted messages, with how many there are of each at most.
pub(super) async fn keys(owner: &mut Box<dyn Owner>) -> Result<Vec<KeyCount>> {
    owner.all_sorted_keys().await
}

/// Fails unless each of these keys is counted with so many sorted messages or more.
pub(super) async fn counts_at_least(owner: &mut Box<dyn Owner>, expected: &[KeyCount]) -> Result<()> {
    let counted = keys(owner).await?;
    for KeyCount { key, messages } in expected {
        let count = counted.iter().find(|count| count.key == *key).map_or(0, |count| count.messages);
        assert!(count >= *messages, "{key:?}: {messages} expected in {counted:?}");
    }
    Ok(())
}

/// Reserves the key until none of its messages is left sorted.
async fn reserve_all_of(owner: &mut Box<dyn Owner>, key: &Option<Key>) -> Result<Vec<Reserved>> {
    let asked = [KeyCount { key: key.clone(), messages: 500 }];
    let mut all = Vec::new();
    for _ in 0..100 {
        let reserved = owner.reserve_by_key(up_to(1), &asked, None).await?;
        let is_over = reserved.sorted_left == [0];
        all.push(reserved);
        if is_over {
            return Ok(all);
        }
    }
    Err(Error::bug(format!("{key:?} always has sorted messages")))
}

/// The keys and ids of exactly the messages that are sorted, in their order. What is due is reserved for that, and put back as it was.
pub(super) async fn exactly_sorted(owner: &mut Box<dyn Owner>) -> Result<Vec<(Option<Key>, Vec<String>)>> {
    let (mut found, mut counts, mut back) = (Vec::new(), Vec::new(), Settlement::default());
    // First what is not sorted, which would come with the others.
    loop {
        let due = owner.reserve(up_to(CALL_IDS_MAX)).await?;
        back.remaining.push((due.reservation, vec![]));
        if due.messages.is_empty() {
            break;
        }
        let returned = due.messages.into_iter().map(|due| Returned { id: due.id, ready_at: due.ready_at });
        back.returned.extend(returned);
    }
    for KeyCount { key, messages: most } in keys(owner).await? {
        let mut ids = Vec::new();
        for reserved in reserve_all_of(owner, &key).await? {
            let Settlement { sorted, remaining, .. } = sorts(&reserved)?;
            ids.extend(sorted.iter().map(|sorted| sorted.id.to_string()));
            assert!(sorted.iter().all(|sorted| sorted.key == key), "{key:?}: {sorted:?}");
            back.sorted.extend(sorted);
            back.remaining.extend(remaining);
        }
        assert!(ids.len() as u64 <= most, "{key:?}: {most} counted, {ids:?} found");
        if !ids.is_empty() {
            counts.push(KeyCount { key: key.clone(), messages: ids.len() as u64 });
            found.push((key, ids));
        }
    }
    assert_eq!(keys(owner).await?, []);
    owner.settle(&back).await?;
    assert_eq!(keys(owner).await?, counts);
    Ok(found)
}

/// The ids of a key, as [`exactly_sorted`] answers them.
pub(super) fn ids_sorted(key: Option<&str>, ids: &[&str]) -> Result<(Option<Key>, Vec<String>)> {
    Ok((key.map(Key::new).transpose()?, ids.iter().map(|id| (*id).to_owned()).collect()))
}

pub(super) async fn sorted_messages_are_reserved_by_key(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let began = world.now();
    let mut owner = few(&world, &orders).await?;
    // They are due to nobody who does not ask for their key.
    let nothing = owner.reserve(up_to(9)).await?;
    assert_eq!((nothing.messages.len(), nothing.head, nothing.unsettled, nothing.dropped), (0, None, 0, 0));
    orders.push_all(&[keyed(&orders, "later", Some("a"), 50)?, keyed(&orders, "new", Some("a"), 0)?]).await?;
    let asked = [of(Some("b"), 5)?, of(Some("nobody"), 5)?, of(Some("a"), 1)?, of(None, 1)?];
    let taken = owner.reserve_by_key(up_to(9), &asked, None).await?;
    assert_eq!(ids_of(&taken.messages), ["b1", "a1", "none", "new"]);
    assert_eq!(taken.sorted_left, [0, 0, 1, 0]);
    let later = world.now().plus(Duration::from_millis(50));
    assert_eq!((taken.head, taken.unsettled, taken.dropped), (Some(later), 4, 0));
    let at = |ms: u64| began.plus(Duration::from_millis(ms));
    let ready: Vec<_> = taken.messages.iter().map(|message| (message.ready_at, message.attempts)).collect();
    assert_eq!(ready, [(at(1), 0), (at(1), 0), (at(3), 0), (at(10), 0)]);
    let first = taken.messages[0].message.clone()?;
    assert_eq!((first.envelope.key, &*first.envelope.payload), (of(Some("b"), 0)?.key, b"b1".as_slice()));
    // What was taken is in one reservation like any other.
    owner.settle(&acks(&["b1"])?).await?;
    let remaining = vec![(taken.reservation, ids(&["a1", "none"])?)];
    let returned = vec![Returned { id: MessageId::new("new")?, ready_at: at(10) }];
    owner.settle(&Settlement { returned, remaining, ..Settlement::default() }).await?;
    let again = owner.reserve_by_key(up_to(9), &[of(Some("a"), 9)?], None).await?;
    assert_eq!((ids_of(&again.messages), again.sorted_left), (vec!["a2", "new"], vec![0]));
    assert_eq!(owner.sorted_keys(None).await?, SortedKeys { keys: vec![], more: false });
    Ok(())
}

pub(super) async fn a_reservation_by_key_is_bounded_by_count_and_bytes(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let message =
        |n: usize| keyed(&orders, &format!("m{n}"), Some(if n.is_multiple_of(2) { "even" } else { "odds" }), 0);
    orders.push_all(&(0..8).map(message).collect::<Result<Vec<_>>>()?).await?;
    let mut owner = orders.owner().await?;
    assert_eq!(sort_due(&mut owner).await?, 8);
    world.pass(5);
    orders.push_all(&(0..4).map(|n| orders.message(&format!("n{n}"), 0)).collect::<Result<Vec<_>>>()?).await?;
    // The count is of those that are not sorted.
    let taken = owner.reserve_by_key(up_to(1), &[of(Some("odds"), 2)?], None).await?;
    assert_eq!((ids_of(&taken.messages), &*taken.sorted_left), (vec!["m1", "m3", "n0"], &[2][..]));
    assert_eq!(taken.head, Some(world.now()));
    let each = taken.messages[0].bytes;
    let mut within = async |bytes, keys: &[KeyCount]| {
        let limit = ReserveLimit { messages: 9, bytes };
        let taken = owner.reserve_by_key(limit, keys, None).await?;
        let ids: Vec<String> = taken.messages.iter().map(|message| message.id.to_string()).collect();
        Result::Ok((ids, taken.sorted_left, taken.head))
    };
    let (now, both) = (Some(world.now()), [of(Some("odds"), 1)?, of(Some("even"), 2)?]);
    assert_eq!(within(1, &both).await?, (vec!["m5".to_owned()], vec![1, 4], now));
    assert_eq!(within(2 * each, &both).await?, (vec!["m7".to_owned(), "m0".to_owned()], vec![0, 3], now));
    let two = ["m2".to_owned(), "m4".to_owned()];
    assert_eq!(within(2 * each, &both).await?, (two.to_vec(), vec![0, 1], now));
    let rest = ["m6", "n1", "n2", "n3"].map(str::to_owned);
    assert_eq!(within(usize::MAX, &both).await?, (rest.to_vec(), vec![0, 0], None));
    Ok(())
}

pub(super) async fn sorted_messages_of_a_key_are_ordered_by_ready_time_and_id(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    // Keys of which one begins with another, or has it behind a space; ids that look like keys.
    let keys = [None, Some("a"), Some("a "), Some("a b"), Some("ab"), Some("é"), Some("\u{10ffff}")];
    let mut messages = Vec::new();
    for (n, key) in keys.iter().enumerate() {
        for (id, delay_ms) in [("z", 1), ("b", 2), ("a", 2), ("~", 255), ("!", 256)] {
            messages.push(keyed(&orders, &format!("{id}{n}"), *key, delay_ms)?);
        }
    }
    orders.push_all(&messages).await?;
    world.pass(300);
    let mut owner = orders.owner().await?;
    assert_eq!(sort_due(&mut owner).await?, messages.len());
    let counts = keys.iter().map(|key| of(*key, 5)).collect::<Result<Vec<_>>>()?;
    assert_eq!(self::keys(&mut owner).await?, counts);
    for (n, key) in keys.iter().enumerate() {
        let expected = ["z", "a", "b", "~", "!"].map(|id| format!("{id}{n}"));
        let first = owner.reserve_by_key(up_to(9), &[of(*key, 2)?], None).await?;
        assert_eq!((ids_of(&first.messages), &*first.sorted_left), (vec![&*expected[0], &*expected[1]], &[3][..]));
        let rest = owner.reserve_by_key(up_to(9), &[of(*key, 9)?], None).await?;
        assert_eq!(
            (ids_of(&rest.messages), &*rest.sorted_left),
            (vec![&*expected[2], &*expected[3], &*expected[4]], &[0][..])
        );
    }
    assert_eq!(self::keys(&mut owner).await?, []);
    Ok(())
}

pub(super) async fn keys_of_sorted_messages_are_read_in_pages(world: World) -> Result<()> {
    const KEYS: usize = 1_203;
    let orders = world.topic("orders").await?;
    let mut owner = orders.owner().await?;
    assert_eq!(owner.sorted_keys(None).await?, SortedKeys { keys: vec![], more: false });
    let key = |n: usize| format!("k{n:05}");
    let mut messages = Vec::new();
    for n in 0..KEYS {
        messages.push(keyed(&orders, &format!("m{n}"), Some(&key(n)), 0)?);
        if n % 100 == 0 {
            messages.push(keyed(&orders, &format!("n{n}"), Some(&key(n)), 0)?);
        }
    }
    for page in messages.chunks(CALL_IDS_MAX) {
        orders.push_all(page).await?;
    }
    assert_eq!(sort_due(&mut owner).await?, messages.len());
    let (mut found, mut pages, mut after) = (Vec::new(), 0, None);
    loop {
        let page = owner.sorted_keys(after.as_ref()).await?;
        assert!(page.keys.len() <= 500, "{}", page.keys.len());
        found.extend(page.keys);
        pages += 1;
        after = found.last().cloned();
        if !page.more {
            break;
        }
    }
    let expected = (0..KEYS).map(|n| of(Some(&key(n)), if n % 100 == 0 { 2 } else { 1 }));
    assert_eq!(found, expected.collect::<Result<Vec<_>>>()?);
    assert!(pages >= 3, "{pages}");
    // A page begins behind a key, whether or not that has messages.
    let behind = owner.sorted_keys(Some(&of(Some("k01199~"), 0)?)).await?;
    assert_eq!((behind.keys.len(), &behind.keys[0], behind.more), (3, &of(Some(&key(1_200)), 2)?, false));
    assert_eq!(owner.sorted_keys(Some(&of(Some("l"), 0)?)).await?.keys, []);
    Ok(())
}

pub(super) async fn next_owner_finds_what_was_sorted(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let mut fresh = orders.owner().await?;
    assert!(!fresh.recover().await?.has_sorted);
    let mut lost = few(&world, &orders).await?;
    let taken = lost.reserve_by_key(up_to(9), &[of(Some("a"), 1)?], None).await?;
    assert_eq!(ids_of(&taken.messages), ["a1"]);
    world.pass(5);
    let mut owner = orders.owner().await?;
    assert_eq!(kind_of(lost.reserve_by_key(up_to(9), &[], None).await), Some(Kind::Stale));
    let page = owner.recover().await?;
    assert_eq!((page.messages, page.left_behind, page.has_sorted, page.orphans), (1, true, true, 0));
    assert_eq!(keys(&mut owner).await?, [of(None, 1)?, of(Some("a"), 1)?, of(Some("b"), 1)?]);
    let asked = [of(Some("a"), 9)?, of(Some("b"), 9)?, of(None, 9)?];
    let taken = owner.reserve_by_key(up_to(9), &asked, None).await?;
    assert_eq!(ids_of(&taken.messages), ["a2", "b1", "none", "a1"]);
    let attempts: Vec<_> = taken.messages.iter().map(|message| message.attempts).collect();
    assert_eq!(attempts, [0, 0, 0, 1]);
    let mut next = orders.owner().await?;
    let page = next.recover().await?;
    assert_eq!((page.messages, page.has_sorted), (4, false));
    assert_eq!(ids_of(&next.reserve(up_to(9)).await?.messages), ["a1", "a2", "b1", "none"]);
    Ok(())
}

pub(super) async fn renewal_and_wakes_pass_over_sorted_messages(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let owner = few(&world, &orders).await?;
    let head = async |owner: &dyn Owner| match orders.renew(&member("owner"), owner, LEASE).await? {
        Renewal::Kept(state) => Ok(state.head),
        lost => Err(Error::stale(format!("{lost:?}"))),
    };
    assert_eq!(head(&*owner).await?, None);
    let notify = Arc::new(Notify::new());
    let channel = Channel::head(&orders.group_partition());
    let _wake = orders.store.backend.wakes().subscribe(channel, notify.clone());
    // A wake may be lost while the store still subscribes, so another one comes later; without a wake none does.
    let mut delay_ms = 1_000;
    eventually("a head behind sorted messages wakes", async || {
        delay_ms -= 1;
        orders.push(&format!("m{delay_ms}"), delay_ms).await?;
        let woken = tokio::time::timeout(Duration::from_millis(250), notify.notified()).await;
        Ok(woken.is_ok().then_some(()))
    })
    .await?;
    assert_eq!(head(&*owner).await?, Some(world.now().plus(Duration::from_millis(delay_ms))));
    Ok(())
}

pub(super) async fn sorting_again_changes_nothing(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let (a, b) = (keyed(&orders, "a", Some("k"), 0)?, keyed(&orders, "b", Some("k"), 0)?);
    orders.push_all(&[a.clone(), b]).await?;
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(9)).await?;
    let settlement = sorts(&taken)?;
    owner.settle(&settlement).await?;
    let stats = orders.stats().await?;
    assert_eq!((stats.ready, stats.in_flight), (2, 0));
    owner.settle(&settlement).await?;
    assert_eq!((orders.stats().await?, keys(&mut owner).await?), (stats, vec![of(Some("k"), 2)?]));
    assert_eq!(exactly_sorted(&mut owner).await?, [ids_sorted(Some("k"), &["a", "b"])?]);
    // One that is gone does not come back, and one that waits stays where it is.
    orders.cancel("a").await?;
    orders.reschedule("b", 50).await?;
    owner.settle(&settlement).await?;
    assert_eq!((orders.peek("a").await?, orders.stats().await?.scheduled), (None, 1));
    orders.push_all(&[a]).await?;
    owner.settle(&settlement).await?;
    assert_eq!((exactly_sorted(&mut owner).await?, audited(&orders, false).await?.1), (vec![], vec![]));
    assert_eq!(ids_of(&owner.reserve(up_to(9)).await?.messages), ["a"]);
    Ok(())
}

pub(super) async fn many_sorted_messages_are_reserved_exactly_once(world: World) -> Result<()> {
    const MANY: usize = 2 * CALL_IDS_MAX + 7;
    let orders = world.topic("orders").await?;
    let message = |n: usize| keyed(&orders, &format!("m{n:06}"), Some(&format!("k{}", n % 3)), 0);
    for page in (0..MANY).map(message).collect::<Result<Vec<_>>>()?.chunks(CALL_IDS_MAX) {
        orders.push_all(page).await?;
    }
    let mut owner = orders.owner().await?;
    assert_eq!(sort_due(&mut owner).await?, MANY);
    assert_eq!(audited(&orders, true).await?.1, []);
    let asked = [of(Some("k0"), 200)?, of(Some("k1"), 200)?, of(Some("k2"), 1)?];
    let mut seen = BTreeSet::new();
    let mut left = vec![];
    for _ in 0..MANY {
        let taken = owner.reserve_by_key(up_to(RECOVER_IDS_MAX), &asked, None).await?;
        for message in &taken.messages {
            assert!(seen.insert(message.id.clone()), "{} came twice", message.id);
        }
        owner.settle(&acks(&ids_of(&taken.messages))?).await?;
        left = taken.sorted_left;
        if left[..2] == [0, 0] {
            break;
        }
    }
    assert_eq!((left.iter().sum::<u64>() as usize + seen.len(), orders.stats().await?.in_flight), (MANY, 0));
    let rest = owner.reserve_by_key(up_to(1), &[of(Some("k2"), CALL_IDS_MAX as u64)?], None).await?;
    assert_eq!((rest.messages.len() + seen.len(), rest.sorted_left), (MANY, vec![0]));
    Ok(())
}
