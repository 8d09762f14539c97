//! Consuming: reserve, ack, nack, extend.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::consumer::{Consumer, ShownToken};
use super::faults::collect;
use super::forwarded::Forwarded;
use super::params::{GroupPath, NoParams};
use super::problem::Problem;
use super::problem_sets::{BodyProblem, TopicProblem, WaitProblem};
use super::reply::Reply;
use super::schema;
use super::shape::Contents;
use super::strict::{Items, Json, JsonOrDefault, TextOr, present};
use super::{App, json_list};
use crate::broker::ReserveRequest;
use crate::dispatch::{self, Decision, Verdict};
use crate::error::Fault;
use crate::limits::DELAY_MAX;
use crate::message::{GroupName, TopicName};
use crate::partition::Partition;
use crate::peer::Ruling;
use crate::time::{Timestamp, millis, one_span, show_span, span};
use crate::topic::check_visibility_timeout;

/// What a consumer asks for.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({"max": 10, "wait": "20s"})))]
pub(crate) struct Reserve {
    /// 1 to 1,000 deliveries. Default 1.
    #[serde(default, deserialize_with = "present")]
    #[schema(minimum = 1, maximum = 1000)]
    max: Option<usize>,
    /// How long to wait for the first delivery, 0 to 60 s. Default 0.
    #[serde(default, with = "span::optional")]
    #[schema(value_type = Option<schema::Duration>)]
    wait: Option<Duration>,
    /// The same in milliseconds; not together with `wait`.
    #[serde(default, with = "millis::optional")]
    #[schema(value_type = Option<u64>, example = 20000)]
    wait_ms: Option<Duration>,
    /// 100 ms to 12 h. Default: the topic's.
    #[serde(default, with = "span::optional")]
    #[schema(value_type = Option<schema::Duration>)]
    visibility_timeout: Option<Duration>,
    /// The same in milliseconds; not together with `visibility_timeout`.
    #[serde(default, with = "millis::optional")]
    #[schema(value_type = Option<u64>, example = 30000)]
    visibility_timeout_ms: Option<Duration>,
    /// Only messages that were pushed at least so long ago, at most 3,650 d. Default 0.
    #[serde(default, with = "span::optional")]
    #[schema(value_type = Option<schema::Duration>)]
    min_age: Option<Duration>,
    /// The same in milliseconds; not together with `min_age`.
    #[serde(default, with = "millis::optional")]
    #[schema(value_type = Option<u64>, example = 10000)]
    min_age_ms: Option<Duration>,
}

impl Reserve {
    /// What is asked for, and how old messages have to be.
    fn request(self) -> Result<(ReserveRequest, Duration), Problem> {
        let request = ReserveRequest {
            max: self.max.unwrap_or(1),
            wait: one_span("wait", self.wait, self.wait_ms)?.unwrap_or_default(),
            visibility_timeout: one_span("visibility_timeout", self.visibility_timeout, self.visibility_timeout_ms)?,
        };
        let min_age = one_span("min_age", self.min_age, self.min_age_ms)?.unwrap_or_default();
        request.check(min_age)?;
        Ok((request, min_age))
    }
}

/// A message in the hands of a consumer.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!(
    {"receipt": "3.17.k3Zq9xT0aB1c.152", "id": "order-4711", "attempt": 1, "partition": 3,
    "due_at": "2026-01-02T03:04:05.678Z", "deadline": "2026-01-02T03:04:35.679Z", "lateness_ms": 1,
    "pushed_at": "2026-01-02T02:34:05.678Z", "meta": {}, "payload": "close order 4711"}
)))]
pub(crate) struct Delivery {
    /// Names this delivery when it is settled.
    #[schema(value_type = schema::Receipt)]
    receipt: String,
    /// Message id.
    #[schema(value_type = schema::MessageId)]
    id: String,
    #[serde(flatten)]
    contents: Contents,
    /// The how-manieth attempt this is, from 1 on.
    attempt: u32,
    /// Partition of the topic, from 0 on.
    #[schema(value_type = u16)]
    partition: Partition,
    /// What the producer asked for.
    #[schema(value_type = String, format = DateTime)]
    due_at: Timestamp,
    /// When it is nacked unless it was settled or extended.
    #[schema(value_type = String, format = DateTime)]
    deadline: Timestamp,
    /// From the time at which it was due (or due again after a retry) to the hand-over, in milliseconds.
    lateness_ms: u64,
}

