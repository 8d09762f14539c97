//! All messages of a window of due times: counted, cancelled, moved in time, parked.

use std::time::Duration;

use dwell::broker::{Broker, BulkAction, BulkOutcome, Options};
use dwell::model::error::{Kind, Result};
use dwell::model::message::{Due, GroupName, MessageId, NewMessage, TopicName};
use dwell::model::time::Timestamp;
use dwell::store::Window;

use crate::support::{Running, World, kind_of, stories};

stories! {
    bulk_cancel_affects_only_its_range, bulk_postpone_is_idempotent, bulk_advance_stops_at_now,
    unpark_restores_parked_messages, invalid_bulk_range_is_refused, bulk_changes_every_message_of_a_large_range,
}

fn place() -> Result<(TopicName, GroupName)> {
    Ok((TopicName::new("orders")?, GroupName::standard()))
}

/// Messages named after their due time, in minutes from now.
async fn shop(world: &World, minutes: &[u64]) -> Result<Running> {
    let running = Running::start(world, Options::default())?;
    for minute in minutes {
        let message = NewMessage::new("close").id(MessageId::new(format!("m{minute}"))?);
        let message = NewMessage { due: Due::In(Duration::from_secs(minute * 60)), ..message };
        running.broker.push(&place()?.0, message).await?;
    }
    Ok(running)
}

fn minutes(world: &World, from: u64, to: u64) -> Window {
    let at = |minute: u64| world.now().plus(Duration::from_secs(minute * 60));
    Window { from: at(from), to: at(to) }
}

async fn change(broker: &Broker, window: Window, deed: BulkAction) -> Result<BulkOutcome> {
    let (topic, group) = place()?;
    broker.change_window(&topic, &group, window, deed, None).await
}

fn changed(count: u64) -> BulkOutcome {
    BulkOutcome { changed: count, ..BulkOutcome::default() }
}

/// When a message is due.
async fn due(broker: &Broker, id: &str) -> Result<Option<Timestamp>> {
    let (topic, group) = place()?;
    match broker.peek(&topic, &group, &MessageId::new(id)?, None).await {
        Ok((_, peeked)) => Ok(peeked.next_at),
        Err(error) if error.kind() == Kind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

async fn bulk_cancel_affects_only_its_range(world: World) -> Result<()> {
    let running = shop(&world, &[9, 10, 15, 20]).await?;
    let (broker, window) = (&running.broker, minutes(&world, 10, 20));
    let (topic, group) = place()?;
    assert_eq!(broker.count_window(&topic, &group, window).await?, 2);
    assert_eq!(change(broker, window, BulkAction::Cancel).await?, changed(2));
    assert_eq!(change(broker, window, BulkAction::Cancel).await?, changed(0));
    for (id, there) in [("m9", true), ("m10", false), ("m15", false), ("m20", true)] {
        assert_eq!(due(broker, id).await?.is_some(), there, "{id}");
    }
    Ok(())
}

async fn bulk_postpone_is_idempotent(world: World) -> Result<()> {
    let running = shop(&world, &[10, 15, 20, 30]).await?;
    let (broker, window) = (&running.broker, minutes(&world, 10, 20));
    let deed = BulkAction::Postpone(Duration::from_secs(600));
    assert_eq!(change(broker, window, deed).await?, changed(2));
    assert_eq!(change(broker, window, deed).await?, changed(0));
    let at = |minute| Some(minutes(&world, minute, 60).from);
    for (id, minute) in [("m10", 20), ("m15", 25), ("m20", 20), ("m30", 30)] {
        assert_eq!(due(broker, id).await?, at(minute), "{id}");
    }
    Ok(())
}

async fn bulk_advance_stops_at_now(world: World) -> Result<()> {
    let running = shop(&world, &[10, 70]).await?;
    let deed = BulkAction::Advance(Duration::from_secs(3_600));
    assert_eq!(change(&running.broker, minutes(&world, 5, 65), deed).await?, changed(1));
    assert_eq!(due(&running.broker, "m10").await?, Some(world.now()));
    assert_eq!(change(&running.broker, minutes(&world, 65, 75), deed).await?, changed(1));
    assert_eq!(due(&running.broker, "m70").await?, Some(minutes(&world, 10, 60).from));
    Ok(())
}

async fn unpark_restores_parked_messages(world: World) -> Result<()> {
    let running = shop(&world, &[10, 15, 40]).await?;
    let (broker, window) = (&running.broker, minutes(&world, 10, 20));
    let before = due(broker, "m15").await?;
    assert_eq!(change(broker, window, BulkAction::Park).await?, changed(2));
    assert!(due(broker, "m15").await? > Some(world.now().plus(Duration::from_secs(1_824 * 86_400))));
    assert_eq!(change(broker, window, BulkAction::Unpark).await?, changed(2));
    assert_eq!(due(broker, "m15").await?, before);
    assert_eq!(change(broker, window, BulkAction::Unpark).await?, changed(0));
    // When it was due has passed meanwhile.
    assert_eq!(change(broker, window, BulkAction::Park).await?, changed(2));
    world.pass(3_600_000);
    assert_eq!(change(broker, window, BulkAction::Unpark).await?, changed(2));
    assert_eq!(due(broker, "m15").await?, Some(world.now()));
    Ok(())
}

async fn invalid_bulk_range_is_refused(world: World) -> Result<()> {
    let running = shop(&world, &[10]).await?;
    let hour = minutes(&world, 0, 60);
    let short = BulkAction::Postpone(Duration::from_secs(3_599));
    let years = Window { from: world.now(), to: world.now().plus(Duration::from_secs(1_826 * 86_400)) };
    let far = BulkAction::Postpone(Duration::from_secs(3_650 * 86_400));
    for (window, deed) in [
        (Window { from: hour.to, to: hour.from }, BulkAction::Cancel),
        (hour, short),
        (years, BulkAction::Park),
        (hour, far),
    ] {
        assert_eq!(kind_of(change(&running.broker, window, deed).await), Some(Kind::Invalid), "{deed:?}");
    }
    let (topic, group) = place()?;
    let cursor = running.broker.change_window(&topic, &group, hour, BulkAction::Cancel, Some("x.y")).await;
    assert_eq!(kind_of(cursor), Some(Kind::Invalid));
    assert_eq!(change(&running.broker, hour, BulkAction::Postpone(Duration::from_secs(3_600))).await?, changed(1));
    Ok(())
}

async fn bulk_changes_every_message_of_a_large_range(world: World) -> Result<()> {
    const MANY: usize = 1_000;
    let running = shop(&world, &[]).await?;
    let (topic, group) = place()?;
    let message = |_| NewMessage::new("close").after(Duration::from_secs(1_800));
    running.broker.push_batch(&topic, (0..MANY).map(message).collect()).await?;
    let (window, deed) = (minutes(&world, 0, 60), BulkAction::Postpone(Duration::from_secs(7_200)));
    let (mut all, mut cursor) = (0, None);
    loop {
        let done = running.broker.change_window(&topic, &group, window, deed, cursor.as_deref()).await?;
        all += done.changed;
        assert_eq!(done.passed_over, 0);
        cursor = done.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(all, MANY as u64);
    assert_eq!(running.broker.count_window(&topic, &group, window).await?, 0);
    assert_eq!(running.broker.count_window(&topic, &group, minutes(&world, 120, 180)).await?, MANY as u64);
    Ok(())
}
