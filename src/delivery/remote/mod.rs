//! Decisions about deliveries that another broker handed out: they are sent to it through the store, and it answers.
//!
//! A request and its answer are datagrams, so each may be lost, doubled or late. The broker that asks repeats its request
//! unchanged until it is answered; the owner works on it once and answers every copy alike. Nothing here decides about a
//! delivery. docs/internals/groups.md, "Settle anywhere", says why no verdict is wrong.

mod name;
mod inquiry;
mod wire;
mod ask;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use self::ask::Inquiries;
pub(crate) use self::ask::{InquiryRequest, NoReport};
use self::inquiry::InquiryMessage;
pub(crate) use self::inquiry::{Inquiry, Report};
pub(crate) use self::name::RequestName;
pub(crate) use self::wire::{Ask, What};
use self::wire::{OwnerAnswer, RemoteMessage, Request};
use crate::delivery::Verdict;
use crate::model::error::Result;
use crate::model::limits::{REMOTE_VERDICTS_MAX, SILENT_BROKERS_MAX};
use crate::model::message::{GroupName, TopicName};
use crate::model::time::Timestamp;
use crate::store::{Datagram, MemberId, Store};
use crate::telemetry::metrics::{Metrics, RemoteDrop};

/// How long the sender of a request may wait, at most, whatever it says.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// A remembered request counts as this many verdicts, beside its own.
const ENTRY_SIZE: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    pub verdict: Verdict,
    /// The broker that has taken the partition over or did not answer, if it is known.
    pub owner: Option<MemberId>,
}

pub(crate) type TopicGroup<'a> = (&'a TopicName, &'a GroupName);

pub(crate) struct Remote {
    store: Store,
    member: MemberId,
    metrics: Arc<Metrics>,
    pub(crate) silent: Silent,
    asking: Mutex<HashMap<RequestName, Asking>>,
    answered: Mutex<Answered>,
    inquiries: Inquiries,
}

struct Asking {
    receipts: usize,
    answer: oneshot::Sender<Vec<Verdict>>,
}

pub(crate) struct Question<'a> {
    remote: &'a Remote,
    name: RequestName,
    datagram: Bytes,
    answer: oneshot::Receiver<Vec<Verdict>>,
}

/// A request of another broker. It counts as one that has arrived until it is dropped.
pub(crate) struct SettleRequest {
    name: RequestName,
    from: MemberId,
    pub(crate) place: (TopicName, GroupName),
    pub(crate) ask: Ask,
    pub(crate) patience: Duration,
    _datagram: Datagram,
}

pub(crate) enum Opened {
    Decide(SettleRequest),
    Repeat(MemberId, Bytes),
    Inquire(InquiryRequest),
}

