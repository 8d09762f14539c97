//! A Redis of others, which stands at the address of Redis for a while.

use std::collections::BTreeSet;
use std::sync::Arc;

use dwell_simulated_redis::{Crash, NodeId, Time};

use super::{Broker, Later, SECOND, World};
use crate::client::Clients;
use crate::ledger::Strange;
use crate::lock;
use crate::plan::Topic;
use crate::run::Failure;

const REDIS: NodeId = NodeId(0);

/// Its identity, which others gave it long ago.
const NAME: &[u8] = b"01HF5BY300THERSTHERSTHERS0";

/// What others have.
pub(super) struct Stranger {
    /// Every key with its content.
    data: BTreeSet<String>,
    /// Since when it is there.
    came: Option<Time>,
}

impl World {
    /// Others use a Redis at this address first, by a broker of theirs: some of their topics have the names of ours.
    pub(super) fn make_stranger(&mut self) -> Result<(), Failure> {
        let theirs = Broker::new(self.plan.seed.wrapping_add(77), self.now)?;
        let ours = std::mem::replace(&mut self.brokers[0], theirs);
        let named = |(number, topic): (usize, &Topic)| match (self.plan.seed + number as u64).is_multiple_of(2) {
            true => topic.clone(),
            false => Topic { name: format!("theirs{number}"), ..topic.clone() },
        };
        let topics: Vec<Topic> = self.plan.topics.iter().enumerate().map(named).collect();
        let clients = Clients { topics: Arc::new(topics), ..self.clients.clone() };
        self.start(0)?;
        self.wait_for("the topics of others", 60, async move {
            clients.set_up().await;
            clients.push_of_others().await;
        })?;
        self.kill(0);
        self.brokers[0] = ours;
        let now = self.now;
        if let Some(server) = self.deployment.server_mut(REDIS) {
            server.command(&[b"SET", b"dwell:id", NAME], now);
        }
        let data = self.strange_data();
        self.stranger = Some(Stranger { data, came: None });
        self.deployment.crash(REDIS, Crash::Process, self.now);
        self.deployment.exchange(REDIS);
        self.deployment.restart(REDIS, 0, self.now);
        self.pass(self.now + SECOND)
    }

    fn strange_data(&mut self) -> BTreeSet<String> {
        let now = self.now;
        self.deployment.server_mut(REDIS).map(|server| server.dump(now).into_iter().collect()).unwrap_or_default()
    }

    pub(super) fn stranger_comes(&mut self, down_ms: u64, for_ms: u64) {
        let Some(stranger) = self.stranger.as_mut().filter(|stranger| stranger.came.is_none()) else { return };
        stranger.came = Some(self.now);
        self.deployment.crash(REDIS, Crash::Process, self.now);
        self.deployment.exchange(REDIS);
        self.deployment.restart(REDIS, 0, self.now);
        self.later.push((self.now + for_ms * 1_000, Later::StrangerLeaves { down_ms }));
    }

    /// What it has been given is noted.
    pub(super) fn stranger_leaves(&mut self, down_ms: u64) {
        self.deployment.restart(REDIS, 0, self.now);
        let found = self.strange_data();
        let until = self.now;
        let Some(stranger) = self.stranger.as_mut() else { return };
        let Some(from) = stranger.came.take() else { return };
        let strange = Strange { from, until, given: found.difference(&stranger.data).cloned().collect() };
        stranger.data = found;
        lock(&self.clients.ledger).strange.push(strange);
        self.deployment.crash(REDIS, Crash::Process, self.now);
        self.deployment.exchange(REDIS);
        self.later.push((self.now + down_ms * 1_000, Later::StartRedis(REDIS, 0)));
    }
}
