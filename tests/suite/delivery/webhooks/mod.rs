//! Webhooks: what an application is sent, and what its answers do. The clock moves only when the story says so.

mod receiver;
mod tls;
mod target_killed;
mod shop;

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use dwell::broker::GroupRequest;
use dwell::model::error::{Error, Result};
use dwell::model::message::{Key, MessageId, NewMessage};
use dwell::model::retry::{Backoff, LadderStep};
use dwell::model::topic::Fairness;
use dwell::model::trace::TraceContext;
use dwell::store::MessageState;
use futures_util::future::join;
use futures_util::stream::{StreamExt as _, iter, pending, repeat};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::support::{Application, PATIENCE, World, stories};
use shop::Shop;

stories! {
    post_has_all_headers_and_2xx_acks, retry_after_of_a_busy_target_is_honoured,
    retry_after_is_never_earlier_than_the_backoff, retry_after_holds_up_the_key_in_a_fair_group, closed_idle_connection_costs_no_attempt,
    target_that_closes_every_connection_fails, status_410_buries_immediately,
    silent_target_times_out, a_redirect_is_not_followed, endless_response_is_cut, concurrent_posts_are_limited,
    stop_waits_for_a_response, webhook_waits_for_its_topic, connection_refused_is_a_failed_attempt,
}

async fn post_has_all_headers_and_2xx_acks(world: World) -> Result<()> {
    let (application, mut posts) = Application::told().await?;
    let shop = Shop::open(&world, &application.url(), |webhook, _| webhook.secret = Some("a secret".into())).await?;
    // The time and the payload of the example in docs/how-to/webhooks.md, whose signature a test compares with the code.
    let at = world.now();
    let message = NewMessage {
        id: Some(MessageId::new("order-4711")?),
        key: Some(Key::new("café 7")?),
        content_type: Some("text/plain".to_owned()),
        meta: vec![("trace".to_owned(), "100%".to_owned())],
        trace: Some(TraceContext::new([1; 16], [2; 8], 1, Some("a=b"))?),
        ..NewMessage::new("close order 4711")
    };
    let partition = shop
        .broker
        .push(&shop.topic, message)
        .await?
        .partition
        .map_or(String::new(), |partition| partition.to_string());
    let posted = posts.next().await?;
    let at = at.to_string();
    for (name, value) in [
        ("content-type", "text/plain"),
        ("dwell-id", "order-4711"),
        ("dwell-key", "caf%C3%A9%207"),
        ("dwell-topic", "orders"),
        ("dwell-group", "default"),
        ("dwell-attempt", "1"),
        ("dwell-due-at", &at),
        ("dwell-pushed-at", &at),
        ("dwell-partition", &partition),
        ("dwell-meta-trace", "100%25"),
        ("traceparent", "00-01010101010101010101010101010101-0202020202020202-01"),
        ("tracestate", "a=b"),
    ] {
        assert_eq!(posted.header(name), value, "{name}");
    }
    assert_eq!(posted.body, "close order 4711");
    let signature = posted.header("dwell-signature");
    assert!(signature.starts_with("t=1767323045,v1=") && signature.len() == 80, "{signature}");
    assert_eq!(shop.running.messages(&shop.topic).await?, 1);
    posted.answer(StatusCode::NO_CONTENT);
    world.until("it is acked", async || Ok(shop.running.messages(&shop.topic).await? == 0)).await?;
    let counted = shop.broker.metrics().text()?;
    let expected = "dwell_webhook_requests_total{group=\"default\",outcome=\"ok\",topic=\"orders\"} 1";
    assert!(counted.contains(expected), "{counted}");
    Ok(())
}

