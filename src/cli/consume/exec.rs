//! Runs a command for a delivery, extends the deadline while it runs, and keeps the end of its stderr.

use std::cell::RefCell;
use std::io::Write as _;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use bytes::Bytes;
use dwell_client::Extend;
use dwell_client::wire::consume::Delivery;
use futures_util::future;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStderr, ChildStdin, Command};

use crate::cli::contents::Payload;
use crate::cli::failure::Failure;
use crate::cli::output;
use crate::cli::remote::{At as _, Remote};
use crate::cli::settle::refusal;
use crate::model::limits::REASON_BYTES_MAX;
use crate::model::message::{GroupName, TopicName};
use crate::platform::clock::Clock;

/// Bytes of the end of stderr that go into the reason of a nack; beside them there is the exit code.
const STDERR_BYTES: usize = REASON_BYTES_MAX - 64;

/// How long to read on after the command ended: what it left running in the background may hold its stderr indefinitely.
const DRAIN: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Ack,
    Nack(String),
    /// The command itself is wrong, and not this message: it is released, and no other message should be tried.
    Unusable(String),
}

/// Exit codes of a shell for a command that cannot be executed, and for one that is not found.
const UNUSABLE: [i32; 2] = [126, 127];

/// Looks for the program that a command begins with, before anything is reserved: a delivery is an attempt. A command that begins with
/// anything but a plain name or path is not judged. # Errors: there is no such program.
pub(super) async fn check(command: &str) -> Result<(), Failure> {
    let program = command.split_whitespace().next().unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if !program.chars().all(is_plain) {
        return Ok(());
    }
    let look = Command::new("sh").args(["-c", FIND, "sh", program]).stdout(Stdio::null()).status();
    match look.await {
        Ok(status) if !status.success() => {
            Err(Failure::new(format!("--exec: there is no program {program:?} that can be executed")))
        }
        // A shell that cannot be started says so for the first delivery.
        _ => Ok(()),
    }
}

const FIND: &str = r#"case $1 in */*) [ -f "$1" ] && [ -x "$1" ];; *) command -v -- "$1";; esac"#;

pub(super) struct Exec {
    command: String,
    remote: Remote,
    topic: TopicName,
    group: GroupName,
    clock: Clock,
}

impl Exec {
    pub(super) fn new(command: &str, remote: Remote, topic: TopicName, group: GroupName) -> Exec {
        Exec { command: command.to_owned(), remote, topic, group, clock: Clock::System }
    }

    /// Runs the command, and gives it `visibility_timeout` again and again. Dropping the future kills it with everything it
    /// started.
    pub(super) async fn run(&self, delivery: &Delivery, visibility_timeout: Duration) -> Outcome {
        let payload = match Payload::from(&delivery.contents).bytes() {
            Ok(payload) => payload,
            Err(why) => return Outcome::Nack(why),
        };
        let mut child = match self.command(delivery).spawn() {
            Ok(child) => child,
            Err(error) => return Outcome::Unusable(format!("the command cannot be started: {error}")),
        };
        let group = ProcessGroup::of(&child);
        let tail = RefCell::new(Tail::new(STDERR_BYTES));
        let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
        let pipes = future::join(feed(stdin, payload), follow(stderr, &tail));
        let status = self.wait(&mut child, (delivery, visibility_timeout), pipes).await;
        group.ended();
        let end = tail.borrow().text();
        match status {
            Ok(status) if status.success() => Outcome::Ack,
            Ok(status) if status.code().is_some_and(|code| UNUSABLE.contains(&code)) => {
                Outcome::Unusable(format!("{}: {end}", ended(status)))
            }
            Ok(status) if end.is_empty() => Outcome::Nack(ended(status)),
            Ok(status) => Outcome::Nack(format!("{}: {end}", ended(status))),
            Err(error) => Outcome::Nack(format!("the command cannot be waited for: {error}")),
        }
    }

    async fn wait(
        &self,
        child: &mut Child,
        (delivery, visibility_timeout): (&Delivery, Duration),
        pipes: impl Future<Output = ((), ())>,
    ) -> std::io::Result<ExitStatus> {
        tokio::pin!(pipes);
        let mut served = false;
        let mut extend_at = self.clock.instant().plus(visibility_timeout / 2);
        let status = loop {
            tokio::select! {
                status = child.wait() => break status,
                ((), ()) = &mut pipes, if !served => served = true,
                () = self.clock.sleep_until(extend_at) => {
                    self.extend(delivery, visibility_timeout).await;
                    extend_at = self.clock.instant().plus(visibility_timeout / 2);
                }
            }
        };
        if !served {
            tokio::select! {
                _ = &mut pipes => {}
                () = self.clock.sleep(DRAIN) => {}
            }
        }
        status
    }

