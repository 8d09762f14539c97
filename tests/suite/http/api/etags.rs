//! What a created resource says of itself: where it is, and for a topic which version of it.

use serde_json::json;

use super::served::{Outcome, Served};

#[tokio::test]
async fn every_created_resource_has_a_working_location() -> Outcome {
    let dwell = Served::start().await?;
    let location = async |line: &str, body: serde_json::Value| -> Outcome<Option<String>> {
        let answer = dwell.driven(dwell.request(line)?.json(&body).send()).await??;
        assert!(answer.status().is_success(), "{line}: {answer:?}");
        let location = answer.headers().get("location").map(|value| value.to_str().map(str::to_owned)).transpose()?;
        assert_eq!(location.is_some(), answer.status() == 201, "{line}: {answer:?}");
        Ok(location)
    };
    let cases = [
        ("PUT /v1/topics/orders", json!({}), "/v1/topics/orders"),
        ("PUT /v1/topics/orders/groups/audit", json!({}), "/v1/topics/orders/groups/audit"),
        (
            "PUT /v1/topics/orders/cron/nightly",
            json!({"every": "1h", "payload": "a"}),
            "/v1/topics/orders/cron/nightly",
        ),
        (
            "POST /v1/topics/orders/messages",
            json!({"payload": "a", "id": "a/b?c", "delay": "1h"}),
            "/v1/topics/orders/messages/a%2Fb%3Fc",
        ),
    ];
    for (line, body, expected) in cases {
        assert_eq!(location(line, body.clone()).await?.as_deref(), Some(expected), "{line}");
        let got = dwell.ask(&format!("GET {expected}")).await?;
        assert_eq!(got.status, 200, "{line}: {got:?}");
        assert_eq!(location(line, body).await?, None, "it is there: {line}");
    }
    Ok(())
}

/// The status of a request about the topic `orders`, and its `ETag`.
async fn ask(dwell: &Served, method: &str, body: &str, if_match: Option<&str>) -> Outcome<(u16, Option<String>)> {
    let mut request = dwell.request(&format!("{method} /v1/topics/orders"))?.body(body.to_owned());
    if let Some(tag) = if_match {
        request = request.header("if-match", tag);
    }
    let answer = dwell.driven(request.send()).await??;
    let status = answer.status().as_u16();
    let tag = answer.headers().get("etag").map(|tag| tag.to_str().map(str::to_owned)).transpose()?;
    if status == 412 {
        let problem: serde_json::Value = serde_json::from_slice(&answer.bytes().await?)?;
        assert_eq!(problem["type"], "urn:dwell:error:precondition-failed", "{problem}");
    }
    Ok((status, tag))
}

#[tokio::test]
async fn topic_update_honours_if_match() -> Outcome {
    let dwell = Served::start().await?;
    assert_eq!(ask(&dwell, "PUT", "{}", Some("*")).await?.0, 412, "there is none");
    let (status, first) = ask(&dwell, "PUT", "{}", None).await?;
    let first = first.ok_or("no ETag")?;
    assert_eq!(status, 201);
    assert_eq!(ask(&dwell, "GET", "", None).await?, (200, Some(first.clone())));
    assert_eq!(ask(&dwell, "PUT", "{}", Some(&first)).await?, (200, Some(first.clone())), "nothing changed");

    let (status, second) = ask(&dwell, "PUT", r#"{"max_attempts": 3}"#, Some(&first)).await?;
    let second = second.ok_or("no ETag")?;
    assert!(status == 200 && second != first, "{second}");
    assert_eq!(ask(&dwell, "PUT", r#"{"max_attempts": 4}"#, Some(&first)).await?.0, 412);
    assert_eq!(ask(&dwell, "GET", "", None).await?, (200, Some(second.clone())));
    // A group is a part of the topic.
    dwell.tell("PUT /v1/topics/orders/groups/audit", json!({})).await?;
    assert_eq!(ask(&dwell, "DELETE", "", Some(&second)).await?.0, 412);
    let (_, third) = ask(&dwell, "GET", "", None).await?;
    assert_eq!(ask(&dwell, "PUT", "{}", Some("3")).await?.0, 422);
    assert_eq!(ask(&dwell, "DELETE", "", Some(&third.ok_or("no ETag")?)).await?.0, 204);
    assert_eq!(ask(&dwell, "DELETE", "", Some("*")).await?.0, 404);
    Ok(())
}
