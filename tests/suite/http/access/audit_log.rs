//! What operators do is in the log of the real binary, and no token is.

use std::path::Path;
use std::time::Duration;

use dwell::model::error::Result;
use dwell::platform::https::{self, Roots};
use reqwest::Method;
use serde_json::{Value, json};

use super::{TOKENS, token};
use crate::http::api::served::Outcome;
use crate::support::{Process, eventually, scratch};

/// A configuration with all tokens, whose files are written beside it.
pub(super) fn configuration(dir: &Path) -> Outcome<String> {
    let mut text = String::new();
    for (name, token, scopes) in TOKENS {
        let file = dir.join(name);
        std::fs::write(&file, token)?;
        let scopes: Vec<_> = scopes.iter().map(|scope| scope.name()).collect();
        let table = format!("[[auth.token]]\nname = {name:?}\nfile = {:?}\nscopes = {scopes:?}\n", file.display());
        text.push_str(&table);
    }
    let path = dir.join("dwell.toml");
    std::fs::write(&path, text)?;
    Ok(path.display().to_string())
}

/// What is asked of the broker in a directory, and with which headers.
async fn asked(dir: &Path, line: &str, headers: &[(&str, &str)]) -> Outcome<u16> {
    let (method, target) = line.split_once(' ').ok_or("a method and a target")?;
    let socket = dir.join("dwell.sock");
    let client = https::client(&Roots::none())?
        .no_proxy()
        .unix_socket(socket.as_path())
        .timeout(Duration::from_secs(30))
        .build()?;
    let mut request = client.request(method.parse::<Method>()?, format!("http://dwell{target}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    Ok(request.send().await?.status().as_u16())
}

/// The audit lines of a log in JSON.
fn lines(dir: &Path) -> Vec<Value> {
    let log = std::fs::read_to_string(dir.join("dwell.log")).unwrap_or_default();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["target"] == "dwell::audit").collect()
}

async fn serve(dir: &Path, config: Option<&str>) -> Result<Process> {
    let mut settings = vec![("LOG_LEVEL", "info"), ("LOG_FORMAT", "json")];
    settings.extend(config.map(|config| ("CONFIG", config)));
    Process::serve(dir, &settings).await
}

#[tokio::test]
async fn admin_and_manual_actions_are_audited_without_tokens() -> Outcome {
    let dir = scratch()?;
    let dir = dir.path();
    let config = configuration(dir)?;
    let _process = serve(dir, Some(&config)).await?;
    let bearer = |name: &str| format!("Bearer {}", token(name));
    let (admin, producer) = (bearer("admin"), bearer("producer"));
    fn with(token: &str) -> [(&str, &str); 1] {
        [("authorization", token)]
    }
    let topic = "/v1/topics/orders";
    let cancel = format!("DELETE {topic}/messages/a");
    for (line, token, status) in [
        (format!("PUT {topic}"), &admin, 201),
        (format!("GET {topic}"), &admin, 200),
        (format!("POST {topic}/messages?id=a&delay=1h"), &producer, 201),
        (format!("POST {topic}/groups/default/pause"), &admin, 200),
        (format!("POST {topic}/groups/default/resume"), &producer, 403),
        (cancel.clone(), &producer, 200),
        (format!("DELETE {topic}/groups/x%0Ay"), &admin, 422),
    ] {
        assert_eq!(asked(dir, &line, &with(token)).await?, status, "{line}");
    }
    let nobody = "Bearer s3cret-of-nobody-here";
    assert_eq!(asked(dir, &format!("DELETE {topic}"), &with(nobody)).await?, 401);
    let by_hand = [("authorization", &*producer), ("user-agent", "dwell-cli/0.1.0"), ("dwell-request-id", "r-17")];
    assert_eq!(asked(dir, &cancel, &by_hand).await?, 200);
    let in_a_browser = [("authorization", &*admin), ("origin", "http://dwell"), ("host", "dwell")];
    assert_eq!(asked(dir, &cancel, &in_a_browser).await?, 200);

    let route = |rest: &str| format!("/v1/topics/{{topic}}{rest}");
    let expected = [
        json!({"actor": "admin", "method": "PUT", "route": route(""), "topic": "orders", "status": 201}),
        json!({"actor": "admin", "method": "POST", "route": route("/groups/{group}/pause"), "topic": "orders",
               "group": "default", "status": 200}),
        json!({"actor": "producer", "method": "POST", "route": route("/groups/{group}/resume"), "topic": "orders",
               "group": "default", "status": 403}),
        json!({"actor": "admin", "method": "DELETE", "route": route("/groups/{group}"), "topic": "orders", "status": 422}),
        json!({"actor": "producer", "method": "DELETE", "route": route("/messages/{id}"), "topic": "orders", "id": "a",
               "status": 200}),
        json!({"actor": "admin", "method": "DELETE", "route": route("/messages/{id}"), "topic": "orders", "id": "a",
               "status": 200}),
    ];
    eventually("the lines are written", async || Ok((lines(dir).len() >= expected.len()).then_some(()))).await?;
    for (line, expected) in lines(dir).iter().zip(expected) {
        assert_eq!((&line["level"], &line["message"]), (&json!("INFO"), &json!("done")), "{line}");
        for (name, value) in expected.as_object().ok_or("no fields")? {
            assert_eq!(&line[name], value, "{name} of {line}");
        }
        for name in ["topic", "group", "id", "cron"] {
            assert_eq!(line.get(name), expected.get(name), "{name} of {line}");
        }
    }
    assert_eq!(lines(dir)[4]["span"]["request_id"], "r-17", "{:?}", lines(dir)[4]);
    assert_eq!(lines(dir).len(), 6, "{:?}", lines(dir));
    let log = std::fs::read_to_string(dir.join("dwell.log"))?;
    assert!(!log.contains("s3cret"), "{log}");
    Ok(())
}

#[tokio::test]
async fn audit_actor_is_local_without_tokens() -> Outcome {
    let dir = scratch()?;
    let _process = serve(dir.path(), None).await?;
    assert_eq!(asked(dir.path(), "PUT /v1/topics/orders", &[]).await?, 201);
    eventually("the line is written", async || Ok((!lines(dir.path()).is_empty()).then_some(()))).await?;
    assert_eq!(lines(dir.path())[0]["actor"], "local");
    Ok(())
}

/// What `/v1` writes to the audit log is written there by whatever protocol it is asked for.
#[tokio::test]
async fn queues_made_with_settings_and_moves_of_messages_are_audited() -> Outcome {
    let dir = scratch()?;
    let dir = dir.path();
    let config = configuration(dir)?;
    let settings =
        [("LOG_LEVEL", "info"), ("LOG_FORMAT", "json"), ("SQS_ENABLED", "true"), ("CONFIG", config.as_str())];
    let _process = Process::serve(dir, &settings).await?;
    let arn = "arn%3Aaws%3Asqs%3Aus-east-1%3A000000000000%3Aorders";
    for (action, name, status) in [
        ("CreateQueue&QueueName=orders&Attribute.1.Name=DelaySeconds&Attribute.1.Value=1", "producer", 403),
        ("CreateQueue&QueueName=orders&Attribute.1.Name=DelaySeconds&Attribute.1.Value=1", "admin", 200),
        ("CreateQueue&QueueName=tagged&Tag.1.Key=a&Tag.1.Value=b", "admin", 200),
        ("CreateQueue&QueueName=plain", "producer", 200),
        ("CreateQueue&QueueName=plain.fifo&Attribute.1.Name=FifoQueue&Attribute.1.Value=true", "producer", 200),
        (&format!("StartMessageMoveTask&SourceArn={arn}"), "admin", 400),
        ("PurgeQueue&QueueUrl=http%3A%2F%2Fh%2F0%2Forders", "admin", 200),
    ] {
        let authorization = format!("Bearer {}", token(name));
        let form = ("content-type", "application/x-www-form-urlencoded");
        let seen = asked(dir, &format!("POST /?Action={action}"), &[("authorization", &authorization), form]).await?;
        assert_eq!(seen, status, "{action} of {name}");
    }
    let expected = [
        ("producer", "CreateQueue", "orders", 403),
        ("admin", "CreateQueue", "orders", 200),
        ("admin", "CreateQueue", "tagged", 200),
        ("admin", "StartMessageMoveTask", "orders", 400),
        ("admin", "PurgeQueue", "orders", 200),
    ];
    eventually("the lines are written", async || Ok((lines(dir).len() >= expected.len()).then_some(()))).await?;
    let seen: Vec<_> =
        lines(dir).iter().map(|line| json!([line["actor"], line["route"], line["topic"], line["status"]])).collect();
    let expected =
        expected.map(|(actor, action, topic, status)| json!([actor, format!("AmazonSQS.{action}"), topic, status]));
    assert_eq!(seen, expected);
    Ok(())
}
