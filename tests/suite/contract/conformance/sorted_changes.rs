use std::num::NonZeroU16;
use std::time::Duration;

use dwell::model::error::{Error, Result};
use dwell::model::limits::CALL_IDS_MAX;
use dwell::model::message::{Conflict, GroupName, Message, MessageId, TopicName};
use dwell::model::partition::Partition;
use dwell::model::time::Timestamp;
use dwell::model::topic::{Descriptor, Settings};
use dwell::store::{
    Charge, Expected, Fate, Forecast, LateFate, LateSettlement, MovedPage, PartitionStats, Purge, Pushed, Reschedule,
    Rescheduled, Spans, WaitingRange, Window,
};

use super::audited;
use super::sorted::{counts_at_least, exactly_sorted, few, ids_sorted, keyed, keys, of, sort_due, sorts};
use crate::support::{LEASE, TestTopic, World, acks, ids_of, member, new_call, up_to};

const A: Option<&str> = Some("a");

pub(super) async fn sorted_message_is_cancelled(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let mut owner = few(&world, &orders).await?;
    assert_eq!(orders.cancel("a1").await?, [Fate::Done]);
    assert_eq!(orders.cancel("none").await?, [Fate::Done]);
    assert_eq!((orders.peek("a1").await?, orders.stats().await?.ready), (None, 2));
    counts_at_least(&mut owner, &[of(A, 1)?, of(Some("b"), 1)?]).await?;
    let taken = owner.reserve_by_key(up_to(9), &[of(A, 1)?, of(None, 1)?], None).await?;
    assert_eq!((ids_of(&taken.messages), &*taken.sorted_left, taken.dropped), (vec!["a2"], &[0, 0][..], 0));
    assert_eq!(orders.cancel("a2").await?, [Fate::InFlight]);
    assert_eq!(orders.cancel("b1").await?, [Fate::Done]);
    assert_eq!(exactly_sorted(&mut owner).await?, []);
    assert_eq!(orders.push_all(&[keyed(&orders, "a1", A, 0)?]).await?, [Pushed::Stored]);
    assert_eq!(ids_of(&owner.reserve(up_to(9)).await?.messages), ["a1"]);
    assert!(!orders.owner().await?.recover().await?.has_sorted);
    Ok(())
}

pub(super) async fn rescheduled_message_is_sorted_no_more(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let mut owner = few(&world, &orders).await?;
    let peeked = async |id| Result::Ok(orders.peek(id).await?.map(|peeked| (peeked.state.name(), peeked.next_at)));
    assert_eq!(peeked("a1").await?.map(|(state, _)| state), Some("ready"));
    // Later, earlier than it was, and to the time that it has.
    let early = Timestamp::from_ms(world.now().as_ms() - 100);
    let expected = Expected { due_at: orders.peek("b1").await?.map(|b| b.message.due_at), attempts: Some(0) };
    let at_once = orders.reschedule_if("b1", early, expected).await?;
    assert!(matches!(at_once, Rescheduled::Done(_)), "{at_once:?}");
    let same = orders.peek("a2").await?.map_or(early, |a| a.message.due_at);
    assert!(matches!(orders.reschedule_if("a2", same, Expected::default()).await?, Rescheduled::Done(_)));
    assert_eq!(orders.reschedule("a1", 50).await?, [Fate::Done]);
    assert_eq!(peeked("a1").await?, Some(("scheduled", Some(world.now().plus(Duration::from_millis(50))))));
    counts_at_least(&mut owner, &[of(None, 1)?]).await?;
    let taken = owner.reserve_by_key(up_to(9), &[of(A, 9)?, of(Some("b"), 9)?], None).await?;
    assert_eq!((ids_of(&taken.messages), &*taken.sorted_left), (vec!["b1", "a2"], &[0, 0][..]));
    assert_eq!(taken.head, Some(world.now().plus(Duration::from_millis(50))));
    assert_eq!(exactly_sorted(&mut owner).await?, [ids_sorted(None, &["none"])?]);
    Ok(())
}

