use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::time::Duration;

use dwell::broker::{Broker, ListEntry, ListedState, MessageList, Options};
use dwell::model::error::{Kind, Result};
use dwell::model::limits::{CALL_BYTES_MAX, PAYLOAD_BYTES_MAX};
use dwell::model::message::{Due, GroupName, Key, MessageId, NewMessage, TopicName};
use dwell::model::time::Timestamp;
use dwell::model::topic::Settings;
use dwell::store::{Expected, MessageState, WaitingRange, Window};

use crate::support::{Running, World, kind_of};

const STEP: Duration = Duration::from_secs(1);

/// A topic `orders` with so many partitions.
async fn shop(world: &World, partitions: u16) -> Result<Running> {
    let running = Running::start(world, Options::default())?;
    let partitions = NonZeroU16::new(partitions).unwrap_or(NonZeroU16::MIN);
    running.broker.declare(TopicName::new("orders")?, Settings { partitions, ..Settings::default() }).await?;
    Ok(running)
}

/// Messages with these ids, each due so many steps from now.
async fn push(broker: &Broker, messages: impl IntoIterator<Item = (String, u32)>) -> Result<()> {
    let message = |(id, steps): (String, u32)| {
        let due = Due::In(STEP * steps);
        Ok(NewMessage { due, ..NewMessage::new("close").id(MessageId::new(id)?) })
    };
    let messages = messages.into_iter().map(message).collect::<Result<Vec<_>>>()?;
    broker.push_batch(&TopicName::new("orders")?, messages).await.map(drop)
}

async fn page(
    broker: &Broker,
    which: ListedState,
    window: Window,
    cursor: Option<&str>,
    limit: usize,
) -> Result<MessageList> {
    broker.list_by_due(&TopicName::new("orders")?, &GroupName::standard(), which, window, cursor, limit).await
}

async fn reschedule(broker: &Broker, id: &str, steps: u32) -> Result<()> {
    let (topic, id) = (TopicName::new("orders")?, MessageId::new(id)?);
    broker.reschedule(&topic, &id, None, Due::In(STEP * steps), Expected::default()).await.map(drop)
}

fn ids_in(page: &MessageList) -> Vec<String> {
    page.messages.iter().map(|entry| entry.listed.id.to_string()).collect()
}

/// All pages of what waits, in the order listed.
async fn all(broker: &Broker, window: Window, limit: usize) -> Result<Vec<(Timestamp, String)>> {
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let page = page(broker, ListedState::Waiting, window, cursor.as_deref(), limit).await?;
        assert!(page.messages.len() <= limit);
        let due = |entry: &ListEntry| entry.listed.next_at.unwrap_or_default();
        found.extend(page.messages.iter().map(|entry| (due(entry), entry.listed.id.to_string())));
        cursor = page.next;
        if cursor.is_none() {
            return Ok(found);
        }
    }
}

pub(super) async fn an_outline_is_a_message_without_its_body(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push_all(&[orders.message("b", 20)?, orders.message("a", 20)?, orders.message("c", 30)?]).await?;
    let (partition, reads) = (orders.group_partition(), &orders.store.reads);
    let range = WaitingRange { partition: partition.clone(), window: Window::ALL, after: None, limit: 2 };
    let unknown = WaitingRange { partition: orders.partition_of("unknown")?, ..range.clone() };
    let pages = reads.outlines(&[unknown, range.clone()]).await?;
    assert_eq!((pages.len(), pages[0].messages.len(), &pages[0].next), (2, 0, &None));
    let messages = reads.waiting(&partition, Window::ALL, None, 2).await?;
    assert_eq!(pages[1].next, messages.next);
    let seen: Vec<_> = pages[1].messages.iter().map(|outline| (outline.id.as_str(), Some(outline.next_at))).collect();
    let expected: Vec<_> = messages.messages.iter().map(|listed| (listed.id.as_str(), listed.next_at)).collect();
    assert_eq!(seen, expected);
    assert!(pages[1].messages.iter().all(|outline| outline.bytes > 0));
    let rest = reads.outlines(&[WaitingRange { after: messages.next, ..range }]).await?;
    assert_eq!((rest[0].messages.len(), rest[0].messages[0].id.as_str(), &rest[0].next), (1, "c", &None));
    Ok(())
}

