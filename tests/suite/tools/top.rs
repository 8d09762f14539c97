//! `dwell top` on a terminal of its own, as an operator plays it, and without one.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use dwell::model::error::{Error, Result};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use serde_json::json;

use crate::support::{Process, eventually, failed, scratch};

/// A terminal with a command in it.
pub(crate) struct Terminal {
    child: Child,
    keyboard: File,
    /// The other end, as the program has it.
    screen: File,
    written: Arc<Mutex<Vec<u8>>>,
}

fn errno(what: &str) -> impl Fn(rustix::io::Errno) -> Error {
    move |errno| failed(what)(errno.into())
}

impl Terminal {
    fn open(server: &str, env: &[(&str, &str)]) -> Result<Terminal> {
        Terminal::with(&["top", "--interval", "100ms"], server, env)
    }

    /// Runs a command of dwell in a terminal of its own.
    pub(crate) fn with(args: &[&str], server: &str, env: &[(&str, &str)]) -> Result<Terminal> {
        let pty = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).map_err(errno("a terminal"))?;
        grantpt(&pty).and_then(|()| unlockpt(&pty)).map_err(errno("a terminal"))?;
        let name = ptsname(&pty, Vec::new()).map_err(errno("the name of a terminal"))?;
        let name = name.to_string_lossy().into_owned();
        let screen = File::options().read(true).write(true).open(&name).map_err(failed("a terminal"))?;
        let keyboard = File::from(pty);
        let copy = |file: &File| file.try_clone().map_err(failed("a handle"));
        let terminal = |file: &File| Ok::<_, Error>(Stdio::from(copy(file)?));
        resize(&keyboard, 100, 30)?;
        // In a session of its own this is its terminal, whichever the test has.
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait", env!("CARGO_BIN_EXE_dwell")]).args(args).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("TERM", "xterm");
        command.env("DWELL_SERVER", server).envs(env.iter().copied());
        command.stdin(terminal(&screen)?).stdout(terminal(&screen)?).stderr(terminal(&screen)?);
        let child = command.spawn().map_err(failed("dwell"))?;
        let written = Arc::new(Mutex::new(Vec::new()));
        let (mut reader, sink) = (copy(&keyboard)?, written.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            // It ends with the terminal.
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                sink.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&bytes[..count]);
            }
        });
        Ok(Terminal { child, keyboard, screen, written })
    }

    /// What was written since it was asked last is forgotten.
    fn forget(&self) {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(crate) async fn shows(&self, text: &str) -> Result<()> {
        let shown = eventually(text, async || {
            let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(String::from_utf8_lossy(&written).contains(text).then_some(()))
        });
        let written = || self.written.lock().unwrap_or_else(PoisonError::into_inner).clone();
        shown.await.map_err(|_| Error::unavailable(format!("{text}: {}", String::from_utf8_lossy(&written()))))
    }

    /// Waits for the end, and returns everything that was written.
    pub(crate) async fn wait(&mut self) -> Result<String> {
        eventually("the command ends", async || Ok(self.child.try_wait().ok().flatten())).await?;
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(String::from_utf8_lossy(&written).into_owned())
    }

    fn press(&mut self, keys: &str) -> Result<()> {
        self.forget();
        self.keyboard.write_all(keys.as_bytes()).map_err(failed("the keyboard"))
    }

    fn is_raw(&self) -> Result<bool> {
        let modes = tcgetattr(&self.screen).map_err(errno("the modes of a terminal"))?.local_modes;
        Ok(!modes.contains(LocalModes::ICANON | LocalModes::ECHO))
    }

    /// Waits for the end, after which the terminal is as it was.
    async fn ends(&mut self) -> Result<()> {
        self.shows("\u{1b}[?1049l").await?;
        let ended = eventually("dwell top ends", async || Ok(self.child.try_wait().ok().flatten())).await?;
        assert!(ended.success(), "{ended}");
        assert!(!self.is_raw()?, "the terminal was not given back");
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn resize(terminal: &File, columns: u16, rows: u16) -> Result<()> {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).map_err(errno("the size of a terminal"))
}

/// The process within the session of a terminal.
fn inner_pid(terminal: &Terminal) -> Result<rustix::process::Pid> {
    let id = terminal.child.id();
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).map_err(failed("its children"))?;
    let pid = children.split_whitespace().next().and_then(|pid| pid.parse().ok());
    // Without a fork in between it is the child itself.
    let pid = pid.or_else(|| i32::try_from(id).ok());
    pid.and_then(rustix::process::Pid::from_raw).ok_or_else(|| Error::bug("a process without a number"))
}

#[tokio::test]
async fn operator_opens_topic_and_partitions_and_quits() -> Result<()> {
    let dir = scratch()?;
    let server = format!("unix:{}", dir.path().join("dwell.sock").display());
    let mut broker = Process::serve(dir.path(), &[]).await?;
    for topic in ["orders", "mail"] {
        let push = broker.client.post(&format!("/v1/topics/{topic}/messages?delay=1h&raw=true"), &json!("x")).await;
        assert_eq!(push.map(|(status, _)| status), Some(201));
    }
    let mut terminal = Terminal::open(&server, &[])?;
    for text in ["\u{1b}[?1049h", "ready", "2 topics", "mail", "orders", "embedded"] {
        terminal.shows(text).await?;
    }
    assert!(terminal.is_raw()?);
    terminal.press("j\r")?;
    terminal.shows("0 of 8 owned").await?;
    terminal.press("\u{1b}")?;
    terminal.shows("Enter open").await?;
    terminal.press("/mai")?;
    terminal.shows("/mai_").await?;
    terminal.press("\r")?;
    terminal.shows("/mai  ").await?;
    terminal.forget();
    resize(&terminal.keyboard, 40, 10)?;
    terminal.shows("mail   ok             1      0     0").await?;
    terminal.forget();
    resize(&terminal.keyboard, 100, 30)?;
    terminal.shows("oldest ready").await?;
    broker.kill()?;
    terminal.shows("AWAY").await?;
    terminal.forget();
    let _broker = Process::serve(dir.path(), &[]).await?;
    terminal.shows("ready").await?;
    terminal.press("q")?;
    terminal.ends().await
}