pub(super) async fn repeated_reschedule_of_a_sorted_message_is_done(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let _owner = few(&world, &orders).await?;
    let due_at = orders.peek("a1").await?.map_or(world.now(), |a| a.message.due_at);
    let expected = Expected { due_at: Some(due_at.plus(Duration::from_secs(1))), attempts: Some(7) };
    // It is due then, whatever was expected.
    let reschedule = Reschedule { id: MessageId::new("a1")?, due_at, expected };
    let call = new_call(&*orders.store.backend, 1);
    let done = orders.store.messages.reschedule(&orders.descriptor, Partition(0), &call, &reschedule).await?;
    assert!(matches!(done, Rescheduled::Done(_)), "{done:?}");
    let changed = orders.reschedule_if("a2", due_at, expected).await?;
    assert!(matches!(changed, Rescheduled::Changed(_)), "{changed:?}");
    Ok(())
}

pub(super) async fn sorted_message_is_settled_late(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let mut lost = few(&world, &orders).await?;
    let taken = lost.reserve_by_key(up_to(9), &[of(A, 2)?], None).await?;
    let mut owner = orders.owner().await?;
    assert_eq!((orders.recover(&mut owner).await?, sort_due(&mut owner).await?), (2, 2));
    counts_at_least(&mut owner, &[of(None, 1)?, of(A, 2)?, of(Some("b"), 1)?]).await?;
    let late = |n: usize, next_at| {
        let (id, version) = (taken.messages[n].id.clone(), taken.messages[n].version);
        LateSettlement { pauses_key: false, id, version, attempt: 1, redelivered: false, next_at, failure: None }
    };
    let settlements = [late(0, None), late(1, Some(world.now().plus(Duration::from_millis(50))))];
    let (call, group) = (new_call(&*orders.store.backend, 1), GroupName::standard());
    let messages = &orders.store.messages;
    let fates = messages.settle_late(&orders.descriptor, Partition(0), &group, &call, &settlements).await?;
    assert_eq!(fates, [LateFate::Done, LateFate::Done]);
    assert_eq!(orders.peek("a1").await?, None);
    counts_at_least(&mut owner, &[of(None, 1)?, of(Some("b"), 1)?]).await?;
    let left = owner.reserve_by_key(up_to(9), &[of(A, 9)?], None).await?;
    assert_eq!((left.messages.len(), &*left.sorted_left, left.unsettled), (0, &[0][..], 0));
    let rest = [ids_sorted(None, &["none"])?, ids_sorted(Some("b"), &["b1"])?];
    assert_eq!(exactly_sorted(&mut owner).await?, rest);
    world.pass(50);
    let again = owner.reserve(up_to(9)).await?;
    assert_eq!((ids_of(&again.messages), again.messages[0].attempts), (vec!["a2"], 1));
    Ok(())
}

pub(super) async fn sorted_message_behind_many_that_ended_is_found(world: World) -> Result<()> {
    const ENDED: usize = 2_500;
    let orders = world.topic("orders").await?;
    let message = |n: usize| keyed(&orders, &format!("m{n}"), A, 0);
    for page in (0..ENDED).map(message).collect::<Result<Vec<_>>>()?.chunks(CALL_IDS_MAX) {
        orders.push_all(page).await?;
    }
    orders.push_all(&[keyed(&orders, "last", A, 1)?]).await?;
    world.pass(1);
    let mut owner = orders.owner().await?;
    let mut late = Vec::new();
    loop {
        let taken = owner.reserve(up_to(CALL_IDS_MAX)).await?;
        if taken.messages.is_empty() {
            break;
        }
        let charges: Vec<_> = taken.messages.iter().map(|taken| Charge { id: taken.id.clone(), attempts: 1 }).collect();
        owner.start(&charges).await?;
        owner.settle(&sorts(&taken)?).await?;
        late.extend(taken.messages.into_iter().filter(|taken| taken.id.as_str() != "last").map(|taken| {
            let (id, version) = (taken.id, taken.version);
            LateSettlement {
                pauses_key: false,
                id,
                version,
                attempt: 1,
                redelivered: false,
                next_at: None,
                failure: None,
            }
        }));
    }
    assert_eq!(late.len(), ENDED);
    for page in late.chunks(CALL_IDS_MAX) {
        let (call, group) = (new_call(&*orders.store.backend, page.len()), GroupName::standard());
        let messages = &orders.store.messages;
        let fates = messages.settle_late(&orders.descriptor, Partition(0), &group, &call, page).await?;
        assert_eq!(fates, vec![LateFate::Done; page.len()]);
    }
    counts_at_least(&mut owner, &[of(A, 1)?]).await?;
    assert_eq!(exactly_sorted(&mut owner).await?, [ids_sorted(A, &["last"])?]);
    Ok(())
}

