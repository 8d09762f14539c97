//! Conversations with a served broker: what docs/reference/http.md says, said over HTTP.

mod answers;
mod clients;
mod groups;
mod half_close;
mod keep_alive;
mod control;
mod auto_create;
mod dedup;
mod spread;
mod after;
mod debounce_max;
mod connection_limit;
mod envelope;
mod examples;
mod proxies;
mod purge;
mod invalid_requests;
mod request_id;
pub(crate) mod served;
mod end_to_end;
mod settle;
mod stream;
mod topic_settings;
mod traces;
mod units;
mod stalled_clients;
mod etags;