async fn retry_after_of_a_busy_target_is_honoured(world: World) -> Result<()> {
    let (application, mut posts) = Application::told().await?;
    let shop = Shop::open(&world, &application.url(), |_, _| {}).await?;
    shop.push(&["a"]).await?;
    posts.next().await?.answer((StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "7200")], "busy"));
    shop.becomes("a", Some((MessageState::Scheduled, 1))).await?;
    world.pass(7_199_999);
    shop.is_quiet(&posts).await;
    world.pass(1);
    let again = posts.next().await?;
    assert_eq!(again.header("dwell-attempt"), "2");
    // Without a word about when, the backoff of the topic decides.
    again.answer(StatusCode::INTERNAL_SERVER_ERROR);
    shop.becomes("a", Some((MessageState::Scheduled, 2))).await?;
    world.pass(3_599_999);
    shop.is_quiet(&posts).await;
    world.pass(1);
    posts.next().await?.answer(StatusCode::OK);
    shop.becomes("a", None).await
}

async fn retry_after_is_never_earlier_than_the_backoff(world: World) -> Result<()> {
    let (application, mut posts) = Application::told().await?;
    let shop = Shop::open(&world, &application.url(), |_, _| {}).await?;
    shop.push(&["a"]).await?;
    for (attempt, said) in (1..).zip(["0", "1", "Wed, 21 Oct 2015 07:28:00 GMT", "soon", "-5", "0.5", ""]) {
        let posted = posts.next().await?;
        assert_eq!(posted.header("dwell-attempt"), attempt.to_string());
        posted.answer((StatusCode::SERVICE_UNAVAILABLE, [("retry-after", said)], "busy"));
        shop.becomes("a", Some((MessageState::Scheduled, attempt))).await?;
        world.pass(3_599_999);
        shop.is_quiet(&posts).await;
        world.pass(1);
    }
    posts.next().await?.answer(StatusCode::OK);
    shop.becomes("a", None).await
}

/// After other answers, and in another group, only the message waits.
async fn retry_after_holds_up_the_key_in_a_fair_group(world: World) -> Result<()> {
    let (application, mut posts) = Application::told().await?;
    let (shop, webhook) = Shop::before_opening(&world, &application.url(), |webhook, settings| {
        webhook.concurrency = 1;
        settings.backoff = Backoff::Ladder { steps: vec![LadderStep(Duration::from_secs(1))] };
    })?;
    shop.broker.declare(shop.topic.clone(), shop.broker.topic_defaults().clone()).await?;
    let turns = async |fair| {
        let wish = GroupRequest { fair: Some(fair), ..GroupRequest::default() };
        shop.broker.create_group(&shop.topic, &shop.group, wish).await
    };
    turns(Fairness::Key).await?;
    shop.running.beside(|stop| webhook.run(stop));
    for (n, (fair, status, is_paused)) in [
        (Fairness::Key, StatusCode::TOO_MANY_REQUESTS, true),
        (Fairness::Key, StatusCode::SERVICE_UNAVAILABLE, true),
        (Fairness::Key, StatusCode::BAD_GATEWAY, false),
        (Fairness::None, StatusCode::TOO_MANY_REQUESTS, false),
    ]
    .into_iter()
    .enumerate()
    {
        turns(fair).await?;
        let push = async |id: &str, key: &str| {
            let message =
                NewMessage::new("x").id(MessageId::new(format!("{id}-{n}"))?).key(Key::new(format!("{key}-{n}"))?);
            shop.broker.push(&shop.topic, message).await
        };
        push("first", "a").await?;
        let first = posts.next().await?;
        push("second", "a").await?;
        first.answer((status, [("retry-after", "20")], "busy"));
        if is_paused {
            push("other", "b").await?;
            let other = posts.next().await?;
            assert_eq!(other.header("dwell-id"), format!("other-{n}"), "{status}");
            other.answer(StatusCode::OK);
        } else {
            let second = posts.next().await?;
            assert_eq!(second.header("dwell-id"), format!("second-{n}"), "{status}");
            second.answer(StatusCode::OK);
        }
        world
            .until("the others are done", async || {
                Ok(shop.running.messages(&shop.topic).await? == 1 + u64::from(is_paused))
            })
            .await?;
        world.pass(19_999);
        shop.is_quiet(&posts).await;
        world.pass(1);
        let mut attempts = Vec::new();
        for _ in 0..1 + usize::from(is_paused) {
            let posted = posts.next().await?;
            attempts.push(posted.header("dwell-attempt").to_owned());
            posted.answer(StatusCode::OK);
        }
        attempts.sort();
        assert_eq!(attempts, if is_paused { vec!["1", "2"] } else { vec!["2"] }, "{status}");
        world.until("all are done", async || Ok(shop.running.messages(&shop.topic).await? == 0)).await?;
    }
    Ok(())
}

