//! The one integration binary: every test against real stores, none of which waits or skips.

mod support;

mod conformance;
mod http;
mod tidy_protocol;
