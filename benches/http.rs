//! Single pushes over HTTP, beside the least that a server in front of Redis can be: the same HTTP library, the same Redis
//! client, and two commands for each request, without scripts, partitions, leases or a second try. And pushes on the embedded
//! store, beside the least that is durable: each body is appended to a file, and fdatasync is called.
//!
//! `cargo bench --bench http` starts a Redis without a disk, the bare server and two `dwell serve`, each a process of its own, and
//! loads them in turns. It prints requests a second over 1, 32 and 256 connections, and the ratios: what a push costs the bare
//! server beside an empty request, what it costs dwell, and the pushes of dwell beside those of the bare server.

use std::cell::Cell;
use std::fs::File;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use dwell::model::error::{Error, Result};
use dwell::platform::https::{self, Roots};
use futures_util::future::try_join_all;
use redis::aio::MultiplexedConnection;
use reqwest::Method;
use tokio::runtime::Runtime;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CONNECTIONS: [usize; 3] = [1, 32, 256];
const ROUNDS: usize = 5;
/// Requests of one run; a tenth over one connection.
const REQUESTS: usize = 20_000;
const PAYLOAD: [u8; 100] = [b'x'; 100];

fn main() -> Result<()> {
    let runtime = Runtime::new().map_err(failed("a runtime"))?;
    let mut served = std::env::args().skip_while(|argument| argument != "serve").skip(1);
    match served.next().zip(served.next()) {
        Some((redis, bodies)) => runtime.block_on(serve(&redis, &bodies)),
        None => runtime.block_on(compare()),
    }
}