pub(super) async fn a_list_by_due_time_merges_the_partitions(world: World) -> Result<()> {
    let running = shop(&world, 70).await?;
    // In an order that is neither that of the ids nor that of the partitions.
    push(&running.broker, (0..200).map(|n| (format!("m{n:03}"), (n * 77) % 200 + 1))).await?;
    for limit in [1_000, 64, 7] {
        let found = all(&running.broker, Window::ALL, limit).await?;
        let due: Vec<_> = found.iter().map(|(at, _)| *at).collect();
        let expected: Vec<_> = (1..=200).map(|steps| world.now().plus(STEP * steps)).collect();
        assert_eq!(due, expected, "pages of {limit}");
    }
    // All in one partition of many: it is asked for more than its share.
    let topic = TopicName::new("keyed")?;
    let partitions = NonZeroU16::new(70).unwrap_or(NonZeroU16::MIN);
    running.broker.declare(topic.clone(), Settings { partitions, ..Settings::default() }).await?;
    let keyed = |n: u32| {
        let (due, key) = (Due::In(STEP * (100 - n)), Some(Key::new("customer-7")?));
        Ok(NewMessage { due, key, ..NewMessage::new("close") })
    };
    running.broker.push_batch(&topic, (0..100).map(keyed).collect::<Result<Vec<_>>>()?).await?;
    let group = GroupName::standard();
    let first = running.broker.list_by_due(&topic, &group, ListedState::Waiting, Window::ALL, None, 90).await?;
    let due: Vec<_> = first.messages.iter().filter_map(|entry| entry.listed.next_at).collect();
    assert_eq!(due, (1..=90).map(|steps| world.now().plus(STEP * steps)).collect::<Vec<_>>());
    assert!(first.next.is_some());
    Ok(())
}

pub(super) async fn equal_due_times_are_listed_once_by_partition(world: World) -> Result<()> {
    let running = shop(&world, 5).await?;
    push(&running.broker, (0..60).map(|n| (format!("m{n:02}"), 1 + n / 30))).await?;
    let whole = page(&running.broker, ListedState::Waiting, Window::ALL, None, 1_000).await?;
    assert!(whole.messages.is_sorted_by_key(|entry| (entry.listed.next_at, entry.partition)));
    assert_eq!(ids_in(&whole).into_iter().collect::<BTreeSet<_>>().len(), 60);
    for limit in [1, 4, 29, 30, 59, 60] {
        let found = all(&running.broker, Window::ALL, limit).await?;
        assert_eq!(found.into_iter().map(|(_, id)| id).collect::<Vec<_>>(), ids_in(&whole), "pages of {limit}");
    }
    Ok(())
}

pub(super) async fn moving_message_does_not_disturb_list_pages(world: World) -> Result<()> {
    let running = shop(&world, 4).await?;
    let broker = &running.broker;
    push(broker, (0..40).map(|n| (format!("m{n:02}"), 10 + n / 8))).await?;
    let stays = |id: &String| id.starts_with('m') && !["m00", "m39"].contains(&id.as_str());
    let (mut found, mut cursor, mut pages) = (Vec::new(), None::<String>, 0);
    loop {
        let page = page(broker, ListedState::Waiting, Window::ALL, cursor.as_deref(), 6).await?;
        found.extend(ids_in(&page));
        cursor = page.next;
        pages += 1;
        if cursor.is_none() {
            break;
        }
        match pages {
            // Away from before the cursor to behind it, and the other way round.
            1 => reschedule(broker, "m00", 100).await?,
            2 => reschedule(broker, "m39", 1).await?,
            _ => {}
        }
        push(broker, [(format!("early-{pages}"), 2), (format!("tie-{pages}"), 12)]).await?;
        // The very one at which the page ended.
        if let Some(last) = found.last().filter(|last| stays(last)) {
            broker.cancel(&TopicName::new("orders")?, &MessageId::new(last.clone())?, None).await?;
        }
    }
    let expected: Vec<_> = (0..40).map(|n| format!("m{n:02}")).filter(stays).collect();
    let mut listed: Vec<_> = found.iter().filter(|id| stays(id)).cloned().collect();
    listed.sort();
    assert_eq!(listed, expected, "each is listed once");
    assert_eq!(found.iter().filter(|id| *id == "m00").count(), 2, "before it moved, and behind");
    assert!(!found.contains(&"m39".to_owned()), "it moved to where the list has been");
    assert!(!found.iter().any(|id| id.starts_with("early")), "{found:?}");
    Ok(())
}

