//! A broker for tests, whose time they move: a reminder of 30 days takes milliseconds.
//!
//! ```no_run
//! use dwell_client::{NewMessage, testing::Broker};
//! use std::time::Duration;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! const MONTH: Duration = Duration::from_secs(30 * 86_400);
//! let broker = Broker::start().await?;
//! broker.client().push("reminders", NewMessage::text("renew").delay(MONTH)).await?;
//! let moved = broker.advance(MONTH).await?;
//! assert_eq!(moved.due[0].messages, 1);
//! # Ok(())
//! # }
//! ```

use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::client::{Call, Client, Error};
use crate::wire::operations::{ClockMove, ClockMoved, ClockTime};
use crate::wire::time::Timestamp;

/// Many cron jobs may fire before the answer.
const MOVE_TIMEOUT: Duration = Duration::from_secs(300);

/// A broker on a test clock, with a directory that is removed at the end. It ends when it is dropped.
#[derive(Debug)]
pub struct Broker {
    server: String,
    client: Client,
    child: Child,
    directory: PathBuf,
}

impl Broker {
    /// Runs `dwell serve --test-clock` on a free port. `DWELL_BIN` names the program, and else it is `dwell` in `PATH`.
    ///
    /// # Errors
    ///
    /// The program does not start.
    pub async fn start() -> io::Result<Broker> {
        let program = env::var_os("DWELL_BIN").filter(|path| !path.is_empty());
        Broker::start_program(program.unwrap_or_else(|| "dwell".into())).await
    }

    /// Runs this program, as [`Broker::start`] does.
    ///
    /// # Errors
    ///
    /// The program does not start.
    pub async fn start_program(program: impl Into<PathBuf>) -> io::Result<Broker> {
        let program = program.into();
        let starting = tokio::task::spawn_blocking(move || launch(&program));
        let (child, directory, server) = starting.await.map_err(io::Error::other)??;
        // From here on it ends with the value.
        let client = Client::builder().server(&server);
        let client = client.token_file("").build().map_err(io::Error::other)?;
        Ok(Broker { server, client, child, directory })
    }

    /// Its address.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// A client of it.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Moves time forward. Everything that becomes due can be received once this returns.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`]: the time is more than 3,650 days.
    pub async fn advance(&self, by: Duration) -> Result<ClockMoved, Error> {
        Clock::of(&self.client).advance(by).await
    }

    /// Moves time forward to a time that is not past.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`]: it is past, or more than 3,650 days ahead.
    pub async fn advance_to(&self, to: impl Into<Timestamp>) -> Result<ClockMoved, Error> {
        Clock::of(&self.client).advance_to(to).await
    }

    /// The time of messages.
    pub async fn now(&self) -> Result<Timestamp, Error> {
        Clock::of(&self.client).now().await
    }
}

/// The clock of a broker that something else has started with `--test-clock`, such as a container.
#[derive(Debug, Clone)]
pub struct Clock(Client);

impl Clock {
    /// The clock of the broker that this client calls.
    pub fn of(client: &Client) -> Clock {
        Clock(client.clone())
    }

    /// Moves time forward, as [`Broker::advance`] does.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`]: the time is more than 3,650 days, or the broker has no test clock.
    pub async fn advance(&self, by: Duration) -> Result<ClockMoved, Error> {
        self.change(ClockMove { advance_ms: Some(by), ..ClockMove::default() }).await
    }

    /// Moves time forward, as [`Broker::advance_to`] does.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`]: the time is past, or more than 3,650 days ahead, or the broker has no test clock.
    pub async fn advance_to(&self, to: impl Into<Timestamp>) -> Result<ClockMoved, Error> {
        self.change(ClockMove { to: Some(to.into()), ..ClockMove::default() }).await
    }

    /// The time of messages.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`]: the broker has no test clock.
    pub async fn now(&self) -> Result<Timestamp, Error> {
        let time: ClockTime = self.0.call(&Call::get("/v1/test/clock")).await?;
        Ok(time.now)
    }

    /// Never repeated: the clock would move again.
    async fn change(&self, to: ClockMove) -> Result<ClockMoved, Error> {
        let mut call = Call::post("/v1/test/clock").json(&to)?.only_once();
        call.timeout = Some(MOVE_TIMEOUT);
        self.0.call(&call).await
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        end(&mut self.child, &self.directory);
    }
}

/// Its data are for nothing but the test, so it need not stop gracefully.
fn end(child: &mut Child, directory: &Path) {
    let _ = child.kill();
    let _ = child.wait();
    let _ = fs::remove_dir_all(directory);
}

fn launch(program: &Path) -> io::Result<(Child, PathBuf, String)> {
    let directory = env::temp_dir().join(format!("dwell-test-{}", ulid::Ulid::new()));
    fs::create_dir_all(&directory)?;
    let mut command = Command::new(program);
    command
        .args(["serve", "--test-clock", "--listen", "127.0.0.1:0", "--log-level", "error", "--data-dir"])
        .arg(&directory);
    // Nothing from the environment may change what it does.
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("DWELL_")) {
        command.env_remove(name);
    }
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = spawned.map_err(|error| {
        let _ = fs::remove_dir_all(&directory);
        io::Error::other(format!("{}: {error}; DWELL_BIN may name the program", program.display()))
    })?;
    match address(&mut child) {
        Ok(server) => Ok((child, directory, server)),
        Err(error) => {
            end(&mut child, &directory);
            Err(error)
        }
    }
}

/// The broker prints it once it serves.
fn address(child: &mut Child) -> io::Result<String> {
    let stdout = child.stdout.take().ok_or_else(|| io::Error::other("dwell has no output"))?;
    let mut lines = BufReader::new(stdout).lines();
    for line in lines.by_ref() {
        let line = line?;
        let mut words = line.split_whitespace();
        if let (Some("address"), Some(server)) = (words.next(), words.next()) {
            let server = server.to_owned();
            // Its later lines are read, too, so that it never waits for a reader.
            std::thread::spawn(move || lines.for_each(drop));
            return Ok(server);
        }
    }
    Err(io::Error::other("dwell serve --test-clock ended before it served"))
}
