//! One request to another broker: it ends in time, follows nothing, and its answer is not believed before it was checked.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::AUTHORIZATION;
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use serde::Deserialize;

use super::ask::Ask;
use super::credentials::Credentials;
use super::{FORWARDED, Place, Way};
use crate::address::{Address, Reach};
use crate::clock::{Clock, Instant};
use crate::dispatch::Verdict;
use crate::error::innermost_cause;
use crate::https;
use crate::limits::{PEER_ANSWER_BYTES_MAX, PEERS_MAX};
use crate::metrics::Metrics;
use crate::request_id::{REQUEST_ID, RequestId};
use crate::time::Timestamp;

/// A broker closes a connection that was idle for 75 s; one that is about to be closed must not be used.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Calls other brokers. The connections to them are kept and used again.
pub(super) struct Caller {
    clock: Clock,
    metrics: Arc<Metrics>,
    credentials: Credentials,
    clients: Mutex<HashMap<Address, Client>>,
}

/// What another broker answers.
#[derive(Deserialize)]
struct Answer {
    results: Vec<Settled>,
}

#[derive(Deserialize)]
struct Settled {
    receipt: String,
    status: String,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    deadline: Option<Timestamp>,
}

impl Caller {
    /// No connections yet.
    pub(super) fn new(clock: Clock, metrics: Arc<Metrics>, credentials: Credentials) -> Caller {
        Caller { clock, metrics, credentials, clients: Mutex::default() }
    }

    /// Asks an owner, and answers its verdicts in the order asked.
    ///
    /// # Errors
    /// Why there are none. It may have done what it was asked all the same.
    pub(super) async fn call(
        &self,
        place: Place<'_>,
        way: &Way<'_>,
        ask: &Ask,
        until: Instant,
    ) -> Result<Vec<Verdict>, String> {
        let answer = tokio::select! {
            answer = self.answer(place, way, ask) => answer,
            () = self.clock.sleep_until(until) => Err("no answer in time".to_owned()),
        };
        self.metrics.http.forward(answer.is_ok());
        answer
    }

    async fn answer(
        &self,
        (topic, group): Place<'_>,
        Way { owner, address, verb }: &Way<'_>,
        ask: &Ask,
    ) -> Result<Vec<Verdict>, String> {
        let base = match address {
            Address::Unix(_) => "http://localhost".to_owned(),
            address @ Address::Http { .. } => address.to_string(),
        };
        let url = format!("{base}/v1/topics/{topic}/groups/{group}/{verb}");
        let mut request = self.client(address)?.post(url).header(FORWARDED, owner.as_str()).json(&ask.body(verb));
        if let Some(id) = RequestId::current() {
            request = request.header(REQUEST_ID, id.as_str());
        }
        if let Some(value) = self.credentials.authorization(self.clock.instant())? {
            request = request.header(AUTHORIZATION, value);
        }
        let failed = |error: reqwest::Error| innermost_cause(&error.without_url());
        let response = request.send().await.map_err(failed)?;
        let status = response.status();
        if status != reqwest::StatusCode::OK {
            return Err(format!("status {status}"));
        }
        verdicts(&read(response).await?, &ask.receipts())
    }

    fn client(&self, address: &Address) -> Result<Client, String> {
        // Nothing panics while the lock is held; if it did, the map would still be whole.
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(address) {
            return Ok(client.clone());
        }
        let builder = https::client(self.credentials.roots()).map_err(|error| error.detail().to_owned())?;
        let builder = builder
            .user_agent(concat!("dwell/", env!("CARGO_PKG_VERSION")))
            .no_proxy()
            .redirect(Policy::none())
            // Repeating is for the consumer, who is told that the owner was not reached.
            .retry(reqwest::retry::never())
            .pool_idle_timeout(IDLE_TIMEOUT);
        let builder = match address {
            Address::Unix(path) => builder.unix_socket(std::path::Path::new(&**path)),
            Address::Http { reach, .. } => builder.dns_resolver(Near(*reach)),
        };
        let client = builder.build().map_err(|error| innermost_cause(&error))?;
        if clients.len() >= PEERS_MAX {
            clients.clear();
        }
        clients.insert(address.clone(), client.clone());
        Ok(client)
    }
}

