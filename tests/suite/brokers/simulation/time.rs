//! Milliseconds of the simulation as instants and spans.

use std::time::Duration;

use dwell::platform::clock::Instant;

use super::store::Ms;

pub(super) fn instant(ms: Ms) -> Instant {
    Instant::default().plus(Duration::from_millis(ms))
}

pub(super) fn span(ms: Ms) -> Duration {
    Duration::from_millis(ms)
}
