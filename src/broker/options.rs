//! How a broker behaves.

use std::time::Duration;

use crate::model::limits::{MEMBER_PARTITIONS_MAX, PREFETCH_LIMIT_BYTES};
use crate::model::topic::Settings;
use crate::telemetry::spans::Tracer;

/// How a broker behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long a lease runs without a renewal. 1 s to 10 min.
    pub lease_ttl: Duration,
    /// The span from one heartbeat of a member to the next; at most a third of the lease ttl counts.
    pub heartbeat: Duration,
    /// How long after the last request of a consumer this process leaves a group.
    pub idle_timeout: Duration,
    /// How long a stop waits for deliveries that are out.
    pub drain_timeout: Duration,
    /// Bytes of bodies that all owned partitions together hold in memory. 16 MiB to 64 GiB.
    pub prefetch_bytes: usize,
    /// Partitions of all groups together that this process is a member of, at most.
    pub member_partitions: usize,
    /// The settings of topics that are made without any.
    pub topic_defaults: Settings,
    /// Whether a push to a topic that does not exist creates it, and so does a consumer of its group `default`.
    pub auto_create: bool,
    /// How long a settling request waits for the store before it answers `pending`.
    pub settle_timeout: Duration,
    /// Makes spans of what happens to messages.
    pub tracer: Tracer,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            lease_ttl: Duration::from_secs(10),
            heartbeat: Duration::from_secs(1),
            idle_timeout: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(10),
            prefetch_bytes: usize::try_from(PREFETCH_LIMIT_BYTES).unwrap_or(usize::MAX),
            member_partitions: MEMBER_PARTITIONS_MAX,
            topic_defaults: Settings::default(),
            auto_create: true,
            settle_timeout: Duration::from_secs(5),
            tracer: Tracer::off(),
        }
    }
}
