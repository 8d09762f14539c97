//! A reply is lost, or a request: the call is repeated, and counts once.

use dwell::api::http::Listen;
use dwell::app::engine::{RedisOptions, StoreOptions};
use dwell::app::server::{Server, ServerOptions};
use dwell::broker::Options;
use dwell::model::error::{Error, Kind, Result};
use dwell::model::limits::RECOVER_IDS_MAX;
use dwell::model::message::{MessageId, NewMessage, TopicName};
use dwell::model::time::Timestamp;
use dwell::outage::OutageOptions;
use dwell::store::{Acquired, Charge, PartitionStats, Pushed, Recovered, Retried, Settlement};

use super::{HASH, OrderedTopics, RESERVATIONS};
use crate::support::{LEASE, Running, Strike, acks, buries, ids, ids_of, kind_of, member, up_to};

#[tokio::test]
async fn repeated_reserve_returns_the_same_bodies() -> Result<()> {
    for strike in [Strike::Reply, Strike::Request] {
        let behind = OrderedTopics::start().await?;
        behind.push(&["a", "b", "c"]).await?;
        let mut owner = behind.orders.owner().await?;
        behind.proxy.next(strike);
        let taken = owner.reserve(up_to(2)).await?;
        behind.proxy.struck()?;
        assert_eq!((ids_of(&taken.messages), taken.unsettled), (vec!["a", "b"], 2));
        for reserved in &taken.messages {
            assert_eq!(
                reserved.message.as_ref().map(|m| m.envelope.payload.as_ref()),
                Ok(reserved.id.as_str().as_bytes())
            );
        }
        let rest = owner.reserve(up_to(9)).await?;
        assert_eq!((ids_of(&rest.messages), rest.unsettled), (vec!["c"], 3));
        let remaining = vec![(taken.reservation, vec![]), (rest.reservation, vec![])];
        owner.settle(&Settlement { remaining, ..acks(&["a", "b", "c"])? }).await?;
        assert_eq!(
            behind.orders.stats().await?,
            PartitionStats { owner: Some(member("owner")), ..PartitionStats::default() }
        );
        assert_eq!(behind.server.ask::<Vec<String>>(&format!("HKEYS {RESERVATIONS}")).await?, ["@"]);
    }
    Ok(())
}

#[tokio::test]
async fn repeated_settlement_is_applied_once() -> Result<()> {
    for strike in [Strike::Reply, Strike::Request] {
        let behind = OrderedTopics::start().await?;
        behind.push(&["acked", "buried", "left", "retried"]).await?;
        let mut owner = behind.orders.owner().await?;
        let reservation = owner.reserve(up_to(9)).await?.reservation;
        let retried =
            Retried { id: MessageId::new("retried")?, next_at: behind.world.now(), attempts: 1, failure: None };
        let settlement = Settlement {
            acked: ids(&["acked"])?,
            retried: vec![retried],
            ..buries(reservation, &["buried"], &["left"])?
        };
        behind.proxy.next(strike);
        owner.settle(&settlement).await?;
        behind.proxy.struck()?;
        assert_eq!(behind.seq().await?, "2");
        let stats = behind.orders.stats().await?;
        assert_eq!((stats.ready, stats.in_flight, stats.dead), (1, 1, 1));
        let again = owner.reserve(up_to(9)).await?.messages;
        assert_eq!((ids_of(&again), again[0].attempts), (vec!["retried"], 1));
    }
    Ok(())
}

#[tokio::test]
async fn repeated_start_and_recover_are_applied_once() -> Result<()> {
    for strike in [Strike::Reply, Strike::Request] {
        let behind = OrderedTopics::start().await?;
        let count = RECOVER_IDS_MAX + 1;
        behind.orders.push_many("m", count).await?;
        let mut lost = behind.orders.owner().await?;
        lost.reserve(up_to(count)).await?;
        behind.proxy.next(strike);
        lost.start(&[Charge { id: MessageId::new("m000000")?, attempts: 7 }]).await?;
        behind.proxy.struck()?;
        assert_eq!(behind.seq().await?, "2");
        let mut owner = behind.orders.owner().await?;
        behind.proxy.next(strike);
        behind.orders.recover(&mut owner).await?;
        behind.proxy.struck()?;
        let taken = owner.reserve(up_to(1_000)).await?.messages;
        assert_eq!((taken.len(), taken[0].attempts, taken[1].attempts), (count, 7, 1));
    }
    Ok(())
}

