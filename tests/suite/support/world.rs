//! A store with a clock that only the story moves.

use dwell::store::Backend as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dwell::model::error::{Error, Kind, Result};
use dwell::model::message::{GroupName, TopicName};
use dwell::model::time::Timestamp;
use dwell::model::topic::{Descriptor, GroupPartition, Settings};
use dwell::outage::{BufferedStore, OutageOptions};
use dwell::platform::clock::{Clock, Manual};
use dwell::platform::tasks::Tasks;
use dwell::store::embedded::Embedded;
use dwell::store::redis::{Redis, RedisOptions};
use dwell::store::{Acquired, LogTarget, MemberId, NoOwners, Owner, Store};
use dwell::telemetry::metrics::Metrics;
use tempfile::TempDir;

use super::cluster::Cluster;
use super::redis::{RedisServer, connect};
use super::simulated::SimulatedRedis;
use super::tls::Certificates;
use super::{LEASE, TestTopic, eventually, failed};

/// When every story begins.
const START: Timestamp = Timestamp::from_ms(1_767_323_045_678);

/// A store and the hands of its clock. What the store needs lives as long as the world.
pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) time: Manual,
    /// The same store, where logs can be applied to it.
    pub(crate) target: Option<Arc<dyn LogTarget>>,
    background: Background,
    needs: Needs,
}

/// Stops what the store does in the background when the world ends.
struct Background(Tasks);

impl Drop for Background {
    fn drop(&mut self) {
        self.0.stopping().cancel();
    }
}

/// What a store needs to live.
enum Needs {
    Nothing,
    Dir(TempDir),
    /// Its data stays while it lives.
    Server(RedisServer),
    Both {
        server: RedisServer,
        _dir: TempDir,
    },
    /// The same for who shares it.
    Cluster(#[expect(dead_code, reason = "it lives as long as the world")] Arc<Cluster>),
}

impl World {
    /// A world with an embedded store in a scratch directory.
    pub(crate) async fn embedded() -> Result<World> {
        World::embedded_in(scratch()?, Manual::at(START))
    }

    fn embedded_in(dir: TempDir, time: Manual) -> Result<World> {
        let store = Embedded::open(dir.path(), Clock::Manual(time.clone()))?;
        Ok(World::of(Store::of(Arc::new(store)), time, Needs::Dir(dir)))
    }

    /// A world with a redis-server of its own.
    pub(crate) async fn redis() -> Result<World> {
        let server = RedisServer::start().await?;
        World::redis_on(RedisOptions::new(server.url()), server).await
    }

    /// The same with the simulated Redis in its place: what the simulator searches with is a Redis where a store tells its
    /// stories.
    pub(crate) async fn simulated() -> Result<World> {
        World::redis_with(SimulatedRedis::new().options(), Needs::Nothing).await
    }

    /// The same for a user who may do what deploy/redis.acl says, and nothing else.
    pub(crate) async fn redis_as_user() -> Result<World> {
        let acl = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/redis.acl");
        let server = RedisServer::start_with(&["--save", "", "--aclfile", acl]).await?;
        let options = RedisOptions::new(format!("{}?user=dwell", server.url()));
        World::redis_on(RedisOptions { password: Some("password".into()), ..options }, server).await
    }

    /// The same over TLS, with certificates both ways.
    pub(crate) async fn redis_over_tls() -> Result<World> {
        let (server, options) = Certificates::new()?.server().await?;
        World::redis_on(options, server).await
    }

    /// The same on a cluster, which this world shares with others that are there at the same time, under a prefix of its
    /// own.
    pub(crate) async fn redis_cluster() -> Result<World> {
        static WORLDS: AtomicUsize = AtomicUsize::new(0);
        let cluster = Cluster::shared().await?;
        let prefix = format!("world-{}", WORLDS.fetch_add(1, Ordering::Relaxed));
        let options = patient(RedisOptions { prefix, ..RedisOptions::new(cluster.url()) });
        let time = Manual::at(START);
        let store = Redis::open(options, Clock::Manual(time.clone()), Arc::new(Metrics::new()?)).await?;
        Ok(World::of(Store::of(Arc::new(store)), time, Needs::Cluster(cluster)))
    }

    async fn redis_on(options: RedisOptions, server: RedisServer) -> Result<World> {
        World::redis_with(options, Needs::Server(server)).await
    }

    async fn redis_with(options: RedisOptions, needs: Needs) -> Result<World> {
        let time = Manual::at(START);
        let store = Redis::open(patient(options), Clock::Manual(time.clone()), Arc::new(Metrics::new()?)).await?;
        let store = Arc::new(store);
        let target: Option<Arc<dyn LogTarget>> = Some(store.clone());
        Ok(World { target, ..World::of(Store::of(store), time, needs) })
    }

    /// A world with a redis-server of its own, and a store that buffers pushes while it is away.
    pub(crate) async fn buffered() -> Result<World> {
        let (server, dir, time) = (RedisServer::start().await?, scratch()?, Manual::at(START));
        let (metrics, options) = (Arc::new(Metrics::new()?), patient(RedisOptions::new(server.url())));
        let timeout = options.timeout;
        let store = Redis::open(options, Clock::Manual(time.clone()), metrics.clone()).await?;
        let outage = OutageOptions::new(dir.path());
        let store = BufferedStore::open(store, outage, timeout, metrics).await?;
        Ok(World::of(Arc::new(store).into_store(), time, Needs::Both { server, _dir: dir }))
    }

