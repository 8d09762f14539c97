//! `dwell bench` and `dwell demo`: they measure dwell, and check its promises, from outside. Nothing else uses them.

mod percentiles;
mod scratch_dir;
mod baseline;
pub(crate) mod bench;
pub(crate) mod demo;
