//! What somebody did to the keys by hand is found by an audit, and repaired beside an owner that goes on.

use dwell::broker::Audit;
use dwell::delivery::Verdict;
use dwell::model::error::{Kind, Result};
use dwell::model::message::{GroupName, TopicName};
use dwell::store::Defect;

use super::{HASH, OrderedTopics, Shop, ZSET};
use crate::support::kind_of;

async fn audited(shop: &Shop, repair: bool) -> Result<Vec<(String, Defect)>> {
    let (topic, group) = (TopicName::new("orders")?, GroupName::standard());
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let page: Audit = shop.broker().audit(&topic, &group, cursor.as_deref(), repair).await?;
        found.extend(page.findings.into_iter().map(|(_, finding)| (finding.id, finding.defect)));
        cursor = page.next;
        if cursor.is_none() {
            return Ok(found);
        }
    }
}

#[tokio::test]
async fn verify_repairs_manual_key_changes_beside_a_live_owner() -> Result<()> {
    let behind = OrderedTopics::start().await?;
    behind.push(&["a", "b"]).await?;
    behind.orders.push("next-hour", 3_600_000).await?;
    let due_at = behind.orders.peek("next-hour").await?.and_then(|peeked| peeked.next_at);
    let shop = behind.shop()?;
    let out = shop.reserve(9).await?;
    assert_eq!(out.len(), 2);
    assert_eq!(audited(&shop, true).await?, []);
    // A cursor of a partition that is not there would find everything sound.
    let (topic, group) = (TopicName::new("orders")?, GroupName::standard());
    for strange in ["1", "1:h0", "x", "-1"] {
        assert_eq!(kind_of(shop.broker().audit(&topic, &group, Some(strange), false).await), Some(Kind::Invalid));
    }
    let partition = "{dwell:orders:0}:default";
    for by_hand in [
        format!("ZREM {ZSET} next-hour"),
        // The owner drops an id without a body once it is due.
        format!("ZADD {ZSET} 4102444800000 ghost"),
        format!("HSET {partition}:a nobody 3"),
        format!("ZADD {partition}:dz 1 gone"),
        format!("HSET {partition}:dh lost body"),
    ] {
        behind.server.ask::<u64>(&by_hand).await?;
    }
    let expected = [
        ("next-hour", Defect::BodyWithoutId),
        ("ghost", Defect::IdWithoutBody),
        ("nobody", Defect::ChargeWithoutBody),
        ("gone", Defect::DeadIdWithoutBody),
        ("lost", Defect::DeadBodyWithoutId),
    ]
    .map(|(id, defect)| (id.to_owned(), defect));
    assert_eq!(audited(&shop, false).await?, expected);
    let repairs = shop.repairs();
    assert_eq!(audited(&shop, true).await?, expected);
    assert_eq!((audited(&shop, true).await?, shop.repairs()), (vec![], repairs + 5));
    // It is due when it was, and the owner goes on with what it holds.
    assert_eq!(behind.orders.peek("next-hour").await?.and_then(|peeked| peeked.next_at), due_at);
    for delivery in &out {
        assert_eq!(shop.ack(delivery).await?, Verdict::Acked);
    }
    behind.push(&["c"]).await?;
    assert_eq!(shop.ids(1).await?, ["c"]);
    assert_eq!((shop.repairs(), behind.server.ask::<u64>(&format!("HLEN {HASH}")).await?), (repairs + 5, 2));
    Ok(())
}
