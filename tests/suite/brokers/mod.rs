//! Several brokers on one Redis: how they share partitions, and what they hand over when one stops.

mod drain;
pub(crate) mod groups;
mod hand_over;
mod memberships;
mod simulation;
