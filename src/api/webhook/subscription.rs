//! One webhook at work: takes what is due while it has places free, posts it, and settles it by the answer.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio_util::sync::CancellationToken;

use super::Webhook;
use super::answer::{Answer, OUTCOMES};
use super::post::Poster;
use crate::broker::{Broker, StreamRequest};
use crate::delivery::{Decision, Delivery, Session, Verdict};
use crate::model::error::Result;
use crate::model::limits::{WAIT_MAX, WEBHOOK_MARGIN};
use crate::model::message::{GroupName, MessageId, TopicName};
use crate::platform::clock::Clock;
use crate::platform::log_throttle::RepeatThrottle;
use crate::telemetry::metrics::WebhookMetrics;
use crate::telemetry::spans::{Span, SpanKind, about};

/// The pause before a topic that cannot be consumed is asked for again: most often it does not exist yet.
const PAUSE: Duration = Duration::from_secs(1);

/// POSTs that are on their way.
type Posts<'a> = FuturesUnordered<BoxFuture<'a, ()>>;

/// One webhook at work.
pub struct Subscription {
    broker: Broker,
    metrics: WebhookMetrics,
    clock: Clock,
    topic: TopicName,
    group: GroupName,
    concurrency: usize,
    timeout: Duration,
    poster: Poster,
    /// Says that POSTs fail, and that they work again.
    fails: RepeatThrottle,
}

impl Subscription {
    /// A webhook that consumes from `broker`.
    ///
    /// # Errors
    /// `Invalid` when the certificates that are to be believed cannot be read, `Bug` when no HTTP client can be made.
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

    /// Posts what is due until `stop`. What is on its way then may be answered for as long as a stop waits for
    /// deliveries.
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
        // A POST has ended before its delivery does, so a message is never with the target twice at a time.
        let visibility_timeout = Some(self.timeout.saturating_add(WEBHOOK_MARGIN));
        let request = StreamRequest { max_in_flight: self.concurrency, visibility_timeout };
        self.broker.stream_existing(&self.topic, &self.group, request).await
    }

    /// Takes and posts until the session is over: the process stops, or the topic is gone.
    async fn serve<'a>(&'a self, session: Session, posts: &mut Posts<'a>) {
        while !session.is_over() {
            // Not only the deliveries count: a POST lives on when its pair is lost.
            if posts.len() >= self.concurrency {
                posts.next().await;
            } else if let Some(delivery) = meanwhile(posts, session.next(WAIT_MAX)).await {
                posts.push(Box::pin(self.deliver(delivery)));
            }
        }
        session.end();
    }

    /// Posts a delivery and settles it.
    async fn deliver(&self, mut delivery: Delivery) {
        let (receipt, id) = (delivery.receipt.to_string(), delivery.message.id.clone());
        let span = self.span(&mut delivery);
        let began = self.clock.instant();
        let answer = self.poster.post(delivery).await;
        let took = self.clock.instant().since(began);
        if let Some(span) = span {
            answer.describe(span).end(answer.fault());
        }
        self.metrics.post(answer.outcome(), took);
        self.note(&id, &answer);
        let decisions = vec![(receipt, answer.decision())];
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

    /// Begins the span of a POST, which the POST names.
    fn span(&self, delivery: &mut Delivery) -> Option<Span> {
        let trace = &mut delivery.message.envelope.trace;
        let span = self.broker.tracer().begin("webhook", SpanKind::Client, trace.as_ref())?;
        *trace = Some(span.context().clone());
        let span = about(span, &self.topic, &delivery.message.id, delivery.partition);
        Some(span.text("messaging.consumer.group.name", &self.group).text("http.request.method", "POST"))
    }

    /// Says when a target begins to fail and when it works again, not with every message.
    fn note(&self, id: &MessageId, answer: &Answer) {
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

/// Lets posts go on while something is waited for.
async fn meanwhile<T>(posts: &mut Posts<'_>, wait: impl Future<Output = T>) -> T {
    tokio::pin!(wait);
    loop {
        tokio::select! {
            done = &mut wait => return done,
            Some(()) = posts.next() => {}
        }
    }
}
