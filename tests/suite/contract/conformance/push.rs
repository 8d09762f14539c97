use std::time::Duration;

use bytes::Bytes;
use dwell::model::error::{Error, Result};
use dwell::model::last_error::LastError;
use dwell::model::limits::{CALL_IDS_MAX, ID_BYTES_MAX, META_BYTES_MAX, PAYLOAD_BYTES_MAX};
use dwell::model::message::{
    Conflict, DeadLetterSource, Dedup, DedupKey, Due, Envelope, GroupName, Key, Message, MessageId, NewMessage,
    TopicName,
};
use dwell::model::partition::Partition;
use dwell::model::time::Timestamp;
use dwell::model::trace::TraceContext;
use dwell::store::{PushVerdict, Pushed, Settlement, StoredDuplicate};

use crate::support::{LEASE, TestTopic, World, acks, buries, ids, ids_of, member, up_to};

pub(super) async fn every_message_gets_its_own_result(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push("b", 0).await?;
    let batch = [orders.message("a", 5)?, orders.message("b", 5)?, orders.message("c", 5)?, orders.message("a", 9)?];
    use Pushed::{Duplicate, Stored};
    assert_eq!(orders.push_all(&batch).await?, [Stored, Duplicate, Stored, Duplicate]);
    assert_eq!(orders.push_all(&[]).await?, []);
    assert_eq!(orders.peek("a").await?.and_then(|a| a.next_at), Some(batch[0].due_at));
    Ok(())
}

pub(super) async fn existing_id_is_a_duplicate_in_every_state(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let mut other = orders.message("a", 99_000)?;
    other.envelope.payload = Bytes::from_static(b"another payload");
    let again = [other];
    let repeat = async || -> Result<()> {
        let before = (orders.peek("a").await?, orders.stats().await?);
        assert_eq!(orders.push_all(&again).await?, [Pushed::Duplicate]);
        assert_eq!((orders.peek("a").await?, orders.stats().await?), before);
        Ok(())
    };
    orders.push("a", 10).await?;
    repeat().await?; // scheduled
    world.pass(10);
    repeat().await?; // ready
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(1)).await?;
    repeat().await?; // in flight
    owner.settle(&buries(taken.reservation, &["a"], &[])?).await?;
    repeat().await?; // dead
    Ok(())
}

/// Messages of one content with all that may travel beside it, each in another form of a body.
fn of_all_forms(orders: &TestTopic) -> Result<Vec<Message>> {
    let source = DeadLetterSource {
        topic: TopicName::new("orders")?,
        group: GroupName::standard(),
        id: MessageId::new("s")?,
        reason: "buried".to_owned(),
        attempts: 300,
        died_at: Timestamp::from_ms(1_767_323_045_678),
        last_error: Some(LastError::new(Some("Smtp".into()), "451".into(), Some("at send\n".into()))),
        hops: 2,
    };
    let trace = TraceContext::new([7; 16], [8; 8], 1, Some("vendor=value"))?;
    let header = |envelope: &mut Envelope| {
        envelope.expires_at = Some(Timestamp::from_ms(4_102_444_800_000));
        envelope.max_attempts = Some(70_000);
        envelope.content_type = Some("text/plain; charset=utf-8".to_owned());
        envelope.meta = vec![("a".repeat(300), "é".to_owned()), ("empty".to_owned(), String::new())];
    };
    let dedup =
        |key: &str| -> Result<_> { Ok(Some(Dedup { key: DedupKey::new(key)?, window: Duration::from_secs(3_600) })) };
    let (source, attachment) = (Some(Box::new(source)), Bytes::from(vec![9; 300]));
    let mut all = (0..9).map(|n| orders.message(&format!("form{n}"), 50_000)).collect::<Result<Vec<_>>>()?;
    for (n, message) in all.iter_mut().enumerate() {
        let envelope = &mut message.envelope;
        match n {
            0 => {}
            1 => envelope.max_attempts = Some(3),
            2 => envelope.priority = 5,
            3 => envelope.trace = Some(trace.clone()),
            4 => envelope.attachment = attachment.clone(),
            5 => (envelope.dedup, envelope.dead_letter_source) = (dedup("five")?, source.clone()),
            6 => header(envelope),
            7 => {
                header(envelope);
                (envelope.dedup, envelope.trace) = (dedup("seven")?, Some(trace.clone()));
            }
            _ => {
                header(envelope);
                (envelope.trace, envelope.dead_letter_source) = (Some(trace.clone()), source.clone());
                (envelope.priority, envelope.attachment) = (9, attachment.clone());
            }
        }
    }
    Ok(all)
}

