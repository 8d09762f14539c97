//! Reservations of a fair group: what they take of the due messages, and what they sort.

use dwell::model::error::Result;
use dwell::model::limits::DUE_LOOKED_AT_MAX;
use dwell::store::{KeyCount, ReserveLimit, Settlement};

use super::audited;
use super::sorted::{exactly_sorted, ids_sorted, keyed, of};
use crate::support::{TestTopic, World, acks, ids_of, up_to};

/// Pushes messages whose key is the first letter of their id, or none for a dash, all due now.
async fn push(orders: &TestTopic, ids: &[String]) -> Result<()> {
    let message = |id: &String| keyed(orders, id, Some(&id[..1]).filter(|key| *key != "-"), 0);
    for page in ids.chunks(500) {
        orders.push_all(&page.iter().map(message).collect::<Result<Vec<_>>>()?).await?;
    }
    Ok(())
}

fn numbered(key: &str, numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|n| format!("{key}{n:04}")).collect()
}

fn texts(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

pub(super) async fn what_is_beyond_the_share_of_a_key_is_sorted(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let mut owner = orders.owner().await?;
    push(&orders, &texts(&["a1", "a2", "a3", "b1", "-1", "-2", "-3", "c1"])).await?;
    let taken = owner.reserve_by_key(up_to(9), &[], Some(2)).await?;
    assert_eq!(ids_of(&taken.messages), ["-1", "-2", "a1", "a2", "b1", "c1"]);
    assert_eq!((taken.sorted.clone(), taken.head), (vec![of(None, 1)?, of(Some("a"), 1)?], None));
    assert_eq!((taken.unsettled, taken.dropped, taken.sorted_left.len()), (6, 0, 0));
    // What comes later waits behind what is sorted, and not if that is taken in the same call.
    world.pass(1);
    push(&orders, &texts(&["-4", "a4", "b2"])).await?;
    let asked = [of(Some("a"), 5)?];
    let taken = owner.reserve_by_key(up_to(9), &asked, Some(2)).await?;
    assert_eq!(ids_of(&taken.messages), ["a3", "a4", "b2"]);
    assert_eq!((taken.sorted, taken.sorted_left), (vec![of(None, 2)?], vec![0]));
    assert_eq!(orders.stats().await?.ready, 2);
    assert_eq!(exactly_sorted(&mut owner).await?, [ids_sorted(None, &["-3", "-4"])?]);
    assert_eq!(audited(&orders, true).await?.1, []);
    Ok(())
}

pub(super) async fn what_the_memory_has_no_room_for_is_sorted(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let mut owner = orders.owner().await?;
    push(&orders, &texts(&["a1", "b1", "c1"])).await?;
    let taken = owner.reserve_by_key(up_to(1), &[], Some(2)).await?;
    assert_eq!((ids_of(&taken.messages), taken.sorted), (vec!["a1"], vec![of(Some("b"), 1)?, of(Some("c"), 1)?]));
    push(&orders, &texts(&["a2", "b2"])).await?;
    let taken = owner.reserve_by_key(up_to(0), &[of(Some("b"), 1)?], Some(2)).await?;
    assert_eq!(ids_of(&taken.messages), ["b1"]);
    assert_eq!((taken.sorted, taken.sorted_left), (vec![of(Some("a"), 1)?], vec![1]));
    // A group that is fair no more takes all, and sorts nothing.
    push(&orders, &texts(&["a3", "b3"])).await?;
    let taken = owner.reserve_by_key(up_to(9), &[of(Some("b"), 1)?], None).await?;
    assert_eq!((ids_of(&taken.messages), taken.sorted, taken.sorted_left), (vec!["b2", "a3", "b3"], vec![], vec![0]));
    assert_eq!(exactly_sorted(&mut owner).await?, [ids_sorted(Some("a"), &["a2"])?, ids_sorted(Some("c"), &["c1"])?]);
    Ok(())
}

pub(super) async fn what_became_due_last_is_looked_at_in_each_call(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let mut owner = orders.owner().await?;
    let backlog = 4 * DUE_LOOKED_AT_MAX;
    push(&orders, &numbered("n", 0..backlog)).await?;
    let began = world.now();
    world.pass(10);
    push(&orders, &texts(&["q1"])).await?;
    let first = owner.reserve_by_key(up_to(9), &[], Some(2)).await?;
    assert_eq!((ids_of(&first.messages), first.head), (vec!["n0000", "n0001", "q1"], Some(began)));
    // The oldest 500 but for two, and the newest 500 but for one.
    assert_eq!(first.sorted, [of(Some("n"), 2 * DUE_LOOKED_AT_MAX as u64 - 3)?]);
    push(&orders, &texts(&["n9998", "r1"])).await?;
    world.pass(1);
    push(&orders, &texts(&["s1", "n9999"])).await?;
    let second = owner.reserve_by_key(up_to(9), &[], Some(2)).await?;
    assert_eq!((ids_of(&second.messages), second.head), (vec!["r1", "s1"], Some(began)));
    assert_eq!(second.sorted, [of(Some("n"), 4 * DUE_LOOKED_AT_MAX as u64 - 5)?]);
    // What became due later does not come before the backlog of its key.
    let most = DUE_LOOKED_AT_MAX as u64;
    let third = owner.reserve_by_key(up_to(9), &[of(Some("n"), most)?], Some(2)).await?;
    assert_eq!(third.messages.last().map(|last| last.id.to_string()), Some(format!("n{:04}", most + 1)));
    let mut found = [first, second, third].into_iter().flat_map(|taken| taken.messages).collect::<Vec<_>>();
    assert!(found.iter().all(|message| !message.id.as_str().starts_with("n9")));
    for _ in 0..20 {
        let taken = owner.reserve_by_key(up_to(9), &[of(Some("n"), most)?], Some(2)).await?;
        found.extend(taken.messages);
    }
    let ids = ids_of(&found);
    let of_n: Vec<&str> = ids.iter().copied().filter(|id| id.starts_with('n')).collect();
    assert!(of_n.is_sorted() && of_n.len() == backlog + 2, "{} of n", of_n.len());
    assert_eq!(ids.len(), backlog + 5);
    Ok(())
}

pub(super) async fn a_look_is_bounded_by_bytes(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let mut owner = orders.owner().await?;
    push(&orders, &numbered("n", 0..9)).await?;
    let due_at = world.now();
    let each = owner.reserve_by_key(up_to(1), &[], None).await?.messages[0].bytes;
    world.pass(1);
    let limit = ReserveLimit { messages: 9, bytes: 3 * each };
    let mut look = async || owner.reserve_by_key(limit, &[], Some(1)).await;
    let first = look().await?;
    assert_eq!((ids_of(&first.messages), first.head), (vec!["n0001"], Some(due_at)));
    assert_eq!(first.sorted, [of(Some("n"), 2)?]);
    let second = look().await?;
    assert_eq!((second.messages.len(), second.sorted), (0, vec![of(Some("n"), 5)?]));
    // A backlog takes no more than half of the bytes, so that what has just become due is looked at too.
    push(&orders, &numbered("n", 1_000..1_600)).await?;
    world.pass(1);
    push(&orders, &texts(&["p1", "q1"])).await?;
    let third = look().await?;
    assert_eq!((ids_of(&third.messages), third.sorted), (vec!["p1", "q1"], vec![of(Some("n"), 6)?]));
    Ok(())
}

pub(super) async fn what_was_sorted_in_a_call_is_kept(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let mut lost = orders.owner().await?;
    push(&orders, &texts(&["a1", "a2", "a3", "b1"])).await?;
    lost.reserve_by_key(up_to(9), &[], Some(1)).await?;
    let mut owner = orders.owner().await?;
    let recovered = owner.recover().await?;
    assert_eq!((recovered.messages, recovered.has_sorted), (2, true));
    assert_eq!(owner.sorted_keys(None).await?.keys, [of(Some("a"), 2)?]);
    // What recovery made due again waits behind what is sorted.
    let taken = owner.reserve_by_key(up_to(9), &[], Some(1)).await?;
    assert_eq!((ids_of(&taken.messages), taken.sorted), (vec!["b1"], vec![of(Some("a"), 3)?]));
    let all = owner.reserve_by_key(up_to(9), &[of(Some("a"), 9)?], Some(1)).await?;
    assert_eq!((all.messages.len(), all.sorted_left), (3, vec![0]));
    owner.settle(&acks(&["a1", "a2", "a3", "b1"])?).await?;
    let remaining = [taken.reservation, all.reservation].map(|reservation| (reservation, vec![])).to_vec();
    owner.settle(&Settlement { remaining, ..Settlement::default() }).await?;
    let nothing: Vec<KeyCount> = owner.sorted_keys(None).await?.keys;
    assert_eq!((nothing, audited(&orders, false).await?.1), (vec![], vec![]));
    Ok(())
}
