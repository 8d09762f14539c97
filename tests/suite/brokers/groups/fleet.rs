//! Several sidecars on one Redis.

use std::path::PathBuf;

use dwell::model::error::Result;
use serde_json::json;
use tempfile::TempDir;

use super::sidecar::Sidecar;
use crate::support::{RedisServer, scratch};

/// The topic of the stories.
pub(super) const ORDERS: &str = "orders";

/// One Redis, and where its sidecars keep their sockets and logs.
pub(super) struct Fleet {
    pub(super) redis: RedisServer,
    dir: TempDir,
}

impl Fleet {
    /// Nobody yet.
    pub(super) async fn of(redis: RedisServer) -> Result<Fleet> {
        Ok(Fleet { redis, dir: scratch()? })
    }

    /// Starts a sidecar.
    pub(super) async fn start(&self, name: &str) -> Result<Sidecar> {
        self.start_with(name, &[]).await
    }

    /// Starts a sidecar with these variables in its environment.
    pub(super) async fn start_with(&self, name: &str, with: &[(&str, &str)]) -> Result<Sidecar> {
        Sidecar::start(self.dir.path(), name, &self.redis.url(), with).await
    }

    /// The path of a file that goes with the fleet, as `a.sock`, where sidecar `a` listens.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A fleet in which these sidecars run and the topic has so many partitions.
    pub(super) async fn with(partitions: u16, names: &[&str]) -> Result<(Fleet, Vec<Sidecar>)> {
        let fleet = Fleet::of(RedisServer::start().await?).await?;
        let mut sidecars = Vec::new();
        for name in names {
            sidecars.push(fleet.start(name).await?);
        }
        declare(&sidecars[0], ORDERS, partitions).await?;
        Ok((fleet, sidecars))
    }

    /// The epoch of each partition, as Redis has it: the owner line without its sequence and stamp.
    pub(super) async fn epochs(&self, partitions: usize) -> Result<Vec<String>> {
        let mut epochs = Vec::new();
        for partition in 0..partitions {
            let line: Option<String> =
                self.redis.ask(&format!("HGET {{dwell:{ORDERS}:{partition}}}:default:r @")).await?;
            epochs.push(line.unwrap_or_default().split('/').next().unwrap_or_default().to_owned());
        }
        Ok(epochs)
    }
}

/// Makes a topic. An id that was acked is remembered, so that a push may be repeated after an answer that was lost.
pub(super) async fn declare(sidecar: &Sidecar, topic: &str, partitions: u16) -> Result<()> {
    let settings = json!({"partitions": partitions, "dedup_window": "10m"});
    sidecar.tell(&format!("PUT /v1/topics/{topic}"), &settings).await.map(drop)
}
