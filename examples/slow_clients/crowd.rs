//! Slow clients: silent ones, ones that send a byte of a header a second, and consumers that do not read their stream.

use std::fmt;
use std::future::pending;
use std::time::Duration;

use clap::Args;
use dwell::platform::files;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, interval_at, sleep};

use crate::Outcome;

/// Payload of what a consumer does not read, bytes.
const PAYLOAD: usize = 16 * 1024;

/// How many slow clients of each kind
#[derive(Debug, Clone, Args)]
pub(crate) struct Crowd {
    /// Connections that say nothing
    #[arg(long, default_value_t = 2_000)]
    silent: usize,
    /// Connections that send a byte of a header a second
    #[arg(long, default_value_t = 2_000)]
    trickling: usize,
    /// Consumers of a stream that do not read it
    #[arg(long, default_value_t = 200)]
    unread: usize,
}

impl fmt::Display for Crowd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Crowd { silent, trickling, unread } = self;
        write!(f, "{silent} silent, {trickling} trickling, {unread} unread streams")
    }
}

impl Crowd {
    /// The command line of a process that is this crowd.
    pub(crate) fn arguments(&self, address: &str) -> Vec<String> {
        let number = |flag: &str, number: usize| [format!("--{flag}"), number.to_string()];
        let numbers = [("silent", self.silent), ("trickling", self.trickling), ("unread", self.unread)];
        let numbers = numbers.into_iter().flat_map(|(flag, many)| number(flag, many));
        ["crowd".to_owned(), address.to_owned()].into_iter().chain(numbers).collect()
    }

    /// Opens all of them, says so, and keeps them: what is closed is opened again.
    pub(crate) async fn run(self, url: &str) -> Outcome {
        files::raise();
        let address = url.strip_prefix("http://").ok_or("no address")?.to_owned();
        if self.unread > 0 {
            fill(url).await?;
        }
        let (opened, mut opening) = tokio::sync::mpsc::unbounded_channel();
        let all = self.silent + self.trickling + self.unread;
        for number in 0..all {
            let (address, mut opened) = (address.clone(), Some(opened.clone()));
            let kind = match number {
                n if n < self.silent => Kind::Silent,
                n if n < self.silent + self.trickling => Kind::Trickling,
                _ => Kind::Unread,
            };
            tokio::spawn(async move {
                loop {
                    // It may be refused or closed at any time: then it comes again.
                    let _ = kind.stay(&address, &mut opened).await;
                    sleep(Duration::from_millis(100)).await;
                }
            });
        }
        for _ in 0..all {
            opening.recv().await.ok_or("nobody opens any more")?;
        }
        println!("there");
        pending().await
    }
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Silent,
    Trickling,
    Unread,
}

impl Kind {
    /// One connection, until it is closed. Says once that it was open.
    async fn stay(self, address: &str, opened: &mut Option<tokio::sync::mpsc::UnboundedSender<()>>) -> Outcome {
        let mut stream = TcpStream::connect(address).await?;
        if let Kind::Unread = self {
            let head =
                "POST /v1/topics/feed/groups/default/stream HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";
            stream.write_all(head.as_bytes()).await?;
            stream.read_exact(&mut [0; 16]).await?;
        }
        if let Some(opened) = opened.take() {
            opened.send(())?;
        }
        match self {
            Kind::Silent => {
                stream.read_u8().await?;
            }
            Kind::Trickling => {
                let mut second = interval_at(Instant::now() + Duration::from_secs(1), Duration::from_secs(1));
                for byte in b"GET /v1/topics HTTP/1.1\r\nX: ".iter().chain(std::iter::repeat(&b'x')) {
                    second.tick().await;
                    stream.write_u8(*byte).await?;
                }
            }
            // Its end would be seen by reading only.
            Kind::Unread => pending().await,
        }
        Ok(())
    }
}

/// Messages for the streams, due at once.
async fn fill(url: &str) -> Outcome {
    let message = serde_json::json!({"payload": "x".repeat(PAYLOAD)});
    let batch = serde_json::json!({"messages": vec![message; 200]});
    let client = dwell::platform::https::client(&dwell::platform::https::Roots::none())?.no_proxy().build()?;
    for _ in 0..10 {
        client.post(format!("{url}/v1/topics/feed/messages/batch")).json(&batch).send().await?.error_for_status()?;
    }
    Ok(())
}
