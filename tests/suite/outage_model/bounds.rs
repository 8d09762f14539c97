//! How large a world is, and how much may go wrong in it.

use super::state::Kind;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Bounds {
    pub(super) ids: usize,
    /// Broker A stored a message of the first id before the search starts.
    pub(super) pushed_before: bool,
    pub(super) operations: u8,
    /// Which operations clients ask for.
    pub(super) kinds: &'static [Kind],
    /// How often a consumer takes a message.
    pub(super) deliveries: u8,
    /// Acks of deliveries that ended before.
    pub(super) late_acks: u8,
    pub(super) deletions: u8,
    pub(super) purges: u8,
    /// Times that a broker is cut off from Redis.
    pub(super) outages: u8,
    pub(super) kills: u8,
    /// How often a broker that is cut off stops and hands over what it has.
    pub(super) hand_overs: u8,
    /// Calls that are not answered in time although Redis is there.
    pub(super) time_outs: u8,
    pub(super) lost_replies: u8,
    pub(super) late_copies: u8,
    /// How often Redis loses data.
    pub(super) losses: u8,
    pub(super) page_records: usize,
    /// How far the clock of broker B is behind.
    pub(super) lag: u8,
    /// B takes no operations.
    pub(super) one_broker: bool,
    /// Whether the end of each run is examined once more after a Redis that comes back empty.
    pub(super) ends_with_loss: bool,
}

impl Bounds {
    /// Pushes of one id, and no faults.
    pub(super) const QUIET: Self = Self {
        ids: 1,
        pushed_before: false,
        operations: 2,
        kinds: &[Kind::Push],
        deliveries: 1,
        late_acks: 0,
        deletions: 0,
        purges: 0,
        outages: 0,
        kills: 0,
        hand_overs: 0,
        time_outs: 0,
        lost_replies: 0,
        late_copies: 0,
        losses: 0,
        page_records: 2,
        lag: 0,
        one_broker: false,
        ends_with_loss: false,
    };
}
