//! The real binary started by something that listens to it, as systemd does.

use std::io::{Read, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use dwell::model::error::{Error, Result};
use tempfile::TempDir;

use crate::support::{PATIENCE, eventually, failed, scratch};

/// `dwell serve` in a directory of its own. It is killed when dropped.
pub(super) struct Supervised {
    child: Child,
    socket: UnixDatagram,
    dir: TempDir,
}

impl Supervised {
    /// Starts it by this command line, which ends where the binary and its arguments are put.
    pub(super) fn start(before: &[&str], watchdog_us: u32) -> Result<Supervised> {
        let dir = scratch()?;
        let data = dir.path().join("data");
        Supervised::start_in(dir, before, watchdog_us, data)
    }

    pub(super) fn start_in(dir: TempDir, before: &[&str], watchdog_us: u32, data: PathBuf) -> Result<Supervised> {
        let notify = dir.path().join("notify.sock");
        let socket = UnixDatagram::bind(&notify).map_err(failed("a socket"))?;
        socket.set_read_timeout(Some(PATIENCE)).map_err(failed("a socket"))?;
        let binary = [env!("CARGO_BIN_EXE_dwell"), "serve"];
        let mut words = before.iter().chain(&binary);
        let mut command = Command::new(words.next().copied().unwrap_or_default());
        command.args(words).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("NOTIFY_SOCKET", notify).env("WATCHDOG_USEC", watchdog_us.to_string());
        command.env("DWELL_LISTEN", format!("unix:{}", dir.path().join("dwell.sock").display()));
        // Nobody acks.
        command
            .env("DWELL_GROUP_DRAIN_TIMEOUT", "0s")
            .env("DWELL_DATA_DIR", data)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().map_err(failed("dwell serve"))?;
        Ok(Supervised { child, socket, dir })
    }

    /// The lines of the next thing that it says.
    fn heard(&self) -> Result<Vec<String>> {
        let mut bytes = [0; 4_096];
        // A child that ends meanwhile interrupts a wait with a time limit.
        let length = loop {
            match self.socket.recv(&mut bytes) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                said => break said.map_err(failed("nothing was said"))?,
            }
        };
        Ok(String::from_utf8_lossy(&bytes[..length]).lines().map(str::to_owned).collect())
    }

    /// Listens until it says this, and returns how often it said that it works before.
    pub(super) fn says(&self, line: &str) -> Result<usize> {
        for beats in 0.. {
            let heard = self.heard()?;
            if heard.iter().any(|heard| heard == line) {
                return Ok(beats);
            }
            if heard != ["WATCHDOG=1"] {
                return Err(Error::bug(format!("{heard:?} and not {line}")));
            }
        }
        Err(Error::bug("it said nothing else for ever"))
    }

    /// What one request is answered, without a second attempt: the status.
    pub(super) fn ask(&self, request: &str, body: &str) -> Result<String> {
        let mut stream = UnixStream::connect(self.dir.path().join("dwell.sock")).map_err(failed("connecting"))?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed("a socket"))?;
        let head = format!("{request} HTTP/1.1\r\nHost: dwell\r\nConnection: close\r\nContent-Length: {}", body.len());
        write!(stream, "{head}\r\nContent-Type: application/json\r\n\r\n{body}").map_err(failed("a request"))?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(failed("an answer"))?;
        answer.split(' ').nth(1).map(str::to_owned).ok_or_else(|| Error::bug(format!("no status: {answer:?}")))
    }

    /// Asks it to stop, and looks how it ends.
    pub(super) async fn stop(&mut self) -> Result<Option<i32>> {
        self.terminate()?;
        self.says("STOPPING=1")?;
        self.ended().await
    }

    fn terminate(&self) -> Result<()> {
        Command::new("kill").args(["-TERM", &self.pid().to_string()]).status().map(drop).map_err(failed("kill"))
    }

    async fn ended(&mut self) -> Result<Option<i32>> {
        let ended =
            eventually("dwell serve ends", async || self.child.try_wait().map_err(failed("dwell serve"))).await?;
        Ok(ended.code())
    }

    /// Says things to the socket that nobody reads until it takes no more.
    fn deafen(&self) -> Result<()> {
        let other = UnixDatagram::unbound().map_err(failed("a socket"))?;
        other.connect(self.dir.path().join("notify.sock")).map_err(failed("a socket"))?;
        other.set_nonblocking(true).map_err(failed("a socket"))?;
        while other.send(b"noise").is_ok() {}
        Ok(())
    }

    /// Where it listens, for `dwell` as a client.
    pub(super) fn address(&self) -> String {
        format!("unix:{}", self.dir.path().join("dwell.sock").display())
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn supervisor_gets_ready_watchdog_and_stopping() -> Result<()> {
    let mut dwell = Supervised::start(&[], 150_000)?;
    assert_eq!(dwell.says("READY=1")?, 0);
    // What was said is so: the first request is answered.
    assert_eq!(dwell.ask("GET /livez", "")?, "200");
    for _ in 0..3 {
        assert_eq!(dwell.says("WATCHDOG=1")?, 0);
    }
    assert_eq!(dwell.stop().await?, Some(0));
    Ok(())
}

#[tokio::test]
async fn failed_start_notifies_nothing() -> Result<()> {
    let dir = scratch()?;
    let data = dir.path().join("a file");
    std::fs::write(&data, "in the way").map_err(failed("a file"))?;
    let mut dwell = Supervised::start_in(dir, &[], 150_000, data)?;
    assert_ne!(dwell.ended().await?, Some(0));
    dwell.socket.set_nonblocking(true).map_err(failed("a socket"))?;
    assert!(dwell.heard().is_err_and(|error| error.detail().contains("nothing was said")));
    Ok(())
}

/// The socket takes some hundred datagrams that nobody reads. Then what writes to it waits, and only that.
#[tokio::test]
async fn unread_notify_socket_does_not_block_the_broker() -> Result<()> {
    let mut dwell = Supervised::start(&[], 3_000)?;
    assert_eq!(dwell.says("READY=1")?, 0);
    dwell.deafen()?;
    assert_eq!(dwell.ask("GET /livez", "")?, "200");
    dwell.terminate()?;
    assert_eq!(dwell.ended().await?, Some(0));
    Ok(())
}

/// A span of 0 is no watchdog: then nothing but the start and the end is said.
#[tokio::test]
async fn no_watchdog_interval_sends_no_keep_alives() -> Result<()> {
    let mut dwell = Supervised::start(&[], 0)?;
    assert_eq!(dwell.says("READY=1")?, 0);
    assert_eq!(dwell.ask("GET /readyz", "")?, "200");
    dwell.terminate()?;
    assert_eq!(dwell.says("STOPPING=1")?, 0);
    assert_eq!(dwell.ended().await?, Some(0));
    Ok(())
}
