//! What can happen: one small step of an owner, a consumer, the network, Redis or time.

use super::state::Name;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Push(usize),
    /// The push is executed and its reply lost; the producer repeats it.
    PushReplyLost(usize),
    /// The push stays in the network; the producer repeats it.
    PushLeavesCopy(usize),
    LatePush(usize),
    /// The dedup window of an acked message ends.
    WindowEnds(usize),

    // An owner sends a call.
    Acquire(Name),
    Release(Name),
    Recover(Name),
    Reserve(Name),
    Start(Name),
    Settle(Name),

    // What becomes of the call.
    Answered(Name),
    /// It is executed and the reply lost; the owner repeats it.
    ReplyLost(Name),
    /// A copy of it stays in the network.
    LeavesCopy(Name),
    /// The owner gives up an acquisition or a release.
    GivesUp(Name),
    LateCopy(usize),

    // Between an owner and its consumers.
    HandOut(Name, usize),
    Ack(Name, usize),
    /// Also what a passed deadline amounts to.
    Nack(Name, usize),
    /// What no consumer was given goes back.
    GiveBack(Name),

    // Time passes.
    /// The owner's validity ends, by its own clock.
    Expires(Name),
    LeaseLapses,
    /// The owner renews its lease, lapsed or not.
    Resumes(Name),
    /// A renewal is executed; its answer takes long.
    RenewalIsSlow(Name),
    RenewalAnswered(Name),
    /// One ttl after data loss has passed.
    HoldEnds,

    // Faults.
    Crash(Name),
    /// What Redis will remember after the next loss.
    Snapshot,
    LoseData,

    // Only where a rule is missing.
    /// A call that was not answered is replaced by another with its number.
    MovesOn(Name),
    /// A deadline overrules an ack.
    DeadlineAfterAck(Name, usize),
    /// A receipt of an earlier epoch is matched by message id.
    AckOfEarlierEpoch(Name, usize),
}
