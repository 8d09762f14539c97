//! Queues: created, described, changed, listed and deleted.

use serde_json::{Value, json};

use super::{Broker, Outcome, Store, stories, text};

stories! {
    a_queue_is_created_once_and_another_attribute_is_refused,
    attributes_are_shown_and_changed,
    tags_and_permissions_are_kept,
    queues_are_listed_in_pages,
    deleted_queue_does_not_exist,
    strict_limits_are_those_of_aws,
    queues_are_created_by_messages_if_that_is_allowed,
}

async fn a_queue_is_created_once_and_another_attribute_is_refused(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let create = |attributes: Value| json!({"QueueName": "orders", "Attributes": attributes});
    let first = dwell.tell("CreateQueue", create(json!({"DelaySeconds": "5", "SqsManagedSseEnabled": "TRUE"}))).await?;
    for same in [json!({}), json!({"DelaySeconds": "5"}), json!({"SqsManagedSseEnabled": "true", "Policy": ""})] {
        assert_eq!(dwell.tell("CreateQueue", create(same)).await?, first);
    }
    let (shape, code, why) = dwell.refused("CreateQueue", create(json!({"DelaySeconds": "6"}))).await?;
    assert_eq!((shape.as_str(), code.as_str()), ("QueueNameExists", "QueueAlreadyExists"));
    assert_eq!(why, "A queue already exists with the same name and a different value for attribute DelaySeconds");
    for (attributes, shape, part) in [
        (json!({"Unknown": "1"}), "InvalidAttributeName", "Unknown Attribute Unknown."),
        (json!({"QueueArn": "x"}), "InvalidAttributeName", "Unknown Attribute QueueArn."),
        (json!({"DelaySeconds": "901"}), "InvalidAttributeValue", "DelaySeconds"),
        (json!({"VisibilityTimeout": "x"}), "InvalidAttributeValue", "VisibilityTimeout"),
        (json!({"FifoQueue": "true"}), "InvalidParameterValueException", "must end with .fifo suffix"),
        (json!({"FifoQueue": "false"}), "InvalidAttributeName", "Unknown Attribute FifoQueue."),
        (json!({"DeduplicationScope": "queue"}), "InvalidAttributeName", "only when FifoQueue is set to true."),
        (json!({"RedrivePolicy": "{"}), "InvalidParameterValueException", "not a valid JSON map"),
    ] {
        let refused = dwell.refused("CreateQueue", json!({"QueueName": "other", "Attributes": attributes})).await?;
        assert!(refused.0 == shape && refused.2.contains(part), "{attributes}: {refused:?}");
    }
    for name in ["", "a.b", "ö", &"a".repeat(81)] {
        let (.., why) = dwell.refused("CreateQueue", json!({"QueueName": name})).await?;
        assert_eq!(why, "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length");
    }
    Ok(())
}

async fn attributes_are_shown_and_changed(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let url = dwell.queue("orders", json!({"VisibilityTimeout": "7"})).await?;
    let get = async |names: &[&str]| {
        dwell.tell("GetQueueAttributes", json!({"QueueUrl": url, "AttributeNames": names})).await
    };
    assert_eq!(get(&[]).await?, json!({}));
    let all = get(&["All"]).await?;
    let mut all = all["Attributes"].as_object().cloned().unwrap_or_default();
    for name in ["CreatedTimestamp", "LastModifiedTimestamp"] {
        assert_eq!(all.remove(name).map(|value| text(&value).len()), Some(10), "{name}");
    }
    assert_eq!(
        Value::Object(all),
        json!({
            "ApproximateNumberOfMessages": "0", "ApproximateNumberOfMessagesDelayed": "0",
            "ApproximateNumberOfMessagesNotVisible": "0", "DelaySeconds": "0", "MaximumMessageSize": "1048576",
            "MessageRetentionPeriod": "345600", "QueueArn": "arn:aws:sqs:us-east-1:000000000000:orders",
            "ReceiveMessageWaitTimeSeconds": "0", "SqsManagedSseEnabled": "true", "VisibilityTimeout": "7",
        })
    );
    let set = async |attributes: Value| {
        dwell.tell("SetQueueAttributes", json!({"QueueUrl": url, "Attributes": attributes})).await
    };
    set(json!({"VisibilityTimeout": "0", "Policy": "{}", "MessageRetentionPeriod": "60"})).await?;
    let names = ["VisibilityTimeout", "Policy", "MessageRetentionPeriod"];
    let expected = json!({"VisibilityTimeout": "0", "Policy": "{}", "MessageRetentionPeriod": "60"});
    assert_eq!(get(&names).await?["Attributes"], expected);
    set(json!({"Policy": "", "VisibilityTimeout": "43200"})).await?;
    assert_eq!(get(&names).await?["Attributes"], json!({"VisibilityTimeout": "43200", "MessageRetentionPeriod": "60"}));
    for name in ["FifoQueue", "Nothing"] {
        let refused = dwell.refused("GetQueueAttributes", json!({"QueueUrl": url, "AttributeNames": [name]})).await?;
        assert_eq!((refused.0.as_str(), refused.2), ("InvalidAttributeName", format!("Unknown Attribute {name}.")));
    }
    let absent = dwell.refused("GetQueueAttributes", json!({"QueueUrl": "absent", "AttributeNames": ["All"]})).await?;
    assert_eq!((absent.0.as_str(), absent.2.as_str()), ("QueueDoesNotExist", "The specified queue does not exist."));
    Ok(())
}