    /// A world on a Redis that the story keeps, under the clock of that Redis, and with so much time for a call. The hands
    /// of the world's own clock stand at its beginning; what is due by them is due.
    pub(crate) async fn redis_at(url: String, timeout: Duration) -> Result<World> {
        let options = RedisOptions { timeout, ..RedisOptions::new(url) };
        let began = std::time::Instant::now();
        let store = Redis::open(options, Clock::System, Arc::new(Metrics::new()?)).await?;
        let time = Manual::at(store.clock().now());
        // The store believes Redis ahead by no more than the first answer took; then it is due for Redis too.
        let (opened, took) = (std::time::Instant::now(), began.elapsed());
        let passed = async || Ok((opened.elapsed() >= took).then_some(()));
        eventually("Redis' clock is where the store believes it", passed).await?;
        Ok(World::of(Store::of(Arc::new(store)), time, Needs::Nothing))
    }

    fn of(store: Store, time: Manual, needs: Needs) -> World {
        let background = Background(Tasks::new());
        let (run, stop) = (store.clone(), background.0.stopping());
        background.0.start(async move { run.backend.run(&NoOwners, stop).await });
        World { store, time, target: None, background, needs }
    }

    /// Closes the store and opens it again. Every owner, and every topic of the story, must be gone.
    pub(crate) async fn reopened(self) -> Result<World> {
        Ok(self.reopened_after(|_| Ok(())).await?.0)
    }

    /// Closes the store, looks into its directory, and opens it again.
    pub(crate) async fn reopened_after<T>(self, look: impl Fn(&Path) -> Result<T>) -> Result<(World, T)> {
        let World { store, time, background, needs, .. } = self;
        let Needs::Dir(dir) = needs else { return Err(Error::bug("only the embedded store is opened again")) };
        background.0.stop().await;
        store.backend.close().await?;
        drop(store);
        released(dir.path()).await?;
        // A process that another test is about to start may have the lock for a moment.
        let look = || match look(dir.path()) {
            Err(error) if error.kind() == Kind::Unavailable => Ok(None),
            seen => seen.map(Some),
        };
        let seen = eventually("the store can be read", async || look()).await?;
        released(dir.path()).await?;
        Ok((World::embedded_in(dir, time)?, seen))
    }

    /// Lets everything run that can, until all of it waits for the clock or for someone else.
    pub(crate) async fn settled(&self) {
        // Real stores answer over real sockets and disks, so this is a bounded number of turns, not a proof.
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
        let _ = self.store.backend.ping().await;
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
    }

    /// Asks until it is true.
    pub(crate) async fn until(&self, what: &str, ask: impl AsyncFn() -> Result<bool>) -> Result<()> {
        eventually(what, async || Ok(ask().await?.then_some(()))).await
    }

    /// Takes a partition from a member that is alive, as its lapsed lease would let someone do.
    pub(crate) async fn steal(&self, partition: &GroupPartition, from: &MemberId) -> Result<Box<dyn Owner>> {
        let generation = self.store.topics.topic(&partition.topic).await?.map_or(0, |descriptor| descriptor.generation);
        match self.store.leases.acquire(partition, from, LEASE, generation).await? {
            Acquired::Owned(owner) => Ok(owner),
            held => Err(Error::stale(format!("{partition} is not free: {held:?}"))),
        }
    }

    /// Lets time pass, in small steps, until it is done.
    pub(crate) async fn as_time_passes<T>(&self, what: impl Future<Output = T>) -> T {
        let time = async {
            loop {
                self.settled().await;
                self.pass(10);
            }
        };
        tokio::select! {
            done = what => done,
            () = time => unreachable!("time does not end"),
        }
    }

    /// Says something to Redis behind the store's back, and answers what Redis said.
    pub(crate) async fn meddle(&self, command: &[String]) -> Result<String> {
        let (Needs::Server(server) | Needs::Both { server, .. }) = &self.needs else {
            return Err(Error::bug("there is no Redis in this world"));
        };
        let refused = |error: redis::RedisError| Error::unavailable(format!("{command:?}: {error}"));
        let client = redis::Client::open(server.url()).map_err(refused)?;
        let mut connection = connect(&client).await.map_err(refused)?;
        let mut said = redis::Cmd::new();
        said.arg(command);
        let answer: redis::Value = said.query_async(&mut connection).await.map_err(refused)?;
        redis::from_redis_value(answer).map_err(|error| Error::corrupt(format!("{command:?}: {error}")))
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
        Ok(self.existing(self.store.topics.create(&wanted).await?))
    }

    /// A topic of one partition with these groups, in which the messages of a key come one after the other.
    pub(crate) async fn ordered(&self, name: &str, groups: &[&str]) -> Result<TestTopic> {
        let partitions = std::num::NonZeroU16::MIN;
        let mut wanted = Descriptor::new(
            TopicName::new(name)?,
            Settings { partitions, ordering: dwell::model::topic::Ordering::Key, ..Settings::default() },
        );
        wanted.groups = groups.iter().map(GroupName::new).collect::<Result<_>>()?;
        Ok(self.existing(self.store.topics.create(&wanted).await?))
    }

    /// A topic that exists.
    pub(crate) fn existing(&self, descriptor: Descriptor) -> TestTopic {
        TestTopic { store: self.store.clone(), time: self.time.clone(), descriptor }
    }
}

/// Waits until nobody has the store's directory: sled's threads let go of it a moment after the store.
async fn released(dir: &Path) -> Result<()> {
    let file = std::fs::File::open(dir.join("db")).map_err(failed("the file of the store"))?;
    let lock = || rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
    eventually("the store is released", async || Ok(lock().ok())).await
}

/// A Redis may answer late on a machine that is busy with other tests: that is no outage.
fn patient(options: RedisOptions) -> RedisOptions {
    RedisOptions { timeout: Duration::from_secs(10), ..options }
}

/// A directory that is removed when dropped.
pub(crate) fn scratch() -> Result<TempDir> {
    tempfile::tempdir().map_err(failed("a scratch directory"))
}