impl From<dispatch::Delivery> for Delivery {
    fn from(delivery: dispatch::Delivery) -> Delivery {
        Delivery {
            receipt: delivery.receipt.to_string(),
            id: delivery.message.id.into(),
            contents: Contents::from(delivery.message.envelope),
            attempt: delivery.attempt,
            partition: delivery.partition,
            due_at: delivery.message.due_at,
            deadline: delivery.deadline,
            lateness_ms: u64::try_from(delivery.lateness.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// What a reserve took; empty when nothing came in time.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the answer, which is written item by item")]
#[schema(examples(json!(
    {"deliveries": [{"receipt": "3.17.k3Zq9xT0aB1c.152", "id": "order-4711", "attempt": 1, "partition": 3,
    "due_at": "2026-01-02T03:04:05.678Z", "deadline": "2026-01-02T03:04:35.679Z", "lateness_ms": 1,
    "pushed_at": "2026-01-02T02:34:05.678Z", "meta": {}, "payload": "close order 4711"}]}
)))]
pub(crate) struct Deliveries {
    /// Empty when nothing was due within `wait`.
    deliveries: Vec<Delivery>,
}

/// Deliveries that are done.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({"receipts": ["3.17.k3Zq9xT0aB1c.152"]})))]
pub(crate) struct Ack {
    /// 1 to 1,000 receipts.
    #[schema(value_type = Vec<schema::ReceiptOrObject>, min_items = 1, max_items = 1000)]
    receipts: Items<TextOr<Settling>>,
}

/// A receipt as an object.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settling {
    receipt: String,
}

impl From<String> for Settling {
    fn from(receipt: String) -> Settling {
        Settling { receipt }
    }
}

/// Deliveries that failed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!(
    {"receipts": [{"receipt": "3.17.k3Zq9xT0aB1c.152", "delay": "10s", "reason": "smtp: 451"}]}
)))]
pub(crate) struct Nack {
    /// 1 to 1,000 deliveries: receipts as texts, or objects that say more.
    #[schema(value_type = Vec<NackedOrReceipt>, min_items = 1, max_items = 1000)]
    receipts: Items<TextOr<Nacked>>,
    /// For those that say neither `delay` nor `bury`. Until the next attempt, at most 3,650 d. Default: the topic's backoff.
    #[serde(default, with = "span::optional")]
    #[schema(value_type = Option<schema::Duration>)]
    delay: Option<Duration>,
    /// The same in milliseconds; not together with `delay`.
    #[serde(default, with = "millis::optional")]
    #[schema(value_type = Option<u64>, example = 10000)]
    delay_ms: Option<Duration>,
    /// For those that say no reason. What went wrong, kept as the last error; cut at 1,024 bytes.
    #[serde(default, deserialize_with = "present")]
    reason: Option<String>,
    /// For those that say neither `delay` nor `bury`: they can never succeed. Not together with `delay`.
    #[serde(default)]
    bury: bool,
}

/// A delivery that failed, or its receipt alone.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes what TextOr reads")]
pub(crate) enum NackedOrReceipt {
    /// The receipt alone.
    #[schema(value_type = schema::Receipt)]
    Receipt(String),
    /// The receipt, and how the delivery failed.
    Nacked(Nacked),
}

/// One delivery that failed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nacked {
    /// Receipt of the delivery.
    #[schema(value_type = schema::Receipt)]
    receipt: String,
    /// Until the next attempt, at most 3,650 d. Default: the topic's backoff. Not together with `bury`.
    #[serde(default, with = "span::optional")]
    #[schema(value_type = Option<schema::Duration>)]
    delay: Option<Duration>,
    /// The same in milliseconds; not together with `delay`.
    #[serde(default, with = "millis::optional")]
    #[schema(value_type = Option<u64>, example = 10000)]
    delay_ms: Option<Duration>,
    /// What went wrong, kept as the last error; cut at 1,024 bytes.
    #[serde(default, deserialize_with = "present")]
    reason: Option<String>,
    /// It can never succeed: make it dead at once.
    #[serde(default, deserialize_with = "present")]
    bury: Option<bool>,
}

