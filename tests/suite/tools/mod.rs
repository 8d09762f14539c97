//! What an operator holds and reads: commands, metrics, logs, spans, dashboards, and the files of deploy/.

mod cli;
mod config_check;
mod deploy;
mod doctor;
mod fleet;
mod logs;
mod metrics;
mod observability;
mod overview;
mod progress;
mod reload;
mod spans;
mod top;