impl Ruling {
    pub(crate) fn of(verdict: Verdict) -> Ruling {
        Ruling { verdict, owner: None }
    }

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
            silent: Silent::default(),
            asking: Mutex::default(),
            answered: Mutex::default(),
            inquiries: Inquiries::default(),
        }
    }

    /// Registers a request; it is not sent yet.
    pub(crate) fn question(&self, (topic, group): TopicGroup<'_>, ask: Ask, until: Timestamp) -> Question<'_> {
        let (name, receipts) = (RequestName::fresh(), ask.receipts().len());
        let (sender, answer) = oneshot::channel();
        self.asking().insert(name.clone(), Asking { receipts, answer: sender });
        let (topic, group, from) = (topic.clone(), group.clone(), self.member.clone());
        let request = Request { name: name.clone(), from, until, topic, group, ask };
        Question { remote: self, name, datagram: RemoteMessage::Request(request).encode(), answer }
    }

    pub(crate) fn open(&self, datagram: Datagram) -> Option<Opened> {
        match RemoteMessage::decode(&datagram.bytes) {
            Some(RemoteMessage::Request(request)) => self.admit(request, datagram),
            Some(RemoteMessage::Answer(answer)) => {
                self.take(answer);
                None
            }
            Some(RemoteMessage::Inquiry(inquiry)) => self.admit_inquiry(inquiry, datagram),
            Some(RemoteMessage::Report(name, report)) => {
                self.inquiries.take(&name, report);
                None
            }
            None => {
                tracing::debug!(bytes = datagram.bytes.len(), "a datagram that dwell did not write");
                self.metrics.remote.dropped(RemoteDrop::Invalid);
                None
            }
        }
    }

    fn admit_inquiry(&self, message: InquiryMessage, datagram: Datagram) -> Option<Opened> {
        let InquiryMessage { name, from, until, topic, group, inquiry } = message;
        let now = self.store.backend.clock().now();
        let until = until.min(now.plus(WAIT_MAX));
        if until <= now {
            self.metrics.remote.dropped(RemoteDrop::Expired);
            return None;
        }
        let (place, patience) = ((topic, group), until.since(now));
        Some(Opened::Inquire(InquiryRequest { name, from, place, inquiry, patience, _datagram: datagram }))
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
                Some(Opened::Decide(SettleRequest {
                    name,
                    from,
                    place: (topic, group),
                    ask,
                    patience,
                    _datagram: datagram,
                }))
            }
            Admission::Again(verdicts) => {
                Some(Opened::Repeat(from, RemoteMessage::Answer(OwnerAnswer { name, verdicts }).encode()))
            }
            Admission::Busy => None,
            Admission::Full => {
                self.metrics.remote.dropped(RemoteDrop::Full);
                None
            }
        }
    }

    /// An answer that is not awaited, or that is about something else, is dropped.
    fn take(&self, OwnerAnswer { name, verdicts }: OwnerAnswer) {
        let mut asking = self.asking();
        if asking.get(&name).is_some_and(|asking| asking.receipts == verdicts.len())
            && let Some(asking) = asking.remove(&name)
        {
            let _ = asking.answer.send(verdicts);
        }
    }

    /// Remembers what was decided, and answers. After an error nothing was decided: a copy of the request is worked on.
    pub(crate) async fn answer(&self, request: SettleRequest, decided: Result<Vec<Verdict>>) {
        let SettleRequest { name, from, .. } = request;
        match decided {
            Ok(verdicts) => {
                self.answered().answered(&name, &verdicts);
                self.send(&from, RemoteMessage::Answer(OwnerAnswer { name, verdicts }).encode()).await;
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
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answered(&self) -> MutexGuard<'_, Answered> {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Question<'_> {
    /// Sends it, or a copy of it. False if certainly nobody receives it. Errors: The store's.
    pub(crate) async fn send(&self, owner: &MemberId) -> Result<bool> {
        self.remote.store.groups.send(owner, self.datagram.clone()).await
    }

    pub(crate) async fn answer(&mut self) -> Vec<Verdict> {
        match (&mut self.answer).await {
            Ok(verdicts) => verdicts,
            // The sender is dropped with this question, or has sent.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        self.remote.asking().remove(&self.name);
    }
}

/// Requests whose senders may still wait: a repeated one gets the same answer, also when the epoch is over by then.
#[derive(Debug, Default)]
struct Answered {
    entries: HashMap<RequestName, Entry>,
    /// When each one ends, in the order in which they came.
    order: VecDeque<(Timestamp, RequestName)>,
    size: usize,
}

#[derive(Debug)]
struct Entry {
    size: usize,
    verdicts: Option<Vec<Verdict>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Admission {
    New,
    Busy,
    Again(Vec<Verdict>),
    /// There is no room to remember it, so nothing may be done for it.
    Full,
}

impl Answered {
    fn admit(&mut self, name: &RequestName, receipts: usize, until: Timestamp, now: Timestamp) -> Admission {
        self.forget_until(now);
        if let Some(entry) = self.entries.get(name) {
            return entry.verdicts.clone().map_or(Admission::Busy, Admission::Again);
        }
        let size = ENTRY_SIZE + receipts;
        if self.size + size > REMOTE_VERDICTS_MAX {
            return Admission::Full;
        }
        self.size += size;
        self.entries.insert(name.clone(), Entry { size, verdicts: None });
        self.order.push_back((until, name.clone()));
        Admission::New
    }

    fn answered(&mut self, name: &RequestName, verdicts: &[Verdict]) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.verdicts = Some(verdicts.to_vec());
        }
    }

    /// Nothing was done for it: a copy is worked on.
    fn withdraw(&mut self, name: &RequestName) {
        if let Some(entry) = self.entries.remove(name) {
            self.size -= entry.size;
        }
    }

    fn forget_until(&mut self, now: Timestamp) {
        while self.order.front().is_some_and(|(until, _)| *until <= now) {
            if let Some((_, name)) = self.order.pop_front() {
                self.withdraw(&name);
            }
        }
    }
}

/// Brokers that did not answer a request, and have not answered another one since. Their epochs may be over, so the store is
/// asked about them before they are.
#[derive(Default)]
pub(crate) struct Silent(Mutex<HashSet<MemberId>>);

impl Silent {
    pub(crate) fn has(&self, broker: &MemberId) -> bool {
        self.lock().contains(broker)
    }

    pub(crate) fn note(&self, broker: &MemberId) {
        let mut silent = self.lock();
        if silent.len() >= SILENT_BROKERS_MAX {
            silent.clear();
        }
        silent.insert(broker.clone());
    }

    pub(crate) fn answered(&self, broker: &MemberId) {
        self.lock().remove(broker);
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<MemberId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_request_runs_once_and_gets_the_same_reply() {
        let (mut answered, at) = (Answered::default(), Timestamp::from_ms);
        let name = RequestName::fresh();
        assert_eq!(answered.admit(&name, 1, at(100), at(0)), Admission::New);
        assert_eq!(answered.admit(&name, 1, at(100), at(1)), Admission::Busy);
        answered.answered(&name, &[Verdict::Acked]);
        assert_eq!(answered.admit(&name, 1, at(100), at(99)), Admission::Again(vec![Verdict::Acked]));
        assert_eq!(answered.admit(&RequestName::fresh(), 1, at(200), at(100)), Admission::New);
        assert_eq!((answered.entries.len(), answered.order.len(), answered.size), (1, 1, ENTRY_SIZE + 1));
    }

    #[test]
    fn request_is_refused_if_it_cannot_be_remembered() {
        let (mut answered, at) = (Answered::default(), Timestamp::from_ms);
        let mut admit = |now| answered.admit(&RequestName::fresh(), 1_000, at(100), at(now));
        let fits = REMOTE_VERDICTS_MAX / (ENTRY_SIZE + 1_000);
        assert!((0..fits).all(|_| admit(0) == Admission::New));
        assert_eq!(admit(0), Admission::Full);
        assert_eq!(admit(100), Admission::New);
    }

    #[test]
    fn silent_brokers_are_bounded_and_forgotten_when_they_answer() {
        let (silent, broker) = (Silent::default(), |n: usize| MemberId::from_store(&format!("b-{n}")));
        silent.note(&broker(0));
        assert!(silent.has(&broker(0)) && !silent.has(&broker(1)));
        silent.answered(&broker(0));
        assert!(!silent.has(&broker(0)));
        for n in 0..=SILENT_BROKERS_MAX {
            silent.note(&broker(n));
            assert!(silent.lock().len() <= SILENT_BROKERS_MAX);
        }
        assert_eq!(silent.lock().len(), 1);
    }
}