pub(super) async fn push_over_a_sorted_message_takes_it_back(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let mut owner = few(&world, &orders).await?;
    let same = keyed(&orders, "a2", A, 0)?;
    let unmoved = Message { due_at: orders.peek("a2").await?.map_or(same.due_at, |a| a.message.due_at), ..same };
    assert_eq!(orders.push_over(Conflict::Debounce, &[unmoved]).await?, [Ok(Pushed::Duplicate)]);
    assert_eq!(orders.push_over(Conflict::Reject, &[keyed(&orders, "a2", A, 9)?]).await?, [Ok(Pushed::Duplicate)]);
    assert_eq!(exactly_sorted(&mut owner).await?[1], ids_sorted(A, &["a1", "a2"])?);
    let mut other = keyed(&orders, "a1", A, 0)?;
    other.envelope.payload = "another".into();
    assert_eq!(orders.push_over(Conflict::Replace, &[other.clone()]).await?, [Ok(Pushed::Replaced)]);
    counts_at_least(&mut owner, &[of(None, 1)?, of(A, 1)?, of(Some("b"), 1)?]).await?;
    let debounced = keyed(&orders, "b1", Some("b"), 50)?;
    assert_eq!(orders.push_over(Conflict::Debounce, &[debounced]).await?, [Ok(Pushed::Debounced)]);
    counts_at_least(&mut owner, &[of(None, 1)?, of(A, 1)?]).await?;
    let taken = owner.reserve_by_key(up_to(9), &[of(A, 9)?, of(Some("b"), 9)?], None).await?;
    assert_eq!((ids_of(&taken.messages), &*taken.sorted_left), (vec!["a2", "a1"], &[0, 0][..]));
    assert_eq!(taken.messages[1].message.as_ref(), Ok(&other));
    assert_eq!(taken.head, Some(world.now().plus(Duration::from_millis(50))));
    assert_eq!(exactly_sorted(&mut owner).await?, [ids_sorted(None, &["none"])?]);
    assert_eq!(audited(&orders, false).await?.1, []);
    Ok(())
}

/// Messages due at 1 to 9 ms, those at even times with a key and sorted, and two of each more at 5 ms; with their times.
async fn mixed(world: &World, orders: &TestTopic) -> Result<Vec<(Timestamp, String)>> {
    let mut messages = Vec::new();
    for n in 1..=9_u64 {
        messages.push(keyed(orders, &format!("m{n}"), A, n)?);
    }
    for id in ["b", "x"] {
        messages.push(keyed(orders, id, None, 5)?);
        messages.push(keyed(orders, &format!("{id}-"), A, 5)?);
    }
    let is_sorted = |message: &&Message| message.due_at.as_ms().is_multiple_of(2) || message.id.as_str().ends_with('-');
    let sorted: Vec<Message> = messages.iter().filter(is_sorted).cloned().collect();
    let rest: Vec<Message> = messages.iter().filter(|message| !is_sorted(message)).cloned().collect();
    orders.push_all(&sorted).await?;
    world.pass(9);
    let mut owner = orders.owner().await?;
    assert_eq!(sort_due(&mut owner).await?, sorted.len());
    assert_eq!(orders.push_all(&rest).await?.len(), rest.len());
    let mut due: Vec<_> = messages.into_iter().map(|message| (message.due_at, message.id.to_string())).collect();
    due.sort();
    Ok(due)
}

