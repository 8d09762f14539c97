//! The audit of a pair, and its repair.

use std::collections::HashSet;

use sled::Batch;

use super::Inner;
use super::pair::{Counts, Stored};
use super::reservation::reservation_entries;
use super::topics::locked;
use crate::codec::body_due_at;
use crate::model::error::{Error, Result};
use crate::model::message::MessageId;
use crate::model::time::Timestamp;
use crate::model::topic::GroupPartition;
use crate::store::{Defect, Finding, VerifyCursor, VerifyPage};

/// Entries of a page: others wait for as long as it takes.
const PAGE: usize = 250;

/// What is gone through, in this order.
const STEPS: [Step; 5] = [
    Step { name: "h", defect: Defect::BodyWithoutId },
    Step { name: "z", defect: Defect::IdWithoutBody },
    Step { name: "a", defect: Defect::ChargeWithoutBody },
    Step { name: "d", defect: Defect::DeadIdWithoutBody },
    Step { name: "g", defect: Defect::DeadBodyWithoutId },
];

/// One of the parts of a pair, and what can be wrong with its entries.
struct Step {
    name: &'static str,
    defect: Defect,
}

impl Inner {
    pub(super) async fn audit(
        &self,
        pair: &GroupPartition,
        from: Option<&VerifyCursor>,
        repair: bool,
    ) -> Result<VerifyPage> {
        let page = self.look_over(pair, from, repair)?;
        if repair && !page.findings.is_empty() {
            self.commit().await?;
        }
        Ok(page)
    }

    fn look_over(&self, pair: &GroupPartition, from: Option<&VerifyCursor>, repair: bool) -> Result<VerifyPage> {
        let (step, after) = read(from)?;
        let topics = self.topics();
        let Some((topic, place)) = topics.pair(pair) else { return Ok(VerifyPage::default()) };
        let state = topic.partition(place.partition);
        let mut state = locked(&state);
        let pair = state.pairs.entry(place.group).or_default();
        let stored = Stored::new(&self.tree, place);
        let ids = STEPS[step].page(&stored, after.as_ref())?;
        let (mut batch, mut counts, now) = (Batch::default(), pair.counts, self.now());
        let mut findings = Vec::new();
        let reserved = if step == 0 { reserved(&stored)? } else { HashSet::new() };
        for id in &ids {
            if STEPS[step].is_sound(&stored, id, &reserved)? {
                continue;
            }
            if repair {
                STEPS[step].mend(&stored, &mut batch, &mut counts, id, now)?;
            }
            findings.push(Finding { id: id.to_string(), defect: STEPS[step].defect });
        }
        self.apply(batch)?;
        pair.counts = counts;
        let next = match ids.last().filter(|_| ids.len() == PAGE) {
            Some(last) => Some(format!("{} {last}", STEPS[step].name)),
            None => STEPS.get(step + 1).map(|step| step.name.to_owned()),
        };
        Ok(VerifyPage { seen: ids.len() as u64, findings, next: next.map(VerifyCursor) })
    }
}

/// What a cursor says: the step, and the last id that was looked at. # Errors: `Invalid`.
fn read(from: Option<&VerifyCursor>) -> Result<(usize, Option<MessageId>)> {
    let Some(VerifyCursor(cursor)) = from else { return Ok((0, None)) };
    let (name, after) = cursor.split_once(' ').map_or((cursor.as_str(), None), |(name, id)| (name, Some(id)));
    let wrong = || Error::invalid("cursor", "is not one that dwell gave; begin without a cursor");
    let step = STEPS.iter().position(|step| step.name == name).ok_or_else(wrong)?;
    Ok((step, after.map(MessageId::new).transpose().map_err(|_| wrong())?))
}

/// Every id in a reservation, of whichever epoch.
fn reserved(stored: &Stored<'_>) -> Result<HashSet<MessageId>> {
    let mut ids = HashSet::new();
    for entry in stored.reservations().below(&[u8::MAX; 16]) {
        let (_, value) = entry?;
        ids.extend(reservation_entries(&value)?.into_iter().map(|entry| entry.id));
    }
    Ok(ids)
}

impl Step {
    /// A page of ids, in their own order.
    fn page(&self, stored: &Stored<'_>, after: Option<&MessageId>) -> Result<Vec<MessageId>> {
        match self.defect {
            Defect::BodyWithoutId => stored.hash().ids_after(after).take(PAGE).collect(),
            Defect::IdWithoutBody => stored.zset().ids_after(after).take(PAGE).collect(),
            Defect::ChargeWithoutBody => stored.charges().ids_after(after).take(PAGE).collect(),
            Defect::DeadIdWithoutBody => stored.dead_zset().ids_after(after).take(PAGE).collect(),
            Defect::DeadBodyWithoutId => stored.dead_hash().ids_after(after).take(PAGE).collect(),
        }
    }

    fn is_sound(&self, stored: &Stored<'_>, id: &MessageId, reserved: &HashSet<MessageId>) -> Result<bool> {
        Ok(match self.defect {
            Defect::BodyWithoutId => stored.zset().score(id)?.is_some() || reserved.contains(id),
            Defect::IdWithoutBody | Defect::ChargeWithoutBody => stored.hash().has(id)?,
            Defect::DeadIdWithoutBody => stored.dead_hash().has(id)?,
            Defect::DeadBodyWithoutId => stored.dead_zset().score(id)?.is_some(),
        })
    }

    fn mend(
        &self,
        stored: &Stored<'_>,
        batch: &mut Batch,
        counts: &mut Counts,
        id: &MessageId,
        now: Timestamp,
    ) -> Result<()> {
        match self.defect {
            Defect::BodyWithoutId => {
                let due_at = stored.hash().get(id)?.and_then(|body| body_due_at(&body)).unwrap_or_default().max(now);
                stored.zset().add(batch, id, due_at);
                counts.scheduled(due_at);
            }
            Defect::IdWithoutBody => {
                let score = stored.zset().score(id)?.unwrap_or(Timestamp::default().into());
                stored.zset().remove(batch, id, score);
                counts.unscheduled(score.at);
            }
            Defect::ChargeWithoutBody => stored.uncharge(batch, id),
            Defect::DeadIdWithoutBody => {
                let score = stored.dead_zset().score(id)?.unwrap_or(Timestamp::default().into());
                stored.dead_zset().remove(batch, id, score);
            }
            Defect::DeadBodyWithoutId => stored.dead_zset().add(batch, id, now),
        }
        Ok(())
    }
}
