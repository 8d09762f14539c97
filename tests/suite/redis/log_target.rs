//! What a log does to a Redis that it is applied to: requests are replayed once, answers are restored where they were lost,
//! and of two operations on a message the later one counts, whichever comes first.

mod after;

use std::sync::Arc;
use std::time::Duration;

use dwell::model::error::{Kind, Result};
use dwell::model::message::{Conflict, CronJobName, Dedup, DedupKey, GroupName, Message, MessageId, TopicName};
use dwell::model::partition::Partition;
use dwell::model::topic::{Descriptor, Settings};
use dwell::model::version::{CallId, CallPart, Version};
use dwell::store::Fate::{Absent, Done};
use dwell::store::{
    Call, Change, LateFate, LateSettlement, LogTarget, Progress, Purge, Pushed, Refused, Replayed, Retried,
};

use crate::support::{LEASE, TestTopic, World, acks, buries, ids_of, kind_of, member, new_call, retries, up_to};

const STORED: Result<Pushed, Refused> = Ok(Pushed::Stored);
const DUPLICATE: Result<Pushed, Refused> = Ok(Pushed::Duplicate);
const REPLACED: Result<Pushed, Refused> = Ok(Pushed::Replaced);
const DEBOUNCED: Result<Pushed, Refused> = Ok(Pushed::Debounced);
const FIRST: Partition = Partition(0);

/// A topic of one partition, and a log beside it.
struct Story {
    world: World,
    orders: TestTopic,
    target: Arc<dyn LogTarget>,
}

impl Story {
    async fn begin() -> Result<Story> {
        let world = World::redis().await?;
        let orders = world.topic("orders").await?;
        let target =
            world.target.clone().ok_or_else(|| dwell::model::error::Error::bug("no log is applied to this store"))?;
        Ok(Story { world, orders, target })
    }

    fn version(&self) -> Version {
        self.orders.store.backend.clock().versions(1)
    }

    fn other(&self, id: &str, delay_ms: u64) -> Result<Message> {
        let mut message = self.orders.message(id, delay_ms)?;
        message.envelope.payload = bytes::Bytes::from_static(b"another payload");
        Ok(message)
    }

    async fn push_over(&self, conflict: Conflict, message: &Message) -> Result<Result<Pushed, Refused>> {
        Ok(self.orders.push_over(conflict, std::slice::from_ref(message)).await?.remove(0))
    }

    async fn replay(
        &self,
        conflict: Conflict,
        messages: &[(u64, Version, &Message)],
    ) -> Result<Vec<Result<Pushed, Refused>>> {
        let replayed = |(number, version, message): &(u64, Version, &Message)| Replayed {
            number: *number,
            version: *version,
            message: (*message).clone(),
            origin: None,
        };
        let messages: Vec<Replayed> = messages.iter().map(replayed).collect();
        let losses = self.target.losses().borrow().count;
        self.target.replay(&self.orders.descriptor, FIRST, "wal", conflict, &messages, losses).await
    }

    async fn restore(&self, changes: &[Change]) -> Result<u64> {
        let losses = self.target.losses().borrow().count;
        self.target.restore(&self.orders.descriptor, FIRST, changes, losses).await
    }

    async fn push_as(&self, call: &Call, messages: &[Message]) -> Result<Vec<Pushed>> {
        self.orders.push_as(call, messages).await
    }

    async fn payload_of(&self, id: &str) -> Result<Option<String>> {
        let peeked = self.orders.peek(id).await?;
        Ok(peeked.map(|peeked| String::from_utf8_lossy(&peeked.message.envelope.payload).into_owned()))
    }

    /// What Redis loses when it is emptied.
    async fn empty(&self) -> Result<()> {
        for key in ["h", "z", "a", "dh", "dz", "r"] {
            self.world.meddle(&["UNLINK".to_owned(), format!("{{dwell:orders:0}}:default:{key}")]).await?;
        }
        for key in ["x", "gone", "seen", "dedup", "dedup-end"] {
            self.world.meddle(&["UNLINK".to_owned(), format!("{{dwell:orders:0}}:{key}")]).await?;
        }
        Ok(())
    }

    async fn forget(&self, call: &CallId) -> Result<()> {
        self.world.meddle(&["UNLINK".to_owned(), format!("{{dwell:orders:0}}:c:{}", call.stream)]).await.map(drop)
    }
}

fn set(message: &Message, version: Version, call: &CallId) -> Change {
    Change::Set { message: message.clone(), version, groups: Vec::new(), call: call.clone() }
}

fn part(call: &Call, at: u32) -> CallPart {
    CallPart { call: call.id.clone(), at }
}

fn late_ack(id: &str, version: Version, redelivered: bool) -> Result<LateSettlement> {
    Ok(LateSettlement {
        pauses_key: false,
        id: MessageId::new(id)?,
        version,
        attempt: 1,
        redelivered,
        next_at: None,
        failure: None,
    })
}

