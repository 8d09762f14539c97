use dwell::model::error::Result;
use dwell::model::limits::RECOVER_IDS_MAX;
use dwell::model::message::MessageId;
use dwell::store::{Charge, Pushed, Retried, Settlement};

use crate::support::{World, acks, ids, ids_of, retries, up_to};

pub(super) async fn messages_of_a_lost_owner_are_due_again(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push_many("m", 4).await?;
    let mut lost = orders.owner().await?;
    lost.reserve(up_to(1)).await?;
    lost.reserve(up_to(2)).await?;
    drop(lost);
    world.pass(500);
    let mut owner = orders.owner().await?;
    assert_eq!(orders.stats().await?.in_flight, 3);
    let page = owner.recover().await?;
    assert_eq!((page.messages, page.more), (3, false));
    let taken = owner.reserve(up_to(9)).await?;
    assert_eq!(ids_of(&taken.messages), ["m000003", "m000000", "m000001", "m000002"]);
    assert_eq!((taken.messages[3].ready_at, taken.unsettled), (world.now(), 4));
    Ok(())
}

pub(super) async fn recovery_charges_at_least_one_attempt(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push_many("m", 3).await?;
    let mut lost = orders.owner().await?;
    let taken = lost.reserve(up_to(1)).await?;
    // It was released, and is perhaps handed out again.
    let released = Retried { id: MessageId::new("m000000")?, next_at: world.now(), attempts: 0, failure: None };
    lost.settle(&retries(taken.reservation, released, &[])?).await?;
    lost.reserve(up_to(2)).await?;
    lost.start(&[Charge { id: MessageId::new("m000001")?, attempts: 5 }]).await?;
    let mut owner = orders.owner().await?;
    orders.recover(&mut owner).await?;
    let attempts: Vec<_> = owner.reserve(up_to(9)).await?.messages.into_iter().map(|m| (m.id, m.attempts)).collect();
    let expected = ids(&["m000000", "m000001", "m000002"])?.into_iter().zip([1, 5, 0]);
    assert_eq!(attempts, expected.collect::<Vec<_>>());
    Ok(())
}

pub(super) async fn recovery_is_paged(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    let count = 3 * RECOVER_IDS_MAX + 1;
    orders.push_many("m", count).await?;
    let mut lost = orders.owner().await?;
    lost.reserve(up_to(10)).await?;
    lost.reserve(up_to(1_000)).await?;
    let mut owner = orders.owner().await?;
    let (mut recovered, mut pages) = (0, 0);
    loop {
        let page = owner.recover().await?;
        assert!(page.messages <= RECOVER_IDS_MAX);
        assert_eq!(orders.stats().await?.in_flight as usize, count - recovered - page.messages);
        (recovered, pages) = (recovered + page.messages, pages + 1);
        if !page.more {
            break;
        }
    }
    assert_eq!(recovered, count);
    assert!((4..=6).contains(&pages), "{pages}");
    let nothing = owner.recover().await?;
    assert_eq!((nothing.messages, nothing.more), (0, false));
    assert_eq!(owner.reserve(up_to(1_000)).await?.messages.len(), count);
    Ok(())
}

pub(super) async fn settled_messages_are_not_recovered(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push_many("m", 3).await?;
    let mut lost = orders.owner().await?;
    lost.reserve(up_to(3)).await?;
    lost.start(&[Charge { id: MessageId::new("m000001")?, attempts: 2 }]).await?;
    lost.settle(&acks(&["m000001"])?).await?;
    let mut owner = orders.owner().await?;
    assert_eq!(orders.recover(&mut owner).await?, 2);
    assert_eq!(orders.peek("m000001").await?, None);
    assert_eq!(ids_of(&owner.reserve(up_to(9)).await?.messages), ["m000000", "m000002"]);
    Ok(())
}

pub(super) async fn owner_does_not_recover_its_own_messages(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push("a", 0).await?;
    let mut owner = orders.owner().await?;
    owner.reserve(up_to(1)).await?;
    let page = owner.recover().await?;
    assert_eq!((page.messages, page.more), (0, false));
    assert_eq!(orders.stats().await?.in_flight, 1);
    Ok(())
}

pub(super) async fn repushed_id_is_untouched_by_recovery(world: World) -> Result<()> {
    let orders = world.topic("orders").await?;
    orders.push_all(&[orders.message("a", 0)?, orders.message("b", 0)?]).await?;
    let mut lost = orders.owner().await?;
    let taken = lost.reserve(up_to(9)).await?;
    // The reservation still names `a`, which a later call may tidy up, or not.
    lost.settle(&acks(&["a"])?).await?;
    assert_eq!(orders.push("a", 900).await?, Pushed::Stored);
    let next_at = orders.peek("a").await?.and_then(|a| a.next_at);
    let mut owner = orders.owner().await?;
    assert_eq!(orders.recover(&mut owner).await?, 1);
    assert_eq!(orders.peek("a").await?.and_then(|a| a.next_at), next_at);
    assert_eq!(ids_of(&owner.reserve(up_to(9)).await?.messages), ["b"]);
    // Settling under the reservation of an older epoch by its number touches nothing of that epoch.
    owner.settle(&Settlement { remaining: vec![(taken.reservation, vec![])], ..Settlement::default() }).await?;
    Ok(())
}
