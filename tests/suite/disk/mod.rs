//! What is on a disk: the embedded store and the logs, when a process is killed, power is cut, or the disk fails.

mod crash;
mod crash_embedded;
mod embedded;
mod embedded_loss;
mod fixtures;
mod private_data;
mod serve;
mod wal;