async fn compare() -> Result<()> {
    let dir = tempfile::tempdir().map_err(failed("a scratch directory"))?;
    let socket = dir.path().join("redis.sock");
    let mut redis = Command::new("redis-server");
    redis.args(["--port", "0", "--save", "", "--dir"]).arg(dir.path()).arg("--unixsocket").arg(&socket);
    let _redis = Process::start(redis, "ready to accept connections at")?;
    let url = format!("redis+unix://{}", socket.display());
    let mut bare = Command::new(std::env::current_exe().map_err(failed("this binary"))?);
    bare.args(["serve", &url]).arg(dir.path().join("bodies"));
    let bare = Process::start(bare, "address")?;
    let mut dwell = Command::new(env!("CARGO_BIN_EXE_dwell"));
    dwell.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(dir.path().join("dwell"));
    dwell.env("DWELL_REDIS_URL", &url).env("DWELL_LOG_LEVEL", "warn").env("DWELL_REDIS_ALLOW_EVICTION", "true");
    let dwell = Process::start(dwell, "address")?;
    let mut embedded = Command::new(env!("CARGO_BIN_EXE_dwell"));
    embedded.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(dir.path().join("embedded"));
    embedded.env("DWELL_LOG_LEVEL", "warn");
    let embedded = Process::start(embedded, "address")?;
    let loads = [
        (Method::GET, format!("{}/livez", bare.said)),
        (Method::POST, format!("{}/push", bare.said)),
        (Method::GET, format!("{}/livez", dwell.said)),
        (Method::POST, format!("{}/v1/topics/orders/messages?delay=1h", dwell.said)),
        (Method::POST, format!("{}/append", bare.said)),
        (Method::POST, format!("{}/v1/topics/orders/messages?delay=1h", embedded.said)),
    ];
    for connections in CONNECTIONS {
        let mut rates = [const { Vec::new() }; 6];
        for _ in 0..ROUNDS {
            for ((method, url), rates) in loads.iter().zip(&mut rates) {
                rates.push(load(method, url, connections).await?);
            }
        }
        let [empty, push, dwell_empty, dwell_push, append, embedded_push] = rates.map(median);
        println!(
            "connections={connections}: bare server {empty:.0} empty requests/s, {push:.0} pushes/s, ratio {:.2}; dwell \
             {dwell_empty:.0} and {dwell_push:.0}, ratio {:.2}; pushes of dwell beside the bare server {:.2}",
            push / empty,
            dwell_push / dwell_empty,
            dwell_push / push
        );
        println!(
            "connections={connections}: bare server {append:.0} appends with fdatasync/s; embedded store {embedded_push:.0} \
             pushes/s, ratio {:.2}",
            embedded_push / append
        );
    }
    Ok(())
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// Requests a second.
async fn load(method: &Method, url: &str, connections: usize) -> Result<f64> {
    let client = https::client(&Roots::none())?.no_proxy().build().map_err(|error| Error::bug(error.to_string()))?;
    let requests = if connections == 1 { REQUESTS / 10 } else { REQUESTS };
    let left = Cell::new(requests);
    let wrong = |error: reqwest::Error| Error::unavailable(format!("{url}: {error}"));
    let lane = async || {
        while left.get() > 0 {
            left.set(left.get() - 1);
            let request = client.request(method.clone(), url);
            let request = if *method == Method::POST { request.body(PAYLOAD.to_vec()) } else { request };
            let answer = request.send().await.and_then(reqwest::Response::error_for_status).map_err(wrong)?;
            answer.bytes().await.map_err(wrong)?;
        }
        Ok::<_, Error>(())
    };
    let began = Instant::now();
    try_join_all((0..connections).map(|_| lane())).await?;
    Ok(requests as f64 / began.elapsed().as_secs_f64())
}

/// The bare server. `bodies` is the file for what has to be durable.
async fn serve(redis: &str, bodies: &str) -> Result<()> {
    let client = redis::Client::open(redis).map_err(|error| Error::bug(error.to_string()))?;
    let connection = client.get_multiplexed_async_connection().await;
    let connection = connection.map_err(|error| Error::unavailable(error.to_string()))?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.map_err(failed("a port"))?;
    println!("address http://{}", listener.local_addr().map_err(failed("a port"))?);
    let routes = Router::new().route("/livez", get(async || "")).route("/push", post(push)).with_state(connection);
    let file = Arc::new(File::create(bodies).map_err(failed("a file"))?);
    let routes = routes.route("/append", post(append).with_state(file));
    axum::serve(listener, routes).await.map_err(failed("the bare server"))
}

/// Answers once Redis has the message.
async fn push(State(mut redis): State<MultiplexedConnection>, body: Bytes) -> (StatusCode, String) {
    let id = ulid::Ulid::new().to_string();
    let mut commands = redis::pipe();
    commands.zadd("bare:due", &id, u32::MAX).ignore().hset("bare:body", &id, &body[..]).ignore();
    match commands.query_async::<()>(&mut redis).await {
        Ok(()) => (StatusCode::CREATED, id),
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()),
    }
}

/// Answers once the disk has the message.
async fn append(State(file): State<Arc<File>>, body: Bytes) -> StatusCode {
    let appended = tokio::task::spawn_blocking(move || file.as_ref().write_all(&body).and_then(|()| file.sync_data()));
    match appended.await {
        Ok(Ok(())) => StatusCode::CREATED,
        _ => StatusCode::INSUFFICIENT_STORAGE,
    }
}

/// A server, which ends with this.
struct Process {
    child: Child,
    /// What followed the words with which it said that it serves.
    said: String,
}

impl Process {
    fn start(mut command: Command, serves: &str) -> Result<Process> {
        let program = command.get_program().display().to_string();
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(failed(&program))?;
        let stdout = child.stdout.take().ok_or_else(|| Error::bug("no stdout"))?;
        let mut process = Process { child, said: String::new() };
        let mut lines = BufReader::new(stdout).lines().map_while(std::result::Result::ok);
        let said = lines.find_map(|line| line.split_once(serves).map(|(_, said)| said.trim().to_owned()));
        process.said =
            said.ok_or_else(|| Error::unavailable(format!("{program} ended, and did not say {serves:?}")))?;
        // It must be able to go on writing.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(process)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn failed(what: &str) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::unavailable(format!("{what}: {error}"))
}
