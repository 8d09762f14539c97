//! Leases that name an address which no broker of this store has: whoever writes to Redis may put anything there.

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use dwell::error::Result;
use dwell::limits::{MEMBER_BYTES_MAX, PEER_ANSWER_BYTES_MAX};
use serde_json::{Value, json};

use super::fleet::{Fleet, ORDERS, declare};
use super::sidecar::Sidecar;
use crate::support::{Application, Posts, RedisServer};

/// With the tag of the group `default` of the topic `orders`.
const RECEIPT: &str = "0.7.abcdefghijkl.3.c5590c26";

/// A broker that owns nothing, and somebody else who listens on this machine.
async fn beside_a_stranger(advertise: &str) -> Result<(Fleet, Sidecar, Application, Posts)> {
    let fleet = Fleet::of(RedisServer::start().await?).await?;
    let dwell = fleet.start_with("a", &[("DWELL_GROUP_ADVERTISE", advertise)]).await?;
    declare(&dwell, ORDERS, 1).await?;
    let (stranger, posts) = Application::told().await?;
    Ok((fleet, dwell, stranger, posts))
}

async fn lease(fleet: &Fleet, holder: &str) -> Result<()> {
    fleet.redis.ask::<()>(&format!("SET {{dwell:{ORDERS}:0}}:default:lease {holder} PX 60000")).await
}

async fn ack(dwell: &Sidecar) -> Result<Value> {
    let answer = dwell.tell("POST /v1/topics/orders/groups/default/ack", &json!({"receipts": [RECEIPT]})).await?;
    Ok(answer["results"][0].clone())
}

#[tokio::test]
async fn an_address_that_is_not_as_near_as_the_own_one_is_not_used() -> Result<()> {
    for advertise in ["unix:/run/dwell/a.sock", "http://10.0.0.1:7373"] {
        let (fleet, dwell, stranger, posts) = beside_a_stranger(advertise).await?;
        let here = format!("http://127.0.0.1:{}", stranger.port());
        let long = format!("{}@{here}", "x".repeat(MEMBER_BYTES_MAX));
        for holder in [format!("x-1@{here}"), format!("x-1@{here}/a"), format!("x-1@http://u:p@{}", &here[7..]), long] {
            lease(&fleet, &holder).await?;
            let answer = ack(&dwell).await?;
            assert_eq!(answer["status"], "stale", "{holder}");
            let named = (holder.len() <= MEMBER_BYTES_MAX).then_some(holder.as_str());
            assert_eq!(answer["owner"].as_str(), named);
        }
        assert!(posts.are_none());
        assert_eq!(dwell.metric("dwell_forwards_total", "").await?, 0.0);
    }
    Ok(())
}

#[tokio::test]
async fn a_stranger_gets_one_request_without_secrets_and_is_not_believed() -> Result<()> {
    let (fleet, dwell, stranger, mut posts) = beside_a_stranger("http://127.0.0.1:1").await?;
    let holder = format!("x-1@http://127.0.0.1:{}", stranger.port());
    lease(&fleet, &holder).await?;
    let answer = json!({"results": [{"receipt": RECEIPT, "status": "acked"}]}).to_string();
    let padded = |bytes: usize| format!("{answer}{}", " ".repeat(bytes - answer.len()));
    let moved = (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, stranger.url())]).into_response();
    let cases: [(Response, &str); 6] = [
        (moved, "unreachable"),
        (StatusCode::INTERNAL_SERVER_ERROR.into_response(), "unreachable"),
        (answer.replace("abcdefghijkl", "another").into_response(), "unreachable"),
        (Body::from(padded(PEER_ANSWER_BYTES_MAX + 1)).into_response(), "unreachable"),
        (Body::from(padded(PEER_ANSWER_BYTES_MAX)).into_response(), "acked"),
        // From here on it is known as the owner of this epoch, and of no other.
        (StatusCode::NOT_FOUND.into_response(), "unreachable"),
    ];
    for (response, expected) in cases {
        let (answer, posted) = futures_util::future::join(ack(&dwell), async {
            let posted = posts.next().await?;
            let headers = posted.headers.clone();
            let body: Value = serde_json::from_slice(&posted.body).unwrap_or_default();
            posted.answer(response);
            Result::Ok((headers, body))
        })
        .await;
        let (headers, body) = posted?;
        assert_eq!(answer?["status"], expected);
        assert_eq!(headers["dwell-forwarded"], holder.as_str());
        assert!(!headers.contains_key(header::AUTHORIZATION) && !headers.contains_key(header::COOKIE), "{headers:?}");
        assert_eq!(body, json!({"receipts": [RECEIPT]}));
        assert!(posts.are_none(), "asked once, and nothing was followed");
    }
    Ok(())
}