#[tokio::test]
async fn signals_restore_the_terminal_and_no_color_works() -> Result<()> {
    let mut colored = Terminal::open("unix:/does/not/exist.sock", &[])?;
    colored.shows("AWAY").await?;
    colored.shows("\u{1b}[38;5;9m").await?;
    rustix::process::kill_process(inner_pid(&colored)?, rustix::process::Signal::TERM).map_err(errno("a signal"))?;
    colored.ends().await?;
    let mut plain = Terminal::open("unix:/does/not/exist.sock", &[("NO_COLOR", "1")])?;
    plain.shows("AWAY").await?;
    plain.shows("away, asked 3 times").await?;
    let written = plain.written.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert!(!String::from_utf8_lossy(&written).contains("[38;5"), "{:?}", String::from_utf8_lossy(&written));
    plain.press("\u{3}")?;
    plain.ends().await
}

#[tokio::test]
async fn outage_shows_broker_state_and_buffered_records() -> Result<()> {
    let dir = scratch()?;
    let server = format!("unix:{}", dir.path().join("dwell.sock").display());
    let away = format!("redis+unix://{}", dir.path().join("no-redis.sock").display());
    let broker = Process::serve(dir.path(), &[("REDIS_URL", &away)]).await?;
    let push = broker.client.post("/v1/topics/orders/messages?delay=1h&raw=true", &json!("x")).await;
    assert_eq!(push.map(|(status, _)| status), Some(202));
    let mut command = Command::new(env!("CARGO_BIN_EXE_dwell"));
    command.args(["top", "--once"]).env_clear().env("DWELL_SERVER", &server).stdin(Stdio::null());
    let output = command.output().map_err(failed("dwell top"))?;
    assert_eq!(output.status.code(), Some(69), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // The topic, which nobody knew, and the message.
    assert!(text.contains("DEGRADED") && text.contains("wal 2 records"), "{text}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("Redis cannot be reached"), "{output:?}");
    Ok(())
}

#[tokio::test]
async fn groups_are_shown_below_their_topic_with_states() -> Result<()> {
    let dir = scratch()?;
    let server = format!("unix:{}", dir.path().join("dwell.sock").display());
    let broker = Process::serve(dir.path(), &[]).await?;
    for line in ["/v1/topics/mail/messages?delay=1h&raw=true", "/v1/topics/orders/messages?delay=1h&raw=true"] {
        assert_eq!(broker.client.post(line, &json!("x")).await.map(|(status, _)| status), Some(201));
    }
    let dwell = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dwell"));
        command.args(args).env_clear().env("DWELL_SERVER", &server).stdin(Stdio::null());
        let output = command.output().map_err(failed("dwell"))?;
        assert_eq!(output.status.code(), Some(0), "{args:?}: {output:?}");
        Ok::<_, Error>(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    dwell(&["group", "create", "orders", "audit"])?;
    dwell(&["group", "pause", "orders", "audit"])?;
    let text = dwell(&["top", "--once", "--interval", "100ms"])?;
    let rows = text.lines().map(|line| line.split_whitespace().take(3).collect::<Vec<_>>().join(" "));
    let rows: Vec<_> = rows.skip_while(|row| !row.starts_with("mail")).collect();
    assert_eq!(rows, ["mail ok 1", "orders paused 1", "default ok 1", "audit paused 0", "all paused 2"], "{text}");
    let json: serde_json::Value = serde_json::from_str(&dwell(&["top", "--json", "--interval", "100ms"])?)
        .map_err(|error| Error::corrupt(error.to_string()))?;
    let groups = &json["topics"][1]["groups"];
    assert_eq!((&groups[0]["group"], &groups[1]["group"]), (&json!("default"), &json!("audit")));
    assert_eq!((&groups[0]["state"], &groups[1]["state"]), (&json!("ok"), &json!("paused")));
    let mut terminal = Terminal::open(&server, &[])?;
    for text in ["mail", "orders", "  default", "  audit", "paused"] {
        terminal.shows(text).await?;
    }
    terminal.press("q")?;
    terminal.ends().await
}

#[tokio::test]
async fn without_a_terminal_a_table_is_printed() -> Result<()> {
    let dir = scratch()?;
    let server = format!("unix:{}", dir.path().join("dwell.sock").display());
    let top = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dwell"));
        command.args(["top", "--interval", "100ms"]).args(args).env_clear().env("DWELL_SERVER", &server);
        command.stdin(Stdio::null()).output().map_err(failed("dwell top"))
    };
    assert_eq!(top(&["--once"])?.status.code(), Some(69));
    let broker = Process::serve(dir.path(), &[]).await?;
    let push = broker.client.post("/v1/topics/orders/messages?delay=1h&raw=true", &json!("x")).await;
    assert_eq!(push.map(|(status, _)| status), Some(201));
    for args in [&[][..], &["--once"]] {
        let output = top(args)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let row = text.lines().last().unwrap_or_default().split_whitespace().collect::<Vec<_>>();
        assert_eq!(row, ["orders", "ok", "1", "0", "0", "0", "0", "-", "0.0", "0.0", "-"], "{text}");
        assert!(!text.contains('\u{1b}') && text.starts_with("dwell "), "{text}");
    }
    Ok(())
}
