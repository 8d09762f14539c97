//! Who is the primary: by the simulator's word, by sentinels, by the nodes of a cluster.

use super::{Deployment, Layout, Link, NAME, NodeId};
use crate::core::hex40;
use crate::sentinel::SentinelView;
use crate::time::Time;

/// The pause before a failover is tried again that nobody could make.
const AGAIN_AFTER: u64 = 1_000_000;
/// How long a primary that comes back answers as one before sentinels tell it otherwise, and before a cluster does.
const SENTINELS_TELL: u64 = 8_000_000;
const CLUSTER_TELLS: u64 = 1_000_000;

impl Deployment {
    /// How long a primary is missed before a replica is promoted, microseconds: `down-after-milliseconds` of sentinels,
    /// `cluster-node-timeout`. 5 s at first.
    pub fn set_failover_after(&mut self, us: u64) {
        self.failover_after = us;
    }

    /// Makes a replica a primary, as `REPLICAOF NO ONE`, whatever the old one thinks: both are primaries then.
    pub fn promote(&mut self, replica: NodeId, now: Time) {
        self.now = self.now.max(now);
        self.lead(replica.0);
    }

    /// Makes a node a replica of another one, as `REPLICAOF`: it takes over what that one has, and loses its own.
    pub fn demote(&mut self, node: NodeId, of: NodeId, now: Time) {
        self.now = self.now.max(now);
        self.follow(node.0, of.0);
        self.link_all();
        self.gather(node.0);
    }

    /// Promotes a replica of a primary and makes the old primary, if it is reached, and the other replicas its replicas.
    /// Sentinels announce it, nodes of a cluster know it. Without `is_graceful` what was not replicated is lost.
    pub fn fail_over(&mut self, replica: NodeId, is_graceful: bool, now: Time) {
        self.now = self.now.max(now);
        let Some(old) = self.nodes.get(replica.0).and_then(|node| node.follows) else { return };
        // A replica that nobody reaches is promoted by nobody.
        if !self.is_reached(replica.0) {
            return;
        }
        if is_graceful && self.nodes[replica.0].link == Link::Up {
            self.replicate(replica.0, old, 0);
        }
        self.succeed(replica.0, old);
        let at = if self.is_reached(old) { self.now } else { Time(u64::MAX) };
        self.nodes[old].demotion = Some((at, replica.0));
        self.decide();
        self.link_all();
        (0..self.nodes.len()).for_each(|number| self.gather(number));
    }

    /// What a sentinel says until the next failover, whatever is true.
    pub fn set_belief(&mut self, sentinel: NodeId, primary: NodeId, now: Time) {
        self.now = self.now.max(now);
        if let Some(node) = self.nodes.get_mut(sentinel.0).filter(|node| node.is_sentinel) {
            node.errs_in = Some(self.epoch);
            self.tell_sentinel(sentinel.0, primary.0);
        }
    }

    fn lead(&mut self, number: usize) {
        if let Some(primary) = self.nodes[number].follows {
            self.unlink(number, primary);
        }
        let replid = hex40(&mut self.random);
        let (now, node) = (self.now, &mut self.nodes[number]);
        (node.follows, node.demotion) = (None, None);
        if let Some(server) = &mut node.server {
            server.lead(replid, now);
        }
    }

    fn follow(&mut self, number: usize, primary: usize) {
        if number == primary || self.nodes[number].follows == Some(primary) {
            return;
        }
        if let Some(before) = self.nodes[number].follows {
            self.unlink(number, before);
        }
        let config = self.nodes[primary].config.clone();
        let (now, node) = (self.now, &mut self.nodes[number]);
        (node.follows, node.link, node.demotion) = (Some(primary), Link::Down, None);
        if let Some(server) = &mut node.server {
            server.follow(&config.host, config.port, now);
        }
        self.gather(number);
    }

