//! Answers as JSON, which end with a newline: a shell shows its prompt on a line of its own.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// An answer as JSON.
#[derive(Debug)]
pub(crate) struct Reply<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Reply<T> {
    fn into_response(self) -> Response {
        let Ok(mut body) = serde_json::to_vec(&self.0) else {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        };
        body.push(b'\n');
        ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
    }
}
