//! What a member is told, and what it asks for.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::model::partition::Partition;
use crate::platform::clock::Instant;
use crate::store::{LiveMember, MemberId};

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Nothing but time.
    Tick,
    /// A heartbeat was answered with the live members, in any order.
    Beaten(Arc<[LiveMember]>),
    /// A heartbeat, or a farewell, failed or got no answer.
    BeatFailed,
    /// The farewell was answered: the store has forgotten the heartbeat.
    Departed,
    /// It was announced that someone joined or left, or that the demand of someone began or ended.
    MembersChanged,
    /// It was announced that a partition is free.
    Freed(Partition),
    /// An acquisition succeeded.
    Acquired(Partition),
    /// An acquisition found the lease with another member.
    Held {
        /// The partition.
        partition: Partition,
        /// Who has it.
        by: MemberId,
        /// How long that lease still runs, if nobody prolongs it.
        expires_in: Duration,
    },
    /// An acquisition failed, got no answer, or was given up before its answer.
    AcquireFailed(Partition),
    /// An owned or releasing partition is ours no more: taken by another member, or its epoch had to be forgotten.
    Lost(Partition),
    /// A release is over: the lease is given up, or left to lapse.
    Released(Partition),
    /// The store lost data. Until then nothing is acquired but `valid`: what this process owned under a valid lease
    /// when it noticed.
    Hold {
        /// One lease ttl after the loss was noticed.
        until: Instant,
        /// The exceptions.
        valid: BTreeSet<Partition>,
    },
    /// Give everything up: the process stops, or no consumer asks any more.
    Leave,
    /// A consumer asked again before the member was gone.
    Stay,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Write the heartbeat with [`Standing::has_demand`], then read the live members. Answered by [`Event::Beaten`] or [`Event::BeatFailed`].
    Beat,
    /// Remove the heartbeat and announce it. Answered by [`Event::Departed`] or [`Event::BeatFailed`].
    Depart,
    /// Try to acquire. Answered by [`Event::Acquired`], [`Event::Held`] or [`Event::AcquireFailed`].
    Acquire(Partition),
    /// Stop handing out, drain, give the lease up. Answered by [`Event::Released`] or [`Event::Lost`].
    Release(Partition),
    /// Nothing is left: this member is over.
    Gone,
}

/// Where a member stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Live members in the newest list.
    pub members: usize,
    /// Those among them that have demand.
    pub demanding: usize,
    /// Whether it says that somebody wants messages from it.
    pub has_demand: bool,
    /// Partitions that it should own.
    pub quota: usize,
    /// Partitions that it owns and serves.
    pub owned: usize,
    /// Acquisitions in flight.
    pub acquiring: usize,
    /// Partitions that drain.
    pub releasing: usize,
    /// Partitions that it owns beyond its share, since nobody else took them.
    pub kept: usize,
    /// There are more members than partitions, and nothing is left for this one.
    pub is_waiting: bool,
    /// It has left.
    pub is_gone: bool,
}
