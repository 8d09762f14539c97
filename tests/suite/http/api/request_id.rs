//! The name of a request: on every answer, and in every problem.

use serde_json::json;

use super::served::{Outcome, Served};

/// The name on an answer, and in its body.
async fn names(dwell: &Served, line: &str, given: &[&str]) -> Outcome<(u16, String, Option<String>)> {
    let mut request = dwell.request(line)?;
    for name in given {
        request = request.header("Dwell-Request-Id", *name);
    }
    let response = dwell.driven(request.send()).await??;
    let status = response.status().as_u16();
    let named = response.headers().get_all("dwell-request-id").iter().collect::<Vec<_>>();
    let [name] = named.as_slice() else { return Err(format!("one name: {named:?}").into()) };
    let name = name.to_str()?.to_owned();
    let body: serde_json::Value = serde_json::from_slice(&response.bytes().await?).unwrap_or_default();
    Ok((status, name, body["request_id"].as_str().map(str::to_owned)))
}

#[tokio::test]
async fn every_response_has_the_given_or_a_new_request_id() -> Outcome {
    let dwell = Served::start().await?;
    dwell.tell("PUT /v1/topics/orders", json!({})).await?;
    for (line, status) in [
        ("GET /livez", 200),
        ("GET /metrics", 200),
        ("GET /v1/topics/orders", 200),
        ("GET /v1/topics/absent", 404),
        ("GET /nowhere", 404),
        ("PATCH /v1/topics/orders", 405),
        ("POST /v1/topics/orders/groups/default/stream?max_in_flight=0", 422),
    ] {
        let in_problem = |name: &str| (status >= 400).then(|| name.to_owned());
        let given = names(&dwell, line, &["checkout-7:3.x"]).await?;
        assert_eq!(given, (status, "checkout-7:3.x".to_owned(), in_problem("checkout-7:3.x")), "{line}");
        let (_, made, in_body) = names(&dwell, line, &[]).await?;
        assert!(made.len() == 26 && in_body == in_problem(&made), "{line}: {made} {in_body:?}");
    }
    Ok(())
}

#[tokio::test]
async fn invalid_request_id_is_replaced() -> Outcome {
    let dwell = Served::start().await?;
    let long = "x".repeat(129);
    for given in [&["a b"][..], &["a\tb"], &["{\"level\":\"error\"}"], &[""], &[long.as_str()], &["a", "b"]] {
        let (status, made, _) = names(&dwell, "GET /livez", given).await?;
        assert!(status == 200 && made.len() == 26, "{given:?}: {status} {made}");
    }
    Ok(())
}

#[tokio::test]
async fn responses_have_no_store_and_nosniff() -> Outcome {
    let dwell = Served::start().await?;
    let lines =
        ["GET /v1/topics", "GET /livez", "GET /metrics", "GET /nothing", "PUT /v1/topics/orders", "POST /livez"];
    for line in lines.into_iter().chain(["POST /v1/topics/orders/groups/default/stream", "GET /openapi.json"]) {
        let answer = dwell.driven(dwell.request(line)?.send()).await??;
        let header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        assert_eq!(header("x-content-type-options").as_deref(), Some("nosniff"), "{line}");
        // A proxy that compresses a stream would hold it back.
        let cache = if line.ends_with("/stream") { "no-store, no-transform" } else { "no-store" };
        assert_eq!(header("cache-control").as_deref(), Some(cache), "{line}");
    }
    // A file of the console may be kept, and is looked for anew.
    let page = dwell.request("GET /ui/")?.send().await?;
    assert_eq!(page.headers().get("cache-control").map(|value| value.as_bytes()), Some(&b"no-cache"[..]));
    Ok(())
}
