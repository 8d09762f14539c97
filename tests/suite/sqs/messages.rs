//! Messages of standard queues: sent, received, hidden, deleted.

use serde_json::{Value, json};

use super::{Broker, Outcome, Store, stories, text};

stories! {
    a_message_is_received_as_it_was_sent_and_is_gone_when_deleted,
    a_message_is_visible_again_after_its_timeout,
    a_visibility_timeout_can_be_changed,
    late_delete_and_late_visibility_change_work,
    an_older_handle_deletes_a_message_that_was_received_again,
    an_older_handle_deletes_no_other_message,
    purge_queue_removes_in_flight_messages,
    a_delayed_message_is_not_early,
    a_repeated_call_is_stored_once,
    each_entry_of_a_batch_is_answered,
    native_clients_and_sqs_clients_share_a_topic,
    a_message_group_makes_a_standard_queue_fair,
    a_message_received_without_a_timeout_stays_visible,
    query_protocol_behaves_like_json,
}

async fn a_message_is_received_as_it_was_sent_and_is_gone_when_deleted(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let url = dwell.queue("orders", json!({})).await?;
    assert_eq!(url, format!("{}/000000000000/orders", dwell.base));
    let attributes = json!({
        "n": {"DataType": "Number.int", "StringValue": "7"}, "b": {"DataType": "Binary", "BinaryValue": "AP8="},
    });
    let message = json!({
        "QueueUrl": url, "MessageBody": "hello", "MessageAttributes": attributes, "MessageGroupId": "customer-1",
        "MessageSystemAttributes": {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}},
    });
    let sent = dwell.tell("SendMessage", message).await?;
    assert_eq!(sent["MD5OfMessageBody"], "5d41402abc4b2a76b9719d911017c592");
    assert_eq!(text(&sent["MD5OfMessageSystemAttributes"]).len(), 32);
    let all = json!({"MessageSystemAttributeNames": ["All"], "MessageAttributeNames": ["All"]});
    let received = dwell.receive(&url, all).await?;
    assert_eq!(
        (&received["Body"], &received["MessageId"], &received["MD5OfBody"]),
        (&json!("hello"), &sent["MessageId"], &sent["MD5OfMessageBody"])
    );
    assert_eq!(received["MessageAttributes"], attributes);
    assert_eq!(received["MD5OfMessageAttributes"], sent["MD5OfMessageAttributes"]);
    let system = &received["Attributes"];
    assert_eq!(
        (&system["ApproximateReceiveCount"], &system["MessageGroupId"], &system["AWSTraceHeader"], &system["SenderId"]),
        (&json!("1"), &json!("customer-1"), &json!("Root=1"), &json!("local"))
    );
    assert_eq!(text(&system["SentTimestamp"]).len(), 13);
    let handle = &received["ReceiptHandle"];
    for _ in 0..2 {
        let deleted = dwell.tell("DeleteMessage", json!({"QueueUrl": url, "ReceiptHandle": handle})).await?;
        assert_eq!(deleted, Value::Null);
    }
    assert_eq!(dwell.tell("ReceiveMessage", json!({"QueueUrl": url})).await?, json!({}));
    Ok(())
}

async fn a_message_is_visible_again_after_its_timeout(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let url = dwell.queue("orders", json!({"VisibilityTimeout": "1"})).await?;
    dwell.tell("SendMessage", json!({"QueueUrl": url, "MessageBody": "x"})).await?;
    let mut handles = Vec::new();
    for attempt in 1..=3 {
        let received = dwell.receive(&url, json!({"AttributeNames": ["ApproximateReceiveCount"]})).await?;
        assert_eq!(received["Attributes"], json!({"ApproximateReceiveCount": attempt.to_string()}));
        handles.push(received["ReceiptHandle"].clone());
    }
    let change = json!({"QueueUrl": url, "ReceiptHandle": handles[0], "VisibilityTimeout": 5});
    let (shape, code, why) = dwell.refused("ChangeMessageVisibility", change).await?;
    assert_eq!((shape.as_str(), code.as_str()), ("InvalidParameterValueException", "InvalidParameterValue"));
    assert!(why.ends_with("Message does not exist or is not available for visibility timeout change."), "{why}");
    dwell.tell("DeleteMessage", json!({"QueueUrl": url, "ReceiptHandle": handles[2]})).await?;
    Ok(())
}

