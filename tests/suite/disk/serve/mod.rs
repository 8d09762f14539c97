//! The disk of a real `dwell serve`: power cuts at any moment, calls that fail, and a log that is larger than the memory.
//!
//! A small library, built here and preloaded into the process, writes down each write and each sync below the data
//! directory, and fails those that a story names. So the disk that a power cut leaves can be built for every moment: of
//! what was synced, everything; of the rest, whatever got there. And after a failed sync what it covered is lost, as
//! Linux loses it.

mod errors;
mod image;
mod memory;
mod power;
mod recorded;
mod trace;
mod work;
