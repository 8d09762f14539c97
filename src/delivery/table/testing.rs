//! A table for tests.

use std::time::Duration;

use super::{Policy, Table};
use crate::delivery::receipt::ReceiptMaker;
use crate::model::error::Result;
use crate::model::message::{GroupName, TopicName};
use crate::model::partition::Partition;
use crate::model::retry::Backoff;
use crate::model::topic::{Expiry, GroupPartition};
use crate::platform::signing_key::SigningKey;
use crate::store::{Claim, Epoch, MemberId};

pub(super) fn policy() -> Policy {
    Policy {
        backoff: Backoff::default(),
        max_attempts: 5,
        dedup_window: Duration::ZERO,
        ordered: false,
        on_expiry: Expiry::Drop,
        in_flight: 100,
        fair: None,
    }
}

pub(super) fn table(policy: Policy) -> Result<Table> {
    let (topic, group) = (TopicName::new("orders")?, GroupName::standard());
    let group_partition = GroupPartition { topic, partition: Partition(0), group };
    let claim = Claim { group_partition, epoch: Epoch::after(0) };
    Ok(Table::new(ReceiptMaker::new(&claim, 1, MemberId::fresh("host"), SigningKey::fresh()?), policy))
}
