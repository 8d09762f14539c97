//! One POST: what is sent, and when it counts as answered.

use std::fmt::Display;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response};

use super::Webhook;
use super::answer::{Answer, SAID_BYTES, retry_after};
use super::signature::Signer;
use crate::delivery::Delivery;
use crate::model::error::{Result, innermost_cause};
use crate::model::limits::WEBHOOK_ANSWER_BYTES_MAX;
use crate::platform::clock::Clock;
use crate::platform::https::{self, Roots};

/// How long a connection is kept open without a POST. Many servers close one after 5 s; a POST should not meet that.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// Posts the deliveries of one webhook. The connections to its target are kept and used again.
#[derive(Debug)]
pub(super) struct Poster {
    client: Client,
    webhook: Webhook,
    signer: Option<Signer>,
    clock: Clock,
}

impl Poster {
    pub(super) fn new(webhook: Webhook, clock: Clock) -> Result<Poster> {
        let signer = webhook.secret.as_ref().map(|secret| Signer::new(secret.expose().as_bytes())).transpose()?;
        let roots = Roots::choose("ca_file", webhook.ca_file.as_deref(), webhook.target.is_tls())?;
        let builder = https::broker_client(&roots)?
            .dns_resolver(webhook.target.resolver())
            .pool_max_idle_per_host(webhook.concurrency)
            .pool_idle_timeout(IDLE_TIMEOUT);
        let client = https::build(builder)?;
        Ok(Poster { client, webhook, signer, clock })
    }

    /// Posts a delivery. It ends within the timeout; what is on its way then is broken off.
    pub(super) async fn post(&self, delivery: Delivery) -> Answer {
        let timeout = self.webhook.timeout;
        let until = self.clock.instant().plus(timeout);
        let request = self.client.post(self.webhook.target.url().clone()).headers(self.headers(&delivery));
        let response = tokio::select! {
            response = request.body(delivery.message.envelope.payload).send() => response,
            () = self.clock.sleep_until(until) => return Answer::TimedOut(timeout),
        };
        match response {
            Ok(response) => {
                let (status, retry_after) = (response.status().as_u16(), self.retry_after(response.headers()));
                let mut said = Vec::new();
                // The status decides. The body only says why, and has to be read if the connection is to be kept.
                tokio::select! {
                    () = read(response, &mut said) => {}
                    () = self.clock.sleep_until(until) => {}
                }
                let said = String::from_utf8_lossy(&said).trim().to_owned();
                Answer::Status { status, retry_after, said }
            }
            Err(error) => Answer::Failed(innermost_cause(&error.without_url())),
        }
    }

    fn headers(&self, delivery: &Delivery) -> HeaderMap {
        let (message, envelope) = (&delivery.message, &delivery.message.envelope);
        let mut headers = HeaderMap::new();
        put(&mut headers, "dwell-id", &message.id);
        put(&mut headers, "dwell-topic", &self.webhook.topic);
        put(&mut headers, "dwell-group", &self.webhook.group);
        put(&mut headers, "dwell-attempt", delivery.attempt);
        put(&mut headers, "dwell-due-at", message.due_at);
        put(&mut headers, "dwell-pushed-at", envelope.pushed_at);
        put(&mut headers, "dwell-partition", delivery.partition);
        if let Some(key) = &envelope.key {
            put(&mut headers, "dwell-key", encoded(key.as_str()));
        }
        for (name, value) in &envelope.meta {
            put(&mut headers, &format!("dwell-meta-{name}"), encoded(value));
        }
        if let Some(content_type) = &envelope.content_type {
            put(&mut headers, CONTENT_TYPE.as_str(), content_type);
        }
        if let Some(trace) = &envelope.trace {
            put(&mut headers, "traceparent", trace.traceparent());
            if let Some(state) = trace.tracestate() {
                put(&mut headers, "tracestate", state);
            }
        }
        if let Some(signer) = &self.signer {
            put(&mut headers, "dwell-signature", signer.sign(self.clock.now().as_ms() / 1_000, &envelope.payload));
        }
        headers
    }

    fn retry_after(&self, headers: &HeaderMap) -> Option<Duration> {
        retry_after(headers.get(RETRY_AFTER)?.to_str().ok()?, self.clock.now())
    }
}

/// Adds a header. Names and values are checked when a message is pushed; what HTTP refuses all the same is left out.
fn put(headers: &mut HeaderMap, name: &str, value: impl Display) {
    let name = HeaderName::from_bytes(name.as_bytes());
    if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(&value.to_string())) {
        headers.insert(name, value);
    }
}

/// A text as a header value: `%` and everything that is not visible ASCII is percent-encoded.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut encoded, byte| {
        match byte {
            b'!'..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
        encoded
    })
}

/// Reads a body to its end or its limit, and keeps its beginning. A body that breaks has ended.
async fn read(mut response: Response, said: &mut Vec<u8>) {
    let mut left = WEBHOOK_ANSWER_BYTES_MAX;
    while let Ok(Some(chunk)) = response.chunk().await {
        let room = SAID_BYTES - said.len();
        said.extend_from_slice(chunk.get(..room).unwrap_or(&chunk));
        left = match left.checked_sub(chunk.len()) {
            Some(left) => left,
            None => return,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_value_is_visible_ascii_and_can_be_decoded() {
        for (text, value) in [
            ("customer-7", "customer-7"),
            ("a b/c?d=e&f", "a%20b/c?d=e&f"),
            ("100%", "100%25"),
            ("café", "caf%C3%A9"),
            ("\u{7f}", "%7F"),
            ("", ""),
        ] {
            assert_eq!(encoded(text), value);
        }
    }
}
