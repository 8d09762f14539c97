//! Measures beanstalkd: `peer-beanstalkd push|drain|lateness|burst`. All commands are pipelined.

#[path = "../measures.rs"]
mod measures;

use std::fmt::Write;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use measures::{Peer, Result, Taken, Taker, Tally};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::TcpStream;
use tokio::sync::Mutex;


/// Two connections for each caller: one to push, and one to take and delete.
struct Connections(Vec<(Mutex<Connection>, Mutex<Connection>)>);

#[tokio::main]
async fn main() -> Result<()> {
    let measure = std::env::args().nth(1).unwrap_or_default();
    let mut connections = Vec::new();
    for _ in 0..measures::callers(Connections::CALLERS) {
        connections.push((Mutex::new(Connection::open().await?), Mutex::new(Connection::open().await?)));
    }
    measures::run(Arc::new(Connections(connections)), &measure).await
}

struct Connection(BufStream<TcpStream>);

impl Connection {
    async fn open() -> Result<Connection> {
        let stream = TcpStream::connect(("127.0.0.1", std::env::var("PORT")?.parse()?)).await?;
        stream.set_nodelay(true)?;
        Ok(Connection(BufStream::with_capacity(1 << 16, 1 << 16, stream)))
    }

    async fn send(&mut self, commands: &str) -> Result<()> {
        self.0.write_all(commands.as_bytes()).await?;
        Ok(self.0.flush().await?)
    }

    async fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line).await? == 0 {
            return Err("beanstalkd hung up".into());
        }
        line.truncate(line.trim_end().len());
        Ok(line)
    }
}

/// Whole seconds from now until then, rounded up: beanstalkd knows no others, and early would be wrong.
fn seconds_until(due: u64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    due.saturating_sub(now).div_ceil(1_000)
}

impl Peer for Connections {
    const BATCH: usize = 500;
    const CALLERS: usize = 4;

    async fn push(&self, caller: usize, messages: Vec<(u64, String)>) -> Result<()> {
        let mut connection = self.0[caller].0.lock().await;
        let mut commands = String::new();
        for (due, payload) in &messages {
            write!(commands, "put 0 {} 300 {}\r\n{payload}\r\n", seconds_until(*due), payload.len())?;
        }
        connection.send(&commands).await?;
        for _ in &messages {
            let answer = connection.line().await?;
            if !answer.starts_with("INSERTED") {
                return Err(format!("a put was answered {answer}").into());
            }
        }
        Ok(())
    }

    async fn consume(self: Arc<Self>, count: u64) -> Result<Tally> {
        measures::take_and_ack(self, count).await
    }
}

impl Taker for Connections {
    async fn take(&self, caller: usize) -> Result<Vec<Taken>> {
        let mut connection = self.0[caller].1.lock().await;
        let mut commands = "reserve-with-timeout 1\r\n".to_owned();
        commands.push_str(&"reserve-with-timeout 0\r\n".repeat(self.batch() - 1));
        connection.send(&commands).await?;
        let mut taken = Vec::new();
        for _ in 0..self.batch() {
            let answer = connection.line().await?;
            let words: Vec<_> = answer.split(' ').collect();
            match words[..] {
                ["TIMED_OUT"] => {}
                ["RESERVED", id, bytes] => {
                    let mut payload = vec![0; bytes.parse::<usize>()? + 2];
                    connection.0.read_exact(&mut payload).await?;
                    taken.push(Taken { receipt: id.to_owned(), payload: String::from_utf8(payload)? });
                }
                _ => return Err(format!("a reserve was answered {answer}").into()),
            }
        }
        Ok(taken)
    }

    async fn ack(&self, caller: usize, taken: Vec<Taken>) -> Result<usize> {
        let mut connection = self.0[caller].1.lock().await;
        let commands: String = taken.iter().map(|taken| format!("delete {}\r\n", taken.receipt)).collect();
        connection.send(&commands).await?;
        let mut deleted = 0;
        for _ in &taken {
            deleted += usize::from(connection.line().await? == "DELETED");
        }
        Ok(deleted)
    }
}
