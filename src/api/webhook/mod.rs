//! Webhooks: each message of a group is POSTed to an application, whose answer settles it. docs/how-to/webhooks.md is the
//! contract.
//!
//! Targets come only from the configuration file. Redirects are never followed, and targets beyond this machine must be
//! allowed explicitly.

mod post;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio_util::sync::CancellationToken;

use self::post::{EndpointAnswer, OUTCOMES, Poster};
use crate::broker::{Broker, StreamRequest};
use crate::delivery::{Decision, Delivery, Session, Verdict};
use crate::model::error::Result;
use crate::model::limits::{WAIT_MAX, WEBHOOK_MARGIN};
use crate::model::message::{GroupName, MessageId, TopicName};
use crate::platform::clock::Clock;
use crate::platform::log_throttle::RepeatThrottle;
use crate::platform::secret::Secret;
use crate::telemetry::metrics::WebhookMetrics;
use crate::telemetry::spans::{Fault, Operation, Span, about};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    pub topic: TopicName,
    pub group: GroupName,
    pub target: Target,
    /// Concurrent POSTs, 1 to 256.
    pub concurrency: usize,
    /// From the start of a POST to the end of its answer, 100 ms to 1 h. The visibility timeout of the delivery is longer, so
    /// that the POST has ended before the message may be redelivered.
    pub timeout: Duration,
    pub secret: Option<Secret>,
    /// CA certificates used to verify the target; without, those of the system.
    pub ca_file: Option<PathBuf>,
    pub enabled: bool,
}

impl Webhook {
    pub(crate) fn check(&self, clock: Clock) -> Result<()> {
        Poster::new(self.clone(), clock).map(drop)
    }
}

pub const TARGET_ACCEPTED: &str = "http[s]://HOST[:PORT][/PATH], on this machine unless allow_remote is true";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    url: Url,
    allow_remote: bool,
}

impl Target {
    /// The error says why the URL is refused. A host name is checked each time it is resolved.
    pub fn parse(text: &str, allow_remote: bool) -> Result<Target, String> {
        let url = Url::parse(text).map_err(|why| format!("is not a URL: {why}"))?;
        match url.scheme() {
            "http" | "https" => {}
            _ => return Err("is not an http:// or https:// URL".to_owned()),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("has a user or a password; sign with a secret_file instead".to_owned());
        }
        let host = url.host_str().unwrap_or_default();
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        match address {
            Ok(address) if !is_allowed(address, allow_remote) => Err(refusal(host)),
            _ => Ok(Target { url, allow_remote }),
        }
    }

    pub fn allows_remote(&self) -> bool {
        self.allow_remote
    }

    pub fn is_tls(&self) -> bool {
        self.url.scheme() == "https"
    }

    fn url(&self) -> &Url {
        &self.url
    }

    fn resolver(&self) -> Resolver {
        Resolver { allow_remote: self.allow_remote }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

/// Connections use the addresses it returns, so a name cannot change its meaning in between.
#[derive(Debug, Clone, Copy)]
struct Resolver {
    allow_remote: bool,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allow_remote = self.allow_remote;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let allowed: Vec<SocketAddr> = found.filter(|found| is_allowed(found.ip(), allow_remote)).collect();
            match allowed.is_empty() {
                true => Err(refusal(name.as_str()).into()),
                false => Ok(Box::new(allowed.into_iter()) as Addrs),
            }
        })
    }
}

fn refusal(host: &str) -> String {
    format!("{host} is not on this machine; allow_remote = true would allow it")
}

fn is_allowed(address: IpAddr, allow_remote: bool) -> bool {
    allow_remote || address.to_canonical().is_loopback()
}

/// Before a topic that cannot be consumed is tried again: most often it does not exist yet.
const PAUSE: Duration = Duration::from_secs(1);

type Posts<'a> = FuturesUnordered<BoxFuture<'a, ()>>;

pub struct Subscription {
    broker: Broker,
    metrics: WebhookMetrics,
    clock: Clock,
    topic: TopicName,
    group: GroupName,
    concurrency: usize,
    timeout: Duration,
    poster: Poster,
    fails: RepeatThrottle,
}

impl Subscription {
    /// # Errors: `Invalid` when CA certificates cannot be read, `Bug` when no HTTP client can be created.
    pub fn new(broker: Broker, webhook: Webhook, clock: Clock) -> Result<Subscription> {
        Ok(Subscription {
            metrics: broker.metrics().http.webhook(webhook.topic.as_str(), webhook.group.as_str(), &OUTCOMES),
            broker,
            topic: webhook.topic.clone(),
            group: webhook.group.clone(),
            concurrency: webhook.concurrency,
            timeout: webhook.timeout,
            poster: Poster::new(webhook, clock.clone())?,
            clock,
            fails: RepeatThrottle::default(),
        })
    }

