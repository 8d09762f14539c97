//! Ownership of the partitions of a group: leases, members and their shares.

pub mod assignment;
pub mod lease;
pub mod membership;
