//! Talks to clients/conformance/lab.py. `clients/run rust` starts these tests with one, and otherwise they start their own.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use dwell_client::testing::Broker;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, MutexGuard, OnceCell};

pub(crate) type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The lab plays one vector or story at a time.
static TURN: Mutex<()> = Mutex::const_new(());
static LAB: OnceCell<(String, Option<Child>)> = OnceCell::const_new();

pub(crate) async fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().await
}

fn repository(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(path)
}

/// The broker that is tested.
fn program() -> PathBuf {
    std::env::var_os("DWELL_BIN").map_or_else(|| repository("target/debug/dwell"), PathBuf::from)
}

/// A broker on a test clock.
pub(crate) async fn broker() -> Outcome<Broker> {
    Ok(Broker::start_program(program()).await?)
}

/// Ends with this process, which holds its standard input.
fn start() -> Outcome<(String, Option<Child>)> {
    if let Ok(address) = std::env::var("LAB") {
        return Ok((address, None));
    }
    let mut lab = Command::new("python3");
    lab.arg(repository("clients/conformance/lab.py")).args(["sh", "-c", "echo $LAB; exec cat"]);
    lab.env("DWELL_BIN", program()).env("PYTHONDONTWRITEBYTECODE", "1");
    let mut lab = lab.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut address = String::new();
    BufReader::new(lab.stdout.take().ok_or("no output of the lab")?).read_line(&mut address)?;
    Ok((address.trim().to_owned(), Some(lab)))
}

/// Asks the lab for something.
pub(crate) async fn lab(path: &str, asked: Value) -> Outcome<Value> {
    let (address, _) = LAB.get_or_try_init(|| async { start() }).await?;
    let host = address.trim_start_matches("http://");
    let body = asked.to_string();
    let mut connection = TcpStream::connect(host).await?;
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    connection.write_all(format!("{head}{body}").as_bytes()).await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no answer of the lab")?;
    if !head.starts_with("HTTP/1.1 200") {
        return Err(format!("{path}: {body}").into());
    }
    Ok(serde_json::from_str(body)?)
}

pub(crate) async fn mark(name: &str) -> Outcome {
    lab("/mark", json!({"name": name})).await.map(drop)
}

pub(crate) fn text(fields: &Value, name: &str) -> String {
    fields[name].as_str().unwrap_or_default().to_owned()
}

/// What the lab says went wrong.
pub(crate) fn failures(ended: &Value) -> Vec<String> {
    let failures = ended["failures"].as_array().cloned().unwrap_or_default();
    failures.iter().map(|failure| failure.as_str().unwrap_or_default().to_owned()).collect()
}
