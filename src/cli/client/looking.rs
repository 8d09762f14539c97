//! What a broker says about itself.

use serde::Deserialize;

use super::{CallResult, Client};

/// A broker that accepts pushes durably.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(in crate::cli) struct Readiness {
    /// What is degraded.
    #[serde(default)]
    pub(in crate::cli) detail: Option<String>,
    /// Its store.
    pub(in crate::cli) store: StoreOf,
}

/// What a store is and what it survives.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(in crate::cli) struct StoreOf {
    pub(in crate::cli) kind: String,
    pub(in crate::cli) location: String,
    pub(in crate::cli) durability: String,
}

impl Client {
    /// Asks whether it is ready, and on what. # Errors: also when it is not.
    pub(in crate::cli) async fn readiness(&self) -> CallResult<Readiness> {
        self.call(self.http.get(format!("{}/readyz", self.base()))).await.map(|(_, ready)| ready)
    }

    /// Its metrics, in the text format of Prometheus.
    pub(in crate::cli) async fn metrics(&self) -> CallResult<String> {
        let answer = self.send(self.http.get(format!("{}/metrics", self.base()))).await?;
        answer.text().await.map_err(|error| self.unreachable(error))
    }
}