/// The repeat of a recovery whose reply was lost finds nothing any more, and still says that something was left behind.
#[tokio::test]
async fn takeover_is_recognized_despite_lost_replies() -> Result<()> {
    for (strike, found) in [(Strike::Reply, 0), (Strike::Request, 2)] {
        let behind = OrderedTopics::start().await?;
        behind.push(&["a", "b"]).await?;
        behind.orders.owner().await?.reserve(up_to(9)).await?;
        let mut owner = behind.orders.owner().await?;
        behind.proxy.next(strike);
        let page = owner.recover().await?;
        behind.proxy.struck()?;
        assert_eq!(
            page,
            Recovered {
                messages: found,
                left_behind: true,
                more: false,
                orphans: 0,
                is_moving: false,
                has_sorted: false
            }
        );
        assert_eq!(behind.orders.stats().await?.ready, 2);
        let page = behind.orders.owner().await?.recover().await?;
        assert_eq!(
            page,
            Recovered { messages: 0, left_behind: false, more: false, orphans: 0, is_moving: false, has_sorted: false }
        );
    }
    Ok(())
}

#[tokio::test]
async fn repeated_push_stores_one_message() -> Result<()> {
    let behind = OrderedTopics::start().await?;
    let shop = Running::start(&behind.world, Options::default())?;
    let orders = TopicName::new("orders")?;
    for strike in [Strike::Reply, Strike::Request] {
        let mut given = NewMessage::new("with an id");
        given.id = Some(MessageId::new(format!("{strike:?}"))?);
        for message in [NewMessage::new("without"), given] {
            behind.proxy.next(strike);
            assert_eq!(
                shop.broker.push(&orders, message).await?.pushed,
                Pushed::Stored,
                "its own repeat is no duplicate"
            );
            behind.proxy.struck()?;
        }
    }
    let stats = behind.orders.stats().await?;
    assert_eq!((stats.scheduled + stats.ready, stats.in_flight), (4, 0));
    Ok(())
}

/// Over HTTP every message gets an id before it is pushed. A copy of the call that comes late changes nothing.
#[tokio::test]
async fn http_push_with_a_lost_reply_is_stored() -> Result<()> {
    let behind = OrderedTopics::start().await?;
    let dir = crate::support::scratch()?;
    let store =
        StoreOptions::Redis { redis: RedisOptions::new(behind.proxy.url()), outage: OutageOptions::new(dir.path()) };
    let server = Server::start(ServerOptions::new(Listen::ephemeral(), store, Options::default())).await?;
    let client = dwell::platform::https::client(&dwell::platform::https::Roots::none())?
        .no_proxy()
        .build()
        .map_err(failed_request)?;
    let orders = format!("{}/v1/topics/orders/messages", server.url());
    let batch = r#"{"messages": [{"payload": "b"}, {"payload": "c"}]}"#;
    let mut stored = 0;
    for strike in [Strike::Reply, Strike::Request] {
        for (url, body, messages) in [(&orders, "a", 1), (&format!("{orders}/batch"), batch, 2)] {
            behind.proxy.next(strike);
            let answer = client.post(url).body(body).send().await.map_err(failed_request)?;
            assert_eq!(answer.status(), 201, "{:?}", answer.text().await);
            let first = behind.proxy.struck()?;
            assert!(behind.proxy.deliver(&first).await?.contains("OK"));
            stored += messages;
            assert_eq!(behind.server.ask::<u64>(&format!("HLEN {HASH}")).await?, stored);
        }
    }
    server.stop().await
}

fn failed_request(error: reqwest::Error) -> Error {
    Error::unavailable(format!("a request: {error}"))
}

#[tokio::test]
async fn repeated_acquire_by_the_same_member_succeeds() -> Result<()> {
    let behind = OrderedTopics::start().await?;
    behind.push(&["a"]).await?;
    behind.proxy.next(Strike::Reply);
    assert_eq!(kind_of(behind.orders.owner().await), Some(Kind::OutcomeUnknown));
    let first = behind.proxy.struck()?;
    let partition = behind.orders.group_partition();
    let generation = behind.orders.descriptor.generation;
    let other = behind.orders.store.leases.acquire(&partition, &member("other"), LEASE, generation).await?;
    assert!(matches!(other, Acquired::Held { by, .. } if by == member("owner")));
    let mut owner = behind.orders.owner().await?;
    assert!(behind.without_effect(&first).await?.contains("CHANGED"));
    assert_eq!(ids_of(&owner.reserve(up_to(9)).await?.messages), ["a"]);
    Ok(())
}

#[tokio::test]
async fn release_with_a_lost_reply_frees_the_partition() -> Result<()> {
    let behind = OrderedTopics::start().await?;
    let owner = behind.orders.owner().await?;
    behind.proxy.next(Strike::Reply);
    assert_eq!(kind_of(owner.release(Timestamp::ZERO).await), Some(Kind::OutcomeUnknown));
    let release = behind.proxy.struck()?;
    assert!(behind.without_effect(&release).await?.contains("OK"));
    behind.orders.acquire(&behind.orders.group_partition(), &member("other"), LEASE).await?;
    assert!(behind.without_effect(&release).await?.contains("STALE"));
    Ok(())
}
