//! What an operator wants to know of a Redis that is to be trusted with messages: plain findings, without a judgement.
//!
//! No key is written, and nothing that serves messages uses it. Each call ends within `options.timeout`, on connections
//! of its own, so it may look while brokers work.

mod keyspace;
mod node;

use std::collections::BTreeMap;
use std::time::Duration;

use redis::Value;
use redis::aio::MultiplexedConnection;

pub use self::keyspace::KeysCheckup;
use self::keyspace::Ways;
pub use self::node::{NodeFacts, SlowCall, Stall};
use super::address::Address;
use super::cluster::{Range, read_ranges};
use super::primary_discovery::{Parts, PrimaryDiscovery};
pub use super::sentinel::Quorum;
use super::{RedisOptions, failure, hash_slot};
use crate::model::error::{Error, Result};

/// What was found out about a Redis, about the nodes of a cluster, or about a primary behind sentinels.
#[derive(Debug)]
pub struct Checkup {
    /// The Redis, or the primaries of a cluster. Never empty: one that was not reached stands for what was asked for.
    pub nodes: Vec<NodeCheckup>,
    /// What each sentinel says, by where it is. Empty without sentinels.
    pub sentinels: Vec<(String, Result<Quorum>)>,
    /// Slots without a node, of a cluster whose map was seen.
    pub unserved_slots: Option<u16>,
    /// What is in the keys of dwell, if any node let somebody look.
    pub keys: Option<KeysCheckup>,
}

/// One Redis.
#[derive(Debug)]
pub struct NodeCheckup {
    /// Where it is, without secrets.
    pub location: String,
    /// What it said.
    pub outcome: Outcome,
}

/// How far one got with a Redis.
#[derive(Debug)]
pub enum Outcome {
    /// Nobody answers there.
    Unreachable(Error),
    /// It answers, and lets nobody in, or says nothing about itself.
    Refused(Error),
    /// It was looked at.
    Answered(Box<NodeFacts>),
}

impl Checkup {
    /// Looks at the Redis that these options lead to. Members of groups count as alive for `lease_ttl` after a heartbeat.
    ///
    /// # Errors
    /// `Invalid` for a wrong URL, which is not quoted, and for certificates that cannot be read. What goes wrong later is
    /// a finding.
    pub async fn of(options: &RedisOptions, lease_ttl: Duration) -> Result<Checkup> {
        match Parts::of(options.url.expose())? {
            Some(parts) if parts.is_cluster => Checkup::of_cluster(options, &parts, lease_ttl).await,
            _ => Checkup::of_one(options, lease_ttl).await,
        }
    }

    async fn of_one(options: &RedisOptions, lease_ttl: Duration) -> Result<Checkup> {
        let place = PrimaryDiscovery::new(options)?;
        let sentinels = match &place {
            PrimaryDiscovery::Watched(sentinels) => sentinels.quorums().await,
            PrimaryDiscovery::Fixed(_) => Vec::new(),
        };
        let mut checkup = Checkup { nodes: Vec::new(), sentinels, unserved_slots: None, keys: None };
        let address = match place.candidates().await {
            Ok(candidates) => candidates.into_iter().next(),
            Err(error) => {
                let outcome = Outcome::Unreachable(error);
                checkup.nodes.push(NodeCheckup { location: place.location(), outcome });
                None
            }
        };
        let mut ways = Ways::default();
        if let Some(address) = address {
            let (node, connection) = look(&address, options).await;
            checkup.nodes.push(node);
            ways.add(vec![(0, hash_slot::SLOTS)], connection);
        }
        checkup.keys = keyspace::look(&ways, options, lease_ttl).await;
        Ok(checkup)
    }

    async fn of_cluster(options: &RedisOptions, parts: &Parts<'_>, lease_ttl: Duration) -> Result<Checkup> {
        let Parts { scheme, login, .. } = parts;
        let seeds: Vec<Address> = parts
            .hosts
            .iter()
            .map(|host| Address::new(options, &format!("{scheme}://{login}{host}")))
            .collect::<Result<_>>()?;
        let mut checkup = Checkup { nodes: Vec::new(), sentinels: Vec::new(), unserved_slots: None, keys: None };
        let Some((seed, ranges)) = map_of(&seeds, &mut checkup.nodes).await else { return Ok(checkup) };
        // A seed that is away is none of the cluster's business, as long as one is there.
        checkup.nodes.clear();
        let served: u32 = ranges.iter().map(|range| u32::from(range.last.saturating_sub(range.first)) + 1).sum();
        checkup.unserved_slots = u16::try_from(u32::from(hash_slot::SLOTS).saturating_sub(served)).ok();
        let mut by_node: BTreeMap<(String, u16), Vec<(u16, u16)>> = BTreeMap::new();
        for range in ranges {
            by_node.entry(range.node).or_default().push((range.first, range.last));
        }
        let mut ways = Ways::default();
        for ((host, port), slots) in by_node {
            let (node, connection) = look(&seed.at(&host, port), options).await;
            checkup.nodes.push(node);
            ways.add(slots, connection);
        }
        checkup.keys = keyspace::look(&ways, options, lease_ttl).await;
        Ok(checkup)
    }
}

/// The map of a cluster, from the first seed that knows it; those that do not are noted.
async fn map_of(seeds: &[Address], nodes: &mut Vec<NodeCheckup>) -> Option<(Address, Vec<Range>)> {
    for seed in seeds {
        let outcome = match enter(seed).await {
            Ok(mut connection) => match answer(&mut connection, redis::cmd("CLUSTER").arg("SLOTS")).await {
                Ok(map) => match read_ranges(map, seed.host()) {
                    Ok(ranges) => return Some((seed.clone(), ranges)),
                    Err(error) => Outcome::Refused(error),
                },
                Err(outcome) => outcome,
            },
            Err(outcome) => outcome,
        };
        nodes.push(NodeCheckup { location: seed.location(), outcome });
    }
    None
}

async fn look(address: &Address, options: &RedisOptions) -> (NodeCheckup, Option<MultiplexedConnection>) {
    let location = address.location();
    let looked = async {
        let mut connection = enter(address).await?;
        let facts = NodeFacts::of(address, &mut connection, options).await?;
        Ok((facts, connection))
    };
    match looked.await {
        Ok((facts, connection)) => {
            (NodeCheckup { location, outcome: Outcome::Answered(Box::new(facts)) }, Some(connection))
        }
        Err(outcome) => (NodeCheckup { location, outcome }, None),
    }
}

/// A connection that was let in.
async fn enter(address: &Address) -> std::result::Result<MultiplexedConnection, Outcome> {
    let (mut connection, login) = address.connect().await.map_err(Outcome::Unreachable)?;
    for command in login {
        answer(&mut connection, command).await?;
    }
    Ok(connection)
}

/// What a command is answered that has to be.
async fn answer(connection: &mut MultiplexedConnection, command: &redis::Cmd) -> std::result::Result<Value, Outcome> {
    match connection.send_packed_command(command).await {
        Ok(Value::ServerError(error)) => Err(Outcome::Refused(failure::of_connecting(&error.into()))),
        Ok(value) => Ok(value),
        Err(error) => Err(Outcome::Unreachable(failure::of_greeting(&error))),
    }
}
