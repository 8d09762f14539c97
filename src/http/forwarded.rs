//! Whether another broker brings receipts, or a consumer.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use super::App;
use super::problem::{Class, Problem};
use crate::error::Kind;
use crate::peer::FORWARDED;

/// Whether a request was forwarded to this broker: then it is answered here or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Forwarded(pub(crate) bool);

impl FromRequestParts<App> for Forwarded {
    type Rejection = Problem;

    /// # Errors
    /// 409 for a request that is meant for another broker: it was here before, or its address leads here by mistake.
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Forwarded, Problem> {
        let mut members = parts.headers.get_all(FORWARDED).iter();
        let Some(member) = members.next() else { return Ok(Forwarded(false)) };
        if members.next().is_some() {
            return Err(Problem::malformed(format!("the header `{FORWARDED}` is given twice")));
        }
        if member.as_bytes() != app.peers.member().as_str().as_bytes() {
            let detail = format!("`{FORWARDED}` names another broker: this one is {}", app.peers.member());
            return Err(Problem::new(Class::Verb(Kind::Conflict), detail));
        }
        Ok(Forwarded(true))
    }
}
