//! Dead-letter queues, and moving their messages back.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Broker, Outcome, Store, stories, text};
use crate::support::eventually;

stories! {
    a_message_that_is_received_too_often_goes_to_the_dead_letter_queue,
    dead_letters_are_moved_back,
    a_guessed_id_does_not_keep_a_dead_letter_from_being_moved,
    a_redrive_policy_is_checked_and_can_be_removed,
}

const SOURCE: &str = "arn:aws:sqs:us-east-1:000000000000:orders";
const DEAD: &str = "arn:aws:sqs:us-east-1:000000000000:orders-dead";

async fn queues(dwell: &Broker, max_receive_count: u32) -> Outcome<(String, String)> {
    let dead = dwell.queue("orders-dead", json!({})).await?;
    let policy = json!({"deadLetterTargetArn": DEAD, "maxReceiveCount": max_receive_count}).to_string();
    Ok((dwell.queue("orders", json!({"RedrivePolicy": policy})).await?, dead))
}

async fn a_message_that_is_received_too_often_goes_to_the_dead_letter_queue(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let (url, dead) = queues(&dwell, 2).await?;
    let attributes = json!({"n": {"DataType": "String", "StringValue": "v"}});
    let send = json!({"QueueUrl": url, "MessageBody": "x", "MessageAttributes": attributes, "MessageGroupId": "g"});
    dwell.tell("SendMessage", send).await?;
    for _ in 0..2 {
        dwell.receive(&url, json!({"VisibilityTimeout": 1})).await?;
    }
    let all = json!({"MessageSystemAttributeNames": ["All"], "MessageAttributeNames": ["All"]});
    let received = dwell.receive(&dead, all).await?;
    let system = &received["Attributes"];
    assert_eq!((&received["Body"], &received["MessageAttributes"]), (&json!("x"), &attributes));
    assert_eq!(
        (&system["DeadLetterQueueSourceArn"], &system["ApproximateReceiveCount"], &system["MessageGroupId"]),
        (&json!(SOURCE), &json!("3"), &json!("g"))
    );
    let sources = dwell.tell("ListDeadLetterSourceQueues", json!({"QueueUrl": dead})).await?;
    assert_eq!(sources, json!({"queueUrls": [url]}));
    assert_eq!(dwell.tell("ReceiveMessage", json!({"QueueUrl": url})).await?, json!({}));
    Ok(())
}

async fn dead_letters_are_moved_back(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let (url, dead) = queues(&dwell, 1).await?;
    for body in ["a", "b"] {
        dwell.tell("SendMessage", json!({"QueueUrl": url, "MessageBody": body})).await?;
        dwell.receive(&url, json!({"VisibilityTimeout": 0})).await?;
    }
    dwell.visible(&dead, 2).await?;
    let started = dwell.tell("StartMessageMoveTask", json!({"SourceArn": DEAD})).await?;
    let list = async || {
        let listed = dwell.tell("ListMessageMoveTasks", json!({"SourceArn": DEAD})).await;
        let listed = listed.map_err(|error| dwell::model::error::Error::bug(error.to_string()))?;
        Ok(Some(listed["Results"][0].clone()).filter(|run| run["Status"] == "COMPLETED"))
    };
    let run = eventually("the messages are moved", list).await?;
    assert_eq!((&run["ApproximateNumberOfMessagesMoved"], &run["SourceArn"]), (&json!(2), &json!(DEAD)));
    let mut bodies = Vec::new();
    for _ in 0..2 {
        bodies.push(text(&dwell.receive(&url, json!({})).await?["Body"]));
    }
    bodies.sort();
    assert_eq!(bodies, ["a", "b"]);
    let cancel = json!({"TaskHandle": started["TaskHandle"]});
    let (shape, _, why) = dwell.refused("CancelMessageMoveTask", cancel).await?;
    assert_eq!((shape.as_str(), why.as_str()), ("ResourceNotFoundException", "Task does not exist."));
    for (ask, why) in [
        (
            json!({"SourceArn": "arn:aws:sqs:r:0:absent"}),
            "The resource that you specified for the SourceArn parameter doesn't exist.",
        ),
        (json!({"SourceArn": SOURCE}), "Source queue must be configured as a Dead Letter Queue."),
        (
            json!({"SourceArn": DEAD, "DestinationArn": "arn:aws:sqs:r:0:absent"}),
            "The resource that you specified for the DestinationArn parameter doesn't exist.",
        ),
        (
            json!({"SourceArn": DEAD, "DestinationArn": DEAD}),
            "Source queue arn and destination queue arn cannot be the same.",
        ),
    ] {
        assert_eq!(dwell.refused("StartMessageMoveTask", ask).await?.2, why);
    }
    Ok(())
}