async fn a_visibility_timeout_can_be_changed(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let url = dwell.queue("orders", json!({"VisibilityTimeout": "600"})).await?;
    dwell.tell("SendMessage", json!({"QueueUrl": url, "MessageBody": "x"})).await?;
    let first = dwell.receive(&url, json!({})).await?;
    let change =
        |handle: &Value, secs: u64| json!({"QueueUrl": url, "ReceiptHandle": handle, "VisibilityTimeout": secs});
    dwell.tell("ChangeMessageVisibility", change(&first["ReceiptHandle"], 300)).await?;
    assert_eq!(dwell.tell("ReceiveMessage", json!({"QueueUrl": url})).await?, json!({}));
    dwell.tell("ChangeMessageVisibility", change(&first["ReceiptHandle"], 0)).await?;
    let second = dwell.receive(&url, json!({})).await?;
    assert_eq!(second["MessageId"], first["MessageId"]);
    assert_ne!(second["ReceiptHandle"], first["ReceiptHandle"]);
    let entries = json!([
        {"Id": "a", "ReceiptHandle": second["ReceiptHandle"], "VisibilityTimeout": 1},
        {"Id": "b", "ReceiptHandle": "garbage", "VisibilityTimeout": 1},
        {"Id": "c", "ReceiptHandle": second["ReceiptHandle"]},
    ]);
    let batch = dwell.tell("ChangeMessageVisibilityBatch", json!({"QueueUrl": url, "Entries": entries})).await?;
    assert_eq!(batch["Successful"], json!([{"Id": "a"}]));
    let codes: Vec<_> = batch["Failed"].as_array().into_iter().flatten().map(|failed| text(&failed["Code"])).collect();
    assert_eq!(codes, ["ReceiptHandleIsInvalid", "MissingParameter"]);
    assert_eq!(dwell.receive(&url, json!({})).await?["MessageId"], first["MessageId"]);
    Ok(())
}

async fn late_delete_and_late_visibility_change_work(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let url = dwell.queue("orders", json!({})).await?;
    dwell.tell("SendMessage", json!({"QueueUrl": url, "MessageBody": "x"})).await?;
    let first = dwell.receive(&url, json!({"VisibilityTimeout": 1})).await?;
    dwell.visible(&url, 1).await?;
    let hide = json!({"QueueUrl": url, "ReceiptHandle": first["ReceiptHandle"], "VisibilityTimeout": 600});
    dwell.tell("ChangeMessageVisibility", hide).await?;
    assert_eq!(dwell.tell("ReceiveMessage", json!({"QueueUrl": url})).await?, json!({}));
    dwell.tell("SendMessage", json!({"QueueUrl": url, "MessageBody": "y"})).await?;
    let second = dwell.receive(&url, json!({"VisibilityTimeout": 1})).await?;
    dwell.visible(&url, 1).await?;
    dwell.tell("DeleteMessage", json!({"QueueUrl": url, "ReceiptHandle": second["ReceiptHandle"]})).await?;
    assert_eq!(dwell.tell("ReceiveMessage", json!({"QueueUrl": url})).await?, json!({}));
    Ok(())
}

/// A consumer that is slower than the visibility timeout ends with its own handle, whoever has the message by then.
async fn an_older_handle_deletes_a_message_that_was_received_again(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let url = dwell.queue("orders", json!({})).await?;
    for is_in_hand in [true, false] {
        dwell.tell("SendMessage", json!({"QueueUrl": url, "MessageBody": "x"})).await?;
        let mut handles = Vec::new();
        for timeout in [1, 1, if is_in_hand { 600 } else { 1 }] {
            let received = dwell.receive(&url, json!({"VisibilityTimeout": timeout})).await?;
            handles.push(received["ReceiptHandle"].clone());
        }
        if !is_in_hand {
            dwell.visible(&url, 1).await?;
        }
        let delete = |handle: &Value| json!({"QueueUrl": url, "ReceiptHandle": handle});
        dwell.tell("DeleteMessage", delete(&handles[0])).await?;
        let counts = json!({"QueueUrl": url, "AttributeNames": ["All"]});
        let counts = dwell.tell("GetQueueAttributes", counts).await?;
        for kind in ["", "Delayed", "NotVisible"] {
            assert_eq!(counts["Attributes"][format!("ApproximateNumberOfMessages{kind}")], "0", "{kind} {is_in_hand}");
        }
        // Whoever had it since finds it gone, which is what they want.
        for handle in handles.iter().rev() {
            dwell.tell("DeleteMessage", delete(handle)).await?;
        }
        let change = json!({"QueueUrl": url, "ReceiptHandle": handles[2], "VisibilityTimeout": 5});
        assert_eq!(dwell.refused("ChangeMessageVisibility", change).await?.1, "InvalidParameterValue");
    }
    assert_eq!(dwell.tell("ReceiveMessage", json!({"QueueUrl": url})).await?, json!({}));
    Ok(())
}

