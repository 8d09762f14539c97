//! The SDK of Rust against a broker: attributes, typed errors, a delay, batches. The endpoint comes from the environment.

use std::collections::BTreeSet;
use std::error::Error;
use std::time::{Duration, Instant};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Config, Credentials, Region};
use aws_sdk_sqs::types::{DeleteMessageBatchRequestEntry, MessageAttributeValue, SendMessageBatchRequestEntry};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("any", "any", None, None, "check"))
        .endpoint_url(std::env::var("SQS_ENDPOINT")?)
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .build();
    let client = Client::from_conf(config);
    let name = format!("rust-{}", fastrand::u64(..));
    let missing = client.get_queue_url().queue_name(&name).send().await.err().ok_or("a missing queue was found")?;
    assert!(missing.into_service_error().is_queue_does_not_exist(), "a missing queue is a typed error");
    let url = client.create_queue().queue_name(&name).send().await?.queue_url.ok_or("a queue has no URL")?;
    tokio::time::timeout(Duration::from_secs(120), attributes_and_a_delay(&client, &url)).await??;
    tokio::time::timeout(Duration::from_secs(120), batches(&client, &url)).await??;
    println!("rust: typed errors, attributes, a delay, batches ... ok");
    Ok(())
}

async fn attributes_and_a_delay(client: &Client, url: &str) -> Outcome {
    let (began, count) =
        (Instant::now(), MessageAttributeValue::builder().data_type("Number.int").string_value("42").build()?);
    let send = client.send_message().queue_url(url).message_body("grüße 🚀").delay_seconds(1);
    send.message_attributes("Count", count.clone()).send().await?;
    let receive = client.receive_message().queue_url(url).wait_time_seconds(10).message_attribute_names("All");
    let message = receive.send().await?.messages.unwrap_or_default().pop().ok_or("nothing came")?;
    assert!(began.elapsed() >= Duration::from_secs(1), "the delay is kept");
    assert_eq!(message.body(), Some("grüße 🚀"));
    assert_eq!(message.message_attributes().and_then(|all| all.get("Count")), Some(&count));
    let receipt = message.receipt_handle().ok_or("a message has no receipt handle")?;
    client.delete_message().queue_url(url).receipt_handle(receipt).send().await?;
    Ok(())
}

async fn batches(client: &Client, url: &str) -> Outcome {
    let bodies: BTreeSet<String> = (0..10).map(|n| n.to_string()).collect();
    let entry = |body: &String| SendMessageBatchRequestEntry::builder().id(body).message_body(body).build();
    let entries = bodies.iter().map(entry).collect::<Result<_, _>>()?;
    let sent = client.send_message_batch().queue_url(url).set_entries(Some(entries)).send().await?;
    assert_eq!((sent.successful().len(), sent.failed().len()), (10, 0));
    let mut left = bodies;
    while !left.is_empty() {
        let receive = client.receive_message().queue_url(url).max_number_of_messages(10).wait_time_seconds(10);
        let messages = receive.send().await?.messages.unwrap_or_default();
        let entry = |(n, message): (usize, &aws_sdk_sqs::types::Message)| {
            let handle = message.receipt_handle().unwrap_or_default();
            DeleteMessageBatchRequestEntry::builder().id(n.to_string()).receipt_handle(handle).build()
        };
        let entries = messages.iter().enumerate().map(entry).collect::<Result<_, _>>()?;
        let deleted = client.delete_message_batch().queue_url(url).set_entries(Some(entries)).send().await?;
        assert_eq!(deleted.successful().len(), messages.len());
        for message in &messages {
            assert!(left.remove(message.body().unwrap_or_default()), "{message:?} came twice");
        }
    }
    Ok(())
}
