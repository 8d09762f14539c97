//! Who may do what: tokens with scopes, other machines, other web sites, and the trail that operators leave.

mod bodies;
mod browsers;
mod command;
mod explain;
mod operators;
mod rotation;
mod routes;
mod tls;
mod two_scopes;
mod audit_log;

use std::path::Path;

use dwell::gate::access::{Scope, Scopes, Token};
use tempfile::TempDir;

use crate::http::api::served::{Outcome, Served};

/// What the holder of each token of the stories says.
const TOKENS: [(&str, &str, &[Scope]); 7] = [
    ("viewer", "s3cret-of-the-dashboards", &[Scope::View]),
    ("producer", "s3cret-of-the-producer", &[Scope::Produce]),
    ("consumer", "s3cret-of-the-consumer", &[Scope::Consume]),
    ("both", "s3cret-of-both-of-them", &[Scope::Produce, Scope::Consume]),
    ("sidecar", "s3cret-of-the-sidecars", &[Scope::HandOver]),
    ("taker", "s3cret-of-the-taker-over", &[Scope::Consume, Scope::HandOver]),
    ("admin", "s3cret-of-the-operator", &[Scope::Admin]),
];

/// The token of that name.
fn token(name: &str) -> &'static str {
    TOKENS.iter().find(|(other, ..)| *other == name).map_or("", |(_, token, _)| *token)
}

/// Writes the files of all tokens.
fn tokens_in(dir: &Path) -> Outcome<Vec<Token>> {
    let mut tokens = Vec::new();
    for (name, token, scopes) in TOKENS {
        let file = dir.join(name);
        std::fs::write(&file, format!("{token}\n"))?;
        tokens.push(Token { name: name.into(), file, scopes: Scopes::of(scopes) });
    }
    Ok(tokens)
}

/// A broker that asks for tokens, and the directory of their files. Topics are made by admins only.
async fn asking() -> Outcome<(Served, TempDir)> {
    let dir = tempfile::tempdir()?;
    let tokens = tokens_in(dir.path())?;
    let served = Served::start_with(|options| {
        options.tokens = tokens;
        options.broker.auto_create = false;
    });
    Ok((served.await?, dir))
}

/// The status of a request with that value of `Authorization`, or without.
async fn status(dwell: &Served, line: &str, authorization: Option<&str>) -> Outcome<u16> {
    let mut request = dwell.request(line)?;
    if let Some(authorization) = authorization {
        request = request.header("authorization", authorization);
    }
    Ok(dwell.driven(request.send()).await??.status().as_u16())
}