    /// A replica takes the place of its primary; the other replicas that are reached follow it.
    fn succeed(&mut self, replica: usize, old: usize) {
        let siblings: Vec<usize> = (0..self.nodes.len())
            .filter(|number| self.nodes[*number].follows == Some(old) && *number != replica)
            .collect();
        self.lead(replica);
        for sibling in siblings {
            if self.is_reached(sibling) {
                self.follow(sibling, replica);
            } else {
                self.nodes[sibling].demotion = Some((self.now, replica));
            }
        }
        self.epoch += 1;
        if let Layout::Cluster { .. } = self.layout {
            self.owners.iter_mut().filter(|owner| **owner == old).for_each(|owner| *owner = replica);
            self.moves.retain(|_, to| *to != old);
            self.tell_all();
        }
        for number in 0..self.nodes.len() {
            if self.nodes[number].is_sentinel && self.is_reached(number) {
                self.switch(number, old, replica);
            }
        }
    }

    // Decisions.

    /// When somebody decides about a node that is missed.
    pub(super) fn failover_at(&self, number: usize) -> Option<Time> {
        let node = self.nodes.get(number)?;
        let has_place = !node.is_sentinel && node.follows.is_none() && node.demotion.is_none();
        if !has_place || matches!(self.layout, Layout::Primary { .. }) {
            return None;
        }
        let since = node.missed_since.filter(|_| self.has_place(number))?;
        Some((since + self.failover_after).max(node.tried_again))
    }

    /// Those that vote about a failover: sentinels, or the primaries that have slots.
    pub(super) fn voters(&self) -> Vec<usize> {
        let mut voters = match self.layout {
            Layout::Primary { .. } => Vec::new(),
            Layout::Sentinels { .. } => {
                (0..self.nodes.len()).filter(|number| self.nodes[*number].is_sentinel).collect()
            }
            Layout::Cluster { .. } => self.owners.clone(),
        };
        voters.sort_unstable();
        voters.dedup();
        voters
    }

    /// Notes who is missed, promotes replicas of those that were missed for too long, and tells those that came back.
    pub(super) fn decide(&mut self) {
        let mut is_news = false;
        for number in 0..self.nodes.len() {
            let is_reached = self.is_reached(number);
            let node = &mut self.nodes[number];
            is_news |= node.missed_since.is_none() != is_reached;
            node.missed_since = if is_reached { None } else { Some(node.missed_since.unwrap_or(self.now)) };
        }
        for number in 0..self.nodes.len() {
            if self.failover_at(number).is_some_and(|at| at <= self.now) {
                self.replace(number);
            }
        }
        self.tell_returned();
        match self.layout {
            Layout::Primary { .. } => {}
            Layout::Sentinels { .. } => self.refresh_sentinels(is_news),
            Layout::Cluster { .. } => self.judge(),
        }
    }

    /// Whether it is the one that sentinels name, or that has slots.
    fn has_place(&self, number: usize) -> bool {
        match self.layout {
            Layout::Cluster { .. } => self.voters.contains(&number),
            _ => self.current_primary() == number,
        }
    }

    fn replace(&mut self, number: usize) {
        let (voters, reached) =
            (self.voters.len(), self.voters.iter().filter(|voter| self.is_reached(**voter)).count());
        let candidates = (0..self.nodes.len()).filter(|replica| {
            self.nodes[*replica].follows == Some(number) && self.is_reached(*replica) && !self.is_loading(*replica)
        });
        let offset = |replica: &usize| self.nodes[*replica].server.as_ref().map_or(0, |server| server.replication().1);
        // Of equals the first one.
        let best = candidates.max_by_key(|replica| (offset(replica), usize::MAX - replica));
        match best.filter(|_| reached > voters / 2) {
            Some(replica) => {
                self.succeed(replica, number);
                self.nodes[number].demotion = Some((Time(u64::MAX), replica));
            }
            None => {
                self.nodes[number].tried_again = self.now + AGAIN_AFTER;
            }
        }
    }

