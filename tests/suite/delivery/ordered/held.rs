//! What the owner holds and no consumer has: changes reach it, with an exact verdict, and no order is broken.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dwell::broker::{BulkAction, GroupRequest, ListedState, ReserveRequest};
use dwell::delivery::{Decision, Verdict};
use dwell::model::error::{Error, Kind, Result};
use dwell::model::message::{Conflict, Due, GroupName, Key, MessageId};
use dwell::model::topic::{Ordering, Settings};
use dwell::store::{Expected, Fate, MessageState, Pushed, Rescheduled, Window};

use super::shop::{Shop, by_key, ids};
use crate::support::{World, from_environment, stories};

stories! {
    cancelled_backoff_frees_its_key, cancelled_message_behind_its_key_is_never_delivered,
    a_message_with_a_consumer_stays_in_flight, cancel_of_a_prefetched_message_counts, changes_reach_what_the_rate_holds_back,
    rescheduled_head_lets_the_others_pass, rescheduled_message_behind_is_due_then, brought_forward_head_is_delivered_now,
    order_stays_around_a_message_that_went_back, precondition_holds_at_the_owner, each_group_decides_for_itself,
    replace_and_debounce_reach_the_owner, bulk_changes_reach_the_owner, states_counts_and_ages_tell_what_is_held,
    explain_names_the_blocker, lists_tell_what_is_held, charged_attempt_is_taken_back,
    recall_while_the_store_settles_a_nack, changes_by_chance_are_exact_with_ordering,
    changes_by_chance_are_exact_without_ordering,
}

impl Shop<'_> {
    async fn cancel(&self, id: &str) -> Result<Vec<Fate>> {
        let (key, id) = (id.split_once('-').map(|(key, _)| Key::new(key)).transpose()?, MessageId::new(id)?);
        let (_, cancelled) = self.broker.cancel(&self.topic, &id, key.as_ref()).await?;
        Ok(cancelled.fates.0.into_iter().map(|(_, fate)| fate).collect())
    }

    async fn reschedule(&self, id: &str, delay_ms: u64, expected: Expected) -> Result<Option<Vec<Fate>>> {
        let (key, id) = (id.split_once('-').map(|(key, _)| Key::new(key)).transpose()?, MessageId::new(id)?);
        let due = Due::In(Duration::from_millis(delay_ms));
        match self.broker.reschedule(&self.topic, &id, key.as_ref(), due, expected).await?.rescheduled {
            Rescheduled::Done(fates) => Ok(Some(fates.0.into_iter().map(|(_, fate)| fate).collect())),
            Rescheduled::Changed(_) | Rescheduled::Expires => Ok(None),
        }
    }

    async fn put(&self, id: &str, delay_ms: u64, payload: &str, conflict: Conflict) -> Result<Pushed> {
        let mut message = Self::message(id, delay_ms)?;
        message.payload = payload.to_owned().into();
        message.conflict = conflict;
        Ok(self.broker.push(&self.topic, message).await?.pushed)
    }

    /// Waits until so many messages are reserved.
    async fn reserved(&self, count: u64) -> Result<()> {
        let partitions = [self.group_partition().await?];
        let are_reserved = async || Ok(self.world.store.reads.stats(&partitions).await?[0].in_flight == count);
        self.world.until("all are reserved", are_reserved).await
    }

    /// Messages of key `a`, of which the first has failed and waits 5 s for its next attempt.
    async fn first_failed(&self, ids: &[&str]) -> Result<()> {
        self.push_all(ids).await?;
        let first = self.one().await?;
        self.reserved(ids.len() as u64).await?;
        assert_eq!((first.message.id.as_str(), self.nack(&first).await?), (ids[0], Verdict::Nacked));
        Ok(())
    }

    async fn state_of(&self, id: &str) -> Result<Option<MessageState>> {
        Ok(self.state(id).await?.map(|(state, _)| state))
    }
}