    async fn extend(&self, delivery: &Delivery, visibility_timeout: Duration) {
        let Remote { client, place } = &self.remote;
        let (id, extend) = (&delivery.id, Extend::of([&delivery.receipt], visibility_timeout));
        match client.extend(self.topic.as_str(), self.group.as_str(), extend).await.at(place) {
            Ok(verdicts) => {
                for refused in verdicts.iter().filter(|verdict| !verdict.is_applied()).map(refusal) {
                    output::note(format_args!("{id}: its deadline could not be moved: {refused}"));
                }
            }
            Err(error) => output::note(format_args!("{id}: its deadline could not be moved: {error}")),
        }
    }

    fn command(&self, delivery: &Delivery) -> Command {
        let mut command = Command::new("sh");
        command.arg("-c").arg(&self.command);
        command.stdin(Stdio::piped()).stdout(Stdio::inherit()).stderr(Stdio::piped()).kill_on_drop(true);
        // Ctrl-C on the terminal is for dwell, which lets the command finish.
        command.process_group(0);
        command.env("DWELL_TOPIC", self.topic.as_str()).env("DWELL_GROUP", self.group.as_str());
        command.env("DWELL_ID", &delivery.id).env("DWELL_KEY", delivery.contents.key.as_deref().unwrap_or_default());
        command.env("DWELL_ATTEMPT", delivery.attempt.to_string());
        command.env("DWELL_PARTITION", delivery.partition.to_string());
        command.env("DWELL_DUE_AT", delivery.due_at.to_string());
        command.env("DWELL_PUSHED_AT", delivery.contents.pushed_at.to_string());
        command.env("DWELL_LATENESS_MS", delivery.lateness_ms.to_string());
        command.env("DWELL_CONTENT_TYPE", delivery.contents.content_type.as_deref().unwrap_or_default());
        command.env("DWELL_TRACEPARENT", delivery.contents.traceparent.as_deref().unwrap_or_default());
        command.env("DWELL_TRACESTATE", delivery.contents.tracestate.as_deref().unwrap_or_default());
        for (name, value) in &delivery.contents.meta.0 {
            let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
            command.env(format!("DWELL_META_{}", name.to_ascii_uppercase()), value);
        }
        command
    }
}

/// A command with everything it started. It is killed when it is not waited for to its end.
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    fn of(child: &Child) -> ProcessGroup {
        ProcessGroup(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)))
    }

    fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(id) = self.0 {
            // It fails when the group ended meanwhile.
            let _ = kill_process_group(id, Signal::KILL);
        }
    }
}

/// Writes the payload. A command need not read it.
async fn feed(stdin: Option<ChildStdin>, payload: Bytes) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(&payload).await;
    }
}

async fn follow(stderr: Option<ChildStderr>, tail: &RefCell<Tail>) {
    let Some(mut stderr) = stderr else { return };
    let mut chunk = [0; 4_096];
    while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
        let bytes = chunk.get(..count).unwrap_or_default();
        tail.borrow_mut().write(bytes);
        let _ = std::io::stderr().lock().write_all(bytes);
    }
}

