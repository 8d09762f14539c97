//! FIFO queues: order within a group, and duplicates.

use serde_json::{Value, json};

use super::{Broker, Outcome, Store, stories, text};

stories! {
    message_group_is_received_in_order_one_at_a_time,
    a_deduplication_id_is_stored_once,
    fifo_queue_requirements_are_checked,
    each_message_of_a_batch_has_its_own_visibility,
    a_batch_of_a_dead_consumer_comes_again_as_a_batch,
    a_repeated_receive_attempt_gets_the_same_messages,
}

fn send(url: &str, group: &str, body: &str, dedup: &str) -> Value {
    json!({"QueueUrl": url, "MessageBody": body, "MessageGroupId": group, "MessageDeduplicationId": dedup})
}

async fn bodies(dwell: &Broker, url: &str, wait: u64) -> Outcome<(Vec<String>, Vec<Value>)> {
    let ask = json!({"QueueUrl": url, "MaxNumberOfMessages": 10, "WaitTimeSeconds": wait});
    let received = dwell.tell("ReceiveMessage", ask).await?;
    let messages = received["Messages"].as_array().cloned().unwrap_or_default();
    let handles = messages.iter().map(|message| message["ReceiptHandle"].clone()).collect();
    Ok((messages.iter().map(|message| text(&message["Body"])).collect(), handles))
}

async fn message_group_is_received_in_order_one_at_a_time(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let url = dwell.queue("orders.fifo", json!({"FifoQueue": "true"})).await?;
    let mut last = String::new();
    for body in ["a1", "a2", "b1", "a3"] {
        let sent = dwell.tell("SendMessage", send(&url, &body[..1], body, body)).await?;
        let number = text(&sent["SequenceNumber"]);
        assert!(number.len() == 20 && number > last, "{last} {number}");
        last = number;
    }
    let mut received = (Vec::new(), Vec::new());
    while received.0.len() < 4 {
        let (more, handles) = bodies(&dwell, &url, 20).await?;
        received.0.extend(more);
        received.1.extend(handles);
    }
    let of_a: Vec<_> = received.0.iter().filter(|body| body.starts_with('a')).collect();
    assert_eq!(of_a, ["a1", "a2", "a3"], "{received:?}");
    dwell.tell("SendMessage", send(&url, "a", "a4", "a4")).await?;
    assert_eq!(bodies(&dwell, &url, 0).await?.0.len(), 0, "its group is in flight");
    for handle in &received.1 {
        dwell.tell("DeleteMessage", json!({"QueueUrl": url, "ReceiptHandle": handle})).await?;
    }
    assert_eq!(bodies(&dwell, &url, 20).await?.0, ["a4"]);
    Ok(())
}

async fn a_deduplication_id_is_stored_once(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let url = dwell.queue("orders.fifo", json!({"FifoQueue": "true", "ContentBasedDeduplication": "true"})).await?;
    let first = dwell.tell("SendMessage", send(&url, "g", "one", "d")).await?;
    let again = dwell.tell("SendMessage", send(&url, "h", "another", "d")).await?;
    assert_eq!(
        (&again["MessageId"], &again["SequenceNumber"]),
        (&first["MessageId"], &first["SequenceNumber"]),
        "a duplicate has the id of the first message"
    );
    let all = json!({"MessageSystemAttributeNames": ["All"]});
    let received = dwell.receive(&url, all).await?;
    let system = &received["Attributes"];
    assert_eq!(
        (&received["Body"], &system["MessageDeduplicationId"], &system["MessageGroupId"], &system["SequenceNumber"]),
        (&json!("one"), &json!("d"), &json!("g"), &first["SequenceNumber"])
    );
    dwell.tell("DeleteMessage", json!({"QueueUrl": url, "ReceiptHandle": received["ReceiptHandle"]})).await?;
    let by_content = json!({"QueueUrl": url, "MessageBody": "x", "MessageGroupId": "g"});
    let first = dwell.tell("SendMessage", by_content.clone()).await?;
    assert_eq!(dwell.tell("SendMessage", by_content).await?["MessageId"], first["MessageId"]);
    assert_eq!(dwell.receive(&url, json!({})).await?["Body"], "x");
    assert_eq!(bodies(&dwell, &url, 0).await?.0.len(), 0);
    dwell.tell("PurgeQueue", json!({"QueueUrl": url})).await?;
    dwell.tell("SendMessage", send(&url, "g", "after the purge", "d")).await?;
    assert_eq!(dwell.receive(&url, json!({})).await?["Body"], "after the purge");
    Ok(())
}

