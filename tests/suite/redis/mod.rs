//! What only a real Redis shows: its keys, its calls, its connections, and what holds while it fails or forgets.

mod call_sequence;
mod cluster;
mod coalescing;
mod connection;
mod faults;
mod heavy_reads;
mod idle;
mod key_layout;
mod key_pauses;
mod keys;
mod log_target;
mod outage;
mod sentinel;
mod sorted;
mod unfinished_groups;
