//! Faults of a node: crashes, stops, cuts.

use super::{Arrival, Crash, Deployment, Link, NodeId};
use crate::persistence::Image;
use crate::time::Time;

impl Deployment {
    /// Ends a node at once. Its connections are closed.
    pub fn crash(&mut self, node: NodeId, crash: Crash, now: Time) {
        self.now = self.now.max(now);
        self.gather(node.0);
        let Some(there) = self.nodes.get_mut(node.0) else { return };
        let Some(mut server) = there.server.take() else { return };
        there.files = match crash {
            Crash::Process => server.end(false, &mut self.random),
            Crash::Power => server.end(true, &mut self.random),
            Crash::Disk => (Image::default(), Vec::new()),
        };
        there.frozen_until = None;
        there.inbox.clear();
        there.demotion = None;
        for (id, connection) in self.connections.iter_mut().filter(|(_, connection)| connection.node == node.0) {
            if let Some(session) = connection.session.take() {
                self.sessions.remove(&(node.0, session));
                // What the process wrote is in the kernel.
                if crash == Crash::Process {
                    connection.rest = server.take_output(session);
                }
                self.ready.insert(*id);
            }
        }
        // Its ends of all streams are closed, and the others notice.
        for replica in 0..self.nodes.len() {
            if let Some(primary) = self.nodes[replica].follows
                && (primary == node.0 || replica == node.0)
                && self.nodes[replica].link != Link::Down
            {
                self.unlink(replica, primary);
            }
        }
        self.decide();
    }

    /// Starts a node that is down: what it has then is what its files kept. It is LOADING for so long, microseconds.
    pub fn restart(&mut self, node: NodeId, loading_us: u64, now: Time) {
        self.now = self.now.max(now);
        if self.nodes.get(node.0).is_some_and(|node| node.server.is_none()) {
            self.start(node.0, loading_us);
            self.decide();
        }
    }

    /// Another server stands at the address of a node that is down, with its own files; the next time the first one again.
    pub fn exchange(&mut self, node: NodeId) {
        if let Some(node) = self.nodes.get_mut(node.0).filter(|node| node.server.is_none()) {
            std::mem::swap(&mut node.files, &mut node.others);
        }
    }

    pub fn is_up(&self, node: NodeId) -> bool {
        self.nodes.get(node.0).is_some_and(|node| node.server.is_some())
    }

    /// Stops a node as SIGSTOP does, until then: it answers nothing, and does what came meanwhile afterwards.
    pub fn freeze(&mut self, node: NodeId, until: Time) {
        self.gather(node.0);
        if let Some(node) = self.nodes.get_mut(node.0).filter(|node| node.server.is_some()) {
            node.frozen_until = Some(until.max(self.now));
        }
        self.decide();
    }

    /// Cuts a node off from all other nodes, or ends that. Clients reach it all the same.
    pub fn set_cut_off(&mut self, node: NodeId, is_cut_off: bool, now: Time) {
        self.now = self.now.max(now);
        if let Some(node) = self.nodes.get_mut(node.0) {
            node.is_cut_off = is_cut_off;
        }
        self.link_all();
        self.decide();
    }

    /// Lets frozen nodes go on whose time has come.
    pub(super) fn thaw(&mut self) {
        for number in 0..self.nodes.len() {
            let node = &mut self.nodes[number];
            if node.frozen_until.is_none_or(|until| until > self.now) {
                continue;
            }
            node.frozen_until = None;
            for (connection, arrival) in std::mem::take(&mut node.inbox) {
                match arrival {
                    Arrival::Bytes(bytes) => self.receive(connection, &bytes, self.now),
                    Arrival::End => self.close(connection),
                }
            }
            self.gather(number);
        }
    }
}
