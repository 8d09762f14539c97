//! A webhook whose application is killed half-way through a large backlog, and one that is busy.

use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use dwell::model::error::{Error, Result};
use tokio::sync::mpsc;

use crate::backlog::{emptied, push};
use crate::fleet::{Fleet, ORDERS, declare};
use crate::printer::Got;
use crate::report::{Report, show};
use crate::sidecar::Sidecar;
use crate::support::{RedisServer, eventually, failed};

/// POSTs at the same time.
const CONCURRENCY: usize = 64;

/// A member that posts to a port, where an application may listen.
async fn posting(fleet: &Fleet, port: u16) -> Result<Sidecar> {
    let file = fleet.file("dwell.toml");
    let text = format!(
        "[[webhook]]\ntopic = \"{ORDERS}\"\nurl = \"http://127.0.0.1:{port}/\"\nconcurrency = {CONCURRENCY}\ntimeout = \"5s\"\n"
    );
    std::fs::write(&file, text).map_err(failed("a configuration file"))?;
    let member = fleet.start_with("a", &[("DWELL_CONFIG", &file.display().to_string())]).await?;
    declare(&member, ORDERS, 16).await?;
    Ok(member)
}

/// Id and attempt of a line that the application prints.
fn read(line: &str) -> Option<(String, u64)> {
    let (id, attempt) = line.split_once(' ')?;
    Some((id.to_owned(), attempt.parse().ok()?))
}

/// The application is killed and, once POSTs have failed, started again.
pub(crate) async fn killed(report: &mut Report, messages: usize) -> Result<()> {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
    let port = free.map_err(failed("a port"))?.port();
    let (mut got, args) = (Got::nothing(), ["application".to_owned(), port.to_string()]);
    let killed = got.start(&args, read)?;
    let listens = || std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok();
    eventually("the application listens", async || Ok(listens())).await?;
    let fleet = Fleet::of(RedisServer::start().await?).await?;
    let member = posting(&fleet, port).await?;
    let failures = async || member.metric("dwell_webhook_requests_total", "outcome=\"failed\"").await;
    let since = Instant::now();
    push(&member, messages).await?;
    got.until(messages / 2).await?;
    killed.kill().await?;
    eventually("POSTs fail", async || Ok((failures().await? > 0.0).then_some(()))).await?;
    let _again = got.start(&args, read)?;
    got.until(messages).await?;
    emptied(&member).await?;
    let (took, failed, lost) = (since.elapsed(), failures().await?, messages - got.count());
    let figures = format!("{messages} messages, {lost} lost, {failed} POSTs failed, in {}", show(took));
    report.row("SIGKILL of a webhook's application half-way", figures, "none lost", lost == 0);
    // What it had heard when it died was not answered, or the answer was on its way.
    let again = got.again();
    let figures = format!("{} came as a later attempt, {} of them had been heard", again.later, again.twice);
    let kept = again.is_right && again.later > 0 && again.twice <= CONCURRENCY;
    report.row("what it had in hand came again", figures, format!("at most {CONCURRENCY} heard twice"), kept);
    Ok(())
}

/// An application answers 503 with `Retry-After: 2`.
pub(crate) async fn busy(report: &mut Report) -> Result<()> {
    let (heard, mut posts) = mpsc::unbounded_channel();
    let hear = async move |headers: HeaderMap| -> Response {
        let _ = heard.send(Instant::now());
        match headers.get("dwell-attempt").is_some_and(|attempt| attempt == "1") {
            true => (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "2")]).into_response(),
            false => StatusCode::OK.into_response(),
        }
    };
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed("a port"))?;
    let port = listener.local_addr().map_err(failed("a port"))?.port();
    let serving = tokio::spawn(async move { axum::serve(listener, Router::new().fallback(hear)).await });
    let fleet = Fleet::of(RedisServer::start().await?).await?;
    let member = posting(&fleet, port).await?;
    push(&member, 1).await?;
    let none = || Error::unavailable("no POST");
    let (first, second) = (posts.recv().await.ok_or_else(none)?, posts.recv().await.ok_or_else(none)?);
    let pause = second.duration_since(first);
    emptied(&member).await?;
    serving.abort();
    let kept = pause >= Duration::from_secs(2) && pause < Duration::from_millis(2_100);
    report.row("503 with `Retry-After: 2`: the next POST", format!("after {:.3} s", pause.as_secs_f64()), "2 s", kept);
    Ok(())
}
