//! The slots of a cluster: who has them, and how they move.

use super::{Arc, ClusterView, Deployment, Layout, Member, NOBODY, NodeId, Time};

impl Deployment {
    pub fn slot_of(&self, key: &[u8]) -> u16 {
        crate::cluster::slot_of(key)
    }

    /// The primary that has the slot now, by the view of most. Without a cluster it is the one primary.
    pub fn owner_of(&self, slot: u16) -> Option<NodeId> {
        match self.layout {
            Layout::Cluster { .. } => {
                self.owners.get(usize::from(slot)).filter(|owner| **owner != NOBODY).map(|owner| NodeId(*owner))
            }
            _ => Some(NodeId(self.current_primary())),
        }
    }

    /// Takes a slot from everybody, or gives one that nobody has to a primary.
    pub fn assign(&mut self, slot: u16, to: Option<NodeId>) {
        if let Some(owner) = self.owners.get_mut(usize::from(slot)) {
            *owner = to.map_or(NOBODY, |node| node.0);
            self.tell_all();
        }
    }

    /// Begins to move a slot: MIGRATING here, IMPORTING there.
    pub fn begin_move(&mut self, slot: u16, to: NodeId) {
        if self.owner_of(slot).is_some_and(|owner| owner != to) {
            self.moves.insert(slot, to.0);
            self.tell_all();
        }
    }

    /// Moves up to so many keys of a slot that is being moved; answers how many are left.
    pub fn move_keys(&mut self, slot: u16, count: usize, now: Time) -> usize {
        self.now = self.now.max(now);
        let (Some(from), Some(to)) = (self.owner_of(slot), self.moves.get(&slot).copied()) else { return 0 };
        if !self.is_reached(from.0) || !self.is_reached(to) {
            return self.left(slot, from.0);
        }
        let keys =
            self.nodes[from.0].server.as_ref().map(|server| server.keys_of_slot(slot, count)).unwrap_or_default();
        for key in keys {
            let given = self.nodes[from.0].server.as_mut().and_then(|server| server.give(&key, now));
            if let (Some(content), Some(server)) = (given, self.nodes[to].server.as_mut()) {
                server.receive_key(&key, &content, now);
            }
        }
        self.replicate_from(from.0);
        self.replicate_from(to);
        self.left(slot, from.0)
    }

    fn left(&self, slot: u16, from: usize) -> usize {
        self.nodes[from].server.as_ref().map_or(0, |server| server.keys_of_slot(slot, usize::MAX).len())
    }

    /// The slot belongs to the node that it was moved to, with all keys that are left. Nothing happens while one of both is
    /// not there.
    pub fn end_move(&mut self, slot: u16, now: Time) {
        if self.move_keys(slot, usize::MAX, now) > 0 {
            return;
        }
        if let Some(to) = self.moves.remove(&slot) {
            self.epoch += 1;
            self.owners[usize::from(slot)] = to;
            self.tell_all();
        }
    }

    fn view(&self, me: usize, owners: &Arc<Vec<usize>>, members: &Arc<Vec<Member>>) -> ClusterView {
        let moves = |is_mine: &dyn Fn(u16, usize) -> Option<usize>| {
            self.moves.iter().filter_map(|(slot, to)| Some((*slot, is_mine(*slot, *to)?))).collect()
        };
        ClusterView {
            me,
            nodes: members.clone(),
            owners: owners.clone(),
            migrating: moves(&|slot, to| (self.owners[usize::from(slot)] == me).then_some(to)),
            importing: moves(&|slot, to| (to == me).then(|| self.owners[usize::from(slot)])),
            is_down: false,
            epoch: self.epoch,
        }
    }

    fn members(&self) -> Arc<Vec<Member>> {
        let member = |number: usize| {
            let node = &self.nodes[number];
            let (host, port, id) = (node.config.host.clone(), node.config.port, self.ids[number].clone());
            // One that is to be told is a replica in the eyes of the others.
            let follows = node.demotion.map(|(_, primary)| primary).or(node.follows);
            Member { id, host, port, follows, is_up: !self.is_lost(number) }
        };
        Arc::new((0..self.nodes.len()).map(member).collect())
    }

    /// Whether the others have given it up.
    fn is_lost(&self, number: usize) -> bool {
        let is_over = |since: Time| self.now.since(since) >= self.failover_after;
        !self.is_reached(number) && self.nodes[number].missed_since.is_some_and(is_over)
    }

    /// Tells all nodes that are reached who has which slot; the others keep what they knew.
    pub(super) fn tell_all(&mut self) {
        if let Layout::Cluster { .. } = self.layout {
            self.voters = self.voters();
            let (owners, members) = (Arc::new(self.owners.clone()), self.members());
            for number in 0..self.nodes.len() {
                if self.is_reached(number) && self.nodes[number].demotion.is_none() {
                    let view = self.view(number, &owners, &members);
                    if let Some(server) = &mut self.nodes[number].server {
                        server.set_cluster(view);
                    }
                    self.gather(number);
                }
            }
            self.judge();
        }
    }

    /// Tells one node, which starts, what is in its file: the slots as they are now, also if it is told otherwise soon.
    pub(super) fn tell_cluster(&mut self, number: usize) {
        let mut owners = self.owners.clone();
        if let Some((_, primary)) = self.nodes[number].demotion {
            owners.iter_mut().filter(|owner| **owner == primary).for_each(|owner| *owner = number);
        }
        let view = self.view(number, &Arc::new(owners), &self.members());
        if let Some(server) = &mut self.nodes[number].server {
            server.set_cluster(view);
        }
        self.judge();
    }

    /// Whether the cluster is down, in the eyes of each node: it does not reach most primaries, or slots have no primary.
    pub(super) fn judge(&mut self) {
        let is_covered = self.voters.iter().all(|owner| *owner != NOBODY && !self.is_lost(*owner));
        for number in 0..self.nodes.len() {
            let node = &self.nodes[number];
            let is_over = |since: Time| self.now.since(since) >= self.failover_after;
            let is_alone = node.is_cut_off && node.missed_since.is_some_and(is_over) && self.voters.len() > 1;
            // One that comes back waits until it knows what happened meanwhile.
            let is_down = !is_covered || is_alone || node.demotion.is_some() && !node.is_cut_off;
            if let Some(server) = &mut self.nodes[number].server {
                server.set_cluster_down(is_down);
            }
        }
    }
}