async fn cancelled_backoff_frees_its_key(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.first_failed(&["a-1", "a-2", "a-3"]).await?;
    assert_eq!(shop.cancel("a-1").await?, [Fate::Done]);
    assert_eq!(shop.cancel("a-1").await?, [Fate::Done], "a repeat is answered the same");
    assert_eq!(shop.state("a-1").await?, None);
    assert_eq!(shop.drain(2).await?, ["a-2", "a-3"]);
    world.pass(60_000);
    shop.nothing().await?;
    assert_eq!(shop.running.messages(&shop.topic).await?, 0);
    Ok(())
}

async fn cancelled_message_behind_its_key_is_never_delivered(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.push_all(&["a-1", "a-2", "a-3", "a-4"]).await?;
    let first = shop.one().await?;
    shop.reserved(4).await?;
    assert_eq!(shop.state_of("a-3").await?, Some(MessageState::Blocked));
    assert_eq!(shop.cancel("a-3").await?, [Fate::Done]);
    assert_eq!(shop.cancel("a-2").await?, [Fate::Done]);
    shop.ack(&first).await?;
    assert_eq!(shop.drain(1).await?, ["a-4"]);
    assert_eq!(shop.running.messages(&shop.topic).await?, 0);
    Ok(())
}

async fn a_message_with_a_consumer_stays_in_flight(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.push_all(&["a-1", "a-2"]).await?;
    let first = shop.one().await?;
    assert_eq!(shop.cancel("a-1").await?, [Fate::InFlight]);
    assert_eq!(shop.reschedule("a-1", 1_000, Expected::default()).await?, Some(vec![Fate::InFlight]));
    assert_eq!(shop.state_of("a-1").await?, Some(MessageState::InFlight));
    shop.ack(&first).await?;
    assert_eq!(shop.drain(1).await?, ["a-2"]);
    Ok(())
}

fn unordered() -> Settings {
    Settings { ordering: Ordering::None, ..by_key() }
}

async fn cancel_of_a_prefetched_message_counts(world: World) -> Result<()> {
    let shop = Shop::open(&world, unordered()).await?;
    shop.push_all(&["a", "b", "c", "d"]).await?;
    let first = shop.one().await?;
    shop.reserved(4).await?;
    let others: Vec<&str> = ["a", "b", "c", "d"].into_iter().filter(|id| *id != first.message.id.as_str()).collect();
    assert_eq!(shop.state_of(others[0]).await?, Some(MessageState::Ready));
    assert_eq!(shop.cancel(others[0]).await?, [Fate::Done]);
    assert_eq!(shop.reschedule(others[1], 60_000, Expected::default()).await?, Some(vec![Fate::Done]));
    assert_eq!(shop.drain(1).await?, [others[2]]);
    shop.ack(&first).await?;
    shop.nothing().await?;
    world.pass(60_000);
    assert_eq!(shop.drain(1).await?, [others[1]]);
    assert_eq!(shop.running.messages(&shop.topic).await?, 0);
    Ok(())
}

/// The owner has what the rate of the group holds back, or the store has it still.
async fn changes_reach_what_the_rate_holds_back(world: World) -> Result<()> {
    let shop = Shop::open(&world, unordered()).await?;
    let limit = GroupRequest { rate: Some(1.0), ..GroupRequest::default() };
    shop.broker.create_group(&shop.topic, &shop.group, limit).await?;
    shop.push_all(&["a", "b", "c"]).await?;
    let first = world.as_time_passes(shop.one()).await?;
    let held: Vec<&str> = ["a", "b", "c"].into_iter().filter(|id| *id != first.message.id.as_str()).collect();
    assert_eq!(shop.cancel(held[0]).await?, [Fate::Done]);
    assert_eq!(shop.put(held[1], 0, "new", Conflict::Replace).await?, Pushed::Replaced);
    shop.ack(&first).await?;
    let next = world.as_time_passes(shop.one()).await?;
    assert_eq!((next.message.id.as_str(), &*next.message.envelope.payload), (held[1], &b"new"[..]));
    shop.ack(&next).await?;
    assert_eq!(shop.running.messages(&shop.topic).await?, 0);
    Ok(())
}

async fn rescheduled_head_lets_the_others_pass(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.first_failed(&["a-1", "a-2", "a-3"]).await?;
    assert_eq!(shop.reschedule("a-1", 3_600_000, Expected::default()).await?, Some(vec![Fate::Done]));
    assert_eq!(shop.state("a-1").await?, Some((MessageState::Scheduled, 1)), "attempts stay");
    assert_eq!(shop.drain(2).await?, ["a-2", "a-3"]);
    world.pass(3_600_000);
    let again = shop.one().await?;
    assert_eq!((again.message.id.as_str(), again.attempt), ("a-1", 2));
    Ok(())
}

