//! How full a store's server is, and whether it deletes messages to make room: the rules that `/readyz`, metrics,
//! `dwell attention` and `dwell doctor` share.

/// From this part of its memory on, in percent, a server is nearly full.
const NEARLY_FULL_PERCENT: u64 = 80;

/// The memory of one server, as it said last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeMemory {
    /// Where it is, without secrets.
    pub location: String,
    /// `maxmemory-policy`, such as `noeviction`.
    pub policy: String,
    /// Whether the configuration accepts that it deletes messages.
    pub is_eviction_allowed: bool,
    /// Keys that it deleted to make room since it started.
    pub evicted_keys: u64,
    pub used_bytes: u64,
    /// 0 without a limit.
    pub max_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eviction {
    Never,
    /// It deletes nothing now, and deleted keys since it started.
    Before,
    /// It deletes messages when its memory is full.
    Possible,
}

/// With the part of the memory that is used, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fullness {
    NoLimit,
    Room(u64),
    NearlyFull(u64),
    /// It refuses whatever needs memory.
    Full(u64),
}

impl NodeMemory {
    pub fn eviction(&self) -> Eviction {
        match (self.policy.as_str(), self.evicted_keys) {
            ("noeviction", 0) => Eviction::Never,
            ("noeviction", _) => Eviction::Before,
            _ => Eviction::Possible,
        }
    }

    /// Whether it may delete messages, and nobody accepted that.
    pub fn is_unfit(&self) -> bool {
        self.eviction() == Eviction::Possible && !self.is_eviction_allowed
    }

    pub fn fullness(&self) -> Fullness {
        if self.max_bytes == 0 {
            return Fullness::NoLimit;
        }
        match self.used_bytes.saturating_mul(100) / self.max_bytes {
            percent @ 100.. => Fullness::Full(percent),
            percent @ NEARLY_FULL_PERCENT.. => Fullness::NearlyFull(percent),
            percent => Fullness::Room(percent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_noeviction_never_deletes() {
        let of =
            |policy: &str, evicted_keys| NodeMemory { policy: policy.to_owned(), evicted_keys, ..Default::default() };
        assert_eq!(of("noeviction", 0).eviction(), Eviction::Never);
        assert_eq!(of("noeviction", 1).eviction(), Eviction::Before);
        for policy in ["allkeys-lru", "volatile-ttl", ""] {
            let node = of(policy, 0);
            assert_eq!((node.eviction(), node.is_unfit()), (Eviction::Possible, true), "{policy}");
            assert!(!NodeMemory { is_eviction_allowed: true, ..node }.is_unfit());
        }
        assert!(!of("noeviction", 1).is_unfit());
    }

    #[test]
    fn fullness_changes_at_80_and_100_percent() {
        let of = |used_bytes, max_bytes| NodeMemory { used_bytes, max_bytes, ..Default::default() }.fullness();
        assert_eq!(of(5, 0), Fullness::NoLimit);
        assert_eq!(of(799, 1_000), Fullness::Room(79));
        assert_eq!([of(800, 1_000), of(999, 1_000)], [Fullness::NearlyFull(80), Fullness::NearlyFull(99)]);
        assert_eq!([of(1_000, 1_000), of(2_000, 1_000)], [Fullness::Full(100), Fullness::Full(200)]);
    }
}