impl From<String> for Nacked {
    fn from(receipt: String) -> Nacked {
        Nacked { receipt, delay: None, delay_ms: None, reason: None, bury: None }
    }
}

/// Deliveries whose deadlines move.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({"receipts": ["3.17.k3Zq9xT0aB1c.152"], "visibility_timeout": "5m"})))]
pub(crate) struct Extend {
    /// 1 to 1,000 receipts.
    #[schema(value_type = Vec<schema::ReceiptOrObject>, min_items = 1, max_items = 1000)]
    receipts: Items<TextOr<Settling>>,
    /// From now on, 100 ms to 12 h.
    #[serde(default, with = "span::optional")]
    #[schema(value_type = Option<schema::Duration>)]
    visibility_timeout: Option<Duration>,
    /// The same in milliseconds; exactly one of the two.
    #[serde(default, with = "millis::optional")]
    #[schema(value_type = Option<u64>, example = 300000)]
    visibility_timeout_ms: Option<Duration>,
}

impl Extend {
    /// The receipts, and how long from now on their deadlines are.
    fn deadlines(self) -> Result<(Vec<String>, Duration), Problem> {
        let timeout = one_span("visibility_timeout", self.visibility_timeout, self.visibility_timeout_ms)?;
        let why = "is missing, and so is `visibility_timeout_ms`";
        let timeout = timeout.ok_or_else(|| Problem::wrong(Fault::Missing, "visibility_timeout", why))?;
        check_visibility_timeout(timeout)?;
        Ok((self.receipts.0.into_iter().map(|TextOr(of)| of.receipt).collect(), timeout))
    }
}

/// What became of a decision.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Settled {
    /// Receipt, as sent.
    #[schema(value_type = schema::Receipt)]
    receipt: String,
    /// `acked`, `nacked`, `buried`, `extended`, `stale`, `unknown_outcome`, `unknown`, `pending` or `unreachable`.
    #[schema(value_type = schema::VerdictStatus)]
    status: &'static str,
    /// When the delivery is nacked; only if extended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    deadline: Option<Timestamp>,
    /// The broker that owns the partition; only if stale or unreachable, and another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
}

/// What became of each decision, in the order asked.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({"failed": 0, "results": [{"receipt": "3.17.k3Zq9xT0aB1c.152", "status": "acked"}]})))]
pub(crate) struct Verdicts {
    /// Number of decisions that do not count: all but `acked`, `nacked`, `buried`, `extended` and `pending`.
    failed: usize,
    /// One for each receipt, in the order sent.
    results: Vec<Settled>,
}

impl Verdicts {
    fn new(receipts: Vec<String>, rulings: Vec<Ruling>) -> Reply<Verdicts> {
        let settled = |(receipt, Ruling { verdict, owner }): (String, Ruling)| {
            let deadline = if let Verdict::Extended(deadline) = verdict { Some(deadline) } else { None };
            let owner = owner.map(|owner| owner.as_str().to_owned());
            Settled { receipt, status: verdict.name(), deadline, owner }
        };
        let failed = rulings.iter().filter(|ruling| !ruling.verdict.stands()).count();
        Reply(Verdicts { failed, results: receipts.into_iter().zip(rulings).map(settled).collect() })
    }
}

/// Reserve messages that are due, or wait for the first one.
///
/// Each delivery has to be settled before its `deadline`; then it is delivered again.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/groups/{group}/reserve", operation_id = "reserveMessages",
    tag = "consuming", request_body = Option<Reserve>,
    params(GroupPath),
    responses((status = 200, description = "What was due", body = Deliveries), Problem, TopicProblem, BodyProblem, WaitProblem)
)]
pub(crate) async fn reserve(
    State(app): State<App>,
    GroupPath(topic, group): GroupPath,
    _: NoParams,
    token: ShownToken,
    asked: JsonOrDefault<Reserve>,
) -> Result<Response, Problem> {
    let (request, min_age) = asked.read(Reserve::request)?;
    // From here to the reply nothing waits: what was taken is not lost to a client that leaves in between.
    let consumer = Consumer::enter(app.clone(), token)?;
    let reserved = consumer.take(app.broker.reserve_aged(&topic, &group, request, min_age)).await?;
    let deliveries = reserved.map_err(Problem::of_waiting)?;
    let payloads = deliveries.iter().map(|delivery| delivery.message.envelope.payload.len());
    let held = app.answers.take(json_list::weigh(payloads));
    Ok(json_list::answer("deliveries", deliveries.into_iter().map(Delivery::from), None, held))
}

