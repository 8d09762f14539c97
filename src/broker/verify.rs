//! Auditing a group of a topic: whether its keys agree with each other, partition by partition.

use std::time::Duration;

use super::Broker;
use crate::model::error::{Error, Result};
use crate::model::limits::AUDIT_FINDINGS_MAX;
use crate::model::message::{GroupName, TopicName};
use crate::model::partition::Partition;
use crate::store::{Finding, VerifyCursor};

/// How long one call goes on before it answers with a cursor.
const TURN: Duration = Duration::from_millis(500);

/// What one call of an audit came by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audit {
    /// How many entries were looked at.
    pub seen: u64,
    /// What was found, and where; repaired, if that was asked for.
    pub findings: Vec<(Partition, Finding)>,
    /// Where the next call goes on, if there is more. Opaque.
    pub next: Option<String>,
}

impl Broker {
    /// Looks through the keys of a group for half a second, whether ids and bodies agree; with `repair` what does not is
    /// mended. Live traffic goes on meanwhile, and what comes during an audit may or may not be looked at.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` for a cursor that is not from here, `Full`.
    pub async fn audit(
        &self,
        topic: &TopicName,
        group: &GroupName,
        cursor: Option<&str>,
        repair: bool,
    ) -> Result<Audit> {
        let descriptor = self.topics.look_at_group(topic, group).await?;
        let (mut partition, mut from) = cursor.map_or(Ok((Partition(0), None)), read)?;
        if partition.0 >= descriptor.settings.partitions.get() {
            return Err(wrong());
        }
        let read = self.reads.begin().await?;
        let until = self.clock().instant().plus(TURN);
        let mut audit = Audit::default();
        while partition.0 < descriptor.settings.partitions.get() {
            if audit.findings.len() >= AUDIT_FINDINGS_MAX || self.clock().instant() >= until {
                audit.next = Some(cursor_of(partition, from.as_ref()));
                break;
            }
            let page = read
                .call(self.store.maintenance.audit(&descriptor.pair(partition, group), from.as_ref(), repair))
                .await?;
            audit.seen += page.seen;
            audit.findings.extend(page.findings.into_iter().map(|finding| (partition, finding)));
            from = page.next;
            if from.is_none() {
                partition.0 += 1;
            }
        }
        if repair {
            self.metrics.ownership.repairs.inc_by(audit.findings.len() as u64);
        }
        Ok(audit)
    }
}

/// `<partition>` or `<partition>:<cursor of the store>`.
fn cursor_of(partition: Partition, from: Option<&VerifyCursor>) -> String {
    from.map_or_else(|| partition.to_string(), |VerifyCursor(from)| format!("{partition}:{from}"))
}

fn read(cursor: &str) -> Result<(Partition, Option<VerifyCursor>)> {
    let (partition, from) = cursor.split_once(':').map_or((cursor, None), |(partition, from)| (partition, Some(from)));
    let partition = partition.parse().map(Partition).map_err(|_| wrong())?;
    Ok((partition, from.map(|from| VerifyCursor(from.to_owned()))))
}

fn wrong() -> Error {
    Error::invalid("cursor", "is not one that dwell gave; begin without a cursor")
}
