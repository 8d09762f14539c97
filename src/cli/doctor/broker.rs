//! Asks a broker that may be running.

use std::time::Duration;

use super::judge::BrokerFacts;
use crate::cli::client::Client;
use crate::cli::exposition;
use crate::cli::problem::CallError;
use crate::clock::Clock;

/// How long a broker may take to say whether it is ready.
const PATIENCE: Duration = Duration::from_secs(3);

/// Asks whether it is ready, and which version it is.
pub(super) async fn look(client: &Client) -> BrokerFacts {
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
