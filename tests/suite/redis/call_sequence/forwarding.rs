//! Dead letters on their way to another topic: a reply is lost, an owner dies half-way, a copy arrives late.

use std::num::NonZeroU16;

use dwell::model::error::{Error, Result};
use dwell::model::message::{GroupName, TopicName};
use dwell::model::partition::Partition;
use dwell::model::topic::{Descriptor, Settings};
use dwell::store::{Forward, Forwarded, MessageState, Purge, Pushed};

use super::OrderedTopics;
use crate::support::{Strike, TestTopic, acks, buries, eventually, ids, ids_of, new_call, up_to};

/// In a call that stages, and in no other: where the page goes.
const STAGE: &str = "orders-dead 1";
/// In a call that stores, and in no other: the payload.
const STORE: &str = "refund 4711";
/// In a call that ends a page, and in no other: two keys and the number of the page.
const GIVE_BACK: &str = ":default:f\r\n$20\r\n{dwell:orders:0}:gen\r\n$16\r\n";

struct Forwarding {
    behind: OrderedTopics,
    to: TestTopic,
}

impl Forwarding {
    /// A dead letter `a`, and a topic for it.
    async fn start() -> Result<Forwarding> {
        let behind = OrderedTopics::start().await?;
        let settings = Settings { partitions: NonZeroU16::MIN, ..Settings::default() };
        let wanted = Descriptor::new(TopicName::new("orders-dead")?, settings);
        let descriptor = behind.world.store.topics.create(&wanted).await?;
        let to = TestTopic { descriptor, ..behind.orders.clone() };
        let forwarding = Forwarding { behind, to };
        forwarding.bury().await?;
        Ok(forwarding)
    }

    async fn bury(&self) -> Result<()> {
        let orders = &self.behind.orders;
        let mut message = orders.message("a", 0)?;
        message.envelope.payload = STORE.into();
        orders.push_all(&[message]).await?;
        let mut owner = orders.owner().await?;
        let taken = owner.reserve(up_to(1)).await?;
        owner.settle(&buries(taken.reservation, &["a"], &[])?).await
    }

    async fn forward(&self) -> Result<Forward> {
        let orders = &self.behind.orders;
        orders.store.dead_letters.forward(&orders.group_partition(), Some(&self.to.descriptor), &ids(&["a"])?).await
    }

    async fn forwarded(&self, page: &Forwarded) -> Result<()> {
        let orders = &self.behind.orders;
        orders.store.dead_letters.forwarded(&orders.group_partition(), page).await
    }

    /// Forwards until there is nothing more.
    async fn finish(&self) -> Result<()> {
        while let Forward::Done(page) = self.forward().await? {
            self.forwarded(&page).await?;
        }
        Ok(())
    }

    /// A consumer of the dead-letter topic gets `a` once it is due.
    async fn gets_a(&self) -> Result<()> {
        let got =
            eventually("a dead letter", async || Ok(Some(self.consume().await?).filter(|got| !got.is_empty()))).await?;
        assert_eq!(got, ["a"]);
        Ok(())
    }

    /// A consumer of the dead-letter topic gets what is there.
    async fn consume(&self) -> Result<Vec<String>> {
        let mut owner = self.to.owner().await?;
        let taken = owner.reserve(up_to(9)).await?;
        let ids = ids_of(&taken.messages);
        owner.settle(&acks(&ids)?).await?;
        Ok(ids.into_iter().map(str::to_owned).collect())
    }
}