pub(super) async fn duplicate_says_what_is_there(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let verdict = async |message: &Message| -> Result<PushVerdict> {
        let call = crate::support::new_call(&*orders.store.backend, 1);
        let messages = std::slice::from_ref(message);
        let push = orders.store.messages.push(&orders.descriptor, Partition(0), &call, Conflict::Keep, messages);
        push.await?.pop().ok_or_else(|| Error::bug("a push without a verdict"))
    };
    let there = |stored: &Message, is_same_key, is_same_content| PushVerdict {
        pushed: Ok(Pushed::Duplicate),
        there: Some(StoredDuplicate { due_at: stored.due_at, is_same_key, is_same_content }),
        bounded: None,
    };
    for stored in of_all_forms(&orders)? {
        assert_eq!(verdict(&stored).await?, Pushed::Stored.into());
        let mut pushed = orders.message(stored.id.as_str(), 70_000)?;
        (pushed.envelope.attachment, pushed.envelope.priority) = (stored.envelope.attachment.clone(), 1);
        assert_eq!(verdict(&pushed).await?, there(&stored, true, true), "{stored:?}");
        // A part of what is there, more than that, and the same bytes cut in another place.
        let payload = stored.envelope.payload.clone();
        for other in [payload.slice(1..), [&payload[..], b"+"].concat().into(), Bytes::new()] {
            pushed.envelope.payload = other;
            assert_eq!(verdict(&pushed).await?, there(&stored, true, false), "{stored:?}");
        }
        pushed.envelope.payload = [&stored.envelope.attachment[..], &payload].concat().into();
        pushed.envelope.attachment = Bytes::new();
        let is_same = stored.envelope.attachment.is_empty();
        assert_eq!(verdict(&pushed).await?, there(&stored, true, is_same), "{stored:?}");
        pushed.envelope.key = Some(Key::new("another")?);
        assert!(verdict(&pushed).await?.there.is_some_and(|there| !there.is_same_key), "{stored:?}");
    }
    // One that was moved says its new due time, a dead one its last, and one that was settled none.
    for (number, id) in ["moved", "dead", "settled"].into_iter().enumerate() {
        orders.push(id, 10 * number as u64).await?;
    }
    world.pass(1_000);
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(3)).await?;
    let dead_due = orders.peek("dead").await?.ok_or_else(|| Error::bug("lost"))?.message.due_at;
    let dedup_window = Duration::from_secs(60);
    let settlement =
        Settlement { acked: ids(&["settled"])?, dedup_window, ..buries(taken.reservation, &["dead"], &["moved"])? };
    owner.settle(&settlement).await?;
    let returned = orders.peek("moved").await?.ok_or_else(|| Error::bug("lost"))?.message.due_at;
    for (id, due_at) in [("moved", Some(returned)), ("dead", Some(dead_due)), ("settled", None)] {
        let found = verdict(&orders.message(id, 99_000)?).await?;
        assert_eq!((found.pushed, found.there.map(|there| there.due_at)), (Ok(Pushed::Duplicate), due_at), "{id}");
    }
    Ok(())
}

pub(super) async fn settled_id_is_a_duplicate_within_the_dedup_window(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let mut owner = orders.owner().await?;
    for window_ms in [1_000, 2_000] {
        assert_eq!(orders.push("a", 0).await?, Pushed::Stored);
        let taken = owner.reserve(up_to(1)).await?;
        let dedup_window = Duration::from_millis(window_ms);
        let remaining = vec![(taken.reservation, vec![])];
        owner.settle(&Settlement { acked: ids(&["a"])?, remaining, dedup_window, ..Settlement::default() }).await?;
        assert_eq!(orders.push("a", 0).await?, Pushed::Duplicate);
        world.pass(window_ms - 1);
        assert_eq!(orders.push("a", 0).await?, Pushed::Duplicate);
        world.pass(1);
    }
    assert_eq!(orders.push("a", 0).await?, Pushed::Stored);
    Ok(())
}

pub(super) async fn groups_of_a_partition_share_the_dedup_window(world: World) -> Result<()> {
    let orders = world.topic_with_groups("orders", &["default", "audit"]).await?;
    orders.push("a", 0).await?;
    for group in ["default", "audit"] {
        let mut owner = orders.acquire(&orders.partition_of(group)?, &member("m"), LEASE).await?;
        assert_eq!(ids_of(&owner.reserve(up_to(9)).await?.messages), ["a"]);
        let dedup_window = Duration::from_millis(100);
        owner.settle(&Settlement { dedup_window, ..acks(&["a"])? }).await?;
        world.pass(60);
        // In the window of the last group that settled it, though the first one's has ended.
        assert_eq!(orders.push("a", 0).await?, Pushed::Duplicate);
    }
    world.pass(40);
    assert_eq!(orders.push("a", 0).await?, Pushed::Stored);
    Ok(())
}

