//! Decisions about deliveries that another broker handed out: they are sent to it through the store, and it answers.
//!
//! A request and its answer are datagrams, so each may be lost, doubled or late. The broker that asks repeats its request
//! unchanged until it is answered; the owner works on it once and answers every copy alike. Nothing here decides about a
//! delivery. docs/internals/groups.md, "Settle anywhere", says why no verdict is wrong.

mod answered;
mod epochs;
mod wire;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use self::answered::{Admission, Answered};
use self::epochs::Epochs;
pub(crate) use self::wire::Ask;
use self::wire::{Answer, Parcel, Request, RequestName};
use crate::delivery::{Receipt, Verdict};
use crate::model::error::Result;
use crate::model::message::{GroupName, TopicName};
use crate::model::time::Timestamp;
use crate::store::{Datagram, MemberId, Store, Tenant};
use crate::telemetry::metrics::{Metrics, RemoteDrop};

/// How long the sender of a request may wait, at most, whatever it says.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A verdict, and who owns the partition when that is another broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    /// What became of the decision.
    pub verdict: Verdict,
    /// With [`crate::delivery::StaleReason::LostPartition`] the broker that has taken the partition over, if one has; with
    /// [`Verdict::Unreachable`] the one that did not answer, if it is known.
    pub owner: Option<MemberId>,
}

/// A group of a topic.
pub(crate) type Place<'a> = (&'a TopicName, &'a GroupName);

/// What a broker asks others, and what others ask it.
pub(crate) struct Remote {
    store: Store,
    member: MemberId,
    metrics: Arc<Metrics>,
    epochs: Epochs,
    asking: Mutex<HashMap<RequestName, Asking>>,
    answered: Mutex<Answered>,
}

/// A request that waits for its answer.
struct Asking {
    /// How many verdicts are an answer to it.
    receipts: usize,
    answer: oneshot::Sender<Vec<Verdict>>,
}

/// A request to an owner, until it is dropped.
pub(crate) struct Question<'a> {
    remote: &'a Remote,
    name: RequestName,
    datagram: Bytes,
    answer: oneshot::Receiver<Vec<Verdict>>,
}

/// A request of another broker. It counts as one that has arrived until it is dropped.
pub(crate) struct Errand {
    name: RequestName,
    from: MemberId,
    /// Where the deliveries are.
    pub(crate) place: (TopicName, GroupName),
    /// What is asked.
    pub(crate) ask: Ask,
    /// How long the sender still waits.
    pub(crate) patience: Duration,
    _datagram: Datagram,
}

/// What a datagram asks for.
pub(crate) enum Opened {
    /// Decide, and answer.
    Decide(Errand),
    /// Answer again.
    Repeat(MemberId, Bytes),
}

impl Ruling {
    /// Of this broker.
    pub(crate) fn of(verdict: Verdict) -> Ruling {
        Ruling { verdict, owner: None }
    }

    /// Of another broker's delivery.
    pub(crate) fn about(verdict: Verdict, owner: Option<&MemberId>) -> Ruling {
        // The store may hold what dwell never wrote; an answer does not carry it on.
        Ruling { verdict, owner: owner.filter(|owner| owner.is_plausible()).cloned() }
    }
}

impl Remote {
    pub(crate) fn new(store: Store, member: MemberId, metrics: Arc<Metrics>) -> Remote {
        Remote {
            store,
            member,
            metrics,
            epochs: Epochs::default(),
            asking: Mutex::default(),
            answered: Mutex::default(),
        }
    }

    /// Who owns the epoch of a receipt, if that was learnt.
    pub(crate) fn owner(&self, place: Place<'_>, receipt: &Receipt) -> Option<MemberId> {
        self.epochs.owner(place, receipt)
    }

    /// Learns from the store who owns the epoch of a receipt. `None` if the epoch is over.
    pub(crate) fn learn(&self, place: Place<'_>, receipt: &Receipt, tenant: &Tenant) -> Option<Option<MemberId>> {
        if tenant.epoch.as_ref() != Some(&receipt.epoch) {
            return None;
        }
        let owner = tenant.member.clone().filter(MemberId::is_plausible);
        if let Some(owner) = &owner {
            self.epochs.learn(place, receipt, owner);
        }
        Some(owner)
    }

