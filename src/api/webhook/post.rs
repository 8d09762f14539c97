//! One POST: its headers and signature, and the decision that follows from the answer.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response};
use sha2::Sha256;

use super::Webhook;
use crate::delivery::{Decision, Delivery};
use crate::model::error::{Error, Result, innermost_cause};
use crate::model::limits::{RETRY_AFTER_MAX, WEBHOOK_ANSWER_BYTES_MAX};
use crate::model::time::{Timestamp, show_span};
use crate::platform::clock::{Clock, Instant};
use crate::platform::https::{self, Roots};
use crate::telemetry::spans::Span;

/// Time that an idle connection is kept. Many servers close one after 5 s; a POST should not meet that.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// How soon a POST notices that its connection was closed while it was idle: a round trip to the other side of the world. One
/// that fails later has failed at its target.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Poster {
    client: Client,
    /// Makes a connection for each POST.
    anew: Client,
    /// When the last connection that may be kept was answered over.
    answered: Mutex<Option<Instant>>,
    webhook: Webhook,
    signer: Option<Signer>,
    clock: Clock,
}

impl Poster {
    pub(super) fn new(webhook: Webhook, clock: Clock) -> Result<Poster> {
        let signer = webhook.secret.as_ref().map(|secret| Signer::new(secret.expose().as_bytes())).transpose()?;
        let roots = Roots::choose("ca_file", webhook.ca_file.as_deref(), webhook.target.is_tls())?;
        let client = |idle| {
            let builder = https::broker_client(&roots)?.dns_resolver(webhook.target.resolver());
            https::build(builder.pool_max_idle_per_host(idle).pool_idle_timeout(IDLE_TIMEOUT))
        };
        let (client, anew) = (client(webhook.concurrency)?, client(0)?);
        Ok(Poster { client, anew, answered: Mutex::default(), webhook, signer, clock })
    }

    pub(super) async fn post(&self, delivery: Delivery) -> EndpointAnswer {
        let timeout = self.webhook.timeout;
        let until = self.clock.instant().plus(timeout);
        let headers = self.headers(&delivery);
        let response = tokio::select! {
            response = self.send(headers, delivery.message.envelope.payload) => response,
            () = self.clock.sleep_until(until) => return EndpointAnswer::TimedOut(timeout),
        };
        match response {
            Ok(response) => {
                let (status, retry_after) = (response.status().as_u16(), self.retry_after(response.headers()));
                let mut text = Vec::new();
                // The status decides. The body only explains it, and has to be read so that the connection can be kept.
                tokio::select! {
                    () = read(response, &mut text) => {}
                    () = self.clock.sleep_until(until) => {}
                }
                self.note_answer();
                let text = String::from_utf8_lossy(&text).trim().to_owned();
                EndpointAnswer::Status { status, retry_after, text }
            }
            Err(error) => EndpointAnswer::Failed(innermost_cause(&error.without_url())),
        }
    }

    /// Sends a POST. If its connection was closed while it was idle, which only a POST finds out, it is sent again at once
    /// over a new one: the message has not failed.
    async fn send(&self, headers: HeaderMap, payload: Bytes) -> reqwest::Result<Response> {
        let request = |client: &Client, headers, payload| {
            client.post(self.webhook.target.url().clone()).headers(headers).body::<Bytes>(payload).send()
        };
        let began = self.clock.instant();
        let response = request(&self.client, headers.clone(), payload.clone()).await;
        match response {
            Err(error) if self.may_have_been_idle(began) && https::was_closed(&error) => {
                tracing::debug!(topic = %self.webhook.topic, %error, "an idle connection was closed: posted again");
                request(&self.anew, headers, payload).await
            }
            response => response,
        }
    }

    fn note_answer(&self) {
        *self.answered.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.clock.instant());
    }

    /// Whether a POST that has just failed may have had a connection that was kept.
    fn may_have_been_idle(&self, began: Instant) -> bool {
        let answered = *self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        let is_soon = self.clock.instant().since(began) < CLOSED_WITHIN;
        is_soon && answered.is_some_and(|at| began.since(at) <= IDLE_TIMEOUT)
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
            let time = self.clock.now().as_ms() / 1_000;
            let signature = signer.sign(time, &headers, &envelope.payload);
            put(&mut headers, "dwell-signature", signature);
        }
        headers
    }

    fn retry_after(&self, headers: &HeaderMap) -> Option<Duration> {
        retry_after(headers.get(RETRY_AFTER)?.to_str().ok()?, self.clock.now())
    }
}

/// Leaves out what HTTP refuses; names and values were checked when the message was pushed.
fn put(headers: &mut HeaderMap, name: &str, value: impl Display) {
    let name = HeaderName::from_bytes(name.as_bytes());
    if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(&value.to_string())) {
        headers.insert(name, value);
    }
}

pub(super) fn encoded(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut encoded, byte| {
        match byte {
            b'!'..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
        encoded
    })
}

