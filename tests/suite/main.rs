//! The one integration binary: every test against real stores, none of which waits or skips.

mod support;

mod conformance;
mod embedded;
mod random_ops;
mod volume;
mod crash_embedded;
mod ownership_model;
mod simulation;
mod delivery;
mod http;
mod cli;
mod tidy_protocol;
mod tidy_groups;
