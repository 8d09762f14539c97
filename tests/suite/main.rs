//! The one integration binary: every test against real stores, none of which waits or skips.

mod support;

mod contract;
mod redis;
mod disk;
mod delivery;
mod brokers;
mod http;
mod sqs;
mod tools;
mod pages;
