//! The HTTP interface: access, requests and answers, the console, and webhooks.

pub mod access;
pub mod http;
pub mod webhook;