/// The id that a move would give, if it followed from what everybody sees.
fn guessed(queue: &str, id: &str, sent_ms: u64) -> String {
    let mut digest = sha1_smol::Sha1::new();
    for part in [b"move", queue.as_bytes(), id.as_bytes(), &sent_ms.to_be_bytes()] {
        digest.update(&(part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    let mut bytes = digest.digest().bytes();
    (bytes[6], bytes[8]) = (bytes[6] & 0x0f | 0x50, bytes[8] & 0x3f | 0x80);
    let hex: String = bytes[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

async fn a_guessed_id_does_not_keep_a_dead_letter_from_being_moved(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let (url, dead) = queues(&dwell, 1).await?;
    dwell.tell("SendMessage", json!({"QueueUrl": url, "MessageBody": "x"})).await?;
    dwell.receive(&url, json!({"VisibilityTimeout": 0})).await?;
    let seen = dwell.receive(&dead, json!({"AttributeNames": ["All"], "VisibilityTimeout": 0})).await?;
    let sent_ms = text(&seen["Attributes"]["SentTimestamp"]).parse()?;
    let id = guessed("orders-dead", &text(&seen["MessageId"]), sent_ms);
    let target = format!("{}/v1/topics/orders/messages?id={id}&delay=1h", dwell.base);
    assert_eq!(dwell.client.post(target).body("first").send().await?.status(), 201);
    let started = dwell.tell("StartMessageMoveTask", json!({"SourceArn": DEAD})).await?;
    assert_eq!(dwell.receive(&url, json!({})).await?["Body"], "x");
    // A handle is for the queue of its task.
    let other = STANDARD.decode(text(&started["TaskHandle"]))?;
    let other = STANDARD.encode(String::from_utf8(other)?.replace("orders-dead", "orders"));
    let (shape, ..) = dwell.refused("CancelMessageMoveTask", json!({"TaskHandle": other})).await?;
    assert_eq!(shape, "ResourceNotFoundException");
    Ok(())
}

async fn a_redrive_policy_is_checked_and_can_be_removed(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let (url, _) = queues(&dwell, 7).await?;
    let policy = async || {
        let shown =
            dwell.tell("GetQueueAttributes", json!({"QueueUrl": url, "AttributeNames": ["RedrivePolicy"]})).await?;
        let policy = text(&shown["Attributes"]["RedrivePolicy"]);
        Ok::<_, Box<dyn std::error::Error>>(serde_json::from_str(&policy).unwrap_or(Value::Null))
    };
    let expected = json!({"deadLetterTargetArn": DEAD, "maxReceiveCount": 7});
    assert_eq!(policy().await?, expected);
    let same = json!({"deadLetterTargetArn": DEAD, "maxReceiveCount": "7"}).to_string();
    assert_eq!(dwell.queue("orders", json!({"RedrivePolicy": same})).await?, url);
    let set = |policy: String| json!({"QueueUrl": url, "Attributes": {"RedrivePolicy": policy}});
    let wrong = json!({"deadLetterTargetArn": DEAD, "maxReceiveCount": 1_001}).to_string();
    let (.., why) = dwell.refused("SetQueueAttributes", set(wrong)).await?;
    let reason = "Invalid value for maxReceiveCount: 1001, valid values are from 1 to 1000 both inclusive.";
    assert!(
        why.starts_with("Value {") && why.ends_with(&format!("RedrivePolicy is invalid. Reason: {reason}")),
        "{why}"
    );
    let absent = json!({"deadLetterTargetArn": "arn:aws:sqs:r:0:absent", "maxReceiveCount": 3}).to_string();
    assert_eq!(dwell.refused("SetQueueAttributes", set(absent)).await?.0, "QueueDoesNotExist");
    assert_eq!(policy().await?, expected);
    dwell.tell("SetQueueAttributes", set(String::new())).await?;
    assert_eq!(policy().await?, Value::Null);
    Ok(())
}
