//! The ways in which a promise can be broken.

/// A broken promise about an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Breach {
    /// P1, P5: an acknowledged push is nowhere, and nothing ended it.
    Lost(usize),
    /// P1: the payload is older than the one that was acknowledged last.
    Undone(usize),
    /// P1: what was cancelled, settled or deleted is there again.
    Returned(usize),
    /// P2: what was refused took effect.
    RefusedHappened(usize),
    /// P3: Redis lost nothing, and what was settled, cancelled or replaced was handed out.
    Repeated(usize),
    /// P4: it was handed out in an older state than a broker that is alive knows.
    OlderThanKnown(usize),
    /// A message was there beside the one that an earlier push with its dedup key was acknowledged for.
    SecondOfKey(usize),
    /// Due before the time to which it was rescheduled.
    Early(usize),
    /// A cancel or a reschedule was applied after its client was told that nobody knows.
    TookEffectLate(usize),
    /// `stale` was answered to a settlement that was applied.
    FalseStale,
    /// Without faults, the logs are not empty after many steps.
    Stuck,
}