async fn rescheduled_message_behind_is_due_then(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.push_all(&["a-1", "a-2", "a-3"]).await?;
    let first = shop.one().await?;
    assert_eq!(shop.reschedule("a-2", 10_000, Expected::default()).await?, Some(vec![Fate::Done]));
    shop.ack(&first).await?;
    assert_eq!(shop.drain(1).await?, ["a-3"]);
    world.pass(10_000);
    assert_eq!(shop.drain(1).await?, ["a-2"]);
    Ok(())
}

async fn brought_forward_head_is_delivered_now(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.first_failed(&["a-1", "a-2"]).await?;
    world.pass(500);
    assert_eq!(shop.reschedule("a-1", 0, Expected::default()).await?, Some(vec![Fate::Done]));
    let again = shop.one().await?;
    assert_eq!((again.message.id.as_str(), again.attempt), ("a-2", 1), "it is due later than the second now");
    shop.ack(&again).await?;
    let again = shop.one().await?;
    assert_eq!((again.message.id.as_str(), again.attempt), ("a-1", 2));
    Ok(())
}

/// A message that goes back to the store and is not changed comes back to its place, whatever was in memory.
async fn order_stays_around_a_message_that_went_back(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.push_all(&["a-1", "a-2", "a-3", "b-1", "b-2", "a-4"]).await?;
    let taken = shop.take(2).await?;
    assert_eq!(ids(&taken), ["a-1", "b-1"]);
    let wrong = Expected { attempts: Some(7), due_at: None };
    for id in ["a-3", "a-2", "b-2", "a-4", "a-2"] {
        assert_eq!(shop.reschedule(id, 60_000, wrong).await?, None, "{id} is another one");
    }
    shop.push("a-5", 0).await?;
    shop.ack(&taken[0]).await?;
    shop.ack(&taken[1]).await?;
    let came = shop.drain(5).await?;
    let of = |key: &str| came.iter().filter(|id| id.starts_with(key)).cloned().collect::<Vec<_>>();
    assert_eq!(
        (of("a"), of("b")),
        (vec!["a-2".into(), "a-3".into(), "a-4".into(), "a-5".into()], vec!["b-2".to_owned()])
    );
    Ok(())
}

async fn precondition_holds_at_the_owner(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.first_failed(&["a-1", "a-2"]).await?;
    let attempts = |attempts| Expected { attempts: Some(attempts), due_at: None };
    assert_eq!(shop.reschedule("a-1", 60_000, attempts(0)).await?, None);
    assert_eq!(shop.state("a-1").await?.map(|(_, attempts)| attempts), Some(1));
    shop.nothing().await?;
    world.pass(5_000);
    let again = shop.one().await?;
    assert_eq!((again.message.id.as_str(), again.attempt), ("a-1", 2), "its backoff stays");
    assert_eq!(shop.nack(&again).await?, Verdict::Nacked);
    assert_eq!(shop.reschedule("a-1", 60_000, attempts(2)).await?, Some(vec![Fate::Done]));
    assert_eq!(shop.drain(1).await?, ["a-2"]);
    Ok(())
}

async fn each_group_decides_for_itself(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    let audit = GroupName::new("audit")?;
    shop.broker.create_group(&shop.topic, &audit, GroupRequest::default()).await?;
    shop.push_all(&["a-1", "a-2"]).await?;
    let take = async |wait| {
        let request = ReserveRequest { max: 1, wait, visibility_timeout: None };
        shop.broker.reserve(&shop.topic, &audit, request).await
    };
    let (mine, its) = (shop.one().await?, take(Duration::from_secs(60)).await?);
    assert_eq!(ids(&its), ["a-1"]);
    assert_eq!(shop.nack(&mine).await?, Verdict::Nacked);
    let mut fates = shop.cancel("a-1").await?;
    fates.sort_by_key(|fate| *fate == Fate::Done);
    assert_eq!(fates, [Fate::InFlight, Fate::Done], "one has it, and the other waits for its next attempt");
    assert_eq!(shop.cancel("a-2").await?, [Fate::Done, Fate::Done]);
    let acks = vec![(its[0].receipt.to_string(), Decision::Ack)];
    assert_eq!(shop.broker.settle(&shop.topic, &audit, acks).await?, [Verdict::Acked]);
    world.pass(10_000);
    shop.nothing().await?;
    assert!(world.as_time_passes(take(Duration::ZERO)).await?.is_empty());
    assert_eq!(shop.running.messages(&shop.topic).await?, 0);
    Ok(())
}

