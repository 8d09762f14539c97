//! A node's view of its cluster: who has which slot.

use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const SLOTS: u16 = 16_384;

/// A slot that nobody has.
pub(crate) const NOBODY: usize = usize::MAX;

#[derive(Debug, Clone)]
pub(crate) struct ClusterView {
    /// The number of this node.
    pub(crate) me: usize,
    pub(crate) nodes: Arc<Vec<Member>>,
    /// The node that has each slot.
    pub(crate) owners: Arc<Vec<usize>>,
    /// Slots that are being moved away, and where to; and those that come, and where from.
    pub(crate) migrating: BTreeMap<u16, usize>,
    pub(crate) importing: BTreeMap<u16, usize>,
    pub(crate) is_down: bool,
    pub(crate) epoch: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) id: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The primary that it follows.
    pub(crate) follows: Option<usize>,
    pub(crate) is_up: bool,
}

/// The slot of a key: of what is between its first braces, if anything is.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        rest.iter().position(|byte| *byte == b'}').filter(|end| *end > 0).map(|end| &rest[..end])
    });
    crc16::State::<crc16::XMODEM>::calculate(tag.unwrap_or(key)) % SLOTS
}

use crate::core::Core;
use crate::resp::Reply;

impl Core {
    /// Why a command with these keys belongs to another node of the cluster, if so.
    pub(crate) fn redirect(
        &mut self,
        keys: &[&[u8]],
        is_asking: bool,
        reads_here: bool,
        command: &str,
    ) -> Option<Reply> {
        let view = self.cluster.clone()?;
        let first = keys.first()?;
        let slot = slot_of(first);
        if keys.iter().any(|key| slot_of(key) != slot) {
            return Some(Reply::error("CROSSSLOT Keys in request don't hash to the same slot"));
        }
        let owner = view.owners[usize::from(slot)];
        if owner == NOBODY {
            return Some(Reply::error("CLUSTERDOWN Hash slot not served"));
        }
        if view.is_down {
            return Some(Reply::error("CLUSTERDOWN The cluster is down"));
        }
        let place = |node: usize| view.nodes.get(node).map(|node| format!("{}:{}", node.host, node.port));
        let is_channel = command.ends_with("SUBSCRIBE") || command == "SPUBLISH";
        let missing = keys.iter().filter(|key| !is_channel && !self.has(key)).count();
        if let Some(to) = view.migrating.get(&slot).filter(|_| missing > 0) {
            if missing < keys.len() {
                return Some(again());
            }
            return Some(Reply::error_of(format!("ASK {slot} {}", place(*to)?)));
        }
        if view.importing.contains_key(&slot) && is_asking {
            return (keys.len() > 1 && missing > 0).then(again);
        }
        let follows = view.nodes.get(view.me).and_then(|me| me.follows);
        if owner == view.me || reads_here && follows == Some(owner) {
            return None;
        }
        Some(Reply::error_of(format!("MOVED {slot} {}", place(owner)?)))
    }
}

fn again() -> Reply {
    Reply::error("TRYAGAIN Multiple keys request during rehashing of slot")
}

/// Runs of slots with one owner: the first, the last, the owner.
fn ranges(view: &ClusterView) -> Vec<(usize, usize, usize)> {
    let mut ranges: Vec<(usize, usize, usize)> = Vec::new();
    for (slot, owner) in view.owners.iter().enumerate().filter(|(_, owner)| **owner != NOBODY) {
        match ranges.last_mut() {
            Some((_, last, of)) if *last + 1 == slot && of == owner => *last = slot,
            _ => ranges.push((slot, slot, *owner)),
        }
    }
    ranges
}

fn with_replicas(view: &ClusterView, primary: usize) -> Vec<usize> {
    let follows = |node: &usize| view.nodes[*node].follows == Some(primary) && view.nodes[*node].is_up;
    std::iter::once(primary).chain((0..view.nodes.len()).filter(follows)).collect()
}

