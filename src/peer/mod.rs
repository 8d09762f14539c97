//! Receipts of deliveries that another broker handed out: they are brought to it, if it says where it is.
//!
//! One request for each owner, once: what was forwarded is never forwarded again. Nothing here decides about a delivery,
//! and no broker is connected to that is not as near as the own address (see [`crate::address`]).

mod ask;
mod call;
mod credentials;
mod known;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};

use self::ask::Ask;
use self::call::Caller;
pub use self::credentials::{CredentialFiles, Credentials};
use self::known::Known;
use crate::address::Address;
use crate::broker::Broker;
use crate::clock::Instant;
use crate::dispatch::{Decision, Receipt, StaleReason, Verdict};
use crate::error::Result;
use crate::limits::MEMBER_BYTES_MAX;
use crate::message::{GroupName, TopicName};
use crate::partition::Partition;
use crate::store::MemberId;
use crate::topic::check_visibility_timeout;

/// The header of a request that was forwarded: the member that it is for.
pub const FORWARDED: &str = "dwell-forwarded";

/// A verdict, and who owns the partition when that is another broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    /// What became of the decision.
    pub verdict: Verdict,
    /// Who may know more: with [`StaleReason::OtherBroker`] it was not asked, with [`Verdict::Unreachable`] it did not
    /// answer.
    pub owner: Option<MemberId>,
}

/// The brokers that share a store with this one. Clones share it.
#[derive(Clone)]
pub struct Peers {
    broker: Broker,
    /// Where this broker is reached. Without it, it forwards nothing.
    own: Option<Address>,
    caller: Arc<Caller>,
    known: Arc<Known>,
}

/// Where a request goes.
struct Way<'a> {
    owner: &'a MemberId,
    address: &'a Address,
    /// `ack`, `nack` or `extend`.
    verb: &'a str,
}

/// A group of a topic.
type Place<'a> = (&'a TopicName, &'a GroupName);

impl Ruling {
    fn of(verdict: Verdict) -> Ruling {
        Ruling { verdict, owner: None }
    }

    fn about(verdict: Verdict, owner: &MemberId) -> Ruling {
        // The store may hold what dwell never wrote; an answer does not carry it on.
        let owner = Some(owner.clone()).filter(|owner| owner.as_str().len() <= MEMBER_BYTES_MAX);
        Ruling { verdict, owner }
    }
}

impl Peers {
    /// The peers of a broker. It forwards if it advertises an address itself.
    pub fn new(broker: Broker) -> Peers {
        Peers::showing(broker, Credentials::none())
    }

    /// The same for one that shows something to the others.
    pub fn showing(broker: Broker, credentials: Credentials) -> Peers {
        let caller = Arc::new(Caller::new(broker.clock().clone(), broker.metrics(), credentials));
        Peers { own: broker.member().advertised(), broker, caller, known: Arc::default() }
    }

    /// Who this broker is: a forwarded request says for whom it is.
    pub fn member(&self) -> &MemberId {
        self.broker.member()
    }

    /// Settles deliveries wherever they were handed out, each answered for itself, in the order asked.
    ///
    /// # Errors
    /// Those of [`Broker::settle`].
    pub async fn settle(
        &self,
        topic: &TopicName,
        group: &GroupName,
        decisions: Vec<(String, Decision)>,
    ) -> Result<Vec<Ruling>> {
        self.rule((topic, group), Ask::Settle(decisions)).await
    }

    /// Moves deadlines wherever the deliveries were handed out, each answered for itself, in the order asked.
    ///
    /// # Errors
    /// Those of [`Broker::extend`].
    pub async fn extend(
        &self,
        topic: &TopicName,
        group: &GroupName,
        receipts: Vec<String>,
        timeout: Duration,
    ) -> Result<Vec<Ruling>> {
        check_visibility_timeout(timeout)?;
        self.rule((topic, group), Ask::Extend(receipts, timeout)).await
    }