async fn read(mut response: Response, text: &mut Vec<u8>) {
    let mut left = WEBHOOK_ANSWER_BYTES_MAX;
    while let Ok(Some(chunk)) = response.chunk().await {
        let room = TEXT_BYTES - text.len();
        text.extend_from_slice(chunk.get(..room).unwrap_or(&chunk));
        left = match left.checked_sub(chunk.len()) {
            Some(left) => left,
            None => return,
        };
    }
}

pub(super) const TEXT_BYTES: usize = 200;

pub(super) const OUTCOMES: [&str; 5] = ["ok", "gone", "refused", "timed_out", "failed"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EndpointAnswer {
    Status { status: u16, retry_after: Option<Duration>, text: String },
    TimedOut(Duration),
    Failed(String),
}

impl EndpointAnswer {
    pub(super) fn outcome(&self) -> &'static str {
        match self {
            EndpointAnswer::Status { status: 200..=299, .. } => "ok",
            EndpointAnswer::Status { status: 410, .. } => "gone",
            EndpointAnswer::Status { .. } => "refused",
            EndpointAnswer::TimedOut(_) => "timed_out",
            EndpointAnswer::Failed(_) => "failed",
        }
    }

    /// Only 410 means that a message can never succeed: other 4xx statuses also come from broken deployments, which get
    /// repaired.
    pub(super) fn decision(&self) -> Decision {
        match self {
            EndpointAnswer::Status { status: 200..=299, .. } => Decision::Ack,
            EndpointAnswer::Status { status: 410, .. } => Decision::Bury { reason: Some(self.reason().into()) },
            EndpointAnswer::Status { retry_after, .. } => {
                Decision::Nack { delay: *retry_after, reason: Some(self.reason().into()) }
            }
            EndpointAnswer::TimedOut(_) | EndpointAnswer::Failed(_) => {
                Decision::Nack { delay: None, reason: Some(self.reason().into()) }
            }
        }
    }

    /// Whether the target said when it takes requests again: this one and others.
    pub(super) fn asks_all_to_wait(&self) -> bool {
        matches!(self, EndpointAnswer::Status { status: 429 | 503, retry_after: Some(_), .. })
    }

    /// The error without the words of the target, which may repeat the payload.
    pub(super) fn fault(&self) -> Option<String> {
        match self {
            EndpointAnswer::Status { status: 200..=299, .. } => None,
            EndpointAnswer::Status { status, .. } => Some(format!("status {status}")),
            EndpointAnswer::TimedOut(_) | EndpointAnswer::Failed(_) => Some(self.reason()),
        }
    }

    pub(super) fn describe(&self, span: Span) -> Span {
        let span = match self {
            EndpointAnswer::Status { status, .. } => span.number("http.response.status_code", *status),
            EndpointAnswer::TimedOut(_) | EndpointAnswer::Failed(_) => span,
        };
        span.text("dwell.outcome", self.outcome())
    }

    /// The status, or a word for what came instead of one.
    pub(super) fn kind_of_fault(&self) -> String {
        match self {
            EndpointAnswer::Status { status, .. } => status.to_string(),
            EndpointAnswer::TimedOut(_) => "timeout".to_owned(),
            EndpointAnswer::Failed(_) => "_OTHER".to_owned(),
        }
    }

    pub(super) fn reason(&self) -> String {
        match self {
            EndpointAnswer::Status { status: status @ 300..=399, .. } => {
                format!("status {status}: redirects are not followed")
            }
            EndpointAnswer::Status { status, text, .. } if text.is_empty() => format!("status {status}"),
            EndpointAnswer::Status { status, text, .. } => format!("status {status}: {text}"),
            EndpointAnswer::TimedOut(timeout) => format!("no answer within {}", show_span(*timeout)),
            EndpointAnswer::Failed(why) => why.clone(),
        }
    }
}

/// `Retry-After` in seconds or as an HTTP date, at most a day; `None` for anything else.
pub(super) fn retry_after(value: &str, now: Timestamp) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number too long to parse is a long time too.
        let seconds = value.parse().unwrap_or(u64::MAX);
        return Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX));
    }
    let date = httpdate::parse_http_date(value).ok()?.duration_since(UNIX_EPOCH).ok()?;
    let at = Timestamp::from_ms(u64::try_from(date.as_millis()).ok()?);
    Some(at.since(now).min(RETRY_AFTER_MAX))
}

/// No value has a line feed in it, and `dwell-key` is percent-encoded, so the lines say which is which.
const SIGNED: [&str; 5] = ["dwell-id", "dwell-topic", "dwell-group", "dwell-attempt", "dwell-key"];

#[derive(Debug, Clone)]
struct Signer(Hmac<Sha256>);

impl Signer {
    fn new(secret: &[u8]) -> Result<Signer> {
        let mac = Hmac::new_from_slice(secret);
        mac.map(Signer).map_err(|error| Error::bug(format!("a secret of any length makes a signer: {error}")))
    }

