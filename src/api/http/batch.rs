//! Pushing a batch: all messages are checked before any is stored, then each is answered for itself.

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use dwell_client::wire::items::{Object, TooMany};
use dwell_client::wire::push::{Batch, BatchMessage, BatchResults, PushResult};

use super::document::{BodyProblem, TopicProblem};
use super::field_errors::FieldError;
use super::message_json::trace_of_headers;
use super::path_params::{NoParams, TopicPath};
use super::problem::{Class, Problem, collect};
use super::push::{check_headers_of_batch, message, result};
use super::reply::Reply;
use super::strict_json::{media_type, parse};
use super::{Admitted, body};
use crate::model::error::Fault;
use crate::model::limits::{BATCH_BODY_BYTES_MAX, BATCH_MESSAGES_MAX};
use crate::model::message::{MessageId, NewMessage};
use crate::model::time::Timestamp;
use crate::store::Pushed;

/// Push 1 to 1,000 messages; also as NDJSON.
///
/// If one message is wrong, the whole batch is refused. Otherwise each message has its own result.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/messages/batch", operation_id = "pushMessages",
    tag = "producing",
    params(
        TopicPath,
        ("traceparent" = Option<String>, Header, description = "W3C Trace Context for messages without one; ignored if invalid", example = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        ("tracestate" = Option<String>, Header, description = "What tracing systems add to `traceparent`", example = "congo=t61rcWkgMzE")
    ),
    request_body(content((Batch = "application/json"), (BatchMessage = "application/x-ndjson"))),
    responses(
        (status = 201, description = "All are stored", body = BatchResults),
        (status = 202, description = "All are accepted, at least one on the local disk", body = BatchResults),
        (status = 200, description = "All are accepted; at least one is a duplicate, or replaced or debounced a message", body = BatchResults),
        (status = 207, description = "At least one is an error", body = BatchResults),
        Problem, TopicProblem, BodyProblem,
    )
)]
pub(crate) async fn push_batch(
    app: Admitted,
    TopicPath(topic): TopicPath,
    _: NoParams,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    check_headers_of_batch(&headers)?;
    let lines = match media_type(&headers).as_deref() {
        None | Some("application/json") => false,
        Some("application/x-ndjson") => true,
        Some(other) => {
            let detail = format!("the content type is {other:?}, a batch is application/json or application/x-ndjson");
            return Err(Problem::new(Class::UnsupportedMediaType, detail));
        }
    };
    let bytes = body::read_for(&app, (app.pass(), &headers), body, BATCH_BODY_BYTES_MAX, "body").await?;
    let now = app.clock.now();
    let mut messages = if lines { of_lines(&bytes, now)? } else { of_object(&bytes, now)? };
    drop(bytes);
    if let Some(trace) = trace_of_headers(&headers) {
        messages.iter_mut().for_each(|message| {
            message.trace.get_or_insert_with(|| trace.clone());
        });
    }
    let offers = app.broker().offers(messages);
    let ids: Vec<_> = offers.iter().map(|offer| offer.id().clone()).collect();
    let outcomes = app.broker().push_offers(&topic, offers).await?;
    let topic_created = outcomes.iter().flatten().any(|outcome| outcome.topic_created);
    let results = ids.into_iter().zip(outcomes).map(|(id, outcome)| match outcome {
        Ok(outcome) => Ok(result(outcome)),
        Err(error) => Err((id, error)),
    });
    answer(results.collect(), topic_created)
}

fn answer(
    outcomes: Vec<Result<PushResult, (MessageId, crate::model::error::Error)>>,
    topic_created: bool,
) -> Result<Response, Problem> {
    let is = |status: &str| outcomes.iter().flatten().any(|result| result.status == status);
    let was_there = [Pushed::Duplicate, Pushed::Replaced, Pushed::Debounced].iter().any(|pushed| is(pushed.name()));
    let accepted = match (is(Pushed::Buffered.name()), was_there) {
        (true, _) => StatusCode::ACCEPTED,
        (false, true) => StatusCode::OK,
        (false, false) => StatusCode::CREATED,
    };
    let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    let first = outcomes.iter().find_map(|outcome| outcome.as_ref().err()).map(|(_, error)| error.clone());
    let all = outcomes.len();
    let results = outcomes.into_iter().map(|outcome| {
        outcome.unwrap_or_else(|(id, error)| {
            let error = Some(Box::new(Problem::from(error).body()));
            PushResult {
                id: id.into(),
                partition: None,
                due_at: None,
                duplicate_of: None,
                differs: false,
                status: "error".into(),
                topic_created: false,
                replicas: None,
                error,
            }
        })
    });
    let body = BatchResults { results: results.collect(), topic_created };
    match first {
        Some(error) if failed == all => {
            let results = serde_json::to_value(body.results).unwrap_or_default();
            Err(Problem::from(error).with_results(results))
        }
        Some(_) => Ok((StatusCode::MULTI_STATUS, Reply(body)).into_response()),
        None => Ok((accepted, Reply(body)).into_response()),
    }
}

