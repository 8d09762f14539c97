//! What dwell reads that somebody else wrote, written by a fuzzer.
//!
//! One program for all targets, so that it is built and linked once: `DWELL_FUZZ` names the target. fuzz/run builds it
//! and runs each; fuzz/README.md says how to go on from a finding.

#![no_main]

mod addresses;
mod bodies;
mod broker;
mod codec;
mod configuration;
mod connections;
mod cursors;
mod encodings;
mod hosts;
mod memory;
mod pages;
mod queues;
mod receipts;
mod requests;
mod schedules;
mod sqs;
mod times;
mod wal;
// A second implementation of cron, of which the tests use more.
#[allow(dead_code)]
#[path = "../../tests/suite/delivery/cron_times/walker.rs"]
mod walker;

use std::sync::LazyLock;

use libfuzzer_sys::{Corpus, fuzz_target};

/// Reads an input, and panics if what follows from it is wrong.
type Target = fn(&[u8]) -> Corpus;

/// Each has a directory of its name in fuzz/corpus.
const TARGETS: [(&str, Target); 16] = [
    ("addresses", addresses::run),
    ("bodies", bodies::run),
    ("codec", codec::run),
    ("configuration", configuration::run),
    ("connections", connections::run),
    ("cursors", cursors::run),
    ("encodings", encodings::run),
    ("hosts", hosts::run),
    ("pages", pages::run),
    ("queues", queues::run),
    ("receipts", receipts::run),
    ("requests", requests::run),
    ("schedules", schedules::run),
    ("sqs", sqs::run),
    ("times", times::run),
    ("wal", wal::run),
];

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let wanted = std::env::var("DWELL_FUZZ").unwrap_or_default();
    let found = TARGETS.iter().find(|(name, _)| *name == wanted);
    found.map(|(_, run)| *run).unwrap_or_else(|| panic!("DWELL_FUZZ names no target: {wanted:?}"))
});

fuzz_target!(|data: &[u8]| -> Corpus { memory::in_time(|| TARGET(data)) });

/// Whether an input was read as something: if not, it is not worth keeping.
fn kept(is_read: bool) -> Corpus {
    if is_read { Corpus::Keep } else { Corpus::Reject }
}
