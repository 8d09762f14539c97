//! A disk that lost single entries of the embedded store. No rule of the store leaves such a state.

use std::path::Path;

use dwell::model::error::{Error, Result};
use dwell::store::{Defect, Repaired};

use crate::contract::conformance::audited;
use crate::support::{World, ids_of, up_to};

#[tokio::test]
async fn orphaned_bodies_and_ids_are_repaired() -> Result<()> {
    let world = World::embedded().await?;
    let orders = world.topic("orders").await?;
    for (id, delay_ms) in [("whole", 0), ("stray", 70), ("ghost", 80), ("spook", 90)] {
        orders.push(id, delay_ms).await?;
    }
    drop(orders);
    // A body is longer than the score of an id.
    let is_lost = |id: &[u8], bytes| match id {
        b"stray" => bytes <= 8,
        b"ghost" | b"spook" => bytes > 8,
        _ => false,
    };
    let (world, lost) = world.reopened_after(|dir| lose(dir, is_lost)).await?;
    assert_eq!(lost, 4);
    let orders = world.topic("orders").await?;
    let mut owner = orders.owner().await?;
    assert_eq!(owner.recover().await?.orphans, 1);
    assert_eq!(owner.repair(None).await?, Repaired { messages: 3, next: None });
    assert_eq!(owner.recover().await?.orphans, 0);
    // Nothing that is repaired is due earlier than it was.
    for due in [vec!["whole"], vec![], vec!["stray"]] {
        assert_eq!(ids_of(&owner.reserve(up_to(9)).await?.messages), due);
        world.pass(35);
    }
    Ok(())
}

#[tokio::test]
async fn verify_finds_and_repairs_losses() -> Result<()> {
    let world = World::embedded().await?;
    let orders = world.topic("orders").await?;
    for (id, delay_ms) in [("whole", 0), ("stray", 70), ("ghost", 80)] {
        orders.push(id, delay_ms).await?;
    }
    drop(orders);
    let is_lost = |id: &[u8], bytes| if id == b"stray" { bytes <= 8 } else { id == b"ghost" && bytes > 8 };
    let (world, lost) = world.reopened_after(|dir| lose(dir, is_lost)).await?;
    assert_eq!(lost, 3);
    let orders = world.topic("orders").await?;
    let found = [("stray", Defect::BodyWithoutId), ("ghost", Defect::IdWithoutBody)];
    for (repair, expected) in [(false, &found[..]), (true, &found), (true, &[])] {
        let (_, findings) = audited(&orders, repair).await?;
        let findings: Vec<_> = findings.iter().map(|finding| (finding.id.as_str(), finding.defect)).collect();
        assert_eq!(findings, expected, "{repair}");
    }
    let mut owner = orders.owner().await?;
    assert_eq!(owner.recover().await?.orphans, 0);
    for due in [vec!["whole"], vec![], vec!["stray"]] {
        assert_eq!(ids_of(&owner.reserve(up_to(9)).await?.messages), due);
        world.pass(35);
    }
    Ok(())
}

/// Removes entries by the last five letters of the key and the length of the value, and answers how many.
fn lose(dir: &Path, is_lost: impl Fn(&[u8], usize) -> bool) -> Result<usize> {
    let failed = |error: sled::Error| Error::unavailable(error.to_string());
    let db = sled::open(dir).map_err(failed)?;
    let mut lost = 0;
    for entry in db.iter() {
        let (key, value) = entry.map_err(failed)?;
        if key.last_chunk::<5>().is_some_and(|id| is_lost(id, value.len())) {
            db.remove(key).map_err(failed)?;
            lost += 1;
        }
    }
    Ok(lost)
}
