//! The actions: each is one small step of a client, a broker, the network, Redis or a consumer.

use super::state::{Kind, Name};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// A client asks a broker.
    Ask(Name, Kind, usize),
    DeleteTopic(Name),
    /// The topic is deleted; nobody learns that it was.
    DeleteTopicUnanswered(Name),

    /// The messages are purged, also those in flight.
    Purge(Name),
    PurgeUnanswered(Name),

    // The outcome of a live call.
    Answered(Name),
    /// It is executed and the reply lost; the broker repeats it.
    ReplyLost(Name),
    /// A copy of it stays in the network; the broker repeats it.
    LeavesCopy(Name),
    /// The broker stops waiting.
    GivesUp(Name),
    LateCopy(usize),

    // The replay of the WAL.
    Fence(Name),
    /// This many records in one page.
    Replay(Name, usize),
    ReplayReplyLost(Name, usize),
    ReplayLeavesCopy(Name, usize),
    /// Only where a rule is missing: the page is appended anew.
    ReplayMovesOn(Name),

    /// The next record of the journal is offered, or the restore ends.
    Restore(Name),
    RestoreReplyLost(Name),

    // Consumers.
    HandOut(Name, usize),
    Ack(Name, usize),
    AckReplyLost(Name, usize),
    AckAnswered(Name),
    Nack(Name, usize),
    /// The ack of a delivery that is over.
    AckLate(Name, usize),
    AckLateReplyLost(Name, usize),

    // Faults.
    CutOff(Name),
    /// The network is back; the broker looks which Redis it reached.
    Connect(Name),
    LeaseLapses(Name),
    Kill(Name),
    /// It stops, gives its logs to the other one, and starts again on a fresh disk.
    HandOver(Name),
    /// The same, but the answer is lost, and the disk stays.
    HandOverUnanswered(Name),
    /// The first record of each log is given, and the disk stays.
    HandOverInPart(Name),
    Start(Name),
    /// Sets the state in which Redis comes back after the next loss.
    Snapshot,
    LoseData,
    LoseEverything,
    /// A broker that cannot be reached after a loss was silent for one lease ttl.
    Silent(Name),
    TtlPasses,
}
