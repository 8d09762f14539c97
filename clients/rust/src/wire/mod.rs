//! Requests and answers over HTTP, as in docs/reference/http.md of dwell. Fields that are not known are passed over in an answer, so that
//! an older client can read a newer broker, and are an error in a request.

pub mod time;
#[cfg(feature = "schema")]
pub mod schema;
pub mod items;
pub mod topics;
pub mod groups;
pub mod ids;
pub mod messages;
pub mod problem;
pub mod push;
pub mod bulk;
pub mod consume;
pub mod settle;
pub mod dead_letters;
pub mod cron;
pub mod operations;

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};

/// One of a few words, which the field lists. A newer broker may have further ones.
pub type Word = Cow<'static, str>;

/// For `deserialize_with` beside `default`: a field may be absent, but not `null`.
pub fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}