/// Acknowledge deliveries: their messages are done.
///
/// Answers 200 with a verdict for each receipt.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/groups/{group}/ack", operation_id = "ackMessages",
    tag = "consuming", request_body = Ack,
    params(GroupPath, ("Dwell-Forwarded" = Option<String>, Header, description = "Set by another broker: the member that the receipts are for", example = "host-4fT0ab12cd34")),
    responses((status = 200, description = "A verdict for each", body = Verdicts), Problem, TopicProblem, BodyProblem)
)]
pub(crate) async fn ack(
    State(app): State<App>,
    GroupPath(topic, group): GroupPath,
    _: NoParams,
    forwarded: Forwarded,
    ack: Json<Ack>,
) -> Result<Reply<Verdicts>, Problem> {
    let decisions = ack.read(Ok)?.receipts.0.into_iter().map(|TextOr(of)| (of.receipt, Decision::Ack)).collect();
    settle(&app, forwarded, &topic, &group, decisions).await
}

/// Report that deliveries failed.
///
/// Each is delivered again after the backoff of the topic or `delay`, or becomes a dead letter. Answers 200 with a verdict
/// for each receipt.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/groups/{group}/nack", operation_id = "nackMessages",
    tag = "consuming", request_body = Nack,
    params(GroupPath, ("Dwell-Forwarded" = Option<String>, Header, description = "Set by another broker: the member that the receipts are for", example = "host-4fT0ab12cd34")),
    responses((status = 200, description = "A verdict for each", body = Verdicts), Problem, TopicProblem, BodyProblem)
)]
pub(crate) async fn nack(
    State(app): State<App>,
    GroupPath(topic, group): GroupPath,
    _: NoParams,
    forwarded: Forwarded,
    nack: Json<Nack>,
) -> Result<Reply<Verdicts>, Problem> {
    settle(&app, forwarded, &topic, &group, nack.read(decisions_of)?).await
}

/// Extend the deadlines of deliveries.
///
/// Answers 200 with a verdict for each receipt.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/groups/{group}/extend", operation_id = "extendMessages",
    tag = "consuming", request_body = Extend,
    params(GroupPath, ("Dwell-Forwarded" = Option<String>, Header, description = "Set by another broker: the member that the receipts are for", example = "host-4fT0ab12cd34")),
    responses((status = 200, description = "A verdict for each", body = Verdicts), Problem, TopicProblem, BodyProblem)
)]
pub(crate) async fn extend(
    State(app): State<App>,
    GroupPath(topic, group): GroupPath,
    _: NoParams,
    forwarded: Forwarded,
    extend: Json<Extend>,
) -> Result<Reply<Verdicts>, Problem> {
    let (receipts, timeout) = extend.read(Extend::deadlines)?;
    let asked = receipts.clone();
    let rulings = match forwarded {
        Forwarded(true) => app.peers.extend_forwarded(&topic, &group, asked, timeout).await?,
        Forwarded(false) => app.peers.extend(&topic, &group, asked, timeout).await?,
    };
    Ok(Verdicts::new(receipts, rulings))
}

async fn settle(
    app: &App,
    forwarded: Forwarded,
    topic: &TopicName,
    group: &GroupName,
    decisions: Vec<(String, Decision)>,
) -> Result<Reply<Verdicts>, Problem> {
    let receipts = decisions.iter().map(|(receipt, _)| receipt.clone()).collect();
    let rulings = match forwarded {
        Forwarded(true) => app.peers.settle_forwarded(topic, group, decisions).await?,
        Forwarded(false) => app.peers.settle(topic, group, decisions).await?,
    };
    Ok(Verdicts::new(receipts, rulings))
}

