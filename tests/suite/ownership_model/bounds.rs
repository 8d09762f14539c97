//! How large a world is, and how much may go wrong in it.

/// The size of a world, and how often each fault may strike in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Bounds {
    pub(super) messages: u8,
    /// How many of them are stored when the search starts.
    pub(super) pushed_before: usize,
    pub(super) reserve_limit: u8,
    pub(super) max_attempts: u8,
    pub(super) acquires: u8,
    pub(super) releases: u8,
    pub(super) crashes: u8,
    pub(super) lapses: u8,
    pub(super) slow_renewals: u8,
    pub(super) lost_replies: u8,
    pub(super) late_copies: u8,
    pub(super) give_ups: u8,
    pub(super) give_backs: u8,
    /// Dedup windows that end.
    pub(super) windows: u8,
    /// How often Redis loses data.
    pub(super) losses: u8,
    /// Count attempts without sparing owners that die between charging and handing out.
    pub(super) strict_attempts: bool,
}

impl Bounds {
    /// One message, stored, and one owner after another; no faults.
    pub(super) const QUIET: Self = Self {
        messages: 1,
        pushed_before: 1,
        reserve_limit: 2,
        max_attempts: 3,
        acquires: 2,
        releases: 0,
        crashes: 0,
        lapses: 0,
        slow_renewals: 0,
        lost_replies: 0,
        late_copies: 0,
        give_ups: 0,
        give_backs: 0,
        windows: 0,
        losses: 0,
        strict_attempts: false,
    };
}