async fn tags_and_permissions_are_kept(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let created = dwell.tell("CreateQueue", json!({"QueueName": "orders", "tags": {"team": "a"}})).await?;
    let url = &created["QueueUrl"];
    dwell.tell("TagQueue", json!({"QueueUrl": url, "Tags": {"team": "b", "env": "test"}})).await?;
    let tags = async || dwell.tell("ListQueueTags", json!({"QueueUrl": url})).await;
    assert_eq!(tags().await?, json!({"Tags": {"team": "b", "env": "test"}}));
    dwell.tell("UntagQueue", json!({"QueueUrl": url, "TagKeys": ["team", "env", "absent"]})).await?;
    assert_eq!(tags().await?, json!({}));
    let add = json!({"QueueUrl": url, "Label": "l", "AWSAccountIds": ["1"], "Actions": ["SendMessage"]});
    dwell.tell("AddPermission", add.clone()).await?;
    let (.., why) = dwell.refused("AddPermission", add).await?;
    assert_eq!(why, "Value l for parameter Label is invalid. Reason: Already exists.");
    let policy = async || {
        let shown = dwell.tell("GetQueueAttributes", json!({"QueueUrl": url, "AttributeNames": ["Policy"]})).await?;
        Ok::<_, Box<dyn std::error::Error>>(
            serde_json::from_str(&text(&shown["Attributes"]["Policy"])).unwrap_or(Value::Null),
        )
    };
    let shown = policy().await?;
    assert_eq!(
        (&shown["Statement"][0]["Sid"], &shown["Statement"][0]["Action"]),
        (&json!("l"), &json!("SQS:SendMessage"))
    );
    dwell.tell("RemovePermission", json!({"QueueUrl": url, "Label": "l"})).await?;
    assert_eq!(policy().await?, Value::Null);
    let (.., why) = dwell.refused("RemovePermission", json!({"QueueUrl": url, "Label": "l"})).await?;
    assert_eq!(why, "Value l for parameter Label is invalid. Reason: can't find label.");
    Ok(())
}

async fn queues_are_listed_in_pages(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    assert_eq!(dwell.tell("ListQueues", json!({})).await?, json!({}));
    let mut urls = Vec::new();
    for name in ["a-1", "a-2", "a-3", "b-1"] {
        urls.push(dwell.queue(name, json!({})).await?);
    }
    // A topic with another name is none of theirs.
    let native = format!("{}/v1/topics/a.native", dwell.base);
    assert_eq!(dwell.client.put(native).json(&json!({})).send().await?.status().as_u16(), 201);
    assert_eq!(dwell.tell("ListQueues", json!({})).await?, json!({"QueueUrls": urls}));
    let ask = json!({"QueueNamePrefix": "a-", "MaxResults": 2});
    let page = dwell.tell("ListQueues", ask.clone()).await?;
    assert_eq!(page["QueueUrls"], json!(urls[..2]));
    let mut next = ask;
    next["NextToken"] = page["NextToken"].clone();
    assert_eq!(dwell.tell("ListQueues", next).await?, json!({"QueueUrls": [urls[2]]}));
    Ok(())
}

