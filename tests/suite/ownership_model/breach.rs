//! The ways in which a promise can be broken.

/// A broken promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Breach {
    /// The body of a stored message is gone, and no consumer asked for that.
    Lost(usize),
    /// A body is in no place or in two; or something without a body is scheduled or counted.
    Misplaced(usize),
    /// Two consumers have a message while the leases of their owners hold.
    TwoConsumers(usize),
    AckedYetHandedOut(usize),
    /// A call of an epoch that is over reserved, settled or charged.
    StaleOwnerActed,
    EarlierEpochRemovedBody(usize),
    /// More attempts charged than handed out, by more than one.
    Overcharged(usize),
    /// Fewer attempts charged than handed out, by more than one.
    Undercharged(usize),
    /// The audit ended an epoch although Redis lost nothing.
    FalseAlarm,
    /// With no more faults, a message is never settled.
    Stuck,
    /// All messages are settled, and something is left in Redis.
    Leak,
}
