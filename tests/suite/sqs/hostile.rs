//! What no SDK sends.

use serde_json::json;

use super::{Broker, Outcome, Store, text};

#[tokio::test]
async fn wrong_requests_are_refused_with_the_texts_of_aws() -> Outcome {
    let dwell = Broker::start(&Store::Embedded).await?;
    let url = dwell.queue("orders", json!({})).await?;
    let attribute = |data_type: &str, value: &str| json!({"a": {"DataType": data_type, "StringValue": value}});
    for (action, more, shape, part) in [
        (
            "SendMessage",
            json!({}),
            "MissingRequiredParameterException",
            "The request must contain the parameter MessageBody.",
        ),
        ("SendMessage", json!({"MessageBody": "a\u{b}"}), "InvalidMessageContents", "Invalid characters found."),
        ("SendMessage", json!({"MessageBody": "x", "DelaySeconds": "soon"}), "SerializationException", "soon"),
        (
            "SendMessage",
            json!({"MessageBody": "x", "MessageAttributes": attribute("String", "")}),
            "InvalidParameterValueException",
            "Message (user) attribute 'a' must contain a non-empty value of type 'String'.",
        ),
        (
            "SendMessage",
            json!({"MessageBody": "x", "MessageAttributes": attribute("Text", "v")}),
            "InvalidParameterValueException",
            "supported type prefixes",
        ),
        (
            "SendMessage",
            json!({"MessageBody": "x", "MessageAttributes": attribute("Number", "v")}),
            "InvalidParameterValueException",
            "to a number",
        ),
        (
            "SendMessage",
            json!({"MessageBody": "x", "MessageGroupId": "a b"}),
            "InvalidParameterValueException",
            "alphanumeric and punctuation",
        ),
        (
            "ReceiveMessage",
            json!({"MaxNumberOfMessages": 11}),
            "InvalidParameterValueException",
            "Value 11 for parameter MaxNumberOfMessages is invalid. Reason: Must be between 1 and 10, if provided.",
        ),
        (
            "ReceiveMessage",
            json!({"WaitTimeSeconds": -1}),
            "InvalidParameterValueException",
            "Value -1 for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= 20, if provided.",
        ),
        (
            "DeleteMessage",
            json!({"ReceiptHandle": "garbage"}),
            "ReceiptHandleIsInvalid",
            "The input receipt handle \"garbage\" is not a valid receipt handle.",
        ),
        ("DeleteMessage", json!({}), "MissingRequiredParameterException", "ReceiptHandle"),
        (
            "SendMessageBatch",
            json!({}),
            "EmptyBatchRequest",
            "There should be at least one SendMessageBatchRequestEntry in the request.",
        ),
        (
            "SendMessage",
            json!({"MessageBody": "x", "MessageAttributes": attribute("Number", "1e400")}),
            "InvalidParameterValueException",
            "to a number",
        ),
        (
            "SendMessage",
            json!({"MessageBody": "x", "MessageAttributes": attribute("Number", "inf")}),
            "InvalidParameterValueException",
            "to a number",
        ),
        (
            "SendMessage",
            json!({"MessageBody": "x", "MessageAttributes": {"öther": {"DataType": "String", "StringValue": "v"}}}),
            "InvalidParameterValueException",
            "Invalid non-alphanumeric character",
        ),
        ("TagQueue", json!({}), "MissingRequiredParameterException", "The request must contain the parameter Tags."),
        ("TagQueue", json!({"Tags": {}}), "MissingRequiredParameterException", "Tags"),
        ("UntagQueue", json!({"TagKeys": []}), "MissingRequiredParameterException", "TagKeys"),
        ("SetQueueAttributes", json!({}), "MissingRequiredParameterException", "Attributes"),
        ("AddPermission", json!({"Label": "l"}), "MissingRequiredParameterException", "AWSAccountIds"),
        ("ListQueues", json!({"NextToken": "%"}), "InvalidParameterValueException", "token"),
        // A receive that waits keeps them.
        (
            "ReceiveMessage",
            json!({"AttributeNames": ["All"], "MessageAttributeNames": vec!["x".repeat(1_000); 17], "WaitTimeSeconds": 20}),
            "InvalidParameterValueException",
            "names of attributes",
        ),
        ("Unknown", json!({}), "UnknownOperationException", "Unknown"),
    ] {
        let mut body = json!({"QueueUrl": url});
        body.as_object_mut().into_iter().for_each(|body| body.extend(more.as_object().cloned().unwrap_or_default()));
        let refused = dwell.refused(action, body).await?;
        assert!(refused.0 == shape && refused.2.contains(part), "{action} {more}: {refused:?}");
    }
    for address in ["http://h/0/a.b", "ö"] {
        assert_eq!(dwell.refused("PurgeQueue", json!({"QueueUrl": address})).await?.0, "InvalidAddress");
    }
    assert_eq!(dwell.refused("PurgeQueue", json!({})).await?.0, "MissingRequiredParameterException");
    Ok(())
}

