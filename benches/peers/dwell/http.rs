//! dwell over HTTP, spoken here by hand: a client of a few lines costs the machine less than a real one.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use crate::measures::{self, Peer, Result, Taken, Taker, Tally};

const TOPIC: &str = "/v1/topics/bench";

/// Two connections for each caller, one to push, and one to take and ack. Each is opened when it is used first.
pub(crate) struct Http {
    port: u16,
    connections: Vec<(Mutex<Option<Connection>>, Mutex<Option<Connection>>)>,
}

type Connection = BufStream<TcpStream>;

impl Http {
    pub(crate) async fn open() -> Result<Http> {
        let port = std::env::var("PORT")?.parse()?;
        let http = Http { port, connections: (0..measures::callers(Http::CALLERS)).map(|_| Default::default()).collect() };
        http.call(&http.connections[0].0, "PUT", TOPIC, &json!({})).await?;
        Ok(http)
    }

    /// Sends a request, and reads the answer if it is 200 or 201.
    async fn call(
        &self,
        connection: &Mutex<Option<Connection>>,
        verb: &str,
        path: &str,
        body: &Value,
    ) -> Result<Vec<u8>> {
        let mut connection = connection.lock().await;
        if connection.is_none() {
            let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
            stream.set_nodelay(true)?;
            *connection = Some(BufStream::with_capacity(1 << 16, 1 << 16, stream));
        }
        let stream = connection.as_mut().ok_or("no connection")?;
        let body = body.to_string();
        let head = format!(
            "{verb} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.port,
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        stream.flush().await?;
        let (mut status, mut length, mut line) = (String::new(), None::<usize>, String::new());
        loop {
            line.clear();
            if stream.read_line(&mut line).await? == 0 {
                return Err("dwell hung up".into());
            }
            if status.is_empty() {
                status = line.split(' ').nth(1).unwrap_or_default().to_owned();
            } else if let Some(bytes) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = Some(bytes.trim().parse()?);
            } else if line == "\r\n" {
                break;
            }
        }
        let mut answer = vec![0; length.unwrap_or_default()];
        stream.read_exact(&mut answer).await?;
        // Without a length it comes in chunks, each behind a line with its size, and the last one is empty.
        let mut more = length.is_none();
        while more {
            line.clear();
            stream.read_line(&mut line).await?;
            let mut chunk = vec![0; usize::from_str_radix(line.trim(), 16)?];
            stream.read_exact(&mut chunk).await?;
            line.clear();
            stream.read_line(&mut line).await?;
            more = !chunk.is_empty();
            answer.append(&mut chunk);
        }
        match status.as_str() {
            "200" | "201" => Ok(answer),
            _ => Err(format!("{verb} {path} was answered {status}: {}", String::from_utf8_lossy(&answer)).into()),
        }
    }
}

impl Peer for Http {
    const BATCH: usize = 100;
    const CALLERS: usize = 8;

    async fn push(&self, caller: usize, messages: Vec<(u64, String)>) -> Result<()> {
        let one = |(due, payload): &(u64, String)| match due {
            0 => json!({"payload": payload}),
            due => json!({"payload": payload, "due_at": due}),
        };
        let (path, body) = match &messages[..] {
            [message] => (format!("{TOPIC}/messages"), one(message)),
            all => (format!("{TOPIC}/messages/batch"), json!({"messages": all.iter().map(one).collect::<Vec<_>>()})),
        };
        // 200 and 201 say that all are stored.
        self.call(&self.connections[caller].0, "POST", &path, &body).await?;
        Ok(())
    }

    async fn consume(self: Arc<Self>, count: u64) -> Result<Tally> {
        measures::take_and_ack(self, count).await
    }
}

impl Taker for Http {
    async fn take(&self, caller: usize) -> Result<Vec<Taken>> {
        #[derive(Deserialize)]
        struct Answer {
            deliveries: Vec<Taken>,
        }
        let body = json!({"max": self.batch(), "wait": "500ms"});
        let path = format!("{TOPIC}/groups/default/reserve");
        let answer = self.call(&self.connections[caller].1, "POST", &path, &body).await?;
        Ok(serde_json::from_slice::<Answer>(&answer)?.deliveries)
    }

    async fn ack(&self, caller: usize, taken: Vec<Taken>) -> Result<usize> {
        let body = json!({"receipts": taken.into_iter().map(|taken| taken.receipt).collect::<Vec<_>>()});
        let answer =
            self.call(&self.connections[caller].1, "POST", &format!("{TOPIC}/groups/default/ack"), &body).await?;
        let answer: Value = serde_json::from_slice(&answer)?;
        let results = answer["results"].as_array().ok_or("no results")?;
        Ok(results.iter().filter(|result| result["status"] == "acked").count())
    }
}