#[tokio::test]
async fn dead_letter_is_forwarded_once_despite_a_lost_call() -> Result<()> {
    for strike in [Strike::Reply, Strike::Request] {
        for text in [STAGE, STORE] {
            let forwarding = Forwarding::start().await?;
            forwarding.behind.proxy.next_with(strike, text);
            assert!(forwarding.forward().await.is_err_and(|error| error.is_outage()), "{strike:?} {text}");
            forwarding.behind.proxy.struck()?;
            // What was stored may be consumed before it is forwarded again.
            let got = forwarding.consume().await?;
            forwarding.finish().await?;
            match got.is_empty() {
                true => forwarding.gets_a().await?,
                false => assert_eq!(got, ["a"], "{strike:?} {text}"),
            }
            assert_eq!(forwarding.consume().await?, Vec::<String>::new(), "{strike:?} {text}");
            assert_eq!(forwarding.behind.orders.stats().await?.dead, 0);
        }
        let forwarding = Forwarding::start().await?;
        let Forward::Done(page) = forwarding.forward().await? else { return Err(Error::not_found("a page")) };
        forwarding.behind.proxy.next(strike);
        assert!(forwarding.forwarded(&page).await.is_err(), "{strike:?}");
        forwarding.gets_a().await?;
        forwarding.finish().await?;
        assert_eq!(forwarding.consume().await?, Vec::<String>::new());
    }
    Ok(())
}

#[tokio::test]
async fn page_of_a_former_owner_is_completed_after_forwarding_ends() -> Result<()> {
    let forwarding = Forwarding::start().await?;
    forwarding.behind.proxy.next_with(Strike::Request, STORE);
    assert!(forwarding.forward().await.is_err());
    let (orders, to) = (&forwarding.behind.orders, &forwarding.to.descriptor);
    let left = orders.store.dead_letters.forward(&orders.group_partition(), None, &[]).await?;
    let Forward::Elsewhere { topic, incarnation, page } = left else { return Err(Error::not_found("a page")) };
    assert_eq!((&topic, incarnation, &page.refused), (&to.topic, to.incarnation, &ids(&["a"])?));
    forwarding.finish().await?;
    forwarding.gets_a().await
}

/// A dead letter is in its list until it is in the other topic, and its id is taken all the while.
#[tokio::test]
async fn dead_letter_on_its_way_is_listed_and_counted() -> Result<()> {
    let forwarding = Forwarding::start().await?;
    forwarding.behind.proxy.next_with(Strike::Request, STORE);
    assert!(forwarding.forward().await.is_err());
    let orders = &forwarding.behind.orders;
    let is_there = async || {
        let dead = orders.store.dead_letters.dead(&orders.group_partition(), None, 9).await?.dead;
        assert_eq!(dead.iter().map(|dead| dead.id.as_str()).collect::<Vec<_>>(), ["a"]);
        assert_eq!(orders.stats().await?.dead, 1);
        assert!(orders.peek("a").await?.is_some_and(|peeked| matches!(peeked.state, MessageState::Dead { .. })));
        assert_eq!(orders.push("a", 0).await?, Pushed::Duplicate);
        Ok::<_, Error>(())
    };
    is_there().await?;
    let left = orders.store.dead_letters.forward(&orders.group_partition(), None, &[]).await?;
    let Forward::Elsewhere { page, .. } = left else { return Err(Error::not_found("a page")) };
    for _ in 0..2 {
        forwarding.forwarded(&page).await?;
        is_there().await?;
    }
    forwarding.finish().await?;
    forwarding.gets_a().await?;
    assert_eq!(orders.stats().await?.dead, 0);
    Ok(())
}

/// It is redriven or purged once, and the other topic does not get it.
#[tokio::test]
async fn dead_letter_on_its_way_is_called_back_before_it_is_redriven_or_purged() -> Result<()> {
    for redrives in [true, false] {
        let forwarding = Forwarding::start().await?;
        forwarding.behind.proxy.next_with(Strike::Request, STORE);
        assert!(forwarding.forward().await.is_err());
        let copy = forwarding.behind.proxy.struck()?;
        let orders = &forwarding.behind.orders;
        let (partition, dead) = (orders.group_partition(), ids(&["a"])?);
        match redrives {
            true => assert_eq!(orders.store.dead_letters.redrive(&partition, &dead).await?, [true]),
            false => assert!(orders.store.dead_letters.purge(&partition, &dead).await?[0].is_some()),
        }
        forwarding.behind.proxy.deliver(&copy).await?;
        forwarding.finish().await?;
        assert_eq!(forwarding.consume().await?, Vec::<String>::new());
        assert_eq!((orders.stats().await?.dead, orders.stats().await?.ready), (0, u64::from(redrives)));
    }
    Ok(())
}