#[tokio::test]
async fn deduplication_scope_can_be_the_message_group() -> Outcome {
    let dwell = Broker::start(&Store::Embedded).await?;
    let fast =
        json!({"FifoQueue": "true", "DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"});
    let url = dwell.queue("orders.fifo", fast).await?;
    let mut ids = Vec::new();
    for group in ["g", "h", "g"] {
        ids.push(text(&dwell.tell("SendMessage", send(&url, group, "x", "d")).await?["MessageId"]));
    }
    assert!(ids[0] != ids[1] && ids[0] == ids[2], "{ids:?}");
    Ok(())
}

async fn fifo_queue_requirements_are_checked(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let url = dwell.queue("orders.fifo", json!({"FifoQueue": "true"})).await?;
    let body = json!({"QueueUrl": url, "MessageBody": "x"});
    let (shape, _, why) = dwell.refused("SendMessage", body.clone()).await?;
    assert_eq!(
        (shape.as_str(), why.as_str()),
        ("MissingRequiredParameterException", "The request must contain the parameter MessageGroupId.")
    );
    let mut with_group = body;
    with_group["MessageGroupId"] = json!("g");
    let (.., why) = dwell.refused("SendMessage", with_group.clone()).await?;
    assert!(why.starts_with("The queue should either have ContentBasedDeduplication enabled"), "{why}");
    with_group["MessageDeduplicationId"] = json!("d");
    with_group["DelaySeconds"] = json!(2);
    let (.., why) = dwell.refused("SendMessage", with_group.clone()).await?;
    let reason = "The request include parameter that is not valid for this queue type.";
    assert_eq!(why, format!("Value 2 for parameter DelaySeconds is invalid. Reason: {reason}"));
    with_group["DelaySeconds"] = json!(0);
    dwell.tell("SendMessage", with_group).await?;
    let late = dwell.receive(&url, json!({"VisibilityTimeout": 1})).await?;
    dwell.visible(&url, 1).await?;
    let (.., why) =
        dwell.refused("DeleteMessage", json!({"QueueUrl": url, "ReceiptHandle": late["ReceiptHandle"]})).await?;
    assert!(why.ends_with("The receipt handle has expired."), "{why}");
    Ok(())
}

async fn delete(dwell: &Broker, url: &str, handle: &Value) -> Outcome<Value> {
    dwell.tell("DeleteMessage", json!({"QueueUrl": url, "ReceiptHandle": handle})).await
}

/// Sends so many messages of the group `g`, and receives them in one batch.
async fn received(dwell: &Broker, url: &str, names: &[&str]) -> Outcome<Vec<Value>> {
    let entries: Vec<Value> = names
        .iter()
        .map(|name| json!({"Id": name, "MessageBody": name, "MessageGroupId": "g", "MessageDeduplicationId": name}))
        .collect();
    let sent = dwell.tell("SendMessageBatch", json!({"QueueUrl": url, "Entries": entries})).await?;
    assert_eq!(sent["Successful"].as_array().map(Vec::len), Some(names.len()), "{sent}");
    let (came, handles) = bodies(dwell, url, 20).await?;
    assert_eq!(came, names);
    Ok(handles)
}

async fn each_message_of_a_batch_has_its_own_visibility(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let url = dwell.queue("orders.fifo", json!({"FifoQueue": "true", "VisibilityTimeout": "600"})).await?;
    let handles = received(&dwell, &url, &["m0", "m1", "m2", "m3"]).await?;
    let change =
        |handle: &Value, secs: u64| json!({"QueueUrl": url, "ReceiptHandle": handle, "VisibilityTimeout": secs});
    dwell.tell("ChangeMessageVisibility", change(&handles[0], 0)).await?;
    dwell.tell("ChangeMessageVisibility", change(&handles[1], 500)).await?;
    let (.., why) = dwell.refused("DeleteMessage", json!({"QueueUrl": url, "ReceiptHandle": handles[0]})).await?;
    assert!(why.ends_with("The receipt handle has expired."), "{why}");
    for _ in 0..2 {
        delete(&dwell, &url, &handles[2]).await?;
    }
    dwell.tell("ChangeMessageVisibility", change(&handles[3], 0)).await?;
    let (first, again) = bodies(&dwell, &url, 20).await?;
    assert_eq!(first, ["m0"], "m1 is still out");
    for handle in [&handles[1], &again[0]] {
        delete(&dwell, &url, handle).await?;
    }
    let (last, again) = bodies(&dwell, &url, 20).await?;
    assert_eq!(last, ["m3"]);
    delete(&dwell, &url, &again[0]).await?;
    let counts = json!({"QueueUrl": url, "AttributeNames": ["All"]});
    let counts = dwell.tell("GetQueueAttributes", counts).await?;
    assert_eq!(counts["Attributes"]["ApproximateNumberOfMessagesNotVisible"], "0", "{counts}");
    assert_eq!(bodies(&dwell, &url, 0).await?.0.len(), 0);
    Ok(())
}

