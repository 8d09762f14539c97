//! Webhooks: each message of a group is POSTed to an application, whose answer settles it. docs/how-to/webhooks.md is the
//! contract.
//!
//! Targets come from the configuration file only. A webhook never follows a redirect, and reaches nothing beyond this
//! machine unless it is told to.

mod answer;
mod post;
mod signature;
mod subscription;
mod target;

use std::path::PathBuf;
use std::time::Duration;

pub use subscription::Subscription;
pub use target::{ACCEPTED as TARGET_ACCEPTED, Target};

use self::post::Poster;
use crate::model::error::Result;
use crate::model::message::{GroupName, TopicName};
use crate::platform::clock::Clock;
use crate::platform::secret::Secret;

/// Where the messages of a group go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// The topic.
    pub topic: TopicName,
    /// The group that is consumed for.
    pub group: GroupName,
    /// The application.
    pub target: Target,
    /// POSTs at the same time, 1 to 256.
    pub concurrency: usize,
    /// From the start of a POST to the end of its answer, 100 ms to 1 h. The visibility timeout of its delivery is
    /// longer, so that the POST has ended before its message may come again.
    pub timeout: Duration,
    /// Signs every POST.
    pub secret: Option<Secret>,
    /// The certificates that the application's has to follow from, with https; without, the system's.
    pub ca_file: Option<PathBuf>,
    /// Whether it is started.
    pub enabled: bool,
}

impl Webhook {
    /// Refuses what a start would refuse, without a network.
    pub(crate) fn check(&self, clock: Clock) -> Result<()> {
        Poster::new(self.clone(), clock).map(drop)
    }
}