/// A target that answers `answered` requests of each connection, and closes it when one more begins.
async fn closing(answered: usize) -> Result<(String, mpsc::UnboundedReceiver<String>)> {
    let failed = |error: std::io::Error| Error::bug(error.to_string());
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
    let url = format!("http://{}/posted", listener.local_addr().map_err(failed)?);
    let (told, heard) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let told = told.clone();
            tokio::spawn(async move {
                for _ in 0..answered {
                    let mut request = Vec::new();
                    // The payloads have one byte.
                    while !request.windows(5).any(|some| some == b"\r\n\r\nx") {
                        if !matches!(stream.read_buf(&mut request).await, Ok(1..)) {
                            return;
                        }
                    }
                    let _ = told.send(String::from_utf8_lossy(&request).to_ascii_lowercase());
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
                }
                let _ = stream.read(&mut [0; 16]).await;
            });
        }
    });
    Ok((url, heard))
}

async fn closed_idle_connection_costs_no_attempt(world: World) -> Result<()> {
    let (url, mut heard) = closing(1).await?;
    let shop = Shop::open(&world, &url, |webhook, _| webhook.concurrency = 1).await?;
    for n in 0..20 {
        let id = format!("m{n}");
        shop.push(&[&id]).await?;
        let request = tokio::time::timeout(PATIENCE, heard.recv()).await.ok().flatten().unwrap_or_default();
        assert!(request.contains(&format!("dwell-id: {id}\r\n")), "{request}");
        assert!(request.contains("dwell-attempt: 1\r\n"), "{request}");
        shop.becomes(&id, None).await?;
    }
    let counted = shop.broker.metrics().text()?;
    let ok = "dwell_webhook_requests_total{group=\"default\",outcome=\"ok\",topic=\"orders\"} 20";
    let failed = "dwell_webhook_requests_total{group=\"default\",outcome=\"failed\",topic=\"orders\"} 0";
    assert!(counted.contains(ok) && counted.contains(failed), "{counted}");
    Ok(())
}

async fn target_that_closes_every_connection_fails(world: World) -> Result<()> {
    let (url, _heard) = closing(0).await?;
    let shop = Shop::with_one(&world, &url).await?;
    let why = shop.dead().await?;
    assert!(why.contains("closed") || why.contains("reset"), "{why}");
    Ok(())
}

async fn status_410_buries_immediately(world: World) -> Result<()> {
    let (application, mut posts) = Application::told().await?;
    let shop = Shop::open(&world, &application.url(), |_, _| {}).await?;
    shop.push(&["a"]).await?;
    posts.next().await?.answer((StatusCode::GONE, "no such customer"));
    assert_eq!(shop.dead().await?, "status 410: no such customer");
    Ok(())
}

async fn silent_target_times_out(world: World) -> Result<()> {
    let (application, mut posts) = Application::told().await?;
    let shop = Shop::with_one(&world, &application.url()).await?;
    let posted = posts.next().await?;
    world.pass(9_999);
    world.settled().await;
    assert_eq!(shop.state("a").await?, Some((MessageState::InFlight, 0)));
    world.pass(1);
    posted.given_up().await?;
    assert_eq!(shop.dead().await?, "no answer within 10s");
    Ok(())
}

async fn a_redirect_is_not_followed(world: World) -> Result<()> {
    let (application, mut posts) = Application::told().await?;
    let (elsewhere, others) = Application::told().await?;
    let shop = Shop::with_one(&world, &application.url()).await?;
    posts.next().await?.answer((StatusCode::TEMPORARY_REDIRECT, [("location", elsewhere.url())]));
    assert_eq!(shop.dead().await?, "status 307: redirects are not followed");
    assert!(posts.are_none() && others.are_none());
    Ok(())
}