fn end(id: &str, version: Version) -> Result<Change> {
    Ok(Change::End { id: MessageId::new(id)?, version, groups: Vec::new(), is_acked: false })
}

#[tokio::test]
async fn repeated_call_gets_the_first_reply_even_after_consumption() -> Result<()> {
    let story = Story::begin().await?;
    let orders = &story.orders;
    orders.push("there", 0).await?;
    let call = new_call(&*orders.store.backend, 2);
    let messages = [orders.message("there", 0)?, orders.message("a", 0)?];
    let first = story.push_as(&call, &messages).await?;
    assert_eq!(first, [Pushed::Duplicate, Pushed::Stored]);
    let mut owner = orders.owner().await?;
    owner.reserve(up_to(9)).await?;
    owner.settle(&acks(&["a", "there"])?).await?;
    assert_eq!(story.push_as(&call, &messages).await?, first);
    assert_eq!(orders.stats().await?.ready, 0, "nothing came again");
    Ok(())
}

#[tokio::test]
async fn repeated_purge_gets_the_first_reply_and_spares_later_pushes() -> Result<()> {
    let story = Story::begin().await?;
    let (orders, purge) = (&story.orders, Purge { group: GroupName::standard(), dead_letters: false });
    orders.push("a", 0).await?;
    let call = new_call(&*orders.store.backend, 1);
    let messages = &orders.store.messages;
    let first = messages.purge_group(&orders.descriptor, FIRST, &call, &purge).await?;
    assert_eq!(first.messages, 1);
    orders.push("a", 0).await?;
    assert_eq!(messages.purge_group(&orders.descriptor, FIRST, &call, &purge).await?, first);
    let losses = story.target.losses().borrow().count;
    let again = story.target.reapply_purge(&orders.descriptor, FIRST, &purge, first.version, losses).await?;
    assert_eq!((again, orders.stats().await?.ready), (0, 1));
    Ok(())
}

#[tokio::test]
async fn no_log_restores_purged_messages_and_live_pushes_do() -> Result<()> {
    let story = Story::begin().await?;
    let (orders, purge) = (&story.orders, Purge { group: GroupName::standard(), dead_letters: false });
    let before = story.version();
    let [call, late] = [(); 2].map(|()| new_call(&*orders.store.backend, 1));
    let live = new_call(&*orders.store.backend, 1);
    let purged = orders.store.messages.purge_group(&orders.descriptor, FIRST, &live, &purge).await?;
    let message = orders.message("a", 0)?;
    assert_eq!(story.replay(Conflict::Keep, &[(1, before, &message)]).await?, [DUPLICATE]);
    assert_eq!(story.restore(&[set(&message, before, &call.id)]).await?, 0);
    // Its version is from before the purge.
    assert_eq!(kind_of(story.push_as(&late, std::slice::from_ref(&message)).await), Some(Kind::Stale));
    assert_eq!(orders.stats().await?.ready, 0);
    assert_eq!(story.replay(Conflict::Keep, &[(2, purged.version.plus(1), &message)]).await?, [STORED]);
    Ok(())
}

#[tokio::test]
async fn lost_purge_is_reapplied_and_spares_later_messages() -> Result<()> {
    let story = Story::begin().await?;
    let (orders, purge) = (&story.orders, Purge { group: GroupName::standard(), dead_letters: true });
    orders.push_many("m", 300).await?;
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(1)).await?;
    owner.settle(&buries(taken.reservation, &["m000000"], &[])?).await?;
    let version = story.version();
    orders.push("later", 0).await?;
    let losses = story.target.losses().borrow().count;
    let again = async || story.target.reapply_purge(&orders.descriptor, FIRST, &purge, version, losses).await;
    assert_eq!((again().await?, again().await?), (300, 0));
    let stats = orders.stats().await?;
    assert_eq!((stats.ready, stats.in_flight, stats.dead), (1, 0, 0));
    Ok(())
}

#[tokio::test]
async fn repeated_put_and_reschedule_get_the_first_reply() -> Result<()> {
    let story = Story::begin().await?;
    let (orders, message) = (&story.orders, story.other("a", 50)?);
    orders.push("a", 500).await?;
    let call = new_call(&*orders.store.backend, 1);
    let push = async || orders.push_over_as(&call, Conflict::Replace, std::slice::from_ref(&message)).await;
    assert_eq!((push().await?, push().await?), (vec![REPLACED], vec![REPLACED]));
    let call = new_call(&*orders.store.backend, 1);
    let due_at = story.world.now();
    let wanted = dwell::store::Reschedule { id: MessageId::new("a")?, due_at, expected: Default::default() };
    let reschedule = async || orders.store.messages.reschedule(&orders.descriptor, FIRST, &call, &wanted).await;
    let first = reschedule().await?;
    let mut owner = orders.owner().await?;
    owner.reserve(up_to(1)).await?;
    assert_eq!(reschedule().await?, first, "though it is in flight now");
    Ok(())
}