    /// Posts messages until `stop`; then POSTs in progress may end within the drain timeout.
    pub async fn run(self, stop: CancellationToken) {
        tracing::info!(topic = %self.topic, group = %self.group, "webhook started");
        let mut posts = Posts::new();
        let mut waits = false;
        while !stop.is_cancelled() {
            match self.open().await {
                Ok(session) => {
                    waits = false;
                    self.serve(session, &mut posts).await;
                }
                Err(error) if !std::mem::replace(&mut waits, true) => {
                    tracing::warn!(topic = %self.topic, group = %self.group, %error, "webhook waits for its group");
                }
                Err(_) => {}
            }
            let pause = stop.run_until_cancelled(self.clock.sleep(PAUSE));
            meanwhile(&mut posts, pause).await;
        }
        let left = async { while posts.next().await.is_some() {} };
        tokio::select! {
            () = left => {}
            () = self.clock.sleep(self.broker.drain_timeout()) => {}
        }
    }

    async fn open(&self) -> Result<Session> {
        // The POST ends before its delivery does, so the target never has a message twice at a time.
        let visibility_timeout = Some(self.timeout.saturating_add(WEBHOOK_MARGIN));
        let request = StreamRequest { max_in_flight: self.concurrency, visibility_timeout };
        self.broker.stream(&self.topic, &self.group, request).await
    }

    async fn serve<'a>(&'a self, session: Session, posts: &mut Posts<'a>) {
        while !session.is_over() {
            // Deliveries are not enough to count: a POST continues after its partition is lost.
            if posts.len() >= self.concurrency {
                posts.next().await;
            } else if let Some(delivery) = meanwhile(posts, session.next(WAIT_MAX)).await {
                posts.push(Box::pin(self.deliver(delivery)));
            }
        }
        session.end();
    }

    async fn deliver(&self, mut delivery: Delivery) {
        let (receipt, id, attempt) = (delivery.receipt.clone(), delivery.message.id.clone(), delivery.attempt);
        let span = self.span(&mut delivery);
        let began = self.clock.instant();
        let answer = self.poster.post(delivery).await;
        let took = self.clock.instant().since(began);
        if let Some(span) = span {
            let fault = answer.fault().map(|detail| Fault { kind: answer.kind_of_fault(), detail });
            answer.describe(span).end(fault);
        }
        self.metrics.post(answer.outcome(), took);
        self.note(&id, &answer);
        let decision = self.not_before_backoff(answer.decision(), attempt).await;
        let decisions = vec![(receipt, self.with_its_key(decision, &answer).await)];
        let (topic, group) = (&self.topic, &self.group);
        match self.broker.settle(topic, group, decisions).await.as_deref() {
            Ok([Verdict::Acked | Verdict::Nacked | Verdict::Buried]) => {}
            Ok(verdicts) => {
                let verdict = verdicts.first().map(|verdict| verdict.name());
                tracing::debug!(%topic, %group, %id, verdict, "an answer was not settled");
            }
            Err(error) => tracing::debug!(%topic, %group, %id, %error, "an answer was not settled"),
        }
    }

    /// A target may ask for more time than the topic's backoff gives it, never for less: one that says `Retry-After: 0`, or a
    /// time that has passed, would use up all attempts at once.
    async fn not_before_backoff(&self, decision: Decision, attempt: u32) -> Decision {
        let Decision::Nack { delay: Some(asked), reason } = decision else { return decision };
        // Without the topic the owner knows the backoff.
        let known = self.broker.cached_topic(&self.topic).await.ok();
        let delay = known.map(|known| asked.max(known.settings.backoff.delay(attempt, fastrand::f64())));
        Decision::Nack { delay, reason }
    }

    /// A target that names a time for all requests, with 429 or 503, does so for the key of the message, in a fair group.
    async fn with_its_key(&self, decision: Decision, answer: &EndpointAnswer) -> Decision {
        let is_fair = async || {
            let known = self.broker.cached_topic(&self.topic).await;
            known.is_ok_and(|known| known.is_fair(&self.group))
        };
        match decision {
            Decision::Nack { delay, reason } if answer.asks_all_to_wait() && is_fair().await => {
                Decision::NackKey { delay, reason }
            }
            decision => decision,
        }
    }

    fn span(&self, delivery: &mut Delivery) -> Option<Span> {
        let trace = &mut delivery.message.envelope.trace;
        let span = self.broker.tracer().begin(Operation::Process, &self.topic, trace.as_ref())?;
        *trace = Some(span.context().clone());
        let span = about(span, &delivery.message.id, delivery.partition);
        Some(span.text("messaging.consumer.group.name", &self.group).text("http.request.method", "POST"))
    }

    /// Logs when a target begins to fail and when it works again, not each message.
    fn note(&self, id: &MessageId, answer: &EndpointAnswer) {
        let (topic, group) = (&self.topic, &self.group);
        let fails = matches!(answer.decision(), Decision::Nack { .. });
        match fails {
            true if self.fails.is_due(self.clock.instant()) => {
                tracing::warn!(%topic, %group, %id, error = answer.fault(), "webhook target fails");
            }
            true => tracing::debug!(%topic, %group, %id, error = answer.fault(), "a POST failed"),
            false if self.fails.is_over() => tracing::info!(%topic, %group, "webhook target works again"),
            false => {}
        }
    }
}