async fn replace_and_debounce_reach_the_owner(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.first_failed(&["a-1", "a-2", "a-3"]).await?;
    assert_eq!(shop.put("a-2", 0, "new", Conflict::Replace).await?, Pushed::Replaced);
    assert_eq!(shop.put("a-3", 60_000, "later", Conflict::Debounce).await?, Pushed::Debounced);
    assert_eq!(shop.put("a-1", 0, "first", Conflict::Replace).await?, Pushed::Replaced);
    let mut came = Vec::new();
    for _ in 0..2 {
        let next = shop.one().await?;
        shop.ack(&next).await?;
        came.push((next.message.id.to_string(), String::from_utf8_lossy(&next.message.envelope.payload).into_owned()));
    }
    came.sort();
    assert_eq!(came, [("a-1".to_owned(), "first".to_owned()), ("a-2".to_owned(), "new".to_owned())]);
    shop.nothing().await?;
    world.pass(60_000);
    assert_eq!(shop.drain(1).await?, ["a-3"]);
    shop.push("a-9", 0).await?;
    let mine = shop.one().await?;
    let refused = shop.put("a-9", 0, "new", Conflict::Replace).await;
    assert_eq!(refused.map_err(|error| error.kind()), Err(Kind::Conflict), "a consumer has it");
    shop.ack(&mine).await
}

async fn bulk_changes_reach_the_owner(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.first_failed(&["a-1", "a-2", "a-3"]).await?;
    shop.push("a-4", 60_000).await?;
    let window =
        Window { from: world.now().minus(Duration::from_secs(60)), to: world.now().plus(Duration::from_secs(120)) };
    assert_eq!(shop.broker.count_window(&shop.topic, &shop.group, window).await?, 4);
    let done = shop.broker.change_window(&shop.topic, &shop.group, window, BulkAction::Cancel, None).await?;
    assert_eq!((done.changed, done.passed_over, done.next), (4, 0, None));
    world.pass(120_000);
    shop.nothing().await?;
    assert_eq!(shop.running.messages(&shop.topic).await?, 0);
    Ok(())
}

async fn states_counts_and_ages_tell_what_is_held(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.first_failed(&["a-1", "a-2", "a-3"]).await?;
    shop.push("b-1", 0).await?;
    let mine = shop.one().await?;
    assert_eq!(shop.state("a-1").await?, Some((MessageState::Backoff, 1)));
    assert_eq!(
        (shop.state_of("a-2").await?, shop.state_of("b-1").await?),
        (Some(MessageState::Blocked), Some(MessageState::InFlight))
    );
    let stats = shop.broker.stats(&shop.topic).await?.remove(0).1;
    assert_eq!((stats.ready, stats.blocked, stats.backoff, stats.in_flight, stats.scheduled), (0, 2, 1, 1, 0));
    let (_, forecast) = shop.broker.forecast(&shop.topic, &shop.group, Duration::from_secs(60), 1).await?;
    assert_eq!((forecast.ready, forecast.backoff, forecast.spans, forecast.later), (2, 1, vec![0], 0));
    let before = stats.oldest_ready_age.unwrap_or_default();
    world.pass(500);
    let stats = shop.broker.stats(&shop.topic).await?.remove(0).1;
    assert_eq!(stats.oldest_ready_age, Some(before + Duration::from_millis(500)), "what is blocked has an age");
    shop.ack(&mine).await
}