async fn deleted_queue_does_not_exist(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    let url = dwell.queue("orders", json!({})).await?;
    dwell.tell("SendMessage", json!({"QueueUrl": url, "MessageBody": "x"})).await?;
    let handle = dwell.receive(&url, json!({})).await?["ReceiptHandle"].clone();
    dwell.tell("DeleteQueue", json!({"QueueUrl": url})).await?;
    for (action, more) in [
        ("GetQueueUrl", json!({"QueueName": "orders"})),
        ("SendMessage", json!({"QueueUrl": url, "MessageBody": "x"})),
        ("ReceiveMessage", json!({"QueueUrl": url})),
        ("DeleteMessage", json!({"QueueUrl": url, "ReceiptHandle": handle})),
        ("DeleteQueue", json!({"QueueUrl": url})),
    ] {
        assert_eq!(dwell.refused(action, more).await?.0, "QueueDoesNotExist", "{action}");
    }
    assert_eq!(dwell.queue("orders", json!({})).await?, url);
    let (shape, ..) = dwell.refused("DeleteMessage", json!({"QueueUrl": url, "ReceiptHandle": handle})).await?;
    assert_eq!(shape, "ReceiptHandleIsInvalid");
    assert_eq!(dwell.tell("ReceiveMessage", json!({"QueueUrl": url})).await?, json!({}));
    Ok(())
}

async fn strict_limits_are_those_of_aws(store: &Store) -> Outcome {
    let strict = |sqs: &mut dwell::sqs::SqsOptions| (sqs.strict, sqs.celery_eta) = (true, true);
    let dwell = Broker::start_with(store, |options| options.sqs.iter_mut().for_each(strict)).await?;
    let url = dwell.queue("orders", json!({})).await?;
    let send = |secs: i64| json!({"QueueUrl": url, "MessageBody": "x", "DelaySeconds": secs});
    dwell.tell("SendMessage", send(900)).await?;
    for wrong in [901, -1] {
        let (.., why) = dwell.refused("SendMessage", send(wrong)).await?;
        let expected = "parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and <= 900.";
        assert_eq!(why, format!("Value {wrong} for {expected}"));
    }
    // The eta of a message of Celery is a delay, too.
    let task = json!({"headers": {"task": "t", "eta": "2091-01-02T03:04:05+00:00"}, "body": "W10=", "properties": {}});
    let entry = |id: &str, body: String| json!({"Id": id, "MessageBody": body});
    let entries = [entry("now", "x".to_owned()), entry("late", task.to_string())];
    let sent = dwell.tell("SendMessageBatch", json!({"QueueUrl": url, "Entries": entries})).await?;
    assert_eq!((&sent["Successful"][0]["Id"], &sent["Failed"][0]["Id"]), (&json!("now"), &json!("late")), "{sent}");
    dwell.tell("DeleteQueue", json!({"QueueUrl": url})).await?;
    assert_eq!(dwell.refused("CreateQueue", json!({"QueueName": "orders"})).await?.0, "QueueDeletedRecently");
    Ok(())
}

async fn queues_are_created_by_messages_if_that_is_allowed(store: &Store) -> Outcome {
    let dwell = Broker::start(store).await?;
    assert_eq!(
        dwell.refused("SendMessage", json!({"QueueUrl": "new", "MessageBody": "x"})).await?.0,
        "QueueDoesNotExist"
    );
    drop(dwell);
    let creating = |sqs: &mut dwell::sqs::SqsOptions| sqs.auto_create = true;
    let dwell = Broker::start_with(store, |options| options.sqs.iter_mut().for_each(creating)).await?;
    dwell.tell("SendMessage", json!({"QueueUrl": "new", "MessageBody": "x"})).await?;
    dwell.tell("GetQueueUrl", json!({"QueueName": "newer"})).await?;
    assert_eq!(dwell.receive("new", json!({})).await?["Body"], "x");
    Ok(())
}