fn decisions_of(nack: Nack) -> Result<Vec<(String, Decision)>, Problem> {
    let standard = HowItFailed::read(Some(nack.bury), nack.delay, nack.delay_ms, nack.reason)?;
    let decide = |(i, TextOr(nacked)): (usize, TextOr<Nacked>)| {
        let Nacked { receipt, delay, delay_ms, reason, bury } = nacked;
        let failed = HowItFailed::read(bury, delay, delay_ms, reason);
        (i, failed.map(|failed| (receipt, failed.or(&standard).decision())))
    };
    let decisions = nack.receipts.0.into_iter().enumerate().map(decide);
    collect(decisions, |error, i| error.under(&format!("/receipts/{i}")))
}

/// How a delivery failed, or those of a request that do not say it themselves.
struct HowItFailed {
    bury: Option<bool>,
    delay: Option<Duration>,
    reason: Option<String>,
}

impl HowItFailed {
    fn read(
        bury: Option<bool>,
        delay: Option<Duration>,
        delay_ms: Option<Duration>,
        reason: Option<String>,
    ) -> Result<HowItFailed, Problem> {
        match one_span("delay", delay, delay_ms)? {
            Some(_) if bury == Some(true) => {
                Err(Problem::wrong(Fault::Exclusive, "delay", "is given together with `bury`"))
            }
            Some(delay) if delay > DELAY_MAX => {
                let why = format!("{} is more than {}", show_span(delay), show_span(DELAY_MAX));
                Err(Problem::wrong(Fault::Range, "delay", why))
            }
            delay => Ok(HowItFailed { bury, delay, reason }),
        }
    }

    /// What is not said here is as in the standard.
    fn or(self, standard: &HowItFailed) -> HowItFailed {
        let says_how = self.bury.is_some() || self.delay.is_some();
        let (bury, delay) = if says_how { (self.bury, self.delay) } else { (standard.bury, standard.delay) };
        HowItFailed { bury, delay, reason: self.reason.or_else(|| standard.reason.clone()) }
    }

    fn decision(self) -> Decision {
        let HowItFailed { bury, delay, reason } = self;
        if bury == Some(true) { Decision::Bury { reason } } else { Decision::Nack { delay, reason } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::strict::parse;

    #[test]
    fn nack_takes_receipts_as_texts_and_defaults_for_all() -> Result<(), Problem> {
        let nack = r#"{"receipts": ["a", {"receipt": "b", "delay": "1s"}, {"receipt": "c", "bury": false, "reason": "y"}],
            "bury": true, "reason": "x"}"#;
        let delay = Some(Duration::from_secs(1));
        let expected = [
            ("a".to_owned(), Decision::Bury { reason: Some("x".into()) }),
            ("b".to_owned(), Decision::Nack { delay, reason: Some("x".into()) }),
            ("c".to_owned(), Decision::Nack { delay: None, reason: Some("y".into()) }),
        ];
        assert_eq!(parse(nack.as_bytes(), decisions_of)?, expected);
        let Ack { receipts } = parse(br#"{"receipts": ["a", {"receipt": "b"}]}"#, Ok)?;
        let receipts: Vec<_> = receipts.0.into_iter().map(|TextOr(of)| of.receipt).collect();
        assert_eq!(receipts, ["a", "b"]);
        Ok(())
    }

    #[test]
    fn a_nack_says_what_it_means() -> Result<(), Problem> {
        let nack = r#"{"receipts": [{"receipt": "a"}, {"receipt": "b", "delay_ms": 5, "reason": "x"}, {"receipt": "c", "bury": true}]}"#;
        let expected = [
            ("a".to_owned(), Decision::Nack { delay: None, reason: None }),
            ("b".to_owned(), Decision::Nack { delay: Some(Duration::from_millis(5)), reason: Some("x".into()) }),
            ("c".to_owned(), Decision::Bury { reason: None }),
        ];
        assert_eq!(parse(nack.as_bytes(), decisions_of)?, expected);
        Ok(())
    }
}
