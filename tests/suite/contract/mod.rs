//! What every store promises, told once and run on each; and random and concurrent operations that hold it to that.

pub(crate) mod conformance;
mod races;
mod random_ops;
mod volume;