#[tokio::test]
async fn unparsable_bodies_are_refused_and_the_broker_survives() -> Outcome {
    let dwell = Broker::start(&Store::Embedded).await?;
    let url = dwell.queue("orders", json!({})).await?;
    let deep = format!("{{\"MessageAttributes\":{}", "[".repeat(1_000_000));
    let large = "x".repeat(8 * 1024 * 1024 + 1);
    for body in ["[", "\u{0}", &deep, &large] {
        let request = dwell.request("SendMessage", &json!({})).body(body.to_owned());
        let response = request.send().await?;
        assert_eq!(response.status().as_u16(), 400, "{}", &body[..1]);
    }
    let form = |body: String| {
        dwell.client.post(&dwell.base).header("content-type", "application/x-www-form-urlencoded").body(body)
    };
    let nested = format!("Action=SendMessage&{}=x", "a.".repeat(100_000));
    for body in
        ["Action=%ff".to_owned(), "a=%".to_owned(), nested, "Action=ListQueues&a=b".repeat(10_000), String::new()]
    {
        assert_eq!(form(body).send().await?.status().as_u16(), 400);
    }
    let largest = json!({"QueueUrl": url, "MessageBody": "\u{7f}".repeat(1_048_576)});
    let sent = dwell.tell("SendMessage", largest).await?;
    assert_eq!(text(&sent["MessageId"]).len(), 36);
    assert_eq!(text(&dwell.receive(&url, json!({})).await?["Body"]).len(), 1_048_576);
    let larger = json!({"QueueUrl": url, "MessageBody": "x".repeat(1_048_577)});
    let (.., why) = dwell.refused("SendMessage", larger).await?;
    assert_eq!(why, "One or more parameters are invalid. Reason: Message must be shorter than 1048576 bytes.");
    Ok(())
}

/// A text of a client is quoted in an error, but not all of a long one: errors do not wait for memory of answers.
#[tokio::test]
async fn no_error_is_as_long_as_the_text_that_it_is_about() -> Outcome {
    let dwell = Broker::start(&Store::Embedded).await?;
    let url = dwell.queue("orders", json!({})).await?;
    let long = "\"&".repeat(200_000);
    let entry = |more: serde_json::Value| {
        let mut entry = json!({"Id": "a", "MessageBody": "x"});
        entry.as_object_mut().into_iter().for_each(|it| it.extend(more.as_object().cloned().unwrap_or_default()));
        json!({"Entries": [entry]})
    };
    for (action, more) in [
        ("PurgeQueue", json!({"QueueUrl": long})),
        ("SendMessage", json!({"QueueUrl": format!("http://h/0/{long}"), "MessageBody": "x"})),
        ("GetQueueUrl", json!({"QueueName": long})),
        ("GetQueueUrl", json!({"MaxResults": long})),
        ("ListQueues", json!({"NextToken": long})),
        ("GetQueueAttributes", json!({"AttributeNames": [long]})),
        ("SetQueueAttributes", json!({"Attributes": {&long: "x"}})),
        ("SetQueueAttributes", json!({"Attributes": {"RedrivePolicy": long}})),
        ("SetQueueAttributes", json!({"Attributes": {"DelaySeconds": long}})),
        ("TagQueue", json!({"Tags": {format!("sqs.{long}"): "x"}})),
        ("TagQueue", json!({"Tags": {&long: &long}})),
        ("DeleteMessage", json!({"ReceiptHandle": long})),
        ("SendMessage", json!({"MessageBody": "x", "MessageGroupId": long})),
        ("SendMessage", json!({"MessageBody": "x", "DelaySeconds": long})),
        ("SendMessageBatch", entry(json!({"Id": long}))),
        (
            "SendMessageBatch",
            entry(json!({"MessageSystemAttributes": {&long: {"DataType": "String", "StringValue": "x"}}})),
        ),
        ("SendMessageBatch", entry(json!({"MessageAttributes": {&long: {"DataType": "String", "StringValue": "x"}}}))),
        ("SendMessageBatch", entry(json!({"MessageAttributes": {"a": {"DataType": long, "StringValue": "x"}}}))),
        ("StartMessageMoveTask", json!({"SourceArn": long})),
        ("CancelMessageMoveTask", json!({"TaskHandle": long})),
        (&long, json!({})),
    ] {
        let mut body = json!({"QueueUrl": url});
        body.as_object_mut().into_iter().for_each(|body| body.extend(more.as_object().cloned().unwrap_or_default()));
        let action = if action.len() > 1_000 { "Unknown" } else { action };
        let response = dwell.request(action, &body).send().await?;
        let (status, name) = (response.status(), response.headers().get("x-amzn-query-error").cloned());
        let text = response.text().await?;
        let fields: Vec<_> =
            more.as_object().into_iter().flatten().map(|(name, _)| name.get(..20).unwrap_or(name)).collect();
        assert!(text.len() < 16 * 1024, "{action} {fields:?}: {} bytes", text.len());
        assert!(status.is_client_error() || text.contains("Failed"), "{action} {fields:?}: {status} {name:?}");
    }
    for pairs in [
        vec![("Action", long.as_str())],
        vec![("Action", "GetQueueUrl"), ("QueueName", &long)],
        vec![("Action", "GetQueueUrl"), ("QueueName", "orders"), ("MaxResults", &long)],
        vec![("Action", "PurgeQueue"), ("QueueUrl", &long)],
        vec![("Action", "DeleteMessage"), ("QueueUrl", &url), ("ReceiptHandle", &long)],
    ] {
        let (status, text) = dwell.form(&pairs).await?;
        let what = &pairs[0].1[..pairs[0].1.len().min(20)];
        assert!((400..500).contains(&status) && text.len() < 16 * 1024, "{what}: {status}, {} bytes", text.len());
    }
    Ok(())
}
