//! A consumer's request for deliveries, and its limits.

use std::time::Duration;

use super::check_count;
use crate::model::error::{Error, Fault, Result};
use crate::model::limits::{MIN_AGE_MAX, WAIT_MAX};
use crate::model::time::show_span;
use crate::model::topic::check_visibility_timeout;

/// A request for deliveries.
#[derive(Debug, Clone, Copy)]
pub struct ReserveRequest {
    /// 1 to 1,000 deliveries.
    pub max: usize,
    /// How long to wait for the first one, at most 60 s. Zero looks for up to [`crate::delivery::SHORT_POLL`].
    pub wait: Duration,
    /// Overrides the topic's visibility timeout.
    pub visibility_timeout: Option<Duration>,
}

impl ReserveRequest {
    /// Checks every limit, also that of the age that messages have to have.
    ///
    /// # Errors
    /// `Invalid`, naming the field.
    pub fn check(&self, min_age: Duration) -> Result<()> {
        check_count("max", self.max)?;
        if min_age > MIN_AGE_MAX {
            return Err(Error::wrong(Fault::Range, "min_age", format!("is at most {}", show_span(MIN_AGE_MAX))));
        }
        if self.wait > WAIT_MAX {
            return Err(Error::wrong(Fault::Range, "wait", format!("is at most {}", show_span(WAIT_MAX))));
        }
        self.visibility_timeout.map_or(Ok(()), check_visibility_timeout)
    }
}
