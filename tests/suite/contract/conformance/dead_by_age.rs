//! Dead letters by their age, over all partitions.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::time::Duration;

use dwell::broker::{Broker, DeadLetterFilter, DeadLetterList, Options};
use dwell::model::error::{Error, Kind, Result};
use dwell::model::limits::{CALL_BYTES_MAX, PAYLOAD_BYTES_MAX};
use dwell::model::message::{GroupName, MessageId, NewMessage, TopicName};
use dwell::model::partition::Partition;
use dwell::model::topic::Settings;
use dwell::store::{AgeOrder, DeadLetterRange, Owner};

use crate::support::{Running, TestTopic, World, buries, ids, ids_of, kind_of, member, up_to};

const LEASE: Duration = Duration::from_secs(3_600);

/// A topic `orders` and its owner, who buries what is pushed.
struct Morgue {
    running: Running,
    topic: TestTopic,
    owners: BTreeMap<Partition, Box<dyn Owner>>,
}

impl Morgue {
    async fn open(world: &World, partitions: u16) -> Result<Morgue> {
        let running = Running::start(world, Options::default())?;
        let partitions = NonZeroU16::new(partitions).unwrap_or(NonZeroU16::MIN);
        let settings = Settings { partitions, ..Settings::default() };
        let made = running.broker.declare(TopicName::new("orders")?, settings).await?;
        let topic = world.existing(made.descriptor);
        Ok(Morgue { running, topic, owners: BTreeMap::new() })
    }

    fn broker(&self) -> &Broker {
        &self.running.broker
    }

    /// A message with this id dies now.
    async fn bury(&mut self, id: &str, payload: &[u8]) -> Result<Partition> {
        let message = NewMessage::new(payload.to_vec()).id(MessageId::new(id)?);
        let pushed = self.broker().push(&TopicName::new("orders")?, message).await?;
        let partition = pushed.partition.ok_or_else(|| Error::bug("it is stored nowhere"))?;
        if !self.owners.contains_key(&partition) {
            let of_group = self.topic.descriptor.group_partition(partition, &GroupName::standard());
            self.owners.insert(partition, self.topic.acquire(&of_group, &member("owner"), LEASE).await?);
        }
        let owner = self.owners.get_mut(&partition).unwrap_or_else(|| unreachable!("it was acquired"));
        let taken = owner.reserve(up_to(1)).await?;
        assert_eq!(ids_of(&taken.messages), [id]);
        owner.settle(&buries(taken.reservation, &[id], &[])?).await?;
        Ok(partition)
    }