#[tokio::test]
async fn late_copy_has_no_effect_and_a_gap_reveals_a_loss() -> Result<()> {
    let story = Story::begin().await?;
    let orders = &story.orders;
    let mut call = new_call(&*orders.store.backend, 1);
    story.push_as(&call, &[orders.message("a", 0)?]).await?;
    let late = call.clone();
    call.id.seq += 1;
    story.push_as(&call, &[orders.message("b", 0)?]).await?;
    let copy = story.push_as(&late, &[orders.message("c", 0)?]).await;
    assert_eq!(kind_of(copy), Some(dwell::model::error::Kind::Unavailable), "a late copy");
    let losses = orders.store.backend.losses().borrow().count;
    call.id.seq += 2;
    assert_eq!(kind_of(story.push_as(&call, &[orders.message("d", 0)?]).await), Some(dwell::model::error::Kind::Stale));
    assert_eq!(orders.store.backend.losses().borrow().count, losses + 1);
    assert_eq!(orders.stats().await?.ready, 2);
    Ok(())
}

#[tokio::test]
async fn fence_reports_and_freezes_the_outcome_of_a_call() -> Result<()> {
    let story = Story::begin().await?;
    let (orders, topic) = (&story.orders, &story.orders.descriptor.topic);
    let applied = new_call(&*orders.store.backend, 1);
    story.push_as(&applied, &[orders.message("a", 0)?]).await?;
    let never = new_call(&*orders.store.backend, 1);
    for _ in 0..2 {
        assert!(story.target.fence(topic, FIRST, &part(&applied, 1)).await?);
        assert!(!story.target.fence(topic, FIRST, &part(&never, 1)).await?);
    }
    assert!(story.push_as(&never, &[orders.message("b", 0)?]).await.is_err(), "it comes too late");
    assert!(orders.peek("b").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn repeated_page_does_not_repeat_consumed_messages() -> Result<()> {
    let story = Story::begin().await?;
    let (orders, first, second) = (&story.orders, story.orders.message("a", 0)?, story.orders.message("b", 0)?);
    let page = [(5, story.version(), &first), (9, story.version(), &second)];
    assert_eq!(story.replay(Conflict::Keep, &page[..1]).await?, [STORED]);
    let mut owner = orders.owner().await?;
    owner.reserve(up_to(9)).await?;
    owner.settle(&acks(&["a"])?).await?;
    assert_eq!(story.replay(Conflict::Keep, &page).await?, [STORED, STORED]);
    assert_eq!(ids_of(&owner.reserve(up_to(9)).await?.messages), ["b"]);
    Ok(())
}

#[tokio::test]
async fn replay_changes_only_older_messages() -> Result<()> {
    let story = Story::begin().await?;
    let (orders, old) = (&story.orders, story.other("a", 300)?);
    let before = story.version();
    story.world.pass(1);
    orders.push("a", 200).await?;
    assert_eq!(story.replay(Conflict::Replace, &[(1, before, &old)]).await?, [DUPLICATE]);
    story.world.pass(1);
    let newer = story.other("a", 300)?;
    assert_eq!(story.replay(Conflict::Replace, &[(2, story.version(), &newer)]).await?, [REPLACED]);
    let debounce = story.other("a", 400)?;
    assert_eq!(story.replay(Conflict::Debounce, &[(3, story.version(), &debounce)]).await?, [DEBOUNCED]);
    let cancelled = story.version();
    assert_eq!(orders.cancel("a").await?, [Done]);
    for (n, conflict) in Conflict::ALL.into_iter().enumerate() {
        assert_eq!(story.replay(conflict, &[(4 + n as u64, cancelled, &newer)]).await?, [DUPLICATE], "{conflict:?}");
    }
    assert_eq!(story.replay(Conflict::Keep, &[(9, story.version(), &newer)]).await?, [STORED]);
    Ok(())
}

/// The first push is the same for what was pushed live, for what comes out of a log, and for what a journal brought back.
#[tokio::test]
async fn bound_of_a_debounce_counts_from_the_first_push_in_every_log() -> Result<()> {
    let story = Story::begin().await?;
    let (orders, begun) = (&story.orders, story.world.now());
    let bounded = |delay, max| -> Result<Message> {
        Ok(Message { debounce_max: Some(Duration::from_millis(max)), ..story.other("a", delay)? })
    };
    let is_due_after = async |ms| -> Result<()> {
        let due_at = orders.peek("a").await?.map(|peeked| peeked.message.due_at);
        assert_eq!(due_at, Some(begun.plus(Duration::from_millis(ms))));
        Ok(())
    };
    orders.push("a", 500).await?;
    story.world.pass(100);
    assert_eq!(story.replay(Conflict::Debounce, &[(1, story.version(), &bounded(550, 700)?)]).await?, [DEBOUNCED]);
    is_due_after(650).await?;
    assert_eq!(story.replay(Conflict::Debounce, &[(2, story.version(), &bounded(900, 700)?)]).await?, [DEBOUNCED]);
    is_due_after(700).await?;
    let records = [(3, story.version(), &bounded(950, 700)?), (4, story.version(), &bounded(950, 600)?)];
    assert_eq!(story.replay(Conflict::Debounce, &records).await?, [DUPLICATE, DUPLICATE], "only to a later time");
    is_due_after(700).await?;
    let kept = orders.peek("a").await?.ok_or_else(|| dwell::model::error::Error::not_found("a"))?;
    let call = new_call(&*orders.store.backend, 1);
    story.empty().await?;
    assert_eq!(story.restore(&[set(&kept.message, kept.version, &call.id)]).await?, 1);
    story.world.pass(100);
    assert_eq!(story.push_over(Conflict::Debounce, &bounded(900, 800)?).await?, DEBOUNCED);
    is_due_after(800).await?;
    assert_eq!(story.replay(Conflict::Debounce, &[(5, story.version(), &bounded(900, 900)?)]).await?, [DEBOUNCED]);
    is_due_after(900).await
}

/// A broker buffered a push of the id between two cancels at another one. The second cancel was acknowledged after the push.
#[tokio::test]
async fn second_cancel_covers_pushes_buffered_since_the_first() -> Result<()> {
    let story = Story::begin().await?;
    let orders = &story.orders;
    orders.push("a", 500).await?;
    assert_eq!(orders.cancel("a").await?, [Done]);
    story.world.pass(1);
    let (buffered, version) = (story.other("a", 300)?, story.version());
    story.world.pass(1);
    assert_eq!(orders.cancel("a").await?, [Done]);
    assert_eq!(story.replay(Conflict::Replace, &[(1, version, &buffered)]).await?, [DUPLICATE]);
    assert_eq!(story.replay(Conflict::Replace, &[(2, story.version(), &buffered)]).await?, [STORED]);
    Ok(())
}

#[tokio::test]
async fn older_record_is_ignored_after_a_later_operation() -> Result<()> {
    let story = Story::begin().await?;
    let orders = &story.orders;
    let (older, old) = (story.version(), story.other("a", 0)?);
    assert_eq!(story.push_over(Conflict::Replace, &orders.message("a", 0)?).await?, STORED);
    let mut owner = orders.owner().await?;
    owner.reserve(up_to(9)).await?;
    owner.settle(&acks(&["a"])?).await?;
    assert_eq!(story.replay(Conflict::Replace, &[(1, older, &old)]).await?, [DUPLICATE]);
    Ok(())
}

#[tokio::test]
async fn newer_payload_survives_a_reschedule_of_an_older_one() -> Result<()> {
    let story = Story::begin().await?;
    story.orders.push("a", 500).await?;
    story.world.pass(5);
    let (version, content) = (story.version(), story.other("a", 900)?);
    story.world.pass(5);
    assert_eq!(story.orders.reschedule("a", 700).await?, [Done]);
    let due_at = story.orders.peek("a").await?.map(|peeked| peeked.message.due_at);
    assert_eq!(story.replay(Conflict::Replace, &[(1, version, &content)]).await?, [REPLACED]);
    let peeked = story.orders.peek("a").await?.map(|peeked| peeked.message);
    assert_eq!(peeked.as_ref().map(|message| message.due_at), due_at);
    assert_eq!(story.payload_of("a").await?.as_deref(), Some("another payload"));
    Ok(())
}

/// A broker buffered the content before another one delivered the message that it replaces.
#[tokio::test]
async fn content_that_replaces_a_tried_and_rescheduled_message_was_never_tried() -> Result<()> {
    let story = Story::begin().await?;
    let orders = &story.orders;
    orders.push("a", 0).await?;
    story.world.pass(1);
    let (version, content) = (story.version(), story.other("a", 900)?);
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(9)).await?;
    let next_at = story.world.now().plus(Duration::from_millis(500));
    let retried = Retried { id: MessageId::new("a")?, next_at, attempts: 1, failure: None };
    owner.settle(&retries(taken.reservation, retried, &[])?).await?;
    story.world.pass(1);
    assert_eq!(orders.reschedule("a", 700).await?, [Done]);
    assert_eq!(story.replay(Conflict::Replace, &[(1, version, &content)]).await?, [REPLACED]);
    let peeked = orders.peek("a").await?;
    assert_eq!(peeked.map(|peeked| (peeked.attempts, peeked.history.len())), Some((0, 0)));
    assert_eq!(story.payload_of("a").await?.as_deref(), Some("another payload"));
    Ok(())
}

#[tokio::test]
async fn replace_waits_for_settlement_and_supersedes_dead_letters() -> Result<()> {
    let story = Story::begin().await?;
    let orders = &story.orders;
    orders.push_all(&[orders.message("a", 0)?, orders.message("b", 0)?]).await?;
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(9)).await?;
    story.world.pass(1);
    let (content, version) = (story.other("a", 0)?, story.version());
    assert_eq!(story.replay(Conflict::Replace, &[(1, version, &content)]).await?, [Err(Refused::InFlight)]);
    owner.settle(&buries(taken.reservation, &["b"], &["a"])?).await?;
    owner.settle(&acks(&["a"])?).await?;
    assert_eq!(story.replay(Conflict::Replace, &[(1, version, &content)]).await?, [STORED]);
    let dead = story.other("b", 0)?;
    assert_eq!(story.replay(Conflict::Replace, &[(2, story.version(), &dead)]).await?, [STORED]);
    let stats = orders.stats().await?;
    assert_eq!((stats.ready, stats.dead), (2, 0));
    Ok(())
}