async fn an_older_handle_deletes_no_other_message(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let url = dwell.queue("orders", json!({})).await?;
    let push = async |payload: &'static str, conflict: &str| {
        let target = format!("{}/v1/topics/orders/messages?id=a&key=a&conflict={conflict}", dwell.base);
        dwell.client.post(target).body(payload).send().await.map(drop)
    };
    push("first", "keep").await?;
    let first = dwell.receive(&url, json!({"VisibilityTimeout": 1})).await?;
    dwell.visible(&url, 1).await?;
    push("second", "replace").await?;
    let older = json!({"QueueUrl": url, "ReceiptHandle": first["ReceiptHandle"]});
    assert!(dwell.refused("DeleteMessage", older.clone()).await?.2.ends_with("The receipt handle has expired."));
    let second = dwell.receive(&url, json!({"VisibilityTimeout": 600})).await?;
    assert_eq!(second["Body"], "second");
    assert!(dwell.refused("DeleteMessage", older).await?.2.ends_with("The receipt handle has expired."));
    let counts = json!({"QueueUrl": url, "AttributeNames": ["ApproximateNumberOfMessagesNotVisible"]});
    let counts = dwell.tell("GetQueueAttributes", counts).await?;
    assert_eq!(counts["Attributes"], json!({"ApproximateNumberOfMessagesNotVisible": "1"}));
    Ok(())
}

async fn purge_queue_removes_in_flight_messages(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let url = dwell.queue("orders", json!({})).await?;
    let send = |secs: u64| json!({"QueueUrl": url, "MessageBody": "x", "DelaySeconds": secs});
    for secs in [0, 0, 600] {
        dwell.tell("SendMessage", send(secs)).await?;
    }
    let received = dwell.receive(&url, json!({})).await?;
    dwell.tell("PurgeQueue", json!({"QueueUrl": url})).await?;
    dwell.tell("DeleteMessage", json!({"QueueUrl": url, "ReceiptHandle": received["ReceiptHandle"]})).await?;
    let counts = json!({"QueueUrl": url, "AttributeNames": ["All"]});
    let counts = dwell.tell("GetQueueAttributes", counts).await?;
    for kind in ["", "Delayed", "NotVisible"] {
        assert_eq!(counts["Attributes"][format!("ApproximateNumberOfMessages{kind}")], "0", "{kind}");
    }
    let sent = dwell.tell("SendMessage", send(0)).await?;
    assert_eq!(dwell.receive(&url, json!({})).await?["MessageId"], sent["MessageId"]);
    Ok(())
}

#[tokio::test]
async fn any_broker_deletes_messages_received_elsewhere() -> Outcome {
    let store = Store::Redis(crate::support::RedisServer::start().await?);
    let (one, other) = (Broker::start(&store).await?, Broker::start(&store).await?);
    let url = one.queue("orders", json!({})).await?;
    one.tell("SendMessage", json!({"QueueUrl": url, "MessageBody": "x"})).await?;
    let received = one.receive(&url, json!({})).await?;
    let handle = &received["ReceiptHandle"];
    let hide = json!({"QueueUrl": "orders", "ReceiptHandle": handle, "VisibilityTimeout": 300});
    other.tell("ChangeMessageVisibility", hide).await?;
    other.tell("DeleteMessage", json!({"QueueUrl": "orders", "ReceiptHandle": handle})).await?;
    let counts = json!({"QueueUrl": "orders", "AttributeNames": ["ApproximateNumberOfMessagesNotVisible"]});
    let counts = one.tell("GetQueueAttributes", counts).await?;
    assert_eq!(counts["Attributes"], json!({"ApproximateNumberOfMessagesNotVisible": "0"}));
    Ok(())
}

