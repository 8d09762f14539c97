//! Handing out what is due.

mod delivery;

pub use delivery::{Decision, Delivery, Receipt, Verdict};
