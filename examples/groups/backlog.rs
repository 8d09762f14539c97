//! A large backlog, and a consumer that is killed half-way through it: a stream's, and a webhook's application.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::process::Stdio;
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use dwell::error::{Error, Result};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use crate::dwell;
use crate::fleet::{Fleet, ORDERS, declare};
use crate::report::{Report, show};
use crate::sidecar::Sidecar;
use crate::support::{RedisServer, eventually, failed};

/// Unsettled deliveries of one stream at most, and POSTs at the same time.
const IN_FLIGHT: usize = 500;
const CONCURRENCY: usize = 64;

/// A process that prints what it got, each line forwarded with its number. Killed when dropped.
struct Printer(Child);

/// What the processes printed: who, which message, which attempt.
type Printed = (usize, String, u64);

impl Printer {
    fn start(
        number: usize,
        args: &[String],
        read: fn(&str) -> Option<(String, u64)>,
        to: mpsc::UnboundedSender<Printed>,
    ) -> Result<Printer> {
        let mut command = Command::new(dwell()?);
        command
            .args(args)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(failed("a consumer"))?;
        let out = child.stdout.take().ok_or_else(|| Error::bug("no output"))?;
        tokio::spawn(async move {
            let mut lines = BufReader::with_capacity(1 << 16, out).lines();
            // A line that was cut off by the kill is no line.
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some((id, attempt)) = read(&line) {
                    let _ = to.send((number, id, attempt));
                }
            }
        });
        Ok(Printer(child))
    }

    /// SIGKILL, and waits for the end.
    async fn kill(mut self) -> Result<()> {
        self.0.kill().await.map_err(failed("the end of a consumer"))
    }
}

/// Who got each message, with the attempt, in the order it came.
#[derive(Default)]
struct Got(BTreeMap<String, Vec<(usize, u64)>>);

impl Got {
    async fn until(&mut self, count: usize, printed: &mut mpsc::UnboundedReceiver<Printed>) -> Result<()> {
        while self.0.len() < count {
            let next = tokio::time::timeout(Duration::from_secs(30), printed.recv()).await;
            let Ok(Some((number, id, attempt))) = next else {
                return Err(Error::unavailable(format!("{} of {count} messages, and nothing for 30 s", self.0.len())));
            };
            self.0.entry(id).or_default().push((number, attempt));
        }
        Ok(())
    }

    /// Messages that came more than once, and whether all of them were first with the one that was killed, as attempt 1,
    /// and came as attempt 2 then.
    fn again(&self) -> (usize, bool) {
        let again = self.0.values().filter(|times| times.len() > 1).map(|times| {
            // The output of two processes comes in any order.
            let mut times = times.clone();
            times.sort_by_key(|(_, attempt)| *attempt);
            matches!(times.as_slice(), [(0, 1), (1, 2)])
        });
        let again: Vec<bool> = again.collect();
        (again.len(), again.iter().all(|right| *right))
    }
}

async fn push(dwell: &Sidecar, messages: usize) -> Result<()> {
    for page in (0..messages).collect::<Vec<_>>().chunks(1_000) {
        let message = |n: &usize| json!({"id": format!("m{n}"), "payload": "x"});
        dwell.push(ORDERS, &page.iter().map(message).collect::<Vec<_>>()).await?;
    }
    Ok(())
}

async fn emptied(dwell: &Sidecar) -> Result<()> {
    eventually("the topic is empty", async || Ok((dwell.counts(ORDERS).await? == [0; 4]).then_some(()))).await
}

