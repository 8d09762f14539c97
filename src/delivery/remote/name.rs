//! The name of a request to another broker.

use serde::{Deserialize, Serialize};

use crate::store::random_text;

/// The name of a request. It is random, so that only the owner that was asked can answer it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct RequestName(String);

impl RequestName {
    pub(crate) fn fresh() -> RequestName {
        RequestName(random_text())
    }
}

impl TryFrom<String> for RequestName {
    type Error = &'static str;

    fn try_from(text: String) -> Result<RequestName, &'static str> {
        let is_name = (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if is_name { Ok(RequestName(text)) } else { Err("no name of a request") }
    }
}