    /// The owner of an epoch did not answer.
    pub(crate) fn forget(&self, place: Place<'_>, receipt: &Receipt) {
        self.epochs.forget(place, receipt);
    }

    /// Writes a request. It is not sent yet.
    pub(crate) fn question(&self, (topic, group): Place<'_>, ask: Ask, until: Timestamp) -> Question<'_> {
        let (name, receipts) = (RequestName::fresh(), ask.receipts().len());
        let (sender, answer) = oneshot::channel();
        self.asking().insert(name.clone(), Asking { receipts, answer: sender });
        let (topic, group, from) = (topic.clone(), group.clone(), self.member.clone());
        let request = Request { name: name.clone(), from, until, topic, group, ask };
        Question { remote: self, name, datagram: Parcel::Request(request).encode(), answer }
    }

    /// Takes what has arrived; `None` if nothing is to be done for it.
    pub(crate) fn open(&self, datagram: Datagram) -> Option<Opened> {
        match Parcel::decode(&datagram.bytes) {
            Some(Parcel::Request(request)) => self.admit(request, datagram),
            Some(Parcel::Answer(answer)) => {
                self.take(answer);
                None
            }
            None => {
                tracing::debug!(bytes = datagram.bytes.len(), "a datagram that dwell did not write");
                self.metrics.remote.dropped(RemoteDrop::Invalid);
                None
            }
        }
    }

    fn admit(&self, request: Request, datagram: Datagram) -> Option<Opened> {
        let Request { name, from, until, topic, group, ask } = request;
        let now = self.store.backend.clock().now();
        let until = until.min(now.plus(WAIT_MAX));
        if until <= now {
            self.metrics.remote.dropped(RemoteDrop::Expired);
            return None;
        }
        let admission = self.answered().admit(&name, ask.receipts().len(), until, now);
        match admission {
            Admission::New => {
                let patience = until.since(now);
                Some(Opened::Decide(Errand { name, from, place: (topic, group), ask, patience, _datagram: datagram }))
            }
            Admission::Again(verdicts) => {
                Some(Opened::Repeat(from, Parcel::Answer(Answer { name, verdicts }).encode()))
            }
            Admission::Busy => None,
            Admission::Full => {
                self.metrics.remote.dropped(RemoteDrop::Full);
                None
            }
        }
    }

    /// An answer that nobody waits for, or that is about something else, is dropped.
    fn take(&self, Answer { name, verdicts }: Answer) {
        let mut asking = self.asking();
        if asking.get(&name).is_some_and(|asking| asking.receipts == verdicts.len())
            && let Some(asking) = asking.remove(&name)
        {
            // Who asked may just have stopped waiting.
            let _ = asking.answer.send(verdicts);
        }
    }

    /// Remembers what was decided, and answers. After an error nothing was decided: a copy of the request is worked on.
    pub(crate) async fn answer(&self, errand: Errand, decided: Result<Vec<Verdict>>) {
        let Errand { name, from, .. } = errand;
        match decided {
            Ok(verdicts) => {
                self.answered().answered(&name, &verdicts);
                self.send(&from, Parcel::Answer(Answer { name, verdicts }).encode()).await;
            }
            Err(error) => {
                tracing::debug!(%from, %error, "a request of another broker was not worked on");
                self.answered().withdraw(&name);
            }
        }
    }

    /// Sends an answer. One that is lost is asked for again.
    pub(crate) async fn send(&self, to: &MemberId, answer: Bytes) {
        if let Err(error) = self.store.groups.send(to, answer).await {
            tracing::debug!(%to, %error, "an answer was not sent");
        }
    }

    fn asking(&self) -> MutexGuard<'_, HashMap<RequestName, Asking>> {
        // Nothing panics while the lock is held; if it did, the map would still be whole.
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answered(&self) -> MutexGuard<'_, Answered> {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Question<'_> {
    /// Sends it, or a copy of it. False if certainly nobody receives it.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn send(&self, owner: &MemberId) -> Result<bool> {
        self.remote.store.groups.send(owner, self.datagram.clone()).await
    }

    /// The answer, however long it takes.
    pub(crate) async fn answer(&mut self) -> Vec<Verdict> {
        match (&mut self.answer).await {
            Ok(verdicts) => verdicts,
            // The sender lives as long as this question, or has sent.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        self.remote.asking().remove(&self.name);
    }
}
