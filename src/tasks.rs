//! The one place that starts background loops, so that the server can stop them in order and wait for their end.

use std::future::Future;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A set of running loops that stop together. Clones share the set.
#[derive(Debug, Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Tasks {
    /// No loops yet.
    pub fn new() -> Tasks {
        Tasks::default()
    }

    /// Starts a loop. It has to end soon after [`Tasks::stopping`] fires.
    pub fn start(&self, run: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(run);
    }

    /// Fires when the loops have to end.
    pub fn stopping(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Tells the loops to end and waits until they have.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}