    /// Signs what a receiver relies on: the headers of [`SIGNED`], a line each, with the time behind the id, and the body.
    /// So an old POST is not replayed as new, and a body is not passed off as that of another message, topic or group. A
    /// header that is missing has an empty line.
    fn sign(&self, unix_seconds: u64, headers: &HeaderMap, body: &[u8]) -> String {
        let time = unix_seconds.to_string();
        let value = |name: &str| headers.get(name).map_or(&b""[..], HeaderValue::as_bytes);
        let [id, topic, group, attempt, key] = SIGNED.map(value);
        let lines = [id, time.as_bytes(), topic, group, attempt, key];
        let mut parts: Vec<&[u8]> = lines.iter().flat_map(|line| [line, &b"\n"[..]]).collect();
        parts.push(body);
        format!("t={time},v1={}", self.hex(&parts))
    }

    fn hex(&self, parts: &[&[u8]]) -> String {
        let mut mac = self.0.clone();
        for part in parts {
            mac.update(part);
        }
        mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
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

    #[test]
    fn status_code_selects_ack_or_nack() {
        let status = |status, text: &str| EndpointAnswer::Status { status, retry_after: None, text: text.to_owned() };
        let nack = |delay, reason: &str| Decision::Nack { delay, reason: Some(reason.into()) };
        let two = Some(Duration::from_secs(2));
        let cases = [
            (status(200, "fine"), "ok", Decision::Ack),
            (status(204, ""), "ok", Decision::Ack),
            (status(410, "no such user"), "gone", Decision::Bury { reason: Some("status 410: no such user".into()) }),
            (status(302, "moved"), "refused", nack(None, "status 302: redirects are not followed")),
            (status(404, ""), "refused", nack(None, "status 404")),
            (status(500, "oops"), "refused", nack(None, "status 500: oops")),
            (
                EndpointAnswer::Status { status: 503, retry_after: two, text: String::new() },
                "refused",
                nack(two, "status 503"),
            ),
            (EndpointAnswer::TimedOut(Duration::from_secs(10)), "timed_out", nack(None, "no answer within 10s")),
            (EndpointAnswer::Failed("Connection refused".into()), "failed", nack(None, "Connection refused")),
        ];
        for (answer, outcome, decision) in cases {
            assert_eq!((answer.outcome(), answer.decision()), (outcome, decision), "{answer:?}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_and_bounded() {
        // Sun, 06 Nov 1994 08:49:37 GMT.
        let now = Timestamp::from_ms(784_111_777_000);
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let cases = [
            ("2", seconds(2)),
            (" 120 ", seconds(120)),
            ("0", seconds(0)),
            ("86400", seconds(86_400)),
            ("86401", Some(RETRY_AFTER_MAX)),
            ("99999999999999999999999", Some(RETRY_AFTER_MAX)),
            ("315360000", Some(RETRY_AFTER_MAX)),
            ("Sun, 06 Nov 1994 08:49:47 GMT", seconds(10)),
            ("Sunday, 06-Nov-94 08:49:47 GMT", seconds(10)),
            ("Sun, 06 Nov 1994 08:49:27 GMT", seconds(0)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(RETRY_AFTER_MAX)),
            ("", None),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
        ];
        for (value, expected) in cases {
            assert_eq!(retry_after(value, now), expected, "{value:?}");
        }
    }

    /// RFC 4231, test cases 2 and 6.
    #[test]
    fn published_test_vectors_match() -> Result<()> {
        assert_eq!(
            Signer::new(b"Jefe")?.hex(&[b"what do ya want ", b"", b"for nothing?"]),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            Signer::new(&[0xaa; 131])?.hex(&[b"Test Using Larger Than Block-Size Key - Hash Key First"]),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
        Ok(())
    }

    fn signed(change: impl FnOnce(&mut HeaderMap)) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in SIGNED.into_iter().zip(["order-4711", "orders", "default", "1", ""]) {
            put(&mut headers, name, value);
        }
        change(&mut headers);
        headers
    }

    #[test]
    fn signature_example_of_the_page_is_correct() -> Result<()> {
        let signature = Signer::new(b"a secret")?.sign(1_767_323_045, &signed(|_| {}), b"close order 4711");
        let page = include_str!("../../../docs/how-to/webhooks.md");
        assert!(page.contains(&signature), "{signature}");
        Ok(())
    }

    #[test]
    fn signature_covers_id_topic_group_attempt_key_time_and_body() -> Result<()> {
        let signer = Signer::new(b"a secret")?;
        let sign = |time, headers: &HeaderMap, body: &[u8]| {
            let signature = signer.sign(time, headers, body);
            signature.split_once("v1=").map(|(_, mac)| mac.to_owned()).unwrap_or_default()
        };
        let mut all =
            vec![sign(1, &signed(|_| {}), b"x"), sign(2, &signed(|_| {}), b"x"), sign(1, &signed(|_| {}), b"y")];
        for name in SIGNED {
            all.push(sign(1, &signed(|headers| put(headers, name, "other")), b"x"));
        }
        // The end of one part cannot become the beginning of the next one.
        all.push(sign(1, &signed(|headers| put(headers, "dwell-key", "x")), b""));
        let distinct: std::collections::BTreeSet<&String> = all.iter().collect();
        assert_eq!((distinct.len(), all[0].len()), (all.len(), 64));
        // An absent header is signed as an empty one.
        assert_eq!(sign(1, &signed(|headers| drop(headers.remove("dwell-key"))), b"x"), all[0]);
        Ok(())
    }
}