pub(super) async fn sorted_messages_are_listed_by_due_time(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let all = mixed(&world, &orders).await?;
    let (partition, reads) = (orders.group_partition(), &orders.store.reads);
    let narrow = Window { from: all[2].0, to: all[10].0 };
    for window in [Window::ALL, narrow] {
        let expected: Vec<_> = all.iter().filter(|(at, _)| window.has(*at)).cloned().collect();
        for limit in 1..=6 {
            let (mut found, mut outlined, mut after) = (Vec::new(), Vec::new(), None);
            loop {
                let page = reads.waiting(&partition, window, after.as_ref(), limit).await?;
                let range = WaitingRange { partition: partition.clone(), window, after: after.clone(), limit };
                let outline = reads.outlines(&[range]).await?.remove(0);
                assert_eq!((page.messages.len() <= limit, &outline.next), (true, &page.next));
                let entry = |at: Option<Timestamp>, id: &MessageId| (at.unwrap_or_default(), id.to_string());
                found.extend(page.messages.iter().map(|listed| entry(listed.next_at, &listed.id)));
                outlined.extend(outline.messages.iter().map(|outline| entry(Some(outline.next_at), &outline.id)));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!((&found, &outlined), (&expected, &expected), "pages of {limit} of {window:?}");
        }
    }
    assert_eq!(reads.in_flight(&partition, None, 9).await?.messages.len(), 0);
    Ok(())
}

pub(super) async fn pages_of_sorted_messages_are_stable(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let all = mixed(&world, &orders).await?;
    let (partition, reads) = (orders.group_partition(), &orders.store.reads);
    for at in 0..all.len() - 1 {
        // The last one of a page is sorted, is taken back, or goes.
        let page = reads.waiting(&partition, Window::ALL, None, at + 1).await?;
        let after = page.next.ok_or_else(|| Error::not_found("a next page"))?;
        assert_eq!((after.next_at, after.id.to_string()), all[at]);
        let rest = async || -> Result<Vec<(Timestamp, String)>> {
            let rest = reads.waiting(&partition, Window::ALL, Some(&after), 99).await?.messages;
            Ok(rest.into_iter().map(|listed| (listed.next_at.unwrap_or_default(), listed.id.to_string())).collect())
        };
        assert_eq!(rest().await?, all[at + 1..]);
    }
    let page = reads.waiting(&partition, Window::ALL, None, 4).await?;
    assert_eq!(orders.cancel(&all[3].1).await?, [Fate::Done]);
    let rest = reads.waiting(&partition, Window::ALL, page.next.as_ref(), 99).await?;
    assert_eq!(rest.messages.iter().map(|listed| listed.id.to_string()).collect::<Vec<_>>(), ids_after(&all, 4));
    Ok(())
}

fn ids_after(all: &[(Timestamp, String)], at: usize) -> Vec<String> {
    all[at..].iter().map(|(_, id)| id.clone()).collect()
}

pub(super) async fn windows_hold_sorted_messages(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let all = mixed(&world, &orders).await?;
    let window = Window { from: all[1].0, to: all[11].0 };
    let expected: Vec<_> = all.iter().filter(|(at, _)| window.has(*at)).cloned().collect();
    for limit in 1..=6 {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = orders.store.reads.window(&orders.group_partition(), window, after.as_ref(), limit).await?;
            assert_eq!(page.count, expected.len() as u64);
            let is_full = page.messages.len() == limit;
            after = page.messages.last().cloned();
            found.extend(page.messages.into_iter().map(|(at, id)| (at, id.to_string())));
            if !is_full {
                break;
            }
        }
        assert_eq!(found, expected, "pages of {limit}");
    }
    Ok(())
}

