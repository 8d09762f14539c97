//! An owner takes messages while producers cancel and reschedule them: each message is either delivered or cancelled, and
//! the answers say which. `DWELL_RACES=100000` makes it that many messages; `make races` is that.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dwell::model::error::{Error, Result};
use dwell::model::message::MessageId;
use dwell::model::time::Timestamp;
use dwell::platform::clock::Clock;
use dwell::store::{Expected, Fate, Owner, Rescheduled, Settlement};
use futures_util::{StreamExt, stream};

use crate::support::{TestTopic, World, fates_of, from_environment, up_to};

/// Messages that are there at the same time.
const ROUND: usize = 500;

/// Producers that change something at the same time.
const PRODUCERS: usize = 16;

/// What a producer was told of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Cancelled(Fate),
    /// With the due time that it asked for.
    Rescheduled(Fate, Timestamp),
}

/// Asks for one or the other, and sometimes for both.
async fn change(orders: &TestTopic, id: MessageId, chance: u8) -> Result<(MessageId, Vec<Told>)> {
    let (mut told, one) = (Vec::new(), |fates: Vec<Fate>| fates.first().copied().unwrap_or(Fate::Absent));
    if chance % 3 < 2 {
        // Sooner, now or later than the clock of the story will be in this round.
        let due_at = orders.message(id.as_str(), u64::from(chance % 5))?.due_at;
        match orders.reschedule_if(id.as_str(), due_at, Expected::default()).await? {
            Rescheduled::Done(fates) => told.push(Told::Rescheduled(one(fates_of(&fates)), due_at)),
            other => return Err(Error::bug(format!("nothing was expected: {other:?}"))),
        }
    }
    if !chance.is_multiple_of(3) {
        told.push(Told::Cancelled(one(orders.cancel(id.as_str()).await?)));
    }
    Ok((id, told))
}

/// Takes and acks what is due, until nothing is and it is told that it is enough.
async fn take(
    orders: &TestTopic,
    owner: &mut Box<dyn Owner>,
    got: &mut HashMap<MessageId, Timestamp>,
    enough: &AtomicBool,
) -> Result<()> {
    loop {
        let is_enough = enough.load(Ordering::SeqCst);
        let taken = owner.reserve(up_to(fastrand::usize(1..9))).await?;
        assert_eq!((taken.dropped, taken.unsettled), (0, taken.messages.len() as u64), "ids and bodies disagree");
        if taken.messages.is_empty() && is_enough {
            return Ok(());
        }
        let mut acks = Settlement { remaining: vec![(taken.reservation, vec![])], ..Settlement::default() };
        for message in taken.messages {
            let due_at = message.message?.due_at;
            assert!(due_at <= Clock::Manual(orders.time.clone()).now(), "{} is early", message.id);
            assert!(got.insert(message.id.clone(), due_at).is_none(), "{} came twice", message.id);
            acks.acked.push(message.id);
        }
        owner.settle(&acks).await?;
        tokio::task::yield_now().await;
    }
}

async fn round(world: &World, orders: &TestTopic, owner: &mut Box<dyn Owner>, number: usize) -> Result<[usize; 3]> {
    let ids = (0..ROUND).map(|n| format!("{number}-{n}"));
    let messages = ids.map(|id| orders.message(&id, 0)).collect::<Result<Vec<_>>>()?;
    orders.push_all(&messages).await?;
    let pushed_at = world.now();
    let mut got = HashMap::new();
    let mut order: Vec<MessageId> = messages.iter().map(|message| message.id.clone()).collect();
    fastrand::shuffle(&mut order);
    let changes = order.into_iter().map(|id| change(orders, id, fastrand::u8(..)));
    let changing = stream::iter(changes).buffer_unordered(PRODUCERS).collect::<Vec<_>>();
    let enough = AtomicBool::new(false);
    let changing = async {
        let told = changing.await;
        // What was put off is due now.
        world.pass(5);
        enough.store(true, Ordering::SeqCst);
        told
    };
    let (told, taken) = tokio::join!(changing, take(orders, owner, &mut got, &enough));
    taken?;
    let mut cancelled = HashSet::new();
    let mut counts = [0; 3];
    for told in told {
        let (id, told) = told?;
        let mut due_at = pushed_at;
        for told in told {
            match told {
                Told::Cancelled(Fate::Done) => assert!(cancelled.insert(id.clone())),
                Told::Rescheduled(Fate::Done, at) => due_at = at,
                // Somebody has it, or had it.
                Told::Cancelled(Fate::InFlight | Fate::Absent)
                | Told::Rescheduled(Fate::InFlight | Fate::Absent, _) => {}
                told => return Err(Error::bug(format!("{id}: {told:?}"))),
            }
        }
        counts[0] += usize::from(cancelled.contains(&id));
        counts[1] += usize::from(due_at > pushed_at && !cancelled.contains(&id));
        counts[2] += usize::from(got.contains_key(&id));
        match got.get(&id) {
            Some(found) => assert!(!cancelled.contains(&id) && *found == due_at, "{id}: due {found}, told {due_at}"),
            None => assert!(cancelled.contains(&id), "{id} is neither delivered nor cancelled"),
        }
    }
    Ok(counts)
}

async fn every_message_is_delivered_or_cancelled(world: World) -> Result<()> {
    let messages: usize = from_environment("DWELL_RACES")?.unwrap_or(5_000);
    let orders = world.topic("orders").await?;
    let mut owner = orders.owner().await?;
    let mut counts = [0; 3];
    for number in 0..messages.div_ceil(ROUND) {
        let round = round(&world, &orders, &mut owner, number).await?;
        counts = std::array::from_fn(|n| counts[n] + round[n]);
        world.time.advance(Duration::from_millis(1));
    }
    let stats = orders.stats().await?;
    assert_eq!((stats.scheduled, stats.ready, stats.in_flight, stats.dead), (0, 0, 0, 0));
    let [cancelled, later, delivered] = counts;
    println!("{messages} messages: {cancelled} cancelled, {delivered} delivered, {later} of them when rescheduled to");
    assert!(cancelled > 0 && later > 0 && delivered > later, "the races were no races");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn embedded() -> Result<()> {
    every_message_is_delivered_or_cancelled(World::embedded().await?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn redis() -> Result<()> {
    every_message_is_delivered_or_cancelled(World::redis().await?).await
}
