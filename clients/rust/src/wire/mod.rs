//! Requests and answers over HTTP, as in docs/reference/http.md of dwell. Fields that are not known are passed over in an answer, so that
//! an older client can read a newer broker, and are an error in a request.

pub mod time;
