//! A broker that runs on the store of a world.

use std::sync::Arc;
use std::time::Duration;

use dwell::broker::{Broker, Options};
use dwell::model::error::Result;
use dwell::model::message::TopicName;
use dwell::platform::tasks::Tasks;
use dwell::telemetry::metrics::Metrics;
use tokio_util::sync::CancellationToken;

use super::World;

/// A broker with its loops. What it reserved stays reserved when it is dropped without a stop.
pub(crate) struct Running {
    pub(crate) broker: Broker,
    partitions: Tasks,
    background: Tasks,
}

impl Running {
    /// Starts one.
    pub(crate) fn start(world: &World, options: Options) -> Result<Running> {
        let (partitions, background) = (Tasks::new(), Tasks::new());
        // The time of a world moves in leaps while its store writes: nobody's patience with that may end in one.
        let options = Options { settle_timeout: Duration::from_secs(86_400), ..options };
        let broker = Broker::new(world.store.clone(), Arc::new(Metrics::new()?), partitions.clone(), options);
        let (run, stop) = (broker.clone(), background.stopping());
        background.start(async move { run.run(stop).await });
        Ok(Running { broker, partitions, background })
    }

    /// Runs something beside the loops of the partitions, which stops with them.
    pub(crate) fn beside<F: Future<Output = ()> + Send + 'static>(&self, run: impl FnOnce(CancellationToken) -> F) {
        self.partitions.start(run(self.partitions.stopping()));
    }

    /// Stops it in order: first the loops of the partitions, then what keeps their leases.
    pub(crate) async fn stop(&self) {
        self.partitions.stop().await;
        self.background.stop().await;
    }

    /// Messages of a topic in any state.
    pub(crate) async fn messages(&self, topic: &TopicName) -> Result<u64> {
        let stats = self.broker.stats(topic).await?;
        Ok(stats.iter().map(|(_, s)| s.live() + s.dead).sum())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.partitions.stopping().cancel();
        self.background.stopping().cancel();
    }
}