async fn meanwhile<T>(posts: &mut Posts<'_>, wait: impl Future<Output = T>) -> T {
    tokio::pin!(wait);
    loop {
        tokio::select! {
            done = &mut wait => return done,
            Some(()) = posts.next() => {}
        }
    }
}

/// For fuzz/.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing {
    use std::time::Duration;

    use super::post;
    use crate::model::time::Timestamp;

    /// A text as it is in a header.
    pub fn encoded(text: &str) -> String {
        post::encoded(text)
    }

    /// How long a target asks to wait.
    pub fn retry_after(value: &str, now: Timestamp) -> Option<Duration> {
        post::retry_after(value, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_loopback_targets_are_refused_unless_allowed() {
        let here =
            ["http://127.0.0.1:80/", "http://127.9.9.9/a?b=c", "http://[::1]:8080/", "http://[::ffff:127.0.0.1]/"];
        for url in here.into_iter().chain([
            "http://localhost/",
            "https://localhost/",
            "http://0x7f.1/",
            "http://app.internal/",
        ]) {
            assert!(Target::parse(url, false).is_ok(), "{url}");
        }
        let beyond = [
            "http://169.254.169.254/latest/meta-data",
            "http://[fe80::1]/",
            "http://[fd00:ec2::254]/",
            "http://[::ffff:169.254.169.254]/",
            "http://2852039166/",
            "http://10.0.0.1/",
            "https://10.0.0.1/",
            "http://0.0.0.0/",
            "http://[::]/",
            "http://8.8.8.8/",
            "http://[64:ff9b::7f00:1]/",
        ];
        for url in beyond {
            assert!(Target::parse(url, false).is_err_and(|why| why.contains("is not on this machine")), "{url}");
            assert!(Target::parse(url, true).is_ok(), "{url}");
        }
    }

    #[test]
    fn unsupported_urls_are_refused() {
        let cases = [
            ("", "is not a URL"),
            ("localhost:80", "is not an http:// or https:// URL"),
            ("file:///etc/passwd", "is not an http:// or https:// URL"),
            ("ftp://localhost/", "is not an http:// or https:// URL"),
            ("https://user@localhost/", "has a user or a password"),
            ("http://", "is not a URL"),
            ("http://user@localhost/", "has a user or a password"),
            ("http://:secret@localhost/", "has a user or a password"),
        ];
        for (url, expected) in cases {
            assert!(Target::parse(url, true).is_err_and(|why| why.starts_with(expected)), "{url}");
        }
    }

    #[tokio::test]
    async fn host_name_must_resolve_to_loopback() -> Result<(), Box<dyn std::error::Error>> {
        let resolve = async |name: &str, allow_remote| Resolver { allow_remote }.resolve(name.parse()?).await;
        let local: Vec<_> = resolve("localhost", false).await.map_err(|error| error.to_string())?.collect();
        assert!(!local.is_empty() && local.iter().all(|address| address.ip().is_loopback()), "{local:?}");
        let remote = resolve("169.254.169.254", false).await.err().map(|error| error.to_string());
        assert!(remote.is_some_and(|why| why.starts_with("169.254.169.254 is not on this machine")));
        assert_eq!(resolve("169.254.169.254", true).await.map_err(|error| error.to_string())?.count(), 1);
        Ok(())
    }
}
