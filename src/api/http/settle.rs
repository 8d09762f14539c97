//! Settling: ack, nack, release, extend.

use std::time::Duration;

use dwell_client::wire::items::TextOr;
use dwell_client::wire::settle::{Ack, Extend, Nack, Nacked, Reason, Receipt, Release, Settled, Verdicts};

use super::Admitted;
use super::document::{BodyProblem, SettlementProblems};
use super::path_params::{GroupPath, NoParams};
use super::problem::{Class, Problem, collect};
use super::reply::Reply;
use super::strict_json::Json;
use crate::delivery::remote::Ruling;
use crate::delivery::{Decision, UnknownReason, Verdict};
use crate::model::error::{Fault, Kind};
use crate::model::last_error::LastError;
use crate::model::limits::DELAY_MAX;
use crate::model::message::{GroupName, TopicName};
use crate::model::time::{one_span, show_span};
use crate::model::topic::check_visibility_timeout;

fn deadlines(extend: Extend) -> Result<(Vec<String>, Duration, bool), Problem> {
    let timeout = one_span("visibility_timeout", extend.visibility_timeout, extend.visibility_timeout_ms)?;
    let why = "is missing, and so is `visibility_timeout_ms`";
    let timeout = timeout.ok_or_else(|| Problem::wrong(Fault::Missing, "visibility_timeout", why))?;
    check_visibility_timeout(timeout)?;
    Ok((extend.receipts.0.into_iter().map(String::from).collect(), timeout, extend.late))
}

fn verdicts(receipts: Vec<String>, rulings: &[Ruling]) -> Verdicts {
    let settled = |(receipt, ruling): (String, &Ruling)| Settled {
        receipt,
        status: ruling.verdict.name().into(),
        reason: ruling.verdict.reason().map(Into::into),
        deadline: if let Verdict::Extended(deadline) = ruling.verdict { Some(deadline) } else { None },
        owner: ruling.owner.as_ref().map(|owner| owner.as_str().to_owned()),
    };
    let failed = rulings.iter().filter(|ruling| !ruling.verdict.is_applied()).count();
    Verdicts { failed, results: receipts.into_iter().zip(rulings).map(settled).collect() }
}

/// The verdict on a single receipt is an error if its delivery is not settled.
fn answer(receipts: Vec<String>, rulings: &[Ruling]) -> Result<Reply<Verdicts>, Problem> {
    let verdicts = verdicts(receipts, rulings);
    match rulings {
        [Ruling { verdict, .. }] if !verdict.is_applied() => Err(refused(*verdict, &verdicts)),
        _ => Ok(Reply(verdicts)),
    }
}

fn refused(verdict: Verdict, verdicts: &Verdicts) -> Problem {
    let class = match verdict {
        Verdict::Unknown(UnknownReason::Invalid) => Class::InvalidReceipt,
        Verdict::Unknown(UnknownReason::NotIssued) => Class::UnknownReceipt,
        Verdict::UnknownOutcome | Verdict::Unreachable => Class::Verb(Kind::OutcomeUnknown),
        _ => Class::NotSettled,
    };
    let problem = Problem::new(class, verdict.detail());
    match verdict.reason() {
        Some(reason) => problem.with_verdict(reason, verdicts),
        None => problem,
    }
}

/// Acknowledge deliveries: their messages are done.
///
/// Answers 200 with a verdict for each receipt; a single receipt that is not settled is answered with a problem.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/groups/{group}/ack", operation_id = "ackMessages",
    tag = "consuming", request_body = Ack,
    params(GroupPath),
    responses((status = 200, description = "A verdict for each", body = Verdicts), Problem, SettlementProblems, BodyProblem)
)]
pub(crate) async fn ack(
    app: Admitted,
    GroupPath(topic, group): GroupPath,
    _: NoParams,
    ack: Json<Ack>,
) -> Result<Reply<Verdicts>, Problem> {
    let Ack { receipts, late } = ack.read(Ok)?;
    let decisions = receipts.0.into_iter().map(|Receipt(receipt)| (receipt, Decision::Ack)).collect();
    settle(&app, &topic, &group, decisions, late).await
}

/// Report that deliveries failed.
///
/// Each is delivered again after the backoff of the topic or `delay`, or becomes a dead letter. Answers 200 with a verdict
/// for each receipt; a single receipt that is not settled is answered with a problem.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/groups/{group}/nack", operation_id = "nackMessages",
    tag = "consuming", request_body = Nack,
    params(GroupPath),
    responses((status = 200, description = "A verdict for each", body = Verdicts), Problem, SettlementProblems, BodyProblem)
)]
pub(crate) async fn nack(
    app: Admitted,
    GroupPath(topic, group): GroupPath,
    _: NoParams,
    nack: Json<Nack>,
) -> Result<Reply<Verdicts>, Problem> {
    let (decisions, late) = nack.read(|nack| {
        let late = nack.late;
        Ok((decisions_of(nack)?, late))
    })?;
    settle(&app, &topic, &group, decisions, late).await
}

