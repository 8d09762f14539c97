//! A store with a clock that only the story moves.

use std::sync::Arc;
use std::time::Duration;

use dwell::clock::{Clock, Manual};
use dwell::error::Result;
use dwell::message::{GroupName, TopicName};
use dwell::metrics::Metrics;
use dwell::store::Store;
use dwell::store::embedded::Embedded;
use dwell::store::redis::{Redis, RedisOptions};
use dwell::tasks::Tasks;
use dwell::time::Timestamp;
use dwell::topic::{Descriptor, Settings};
use tempfile::TempDir;

use super::redis::RedisServer;
use super::{TestTopic, failed};

/// When every story begins.
const START: Timestamp = Timestamp::from_ms(1_767_323_045_678);

/// A store and the hands of its clock. What the store needs lives as long as the world.
pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) time: Manual,
    background: Tasks,
    _needs: Vec<Box<dyn Send + Sync>>,
}

impl World {
    /// A world with an embedded store in a scratch directory.
    pub(crate) async fn embedded() -> Result<World> {
        let dir = scratch()?;
        let time = Manual::at(START);
        let store = Embedded::open(dir.path(), Clock::Manual(time.clone()))?;
        Ok(World::of(Arc::new(store), time, vec![Box::new(dir)]))
    }

    /// A world with a redis-server of its own.
    pub(crate) async fn redis() -> Result<World> {
        let server = RedisServer::start().await?;
        let time = Manual::at(START);
        let options = RedisOptions::new(server.url());
        let store = Redis::connect(options, Clock::Manual(time.clone()), Arc::new(Metrics::new()?)).await?;
        Ok(World::of(Arc::new(store), time, vec![Box::new(server)]))
    }

    fn of(store: Arc<dyn Store>, time: Manual, needs: Vec<Box<dyn Send + Sync>>) -> World {
        let background = Tasks::new();
        let (run, stop) = (store.clone(), background.stopping());
        background.start(async move { run.run(stop).await });
        World { store, time, background, _needs: needs }
    }

    /// Moves the clock.
    pub(crate) fn pass(&self, ms: u64) {
        self.time.advance(Duration::from_millis(ms));
    }

    /// The time.
    pub(crate) fn now(&self) -> Timestamp {
        Clock::Manual(self.time.clone()).now()
    }

    /// A topic of one partition and the group `default`.
    pub(crate) async fn topic(&self, name: &str) -> Result<TestTopic> {
        self.topic_with_groups(name, &["default"]).await
    }

    /// A topic of one partition with these groups.
    pub(crate) async fn topic_with_groups(&self, name: &str, groups: &[&str]) -> Result<TestTopic> {
        let settings = Settings { partitions: std::num::NonZeroU16::MIN, ..Settings::default() };
        let mut wanted = Descriptor::new(TopicName::new(name)?, settings);
        wanted.groups = groups.iter().map(GroupName::new).collect::<Result<_>>()?;
        let descriptor = self.store.create(&wanted).await?;
        Ok(TestTopic { store: self.store.clone(), time: self.time.clone(), descriptor })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.background.stopping().cancel();
    }
}

/// A directory that is removed when dropped.
pub(crate) fn scratch() -> Result<TempDir> {
    tempfile::tempdir().map_err(failed("a scratch directory"))
}
