//! Queues that are groups of a topic: nothing that is done to them is done to the topic, and no topic takes their name.

use serde_json::{Value, json};

use super::{Broker, Outcome, Store, stories, text};

stories! {
    an_action_on_a_group_leaves_its_topic_alone,
    a_topic_cannot_shadow_a_group_nor_a_group_a_topic,
    a_native_push_cannot_take_the_place_of_a_fifo_message, parts_of_a_second_are_no_zero,
    a_delete_of_a_message_that_was_changed_since_is_refused,
}

/// A request of the native API, and its status and body.
async fn native(dwell: &Broker, line: &str, body: Value) -> Outcome<(u16, Value)> {
    let (method, path) = line.split_once(' ').ok_or("no path")?;
    let request = dwell.client.request(method.parse()?, format!("{}{path}", dwell.base));
    let response = if body.is_null() { request } else { request.json(&body) }.send().await?;
    let status = response.status().as_u16();
    let bytes = response.bytes().await?;
    Ok((status, serde_json::from_slice(&bytes).unwrap_or_default()))
}

/// A time of a topic that is not in whole seconds is shown as a longer one: 0 would make every message visible at once.
async fn parts_of_a_second_are_no_zero(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let settings = json!({"visibility_timeout": "647ms", "ttl": "1500ms"});
    assert!(native(&dwell, "PUT /v1/topics/quick", settings).await?.0 < 300);
    let url = text(&dwell.tell("GetQueueUrl", json!({"QueueName": "quick"})).await?["QueueUrl"]);
    let shown = async |url: &str| -> Outcome<[String; 2]> {
        let all = dwell.tell("GetQueueAttributes", json!({"QueueUrl": url, "AttributeNames": ["All"]})).await?;
        Ok(["VisibilityTimeout", "MessageRetentionPeriod"].map(|name| text(&all["Attributes"][name])))
    };
    assert_eq!(shown(&url).await?, ["1", "2"]);
    let zero = dwell.queue("zero", json!({"VisibilityTimeout": "0"})).await?;
    assert_eq!(shown(&zero).await?, ["0", "345600"]);
    Ok(())
}

/// A message that was rescheduled or brought back after its delivery stays: so its delete is not answered with success.
async fn a_delete_of_a_message_that_was_changed_since_is_refused(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    for (name, is_fifo) in [("shop", false), ("shop.fifo", true)] {
        let attributes = if is_fifo { json!({"FifoQueue": "true"}) } else { json!({}) };
        let url = dwell.queue(name, attributes).await?;
        let mut body = json!({"QueueUrl": url, "MessageBody": "x"});
        if is_fifo {
            (body["MessageGroupId"], body["MessageDeduplicationId"]) = (json!("k"), json!("d"));
        }
        dwell.tell("SendMessage", body).await?;
        let taken = dwell.tell("ReceiveMessage", json!({"QueueUrl": url, "WaitTimeSeconds": 20})).await?;
        let handle = text(&taken["Messages"][0]["ReceiptHandle"]);
        let back = json!({"QueueUrl": url, "ReceiptHandle": handle, "VisibilityTimeout": 0});
        dwell.tell("ChangeMessageVisibility", back).await?;
        let listed = native(&dwell, &format!("GET /v1/topics/{name}/messages"), Value::Null).await?.1;
        let (id, key) = (text(&listed["messages"][0]["id"]), if is_fifo { "?key=k" } else { "" });
        let path = format!("PATCH /v1/topics/{name}/messages/{id}{key}");
        assert_eq!(native(&dwell, &path, json!({"delay": "1h"})).await?.0, 200);
        let delete = json!({"QueueUrl": url, "ReceiptHandle": handle});
        let (shape, _, why) = dwell.refused("DeleteMessage", delete).await?;
        assert_eq!(shape, "InvalidParameterValueException");
        assert!(why.ends_with("The receipt handle has expired."), "{why}");
        assert_eq!(native(&dwell, &path.replace("PATCH", "DELETE"), Value::Null).await?.0, 200);
        // It is gone now, whoever asks.
        dwell.tell("DeleteMessage", json!({"QueueUrl": url, "ReceiptHandle": handle})).await?;
    }
    Ok(())
}

async fn counts(dwell: &Broker, url: &str) -> Outcome<String> {
    let ask = json!({"QueueUrl": url, "AttributeNames": ["ApproximateNumberOfMessages"]});
    Ok(text(&dwell.tell("GetQueueAttributes", ask).await?["Attributes"]["ApproximateNumberOfMessages"]))
}

