//! The brokers that share the store, as the heartbeats of their groups tell.

use std::collections::BTreeMap;

use super::Broker;
use super::topics::TOPICS_SEEN_MAX;
use crate::model::error::Result;
use crate::store::{MemberId, MemberReport, MemberState, WalDepth};

/// A broker: this one, or a member of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FleetBroker {
    pub version: String,
    pub is_here: bool,
    /// Groups that it is a member of, and those of them with demand.
    pub groups: usize,
    pub demanded: usize,
    /// Consumers that wait there.
    pub waiting: usize,
    pub owned: usize,
    pub wal: WalDepth,
}

impl Broker {
    /// This broker and all members of groups. Of more than 500 topics the members of the first are read.
    /// Errors: `Full`, the store's.
    pub async fn brokers(&self) -> Result<BTreeMap<MemberId, FleetBroker>> {
        let mut brokers = BTreeMap::<MemberId, FleetBroker>::new();
        let read = self.reads.begin().await?;
        for topic in self.topics().await?.iter().take(TOPICS_SEEN_MAX) {
            let Some(descriptor) = self.existing(topic).await? else { continue };
            for group in &descriptor.groups {
                for MemberReport { id, state, version } in read.call(self.members(topic, group)).await? {
                    let MemberState { has_demand, waiting, owned, wal } = state;
                    let broker = brokers.entry(id).or_default();
                    broker.version = version;
                    broker.groups += 1;
                    broker.demanded += usize::from(has_demand);
                    broker.waiting += waiting;
                    broker.owned += owned;
                    broker.wal = wal;
                }
            }
        }
        // Its own heartbeats are older than what it knows.
        let here = brokers.entry(self.member().clone()).or_default();
        here.is_here = true;
        here.version = env!("CARGO_PKG_VERSION").to_owned();
        here.wal = self.store.backend.wal_depth();
        Ok(brokers)
    }
}