    async fn page(
        &self,
        (filter, order): (&DeadLetterFilter, AgeOrder),
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<DeadLetterList> {
        let (topic, group) = (TopicName::new("orders")?, GroupName::standard());
        let page = self.broker().dead_by_age(&topic, &group, filter, order, cursor, limit).await?;
        assert!(page.dead.len() <= limit);
        Ok(page)
    }

    /// The ids of all pages.
    async fn all(&self, filter: &DeadLetterFilter, order: AgeOrder, limit: usize) -> Result<Vec<String>> {
        let (mut found, mut cursor) = (Vec::new(), None);
        loop {
            let page = self.page((filter, order), cursor.as_deref(), limit).await?;
            found.extend(names(&page));
            cursor = page.next;
            if cursor.is_none() {
                return Ok(found);
            }
        }
    }
}

fn names(page: &DeadLetterList) -> Vec<String> {
    page.dead.iter().map(|(_, dead)| dead.id.to_string()).collect()
}

fn any() -> DeadLetterFilter {
    DeadLetterFilter::default()
}

/// The ids `m000`, `m001` and so on.
fn numbered(count: impl IntoIterator<Item = usize>) -> Vec<String> {
    count.into_iter().map(|n| format!("m{n:03}")).collect()
}

pub(super) async fn dead_letters_of_a_partition_are_read_in_both_orders(world: World) -> Result<()> {
    let mut morgue = Morgue::open(&world, 1).await?;
    for id in ["b", "a"] {
        morgue.bury(id, b"x").await?;
    }
    world.pass(5);
    for id in ["d", "c"] {
        morgue.bury(id, b"a longer one").await?;
    }
    let dead_letters = &morgue.topic.store.dead_letters;
    let partition = morgue.topic.group_partition();
    for (order, expected) in [(AgeOrder::OldestFirst, "abcd"), (AgeOrder::NewestFirst, "dcba")] {
        for limit in 1..=5 {
            let (mut found, mut after) = (String::new(), None);
            loop {
                let range = DeadLetterRange { partition: partition.clone(), order, after, limit };
                let page = dead_letters.dead_by_age(&range).await?;
                page.dead.iter().for_each(|dead| found += dead.id.as_str());
                // An outline is the same without its record and its body.
                let unknown = DeadLetterRange { partition: morgue.topic.partition_of("unknown")?, ..range.clone() };
                let outlines = dead_letters.dead_outlines(&[unknown, range]).await?;
                assert_eq!((outlines.len(), outlines[0].dead.len(), &outlines[0].next), (2, 0, &None));
                let seen: Vec<_> = outlines[1].dead.iter().map(|outline| (&outline.id, outline.died_at)).collect();
                let whole: Vec<_> = page.dead.iter().map(|dead| (&dead.id, dead.died_at)).collect();
                assert_eq!((seen, &outlines[1].next), (whole, &page.next));
                assert!(outlines[1].dead.iter().all(|outline| outline.bytes > 0));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(found, expected, "pages of {limit}");
        }
    }
    // The page behind one that is gone begins at the same place.
    let newest = DeadLetterRange { partition: partition.clone(), order: AgeOrder::NewestFirst, after: None, limit: 2 };
    let oldest = DeadLetterRange { order: AgeOrder::OldestFirst, ..newest.clone() };
    let ends = [dead_letters.dead_by_age(&newest).await?.next, dead_letters.dead_by_age(&oldest).await?.next];
    assert_eq!(dead_letters.purge(&partition, &ids(&["b", "c"])?).await?.iter().flatten().count(), 2);
    for (range, after, left) in [(newest, &ends[0], "a"), (oldest, &ends[1], "d")] {
        let rest = dead_letters.dead_by_age(&DeadLetterRange { after: after.clone(), ..range }).await?;
        assert_eq!((rest.dead.len(), rest.dead[0].id.as_str(), rest.next), (1, left, None));
    }
    Ok(())
}

pub(super) async fn dead_letters_by_age_merge_the_partitions(world: World) -> Result<()> {
    let mut morgue = Morgue::open(&world, 70).await?;
    for id in numbered(0..150) {
        morgue.bury(&id, b"x").await?;
        world.pass(1);
    }
    let oldest = numbered(0..150);
    let newest: Vec<_> = oldest.iter().rev().cloned().collect();
    for limit in [1_000, 64, 7] {
        assert_eq!(morgue.all(&any(), AgeOrder::OldestFirst, limit).await?, oldest, "pages of {limit}");
        assert_eq!(morgue.all(&any(), AgeOrder::NewestFirst, limit).await?, newest, "pages of {limit}");
    }
    Ok(())
}

pub(super) async fn equal_deaths_are_listed_once_by_partition(world: World) -> Result<()> {
    let mut morgue = Morgue::open(&world, 5).await?;
    for (n, id) in numbered(0..40).into_iter().enumerate() {
        morgue.bury(&id, b"x").await?;
        world.pass(u64::from(n == 19));
    }
    for order in [AgeOrder::OldestFirst, AgeOrder::NewestFirst] {
        let whole = morgue.page((&any(), order), None, 1_000).await?;
        let places: Vec<_> = whole.dead.iter().map(|(partition, dead)| (dead.died_at, *partition)).collect();
        let first = if order == AgeOrder::OldestFirst { places[0].0 } else { places[39].0 };
        assert!(places.iter().filter(|(at, _)| *at == first).is_sorted(), "{places:?}");
        let mut sorted = names(&whole);
        sorted.sort();
        assert_eq!(sorted, numbered(0..40));
        for limit in [1, 4, 19, 20, 39, 40] {
            assert_eq!(morgue.all(&any(), order, limit).await?, names(&whole), "{order:?}, pages of {limit}");
        }
    }
    Ok(())
}

pub(super) async fn dead_letter_pages_by_age_are_stable_under_changes(world: World) -> Result<()> {
    for order in [AgeOrder::OldestFirst, AgeOrder::NewestFirst] {
        let prefix = if order == AgeOrder::OldestFirst { "old" } else { "new" };
        let mut morgue = Morgue::open(&world, 4).await?;
        let mut expected = Vec::new();
        for n in 0..40 {
            let id = format!("{prefix}-{n:02}");
            morgue.bury(&id, prefix.as_bytes()).await?;
            world.pass(n % 2);
            expected.push(id);
        }
        let filter = DeadLetterFilter { text: Some(prefix.to_owned()), ..any() };
        let (mut found, mut cursor, mut pages) = (Vec::new(), None::<String>, 0);
        loop {
            let page = morgue.page((&filter, order), cursor.as_deref(), 6).await?;
            found.extend(names(&page));
            cursor = page.next;
            pages += 1;
            if cursor.is_none() {
                break;
            }
            // What dies meanwhile is not in the list, and what was listed may be gone: also the one at which the page ended.
            world.pass(1);
            morgue.bury(&format!("{prefix}-late-{pages}"), prefix.as_bytes()).await?;
            let last = found.last().cloned().unwrap_or_default();
            morgue.broker().purge(&TopicName::new("orders")?, &GroupName::standard(), Some(&ids(&[&last])?)).await?;
        }
        found.sort();
        assert_eq!(found, expected, "{order:?}: each is listed once");
    }
    Ok(())
}

pub(super) async fn a_filter_bounds_dead_letters_by_age(world: World) -> Result<()> {
    let mut morgue = Morgue::open(&world, 3).await?;
    for n in 0..20 {
        morgue.bury(&format!("m{n:03}"), if n % 5 == 0 { b"fifth" } else { b"other" }).await?;
        world.pass(1_000);
    }
    let seconds = |seconds: u64| Some(Duration::from_secs(seconds));
    let between = DeadLetterFilter { older_than: seconds(5), younger_than: seconds(10), ..any() };
    let fifth = DeadLetterFilter { text: Some("fifth".to_owned()), ..any() };
    let cases = [(between, numbered(10..=15)), (fifth, numbered([0, 5, 10, 15]))];
    for (filter, oldest) in cases {
        let newest: Vec<_> = oldest.iter().rev().cloned().collect();
        for limit in [100, 6, 3, 1] {
            assert_eq!(morgue.all(&filter, AgeOrder::OldestFirst, limit).await?, oldest, "{filter:?} by {limit}");
            assert_eq!(morgue.all(&filter, AgeOrder::NewestFirst, limit).await?, newest, "{filter:?} by {limit}");
        }
    }
    Ok(())
}

pub(super) async fn page_of_dead_letters_by_age_is_bounded_by_bytes(world: World) -> Result<()> {
    let mut morgue = Morgue::open(&world, 3).await?;
    let large = vec![b'x'; PAYLOAD_BYTES_MAX];
    for id in numbered(0..9) {
        morgue.bury(&id, &large).await?;
        world.pass(1);
    }
    let first = morgue.page((&any(), AgeOrder::NewestFirst), None, 9).await?;
    assert!(first.dead.len() <= CALL_BYTES_MAX / PAYLOAD_BYTES_MAX && first.next.is_some());
    assert_eq!(morgue.all(&any(), AgeOrder::NewestFirst, 9).await?, numbered((0..9).rev()));
    Ok(())
}

pub(super) async fn dead_letters_by_age_refuse_the_cursor_of_another_order(world: World) -> Result<()> {
    let mut morgue = Morgue::open(&world, 2).await?;
    for id in numbered(0..4) {
        morgue.bury(&id, b"x").await?;
    }
    let (topic, group) = (TopicName::new("orders")?, GroupName::standard());
    let by_partition = morgue.broker().dead(&topic, &group, None, 1).await?.next;
    let newest = morgue.page((&any(), AgeOrder::NewestFirst), None, 1).await?.next;
    assert!(by_partition.is_some() && newest.is_some());
    for wrong in [&by_partition, &newest] {
        let refused = morgue.page((&any(), AgeOrder::OldestFirst), wrong.as_deref(), 1).await;
        assert_eq!(kind_of(refused), Some(Kind::Invalid));
    }
    let refused = morgue.broker().dead(&topic, &group, newest.as_deref(), 1).await;
    assert_eq!(kind_of(refused), Some(Kind::Invalid));
    Ok(())
}