pub(super) async fn a_state_and_a_window_bound_a_list_by_due_time(world: World) -> Result<()> {
    let running = shop(&world, 3).await?;
    let broker = &running.broker;
    push(broker, (0..20).map(|n| (format!("m{n:02}"), n))).await?;
    world.pass(5_000);
    let at = |steps: u32| world.now().plus(STEP * steps);
    let ready = page(broker, ListedState::Ready, Window::ALL, None, 100).await?;
    assert_eq!(ids_in(&ready), (0..=5).map(|n| format!("m{n:02}")).collect::<Vec<_>>());
    assert!(ready.messages.iter().all(|entry| entry.state == MessageState::Ready));
    let scheduled = page(broker, ListedState::Scheduled, Window { from: at(0), to: at(3) }, None, 1).await?;
    assert_eq!((ids_in(&scheduled), &scheduled.messages[0].state), (vec!["m06".to_owned()], &MessageState::Scheduled));
    let rest =
        page(broker, ListedState::Scheduled, Window { from: at(0), to: at(3) }, scheduled.next.as_deref(), 100).await?;
    assert_eq!((ids_in(&rest), rest.next), (vec!["m07".to_owned()], None));
    // Time passes between two pages: what is ready by now is no longer scheduled.
    world.pass(10_000);
    let late = page(broker, ListedState::Scheduled, Window::ALL, scheduled.next.as_deref(), 100).await?;
    assert_eq!(ids_in(&late), (16..20).map(|n| format!("m{n:02}")).collect::<Vec<_>>());
    let none = page(broker, ListedState::Waiting, Window { from: at(50), to: at(60) }, None, 100).await?;
    assert_eq!((ids_in(&none), none.next), (vec![], None));
    Ok(())
}

pub(super) async fn page_by_due_time_is_bounded_by_bytes(world: World) -> Result<()> {
    let running = shop(&world, 3).await?;
    let topic = TopicName::new("orders")?;
    for n in 0..9 {
        let message = NewMessage::new(vec![b'x'; PAYLOAD_BYTES_MAX]).id(MessageId::new(n.to_string())?);
        running.broker.push(&topic, NewMessage { due: Due::In(STEP * (n + 1)), ..message }).await?;
    }
    let first = page(&running.broker, ListedState::Waiting, Window::ALL, None, 9).await?;
    assert!(first.messages.len() <= CALL_BYTES_MAX / PAYLOAD_BYTES_MAX && first.next.is_some());
    let found = all(&running.broker, Window::ALL, 9).await?;
    assert_eq!(found.into_iter().map(|(_, id)| id).collect::<String>(), "012345678");
    Ok(())
}

pub(super) async fn a_list_by_due_time_refuses_other_cursors_and_states(world: World) -> Result<()> {
    let running = shop(&world, 2).await?;
    let (broker, topic, group) = (&running.broker, TopicName::new("orders")?, GroupName::standard());
    push(broker, (0..4).map(|n| (format!("m{n}"), n + 1))).await?;
    for which in [ListedState::InFlight, ListedState::Dead] {
        assert_eq!(kind_of(page(broker, which, Window::ALL, None, 1).await), Some(Kind::Invalid), "{which:?}");
    }
    let by_partition = broker.list(&topic, &group, ListedState::Waiting, Window::ALL, None, 1).await?.next;
    let by_due = page(broker, ListedState::Waiting, Window::ALL, None, 1).await?.next;
    assert!(by_partition.is_some() && by_due.is_some());
    let wrong = page(broker, ListedState::Waiting, Window::ALL, by_partition.as_deref(), 1).await;
    assert_eq!(kind_of(wrong), Some(Kind::Invalid));
    let wrong = broker.list(&topic, &group, ListedState::Waiting, Window::ALL, by_due.as_deref(), 1).await;
    assert_eq!(kind_of(wrong), Some(Kind::Invalid));
    Ok(())
}