#[tokio::test]
async fn late_copy_of_a_forward_page_stores_nothing() -> Result<()> {
    let forwarding = Forwarding::start().await?;
    forwarding.behind.proxy.next_with(Strike::Copy, STORE);
    forwarding.finish().await?;
    let copy = forwarding.behind.proxy.struck()?;
    forwarding.gets_a().await?;
    forwarding.behind.proxy.deliver(&copy).await?;
    assert_eq!(forwarding.consume().await?, Vec::<String>::new());
    Ok(())
}

/// A purge of the dead letters, with what is on its way; answers how many there were.
async fn purge(orders: &TestTopic) -> Result<u64> {
    let purge = Purge { group: GroupName::standard(), dead_letters: true };
    let call = new_call(&*orders.store.backend, 1);
    Ok(orders.store.messages.purge_group(&orders.descriptor, Partition(0), &call, &purge).await?.dead_letters)
}

#[tokio::test]
async fn purge_includes_dead_letters_being_forwarded() -> Result<()> {
    let forwarding = Forwarding::start().await?;
    forwarding.behind.proxy.next_with(Strike::Request, STORE);
    assert!(forwarding.forward().await.is_err());
    let copy = forwarding.behind.proxy.struck()?;
    let orders = &forwarding.behind.orders;
    assert_eq!(purge(orders).await?, 1);
    forwarding.finish().await?;
    assert_eq!(forwarding.consume().await?, Vec::<String>::new());
    // Later dead letters are forwarded.
    forwarding.bury().await?;
    forwarding.finish().await?;
    forwarding.gets_a().await?;
    let answer = forwarding.behind.proxy.deliver(&copy).await?;
    assert!(answer.contains("CLOSED"), "{answer}");
    assert_eq!(forwarding.consume().await?, Vec::<String>::new());
    assert_eq!((purge(orders).await?, orders.stats().await?.dead), (0, 0));
    Ok(())
}

#[tokio::test]
async fn purge_does_not_count_forwarded_dead_letters() -> Result<()> {
    let forwarding = Forwarding::start().await?;
    forwarding.behind.proxy.next_with(Strike::Reply, STORE);
    assert!(forwarding.forward().await.is_err());
    forwarding.behind.proxy.struck()?;
    assert_eq!(purge(&forwarding.behind.orders).await?, 0);
    forwarding.finish().await?;
    forwarding.gets_a().await?;
    assert_eq!(forwarding.behind.orders.stats().await?.dead, 0);
    Ok(())
}

#[tokio::test]
async fn recalled_page_that_is_not_purged_is_forwarded_once() -> Result<()> {
    let forwarding = Forwarding::start().await?;
    forwarding.behind.proxy.next_with(Strike::Request, STORE);
    assert!(forwarding.forward().await.is_err());
    let copy = forwarding.behind.proxy.struck()?;
    let orders = &forwarding.behind.orders;
    // The purge closes the other topic to the page, and dies before it takes the page.
    forwarding.behind.proxy.next_with(Strike::Request, GIVE_BACK);
    assert!(purge(orders).await.is_err());
    forwarding.behind.proxy.struck()?;
    let Forward::Done(page) = forwarding.forward().await? else { return Err(Error::not_found("a page")) };
    assert_eq!((page.messages.len(), &page.refused), (0, &ids(&["a"])?));
    forwarding.forwarded(&page).await?;
    assert_eq!(orders.stats().await?.dead, 1);
    forwarding.finish().await?;
    forwarding.gets_a().await?;
    forwarding.behind.proxy.deliver(&copy).await?;
    assert_eq!(forwarding.consume().await?, Vec::<String>::new());
    Ok(())
}