/// The command CLUSTER.
pub(crate) fn command(core: &Core, words: &[&[u8]]) -> Reply {
    let Some(view) = &core.cluster else {
        return Reply::error("ERR This instance has cluster support disabled");
    };
    let is = |text: &str| crate::commands::is(words[1], text);
    let me = &view.nodes[view.me];
    if is("MYID") {
        return Reply::bulk(&me.id);
    }
    if is("KEYSLOT") && words.len() == 3 {
        return Reply::Int(slot_of(words[2]).into());
    }
    if is("COUNTKEYSINSLOT") && words.len() == 3 {
        let slot = crate::value::int(words[2]).and_then(|slot| u16::try_from(slot).ok());
        return Reply::count(core.data.iter().filter(|(key, _)| Some(slot_of(key)) == slot).count());
    }
    if is("SLOTS") {
        let node = |node: usize| {
            let node = &view.nodes[node];
            let (host, port, id) = (Reply::bulk(&node.host), Reply::Int(node.port.into()), Reply::bulk(&node.id));
            Reply::Array(vec![host, port, id, Reply::Array(Vec::new())])
        };
        let range = |(first, last, owner): (usize, usize, usize)| {
            let nodes = with_replicas(view, owner).into_iter().map(node);
            Reply::Array([Reply::count(first), Reply::count(last)].into_iter().chain(nodes).collect())
        };
        return Reply::Array(ranges(view).into_iter().map(range).collect());
    }
    if is("SHARDS") {
        return shards(view);
    }
    if is("NODES") {
        return Reply::Verbatim(nodes(view));
    }
    if is("INFO") {
        let assigned = view.owners.iter().filter(|owner| **owner != NOBODY).count();
        let size = view.nodes.iter().filter(|node| node.follows.is_none()).count();
        let state = if view.is_down { "fail" } else { "ok" };
        let (known, epoch) = (view.nodes.len(), view.epoch);
        return Reply::Verbatim(format!(
            "cluster_state:{state}\r\ncluster_slots_assigned:{assigned}\r\ncluster_slots_ok:{assigned}\r\n\
             cluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_known_nodes:{known}\r\ncluster_size:{size}\r\n\
             cluster_current_epoch:{epoch}\r\ncluster_my_epoch:{epoch}\r\n"
        ));
    }
    Reply::error_of(format!(
        "ERR unknown subcommand or wrong number of arguments for '{}'. Try CLUSTER HELP.",
        String::from_utf8_lossy(words[1])
    ))
}

fn shards(view: &ClusterView) -> Reply {
    let node = |node: usize| {
        let node = &view.nodes[node];
        let role = if node.follows.is_some() { "replica" } else { "master" };
        let fields = [
            ("id", Reply::bulk(&node.id)),
            ("port", Reply::Int(node.port.into())),
            ("ip", Reply::bulk(&node.host)),
            ("endpoint", Reply::bulk(&node.host)),
            ("role", Reply::bulk(role)),
            ("replication-offset", Reply::Int(0)),
            ("health", Reply::bulk(if node.is_up { "online" } else { "fail" })),
        ];
        Reply::Map(fields.into_iter().flat_map(|(name, value)| [Reply::bulk(name), value]).collect())
    };
    let primaries = (0..view.nodes.len()).filter(|node| view.nodes[*node].follows.is_none());
    let shard = |primary: usize| {
        let slots = ranges(view).into_iter().filter(|(_, _, owner)| *owner == primary);
        let slots = slots.flat_map(|(first, last, _)| [Reply::count(first), Reply::count(last)]).collect();
        let members = with_replicas(view, primary).into_iter().map(node).collect();
        Reply::Map(vec![Reply::bulk("slots"), Reply::Array(slots), Reply::bulk("nodes"), Reply::Array(members)])
    };
    Reply::Array(primaries.map(shard).collect())
}

fn nodes(view: &ClusterView) -> String {
    let ranges = ranges(view);
    let line = |(number, node): (usize, &Member)| {
        let myself = if number == view.me { "myself," } else { "" };
        let role = if node.follows.is_some() { "slave" } else { "master" };
        let fail = if node.is_up { "" } else { ",fail" };
        let of = node.follows.and_then(|primary| view.nodes.get(primary)).map_or("-", |primary| &primary.id);
        let link = if node.is_up { "connected" } else { "disconnected" };
        let slots = ranges.iter().filter(|(_, _, owner)| *owner == number);
        let slots: String = slots.map(|(first, last, _)| format!(" {first}-{last}")).collect();
        let (id, host, port, epoch) = (&node.id, &node.host, node.port, view.epoch);
        format!("{id} {host}:{port}@{} {myself}{role}{fail} {of} 0 0 {epoch} {link}{slots}\n", u32::from(port) + 10_000)
    };
    view.nodes.iter().enumerate().map(line).collect()
}