pub(super) async fn one_push_reaches_every_group(world: World) -> Result<()> {
    let groups = ["default", "audit", "billing"];
    let orders = world.topic_with_groups("orders", &groups).await?;
    orders.push_all(&[orders.message("a", 0)?, orders.message("b", 0)?]).await?;
    for group in groups {
        let mut owner = orders.acquire(&orders.partition_of(group)?, &member("m"), LEASE).await?;
        assert_eq!(ids_of(&owner.reserve(up_to(9)).await?.messages), ["a", "b"], "{group}");
    }
    Ok(())
}

pub(super) async fn id_in_one_group_is_a_duplicate_for_all_groups(world: World) -> Result<()> {
    let orders = world.topic_with_groups("orders", &["default", "audit"]).await?;
    orders.push("a", 0).await?;
    let mut owner = orders.owner().await?;
    owner.reserve(up_to(1)).await?;
    owner.settle(&acks(&["a"])?).await?;
    assert_eq!(orders.push("a", 0).await?, Pushed::Duplicate);
    assert_eq!(orders.stats().await?.ready, 0);
    assert_eq!(orders.stats_of(&orders.partition_of("audit")?).await?.ready, 1);
    Ok(())
}

pub(super) async fn pushed_message_is_returned_unchanged(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let every_byte: Vec<u8> = (0..=255).cycle().take(10_000).collect();
    let payloads: [&[u8]; 4] = [b"", b"\0", "naïve 東京 🚀".as_bytes(), &every_byte];
    let mut pushed = Vec::new();
    for (number, payload) in payloads.into_iter().enumerate() {
        let mut new = NewMessage::new(Bytes::copy_from_slice(payload));
        new.id = Some(MessageId::new(format!("{number}{}", "~".repeat(ID_BYTES_MAX - 1)))?);
        new.key = Some(Key::new("clé/東京/🚀")?);
        new.content_type = Some("text/plain; charset=utf-8".into());
        new.meta = vec![("trace".into(), "é\u{2028}".into()), ("empty".into(), String::new())];
        new.ttl = Some(Duration::from_secs(60));
        new.max_attempts = Some(3);
        pushed.push(new.accept(world.now())?);
    }
    orders.push_all(&pushed).await?;
    assert_eq!(reserved(&orders).await?, pushed);
    Ok(())
}

pub(super) async fn largest_message_is_returned_unchanged(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let mut new = NewMessage::new((0..PAYLOAD_BYTES_MAX).map(|n| (n / 3) as u8).collect::<Vec<_>>());
    new.meta = vec![("m".into(), "v".repeat(META_BYTES_MAX - 1))];
    new.due = Due::In(Duration::ZERO);
    let pushed = [new.accept(world.now())?];
    assert_eq!(orders.push_all(&pushed).await?, [Pushed::Stored]);
    assert_eq!(reserved(&orders).await?, pushed);
    let id = pushed[0].id.as_str();
    let mut owner = orders.owner().await?;
    orders.recover(&mut owner).await?;
    let taken = owner.reserve(up_to(1)).await?;
    owner.settle(&buries(taken.reservation, &[id], &[])?).await?;
    let dead = world.store.dead_letters.dead(&orders.group_partition(), None, 1).await?.dead;
    assert_eq!(dead.into_iter().map(|dead| dead.message).collect::<Result<Vec<_>>>()?, pushed);
    Ok(())
}

pub(super) async fn push_accepts_at_most_a_thousand_messages(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let all: Vec<Message> = (0..=CALL_IDS_MAX).map(|n| orders.message(&n.to_string(), 0)).collect::<Result<_>>()?;
    assert!(orders.push_all(&all).await.is_err());
    assert_eq!(orders.stats().await?.ready, 0);
    assert_eq!(orders.push_all(&all[1..]).await?, vec![Pushed::Stored; CALL_IDS_MAX]);
    assert_eq!(orders.stats().await?.ready, CALL_IDS_MAX as u64);
    Ok(())
}

/// What a new owner gets if it reserves all there is.
async fn reserved(orders: &TestTopic) -> Result<Vec<Message>> {
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(1_000)).await?;
    taken.messages.into_iter().map(|reserved| reserved.message).collect()
}
