use std::time::Duration;

use dwell::model::error::Result;
use dwell::store::{Finding, Retried, VerifyCursor, VerifyPage};

use crate::support::{TestTopic, World, acks, buries, kind_of, retries, up_to};

/// All pages of an audit: how many entries were seen, and what was found.
pub(crate) async fn audited(orders: &TestTopic, repair: bool) -> Result<(u64, Vec<Finding>)> {
    let (mut seen, mut findings, mut from) = (0, Vec::new(), None);
    loop {
        let page = orders.store.maintenance.audit(&orders.group_partition(), from.as_ref(), repair).await?;
        seen += page.seen;
        findings.extend(page.findings);
        from = page.next;
        if from.is_none() {
            return Ok((seen, findings));
        }
    }
}

pub(super) async fn verify_finds_no_fault_in_normal_data(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let sound = async || -> Result<u64> {
        let (seen, findings) = audited(&orders, false).await?;
        assert_eq!(findings, []);
        // A repair of what is sound changes nothing.
        let stats = orders.stats().await?;
        assert_eq!((audited(&orders, true).await?, orders.stats().await?), ((seen, vec![]), stats));
        Ok(seen)
    };
    assert_eq!(sound().await?, 0);
    orders.push_many("m", 600).await?;
    world.pass(1_000);
    assert!(sound().await? >= 1_200);
    let mut owner = orders.owner().await?;
    let taken = owner.reserve(up_to(5)).await?;
    sound().await?;
    let next_at = world.now().plus(Duration::from_millis(5));
    let retried = Retried { id: taken.messages[0].id.clone(), next_at, attempts: 1, failure: None };
    owner.settle(&retries(taken.reservation, retried, &["m000001", "m000002", "m000003", "m000004"])?).await?;
    owner.settle(&acks(&["m000001"])?).await?;
    sound().await?;
    let taken = owner.reserve(up_to(1)).await?;
    owner.settle(&buries(taken.reservation, &[taken.messages[0].id.as_str()], &[])?).await?;
    assert!(sound().await? >= 1_192);
    // What a dead owner left reserved has a place.
    drop(owner);
    sound().await?;
    orders.owner().await?.recover().await?;
    sound().await.map(drop)
}

pub(super) async fn verify_resumes_from_its_cursor_only(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    for strange in ["", "x0", "h", "h-1", "h0 ", "z 0 0", "h99999999999999999999999"] {
        let from = VerifyCursor(strange.to_owned());
        let answer = orders.store.maintenance.audit(&orders.group_partition(), Some(&from), true).await;
        // What a store takes for a cursor of its own finds nothing in an empty partition.
        let harmless = answer.as_ref().is_ok_and(|page: &VerifyPage| page.seen == 0 && page.findings.is_empty());
        assert!(harmless || kind_of(answer) == Some(dwell::model::error::Kind::Invalid), "{strange:?}");
    }
    Ok(())
}
