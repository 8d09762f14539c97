//! Asks a broker that may be running.

use std::path::PathBuf;
use std::time::Duration;

use super::finding::Finding;
use super::judge::{self, BrokerFacts};
use crate::cli::ServerArgs;
use crate::cli::address::ServerAddress;
use crate::cli::client::Client;
use crate::cli::credentials::Credentials;
use crate::cli::exposition;
use crate::cli::failure::Failure;
use crate::cli::problem::CallError;
use crate::clock::Clock;
use crate::config::Config;

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

/// Where the broker of a configuration is reached. With TLS its certificate is for the name that it advertises.
fn address(config: &Config) -> ServerAddress {
    let advertised = config.advertise.as_ref().filter(|_| config.tls.is_some()).map(ToString::to_string);
    let url = advertised.unwrap_or_else(|| config.listen.on_this_machine().url(config.tls.is_some()));
    ServerAddress::parse(&url).unwrap_or_default()
}

/// A client of that broker, with what the command line gives, or else with a token and certificates of the configuration.
fn client(server: &ServerArgs, config: &Config, address: &ServerAddress) -> Result<Client, Failure> {
    let token = server.token_file.as_ref().or(config.peers.token.as_ref());
    let token = token.or(config.tokens.first().map(|token| &token.file));
    let ca = server.ca_file.as_ref().or(config.peers.ca.as_ref());
    Client::showing(address, Credentials::read(token.map(PathBuf::as_path), ca.map(PathBuf::as_path))?)
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