async fn an_action_on_a_group_leaves_its_topic_alone(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let shop = dwell.queue("shop", json!({})).await?;
    assert!(native(&dwell, "PUT /v1/topics/shop/groups/audit", json!({})).await?.0 < 300);
    dwell.tell("SendMessage", json!({"QueueUrl": shop, "MessageBody": "x"})).await?;
    let audit = format!("{shop}--audit");
    dwell.visible(&audit, 1).await?;
    let shop_of =
        async || Ok::<_, Box<dyn std::error::Error>>(native(&dwell, "GET /v1/topics/shop", Value::Null).await?.1);
    let before = shop_of().await?;
    for (action, more) in [
        ("SetQueueAttributes", json!({"Attributes": {"DelaySeconds": "1"}})),
        ("TagQueue", json!({"Tags": {"a": "b"}})),
        ("UntagQueue", json!({"TagKeys": ["a"]})),
        ("ListQueueTags", json!({})),
        ("AddPermission", json!({"Label": "l", "AWSAccountIds": ["1"], "Actions": ["*"]})),
        ("RemovePermission", json!({"Label": "l"})),
        ("ListDeadLetterSourceQueues", json!({})),
        ("SendMessage", json!({"MessageBody": "y"})),
        ("SendMessageBatch", json!({"Entries": [{"Id": "a", "MessageBody": "y"}]})),
    ] {
        let mut body = json!({"QueueUrl": audit});
        body.as_object_mut().into_iter().for_each(|body| body.extend(more.as_object().cloned().unwrap_or_default()));
        let (shape, code, why) = dwell.refused(action, body).await?;
        assert_eq!(
            (shape.as_str(), code.as_str()),
            ("UnsupportedOperation", "AWS.SimpleQueueService.UnsupportedOperation")
        );
        assert_eq!(why, "shop--audit is a group of the queue shop: this action is for shop only.", "{action}");
    }
    let after = shop_of().await?;
    assert_eq!((&after["settings"], &after["groups"]), (&before["settings"], &before["groups"]));
    dwell.tell("PurgeQueue", json!({"QueueUrl": audit})).await?;
    assert_eq!((counts(&dwell, &shop).await?, counts(&dwell, &audit).await?), ("1".to_owned(), "0".to_owned()));
    dwell.tell("DeleteQueue", json!({"QueueUrl": audit})).await?;
    assert_eq!(dwell.refused("ReceiveMessage", json!({"QueueUrl": audit})).await?.0, "QueueDoesNotExist");
    assert_eq!(text(&dwell.receive(&shop, json!({})).await?["Body"]), "x");
    // The group `default` is not the topic, either.
    let (shape, ..) = dwell.refused("DeleteQueue", json!({"QueueUrl": format!("{shop}--default")})).await?;
    assert_eq!(shape, "UnsupportedOperation");
    assert_eq!(native(&dwell, "GET /v1/topics/shop", Value::Null).await?.0, 200);
    Ok(())
}

async fn a_topic_cannot_shadow_a_group_nor_a_group_a_topic(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let shop = dwell.queue("shop", json!({})).await?;
    assert!(native(&dwell, "PUT /v1/topics/shop/groups/audit", json!({})).await?.0 < 300);
    dwell.tell("SendMessage", json!({"QueueUrl": shop, "MessageBody": "of the group"})).await?;
    // A native push makes a topic of that name, and CreateQueue finds the queue that is there.
    assert!(native(&dwell, "POST /v1/topics/shop--audit/messages", json!({"payload": "evil"})).await?.0 < 300);
    let audit = dwell.queue("shop--audit", json!({})).await?;
    assert_eq!(text(&dwell.receive(&audit, json!({})).await?["Body"]), "of the group");
    // The other way round: the queue stays the topic when a group gets its name.
    let late = dwell.queue("shop--late", json!({})).await?;
    dwell.tell("SendMessage", json!({"QueueUrl": late, "MessageBody": "of the topic"})).await?;
    assert!(native(&dwell, "PUT /v1/topics/shop/groups/late", json!({})).await?.0 < 300);
    dwell.tell("SendMessage", json!({"QueueUrl": shop, "MessageBody": "of the shop"})).await?;
    assert_eq!(text(&dwell.receive(&late, json!({})).await?["Body"]), "of the topic");
    Ok(())
}

/// Dedup keys of producers and of SQS clients never meet.
async fn a_native_push_cannot_take_the_place_of_a_fifo_message(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let attributes = json!({"FifoQueue": "true", "ContentBasedDeduplication": "true"});
    let url = dwell.queue("pay.fifo", attributes).await?;
    let push =
        |key: String| json!({"payload": "EVIL", "key": "g", "dedup_key": key, "dedup_for": "5m", "delay": "3650d"});
    let line = "POST /v1/topics/pay.fifo/messages";
    assert!(native(&dwell, line, push("d-1".to_owned())).await?.0 < 300);
    // sha256 of `\0\0d-1` under the prefix of the facade, as one who reads the code would try.
    let forged = native(&dwell, line, push(format!("sqs/{}", "0".repeat(64)))).await?;
    assert!(forged.0 == 422 && forged.1["detail"].as_str().is_some_and(|why| why.contains("reserved")), "{forged:?}");
    let send =
        json!({"QueueUrl": url, "MessageBody": "pay 11", "MessageGroupId": "g", "MessageDeduplicationId": "d-1"});
    let first = dwell.tell("SendMessage", send.clone()).await?;
    assert_eq!(dwell.tell("SendMessage", send).await?["MessageId"], first["MessageId"]);
    assert_eq!(text(&dwell.receive(&url, json!({})).await?["Body"]), "pay 11");
    Ok(())
}