/// Give deliveries back unhandled.
///
/// Their messages are due again at once, and the deliveries count as no attempt. Answers 200 with a verdict for each receipt;
/// a single receipt that is not settled is answered with a problem.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/groups/{group}/release", operation_id = "releaseMessages",
    tag = "consuming", request_body = Release,
    params(GroupPath),
    responses((status = 200, description = "A verdict for each", body = Verdicts), Problem, SettlementProblems, BodyProblem)
)]
pub(crate) async fn release(
    app: Admitted,
    GroupPath(topic, group): GroupPath,
    _: NoParams,
    release: Json<Release>,
) -> Result<Reply<Verdicts>, Problem> {
    let Release { receipts } = release.read(Ok)?;
    let decisions = receipts.0.into_iter().map(|Receipt(receipt)| (receipt, Decision::Release)).collect();
    settle(&app, &topic, &group, decisions, false).await
}

/// Extend the deadlines of deliveries.
///
/// Answers 200 with a verdict for each receipt; a single receipt that is not settled is answered with a problem.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/groups/{group}/extend", operation_id = "extendMessages",
    tag = "consuming", request_body = Extend,
    params(GroupPath),
    responses((status = 200, description = "A verdict for each", body = Verdicts), Problem, SettlementProblems, BodyProblem)
)]
pub(crate) async fn extend(
    app: Admitted,
    GroupPath(topic, group): GroupPath,
    _: NoParams,
    extend: Json<Extend>,
) -> Result<Reply<Verdicts>, Problem> {
    let (receipts, timeout, late) = extend.read(deadlines)?;
    let asked = receipts.clone();
    let rulings = app.broker().extend_anywhere(&topic, &group, asked, timeout, late).await?;
    answer(receipts, &rulings)
}

async fn settle(
    app: &Admitted,
    topic: &TopicName,
    group: &GroupName,
    decisions: Vec<(String, Decision)>,
    late: bool,
) -> Result<Reply<Verdicts>, Problem> {
    let receipts = decisions.iter().map(|(receipt, _)| receipt.clone()).collect();
    if decisions.iter().any(|(_, decision)| matches!(decision, Decision::NackKey { .. })) {
        app.broker().check_pauses_keys(topic, group).await?;
    }
    let rulings = app.broker().settle_anywhere(topic, group, decisions, late).await?;
    answer(receipts, &rulings)
}

fn decisions_of(nack: Nack) -> Result<Vec<(String, Decision)>, Problem> {
    let standard = (Some(nack.bury), Some(nack.pause_key));
    let standard = NackDetails::read(standard, nack.delay, nack.delay_ms, nack.reason)?;
    let decide = |(i, TextOr(nacked)): (usize, TextOr<Nacked>)| {
        let Nacked { receipt, delay, delay_ms, reason, bury, pause_key } = nacked;
        let failed = NackDetails::read((bury, pause_key), delay, delay_ms, reason);
        (i, failed.map(|failed| (receipt, failed.or(&standard).decision())))
    };
    let decisions = nack.receipts.0.into_iter().enumerate().map(decide);
    collect(decisions, |error, i| error.under(&format!("/receipts/{i}")))
}

struct NackDetails {
    bury: Option<bool>,
    pause_key: Option<bool>,
    delay: Option<Duration>,
    reason: Option<LastError>,
}

impl NackDetails {
    fn read(
        (bury, pause_key): (Option<bool>, Option<bool>),
        delay: Option<Duration>,
        delay_ms: Option<Duration>,
        reason: Option<TextOr<Reason>>,
    ) -> Result<NackDetails, Problem> {
        let reason = reason.map(|TextOr(Reason { class, message, stack })| LastError::new(class, message, stack));
        match one_span("delay", delay, delay_ms)? {
            _ if bury == Some(true) && pause_key == Some(true) => {
                Err(Problem::wrong(Fault::Exclusive, "pause_key", "is given together with `bury`"))
            }
            Some(_) if bury == Some(true) => {
                Err(Problem::wrong(Fault::Exclusive, "delay", "is given together with `bury`"))
            }
            Some(delay) if delay > DELAY_MAX => {
                let why = format!("{} is more than {}", show_span(delay), show_span(DELAY_MAX));
                Err(Problem::wrong(Fault::Range, "delay", why))
            }
            delay => Ok(NackDetails { bury, pause_key, delay, reason }),
        }
    }