async fn explain_names_the_blocker(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    let why = async |id: &str| -> Result<dwell::broker::Reason> {
        let explained = shop.broker.explain(&shop.topic, &MessageId::new(id)?, Some(&Key::new("a")?)).await?;
        explained.groups.into_iter().next().map(|(_, reason)| reason).ok_or_else(|| Error::bug("no group"))
    };
    shop.push_all(&["a-1", "a-2", "a-3"]).await?;
    let first = shop.one().await?;
    shop.reserved(3).await?;
    let reason = why("a-3").await?;
    assert_eq!((reason.name, &reason.blocker), ("behind_its_key", &Some(MessageId::new("a-1")?)));
    assert_eq!(reason.until, Some(first.deadline));
    assert!(reason.owner.is_some(), "{reason:?}");
    assert_eq!(shop.nack(&first).await?, Verdict::Nacked);
    let reason = why("a-2").await?;
    assert_eq!((reason.name, &reason.blocker), ("behind_its_key", &Some(MessageId::new("a-1")?)));
    let head = why("a-1").await?;
    assert_eq!((head.name, head.until), ("backoff", reason.until));
    assert!(reason.until.is_some_and(|until| until > world.now()), "{reason:?}");
    Ok(())
}

async fn lists_tell_what_is_held(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.first_failed(&["a-1", "a-2", "a-3"]).await?;
    shop.push_all(&["b-1"]).await?;
    shop.push("c-1", 60_000).await?;
    let mine = shop.one().await?;
    let list = async |which| -> Result<Vec<String>> {
        let (mut all, mut cursor) = (Vec::new(), None);
        loop {
            let page = shop.broker.list(&shop.topic, &shop.group, which, Window::ALL, cursor.as_deref(), 2).await?;
            all.extend(page.messages.iter().map(|entry| entry.listed.id.to_string()));
            cursor = page.next;
            if cursor.is_none() {
                all.sort();
                return Ok(all);
            }
        }
    };
    assert_eq!(list(ListedState::Backoff).await?, ["a-1"]);
    assert_eq!(list(ListedState::Blocked).await?, ["a-2", "a-3"]);
    assert_eq!(list(ListedState::InFlight).await?, ["b-1"]);
    assert_eq!(list(ListedState::Waiting).await?, ["a-1", "a-2", "a-3", "c-1"]);
    assert_eq!(list(ListedState::Scheduled).await?, ["c-1"]);
    assert!(list(ListedState::Ready).await?.is_empty());
    shop.ack(&mine).await
}

/// A message whose next attempt was charged ahead, and that goes back: no attempt is lost by it.
async fn charged_attempt_is_taken_back(world: World) -> Result<()> {
    let shop = Shop::open(&world, unordered()).await?;
    shop.push_all(&["a", "b"]).await?;
    for taken in shop.take(2).await? {
        assert_eq!(shop.nack(&taken).await?, Verdict::Nacked);
    }
    world.pass(5_000);
    // One is wanted, and the next may be charged with it.
    let mine = shop.one().await?;
    let other = if mine.message.id.as_str() == "a" { "b" } else { "a" };
    let wrong = Expected { attempts: Some(7), due_at: None };
    assert_eq!(shop.reschedule(other, 60_000, wrong).await?, None);
    let again = shop.one().await?;
    assert_eq!((again.message.id.as_str(), again.attempt), (other, 2));
    shop.ack(&again).await?;
    shop.ack(&mine).await
}

/// The charge of a nack, and that its message goes back, are one call to the store.
async fn recall_while_the_store_settles_a_nack(world: World) -> Result<()> {
    let shop = Shop::open(&world, by_key()).await?;
    shop.push_all(&["a-1", "a-2"]).await?;
    let first = shop.one().await?;
    let (nacked, cancelled) = tokio::join!(shop.nack(&first), shop.cancel("a-1"));
    assert_eq!(nacked?, Verdict::Nacked);
    // Whichever came first: the message is gone, or it had a consumer when it was asked.
    match cancelled?[..] {
        [Fate::Done] => assert_eq!(shop.state("a-1").await?, None),
        [Fate::InFlight] => assert_eq!(shop.cancel("a-1").await?, [Fate::Done]),
        ref other => return Err(Error::bug(format!("{other:?}"))),
    }
    assert_eq!(shop.drain(1).await?, ["a-2"]);
    assert_eq!(shop.running.messages(&shop.topic).await?, 0);
    Ok(())
}

