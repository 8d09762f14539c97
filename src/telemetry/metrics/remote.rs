//! Decisions about deliveries that another broker handed out.

use prometheus::{IntCounter, IntCounterVec};

use super::registry::Maker;
use crate::model::error::Result;

/// The metrics of remote decisions.
#[derive(Debug)]
pub struct RemoteMetrics {
    answered: IntCounter,
    unanswered: IntCounter,
    dropped: IntCounterVec,
}

/// Why a datagram was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteDrop {
    /// dwell did not write it.
    Invalid,
    /// Its sender does not wait for an answer any more.
    Expired,
    /// There was no room for it.
    Full,
}

impl RemoteDrop {
    const ALL: [RemoteDrop; 3] = [RemoteDrop::Invalid, RemoteDrop::Expired, RemoteDrop::Full];

    fn name(self) -> &'static str {
        match self {
            RemoteDrop::Invalid => "invalid",
            RemoteDrop::Expired => "expired",
            RemoteDrop::Full => "full",
        }
    }
}

impl RemoteMetrics {
    pub(super) fn new(make: &Maker) -> Result<RemoteMetrics> {
        let requests = make.counters(
            "dwell_remote_requests_total",
            &["outcome"],
            "requests to the brokers that own the partitions of receipts, sent through the store: `answered`, or `failed` (the \
             consumer was told `unreachable` or `unknown_outcome`)",
        )?;
        let dropped = make.counters(
            "dwell_remote_dropped_total",
            &["reason"],
            "datagrams for this broker that were dropped: `invalid` (dwell did not write it), `expired`, or `full` (too many \
             at once)",
        )?;
        for reason in RemoteDrop::ALL {
            dropped.with_label_values(&[reason.name()]);
        }
        Ok(RemoteMetrics {
            answered: requests.with_label_values(&["answered"]),
            unanswered: requests.with_label_values(&["failed"]),
            dropped,
        })
    }

    /// Counts a request to an owner.
    pub fn request(&self, answered: bool) {
        if answered { &self.answered } else { &self.unanswered }.inc();
    }

    /// Counts a datagram that was dropped.
    pub fn dropped(&self, reason: RemoteDrop) {
        self.dropped.with_label_values(&[reason.name()]).inc();
    }
}
