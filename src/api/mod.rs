//! The HTTP interface: requests and answers, the console, and webhooks.

pub mod http;
pub mod webhook;
