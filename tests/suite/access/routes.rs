//! Every request of the protocol with every token: the table of the page is what is served.

use std::collections::BTreeMap;

use dwell::api::access::{Scope, Scopes};
use serde_json::Value;

use super::{TOKENS, asking, status, token};
use crate::http::served::{Outcome, Served};

const PAGE: &str = include_str!("../../../docs/reference/http-conventions.md");

/// What the page says that each request needs; `None` is nothing, and no scope is any token.
fn table() -> BTreeMap<String, Option<Scopes>> {
    let rows = PAGE.lines().skip_while(|line| *line != "| needs | requests |").skip(2);
    let mut needs = BTreeMap::new();
    for row in rows.take_while(|line| line.starts_with('|')) {
        let (need, requests) = row.trim_matches('|').split_once('|').unwrap_or_default();
        let scopes: Vec<Scope> =
            Scope::ALL.into_iter().filter(|scope| need.contains(&format!("`{}`", scope.name()))).collect();
        let need = (need.trim() != "nothing").then(|| Scopes::of(&scopes));
        for request in requests.split('`').skip(1).step_by(2).filter(|quoted| quoted.contains(' ')) {
            let request = request.replace('…', "/v1/topics/{topic}");
            assert!(needs.insert(request.clone(), need).is_none(), "{request} is there twice");
        }
    }
    needs
}

/// Every request that is served, as in `GET /v1/topics`.
fn served() -> Vec<String> {
    let document = dwell::api::http::openapi();
    let mut requests = Vec::new();
    for (path, item) in document["paths"].as_object().into_iter().flatten() {
        let methods = item.as_object().into_iter().flatten().map(|(method, _)| method.to_uppercase());
        requests.extend(methods.map(|method| format!("{method} {path}")));
    }
    requests.sort();
    requests
}

/// A request of the protocol about what is not there.
fn absent(request: &str) -> String {
    let names = [("{topic}", "absent"), ("{group}", "absent"), ("{id}", "absent"), ("{name}", "absent")];
    names.iter().fold(request.to_owned(), |line, (name, value)| line.replace(name, value))
}

async fn refused(dwell: &Served, line: &str, authorization: Option<&str>) -> Outcome<(u16, Option<String>, Value)> {
    let mut request = dwell.request(line)?;
    if let Some(authorization) = authorization {
        request = request.header("authorization", authorization);
    }
    let response = dwell.driven(request.send()).await??;
    let asks = response.headers().get("www-authenticate").and_then(|value| value.to_str().ok()).map(str::to_owned);
    Ok((response.status().as_u16(), asks, serde_json::from_slice(&response.bytes().await?)?))
}

#[tokio::test]
async fn every_route_enforces_the_documented_scopes() -> Outcome {
    let (needs, (dwell, _dir)) = (table(), asking().await?);
    assert_eq!(needs.keys().cloned().collect::<Vec<_>>(), served());
    for (request, need) in &needs {
        let line = absent(request);
        let Some(needed) = need else {
            assert_eq!(status(&dwell, &line, None).await?, 200, "{line}");
            continue;
        };
        for unknown in [None, Some("Bearer"), Some("Bearer s3cret-of-nobody-here"), Some("Basic czNjcmV0")] {
            let (status, asks, problem) = refused(&dwell, &line, unknown).await?;
            assert_eq!((status, asks.as_deref()), (401, Some("Bearer")), "{line}: {problem}");
            assert_eq!(problem["type"], "urn:dwell:error:unauthorized", "{line}");
            assert!(!problem.to_string().contains("s3cret"), "{line}: {problem}");
        }
        for (name, token, scopes) in TOKENS {
            let bearer = format!("Bearer {token}");
            if need == &Some(Scopes::of(&[])) || Scopes::of(scopes).grant(*needed) {
                let status = status(&dwell, &line, Some(&bearer)).await?;
                assert!(status != 401 && status != 403, "{line} of {name}: {status}");
                continue;
            }
            let (status, asks, problem) = refused(&dwell, &line, Some(&bearer)).await?;
            assert_eq!((status, asks), (403, None), "{line} of {name}: {problem}");
            assert_eq!(problem["type"], "urn:dwell:error:scope-missing", "{line} of {name}");
            let said = format!("this needs a token with the scope {needed}; `{name}` has ");
            assert!(problem["detail"].as_str().is_some_and(|detail| detail.starts_with(&said)), "{line}: {problem}");
            assert!(!problem.to_string().contains("s3cret"), "{line}: {problem}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn unknown_route_is_404_only_with_a_token() -> Outcome {
    let (dwell, _dir) = asking().await?;
    let producer = format!("Bearer {}", token("producer"));
    for (line, known) in [("GET /v2/topics", 404), ("POST /nowhere", 404), ("GET /v1/topics/", 404)] {
        assert_eq!(status(&dwell, line, None).await?, 401, "{line}");
        assert_eq!(status(&dwell, line, Some(&producer)).await?, known, "{line}");
    }
    // The console is no part of the protocol; its files need no token, and nothing but its files.
    assert!(![401, 403].contains(&status(&dwell, "GET /ui/", None).await?));
    for line in ["POST /", "POST /ui/", "GET /uix", "GET /ui/../v1/topics", "GET //ui/", "GET /v1/topics?/ui/"] {
        assert_eq!(status(&dwell, line, None).await?, 401, "{line}");
    }
    Ok(())
}

#[tokio::test]
async fn bearer_token_must_be_single_and_exact() -> Outcome {
    let (dwell, _dir) = asking().await?;
    let admin = token("admin");
    for good in [format!("Bearer {admin}"), format!("bearer {admin}"), format!("BEARER   {admin}")] {
        assert_eq!(status(&dwell, "GET /v1/topics", Some(&good)).await?, 200, "{good}");
    }
    for bad in [admin.to_owned(), format!("Bearer {admin}x"), format!("Bearer {}", admin.to_uppercase())] {
        assert_eq!(status(&dwell, "GET /v1/topics", Some(&bad)).await?, 401, "{bad}");
    }
    assert_eq!(status(&dwell, &format!("GET /v1/topics?access_token={admin}"), None).await?, 401);
    let twice = dwell.request("GET /v1/topics")?.bearer_auth(admin).header("authorization", "Bearer other");
    assert_eq!(dwell.driven(twice.send()).await??.status().as_u16(), 400);
    Ok(())
}

/// The answer arrives although the body of the request was not read.
#[tokio::test]
async fn large_push_without_a_token_gets_401() -> Outcome {
    let (dwell, _dir) = asking().await?;
    for _ in 0..8 {
        let request = dwell.request("POST /v1/topics/orders/messages/batch")?.body(vec![b' '; 4 * 1024 * 1024]);
        let answer = dwell.send(request).await?;
        assert_eq!((answer.status, answer.content_type.as_str()), (401, "application/problem+json"));
    }
    Ok(())
}