    fn or(self, standard: &NackDetails) -> NackDetails {
        let says_how = self.bury.is_some() || self.delay.is_some();
        let (bury, delay) = if says_how { (self.bury, self.delay) } else { (standard.bury, standard.delay) };
        let pause_key = if says_how { self.pause_key } else { self.pause_key.or(standard.pause_key) };
        NackDetails { bury, pause_key, delay, reason: self.reason.or_else(|| standard.reason.clone()) }
    }

    fn decision(self) -> Decision {
        match self {
            NackDetails { bury: Some(true), reason, .. } => Decision::Bury { reason },
            NackDetails { pause_key: Some(true), delay, reason, .. } => Decision::NackKey { delay, reason },
            NackDetails { delay, reason, .. } => Decision::Nack { delay, reason },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::http::strict_json::parse;

    #[test]
    fn page_lists_every_reason_with_its_status() {
        let page = include_str!("../../../docs/reference/consuming.md");
        for verdict in Verdict::REFUSALS {
            let reason = verdict.reason().unwrap_or_default();
            let ruling = Ruling { verdict, owner: None };
            let problem = answer(vec!["a".to_owned()], &[ruling]).err();
            let body = problem.and_then(|problem| serde_json::to_value(problem.body()).ok()).unwrap_or_default();
            assert_eq!((&body["reason"], &body["failed"]), (&reason.into(), &1.into()), "{body}");
            assert_eq!(body["results"][0]["status"], verdict.name(), "{body}");
            let kind = body["type"].as_str().unwrap_or_default().replace("urn:dwell:error:", "");
            let row = (format!("| `{}`, `{reason}` |", verdict.name()), format!("| {} `{kind}` |", body["status"]));
            assert!(page.lines().any(|line| line.starts_with(&row.0) && line.ends_with(&row.1)), "{row:?}");
        }
    }

    #[test]
    fn batch_response_has_one_verdict_per_receipt() {
        let refused = || Ruling { verdict: Verdict::Unreachable, owner: None };
        let two = vec!["a".to_owned(), "b".to_owned()];
        let batch = answer(two, &[refused(), refused()]).ok();
        assert_eq!(batch.map(|Reply(verdicts)| verdicts.failed), Some(2));
        let pending = Ruling { verdict: Verdict::Pending, owner: None };
        assert!(answer(vec!["a".to_owned()], &[pending]).is_ok());
    }

    #[test]
    fn nack_accepts_plain_receipts_and_shared_defaults() -> Result<(), Problem> {
        let nack = r#"{"receipts": ["a", {"receipt": "b", "delay": "1s"}, {"receipt": "c", "bury": false, "reason": "y"}],
            "bury": true, "reason": "x"}"#;
        let delay = Some(Duration::from_secs(1));
        let expected = [
            ("a".to_owned(), Decision::Bury { reason: Some("x".into()) }),
            ("b".to_owned(), Decision::Nack { delay, reason: Some("x".into()) }),
            ("c".to_owned(), Decision::Nack { delay: None, reason: Some("y".into()) }),
        ];
        assert_eq!(parse(nack.as_bytes(), decisions_of)?, expected);
        let Ack { receipts, late } = parse(br#"{"receipts": ["a", {"receipt": "b"}], "late": true}"#, Ok)?;
        assert!(late);
        let receipts: Vec<_> = receipts.0.into_iter().map(String::from).collect();
        assert_eq!(receipts, ["a", "b"]);
        Ok(())
    }

    #[test]
    fn nack_delay_reason_and_bury_are_parsed() -> Result<(), Problem> {
        let nack = r#"{"receipts": [{"receipt": "a"}, {"receipt": "b", "delay_ms": 5, "reason": "x"}, {"receipt": "c", "bury": true},
            {"receipt": "d", "reason": {"class": "KeyError", "message": "y", "stack": "at z"}}]}"#;
        let error = LastError::new(Some("KeyError".into()), "y".into(), Some("at z".into()));
        let expected = [
            ("a".to_owned(), Decision::Nack { delay: None, reason: None }),
            ("b".to_owned(), Decision::Nack { delay: Some(Duration::from_millis(5)), reason: Some("x".into()) }),
            ("c".to_owned(), Decision::Bury { reason: None }),
            ("d".to_owned(), Decision::Nack { delay: None, reason: Some(error) }),
        ];
        assert_eq!(parse(nack.as_bytes(), decisions_of)?, expected);
        Ok(())
    }
}