    fn is_loading(&self, number: usize) -> bool {
        self.nodes[number].server.as_ref().is_some_and(|server| server.is_loading())
    }

    /// Demotes primaries that came back after another one took their place.
    fn tell_returned(&mut self) {
        for number in 0..self.nodes.len() {
            let Some((at, primary)) = self.nodes[number].demotion else { continue };
            if !self.is_reached(number) {
                self.nodes[number].demotion = Some((Time(u64::MAX), primary));
            } else if at == Time(u64::MAX) {
                let is_cluster = matches!(self.layout, Layout::Cluster { .. });
                let pause = if is_cluster { CLUSTER_TELLS } else { SENTINELS_TELL };
                self.nodes[number].demotion = Some((self.now + pause, primary));
            } else if at <= self.now {
                // The one that took its place may have lost it again.
                let primary = self.nodes[primary].follows.unwrap_or(primary);
                self.follow(number, primary);
                if let Layout::Cluster { .. } = self.layout {
                    self.tell_all();
                }
            }
        }
    }

    // Sentinels.

    /// The primary that most sentinels name, or would.
    pub(super) fn current_primary(&self) -> usize {
        let is = |number: &usize| {
            let node = &self.nodes[*number];
            !node.is_sentinel && node.follows.is_none() && node.demotion.is_none()
        };
        (0..self.nodes.len()).find(is).unwrap_or(0)
    }

    fn sentinel_view(&self, primary: usize) -> SentinelView {
        let config = &self.nodes[primary].config;
        let sentinels = self.nodes.iter().filter(|node| node.is_sentinel).count();
        let reached =
            (0..self.nodes.len()).filter(|number| self.nodes[*number].is_sentinel && self.is_reached(*number));
        let others = (0..self.nodes.len()).filter(|number| !self.nodes[*number].is_sentinel && *number != primary);
        SentinelView {
            name: NAME.to_owned(),
            host: config.host.clone(),
            port: config.port,
            epoch: self.epoch,
            quorum: sentinels / 2 + 1,
            reached: reached.count(),
            sentinels,
            replicas: others
                .map(|number| (self.nodes[number].config.host.clone(), self.nodes[number].config.port))
                .collect(),
            is_down: !self.is_reached(primary),
        }
    }

    pub(super) fn tell_sentinel(&mut self, sentinel: usize, primary: usize) {
        let view = self.sentinel_view(primary);
        let node = &mut self.nodes[sentinel];
        // Who is wrong does not have the newest decision.
        let epoch = view.epoch - u64::from(node.errs_in.is_some());
        if let Some(server) = &mut node.server {
            server.set_sentinel(SentinelView { epoch, ..view });
        }
    }

    fn switch(&mut self, sentinel: usize, old: usize, new: usize) {
        self.nodes[sentinel].errs_in = None;
        self.tell_sentinel(sentinel, new);
        let place = |number: usize| {
            let config = &self.nodes[number].config;
            format!("{} {}", config.host, config.port)
        };
        let text = format!("{NAME} {} {}", place(old), place(new));
        if let Some(server) = &mut self.nodes[sentinel].server {
            server.announce("+switch-master", &text);
        }
        self.gather(sentinel);
    }

    /// Sentinels that reach others learn what those decided.
    fn refresh_sentinels(&mut self, is_news: bool) {
        let primary = self.current_primary();
        for number in 0..self.nodes.len() {
            let node = &self.nodes[number];
            if !node.is_sentinel || !self.is_reached(number) || node.errs_in == Some(self.epoch) {
                continue;
            }
            let believed = node.server.as_ref().and_then(|server| server.believed(self.epoch));
            let old = believed.and_then(|(host, port)| self.node_at(&host, port));
            match old.filter(|old| old.0 != primary) {
                Some(old) => self.switch(number, old.0, primary),
                None if is_news => self.tell_sentinel(number, primary),
                None => {}
            }
        }
    }
}