async fn a_batch_of_a_dead_consumer_comes_again_as_a_batch(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let url = dwell.queue("orders.fifo", json!({"FifoQueue": "true", "VisibilityTimeout": "2"})).await?;
    let names: Vec<String> = (0..21).map(|n| format!("m{n:02}")).collect();
    for some in names.chunks(10) {
        let entry = |name: &String| json!({"Id": name, "MessageBody": name, "MessageGroupId": "g", "MessageDeduplicationId": name});
        let entries: Vec<Value> = some.iter().map(entry).collect();
        let sent = dwell.tell("SendMessageBatch", json!({"QueueUrl": url, "Entries": entries})).await?;
        assert_eq!(sent["Successful"].as_array().map(Vec::len), Some(some.len()), "{sent}");
    }
    assert_eq!(bodies(&dwell, &url, 20).await?.0, names[..10], "a consumer takes them and dies");
    dwell.visible(&url, 21).await?;
    for some in [&names[..10], &names[10..20], &names[20..]] {
        let (came, handles) = bodies(&dwell, &url, 20).await?;
        assert_eq!(came, some);
        for handle in &handles {
            delete(&dwell, &url, handle).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_delete_that_is_answered_after_a_takeover_counts_or_is_an_error() -> Outcome {
    let store = Store::Redis(crate::support::RedisServer::start().await?);
    let dwell = Broker::start(&store).await?;
    let url = dwell.queue("orders.fifo", json!({"FifoQueue": "true", "VisibilityTimeout": "600"})).await?;
    let handles = received(&dwell, &url, &["m0", "m1"]).await?;
    delete(&dwell, &url, &handles[0]).await?;
    drop(dwell);
    let dwell = Broker::start(&store).await?;
    let (came, again) = bodies(&dwell, &url, 20).await?;
    assert_eq!(came, ["m1"]);
    delete(&dwell, &url, &handles[0]).await?;
    let (.., why) = dwell.refused("DeleteMessage", json!({"QueueUrl": url, "ReceiptHandle": handles[1]})).await?;
    assert!(why.ends_with("The receipt handle has expired."), "{why}");
    delete(&dwell, &url, &again[0]).await?;
    delete(&dwell, &url, &handles[1]).await?;
    Ok(())
}

async fn a_repeated_receive_attempt_gets_the_same_messages(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let url = dwell.queue("orders.fifo", json!({"FifoQueue": "true", "VisibilityTimeout": "600"})).await?;
    for name in ["m0", "m1", "m2"] {
        dwell.tell("SendMessage", send(&url, &format!("group-{name}"), name, name)).await?;
    }
    dwell.visible(&url, 3).await?;
    let attempt = |id: &str, max: u64| {
        let wait =
            json!({"QueueUrl": url, "MaxNumberOfMessages": max, "ReceiveRequestAttemptId": id, "WaitTimeSeconds": 1});
        dwell.tell("ReceiveMessage", wait)
    };
    let first = attempt("a", 2).await?;
    let messages = first["Messages"].as_array().cloned().unwrap_or_default();
    assert!(!messages.is_empty(), "{first}");
    assert_eq!(attempt("a", 2).await?, first, "with the same handles");
    let mut rest = Vec::new();
    while rest.len() + messages.len() < 3 {
        rest.extend(
            attempt(&format!("b{}", rest.len()), 10).await?["Messages"].as_array().cloned().unwrap_or_default(),
        );
    }
    assert!(rest.iter().all(|message| !messages.contains(message)));
    let handle = &messages[0]["ReceiptHandle"];
    let change = json!({"QueueUrl": url, "ReceiptHandle": handle, "VisibilityTimeout": 300});
    dwell.tell("ChangeMessageVisibility", change).await?;
    assert_eq!(attempt("a", 2).await?, json!({}), "something was said about one of them");
    delete(&dwell, &url, handle).await?;
    for (id, is_right) in [("x".repeat(128), true), ("x".repeat(129), false), ("a b".to_owned(), false)] {
        let ask = json!({"QueueUrl": url, "ReceiveRequestAttemptId": id});
        let answer = Broker::send(dwell.request("ReceiveMessage", &ask)).await?;
        assert_eq!(answer.status == 200, is_right, "{id}: {answer:?}");
    }
    Ok(())
}
