//! The broker.

use dwell::api::http::Listen;
use dwell::app::engine::StoreOptions;
use dwell::app::server::{Server, ServerOptions};
use dwell::broker::Options;
use dwell::platform::files;

use crate::Outcome;

/// Says where it listens, and serves until it is killed.
pub(crate) async fn run() -> Outcome {
    let dir = tempfile::tempdir()?;
    let store = StoreOptions::Embedded { dir: dir.path().join("store") };
    let mut options = ServerOptions::new(Listen::ephemeral(), store, Options::default());
    options.connections.max = files::connections_max(files::raise());
    let server = Server::start(options).await?;
    println!("{}", server.url());
    std::future::pending().await
}