/// What a story by chance knows of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Waits,
    InHand,
    Over,
}

/// Operations by chance, one after the other: what was cancelled never comes, what a consumer has is in flight and nothing
/// else is, no key has two messages out, and all the rest comes.
async fn changes_by_chance_are_exact_with_ordering(world: World) -> Result<()> {
    chance(&world, by_key()).await
}

async fn changes_by_chance_are_exact_without_ordering(world: World) -> Result<()> {
    chance(&world, unordered()).await
}

async fn chance(world: &World, settings: Settings) -> Result<()> {
    let seed = from_environment("DWELL_HELD_SEED")?.unwrap_or_else(|| fastrand::u64(..));
    println!("DWELL_HELD_SEED={seed}");
    let (mut rng, is_ordered) = (fastrand::Rng::with_seed(seed), settings.ordering == Ordering::Key);
    let shop = Shop::open(world, Settings { visibility_timeout: Duration::from_secs(3_600), ..settings }).await?;
    let (mut known, mut hand) = (BTreeMap::<String, Known>::new(), Vec::new());
    for step in 0..400 {
        let ids: Vec<String> = known.keys().cloned().collect();
        match rng.u8(0..10) {
            0..3 => {
                let id = format!("{}-{step}", rng.choice(["a", "b", "c"]).unwrap_or("a"));
                shop.push(&id, rng.u64(0..3) * 500).await?;
                known.insert(id, Known::Waits);
            }
            3..5 => {
                let taken = world.as_time_passes(shop.reserve_for(rng.usize(1..4), Duration::ZERO)).await?;
                for delivery in taken {
                    let id = delivery.message.id.to_string();
                    let before = known.insert(id.clone(), Known::InHand);
                    assert_eq!(before, Some(Known::Waits), "step {step}: {id} came");
                    hand.push(delivery);
                }
                let keys: BTreeSet<_> = hand.iter().map(|delivery| delivery.message.routing_key()).collect();
                assert!(!is_ordered || keys.len() == hand.len(), "step {step}: two of a key are out");
            }
            5..7 if !hand.is_empty() => {
                let delivery = hand.swap_remove(rng.usize(..hand.len()));
                let is_ack = rng.bool();
                // Time has passed since it was taken, but less than its visibility timeout.
                match is_ack {
                    true => shop.ack(&delivery).await?,
                    false => assert_eq!(shop.nack(&delivery).await?, Verdict::Nacked),
                }
                known.insert(delivery.message.id.to_string(), if is_ack { Known::Over } else { Known::Waits });
            }
            7..9 if !ids.is_empty() => {
                let id = &ids[rng.usize(..ids.len())];
                let is_cancel = rng.bool();
                let fate = match is_cancel {
                    true => shop.cancel(id).await?,
                    false => shop.reschedule(id, rng.u64(0..3) * 700, Expected::default()).await?.unwrap_or_default(),
                };
                match known[id] {
                    Known::Waits => {
                        assert_eq!(fate, [Fate::Done], "step {step}: {id}");
                        known.insert(id.clone(), if is_cancel { Known::Over } else { Known::Waits });
                    }
                    Known::InHand => assert_eq!(fate, [Fate::InFlight], "step {step}: {id}"),
                    Known::Over => assert!(
                        fate == [Fate::Absent] || is_cancel && fate == [Fate::Done],
                        "step {step}: {id}: {fate:?}"
                    ),
                }
            }
            _ => world.pass(rng.u64(..300)),
        }
    }
    for delivery in hand.drain(..) {
        shop.ack(&delivery).await?;
        known.insert(delivery.message.id.to_string(), Known::Over);
    }
    world.pass(10_000);
    while known.values().any(|known| *known == Known::Waits) {
        for delivery in shop.reserve_for(100, Duration::from_secs(60)).await? {
            let before = known.insert(delivery.message.id.to_string(), Known::Over);
            assert_eq!(before, Some(Known::Waits), "{} came", delivery.message.id);
            shop.ack(&delivery).await?;
        }
    }
    assert_eq!(shop.running.messages(&shop.topic).await?, 0);
    Ok(())
}
