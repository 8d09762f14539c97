//! A small Redis in memory, deterministic: the store of dwell's simulator.
//!
//! It runs dwell's real Lua scripts, and answers bytes of RESP as a Redis server would. There is no thread, no socket, no
//! clock and no entropy here: time is an argument of each call, and what is random comes from the seed that a server or a
//! deployment was made with. So the same calls give the same answers, to the byte.
//!
//! * [`Server`] is one process, primary or replica, with its sessions.
//! * [`Deployment`] is several of them with what is between: replication with a lag, crashes and restarts, failover,
//!   sentinels, the slots of a cluster. A simulator holds one of these.
//!
//! What it is checked against: `tests/differential` sends the same random commands and script calls to a real
//! `redis-server` and to this one, and compares every answer and a dump of all keys.
//!
//! What it leaves out: lists, streams, geo, modules, functions, eviction, databases other than 0, users other than
//! `default`, and every command that neither dwell nor its tests send. Memory is estimated: `maxmemory` is reached at
//! about the same amount of data, not at the same byte. A score of -0 stays one, where Redis from 7.2 on makes it 0. Hashes and sets that outgrew their compact form have another order
//! than in Redis, where it is random.

mod cluster;
mod commands;
mod config;
mod core;
mod deployment;
mod info;
mod keyspace;
mod lua;
mod persistence;
mod pubsub;
mod replication;
mod resp;
mod scripting;
mod sentinel;
mod server;
mod session;
mod time;
mod value;

pub use config::{Config, Fsync};
pub use deployment::{Address, ConnectionId, Crash, Deployment, Layout, NodeId};
pub use lua::LineCounts;
pub use server::{Server, SessionId, Snapshot};
pub use time::Time;
