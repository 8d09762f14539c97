//! The request of a consumer to reserve, and the selection of messages in it. Checks the limits of both.

use std::time::Duration;

use super::check_count;
use crate::delivery::{Delivery, Gather};
use crate::model::error::{Error, Fault, Result};
use crate::model::limits::{LINGER_MAX, MIN_AGE_MAX, PER_KEY_MAX, WAIT_MAX};
use crate::model::retry::OnFailure;
use crate::model::time::show_span;
use crate::model::topic::{Descriptor, check_visibility_timeout};

#[derive(Debug, Clone, Copy)]
pub struct ReserveRequest {
    /// 1 to 1,000 deliveries.
    pub max: usize,
    /// How long to wait for the first one, at most 60 s. Zero looks for up to [`crate::delivery::SHORT_POLL`].
    pub wait: Duration,
    pub visibility_timeout: Option<Duration>,
}

/// Deliveries to a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservedDeliveries {
    /// Empty when nothing was due in time.
    pub deliveries: Vec<Delivery>,
    /// How long each may take: that of the request, or of the topic.
    pub visibility_timeout: Duration,
}

/// Which messages a consumer wants.
#[derive(Debug, Clone, Copy)]
pub struct Selection {
    /// Only messages that were pushed at least this long ago, at most 3,650 d.
    pub min_age: Duration,
    /// With ordering: successive messages of one key in one batch, 1 to 10.
    pub per_key: usize,
    /// Policy for the later messages of a key in this batch when one fails.
    pub on_failure: OnFailure,
    /// Without ordering: the batch that it waits for. `min` is 1 to `max`, and `linger` at most 60 s.
    pub gather: Gather,
}

impl Default for Selection {
    fn default() -> Selection {
        let (per_key, on_failure, gather) = (1, OnFailure::default(), Gather::default());
        Selection { min_age: Duration::ZERO, per_key, on_failure, gather }
    }
}

impl Selection {
    pub(super) fn check_ordering(self, descriptor: &Descriptor) -> Result<()> {
        if self.per_key > 1 && !descriptor.is_ordered() {
            return Err(Error::invalid("per_key", "is above 1, but the topic has no ordering"));
        }
        let Gather { min, same_key, .. } = self.gather;
        let ordered = "but the topic has an ordering: `per_key` asks for successive messages of a key";
        match descriptor.is_ordered() {
            true if same_key => Err(Error::invalid("same_key", format!("is set, {ordered}"))),
            true if min > 1 => Err(Error::invalid("min", format!("is above 1, {ordered}"))),
            _ => Ok(()),
        }
    }
}

impl ReserveRequest {
    /// Checks every limit, also those of the selection. Errors: `Invalid`, naming the field.
    pub fn check(&self, Selection { min_age, per_key, on_failure, gather }: Selection) -> Result<()> {
        check_count("max", self.max)?;
        self.check_gather(gather)?;
        if gather.same_key && per_key > 1 {
            return Err(Error::wrong(
                Fault::Exclusive,
                "same_key",
                "is set together with `per_key`: `per_key` is for topics with ordering, `same_key` for the others",
            ));
        }
        if gather.waits() && !min_age.is_zero() {
            return Err(Error::wrong(
                Fault::Exclusive,
                "min",
                "is above 1 together with `min_age`: leave one of them out",
            ));
        }
        if !(1..=PER_KEY_MAX).contains(&per_key) {
            return Err(Error::range("per_key", format!("is 1 to {PER_KEY_MAX}")));
        }
        if on_failure == OnFailure::KeepRest && per_key == 1 {
            return Err(Error::invalid(
                "on_failure",
                "is `keep_rest`, but `per_key` is not above 1: a batch has no rest",
            ));
        }
        if min_age > MIN_AGE_MAX {
            return Err(Error::range("min_age", format!("is at most {}", show_span(MIN_AGE_MAX))));
        }
        if self.wait > WAIT_MAX {
            return Err(Error::range("wait", format!("is at most {}", show_span(WAIT_MAX))));
        }
        self.visibility_timeout.map_or(Ok(()), check_visibility_timeout)
    }
    fn check_gather(&self, Gather { min, linger, .. }: Gather) -> Result<()> {
        if !(1..=self.max).contains(&min) {
            return Err(Error::range("min", format!("is 1 to {}, the `max` of the request", self.max)));
        }
        match (min > 1, linger.is_zero()) {
            (false, false) => {
                Err(Error::wrong(Fault::Missing, "min", "is missing: `linger` waits for at least 2 messages"))
            }
            (true, true) => {
                let why = format!(
                    "is missing, or zero: where `min` is above 1, say how long to wait, at most {}",
                    show_span(LINGER_MAX)
                );
                Err(Error::wrong(Fault::Missing, "linger", why))
            }
            _ if linger > LINGER_MAX => Err(Error::range("linger", format!("is at most {}", show_span(LINGER_MAX)))),
            _ => Ok(()),
        }
    }
}
