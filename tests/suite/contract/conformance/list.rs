use std::collections::BTreeSet;
use std::time::Duration;

use dwell::model::error::Result;
use dwell::model::limits::{CALL_BYTES_MAX, PAYLOAD_BYTES_MAX};
use dwell::model::message::{GroupName, TopicName};
use dwell::model::partition::Partition;
use dwell::model::topic::GroupPartition;
use dwell::store::{Page, Retried, WaitingCursor, Window};

use crate::support::{TestTopic, World, acks, ids, retries, up_to};

async fn page(
    orders: &TestTopic,
    window: Window,
    after: Option<&WaitingCursor>,
    limit: usize,
) -> Result<Page<WaitingCursor>> {
    orders.store.reads.waiting(&orders.group_partition(), window, after, limit).await
}

fn ids_in(page: &Page<WaitingCursor>) -> Vec<&str> {
    page.messages.iter().map(|listed| listed.id.as_str()).collect()
}

pub(super) async fn waiting_messages_are_listed_in_delivery_order(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let (late, early) = (orders.message("late", 50)?, orders.message("early", 10)?);
    orders.push_all(&[late.clone(), early, orders.message("b", 20)?, orders.message("a", 20)?]).await?;
    world.pass(10);
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(1)).await?;
    let next_at = world.now().plus(Duration::from_millis(60));
    let retried = Retried { id: taken.messages[0].id.clone(), next_at, attempts: 2, failure: None };
    owner.settle(&retries(taken.reservation, retried, &[])?).await?;
    let all = page(&orders, Window::ALL, None, 10).await?;
    assert_eq!((ids_in(&all), &all.next), (vec!["a", "b", "late", "early"], &None));
    let (third, last) = (&all.messages[2], &all.messages[3]);
    assert_eq!((third.next_at, third.attempts, &third.message), (Some(late.due_at), 0, &Ok(late)));
    assert_eq!((last.next_at, last.attempts), (Some(next_at), 2));
    Ok(())
}

pub(super) async fn due_time_range_is_half_open(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let at = |ms| world.now().plus(Duration::from_millis(ms));
    for ms in [5, 10, 15, 20] {
        orders.push(&format!("m{ms}"), ms).await?;
    }
    let window = Window { from: at(10), to: at(20) };
    assert_eq!(ids_in(&page(&orders, window, None, 10).await?), ["m10", "m15"]);
    let first = page(&orders, window, None, 1).await?;
    assert_eq!(ids_in(&first), ["m10"]);
    let second = page(&orders, window, first.next.as_ref(), 1).await?;
    assert_eq!((ids_in(&second), &second.next), (vec!["m15"], &None));
    assert_eq!(ids_in(&page(&orders, Window { from: at(6), to: at(6) }, None, 10).await?), Vec::<&str>::new());
    Ok(())
}

pub(super) async fn list_pages_are_stable_under_changes(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    // All due at once: then ids decide.
    let all = (0..40).map(|n| orders.message(&format!("m{:02}", n * 2), 50)).collect::<Result<Vec<_>>>()?;
    orders.push_all(&all).await?;
    let (mut found, mut after, mut n) = (Vec::new(), None, 0);
    loop {
        let page = page(&orders, Window::ALL, after.as_ref(), 7).await?;
        found.extend(ids_in(&page).into_iter().map(str::to_owned));
        after = page.next;
        if after.is_none() {
            break;
        }
        // Before it, behind it, and the very one at which the page ended.
        orders.push(&format!("a{n}"), 50).await?;
        orders.push(&format!("z{n}"), 60).await?;
        if let Some(last) = found.last() {
            orders.cancel(last).await?;
        }
        n += 1;
    }
    let ours: Vec<_> = found.iter().filter(|id| id.starts_with('m')).cloned().collect();
    assert_eq!(ours, all.iter().map(|message| message.id.to_string()).collect::<Vec<_>>());
    assert!(!found.iter().any(|id| id.starts_with('a')), "{found:?}");
    Ok(())
}

pub(super) async fn in_flight_messages_are_listed_in_pages(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push_many("m", 300).await?;
    let mut owner = orders.owner().await?;
    for most in [100, 1, 99, 50] {
        owner.reserve(up_to(most)).await?;
    }
    owner.settle(&acks(&["m000003", "m000100"])?).await?;
    // One that is acked and pushed again waits, although a reservation still lists it.
    orders.push("m000003", 0).await?;
    let (mut found, mut after, mut count) = (BTreeSet::new(), None, 0);
    loop {
        let page = orders.store.reads.in_flight(&orders.group_partition(), after.as_ref(), 40).await?;
        assert!(page.messages.len() <= 40);
        count += page.messages.len();
        found.extend(page.messages.into_iter().map(|listed| listed.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let expected: BTreeSet<_> = (0..250).filter(|n| ![3, 100].contains(n)).map(|n| format!("m{n:06}")).collect();
    let expected: Vec<_> = expected.iter().map(String::as_str).collect();
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ids(&expected)?);
    assert_eq!(count, 248, "nothing moved, so nothing is listed twice");
    Ok(())
}

pub(super) async fn page_of_large_messages_is_bounded_by_bytes(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    for n in 0..9 {
        let mut message = orders.message(&n.to_string(), 0)?;
        message.envelope.payload = vec![b'x'; PAYLOAD_BYTES_MAX].into();
        orders.push_all(&[message]).await?;
    }
    let first = page(&orders, Window::ALL, None, 9).await?;
    assert!(first.messages.len() <= CALL_BYTES_MAX / PAYLOAD_BYTES_MAX && first.next.is_some());
    let rest = page(&orders, Window::ALL, first.next.as_ref(), 9).await?;
    assert_eq!(rest.messages[0].id.as_str(), first.messages.len().to_string());
    Ok(())
}

pub(super) async fn empty_group_lists_no_messages(world: World) -> Result<()> {
    let group_partition =
        GroupPartition { topic: TopicName::new("nowhere")?, partition: Partition(0), group: GroupName::standard() };
    assert_eq!(world.store.reads.waiting(&group_partition, Window::ALL, None, 10).await?, Page::default());
    assert_eq!(world.store.reads.in_flight(&group_partition, None, 10).await?, Page::default());
    Ok(())
}
