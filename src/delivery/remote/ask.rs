//! Asking an owner about the messages that it holds: where one is, how many there are, and to give some back to the store.
//!
//! None changes a message, so a copy is worked on like the first. Nothing is remembered for those who ask, but the holds of
//! recalls, which end by themselves.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::inquiry::{Inquiry, InquiryMessage, Report};
use super::name::RequestName;
use super::wire::RemoteMessage;
use super::{Remote, TopicGroup};
use crate::delivery::RecallGuard;
use crate::model::limits::RECALL_HOLD_MAX;
use crate::model::message::{GroupName, TopicName};
use crate::model::time::Timestamp;
use crate::platform::clock::Instant;
use crate::store::{Datagram, MemberId};

/// The pause before a question that somebody may have received is repeated.
const REPEAT_AFTER: Duration = Duration::from_millis(250);
/// Holds for others that are kept at the same time; the oldest one is let go before its time.
const HOLDS_MAX: usize = 1_000;

/// The question of another broker. It counts as one that has arrived until it is dropped.
pub(crate) struct InquiryRequest {
    pub(super) name: RequestName,
    pub(super) from: MemberId,
    pub(crate) place: (TopicName, GroupName),
    pub(crate) inquiry: Inquiry,
    pub(crate) patience: Duration,
    pub(super) _datagram: Datagram,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoReport {
    /// Certainly nobody receives what is sent to it now.
    Nobody,
    /// It did not answer in time.
    Silent,
}

#[derive(Default)]
pub(super) struct Inquiries {
    asking: Mutex<HashMap<RequestName, oneshot::Sender<Report>>>,
    holds: Mutex<HashMap<RequestName, (Instant, RecallGuard)>>,
}

/// Ends the wait for a report.
struct Asked<'a>(&'a Inquiries, RequestName);

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        lock(&self.0.asking).remove(&self.1);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inquiries {
    /// A report that is not awaited is dropped.
    pub(super) fn take(&self, name: &RequestName, report: Report) {
        if let Some(asking) = lock(&self.asking).remove(name) {
            let _ = asking.send(report);
        }
    }

    fn release(&self, name: &RequestName) {
        // The guard is dropped outside of the lock.
        let guard = lock(&self.holds).remove(name);
        drop(guard);
    }

    fn hold(&self, name: RequestName, guard: RecallGuard, now: Instant) {
        let mut over = Vec::new();
        {
            let mut holds = lock(&self.holds);
            let ended: Vec<RequestName> =
                holds.iter().filter(|(_, (until, _))| *until <= now).map(|(name, _)| name.clone()).collect();
            over.extend(ended.iter().filter_map(|name| holds.remove(name)));
            if holds.len() >= HOLDS_MAX {
                let oldest = holds.iter().min_by_key(|(_, (until, _))| *until).map(|(name, _)| name.clone());
                over.extend(oldest.and_then(|oldest| holds.remove(&oldest)));
            }
            over.extend(holds.insert(name, (now.plus(RECALL_HOLD_MAX), guard)));
        }
        drop(over);
    }
}

impl Remote {
    /// Asks an owner, and repeats the question until it answers. With the name of the question.
    pub(crate) async fn inquire(
        &self,
        owner: &MemberId,
        (topic, group): TopicGroup<'_>,
        inquiry: Inquiry,
        until: Instant,
    ) -> (RequestName, Result<Report, NoReport>) {
        let (name, clock) = (RequestName::fresh(), self.store.backend.clock());
        let (sender, mut report) = oneshot::channel();
        lock(&self.inquiries.asking).insert(name.clone(), sender);
        let _asked = Asked(&self.inquiries, name.clone());
        let datagram =
            self.encode_inquiry((topic, group), &name, inquiry, clock.now().plus(until.since(clock.local().instant())));
        loop {
            let sent = tokio::select! {
                sent = self.store.groups.send(owner, datagram.clone()) => sent,
                () = clock.local().sleep_until(until) => return (name, Err(NoReport::Silent)),
            };
            if matches!(sent, Ok(false)) {
                return (name, Err(NoReport::Nobody));
            }
            let pause = clock.local().instant().plus(REPEAT_AFTER).min(until);
            tokio::select! {
                report = &mut report => return (name, report.map_err(|_| NoReport::Silent)),
                () = clock.local().sleep_until(pause) => {}
            }
            if clock.local().instant() >= until {
                return (name, Err(NoReport::Silent));
            }
        }
    }

    fn encode_inquiry(
        &self,
        (topic, group): TopicGroup<'_>,
        name: &RequestName,
        inquiry: Inquiry,
        until: Timestamp,
    ) -> Bytes {
        let (topic, group, from) = (topic.clone(), group.clone(), self.member.clone());
        RemoteMessage::Inquiry(InquiryMessage { name: name.clone(), from, until, topic, group, inquiry }).encode()
    }

    /// Says that a recall is over. If this is lost, the hold ends by itself.
    pub(crate) async fn release(&self, owner: &MemberId, place: TopicGroup<'_>, recall: RequestName) {
        let until = self.store.backend.clock().now().plus(RECALL_HOLD_MAX);
        let datagram = self.encode_inquiry(place, &RequestName::fresh(), Inquiry::Release { recall }, until);
        self.send(owner, datagram).await;
    }

    /// The recall of another broker is over.
    pub(crate) fn released(&self, recall: &RequestName) {
        self.inquiries.release(recall);
    }

    /// Answers. The hold of a recall ends with its release, or by itself.
    pub(crate) async fn report(&self, request: InquiryRequest, report: Report, guard: Option<RecallGuard>) {
        let InquiryRequest { name, from, .. } = request;
        if let Some(guard) = guard {
            self.inquiries.hold(name.clone(), guard, self.store.backend.clock().local().instant());
        }
        self.send(&from, RemoteMessage::Report(name, report).encode()).await;
    }
}