async fn endless_response_is_cut(world: World) -> Result<()> {
    let (application, mut posts) = Application::told().await?;
    let shop = Shop::with_one(&world, &application.url()).await?;
    let chunk = |text: &'static str| Ok::<_, Infallible>(Bytes::from_static(text.as_bytes()));
    let endless = Body::from_stream(repeat("no! ").map(chunk));
    posts.next().await?.answer((StatusCode::INTERNAL_SERVER_ERROR, endless));
    assert_eq!(shop.dead().await?, format!("status 500: {}", "no! ".repeat(50).trim()));
    // One that stops in the middle is waited for as long as any answer, and its status counts.
    shop.broker.purge(&shop.topic, &shop.group, None).await?;
    shop.push(&["b"]).await?;
    let hanging = Body::from_stream(iter(["because"]).chain(pending()).map(chunk));
    posts.next().await?.answer((StatusCode::INTERNAL_SERVER_ERROR, hanging));
    world
        .until("the answer began", async || {
            world.settled().await;
            world.pass(1_000);
            Ok(!shop.broker.dead(&shop.topic, &shop.group, None, 1).await?.dead.is_empty())
        })
        .await?;
    assert_eq!(shop.dead().await?, "status 500: because");
    Ok(())
}

async fn concurrent_posts_are_limited(world: World) -> Result<()> {
    let (application, mut posts) = Application::told().await?;
    let shop = Shop::open(&world, &application.url(), |webhook, _| webhook.concurrency = 2).await?;
    let ids: Vec<String> = (0..9).map(|n| format!("m{n}")).collect();
    shop.push(&ids.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let mut open = vec![posts.next().await?, posts.next().await?];
    for _ in 2..ids.len() {
        shop.is_quiet(&posts).await;
        open.remove(0).answer(StatusCode::OK);
        open.push(posts.next().await?);
    }
    for posted in open {
        posted.answer(StatusCode::OK);
    }
    world.until("all are acked", async || Ok(shop.running.messages(&shop.topic).await? == 0)).await
}

async fn stop_waits_for_a_response(world: World) -> Result<()> {
    let (application, mut posts) = Application::told().await?;
    let shop = Shop::open(&world, &application.url(), |webhook, _| webhook.concurrency = 1).await?;
    shop.push(&["a", "b"]).await?;
    let posted = posts.next().await?;
    let answer = async {
        world.settled().await;
        posted.answer(StatusCode::OK);
    };
    join(shop.running.stop(), answer).await;
    // The other one was not posted, and is there for the next process.
    assert!(posts.are_none());
    assert_eq!(shop.running.messages(&shop.topic).await?, 1);
    Ok(())
}

async fn webhook_waits_for_its_topic(world: World) -> Result<()> {
    let (application, mut posts) = Application::told().await?;
    let (shop, subscription) = Shop::before_opening(&world, &application.url(), |_, _| {})?;
    shop.running.beside(|stop| subscription.run(stop));
    // The webhook looks every second.
    let noticed = async || {
        world.settled().await;
        world.pass(1_000);
    };
    for _ in 0..5 {
        noticed().await;
    }
    shop.push(&["a"]).await?;
    noticed().await;
    posts.next().await?.answer(StatusCode::OK);
    // And go, and come again.
    shop.becomes("a", None).await?;
    shop.broker.delete_topic(&shop.topic).await?;
    noticed().await;
    shop.push(&["b"]).await?;
    noticed().await;
    assert_eq!(posts.next().await?.header("dwell-id"), "b");
    Ok(())
}

async fn connection_refused_is_a_failed_attempt(world: World) -> Result<()> {
    let url = Application::told().await?.0.url();
    let shop = Shop::with_one(&world, &url).await?;
    let why = shop.dead().await?;
    assert!(why.contains("refused") || why.contains("reset"), "{why}");
    Ok(())
}
