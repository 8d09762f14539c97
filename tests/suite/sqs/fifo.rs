//! FIFO queues: order within a group, and duplicates.

use serde_json::{Value, json};

use super::{Broker, Outcome, Store, stories, text};

stories! {
    message_group_is_received_in_order_one_at_a_time,
    a_deduplication_id_is_stored_once,
    fifo_queue_requirements_are_checked,
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