#[tokio::test]
async fn logged_cancel_spares_newer_and_covers_older_messages() -> Result<()> {
    let story = Story::begin().await?;
    let (orders, withdraw) = (&story.orders, async |id: &str, version| {
        story.target.withdraw(&story.orders.descriptor, FIRST, &MessageId::new(id)?, version).await
    });
    orders.push("old", 1_000).await?;
    let version = story.version();
    orders.push("new", 1_000).await?;
    for id in ["old", "new", "lost"] {
        withdraw(id, version).await?;
    }
    assert!(orders.peek("old").await?.is_none() && orders.peek("new").await?.is_some());
    let lost = orders.message("lost", 0)?;
    let before = Version::from_us(version.as_us() - 1);
    assert_eq!(story.replay(Conflict::Keep, &[(1, before, &lost)]).await?, [DUPLICATE]);
    assert_eq!(story.replay(Conflict::Keep, &[(2, story.version(), &lost)]).await?, [STORED]);
    Ok(())
}

#[tokio::test]
async fn only_lost_records_are_restored_and_only_once() -> Result<()> {
    let story = Story::begin().await?;
    let orders = &story.orders;
    let call = new_call(&*orders.store.backend, 2);
    let (a, b) = (orders.message("a", 0)?, orders.message("b", 0)?);
    story.push_as(&call, &[a.clone(), b.clone()]).await?;
    let journal = [set(&a, call.version, &call.id), set(&b, call.version.plus(1), &call.id)];
    let mut owner = orders.owner().await?;
    owner.reserve(up_to(9)).await?;
    owner.settle(&acks(&["a", "b"])?).await?;
    assert_eq!(story.restore(&journal).await?, 0, "Redis remembers the call, so it lost nothing of it");
    drop(owner);
    story.empty().await?;
    story.forget(&call.id).await?;
    assert_eq!(story.restore(&journal).await?, 2);
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(9)).await?;
    assert_eq!(taken.messages.len(), 2);
    owner.settle(&acks(&["a", "b"])?).await?;
    assert_eq!(story.restore(&journal).await?, 0, "it was given back, and consumed since");
    Ok(())
}