#[tokio::test]
async fn any_broker_deletes_with_an_older_handle() -> Outcome {
    let store = Store::Redis(crate::support::RedisServer::start().await?);
    let (one, other) = (Broker::start(&store).await?, Broker::start(&store).await?);
    let url = one.queue("orders", json!({})).await?;
    for deleter in [&other, &one] {
        one.tell("SendMessage", json!({"QueueUrl": url, "MessageBody": "x"})).await?;
        let older = one.receive(&url, json!({"VisibilityTimeout": 1})).await?["ReceiptHandle"].clone();
        let newer = one.receive(&url, json!({"VisibilityTimeout": 600})).await?["ReceiptHandle"].clone();
        deleter.tell("DeleteMessage", json!({"QueueUrl": "orders", "ReceiptHandle": older})).await?;
        let counts = json!({"QueueUrl": "orders", "AttributeNames": ["ApproximateNumberOfMessagesNotVisible"]});
        let counts = one.tell("GetQueueAttributes", counts).await?;
        assert_eq!(counts["Attributes"], json!({"ApproximateNumberOfMessagesNotVisible": "0"}));
        deleter.tell("DeleteMessage", json!({"QueueUrl": "orders", "ReceiptHandle": newer})).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_handle_that_no_broker_gave_out_deletes_nothing() -> Outcome {
    let dwell = Broker::start(&Store::Embedded).await?;
    let (url, mails) = (dwell.queue("orders", json!({})).await?, dwell.queue("mails", json!({})).await?);
    dwell.tell("SendMessage", json!({"QueueUrl": url, "MessageBody": "x"})).await?;
    let handle = text(&dwell.receive(&url, json!({})).await?["ReceiptHandle"]);
    let other = |at: usize| {
        let mut bytes = handle.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        String::from_utf8(bytes).unwrap_or_default()
    };
    let before = "AQrm3nTgq1k4My4xNy50b2suMTUyLjAwMDAwMDJhLjEuMS5vcmRlci00NzEx".to_owned();
    for forged in (0..handle.len()).map(other).chain([before]) {
        for (action, more) in
            [("DeleteMessage", json!({})), ("ChangeMessageVisibility", json!({"VisibilityTimeout": 0}))]
        {
            let mut body = json!({"QueueUrl": url, "ReceiptHandle": forged});
            body.as_object_mut()
                .into_iter()
                .for_each(|body| body.extend(more.as_object().cloned().unwrap_or_default()));
            assert_eq!(dwell.refused(action, body).await?.0, "ReceiptHandleIsInvalid", "{forged}");
        }
    }
    let elsewhere = dwell.refused("DeleteMessage", json!({"QueueUrl": mails, "ReceiptHandle": handle})).await?;
    assert!(
        elsewhere.1 == "InvalidParameterValue" && elsewhere.2.contains("not valid for this queue"),
        "{elsewhere:?}"
    );
    dwell.tell("DeleteMessage", json!({"QueueUrl": url, "ReceiptHandle": handle})).await?;
    Ok(())
}

async fn a_delayed_message_is_not_early(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let url = dwell.queue("orders", json!({"DelaySeconds": "600"})).await?;
    dwell.tell("SendMessage", json!({"QueueUrl": url, "MessageBody": "queue"})).await?;
    dwell.tell("SendMessage", json!({"QueueUrl": url, "MessageBody": "long", "DelaySeconds": 90_000})).await?;
    let began = std::time::Instant::now();
    dwell.tell("SendMessage", json!({"QueueUrl": url, "MessageBody": "x", "DelaySeconds": 1})).await?;
    let counts = json!({"QueueUrl": url, "AttributeNames": ["ApproximateNumberOfMessagesDelayed"]});
    let counts = dwell.tell("GetQueueAttributes", counts).await?;
    assert_eq!(counts["Attributes"], json!({"ApproximateNumberOfMessagesDelayed": "3"}));
    assert_eq!(dwell.receive(&url, json!({})).await?["Body"], "x");
    assert!(began.elapsed() >= std::time::Duration::from_secs(1));
    dwell.tell("SendMessage", json!({"QueueUrl": url, "MessageBody": "now", "DelaySeconds": 0})).await?;
    assert_eq!(dwell.receive(&url, json!({})).await?["Body"], "now");
    Ok(())
}

async fn a_repeated_call_is_stored_once(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let url = dwell.queue("orders", json!({})).await?;
    let send = async |body: &str, id: &str| {
        let request = dwell.request("SendMessage", &json!({"QueueUrl": url, "MessageBody": body}));
        let answer = Broker::send(request.header("amz-sdk-invocation-id", id)).await?;
        Ok::<_, Box<dyn std::error::Error>>(text(&answer.body["MessageId"]))
    };
    let id = "4f0c9c3e-9d0a-4c52-9f0f-0a1b2c3d4e5f";
    let first = send("x", id).await?;
    assert_eq!(send("x", id).await?, first);
    let handle = dwell.receive(&url, json!({})).await?["ReceiptHandle"].clone();
    dwell.tell("DeleteMessage", json!({"QueueUrl": url, "ReceiptHandle": handle})).await?;
    assert_eq!(send("x", id).await?, first, "also after the message was deleted");
    assert_eq!(dwell.tell("ReceiveMessage", json!({"QueueUrl": url})).await?, json!({}));
    let others =
        [send("y", id).await?, send("x", "4f0c9c3e-9d0a-4c52-9f0f-0a1b2c3d4e60").await?, send("x", "no").await?];
    assert!(!others.contains(&first), "{others:?}");
    Ok(())
}

async fn each_entry_of_a_batch_is_answered(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let url = dwell.queue("orders", json!({"MaximumMessageSize": "1024"})).await?;
    let entries = json!([
        {"Id": "good", "MessageBody": "a"},
        {"Id": "large", "MessageBody": "x".repeat(1_025)},
        {"Id": "control", "MessageBody": "a\u{1}"},
        {"Id": "empty", "MessageBody": ""},
        {"Id": "also", "MessageBody": "b", "MessageAttributes": {"t": {"DataType": "String", "StringValue": "v"}}},
    ]);
    let batch = dwell.tell("SendMessageBatch", json!({"QueueUrl": url, "Entries": entries})).await?;
    let ids = |list: &str| -> Vec<String> {
        batch[list].as_array().into_iter().flatten().map(|entry| text(&entry["Id"])).collect()
    };
    assert_eq!(
        (ids("Successful"), ids("Failed")),
        (vec!["good".into(), "also".into()], vec!["large".into(), "control".into(), "empty".into()])
    );
    let why = "One or more parameters cannot be validated. Reason: Message must be shorter than 1024 bytes.";
    assert_eq!(
        batch["Failed"][0],
        json!({"Id": "large", "SenderFault": true, "Code": "InvalidParameterValue", "Message": why})
    );
    let mut handles = Vec::new();
    while handles.len() < 2 {
        let received =
            dwell.tell("ReceiveMessage", json!({"QueueUrl": url, "MaxNumberOfMessages": 10, "WaitTimeSeconds": 20}));
        handles
            .extend(received.await?["Messages"].as_array().into_iter().flatten().map(|it| it["ReceiptHandle"].clone()));
    }
    let entry = |(n, handle): (usize, &Value)| json!({"Id": n.to_string(), "ReceiptHandle": handle});
    let mut entries: Vec<_> = handles.iter().enumerate().map(entry).collect();
    entries.push(json!({"Id": "x", "ReceiptHandle": "garbage"}));
    let batch = dwell.tell("DeleteMessageBatch", json!({"QueueUrl": url, "Entries": entries})).await?;
    assert_eq!(batch["Successful"], json!([{"Id": "0"}, {"Id": "1"}]));
    assert_eq!(batch["Failed"][0]["Code"], "ReceiptHandleIsInvalid");
    let many = json!({"QueueUrl": url, "Entries": vec![json!({"Id": "a", "MessageBody": "x"}); 11]});
    let (shape, code, why) = dwell.refused("SendMessageBatch", many).await?;
    assert_eq!(
        (shape.as_str(), code.as_str()),
        ("TooManyEntriesInBatchRequest", "AWS.SimpleQueueService.TooManyEntriesInBatchRequest")
    );
    assert_eq!(why, "Maximum number of entries per request are 10. You have sent 11.");
    Ok(())
}

async fn native_clients_and_sqs_clients_share_a_topic(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let push = async |payload: &'static [u8]| {
        let request = dwell.client.post(format!("{}/v1/topics/orders/messages", dwell.base)).body(payload);
        Ok::<_, Box<dyn std::error::Error>>(request.send().await?.json::<Value>().await?)
    };
    push(b"native").await?;
    let received = dwell.receive("orders", json!({})).await?;
    assert_eq!((&received["Body"], text(&received["MessageId"]).len()), (&json!("native"), 36));
    dwell.tell("DeleteMessage", json!({"QueueUrl": "orders", "ReceiptHandle": received["ReceiptHandle"]})).await?;
    let request = dwell.client.post(format!("{}/v1/topics/orders/messages", dwell.base)).json(&json!({
        "payload": "x", "meta": {"tenant": "a", "empty": "", "aws.x": "reserved", "sqs-sender-id": "me"},
    }));
    assert_eq!(request.send().await?.status().as_u16(), 201);
    let all = json!({"MessageAttributeNames": ["All"], "AttributeNames": ["SenderId"]});
    let received = dwell.receive("orders", all).await?;
    let meta = json!({"tenant": {"DataType": "String", "StringValue": "a"}});
    assert_eq!((&received["MessageAttributes"], &received["Attributes"]["SenderId"]), (&meta, &json!("me")));
    dwell.tell("DeleteMessage", json!({"QueueUrl": "orders", "ReceiptHandle": received["ReceiptHandle"]})).await?;
    push(b"\xff\0").await?;
    let received = dwell.receive("orders", json!({})).await?;
    let encoding = json!({"dwell-encoding": {"DataType": "String", "StringValue": "base64"}});
    assert_eq!((&received["Body"], &received["MessageAttributes"]), (&json!("/wA="), &encoding));
    dwell.tell("DeleteMessage", json!({"QueueUrl": "orders", "ReceiptHandle": received["ReceiptHandle"]})).await?;
    let message = json!({"QueueUrl": "orders", "MessageBody": "from SQS", "MessageAttributes": {
        "Tenant": {"DataType": "String", "StringValue": "a"}, "b": {"DataType": "Binary.png", "BinaryValue": "AP8="},
    }});
    let sent = dwell.tell("SendMessage", message).await?;
    let reserve = format!("{}/v1/topics/orders/groups/default/reserve", dwell.base);
    let reserved = dwell.client.post(reserve).json(&json!({"wait": "20s"})).send().await?.json::<Value>().await?;
    let delivery = &reserved["deliveries"][0];
    assert_eq!((&delivery["payload"], &delivery["id"]), (&json!("from SQS"), &sent["MessageId"]));
    let attributes =
        json!({"Tenant": {"type": "String", "value": "a"}, "b": {"type": "Binary.png", "value_base64": "AP8="}});
    assert_eq!(delivery["attributes"], attributes);
    Ok(())
}

async fn a_message_group_makes_a_standard_queue_fair(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let url = dwell.queue("orders", json!({})).await?;
    let group = async || {
        let request = dwell.client.get(format!("{}/v1/topics/orders/groups/default", dwell.base));
        Ok::<_, Box<dyn std::error::Error>>(request.send().await?.json::<Value>().await?)
    };
    let send = async |customer: Option<&str>, names: std::ops::Range<usize>| {
        let entry = |n: usize| match customer {
            Some(customer) => json!({"Id": n.to_string(), "MessageBody": customer, "MessageGroupId": customer}),
            None => json!({"Id": n.to_string(), "MessageBody": "none"}),
        };
        let entries: Vec<Value> = names.map(entry).collect();
        dwell.tell("SendMessageBatch", json!({"QueueUrl": url, "Entries": entries})).await
    };
    send(None, 0..2).await?;
    assert_eq!(group().await?["fair"], Value::Null);
    for page in 0..8 {
        send(Some("busy"), 10 * page..10 * page + 10).await?;
    }
    assert_eq!(group().await?["fair"], "key");
    send(Some("quiet"), 0..1).await?;
    let mut before = 0;
    while dwell.receive(&url, json!({})).await?["Body"] != "quiet" {
        before += 1;
    }
    assert!(before < 40, "{before} messages of others came before it");
    // Who says that it is not to be fair decides it.
    let place = format!("{}/v1/topics/orders/groups/default", dwell.base);
    let changed = dwell.client.put(place).json(&json!({"fair": "none"})).send().await?;
    assert_eq!(changed.status().as_u16(), 200);
    send(Some("quiet"), 0..1).await?;
    assert_eq!(group().await?["fair"], Value::Null);
    Ok(())
}

async fn a_message_received_without_a_timeout_stays_visible(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let url = dwell.queue("orders", json!({})).await?;
    dwell.tell("SendMessage", json!({"QueueUrl": url, "MessageBody": "x"})).await?;
    for _ in 0..2 {
        assert_eq!(dwell.receive(&url, json!({"VisibilityTimeout": 0})).await?["Body"], "x");
    }
    let attributes = json!({"QueueUrl": url, "Attributes": {"VisibilityTimeout": "0"}});
    dwell.tell("SetQueueAttributes", attributes).await?;
    for _ in 0..2 {
        assert_eq!(dwell.receive(&url, json!({})).await?["Body"], "x");
    }
    Ok(())
}

async fn query_protocol_behaves_like_json(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let version = ("Version", "2012-11-05");
    let (status, xml) = dwell.form(&[("Action", "CreateQueue"), version, ("QueueName", "orders")]).await?;
    let url = format!("{}/000000000000/orders", dwell.base);
    assert_eq!(status, 200);
    let result = format!("<CreateQueueResult><QueueUrl>{url}</QueueUrl></CreateQueueResult>");
    assert!(xml.contains(&result), "{xml}");
    let send = [
        ("Action", "SendMessage"),
        version,
        ("QueueUrl", &url),
        ("MessageBody", "a <b> & \r\n ö"),
        ("MessageAttribute.1.Name", "n"),
        ("MessageAttribute.1.Value.DataType", "String"),
        ("MessageAttribute.1.Value.StringValue", "v"),
    ];
    let (_, sent) = dwell.form(&send).await?;
    let receive = [
        ("Action", "ReceiveMessage"),
        version,
        ("QueueUrl", &url),
        ("WaitTimeSeconds", "20"),
        ("AttributeName.1", "All"),
        ("MessageAttributeName.1", "All"),
    ];
    let (_, received) = dwell.form(&receive).await?;
    assert!(received.contains("<Body>a &lt;b&gt; &amp; &#xD;\n ö</Body>"), "{received}");
    let inside = |xml: &str, name: &str| -> String {
        let after = xml.split(&format!("<{name}>")).nth(1).unwrap_or_default();
        after.split(&format!("</{name}>")).next().unwrap_or_default().to_owned()
    };
    assert_eq!(inside(&received, "MD5OfMessageAttributes"), inside(&sent, "MD5OfMessageAttributes"));
    let none = [
        ("Action", "ReceiveMessage"),
        version,
        ("QueueUrl", &url),
        ("MessageAttributeName", ""),
        ("AttributeNames", ""),
    ];
    let (status, xml) = dwell.form(&none).await?;
    assert!(status == 200 && xml.contains("<ReceiveMessageResult/>"), "{xml}");
    for batch in ["SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"] {
        for entry in [&format!("{batch}RequestEntry"), "Entries"] {
            let (status, xml) = dwell.form(&[("Action", batch), version, ("QueueUrl", &url), (entry, "")]).await?;
            assert!(status == 400 && xml.contains("EmptyBatchRequest"), "{xml}");
        }
    }
    let handle = inside(&received, "ReceiptHandle");
    let delete = [("Action", "DeleteMessage"), version, ("QueueUrl", &url), ("ReceiptHandle", &handle)];
    let (status, xml) = dwell.form(&delete).await?;
    assert!(status == 200 && !xml.contains("Result"), "{xml}");
    let (status, xml) = dwell.form(&[("Action", "GetQueueUrl"), version, ("QueueName", "absent")]).await?;
    assert_eq!(status, 400);
    assert!(xml.contains("<Code>AWS.SimpleQueueService.NonExistentQueue</Code>"), "{xml}");
    assert!(xml.contains("for this wsdl version"), "{xml}");
    let get = format!("{}/?Action=ListQueues&Version=2012-11-05", dwell.base);
    assert!(dwell.client.get(get).send().await?.text().await?.contains(&url));
    Ok(())
}
