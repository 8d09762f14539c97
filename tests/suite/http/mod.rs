//! Conversations with a served broker: what docs/reference/http.md says, said over HTTP.

mod clients;
mod groups;
mod keep_alive;
mod control;
mod created;
mod dedup;
mod crowd;
mod envelope;
mod examples;
mod purge;
mod refusals;
mod requests;
pub(crate) mod served;
mod session;
mod settle;
mod stream;
mod topic_settings;
mod traces;
mod units;
mod unread;
mod versions;