pub(super) async fn sorted_messages_are_counted_as_ready(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let began = world.now();
    let mut owner = few(&world, &orders).await?;
    orders.push_all(&[orders.message("due", 0)?, orders.message("later", 10)?]).await?;
    let stats = orders.stats().await?;
    assert_eq!((stats.ready, stats.scheduled, stats.in_flight), (5, 1, 0));
    // The oldest of all.
    assert_eq!(stats.head, Some(began.plus(Duration::from_millis(1))));
    assert_eq!(stats.oldest_ready_age, Some(Duration::from_millis(9)));
    let (partition, spans) = ([orders.group_partition()], [5, 10].map(Duration::from_millis));
    let depth = orders.store.reads.depth(&partition, &spans).await?.remove(0);
    assert_eq!((depth.stats, depth.due), (stats, vec![0, 1]));
    let spans = Spans { from: world.now(), step: Duration::from_millis(10), count: 2 };
    let forecast = orders.store.reads.forecast(&partition, spans).await?.remove(0);
    assert_eq!(forecast, Forecast { ready: 5, spans: vec![1, 0], later: 0, backoff: 0 });
    world.pass(3);
    let taken = owner.reserve_by_key(up_to(9), &[of(A, 9)?, of(Some("b"), 9)?], None).await?;
    assert_eq!(ids_of(&taken.messages), ["a1", "a2", "b1", "due"]);
    let stats = orders.stats().await?;
    assert_eq!((stats.ready, stats.scheduled, stats.in_flight), (1, 1, 4));
    assert_eq!(stats.oldest_ready_age, Some(Duration::from_millis(10)));
    owner.reserve_by_key(up_to(9), &[of(None, 9)?], None).await?;
    let stats = orders.stats().await?;
    assert_eq!((stats.ready, stats.oldest_ready_age), (0, None));
    assert_eq!(stats.head, Some(world.now().plus(Duration::from_millis(7))));
    Ok(())
}

/// A topic of more partitions.
async fn wider(world: &World, groups: &[&str]) -> Result<Descriptor> {
    let partitions = NonZeroU16::new(4).unwrap_or(NonZeroU16::MIN);
    let mut wanted = Descriptor::new(TopicName::new("wider")?, Settings { partitions, ..Settings::default() });
    wanted.groups = groups.iter().map(GroupName::new).collect::<Result<_>>()?;
    world.store.topics.create(&wanted).await
}

pub(super) async fn sorted_messages_are_moved_with_their_ready_time(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let began = world.now();
    let mut owner = few(&world, &orders).await?;
    orders.push("later", 50).await?;
    let to = wider(&world, &["default"]).await?;
    let mut moved = MovedPage::default();
    loop {
        let page = orders.store.maintenance.move_page(&orders.descriptor, &orders.group_partition(), &to).await?;
        moved.waiting += page.waiting;
        if !page.more {
            break;
        }
        orders.store.maintenance.moved(&orders.group_partition(), &page).await?;
    }
    assert_eq!(moved.waiting, 5);
    assert_eq!(orders.stats().await?, PartitionStats { owner: Some(member("owner")), ..PartitionStats::default() });
    let nothing = owner.reserve_by_key(up_to(9), &[of(A, 9)?], None).await?;
    assert_eq!((nothing.messages.len(), nothing.sorted_left, nothing.dropped), (0, vec![0], 0));
    assert_eq!(exactly_sorted(&mut owner).await?, []);
    let mut found = Vec::new();
    for partition in to.partitions() {
        let partition = to.group_partition(partition, &GroupName::standard());
        let mut taker = world.existing(to.clone()).acquire(&partition, &member("taker"), LEASE).await?;
        assert!(!taker.recover().await?.has_sorted);
        found.extend(taker.reserve(up_to(9)).await?.messages.into_iter().map(|m| (m.ready_at, m.id.to_string())));
    }
    found.sort();
    let at = |ms: u64| began.plus(Duration::from_millis(ms));
    let expected = [(at(1), "a1"), (at(1), "b1"), (at(2), "a2"), (at(3), "none")];
    assert_eq!(found, expected.map(|(at, id)| (at, id.to_owned())));
    Ok(())
}