#[tokio::test]
async fn later_operation_wins_in_any_journal_order() -> Result<()> {
    let story = Story::begin().await?;
    let orders = &story.orders;
    let call = |n: usize| CallId { stream: format!("lost.{n}"), seq: 1 };
    let (first, second) = (orders.message("a", 10)?, story.other("a", 20)?);
    let (one, two, three) = (story.version(), story.version(), story.version());
    let changes = [set(&first, one, &call(1)), set(&second, two, &call(2)), end("a", three)?];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        for skipped in 0..3 {
            story.empty().await?;
            for at in order.into_iter().filter(|at| *at != skipped) {
                story.forget(&call(1)).await?;
                story.forget(&call(2)).await?;
                story.restore(&changes[at..=at]).await?;
            }
            let expected = match skipped {
                2 => Some("another payload".to_owned()),
                _ => None,
            };
            assert_eq!(story.payload_of("a").await?, expected, "{order:?} without {skipped}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn restored_settlement_ends_only_its_own_version() -> Result<()> {
    let story = Story::begin().await?;
    let orders = &story.orders;
    let call = new_call(&*orders.store.backend, 1);
    story.push_as(&call, &[orders.message("a", 50)?]).await?;
    let group = vec![GroupName::standard()];
    let end = Change::End { id: MessageId::new("a")?, version: call.version, groups: group, is_acked: true };
    let later = new_call(&*orders.store.backend, 1);
    orders.cancel("a").await?;
    story.push_as(&Call { version: story.version(), ..later }, &[orders.message("a", 60)?]).await?;
    assert_eq!(story.restore(std::slice::from_ref(&end)).await?, 0);
    assert!(orders.peek("a").await?.is_some());
    assert_eq!(orders.cancel("a").await?, [Done]);
    assert_eq!(orders.cancel("never").await?, [Absent]);
    Ok(())
}

/// A broker that has only a promise of a topic meets a Redis that has nothing of it. If that call showed the promise, the topic would
/// stay one for good.
#[tokio::test]
async fn no_call_but_a_creation_makes_a_promised_topic() -> Result<()> {
    let world = World::redis().await?;
    let store = &world.store;
    let promised = Descriptor::new(TopicName::new("promised")?, Settings::default());
    let (group, id) = (GroupName::standard(), MessageId::new("a")?);
    let call = || new_call(&*store.backend, 1);
    let late = late_ack("a", call().version, true)?;
    let partition = promised.group_partition(FIRST, &group);
    let refused = [
        kind_of(store.messages.settle_late(&promised, FIRST, &group, &call(), &[late]).await),
        kind_of(store.messages.cancel(&promised, FIRST, &call(), &id).await),
        kind_of(store.leases.acquire(&partition, &member("owner"), LEASE, promised.generation).await),
        kind_of(store.cron_jobs.delete_cron_job(&promised, FIRST, &CronJobName::new("hourly")?).await),
    ];
    assert_eq!(refused, [Some(Kind::Unavailable); 4]);
    assert_eq!(store.topics.topic(&promised.topic).await?, None);
    let created = store.topics.create(&promised).await?;
    assert!(!created.is_promised());
    Ok(())
}

/// The client was told that it is done: a journal of another broker may still have it.
#[tokio::test]
async fn what_was_gone_when_it_was_acked_is_not_restored() -> Result<()> {
    let story = Story::begin().await?;
    let orders = &story.orders;
    let [first, second] = [(); 2].map(|()| new_call(&*orders.store.backend, 1));
    let messages = [orders.message("acked", 0)?, orders.message("stale", 0)?];
    story.push_as(&first, &messages[..1]).await?;
    story.push_as(&second, &messages[1..]).await?;
    story.empty().await?;
    let settlements = [late_ack("acked", first.version, true)?, late_ack("stale", second.version, false)?];
    let call = new_call(&*orders.store.backend, 1);
    let group = GroupName::standard();
    let fates = orders.store.messages.settle_late(&orders.descriptor, FIRST, &group, &call, &settlements).await?;
    assert_eq!(fates, [LateFate::Gone, LateFate::Over]);
    for (message, call) in messages.iter().zip([&first, &second]) {
        story.forget(&call.id).await?;
        story.restore(&[set(message, call.version, &call.id)]).await?;
    }
    assert_eq!(orders.peek("acked").await?, None);
    assert!(orders.peek("stale").await?.is_some(), "its consumer was told that the ack does not count");
    Ok(())
}

#[tokio::test]
async fn returned_message_keeps_the_place_and_the_end_a_restore_gave_it() -> Result<()> {
    let story = Story::begin().await?;
    let orders = &story.orders;
    orders.push_all(&[orders.message("moved", 0)?, orders.message("settled", 0)?]).await?;
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(9)).await?;
    story.world.pass(1);
    let later = orders.message("moved", 60_000)?;
    let lost = CallId { stream: "lost".to_owned(), seq: 1 };
    story.restore(&[set(&later, story.version(), &lost), end("settled", story.version())?]).await?;
    let next_at = story.world.now();
    for message in &taken.messages {
        let retried = Retried { id: message.id.clone(), next_at, attempts: 1, failure: None };
        owner.settle(&retries(taken.reservation, retried, &[])?).await?;
    }
    let stats = orders.stats().await?;
    assert_eq!((stats.scheduled, stats.ready), (1, 0), "never early, and what is over does not come back");
    assert_eq!(orders.peek("moved").await?.map(|peeked| peeked.message.due_at), Some(later.due_at));
    assert!(orders.peek("settled").await?.is_none());
    let charge = ["HEXISTS", "{dwell:orders:0}:default:a", "settled"].map(str::to_owned);
    assert_eq!(story.world.meddle(&charge).await?, "0");
    Ok(())
}

#[tokio::test]
async fn brokers_learn_each_others_progress() -> Result<()> {
    let story = Story::begin().await?;
    let began = story.target.report("a", Progress::Busy).await?.now;
    story.world.time.advance(Duration::from_millis(70));
    let said = async |broker: &'static str, progress: Progress| -> Result<Vec<(String, bool, u64)>> {
        let reports = story.target.report(broker, progress).await?.brokers;
        let mut said: Vec<_> =
            reports.into_iter().map(|r| (r.broker, r.is_settled, r.at.as_ms() - began.as_ms())).collect();
        said.sort_unstable();
        Ok(said)
    };
    let told = |broker: &str, is_settled, at| (broker.to_owned(), is_settled, at);
    assert_eq!(said("b", Progress::Settled(began)).await?, [told("a", false, 0), told("b", true, 70)]);
    // Whoever began to offer before it was noticed that something is lost has to offer it again.
    story.world.time.advance(Duration::from_millis(10));
    let lost = story.target.report("a", Progress::Lost).await?;
    assert_eq!(lost.lost_at, lost.now);
    assert!(lost.brokers.iter().all(|report| !report.is_settled), "{lost:?}");
    assert_eq!(said("b", Progress::Settled(began)).await?, [told("a", false, 0), told("b", false, 80)]);
    assert_eq!(said("b", Progress::Settled(lost.now)).await?, [told("a", false, 0), told("b", true, 80)]);
    story.target.report("a", Progress::Gone).await?;
    assert_eq!(said("b", Progress::Look).await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn fence_reports_a_refused_message_as_not_set() -> Result<()> {
    let story = Story::begin().await?;
    let (orders, topic) = (&story.orders, &story.orders.descriptor.topic);
    orders.push("held", 0).await?;
    let mut owner = orders.owner().await?;
    owner.reserve(up_to(1)).await?;
    let call = new_call(&*orders.store.backend, 2);
    let messages = [story.other("held", 5)?, story.other("new", 5)?];
    orders.push_over_as(&call, Conflict::Replace, &messages).await?;
    assert!(!story.target.fence(topic, FIRST, &part(&call, 1)).await?);
    assert!(story.target.fence(topic, FIRST, &part(&call, 2)).await?);
    Ok(())
}

#[tokio::test]
async fn older_record_is_cancelled_despite_a_later_settled_push() -> Result<()> {
    let story = Story::begin().await?;
    let orders = &story.orders;
    orders.push("a", 0).await?;
    let (older, old) = (story.version(), story.other("a", 0)?);
    assert_eq!(orders.cancel("a").await?, [Done]);
    orders.push("a", 0).await?;
    let mut owner = orders.owner().await?;
    owner.reserve(up_to(1)).await?;
    owner.settle(&acks(&["a"])?).await?;
    assert_eq!(story.replay(Conflict::Keep, &[(1, older, &old)]).await?, [DUPLICATE]);
    Ok(())
}

#[tokio::test]
async fn call_behind_a_gap_is_never_applied() -> Result<()> {
    let story = Story::begin().await?;
    let orders = &story.orders;
    let mut call = new_call(&*orders.store.backend, 1);
    let first = orders.message("a", 0)?;
    story.push_as(&call, std::slice::from_ref(&first)).await?;
    let journal = [set(&first, call.version, &call.id)];
    story.empty().await?;
    story.forget(&call.id).await?;
    call.id.seq = 2;
    let second = [orders.message("b", 0)?];
    assert!(story.push_as(&call, &second).await.is_err());
    assert_eq!(story.restore(&journal).await?, 1);
    assert!(story.push_as(&call, &second).await.is_err(), "the producer was told that it was not applied");
    assert_eq!(orders.stats().await?.ready, 1);
    Ok(())
}

#[tokio::test]
async fn versions_of_a_call_count_duplicate_ids() -> Result<()> {
    let story = Story::begin().await?;
    let (orders, call) = (&story.orders, new_call(&*story.orders.store.backend, 3));
    let messages = [orders.message("a", 5)?, orders.message("a", 5)?, orders.message("b", 5)?];
    story.push_as(&call, &messages).await?;
    let found = orders.peek("b").await?.map(|peeked| peeked.version);
    assert_eq!(found, Some(call.version.plus(2)), "as the journal and the WAL count them");
    Ok(())
}

#[tokio::test]
async fn late_page_of_a_handed_over_log_has_no_effect() -> Result<()> {
    let story = Story::begin().await?;
    let (message, version) = (story.orders.message("m", 0)?, story.version());
    let origin = Some(CallId { stream: "wal".to_owned(), seq: 3 });
    let handed = Replayed { number: 1, version, message: message.clone(), origin };
    let losses = story.target.losses().borrow().count;
    let put = story.target.replay(&story.orders.descriptor, FIRST, "taker", Conflict::Keep, &[handed], losses).await?;
    assert_eq!(put, [STORED]);
    let mut owner = story.orders.owner().await?;
    let reserved = owner.reserve(up_to(10)).await?;
    assert_eq!(ids_of(&reserved.messages), ["m"]);
    owner.settle(&acks(&["m"])?).await?;
    // Its broker had sent it before it stopped.
    let late = story.replay(Conflict::Keep, &[(3, version, &message)]).await;
    assert_eq!(kind_of(late), Some(dwell::model::error::Kind::Stale));
    assert_eq!(story.payload_of("m").await?, None);
    Ok(())
}

#[tokio::test]
async fn record_taken_by_two_brokers_is_stored_once() -> Result<()> {
    let story = Story::begin().await?;
    let call = new_call(&*story.orders.store.backend, 1);
    assert_eq!(story.push_as(&call, &[deduped(&story, "a", (0, 60_000))?]).await?, [Pushed::Stored]);
    let origin = Some(CallId { stream: "wal".to_owned(), seq: 3 });
    let handed = Replayed { number: 1, version: story.version(), message: deduped(&story, "b", (1, 60_000))?, origin };
    let losses = story.target.losses().borrow().count;
    for taker in ["one", "two"] {
        let handed = std::slice::from_ref(&handed);
        let put = story.target.replay(&story.orders.descriptor, FIRST, taker, Conflict::Keep, handed, losses).await?;
        assert_eq!(put, [Ok(duplicate_of("a")?)], "{taker}");
    }
    Ok(())
}

/// A message that is due at once, with a dedup key whose window begins so long after the story began and lasts as long as
/// that is said to.
fn deduped(story: &Story, id: &str, (pushed_ms, window_ms): (u64, u64)) -> Result<Message> {
    let mut message = story.orders.message(id, 0)?;
    message.envelope.pushed_at = message.envelope.pushed_at.plus(Duration::from_millis(pushed_ms));
    message.envelope.dedup = Some(Dedup { key: DedupKey::new("k")?, window: Duration::from_millis(window_ms) });
    Ok(message)
}

fn duplicate_of(id: &str) -> Result<Pushed> {
    Ok(Pushed::DuplicateOf(MessageId::new(id)?))
}

#[tokio::test]
async fn logged_dedup_key_uses_its_push_time() -> Result<()> {
    let story = Story::begin().await?;
    let log = [
        deduped(&story, "before", (1_000, 4_000))?,
        deduped(&story, "meets-before", (4_999, 4_000))?,
        deduped(&story, "meets-after", (16_001, 4_000))?,
        deduped(&story, "after", (24_000, 4_000))?,
        deduped(&story, "between", (5_000, 4_000))?,
    ];
    let live = deduped(&story, "live", (20_000, 4_000))?;
    story.world.pass(20_000);
    let call = new_call(&*story.orders.store.backend, 1);
    assert_eq!(story.push_as(&call, &[live]).await?, [Pushed::Stored]);
    // An hour later the log comes.
    story.world.pass(3_600_000);
    let records: Vec<_> = (1..).zip(&log).map(|(number, message)| (number, story.version(), message)).collect();
    let (before, live) = (Ok(duplicate_of("before")?), Ok(duplicate_of("live")?));
    assert_eq!(story.replay(Conflict::Keep, &records).await?, [STORED, before, live.clone(), STORED, STORED]);
    // The journal keeps the answers: a repeat says of none that it was stored although it was not.
    let between = Ok(duplicate_of("between")?);
    assert_eq!(story.replay(Conflict::Keep, &records).await?, [STORED, between, live, STORED, STORED]);
    assert_eq!(story.orders.stats().await?.ready, 4);
    Ok(())
}

#[tokio::test]
async fn repeated_call_names_the_same_first_message() -> Result<()> {
    let story = Story::begin().await?;
    let messages =
        [deduped(&story, "dead", (0, 2_000))?, deduped(&story, "b", (0, 2_000))?, story.orders.message("c", 0)?];
    let call = new_call(&*story.orders.store.backend, messages.len());
    let first = story.push_as(&call, &messages).await?;
    assert_eq!(first, [Pushed::Stored, duplicate_of("dead")?, Pushed::Stored]);
    story.world.pass(9_000);
    assert_eq!(story.push_as(&call, &messages).await?, first);
    // Of the second message the replay finds out which one is there.
    for (at, is_set) in [(1, true), (2, false), (3, true)] {
        assert_eq!(story.target.fence(&story.orders.descriptor.topic, FIRST, &part(&call, at)).await?, is_set, "{at}");
    }
    Ok(())
}

#[tokio::test]
async fn journal_restores_dedup_keys_of_consumed_messages() -> Result<()> {
    let story = Story::begin().await?;
    let (a, call) = (deduped(&story, "a", (0, 60_000))?, new_call(&*story.orders.store.backend, 1));
    assert_eq!(story.push_as(&call, std::slice::from_ref(&a)).await?, [Pushed::Stored]);
    story.empty().await?;
    story.forget(&call.id).await?;
    assert_eq!(story.restore(&[end("a", call.version)?, set(&a, call.version, &call.id)]).await?, 0);
    assert_eq!(story.orders.stats().await?.ready, 0);
    let next = new_call(&*story.orders.store.backend, 1);
    assert_eq!(story.push_as(&next, &[deduped(&story, "b", (0, 60_000))?]).await?, [duplicate_of("a")?]);
    Ok(())
}

#[tokio::test]
async fn ended_record_keeps_its_dedup_key() -> Result<()> {
    let story = Story::begin().await?;
    let (a, version) = (deduped(&story, "a", (0, 60_000))?, story.version());
    story.restore(&[end("a", version)?]).await?;
    assert_eq!(story.replay(Conflict::Keep, &[(1, version, &a)]).await?, [DUPLICATE]);
    let call = new_call(&*story.orders.store.backend, 1);
    assert_eq!(story.push_as(&call, &[deduped(&story, "b", (0, 60_000))?]).await?, [duplicate_of("a")?]);
    Ok(())
}