fn ended(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

#[derive(Debug)]
struct Tail {
    bytes: Vec<u8>,
    limit: usize,
    cut: bool,
}

impl Tail {
    fn new(limit: usize) -> Tail {
        Tail { bytes: Vec::new(), limit, cut: false }
    }

    fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        if let Some(excess) = self.bytes.len().checked_sub(self.limit).filter(|excess| *excess > 0) {
            self.bytes.drain(..excess);
            self.cut = true;
        }
    }

    /// The end as text, without a character that was cut in half.
    fn text(&self) -> String {
        let is_inside = |byte: &u8| (0x80..0xc0).contains(byte);
        let start = if self.cut { self.bytes.iter().take_while(|byte| is_inside(byte)).count() } else { 0 };
        let text = String::from_utf8_lossy(self.bytes.get(start..).unwrap_or_default());
        let dots = if self.cut { "…" } else { "" };
        format!("{dots}{}", text.trim())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn run(command: &str, payload: &str) -> Result<Outcome, Failure> {
        let remote = Remote::started("unix:/does/not/exist")?;
        let delivery = serde_json::json!({
            "receipt": "3.17.k.1", "id": "a-1", "key": "k", "payload": payload, "meta": {"trace-id": "t"}, "attempt": 2,
            "partition": 3, "due_at": "1970-01-01T00:00:00Z", "pushed_at": "1970-01-01T00:00:00Z", "deadline": "1970-01-01T00:00:00Z", "lateness_ms": 1,
            "traceparent": "00-1", "tracestate": "a=b"
        });
        let delivery = serde_json::from_value(delivery).map_err(|error| Failure::new(error.to_string()))?;
        let exec = Exec::new(command, remote, TopicName::new("orders")?, GroupName::standard());
        Ok(exec.run(&delivery, Duration::from_secs(30)).await)
    }

    #[tokio::test]
    async fn exit_code_0_acks_and_everything_else_nacks_with_a_reason() -> Result<(), Failure> {
        let nack = |reason: &str| Outcome::Nack(reason.to_owned());
        let cases = [
            ("true", Outcome::Ack),
            ("exit 3", nack("exit code 3")),
            ("echo no paper >&2; exit 4", nack("exit code 4: no paper")),
            ("nothing-of-this-name 2>/dev/null", Outcome::Unusable("exit code 127: ".to_owned())),
            ("echo 'is a directory' >&2; exit 126", Outcome::Unusable("exit code 126: is a directory".to_owned())),
            ("kill -9 $$", nack("killed by signal 9")),
            ("test \"$(cat)\" = payload", Outcome::Ack),
            (
                "test $DWELL_TOPIC/$DWELL_GROUP/$DWELL_ID/$DWELL_KEY/$DWELL_ATTEMPT = orders/default/a-1/k/2",
                Outcome::Ack,
            ),
            ("test $DWELL_META_TRACE_ID = t", Outcome::Ack),
            ("test $DWELL_TRACEPARENT/$DWELL_TRACESTATE = 00-1/a=b", Outcome::Ack),
        ];
        for (command, expected) in cases {
            assert_eq!(run(command, "payload").await?, expected, "{command}");
        }
        Ok(())
    }

    #[tokio::test]
    async fn only_a_plain_program_that_is_not_there_is_refused() {
        for good in [
            "true",
            "cat > /dev/null",
            "if true; then exit 0; fi",
            "/bin/sh -c true",
            "A=1 nothing",
            "$HANDLER",
            "(nothing)",
        ] {
            assert_eq!(check(good).await, Ok(()), "{good}");
        }
        for bad in ["nothing-of-this-name", "./nothing.sh a b", "/etc/passwd", "/etc"] {
            assert!(check(bad).await.is_err_and(|failure| failure.message.contains("that can be executed")), "{bad}");
        }
    }

    #[tokio::test]
    async fn unread_stdin_or_background_children_do_not_block() -> Result<(), Failure> {
        let large = "x".repeat(1024 * 1024);
        assert_eq!(run("exec true", &large).await?, Outcome::Ack);
        assert_eq!(run("sleep 30 >&2 & exit 0", "").await?, Outcome::Ack);
        Ok(())
    }

    /// Whether a process runs; one that nobody has waited for yet does not.
    #[cfg(target_os = "linux")]
    fn runs(pid: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn aborted_command_is_killed_with_its_children() -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::new(error.to_string());
        let dir = tempfile::tempdir().map_err(failed)?;
        let file = dir.path().join("pid");
        let command = format!("sleep 300 & echo $! > {}; wait", file.display());
        let mut running = Box::pin(run(&command, ""));
        let pid = loop {
            tokio::select! {
                outcome = &mut running => return Err(Failure::new(format!("{outcome:?}"))),
                () = tokio::task::yield_now() => {}
            }
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            if text.ends_with('\n') {
                break text.trim().to_owned();
            }
        };
        assert!(runs(&pid));
        drop(running);
        while runs(&pid) {
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    #[tokio::test]
    async fn only_the_tail_of_a_long_stderr_is_kept() -> Result<(), Failure> {
        let outcome = run("seq -s ' ' 10000 >&2; echo end >&2; exit 1", "").await?;
        let Outcome::Nack(reason) = outcome else { return Err(Failure::new("acked")) };
        assert!(reason.starts_with("exit code 1: …") && reason.ends_with("9999 10000\nend"), "{reason}");
        assert!(reason.len() <= REASON_BYTES_MAX, "{}", reason.len());
        Ok(())
    }

    #[test]
    fn short_text_is_whole_and_long_text_keeps_its_tail() {
        let mut tail = Tail::new(5);
        tail.write(b"ab\n");
        assert_eq!(tail.text(), "ab");
        tail.write("cdéf\n".as_bytes());
        assert_eq!(tail.text(), "…déf");
        tail.write("é€".as_bytes());
        assert_eq!(tail.text(), "…é€");
        tail.write(b"!");
        assert_eq!(tail.text(), "…€!");
    }
}
