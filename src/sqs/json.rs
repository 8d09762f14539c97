//! The JSON protocol (`application/x-amz-json-1.0`), which newer clients speak.

use super::errors::{Failure, MALFORMED, Result};
use super::model::{Action, Answer, Request};

pub(crate) const CONTENT_TYPE: &str = "application/x-amz-json-1.0";

/// Errors: `SerializationException`. An empty body is an empty object.
pub(crate) fn decode(action: Action, body: &[u8]) -> Result<Request> {
    let body = if body.trim_ascii().is_empty() { b"{}" } else { body };
    let malformed = |error: serde_json::Error| Failure::new(MALFORMED, format!("The body cannot be read: {error}"));
    let mut request: Request = serde_json::from_slice(body).map_err(malformed)?;
    if action.is_single() {
        request.entries = vec![serde_json::from_slice(body).map_err(malformed)?];
    }
    Ok(request)
}

/// Of a successful action; nothing at all where there is nothing to say.
pub(crate) fn encode(answer: &Answer) -> Vec<u8> {
    if *answer == Answer::default() {
        return Vec::new();
    }
    serde_json::to_vec(answer).unwrap_or_default()
}

pub(crate) fn encode_failure(failure: &Failure) -> Vec<u8> {
    let shape = format!("com.amazonaws.sqs#{}", failure.class.shape);
    serde_json::json!({"__type": shape, "message": failure.message}).to_string().into_bytes()
}

/// The header with the code of the Query protocol: older programs compare it.
pub(crate) fn query_error(failure: &Failure) -> String {
    format!("{};{}", failure.class.code, failure.class.side())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::sqs::model::{Failed, ITEMS_MAX, Received, Sent};

    fn read(action: Action, body: &Value) -> Result<Request> {
        decode(action, body.to_string().as_bytes())
    }

    #[test]
    fn unknown_members_are_ignored_and_null_is_absent() -> Result<()> {
        let body = json!({
            "QueueUrl": "http://h/0/orders", "MessageBody": "x", "DelaySeconds": null, "MessageAttributes": null,
            "New": {"a": [1, 2]},
        });
        let request = read(Action::SendMessage, &body)?;
        assert_eq!(request.queue_url.as_deref(), Some("http://h/0/orders"));
        assert_eq!(request.entries.len(), 1);
        assert_eq!((request.entries[0].message_body.as_deref(), request.entries[0].delay_seconds), (Some("x"), None));
        assert_eq!(decode(Action::ListQueues, b" ")?, Request::default());
        let created = read(Action::CreateQueue, &json!({"QueueName": "a", "tags": {"k": "v"}}))?;
        assert_eq!(created.tags["k"], "v");
        Ok(())
    }

    #[test]
    fn invalid_requests_are_refused_with_bounded_memory() {
        let refused =
            |text: &str| decode(Action::SendMessageBatch, text.as_bytes()).is_err_and(|it| it.class == MALFORMED);
        let many = format!("{{\"Entries\":[{}{{}}]}}", "{},".repeat(ITEMS_MAX));
        let deep = format!("{{\"MaxResults\":{}", "[".repeat(1_000_000));
        for text in
            ["[", "\u{1}", "\"x\"", "{\"QueueUrl\":7}", "{\"MaxResults\":[1]}", "{\"MaxResults\":1.5}", &many, &deep]
        {
            assert!(refused(text), "{}", &text[..text.len().min(40)]);
        }
        let nested = read(Action::SendMessageBatch, &json!({"Entries": [{"Entries": [{}], "Id": "a"}]}));
        assert_eq!(nested.map(|request| request.entries.len()), Ok(1));
    }

    #[test]
    fn empty_lists_are_left_out_of_an_answer() {
        let text = |answer: &Answer| String::from_utf8(encode(answer)).unwrap_or_default();
        assert_eq!(text(&Answer::default()), "");
        let sent = Sent { message_id: Some("m".to_owned()), ..Sent::default() };
        assert_eq!(text(&Answer { sent: Some(sent), ..Answer::default() }), r#"{"MessageId":"m"}"#);
        let failed = Failed::new("a".to_owned(), &Failure::no_queue());
        let batch = Answer { successful: Some(vec![]), failed: vec![failed], ..Answer::default() };
        let code = "AWS.SimpleQueueService.NonExistentQueue";
        assert_eq!(
            serde_json::from_slice::<Value>(&encode(&batch)).ok(),
            Some(json!({
                "Successful": [],
                "Failed": [{
                    "Id": "a", "SenderFault": true, "Code": code, "Message": "The specified queue does not exist.",
                }],
            }))
        );
        let received = Answer { messages: vec![Received::default()], ..Answer::default() };
        let members = r#"{"Messages":[{"MessageId":"","ReceiptHandle":"","MD5OfBody":"","Body":""}]}"#;
        assert_eq!(text(&received), members);
    }

    #[test]
    fn error_has_a_json_body_and_a_code_header() {
        let failure = Failure::no_queue();
        let body: Value = serde_json::from_slice(&encode_failure(&failure)).unwrap_or_default();
        let shape = "com.amazonaws.sqs#QueueDoesNotExist";
        assert_eq!(body, json!({"__type": shape, "message": "The specified queue does not exist."}));
        assert_eq!(query_error(&failure), "AWS.SimpleQueueService.NonExistentQueue;Sender");
    }
}
