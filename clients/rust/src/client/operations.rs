//! A broker itself: whether it answers and is ready, its metrics, what needs attention, and its end.

use super::error::Error;
use super::{Call, Client};
use crate::wire::operations::{Alive, AttentionList, BrokerList, Draining, ListedBroker, Ready, Reloaded};

impl Client {
    /// Asks whether the broker answers at all. Restart one that does not.
    pub async fn live(&self) -> Result<Alive, Error> {
        self.call(&Call::get("/livez")).await
    }

    /// Asks whether pushes are accepted durably, and which store keeps them. A restart does not help a broker that is not ready.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] with an answer: the broker is not ready.
    pub async fn ready(&self) -> Result<Ready, Error> {
        self.call(&Call::get("/readyz")).await
    }

    /// The metrics of the broker, in the text format of Prometheus.
    pub async fn metrics(&self) -> Result<String, Error> {
        let answer = self.answer(&Call::get("/metrics")).await?;
        String::from_utf8(answer.body.into()).map_err(|error| self.transport.unreadable(error.to_string()))
    }

    /// The reasons to act, the most urgent first.
    pub async fn attention(&self) -> Result<AttentionList, Error> {
        self.call(&Call::get("/v1/attention")).await
    }

    /// The brokers that share the store.
    pub async fn brokers(&self) -> Result<Vec<ListedBroker>, Error> {
        let list: BrokerList = self.call(&Call::get("/v1/brokers")).await?;
        Ok(list.brokers)
    }

    /// Has the broker give its partitions and messages to others, and then end. It answers before it has ended.
    pub async fn drain(&self) -> Result<Draining, Error> {
        self.call(&Call::post("/v1/drain")).await
    }

    /// Has the broker read its configuration again.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with `invalid`: the configuration is wrong, and nothing has changed.
    pub async fn reload(&self) -> Result<Reloaded, Error> {
        self.call(&Call::post("/v1/reload")).await
    }
}
