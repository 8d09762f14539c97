//! The receiver of docs/how-to/webhooks.md, run as printed: it takes what dwell posts, and nothing that was changed on the way.

use std::process::Stdio;

use axum::http::StatusCode;
use dwell::model::error::{Error, Result};
use dwell::model::message::{Key, MessageId, NewMessage};
use reqwest::header::{HeaderMap, HeaderValue};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStdout, Command};

use super::shop::Shop;
use crate::support::{Application, World, eventually, failed, stories};

stories! { the_receiver_of_the_page_takes_only_what_was_signed }

/// The Python of the page on a free port, what it prints, and its URL.
async fn receiver() -> Result<(Child, Lines<BufReader<ChildStdout>>, String)> {
    let page = include_str!("../../../../docs/how-to/webhooks.md");
    let code = page.split_once("```python\n").and_then(|(_, rest)| rest.split_once("```")).map(|(code, _)| code);
    let code = code.ok_or_else(|| Error::bug("the page has no Python"))?;
    let free = TcpListener::bind("127.0.0.1:0").await.and_then(|listener| listener.local_addr());
    let address = free.map_err(failed("a free port"))?;
    // The clock of the story stands still, and is not that of the machine.
    let clock = "time.time = lambda: 1767323045\n\nSECRET";
    let code = code.replace("8080", &address.port().to_string()).replacen("SECRET", clock, 1);
    let python = Command::new("python3").arg("-c").arg(code).stdout(Stdio::piped()).kill_on_drop(true).spawn();
    let mut python = python.map_err(failed("python3"))?;
    let printed = python.stdout.take().ok_or_else(|| Error::bug("no output"))?;
    let is_there = async || Ok(tokio::net::TcpStream::connect(address).await.ok());
    eventually("the receiver listens", is_there).await?;
    Ok((python, BufReader::new(printed).lines(), format!("http://{address}/posted")))
}

fn signed_message(key: Option<&str>) -> Result<NewMessage> {
    let key = key.map(Key::new).transpose()?;
    Ok(NewMessage { id: Some(MessageId::new("order-4711")?), key, ..NewMessage::new("close order 4711") })
}

async fn the_receiver_of_the_page_takes_only_what_was_signed(world: World) -> Result<()> {
    let (_python, mut printed, url) = receiver().await?;
    let secret = |webhook: &mut dwell::api::webhook::Webhook| webhook.secret = Some("a secret".into());
    let shop = Shop::open(&world, &url, |webhook, _| secret(webhook)).await?;
    shop.broker.push(&shop.topic, signed_message(Some("café 7"))?).await?;
    let line = printed.next_line().await.map_err(failed("a line"))?;
    assert_eq!(line.as_deref(), Some("attempt 1 close order 4711"));
    shop.becomes("order-4711", None).await?;
    shop.running.stop().await;
    // What another webhook of the same secret is sent, taken from the wire and sent again with a change.
    let (application, mut posts) = Application::told().await?;
    let other = World::embedded().await?;
    let shop = Shop::open(&other, &application.url(), |webhook, _| secret(webhook)).await?;
    shop.broker.push(&shop.topic, signed_message(None)?).await?;
    let posted = posts.next().await?;
    let (headers, body) = (posted.headers.clone(), posted.body.clone());
    posted.answer(StatusCode::OK);
    let again = async |change: &dyn Fn(&mut HeaderMap), body: &'static str| -> Result<u16> {
        let mut headers = headers.clone();
        headers.remove("content-length");
        change(&mut headers);
        let client = dwell::platform::https::client(&dwell::platform::https::Roots::none())?;
        let client = client.no_proxy().build().map_err(|error| Error::bug(error.to_string()))?;
        let sent = client.post(&url).headers(headers).body(body).send().await;
        Ok(sent.map_err(|error| Error::bug(error.to_string()))?.status().as_u16())
    };
    assert_eq!(body, "close order 4711");
    assert_eq!(again(&|_| (), "close order 4711").await?, 204);
    assert_eq!(again(&|_| (), "close order 4712").await?, 403);
    let is_refused = async |name: &'static str, value: &'static str| -> Result<bool> {
        let change = |headers: &mut HeaderMap| drop(headers.insert(name, HeaderValue::from_static(value)));
        Ok(again(&change, "close order 4711").await? == 403)
    };
    for (name, value) in [
        ("dwell-id", "order-4712"),
        ("dwell-topic", "refunds"),
        ("dwell-group", "audit"),
        ("dwell-attempt", "2"),
        ("dwell-key", "customer-7"),
        ("dwell-signature", "t=1767323045,v1=00"),
        ("dwell-signature", "nonsense"),
    ] {
        assert!(is_refused(name, value).await?, "{name}: {value}");
    }
    let signature = headers["dwell-signature"].to_str().unwrap_or_default().to_owned();
    let later = move |headers: &mut HeaderMap| {
        let later = HeaderValue::try_from(signature.replace("t=1767323045", "t=1767323046"));
        later.into_iter().for_each(|later| drop(headers.insert("dwell-signature", later)));
    };
    assert_eq!(again(&later, "close order 4711").await?, 403);
    assert_eq!(again(&|headers| drop(headers.remove("dwell-signature")), "close order 4711").await?, 403);
    Ok(())
}
