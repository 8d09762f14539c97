//! Ids, messages, topics, time, retries, limits and errors. Pure: no I/O, no clock, no tasks.

pub mod spelling;
pub mod error;
pub mod limits;
pub mod last_error;
pub mod time;
pub mod version;
pub mod trace;
pub mod attributes;
pub mod message;
pub mod partition;
pub mod retry;
pub mod cron_expression;
pub mod cron_search;
pub mod window;
pub mod topic;
pub mod schedule;