fn of_object(bytes: &[u8], now: Timestamp) -> Result<Vec<NewMessage>, Problem> {
    parse(bytes, |batch: Batch| {
        let messages = batch.messages.0.into_iter().map(|Object(item)| message(item, now));
        collect(messages.enumerate(), |error, i| error.under(&format!("/messages/{i}")))
    })
}

fn of_lines(bytes: &[u8], now: Timestamp) -> Result<Vec<NewMessage>, Problem> {
    let lines = || (1..).zip(bytes.split(|byte| *byte == b'\n')).filter(|(_, line)| !line.trim_ascii().is_empty());
    if lines().nth(BATCH_MESSAGES_MAX).is_some() {
        return Err(Problem::wrong(Fault::Range, "body", TooMany));
    }
    let read = |(number, line): (usize, &[u8])| {
        let message = parse(line, |item: BatchMessage| self::message(item, now));
        (number, message.map_err(|problem| problem.in_line(number)))
    };
    let messages = collect(lines().map(read), FieldError::in_line)?;
    if messages.is_empty() {
        return Err(Problem::wrong(Fault::Range, "body", "has no messages"));
    }
    Ok(messages)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::error::{Error, Kind};
    use crate::model::message::Due;
    use crate::model::message::Key;

    const NOW: Timestamp = Timestamp::from_ms(1_767_323_045_000);

    fn refused(read: Result<Vec<NewMessage>, Problem>) -> (u16, String) {
        match read {
            Ok(messages) => (200, format!("{} messages", messages.len())),
            Err(problem) => (problem.status().as_u16(), problem.detail().to_owned()),
        }
    }

    #[test]
    fn json_object_and_ndjson_are_equivalent() -> Result<(), Problem> {
        let object =
            br#"{"messages": [{"payload": "a", "key": "k", "delay": "5s"}, {"payload_base64": "/wA=", "due_at": 1767323045678}]}"#;
        let lines = b"{\"payload\": \"a\", \"key\": \"k\", \"delay\": \"5s\"}\r\n\n{\"payload_base64\": \"/wA=\", \"due_at\": 1767323045678}";
        for messages in [of_object(object, NOW)?, of_lines(lines, NOW)?] {
            assert_eq!(messages.len(), 2);
            assert_eq!(messages[0].due, Due::In(Duration::from_secs(5)));
            assert_eq!(messages[0].key.as_ref().map(Key::as_str), Some("k"));
            assert_eq!(messages[1].due, Due::At(Timestamp::from_ms(1_767_323_045_678)));
            assert_eq!(messages[1].payload, b"\xff\x00"[..]);
        }
        Ok(())
    }

    #[test]
    fn invalid_message_is_named_by_its_index() {
        let cases = [
            (r#"{"payload": "a", "dealy": "5s"}"#, "dealy`: unknown field `dealy`; did you mean `delay`?"),
            (r#"{"payload": "a", "delay": "soon"}"#, "delay`: \"soon\" is not a duration"),
            (r#"{"payload": "a", "delay": "3651d"}"#, "delay`: a message is due at most 3650 days ahead"),
            (r#"{"payload": "a", "delay": "1s", "due_at": 1767323045678}"#, "delay`: is given together with `due_at`"),
            (r#"{"payload": "a", "key": "\u0000"}"#, "key`: a key has no control characters"),
            (r#"{"payload": "a", "id": "a b"}"#, "id`: an id has only visible ASCII"),
            (r#"{"payload": "a", "ttl": "0s"}"#, "ttl`: a message with a ttl of 0s"),
            (r#"{"payload": "a", "max_attempts": 1001}"#, "max_attempts`: 1001 is not in 0 to 1000"),
            (r#"{"payload": "a", "meta": {"A": "b"}}"#, "meta`: a name has only lower-case"),
            (r#"{"payload": "a", "dedup_key": "k"}"#, "dedup_for`: is missing, and `dedup_key` needs it"),
            (r#"{"payload": "a", "dedup_for": "5m"}"#, "dedup_for`: is given without `dedup_key`"),
            (r#"{"payload": "a", "dedup_key": "k", "dedup_for_ms": 999}"#, "dedup_for_ms`: is not in 1 s to 7 days"),
            (r#"{"payload": "a", "spread_ms": 0}"#, "spread_ms`: is not in 1 ms to 3650 days"),
            (
                r#"{"payload": "a", "delay": "3650d", "spread": "1s"}"#,
                "spread`: a message is due at most 3650 days ahead",
            ),
            (r#"{"payload": "a", "dedup_key": "\n", "dedup_for": "5m"}"#, "dedup_key`: a dedup key has no control"),
            (
                r#"{"payload": "a", "dedup_key": "k", "dedup_for": "5m", "conflict": "replace"}"#,
                "dedup_key`: is given together with conflict=replace",
            ),
            (r#"{"payload": "a", "attachment": "/wA"}"#, "attachment`: is not standard base64 with padding"),
            (r#"{"payload": "a", "traceparent": "00-0"}"#, "traceparent`: is not a version, a trace id"),
            (r#"{"payload": "a", "tracestate": "a=b"}"#, "tracestate`: is given without `traceparent`"),
            (r#"{"payload": "a", "payload_base64": "YQ=="}"#, "payload`: is given in more than one form"),
            (r#"{"payload": "a", "payload_json": 1}"#, "payload`: is given in more than one form"),
            (r#"{"payload": {"order": 1}}"#, "payload`: a string is expected; for JSON use `payload_json`"),
            (r#"{"payload_json": null, "payload": ""}"#, "payload`: is given in more than one form"),
            ("{}", "payload`: is missing"),
        ];
        for (item, said) in cases {
            let (status, detail) =
                refused(of_object(format!(r#"{{"messages": [{{"payload": ""}}, {item}]}}"#).as_bytes(), NOW));
            assert_eq!(status, 422, "{item}");
            assert!(detail.starts_with(&format!("`messages[1].{said}")), "{item}: {detail}");
            let (status, detail) = refused(of_lines(format!("{{\"payload\": \"\"}}\n\n{item}").as_bytes(), NOW));
            assert_eq!(status, 422, "{item}");
            assert!(detail.starts_with(&format!("line 3: `{said}")), "{item}: {detail}");
        }
    }

    #[test]
    fn batch_limits_are_enforced() {
        let lines = |n: usize| "{\"payload\":\"\"}\n".repeat(n).into_bytes();
        assert_eq!(refused(of_lines(&lines(BATCH_MESSAGES_MAX), NOW)), (200, "1000 messages".to_owned()));
        assert_eq!(refused(of_lines(&lines(10_001), NOW)).0, 422);
        assert_eq!(refused(of_lines(b"\n \n", NOW)), (422, "`body`: has no messages".to_owned()));
        let big = format!(r#"{{"payload": "{}"}}"#, "x".repeat(crate::model::limits::PAYLOAD_BYTES_MAX + 1));
        let (status, detail) = refused(of_lines(big.as_bytes(), NOW));
        assert_eq!(status, 413);
        assert!(detail.starts_with("line 1: `payload`: 1048577 bytes"), "{detail}");
        assert_eq!(refused(of_lines(b"{\"payload\": \"", NOW)).0, 400);
    }

    #[test]
    fn batch_status_combines_all_results() -> crate::model::error::Result<()> {
        let id = MessageId::new("a")?;
        let made = |status: &'static str| {
            Ok(PushResult {
                id: id.to_string(),
                partition: Some(1),
                due_at: Some(NOW),
                duplicate_of: None,
                differs: false,
                status: status.into(),
                topic_created: false,
                replicas: None,
                error: None,
            })
        };
        let failed = || Err((id.clone(), Error::unavailable("the store is unavailable")));
        let status = |outcomes| {
            answer(outcomes, false).map_or_else(|problem| problem.status(), |answer| answer.status()).as_u16()
        };
        assert_eq!(status(vec![made("stored"), made("stored")]), 201);
        assert_eq!(status(vec![made("stored"), made("journaled")]), 201);
        assert_eq!(status(vec![made("stored"), made("duplicate")]), 200);
        assert_eq!(status(vec![made("stored"), made("duplicate"), made("buffered")]), 202);
        assert_eq!(status(vec![made("stored"), failed()]), 207);
        assert_eq!(status(vec![failed(), failed()]), 503);
        let problem =
            answer(vec![failed()], false).err().map(|problem| serde_json::to_value(problem.body()).unwrap_or_default());
        let problem = problem.unwrap_or_default();
        assert_eq!(problem["type"], format!("urn:dwell:error:{}", Kind::Unavailable.name()));
        assert_eq!(problem["results"][0]["id"], "a");
        assert_eq!(problem["results"][0]["error"]["status"], 503);
        Ok(())
    }
}
