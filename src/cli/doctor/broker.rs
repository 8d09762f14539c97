//! Asks a broker that may be running.

use std::path::PathBuf;
use std::time::Duration;

use super::finding::Finding;
use super::judge::{self, BrokerFacts};
use crate::app::config::Config;
use crate::cli::ServerArgs;
use crate::cli::address::ServerAddress;
use crate::cli::client::Client;
use crate::cli::credentials::Credentials;
use crate::cli::exposition;
use crate::cli::failure::Failure;
use crate::cli::problem::CallError;
use crate::platform::clock::Clock;

/// How long a broker may take to say whether it is ready.
const PATIENCE: Duration = Duration::from_secs(3);

/// Judges the broker that the command line names, or else the one of the configuration.
pub(super) async fn look(server: &ServerArgs, config: &Config) -> Finding {
    let (address, client) = match server.server {
        Some(_) => (server.address(), server.client()),
        None => {
            let address = address(config);
            let client = client(server, config, &address);
            (address, client)
        }
    };
    match client {
        Ok(client) => judge::broker(&address.to_string(), &facts(&client).await, env!("CARGO_PKG_VERSION")),
        Err(failure) => {
            let advice = "--server, --token-file and --ca-file name another broker, and what to show to it";
            Finding::fail("broker", format!("{address} cannot be asked: {}", failure.message), advice)
        }
    }
}

/// Where the broker of a configuration is reached on this machine.
fn address(config: &Config) -> ServerAddress {
    ServerAddress::parse(&config.listen.on_this_machine().url(config.tls.is_some())).unwrap_or_default()
}

/// A client of that broker, with what the command line gives, or else with a token of the configuration.
fn client(server: &ServerArgs, config: &Config, address: &ServerAddress) -> Result<Client, Failure> {
    let token = server.token_file.as_ref().or(config.tokens.first().map(|token| &token.file));
    Client::showing(address, Credentials::read(token.map(PathBuf::as_path), server.ca_file.as_deref())?)
}

/// Asks whether it is ready, and which version it is.
async fn facts(client: &Client) -> BrokerFacts {
    tokio::select! {
        facts = ask(client) => facts,
        () = Clock::System.sleep(PATIENCE) => {
            BrokerFacts::NotReady(format!("it did not answer within {} s", PATIENCE.as_secs()))
        }
    }
}

async fn ask(client: &Client) -> BrokerFacts {
    let ready = match client.readiness().await {
        Ok(ready) => ready,
        Err(CallError::Unreachable(_)) => return BrokerFacts::Absent,
        Err(error) => return BrokerFacts::NotReady(error.to_string()),
    };
    let metrics = client.metrics().await.unwrap_or_default();
    let build = exposition::read(&metrics).into_iter().find(|sample| sample.name == "dwell_build_info");
    BrokerFacts::Ready { degraded: ready.detail, version: build.map(|build| build.label("version").to_owned()) }
}
