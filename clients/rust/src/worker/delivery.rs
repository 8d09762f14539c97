//! A message that was handed to a worker, as its handler sees it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::settle;
use super::state::Shared;
use crate::client::Error;
use crate::wire::consume;

/// A message that was handed to a handler. Its fields are those of the API: `delivery.id`, `delivery.attempt`, `delivery.due_at`.
///
/// A clone is the same delivery.
#[derive(Clone)]
pub struct Delivery {
    inner: Arc<Inner>,
}

struct Inner {
    fields: consume::Delivery,
    payload: Vec<u8>,
    ended: watch::Receiver<bool>,
    shared: Arc<Shared>,
}

impl Deref for Delivery {
    type Target = consume::Delivery;

    fn deref(&self) -> &consume::Delivery {
        &self.inner.fields
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fields.fmt(f)
    }
}

impl Delivery {
    pub(super) fn new(fields: consume::Delivery, ended: watch::Receiver<bool>, shared: Arc<Shared>) -> Delivery {
        let payload = fields.contents.bytes();
        Delivery { inner: Arc::new(Inner { fields, payload, ended, shared }) }
    }

    /// The bytes of the payload.
    pub fn payload(&self) -> &[u8] {
        &self.inner.payload
    }

    /// The payload as text; bytes that are not UTF-8 are replaced.
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.inner.payload)
    }

    /// The payload as JSON.
    ///
    /// # Errors
    ///
    /// It is no JSON, or not of this type.
    pub fn json<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_slice(&self.inner.payload)
    }

    /// The key that it was pushed with.
    pub fn key(&self) -> Option<&str> {
        self.contents.key.as_deref()
    }

    /// The value of a name that travels with the payload.
    pub fn meta(&self, name: &str) -> Option<&str> {
        self.contents.meta.get(name)
    }

    /// Moves the deadline to this time from now. Answers whether the delivery still belongs to this worker. The worker extends by
    /// itself, so few handlers need this.
    ///
    /// # Errors
    ///
    /// The broker refuses this time, such as [`Error::Refused`] with `invalid` for one beyond a limit. The deadline is as before, and the
    /// worker still extends it by its visibility timeout.
    pub async fn extend(&self, visibility: Duration) -> Result<bool, Error> {
        let shared = &self.inner.shared;
        let extended = settle::extend(shared, std::slice::from_ref(&self.receipt), visibility).await;
        let is_ours = shared.is_ours(&self.receipt);
        if is_ours { extended.map(|()| true) } else { Ok(false) }
    }

    /// Waits until another consumer may have the message, or the worker stops and the time to drain is over. Nothing that the handler
    /// answers counts from then on, so it should end.
    pub async fn ended(&self) {
        // The sender is dropped with the slot, after the handler or its decision.
        let _ = self.inner.ended.clone().wait_for(|ended| *ended).await;
    }

    /// Whether [`Delivery::ended`] has happened.
    pub fn is_ended(&self) -> bool {
        *self.inner.ended.borrow()
    }
}