/// Resolves names to addresses that are as far away as they may be, and to no others.
#[derive(Debug, Clone, Copy)]
struct Near(Reach);

impl Resolve for Near {
    fn resolve(&self, name: Name) -> Resolving {
        let Near(reach) = *self;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let near: Vec<SocketAddr> = found.filter(|found| reach.holds(found.ip())).collect();
            match near.is_empty() {
                true => Err(format!("{} is not where a broker may be", name.as_str()).into()),
                false => Ok(Box::new(near.into_iter()) as Addrs),
            }
        })
    }
}

/// Reads a body up to its limit.
async fn read(mut response: Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| innermost_cause(&error.without_url()))? {
        if body.len() + chunk.len() > PEER_ANSWER_BYTES_MAX {
            return Err(format!("an answer of more than {PEER_ANSWER_BYTES_MAX} bytes"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The verdicts of an answer about exactly these receipts.
fn verdicts(body: &[u8], receipts: &[&str]) -> Result<Vec<Verdict>, String> {
    let answer: Answer = serde_json::from_slice(body).map_err(|error| format!("an answer that is none: {error}"))?;
    if !answer.results.iter().map(|settled| settled.receipt.as_str()).eq(receipts.iter().copied()) {
        return Err("an answer about other receipts".to_owned());
    }
    let verdict = |settled: Settled| {
        let Settled { status, reason, deadline, .. } = settled;
        Verdict::named(&status, reason.as_deref(), deadline).ok_or_else(|| "a verdict that is none".to_owned())
    };
    answer.results.into_iter().map(verdict).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::StaleReason;

    #[test]
    fn an_answer_is_about_what_was_asked_or_none() {
        let read = |body: &str| verdicts(body.as_bytes(), &["a", "b"]);
        let at = "2026-01-02T03:04:05.678Z";
        let good = format!(
            r#"{{"results": [{{"receipt": "a", "status": "extended", "deadline": "{at}"}}, {{"receipt": "b", "status": "stale", "reason": "deadline_passed"}}]}}"#
        );
        let deadline = at.parse().map(Verdict::Extended);
        assert_eq!(
            read(&good).ok(),
            deadline.ok().map(|extended| vec![extended, Verdict::Stale(StaleReason::DeadlinePassed)])
        );
        let names = ["acked", "nacked", "buried", "stale", "unknown_outcome", "unknown", "pending", "unreachable"];
        for name in names {
            let answer = format!(
                r#"{{"results": [{{"receipt": "a", "status": "{name}"}}, {{"receipt": "b", "status": "acked"}}]}}"#
            );
            assert_eq!(read(&answer).map(|verdicts| verdicts[0].name()).ok(), Some(name));
        }
        for bad in [
            "",
            "[]",
            r#"{"results": []}"#,
            r#"{"results": [{"receipt": "a", "status": "acked"}]}"#,
            r#"{"results": [{"receipt": "b", "status": "acked"}, {"receipt": "a", "status": "acked"}]}"#,
            r#"{"results": [{"receipt": "a", "status": "acked"}, {"receipt": "b", "status": "extended"}]}"#,
            r#"{"results": [{"receipt": "a", "status": "acked"}, {"receipt": "b", "status": "done"}]}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_name_is_resolved_to_what_is_near_only() -> Result<(), Box<dyn std::error::Error>> {
        let resolve = async |name: &str, reach| Near(reach).resolve(name.parse()?).await;
        assert!(resolve("localhost", Reach::Machine).await.is_ok());
        assert!(resolve("localhost", Reach::Network).await.is_err());
        // Names that are addresses need no server to resolve.
        for nowhere in ["169.254.169.254", "0.0.0.0"] {
            assert!(resolve(nowhere, Reach::Network).await.is_err(), "{nowhere}");
        }
        assert!(resolve("10.0.0.1", Reach::Network).await.is_ok());
        Ok(())
    }
}