    /// Settles what another broker forwarded: here or not at all, and before that one stops waiting.
    ///
    /// # Errors
    /// Those of [`Broker::settle`].
    pub async fn settle_forwarded(
        &self,
        topic: &TopicName,
        group: &GroupName,
        decisions: Vec<(String, Decision)>,
    ) -> Result<Vec<Ruling>> {
        let timeout = self.broker.settle_timeout() * 4 / 5;
        let verdicts = self.broker.settle_within(topic, group, decisions, timeout).await?;
        Ok(verdicts.into_iter().map(Ruling::of).collect())
    }

    /// Moves deadlines for another broker: here or not at all.
    ///
    /// # Errors
    /// Those of [`Broker::extend`].
    pub async fn extend_forwarded(
        &self,
        topic: &TopicName,
        group: &GroupName,
        receipts: Vec<String>,
        timeout: Duration,
    ) -> Result<Vec<Ruling>> {
        let verdicts = self.broker.extend(topic, group, &receipts, timeout).await?;
        Ok(verdicts.into_iter().map(Ruling::of).collect())
    }

    async fn rule(&self, place: Place<'_>, ask: Ask) -> Result<Vec<Ruling>> {
        let elsewhere = self.broker.elsewhere(place.0, place.1, &ask.receipts()).await?;
        if elsewhere.is_empty() {
            return Ok(self.here(place, ask).await?.into_iter().map(Ruling::of).collect());
        }
        let until = self.broker.clock().instant().plus(self.broker.settle_timeout());
        let mut mine: BTreeSet<usize> = (0..ask.receipts().len()).collect();
        for (at, _) in &elsewhere {
            mine.remove(at);
        }
        let mine: Vec<usize> = mine.into_iter().collect();
        let (here, there) = join(self.picked(place, &ask, &mine), self.there(place, &ask, elsewhere, until)).await;
        let mut rulings: BTreeMap<usize, Ruling> = here?.into_iter().chain(there?).collect();
        let all = 0..ask.receipts().len();
        Ok(all.map(|at| rulings.remove(&at).unwrap_or(Ruling::of(Verdict::Unreachable))).collect())
    }

    /// What this broker says.
    async fn here(&self, (topic, group): Place<'_>, ask: Ask) -> Result<Vec<Verdict>> {
        match ask {
            Ask::Settle(decisions) => self.broker.settle(topic, group, decisions).await,
            Ask::Extend(receipts, timeout) => self.broker.extend(topic, group, &receipts, timeout).await,
        }
    }

    /// What this broker says of some of it.
    async fn picked(&self, place: Place<'_>, ask: &Ask, at: &[usize]) -> Result<Vec<(usize, Ruling)>> {
        if at.is_empty() {
            return Ok(Vec::new());
        }
        let verdicts = self.here(place, ask.pick(at)).await?;
        Ok(at.iter().copied().zip(verdicts.into_iter().map(Ruling::of)).collect())
    }

