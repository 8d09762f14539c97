//! Replication: effects of a primary come to its replicas after their lag.

use super::{Deployment, Link, Node};
use crate::replication::Follower;
use crate::time::Time;

/// How long an end of a silent stream waits before it gives up: `repl-timeout`.
const TIMEOUT: u64 = 60_000_000;

impl Deployment {
    /// The time from a write on the primary until a replica has it, microseconds. 500 at first.
    pub fn set_lag(&mut self, replica: super::NodeId, us: u64) {
        if let Some(node) = self.nodes.get_mut(replica.0) {
            node.lag_us = us;
        }
    }

    fn replicas(&self, primary: usize) -> Vec<usize> {
        (0..self.nodes.len()).filter(|number| self.nodes[*number].follows == Some(primary)).collect()
    }

    fn can_link(&self, replica: usize, primary: usize) -> bool {
        self.is_reached(replica)
            && self.is_reached(primary)
            && self.nodes[primary].server.as_ref().is_some_and(|server| server.is_primary() && !server.is_loading())
    }

    /// Connects replicas to primaries that they reach, and ends streams that have been silent for too long.
    pub(super) fn link_all(&mut self) {
        for replica in 0..self.nodes.len() {
            let Some(primary) = self.nodes[replica].follows else { continue };
            let can = self.can_link(replica, primary);
            match self.nodes[replica].link {
                Link::Up if !can => self.nodes[replica].link = Link::Silent(self.now + TIMEOUT),
                Link::Silent(_) if can => self.nodes[replica].link = Link::Up,
                Link::Silent(until) if until <= self.now => self.unlink(replica, primary),
                Link::Down if can => self.synchronize(replica, primary),
                _ => {}
            }
        }
    }

    /// Both ends find that the stream has ended.
    pub(super) fn unlink(&mut self, replica: usize, primary: usize) {
        self.nodes[replica].link = Link::Down;
        if let Some(server) = &mut self.nodes[primary].server {
            server.forget_follower(replica);
        }
        let now = self.now;
        if let Some(server) = &mut self.nodes[replica].server {
            server.set_link(false, now);
        }
    }

    /// Goes on where the replica is, if the primary still knows what came behind; else the replica takes over all.
    fn synchronize(&mut self, replica: usize, primary: usize) {
        let config = self.nodes[replica].config.clone();
        let now = self.now;
        let Some((follower, source)) = two(&mut self.nodes, replica, primary) else { return };
        let (replid, offset) = follower.replication();
        match source.continues(&replid, offset) {
            Some(replid) => follower.set_replid(&replid),
            None => {
                source.keep_effects();
                follower.take_over(&source.snapshot().0, now);
            }
        }
        follower.set_link(true, now);
        let acked = follower.replication().1;
        let (host, port) = (config.host, config.port);
        source.note_follower(replica, Follower { host, port, is_connected: true, acked, fsynced: 0, heard: now });
        self.nodes[replica].link = Link::Up;
        self.acknowledge(replica, primary);
    }

    /// The primary hears from its replicas, which say once a second how far they are.
    pub(super) fn hear(&mut self, primary: usize) {
        for replica in self.replicas(primary) {
            if self.nodes[replica].link == Link::Up && self.can_link(replica, primary) {
                self.acknowledge(replica, primary);
            }
        }
    }

    fn acknowledge(&mut self, replica: usize, primary: usize) {
        let now = self.now;
        if let Some((follower, source)) = two(&mut self.nodes, replica, primary) {
            let (offset, fsynced) = follower.progress();
            source.hear_follower(replica, offset, fsynced, now);
        }
    }

    /// Gives replicas what their lag lets through, and answers who waited for it.
    pub(super) fn replicate_from(&mut self, primary: usize) {
        let replicas = self.replicas(primary);
        if replicas.is_empty() {
            return;
        }
        let mut kept = u64::MAX;
        for replica in &replicas {
            if self.nodes[*replica].link == Link::Up && self.can_link(*replica, primary) {
                self.replicate(*replica, primary, self.nodes[*replica].lag_us);
                self.gather(*replica);
            }
            if let Some(server) = &self.nodes[*replica].server {
                kept = kept.min(server.replication().1);
            }
        }
        if let Some(server) = &mut self.nodes[primary].server {
            server.trim_effects(kept);
            server.settle();
        }
        self.gather(primary);
    }

    /// Applies on a replica what is older than the lag.
    pub(super) fn replicate(&mut self, replica: usize, primary: usize, lag_us: u64) {
        let now = self.now;
        let Some((follower, source)) = two(&mut self.nodes, replica, primary) else { return };
        let (replid, offset) = follower.replication();
        let (history, end) = source.replication();
        if replid != history || offset > end {
            // The primary went back in time.
            self.nodes[replica].link = Link::Down;
            self.synchronize(replica, primary);
            return;
        }
        if offset == end {
            return;
        }
        for effect in source.effects_behind(offset) {
            if effect.at + lag_us > now {
                break;
            }
            follower.apply(&effect, now);
        }
        self.acknowledge(replica, primary);
    }

    /// When the stream to a node has something to do.
    pub(super) fn next_of_stream(&self, replica: usize) -> Option<Time> {
        let node = self.nodes.get(replica)?;
        let primary = node.follows?;
        match node.link {
            Link::Silent(until) => Some(until),
            Link::Down => self.can_link(replica, primary).then_some(self.now),
            Link::Up if !self.can_link(replica, primary) => Some(self.now),
            Link::Up => {
                let (follower, source) = (node.server.as_ref()?, self.nodes[primary].server.as_ref()?);
                let at = source.first_effect_behind(follower.replication().1)?;
                Some(at + node.lag_us)
            }
        }
    }
}

/// Two running servers at once: the first one and the second one.
fn two(
    nodes: &mut [Node],
    some: usize,
    other: usize,
) -> Option<(&mut crate::server::Server, &mut crate::server::Server)> {
    if some == other {
        return None;
    }
    let (low, high) = nodes.split_at_mut(some.max(other));
    let (first, second) = (&mut low[some.min(other)], &mut high[0]);
    let (first, second) = if some < other { (first, second) } else { (second, first) };
    Some((first.server.as_mut()?, second.server.as_mut()?))
}
