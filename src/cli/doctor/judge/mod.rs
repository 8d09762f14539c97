//! What is good and what is not: pure judgements over what was seen. Nothing here asks anybody anything.

mod clients;
mod disk;
mod fleet;
mod keyspace;
mod logs;
mod machine;
mod memory;
mod persistence;
mod server;
mod speed;
#[cfg(test)]
mod testing;

pub(super) use disk::{DiskFacts, disk};
pub(super) use fleet::redis;
pub(super) use logs::{StoreFacts, log, store};
pub(super) use machine::{BrokerFacts, broker, open_files, time};

use std::time::Duration;

use crate::app::engine::Confirmation;
use crate::cli::output::bytes;

/// What the configuration says that judgements depend on.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    /// How long one call may take.
    pub(super) timeout: Duration,
    /// Whether a Redis that may evict keys will do.
    pub(super) allow_eviction: bool,
    /// Which servers must have a change before it is answered.
    pub(super) confirmation: Confirmation,
    /// How much of its last moments Redis may lose, if pushes are kept for it.
    pub(super) journal: Option<Duration>,
    /// What dwell's keys begin with.
    pub(super) prefix: String,
}

/// Milliseconds for people.
fn millis(span: Duration) -> String {
    let ms = span.as_secs_f64() * 1_000.0;
    if ms < 10.0 { format!("{ms:.2} ms") } else { format!("{ms:.0} ms") }
}

/// The smallest, the middle and the greatest of some spans, if there are any.
fn spread(spans: &[Duration]) -> Option<(Duration, Duration, Duration)> {
    let mut sorted = spans.to_vec();
    sorted.sort_unstable();
    Some((*sorted.first()?, *sorted.get(sorted.len() / 2)?, *sorted.last()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_said_for_people() {
        assert_eq!([millis(Duration::from_micros(81)), millis(Duration::from_secs(2))], ["0.08 ms", "2000 ms"]);
        let ms = Duration::from_millis;
        assert_eq!(spread(&[ms(3), ms(1), ms(2)]), Some((ms(1), ms(2), ms(3))));
        assert_eq!(spread(&[]), None);
    }
}
