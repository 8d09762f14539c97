//! Where a bench keeps its messages: directories that go at the end, or prefixes of a Redis that it empties.

use std::time::Duration;

use crate::app::config::RedisUrl;
use crate::app::embed::Dwell;
use crate::app::engine::{BaselineRedis, OutageOptions, RedisOptions, StoreOptions};
use crate::broker;
use crate::cli::failure::Failure;
use crate::cli::scratch::ScratchDir;

/// How long one call to Redis may take. A bench loads it on purpose.
const REDIS_TIMEOUT: Duration = Duration::from_secs(5);

/// How long bare commands may take: many are in one write.
const BARE_TIMEOUT: Duration = Duration::from_secs(30);

/// What is appended to the prefix: brokers that are measured beside each other share nothing.
const PARTS: [&str; 5] = ["library", "http", "pending", "scale", "bare"];

/// Where one broker keeps its messages.
#[derive(Debug, Clone)]
pub(super) enum Place {
    Embedded,
    Redis { url: RedisUrl, prefix: String },
}

/// The directories of a bench, and its Redis if it has one.
pub(super) struct Stores {
    pub(super) scratch: ScratchDir,
    redis: Option<(RedisUrl, String)>,
    /// The same Redis without dwell.
    pub(super) bare: Option<BaselineRedis>,
}

impl Stores {
    /// # Errors
    /// Also when there are keys under the prefix already.
    pub(super) async fn open(redis: Option<&RedisUrl>, prefix: Option<&str>) -> Result<Stores, Failure> {
        let name = format!("dwell-bench-{}", ulid::Ulid::new().to_string().to_lowercase());
        let scratch = ScratchDir::new(&name)?;
        let Some(url) = redis else { return Ok(Stores { scratch, redis: None, bare: None }) };
        let prefix = prefix.unwrap_or(&name).to_owned();
        let options = RedisOptions { timeout: BARE_TIMEOUT, ..RedisOptions::new(url.secret().clone()) };
        let bare = BaselineRedis::open(&options).await?;
        for part in PARTS {
            let prefix = format!("{prefix}-{part}");
            if bare.holds(&prefix).await? {
                let why = format!(
                    "there are keys under {prefix} already; a bench deletes what is there, so it needs another"
                );
                return Err(Failure::usage(format!("--prefix: {why}")));
            }
        }
        Ok(Stores { scratch, redis: Some((url.clone(), prefix)), bare: Some(bare) })
    }

    /// Where a part of the bench keeps its messages; one of [`PARTS`].
    pub(super) fn place(&self, part: &str) -> Place {
        match &self.redis {
            None => Place::Embedded,
            Some((url, prefix)) => Place::Redis { url: url.clone(), prefix: format!("{prefix}-{part}") },
        }
    }

    /// A broker in this process. `name` is of its directory.
    pub(super) async fn library(&self, part: &str, name: &str) -> Result<Dwell, Failure> {
        let dir = self.scratch.path().join(name);
        let store = match self.place(part) {
            Place::Embedded => StoreOptions::Embedded { dir: dir.join("store") },
            Place::Redis { url, prefix } => {
                std::fs::create_dir_all(&dir)
                    .map_err(|error| Failure::new(format!("cannot make {}: {error}", dir.display())))?;
                let options = RedisOptions::new(url.secret().clone());
                let redis = RedisOptions { prefix, timeout: REDIS_TIMEOUT, allow_eviction: true, ..options };
                StoreOptions::Redis { redis, failover: OutageOptions::new(&dir) }
            }
        };
        let options = broker::Options { drain_timeout: Duration::from_secs(1), ..broker::Options::default() };
        Ok(Dwell::open(store, options).await?)
    }

    /// Deletes what it wrote to Redis; directories go when this is dropped.
    pub(super) async fn clear(&self) -> Result<(), Failure> {
        if let (Some(bare), Some((_, prefix))) = (&self.bare, &self.redis) {
            for part in PARTS {
                bare.clear(&format!("{prefix}-{part}")).await?;
            }
        }
        Ok(())
    }
}