    /// What the owners of other partitions say.
    async fn there(
        &self,
        place: Place<'_>,
        ask: &Ask,
        elsewhere: Vec<(usize, Receipt)>,
        until: Instant,
    ) -> Result<Vec<(usize, Ruling)>> {
        let holders = self.holders(place, &elsewhere, until).await;
        let (mut rulings, mut mine) = (Vec::new(), Vec::new());
        let mut ways: BTreeMap<MemberId, Option<Address>> = BTreeMap::new();
        let mut errands: BTreeMap<(MemberId, &'static str), Vec<(usize, Receipt)>> = BTreeMap::new();
        for (at, receipt) in elsewhere {
            match holders.as_ref().map(|holders| holders.get(&at)) {
                // Who owns it could not be found out, so nobody can say that it is over.
                None => rulings.push((at, Ruling::of(Verdict::Unreachable))),
                Some(None) => rulings.push((at, Ruling::of(Verdict::Stale(StaleReason::LostPartition)))),
                // It came to own the partition a moment ago.
                Some(Some(holder)) if holder == self.member() => mine.push(at),
                Some(Some(holder)) => match ways.entry(holder.clone()).or_insert_with(|| self.way_to(holder)) {
                    None => rulings.push((at, Ruling::about(Verdict::Stale(StaleReason::OtherBroker), holder))),
                    Some(_) => errands.entry((holder.clone(), ask.verb(at))).or_default().push((at, receipt)),
                },
            }
        }
        if let Ask::Settle(_) = ask {
            // Who forwards lets the owner count; what is refused here is counted here.
            let refused = rulings.iter().filter(|(_, ruling)| matches!(ruling.verdict, Verdict::Stale(_))).count();
            self.broker.metrics().group(place.0, place.1).stale.inc_by(refused as u64);
        }
        let forwarded = errands.iter().filter_map(|((owner, verb), items)| {
            let address = ways.get(owner)?.as_ref()?;
            Some(self.forward(place, ask, Way { owner, address, verb }, items, until))
        });
        let (mine, forwarded) = join(self.picked(place, ask, &mine), join_all(forwarded)).await;
        rulings.extend(mine?);
        rulings.extend(forwarded.into_iter().flatten());
        Ok(rulings)
    }

    /// Who the owner of each receipt is, as far as anyone holds the lease; `None` when the store does not say.
    async fn holders(
        &self,
        place: Place<'_>,
        elsewhere: &[(usize, Receipt)],
        until: Instant,
    ) -> Option<BTreeMap<usize, MemberId>> {
        let mut holders = BTreeMap::new();
        let mut asked: BTreeSet<Partition> = BTreeSet::new();
        for (at, receipt) in elsewhere {
            match self.known.owner(place, receipt) {
                Some(owner) => drop(holders.insert(*at, owner)),
                None => drop(asked.insert(receipt.partition)),
            }
        }
        if asked.is_empty() {
            return Some(holders);
        }
        let found = tokio::select! {
            found = self.broker.holders(place.0, place.1, &asked) => found.ok()?,
            () = self.broker.clock().sleep_until(until) => return None,
        };
        for (at, receipt) in elsewhere {
            if let Some(owner) = found.get(&receipt.partition).filter(|_| !holders.contains_key(at)) {
                holders.insert(*at, owner.clone());
            }
        }
        Some(holders)
    }

    /// Where a member is reached, if it says so and this broker may go there.
    fn way_to(&self, member: &MemberId) -> Option<Address> {
        let (own, address) = (self.own.as_ref()?, member.advertised()?);
        let may = member.as_str().len() <= MEMBER_BYTES_MAX && own.may_reach(&address);
        if !may {
            tracing::warn!(%own, %address, "a lease names an address that is not as near as our own: not used");
        }
        may.then_some(address)
    }

    /// Brings receipts to their owner, all in one request.
    async fn forward(
        &self,
        place: Place<'_>,
        ask: &Ask,
        way: Way<'_>,
        items: &[(usize, Receipt)],
        until: Instant,
    ) -> Vec<(usize, Ruling)> {
        let at: Vec<usize> = items.iter().map(|(at, _)| *at).collect();
        match self.caller.call(place, &way, &ask.pick(&at), until).await {
            Ok(verdicts) => {
                for ((_, receipt), verdict) in items.iter().zip(&verdicts) {
                    match verdict {
                        // The epoch is over, or another one's.
                        Verdict::Stale(_) | Verdict::UnknownOutcome | Verdict::Unknown(_) => {}
                        // An epoch has one owner: who knows the delivery is the one.
                        _ => self.known.learn(place, receipt, way.owner),
                    }
                }
                at.into_iter().zip(verdicts.into_iter().map(Ruling::of)).collect()
            }
            Err(why) => {
                tracing::debug!(owner = %way.owner, verb = way.verb, receipts = at.len(), error = why, "an owner was not reached");
                items.iter().for_each(|(_, receipt)| self.known.forget(place, receipt));
                at.into_iter().map(|at| (at, Ruling::about(Verdict::Unreachable, way.owner))).collect()
            }
        }
    }
}