/// Two processes read a stream each; one of them is killed.
pub(crate) async fn stream(report: &mut Report, messages: usize) -> Result<()> {
    let (_fleet, members) = Fleet::with(16, &["a"]).await?;
    let member = &members[0];
    push(member, messages).await?;
    let line = format!("consume {ORDERS} --stream --json --max {IN_FLIGHT} --server unix:{}", member.socket.display());
    let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let read = |line: &str| {
        let delivery: Value = serde_json::from_str(line).ok()?;
        Some((delivery["id"].as_str()?.to_owned(), delivery["attempt"].as_u64()?))
    };
    let (to, mut printed) = mpsc::unbounded_channel();
    let since = Instant::now();
    let killed = Printer::start(0, &args, read, to.clone())?;
    let _stays = Printer::start(1, &args, read, to)?;
    let mut got = Got::default();
    got.until(messages / 2, &mut printed).await?;
    killed.kill().await?;
    got.until(messages, &mut printed).await?;
    emptied(member).await?;
    let took = since.elapsed();
    let lost = messages - got.0.len();
    let figures = format!("{messages} messages, {lost} lost, in {}", show(took));
    report.row("1 of 2 stream consumers gets SIGKILL half-way", figures, "none lost", lost == 0);
    // What it had printed and not acked; a settlement that was under way may have counted.
    let (again, right) = got.again();
    let figures = format!("{again} came again as attempt 2");
    report.row(
        "what it had in hand",
        figures,
        format!("at most {IN_FLIGHT}, nothing else"),
        again <= IN_FLIGHT && right,
    );
    Ok(())
}

/// A member with a webhook of the topic, to a port where an application may listen.
async fn with_webhook(fleet: &Fleet, port: u16) -> Result<Sidecar> {
    let file = fleet.file("dwell.toml");
    let text = format!(
        "[[webhook]]\ntopic = \"{ORDERS}\"\nurl = \"http://127.0.0.1:{port}/\"\nconcurrency = {CONCURRENCY}\ntimeout = \"5s\"\n"
    );
    std::fs::write(&file, text).map_err(failed("a configuration file"))?;
    let member = fleet.start_with("a", &[("DWELL_CONFIG", &file.display().to_string())]).await?;
    declare(&member, ORDERS, 16).await?;
    Ok(member)
}

/// The application of a webhook is killed and started again.
pub(crate) async fn webhook(report: &mut Report, messages: usize) -> Result<()> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|free| free.local_addr())
        .map_err(failed("a port"))?
        .port();
    let args = ["application".to_owned(), port.to_string()];
    let read = |line: &str| {
        let (id, attempt) = line.split_once(' ')?;
        Some((id.to_owned(), attempt.parse().ok()?))
    };
    let (to, mut printed) = mpsc::unbounded_channel();
    let killed = Printer::start(0, &args, read, to.clone())?;
    let listens = || std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok();
    eventually("the application listens", async || Ok(listens())).await?;
    let fleet = Fleet::of(RedisServer::start().await?).await?;
    let member = with_webhook(&fleet, port).await?;
    let since = Instant::now();
    push(&member, messages).await?;
    let mut got = Got::default();
    got.until(messages / 2, &mut printed).await?;
    killed.kill().await?;
    eventually("POSTs fail", async || {
        Ok((member.metric("dwell_webhook_requests_total", "outcome=\"failed\"").await? > 0.0).then_some(()))
    })
    .await?;
    let _again = Printer::start(1, &args, read, to)?;
    got.until(messages, &mut printed).await?;
    emptied(&member).await?;
    let took = since.elapsed();
    let failed = member.metric("dwell_webhook_requests_total", "outcome=\"failed\"").await?;
    let lost = messages - got.0.len();
    let figures = format!("{messages} messages, {lost} lost, {failed} POSTs failed, in {}", show(took));
    report.row("the application of a webhook gets SIGKILL half-way", figures, "none lost", lost == 0);
    let (again, right) = got.again();
    let figures = format!("{again} came again");
    report.row(
        "what it had in hand",
        figures,
        format!("at most {CONCURRENCY}, nothing else"),
        again <= CONCURRENCY && right,
    );
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
    let member = with_webhook(&fleet, port).await?;
    push(&member, 1).await?;
    let none = || Error::unavailable("no POST");
    let (first, second) = (posts.recv().await.ok_or_else(none)?, posts.recv().await.ok_or_else(none)?);
    let pause = second.duration_since(first);
    emptied(&member).await?;
    serving.abort();
    let kept = pause >= Duration::from_secs(2) && pause < Duration::from_millis(2_100);
    report.row("503 with Retry-After: 2: the next POST", format!("after {:.3} s", pause.as_secs_f64()), "2 s", kept);
    Ok(())
}
