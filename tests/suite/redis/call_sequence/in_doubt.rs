//! Calls that Redis applied and never answered, of an owner that is none any more.

use std::time::Duration;

use dwell::delivery::{Decision, StaleReason, Verdict};
use dwell::model::error::{Error, Kind, Result};
use dwell::store::{Acquired, Owner};
use futures_util::future::join;

use super::OrderedTopics;
use crate::support::{LEASE, Mode, Strike, World, acks, eventually, kind_of, member, up_to};

/// What only a settlement contains, after the pushes.
const OF_SETTLE: &str = "{dwell:orders:0}:default:n";

/// Another member beside the proxy.
struct Other(World);

impl Other {
    async fn beside(behind: &OrderedTopics) -> Result<Other> {
        Ok(Other(World::redis_at(behind.server.url(), Duration::from_secs(1)).await?))
    }

    /// Takes the partition over as soon as its lease has lapsed.
    async fn take_over(&self, behind: &OrderedTopics) -> Result<Box<dyn Owner>> {
        let (partition, generation) = (behind.orders.group_partition(), behind.orders.descriptor.generation);
        eventually("the lease lapses", async || {
            match self.0.store.leases.acquire(&partition, &member("other"), LEASE, generation).await? {
                Acquired::Owned(owner) => Ok(Some(owner)),
                Acquired::Held { .. } => Ok(None),
            }
        })
        .await
    }
}

#[tokio::test]
async fn applied_settlement_without_a_reply_is_not_stale() -> Result<()> {
    let nack = Decision::Nack { delay: None, reason: None };
    // With each, how many messages are alive afterwards, and how many dead.
    for (decision, counts) in [(Decision::Ack, (1, 0)), (nack, (2, 0)), (Decision::Bury { reason: None }, (1, 1))] {
        let behind = OrderedTopics::start().await?;
        let other = Other::beside(&behind).await?;
        behind.push(&["a", "b"]).await?;
        let shop = behind.shop()?;
        let (sent, unsent) = (shop.reserve(1).await?.remove(0), shop.reserve(1).await?.remove(0));
        behind.proxy.next_with(Strike::Outage, OF_SETTLE);
        let meanwhile = async {
            behind.proxy.refuses().await?;
            let taken_over = async {
                let owner = other.take_over(&behind).await?;
                behind.proxy.set(Mode::Pass);
                Ok::<_, Error>(owner)
            };
            let (unsent, owner) = join(shop.ack(&unsent), taken_over).await;
            Ok::<_, Error>((unsent?, owner?))
        };
        let (sent, meanwhile) = join(shop.settle(&sent, decision.clone()), meanwhile).await;
        let (unsent, mut owner) = meanwhile?;
        assert_eq!(
            (sent?, unsent),
            (Verdict::UnknownOutcome, Verdict::Stale(StaleReason::LostPartition)),
            "{decision:?}"
        );
        behind.orders.recover(&mut owner).await?;
        let stats = behind.orders.stats().await?;
        assert_eq!((stats.scheduled + stats.ready, stats.dead), counts, "{decision:?}");
        let text = shop.broker().metrics().text()?;
        for outcome in ["stale", "unknown_outcome"] {
            let series = format!("dwell_settled_total{{group=\"default\",outcome=\"{outcome}\",topic=\"orders\"}} 1");
            assert!(text.contains(&series), "{series}\n{text}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn call_is_in_doubt_only_if_a_sent_copy_got_no_reply() -> Result<()> {
    for is_sent in [true, false] {
        let behind = OrderedTopics::start().await?;
        let other = Other::beside(&behind).await?;
        behind.push(&["a"]).await?;
        let mut owner =
            behind.orders.acquire(&behind.orders.group_partition(), &member("owner"), Duration::from_millis(1)).await?;
        owner.reserve(up_to(9)).await?;
        assert!(!owner.is_in_doubt());
        if is_sent {
            behind.proxy.next_with(Strike::Outage, OF_SETTLE);
        } else {
            behind.proxy.set(Mode::Refuse);
            eventually("Redis is out of reach", async || {
                Ok((kind_of(behind.orders.store.backend.ping().await) == Some(Kind::Unavailable)).then_some(()))
            })
            .await?;
        }
        let ack = acks(&["a"])?;
        let meanwhile = async {
            behind.proxy.refuses().await?;
            other.take_over(&behind).await?;
            behind.proxy.set(Mode::Pass);
            Ok::<_, Error>(())
        };
        let (refused, done) = join(owner.settle(&ack), meanwhile).await;
        done?;
        assert_eq!((kind_of(refused), owner.is_in_doubt()), (Some(Kind::Stale), is_sent));
    }
    Ok(())
}

#[tokio::test]
async fn abandoned_call_is_in_doubt() -> Result<()> {
    let behind = OrderedTopics::start().await?;
    behind.push(&["a"]).await?;
    let mut owner = behind.orders.owner().await?;
    owner.reserve(up_to(9)).await?;
    behind.proxy.next_with(Strike::Outage, OF_SETTLE);
    let ack = acks(&["a"])?;
    tokio::select! {
        settled = owner.settle(&ack) => panic!("{settled:?}"),
        refuses = behind.proxy.refuses() => refuses?,
    }
    assert!(owner.is_in_doubt());
    Ok(())
}