pub(super) async fn copied_group_has_sorted_messages_unsorted(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let mut owner = few(&world, &orders).await?;
    let audit = GroupName::new("audit")?;
    let mut wanted = orders.descriptor.clone();
    wanted.groups.push(audit.clone());
    wanted.subscription_mut(&audit).copy_of = Some(GroupName::standard());
    let copy = world.existing(world.store.topics.update(&wanted).await?);
    let (mut copied, mut from) = (0, None);
    loop {
        let page = copy.store.maintenance.copy(&copy.descriptor, Partition(0), &audit, from).await?;
        copied += page.messages;
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    assert_eq!(copied, 4);
    let mut auditor = copy.acquire(&copy.partition_of("audit")?, &member("auditor"), LEASE).await?;
    assert!(!auditor.recover().await?.has_sorted);
    let taken = auditor.reserve(up_to(9)).await?;
    assert_eq!(ids_of(&taken.messages), ["a1", "b1", "a2", "none"]);
    // The source has what it had; what is sorted in one group is not in the other.
    assert_eq!(keys(&mut owner).await?, [of(None, 1)?, of(A, 2)?, of(Some("b"), 1)?]);
    auditor.settle(&sorts(&taken)?).await?;
    assert_eq!(owner.reserve_by_key(up_to(9), &[of(A, 1)?], None).await?.sorted_left, [1]);
    assert_eq!(auditor.reserve_by_key(up_to(9), &[of(A, 1)?], None).await?.sorted_left, [1]);
    assert_eq!(copy.cancel("b1").await?, [Fate::Done, Fate::Done]);
    let rest = [ids_sorted(None, &["none"])?, ids_sorted(A, &["a2"])?];
    assert_eq!((&*exactly_sorted(&mut owner).await?, &*exactly_sorted(&mut auditor).await?), (&rest[..], &rest[..]));
    Ok(())
}

pub(super) async fn purge_leaves_nothing_sorted(world: World) -> Result<()> {
    let orders = world.topic_with_groups("orders", &["default", "audit"]).await?;
    let _owner = few(&world, &orders).await?;
    let call = new_call(&*orders.store.backend, 1);
    let purge = Purge { group: GroupName::standard(), dead_letters: false };
    let purged = orders.store.messages.purge_group(&orders.descriptor, Partition(0), &call, &purge).await?;
    assert_eq!(purged.messages, 4);
    assert_eq!(orders.stats().await?.live(), 0);
    let mut owner = orders.owner().await?;
    assert!(!owner.recover().await?.has_sorted);
    assert_eq!(keys(&mut owner).await?, []);
    let taken = owner.reserve_by_key(up_to(9), &[of(A, 9)?], None).await?;
    assert_eq!((taken.messages.len(), taken.sorted_left, taken.dropped), (0, vec![0], 0));
    assert_eq!(orders.stats_of(&orders.partition_of("audit")?).await?.ready, 4);
    Ok(())
}

pub(super) async fn recreated_topic_or_group_has_nothing_sorted(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    drop(few(&world, &orders).await?);
    world.store.topics.delete(&orders.descriptor).await?;
    world.pass(1);
    let again = world.topic_with_groups("orders", &["default", "audit"]).await?;
    let mut owner = again.owner().await?;
    assert!(!owner.recover().await?.has_sorted);
    again.push_all(&[keyed(&again, "a1", A, 0)?]).await?;
    assert_eq!((sort_due(&mut owner).await?, keys(&mut owner).await?), (1, vec![of(A, 1)?]));
    let mut auditor = again.acquire(&again.partition_of("audit")?, &member("auditor"), LEASE).await?;
    assert_eq!(sort_due(&mut auditor).await?, 1);
    let mut wanted = again.descriptor.clone();
    wanted.groups.retain(|group| group.as_str() != "audit");
    wanted = world.store.topics.update(&wanted).await?;
    wanted.groups.push(GroupName::new("audit")?);
    let again = world.existing(world.store.topics.update(&wanted).await?);
    let mut auditor = again.acquire(&again.partition_of("audit")?, &member("auditor"), LEASE).await?;
    assert!(!auditor.recover().await?.has_sorted);
    let taken = auditor.reserve_by_key(up_to(9), &[of(A, 9)?], None).await?;
    assert_eq!((taken.messages.len(), taken.sorted_left), (0, vec![0]));
    let taken = owner.reserve_by_key(up_to(9), &[of(A, 9)?], None).await?;
    owner.settle(&acks(&ids_of(&taken.messages))?).await?;
    assert_eq!((taken.messages.len(), again.stats().await?.live()), (1, 0));
    Ok(())
}
