//! Conversations with the real binary: what it prints, and the exit codes that scripts go by.

mod completions;
mod json;
mod lists;
mod places;
mod usage_errors;
mod settle;
mod dedup;
mod spread;
mod after;
mod debounce_max;
mod update;

use std::io::{BufRead as _, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};

use dwell::model::error::{Error, Result};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::support::{Application, RedisServer, eventually, failed};

/// A broker in a process and a directory of its own, and the command line as its client.
struct Shell {
    dir: TempDir,
    broker: Option<Child>,
}

/// What a command said, and how it ended.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Shell {
    fn without_broker() -> Result<Shell> {
        Ok(Shell { dir: tempfile::tempdir().map_err(failed("a scratch directory"))?, broker: None })
    }

    async fn start() -> Result<Shell> {
        Shell::without_broker()?.serving("").await
    }

    /// Starts a broker with this configuration file.
    async fn serving(mut self, config: &str) -> Result<Shell> {
        let file = self.dir.path().join("dwell.toml").display().to_string();
        std::fs::write(&file, config).map_err(failed("a configuration"))?;
        let mut serve = self.command(&["serve", "--listen", &self.address(), "--config", &file]);
        serve.stdout(Stdio::piped()).stderr(Stdio::piped());
        self.broker = Some(serve.spawn().map_err(failed("dwell serve"))?);
        eventually("dwell serve answers", async || Ok(self.dwell(&["topic", "list"])?.ok().map(drop))).await?;
        Ok(self)
    }

    fn address(&self) -> String {
        format!("unix:{}", self.dir.path().join("dwell.sock").display())
    }

    /// The binary, with nothing from the environment that could change what it does.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dwell"));
        command.args(args).env_clear().env("HOME", self.dir.path()).env("DWELL_SERVER", self.address());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).stdin(Stdio::null());
        command
    }

    fn dwell(&self, args: &[&str]) -> Result<Said> {
        self.command(args).output().map(Said::from).map_err(failed("dwell"))
    }

    /// Runs dwell with something on stdin.
    fn pipe(&self, input: &str, args: &[&str]) -> Result<Said> {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed("dwell"))?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes()).map_err(failed("stdin"))?;
        }
        child.wait_with_output().map(Said::from).map_err(failed("dwell"))
    }

    /// Sends SIGTERM to the broker and waits for its end.
    fn stop(mut self) -> Result<Said> {
        terminate(self.broker.take().ok_or_else(|| Error::bug("no broker"))?)
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        if let Some(mut broker) = self.broker.take() {
            // It may have ended by itself.
            let _ = broker.kill();
            let _ = broker.wait();
        }
    }
}

/// Sends SIGTERM to a process and waits for its end.
fn terminate(process: Child) -> Result<Said> {
    let killed = kill_process(Pid::from_child(&process), Signal::TERM);
    killed.map_err(|error| failed("a signal")(error.into()))?;
    process.wait_with_output().map(Said::from).map_err(failed("the end of a process"))
}

impl From<Output> for Said {
    fn from(output: Output) -> Said {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Said { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }
}

impl Said {
    fn ok(self) -> Option<String> {
        (self.code == Some(0)).then_some(self.out)
    }
}

#[tokio::test]
async fn push_consume_ack_and_graceful_stop() -> Result<()> {
    let shell = Shell::start().await?;
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let push = ["push", "orders", "close 4711", "--id", "a", "--key", "k", "--meta", "trace=é", "--traceparent"];
    let pushed = shell.dwell(&[&push[..], &[traceparent]].concat())?;
    assert!(pushed.out.starts_with("stored a in partition "), "{pushed:?}");
    let again = shell.dwell(&["push", "orders", "close 4711", "--id", "a", "--key", "k"])?;
    assert_eq!(again.ok().as_deref(), Some("duplicate a: it is there already, nothing changed\n"));
    let consumed = shell.dwell(&["consume", "orders", "--count", "1", "--json"])?;
    let delivery: serde_json::Value = serde_json::from_str(&consumed.out).unwrap_or_default();
    let (payload, meta) = (&delivery["payload"], &delivery["meta"]["trace"]);
    assert_eq!([payload, meta, &delivery["traceparent"]], ["close 4711", "é", traceparent], "{consumed:?}");
    assert_eq!(consumed.err, "1 delivered, 1 acked, 0 nacked\n");
    let stopped = shell.stop()?;
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    for said in ["embedded: ", "fsynced", "unix:/", "curl --unix-socket"] {
        assert!(stopped.out.contains(said), "{said}: {}", stopped.out);
    }
    Ok(())
}

#[tokio::test]
async fn every_line_of_a_file_is_pushed_or_reported() -> Result<()> {
    let shell = Shell::start().await?;
    let good: String = (0..1_200).map(|n| format!("{{\"payload\": \"m{n}\", \"id\": \"m{n}\"}}\n")).collect();
    let input = format!(
        "{good}nonsense\n\n{{\"payload\": \"x\", \"dealy\": \"1s\"}}\n{{\"payload\": \"m0\", \"id\": \"m0\"}}\n"
    );
    let said = shell.pipe(&input, &["push", "orders", "--file", "-"])?;
    assert_eq!(said.out, "1,204 lines: 1,200 stored, 1 duplicate, 2 failed, 1 blank\n");
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("line 1201: is not a JSON object\nline 1203: unknown field `dealy`"), "{}", said.err);
    let consumed = shell.dwell(&["consume", "orders", "--count", "1200", "--max", "500"])?;
    assert_eq!(consumed.out.lines().count(), 1_200, "{}", consumed.err);
    Ok(())
}

#[tokio::test]
async fn failing_command_nacks_with_stderr_and_can_be_redriven() -> Result<()> {
    let shell = Shell::start().await?;
    shell.dwell(&["push", "orders", "close 4711", "--id", "a", "--max-attempts", "1"])?;
    let failing = ["consume", "orders", "--count", "1", "--exec", "cat; echo no paper >&2; exit 3"];
    let said = shell.dwell(&failing)?;
    assert_eq!((said.code, said.out.as_str()), (Some(0), "close 4711"), "{said:?}");
    assert!(said.err.ends_with("1 delivered, 0 acked, 1 nacked\n"), "{said:?}");
    let dead = shell.dwell(&["dead-letters", "list", "orders"])?.out;
    assert!(dead.contains("  a   max_attempts         1  \"exit code 3: no paper\"  close 4711"), "{dead}");
    let told = shell
        .dwell(&["dead-letters", "list", "orders", "--text", "no paper", "--younger-than", "1h", "--history"])?
        .out;
    assert!(told.lines().nth(2).is_some_and(|line| line.ends_with(" attempt 1: \"exit code 3: no paper\"")), "{told}");
    assert_eq!(shell.dwell(&["dead-letters", "purge", "orders", "--reason", "buried"])?.out, "0 purged\n");
    assert_eq!(shell.dwell(&["dead-letters", "redrive", "orders", "--reason", "boredom"])?.code, Some(1));
    assert_eq!(shell.dwell(&["dead-letters", "redrive", "orders", "a", "--all"])?.code, Some(64));
    let some = ["dead-letters", "redrive", "orders", "--text", "close", "--rate", "100", "--limit", "1"];
    assert_eq!(shell.dwell(&some)?.out, "1 redriven\n");
    assert_eq!(shell.dwell(&failing)?.out, "close 4711");
    assert_eq!(shell.dwell(&["dead-letters", "redrive", "orders", "a", "b"])?.out, "1 redriven, 1 not dead\n");
    let working = ["consume", "orders", "--count", "1", "--exec", "test $DWELL_ID/$DWELL_ATTEMPT = a/1"];
    let said = shell.dwell(&working)?;
    assert!(said.err.ends_with("1 delivered, 1 acked, 0 nacked\n"), "{said:?}");
    assert_eq!(shell.dwell(&["topic", "delete", "orders", "--yes"])?.out, "orders deleted, with 0 messages\n");
    assert_eq!(shell.dwell(&["topic", "get", "orders"])?.code, Some(1));
    Ok(())
}

#[tokio::test]
async fn cron_jobs_are_created_listed_paused_and_deleted() -> Result<()> {
    let shell = Shell::start().await?;
    let create = ["cron", "create", "orders", "pulse", "--every", "1s", "beat", "--meta", "a=b"];
    assert!(shell.dwell(&create)?.out.starts_with("pulse created; next at 20"));
    assert!(shell.dwell(&create)?.out.starts_with("pulse replaced; next at 20"));
    let consumed = shell.dwell(&["consume", "orders", "--count", "2"])?;
    assert_eq!(consumed.code, Some(0), "{consumed:?}");
    assert_eq!(shell.dwell(&["cron", "pause", "orders", "pulse"])?.out, "pulse paused\n");
    let listed = shell.dwell(&["cron", "list", "orders"])?.out;
    assert_eq!(listed, "name   occurs    next    payload\npulse  every 1s  paused  beat\n");
    assert!(shell.dwell(&["cron", "resume", "orders", "pulse"])?.out.starts_with("pulse next at 20"));
    assert_eq!(shell.dwell(&["cron", "delete", "orders", "pulse"])?.out, "pulse deleted\n");
    assert_eq!(shell.dwell(&["cron", "delete", "orders", "pulse"])?.code, Some(1));
    let wrong = ["cron", "create", "orders", "x", "--cron", "0 25 * * *", "beat"];
    assert_eq!(shell.dwell(&wrong)?.code, Some(1));
    assert_eq!(shell.dwell(&["cron", "create", "orders", "x", "beat"])?.code, Some(64));
    Ok(())
}

#[tokio::test]
async fn a_topic_is_moved_into_one_with_more_partitions() -> Result<()> {
    let shell = Shell::start().await?;
    for id in ["a", "b", "c"] {
        shell.dwell(&["push", "orders", "close", "--id", id, "--delay", "1h"])?;
    }
    let refused = shell.dwell(&["topic", "create", "orders", "--partitions", "32"])?;
    assert!(refused.err.contains("dwell topic move orders NEW --partitions 32"), "{refused:?}");
    let moved = shell.dwell(&["topic", "move", "orders", "orders-2", "--partitions", "32"])?;
    assert_eq!(moved.out, "3 messages moved; orders is empty\n", "{moved:?}");
    assert!(shell.dwell(&["topic", "get", "orders-2"])?.out.contains("partitions          32"));
    let other = shell.dwell(&["topic", "move", "orders", "orders-2", "--partitions", "16"])?;
    assert!(other.code == Some(1) && other.err.contains("32 partitions, not 16"), "{other:?}");
    assert_eq!(shell.dwell(&["topic", "move", "orders", "orders"])?.code, Some(1));
    assert_eq!(shell.dwell(&["topic", "move", "nothing", "orders"])?.code, Some(1));
    Ok(())
}

#[tokio::test]
async fn verify_reports_a_consistent_store() -> Result<()> {
    let shell = Shell::start().await?;
    shell.dwell(&["push", "orders", "close", "--delay", "1h"])?;
    for args in [&["verify", "orders"][..], &["verify", "orders", "--repair"]] {
        let said = shell.dwell(args)?;
        assert_eq!((said.code, said.out.as_str()), (Some(0), "default: 2 entries, all consistent\n"));
    }
    assert_eq!(shell.dwell(&["verify", "nothing"])?.code, Some(1));
    Ok(())
}

#[tokio::test]
async fn message_get_reschedule_cancel_and_run_now() -> Result<()> {
    let shell = Shell::start().await?;
    shell.dwell(&["push", "orders", "close", "--id", "a/1", "--key", "customer-7", "--delay", "1h"])?;
    let message = |verb: &str, more: &[&str]| {
        shell.dwell(&[&["message", verb, "orders", "a/1", "--key", "customer-7"], more].concat())
    };
    let looked = message("get", &[])?.out;
    let lines: Vec<&str> = looked.lines().collect();
    assert!(lines[0].starts_with("a/1 scheduled in partition 6, due ") && lines[0].ends_with(", tried 0 times"));
    assert!(lines[2].starts_with("  pushed   20"), "{looked}");
    assert_eq!([lines[1], lines[3], lines[4]], ["  key      customer-7", "  size     5 B", "  payload  close"]);
    let etag = message("get", &["--json"])?.out;
    let etag: serde_json::Value = serde_json::from_str(&etag).unwrap_or_default();
    let etag = etag["etag"].as_str().unwrap_or_default();
    assert!(message("reschedule", &["--delay", "2h", "--if-match", etag])?.out.starts_with("a/1 rescheduled, due "));
    let stale = message("reschedule", &["--delay", "3h", "--if-match", etag])?;
    assert!(stale.code == Some(1) && stale.err.contains("(precondition-failed)"), "{stale:?}");
    assert!(message("run", &["--json"])?.out.contains(r#""status":"rescheduled""#));
    assert!(message("get", &[])?.out.starts_with("a/1 ready "));
    let listed = shell.dwell(&["message", "list", "orders", "--state", "ready"])?.out;
    assert!(listed.ends_with("  a/1  ready          6  close\n"), "{listed}");
    for _ in 0..2 {
        assert_eq!(message("cancel", &[])?.out, "a/1 cancelled\n");
    }
    let gone = message("run", &[])?;
    assert!(gone.code == Some(1) && gone.err.contains("(not-found)"), "{gone:?}");
    let push = |policy| shell.dwell(&["push", "orders", "x", "--id", "b", "--delay", "1h", "--conflict", policy]);
    assert!(push("reject")?.out.starts_with("stored b "));
    assert!(push("replace")?.out.starts_with("replaced b "));
    assert!(push("debounce")?.out.starts_with("debounced b "));
    assert!(push("reject")?.err.contains("(conflict)"));
    assert_eq!(push("other")?.code, Some(64));
    Ok(())
}

#[tokio::test]
async fn bulk_counts_postpones_and_cancels() -> Result<()> {
    let shell = Shell::start().await?;
    for delay in ["1h", "90m", "2h"] {
        shell.dwell(&["push", "orders", "close", "--delay", delay])?;
    }
    let at = |ahead: u64| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        ((now + ahead) * 1_000).to_string()
    };
    let (from, to) = (at(1_800), at(6_600));
    let window = |verb: &str, more: &[&str]| {
        shell.dwell(&[&["bulk", verb, "orders", "--from", from.as_str(), "--to", to.as_str()], more].concat())
    };
    assert_eq!(window("count", &[])?.out, "2 waiting\n");
    let short = window("postpone", &["--by", "1h"])?;
    assert!(short.code == Some(1) && short.err.contains("is shorter than the time from `from` to `to`"), "{short:?}");
    assert_eq!(window("postpone", &["--by", "2h"])?.out, "2 postponed\n");
    assert_eq!(window("cancel", &["--yes"])?.out, "0 cancelled\n");
    assert_eq!(window("count", &["--group", "nobody"])?.code, Some(1));
    Ok(())
}

#[tokio::test]
async fn a_forecast_is_printed() -> Result<()> {
    let shell = Shell::start().await?;
    for delay in ["0s", "90m", "90m", "3h"] {
        shell.dwell(&["push", "orders", "close", "--delay", delay])?;
    }
    let said = shell.dwell(&["forecast", "orders", "--step", "1h", "--spans", "2"])?;
    let counts: Vec<&str> = said
        .out
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().rfind(|word| !word.starts_with('#')))
        .collect();
    assert_eq!(counts, ["1", "0", "2", "1"], "{said:?}");
    assert_eq!(shell.dwell(&["forecast", "orders", "--spans", "501"])?.code, Some(64));
    assert_eq!(shell.dwell(&["forecast", "nothing"])?.code, Some(1));
    Ok(())
}

#[tokio::test]
async fn attention_is_printed_and_brokers_are_listed() -> Result<()> {
    let shell = Shell::start().await?;
    shell.dwell(&["push", "orders", "close"])?;
    shell.dwell(&["group", "pause", "orders", "default"])?;
    let said = shell.dwell(&["attention"])?.out;
    assert_eq!(said, "paused  orders default  paused until it is resumed, with 1 ready message\n");
    assert!(shell.dwell(&["attention", "--json"])?.out.contains("\"kind\":\"paused\""));
    let said = shell.dwell(&["brokers"])?.out;
    assert!(said.lines().count() == 2 && said.contains("(this one)"), "{said}");
    Ok(())
}

#[tokio::test]
async fn group_is_created_paused_resumed_and_deleted() -> Result<()> {
    let shell = Shell::start().await?;
    shell.dwell(&["push", "orders", "first", "--id", "a"])?;
    let said = |args: &[&str]| shell.dwell(args).map(|said| said.out);
    assert_eq!(said(&["group", "create", "orders", "audit", "--copy-of", "default"])?, "audit created; active\n");
    assert_eq!(said(&["group", "create", "orders", "audit"])?, "audit existed; active\n");
    assert_eq!(said(&["group", "pause", "orders", "audit"])?, "audit is paused\n");
    assert!(said(&["group", "pause", "orders", "audit", "--for", "1h"])?.starts_with("audit is paused until 2"));
    assert!(
        said(&["group", "list", "orders"])?.starts_with("group    state\ndefault  active\naudit    paused until 2")
    );
    assert_eq!(said(&["group", "resume", "orders", "audit"])?, "audit is active\n");
    let refused = shell.dwell(&["group", "pause", "orders", "audit", "--key", "c7", "--for", "1h"])?;
    assert!(refused.code == Some(1) && refused.err.contains("group audit is not fair"), "{refused:?}");
    said(&["group", "update", "orders", "audit", "--fair", "key"])?;
    let refused = shell.dwell(&["group", "pause", "orders", "audit", "--key", "c7"])?;
    assert!(refused.code == Some(64) && refused.err.contains("add `--for 10m`"), "{refused:?}");
    let paused = said(&["group", "pause", "orders", "audit", "--key", "c/7 ü", "--for", "1h"])?;
    assert!(paused.starts_with("c/7 ü is paused until 2"), "{paused}");
    let keys =
        "0 keys with messages due or in flight; not all partitions have an owner that answered\n\n1 key paused\nkey";
    assert!(
        said(&["group", "get", "orders", "audit"])?.contains(keys),
        "{}",
        said(&["group", "get", "orders", "audit"])?
    );
    assert_eq!(said(&["group", "resume", "orders", "audit", "--key", "c/7 ü"])?, "c/7 ü is not paused\n");
    said(&["group", "update", "orders", "audit", "--fair", "none"])?;
    assert!(said(&["group", "get", "orders", "audit"])?.starts_with("audit: active\n\npartition  group"));
    let consumed = shell.dwell(&["consume", "orders", "--group", "audit", "--count", "1"])?;
    assert!(consumed.out.ends_with(": first\n"), "{consumed:?}");
    let limited = said(&["group", "create", "orders", "audit", "--rate", "10", "--max-in-flight", "100"])?;
    assert_eq!(limited, "audit existed; active, at most 10 a second, at most 100 in flight\n");
    assert_eq!(said(&["group", "delete", "orders", "audit", "--yes"])?, "audit deleted, with 0 messages\n");
    let gone = shell.dwell(&["group", "get", "orders", "audit"])?;
    assert!(gone.code == Some(1) && gone.err.contains("no group audit"), "{gone:?}");
    Ok(())
}

/// A command that is not there says nothing about a message: no attempt is spent, and the message is ready for others.
#[tokio::test]
async fn unusable_command_ends_the_consumer() -> Result<()> {
    let shell = Shell::start().await?;
    shell.dwell(&["push", "orders", "close", "--id", "a", "--max-attempts", "1"])?;
    let absent = shell.dwell(&["consume", "orders", "--count", "1", "--exec", "./absent.sh"])?;
    assert_eq!((absent.code, absent.out.as_str()), (Some(1), ""), "{absent:?}");
    assert!(absent.err.contains("--exec: there is no program \"./absent.sh\""), "{absent:?}");
    assert!(shell.dwell(&["message", "get", "orders", "a"])?.out.contains("ready"));
    let hidden = shell.dwell(&["consume", "orders", "--visibility-timeout", "10m", "--exec", "(absent.sh)"])?;
    assert_eq!(hidden.code, Some(1), "{hidden:?}");
    assert!(hidden.err.contains("1 delivered, 0 acked, 0 nacked, 1 released\n"), "{hidden:?}");
    assert!(hidden.err.contains("cannot be used: exit code 127: ") && hidden.err.contains("; a was given back"));
    let again = shell.dwell(&["reserve", "orders", "--wait", "20s"])?;
    assert!(again.out.contains(" a attempt 1, "), "{again:?}");
    Ok(())
}

#[tokio::test]
async fn slow_command_extends_its_deadline() -> Result<()> {
    let shell = Shell::start().await?;
    shell.dwell(&["push", "orders", "slow"])?;
    let exec = ["consume", "orders", "--count", "1", "--visibility-timeout", "1s", "--exec", "sleep 2.5; cat"];
    let said = shell.dwell(&exec)?;
    assert_eq!(said.out, "slow");
    assert!(said.err.ends_with("1 delivered, 1 acked, 0 nacked\n"), "{said:?}");
    Ok(())
}

#[tokio::test]
async fn stream_is_printed_and_acked_until_stopped() -> Result<()> {
    let shell = Shell::start().await?;
    shell.dwell(&["push", "orders", "first", "--id", "a"])?;
    let mut consume = shell.command(&["consume", "orders", "--stream", "--max", "1"]);
    let mut consumer =
        consume.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed("dwell consume"))?;
    let mut lines = BufReader::new(consumer.stdout.take().ok_or_else(|| Error::bug("no stdout"))?).lines();
    let mut line = || lines.next().transpose().map_err(failed("stdout")).map(Option::unwrap_or_default);
    assert!(line()?.ends_with(": first"));
    shell.dwell(&["push", "orders", "second", "--id", "b"])?;
    assert!(line()?.ends_with(": second"));
    eventually("both are acked", async || {
        let described = shell.dwell(&["topic", "get", "orders", "--json"])?.out;
        let topic: serde_json::Value = serde_json::from_str(&described).unwrap_or_default();
        Ok((topic["totals"][0]["in_flight"] == 0).then_some(()))
    })
    .await?;
    let said = terminate(consumer)?;
    assert!(said.code == Some(0) && said.err.ends_with("2 delivered, 2 acked, 0 nacked\n"), "{said:?}");
    Ok(())
}

#[tokio::test]
async fn configured_webhook_posts_and_stop_waits_for_its_response() -> Result<()> {
    let (application, mut posts) = Application::told().await?;
    let webhook = format!("[[webhook]]\ntopic = 'orders'\nurl = '{}'\n", application.url());
    let off = format!("{webhook}enabled = false\n").replace("orders", "mails");
    let shell = Shell::without_broker()?.serving(&format!("{webhook}{off}")).await?;
    shell.dwell(&["push", "mails", "not posted"])?;
    shell.dwell(&["push", "orders", "close 4711", "--id", "a"])?;
    let posted = posts.next().await?;
    assert_eq!((posted.header("dwell-id"), posted.body.as_ref()), ("a", b"close 4711".as_slice()));
    let stop = tokio::task::spawn_blocking(|| shell.stop());
    posted.answer(());
    let stopped = stop.await.map_err(|error| Error::bug(error.to_string()))??;
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    assert!(posts.are_none() && !stopped.err.contains("target fails"), "{stopped:?}");
    Ok(())
}

/// A row of a bench: what was measured, in which way, the median, and the ratio to its ceiling.
type Benched = (String, String, f64, Option<f64>);

/// Runs a short bench and gives its rows.
fn benched(shell: &Shell, more: &[&str]) -> Result<Vec<Benched>> {
    let args = ["bench", "--quick", "--messages", "200", "--pending", "1000", "--json"];
    let said = shell.dwell(&[&args, more].concat())?;
    assert_eq!(said.code, Some(0), "{said:?}");
    let result: serde_json::Value = serde_json::from_str(&said.out).unwrap_or_default();
    let rows = result["rows"].as_array().cloned().unwrap_or_default();
    let text = |row: &serde_json::Value, field: &str| row[field].as_str().unwrap_or_default().to_owned();
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            let median = row["median"].as_f64().unwrap_or_default();
            (text(row, "measure"), text(row, "way"), median, row["ratio"].as_f64())
        })
        .collect();
    for (measure, way, median, _) in &rows {
        // Lateness may be less than a millisecond, and little may happen in an idle second.
        assert!(*median > 0.0 || matches!(measure.as_str(), "lateness" | "idle"), "{measure}, {way}: {median}");
    }
    Ok(rows)
}

/// What a bench measures on every store.
const BENCHED: [(&str, &str); 35] = [
    ("binary", "dwell"),
    ("start to ready", "sidecar, empty"),
    ("start to ready", "sidecar, 1000 pending"),
    ("ceiling", "GET /livez, 1 connections"),
    ("ceiling", "GET /livez, 32 connections"),
    ("ceiling", "GET /livez, 256 connections"),
    ("ceiling", "timer, 2000/s, p99"),
    ("ceiling", "timer and GET /livez, 2000/s, p99"),
    ("processor", "GET /livez, 32 connections"),
    ("processor", "push, HTTP, single, 32 connections"),
    ("processor", "life, HTTP, batch 100"),
    ("push", "library, batch 100"),
    ("push", "HTTP, batch 100"),
    ("push", "HTTP, single, 1 connections"),
    ("push", "HTTP, single, 32 connections"),
    ("push", "HTTP, single, 256 connections"),
    ("drain", "library, batch 100"),
    ("drain", "HTTP, batch 100"),
    ("drain", "HTTP, single, 1 connections"),
    ("drain", "HTTP, single, 32 connections"),
    ("drain", "HTTP, single, 256 connections"),
    ("life", "library, batch 100"),
    ("life", "HTTP, batch 100"),
    ("life", "HTTP, single, 1 connections"),
    ("life", "HTTP, single, 32 connections"),
    ("life", "HTTP, single, 256 connections"),
    ("lateness", "library, 2000/s, p99"),
    ("lateness", "HTTP, 2000/s, p99"),
    ("lateness", "HTTP, 1000 pending, 2000/s, p99"),
    ("burst", "library, 500 at once, last ack"),
    ("burst", "HTTP, 500 at once, last ack"),
    ("growth", "life of 100 at 1000 pending"),
    ("idle", "sidecar, 1000 pending, processor"),
    ("resident", "sidecar, 1000 pending, idle"),
    ("resident", "sidecar, 1000 pending, after lateness"),
];

#[test]
fn bench_of_the_embedded_store_measures_everything() -> Result<()> {
    let rows = benched(&Shell::without_broker()?, &[])?;
    let own = [("ceiling", "write and fsync"), ("ceiling", "GET /livez, then write and fsync, 1 connections")];
    for (measure, way) in BENCHED.into_iter().chain(own) {
        assert!(
            rows.iter().any(|row| (row.0.as_str(), row.1.as_str()) == (measure, way)),
            "{measure}, {way}: {rows:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn bench_on_redis_compares_to_raw_commands_and_cleans_up() -> Result<()> {
    let redis = RedisServer::start().await?;
    let _: String = redis.ask("SET dwell-bench-mine-http:topics kept").await?;
    let shell = Shell::without_broker()?;
    let refused = shell.dwell(&["bench", "--redis", &redis.url(), "--prefix", "dwell-bench-mine"])?;
    assert!(refused.code == Some(64) && refused.err.contains("dwell-bench-mine-http already"), "{refused:?}");
    let rows = benched(&shell, &["--redis", &redis.url()])?;
    let own = [
        ("ceiling", "bare push"),
        ("ceiling", "bare drain"),
        ("ceiling", "bare life"),
        ("ceiling", "PING, pipelined"),
        ("cost", "dwell, commands"),
        ("cost", "bare, a command for each batch, commands"),
        ("memory", "Redis, 1000 pending"),
        ("growth", "Redis, life of 100 at 1000 pending"),
        ("idle", "Redis, 16 partitions"),
    ];
    for (measure, way) in BENCHED.into_iter().chain(own) {
        let row = rows.iter().find(|row| (row.0.as_str(), row.1.as_str()) == (measure, way));
        let compared = matches!(measure, "push" | "drain" | "life");
        assert!(row.is_some_and(|row| row.3.is_some() || !compared), "{measure}, {way}: {rows:?}");
    }
    assert_eq!(redis.keys().await?, ["dwell-bench-mine-http:topics"]);
    Ok(())
}

#[tokio::test]
async fn bench_fleet_shares_a_burst() -> Result<()> {
    let (redis, shell) = (RedisServer::start().await?, Shell::without_broker()?);
    let rows = benched(&shell, &["--only", "fleet", "--redis", &redis.url()])?;
    for what in ["first delivery", "last ack", "rate", "resident"] {
        let way = format!("2 brokers, 1000 at once, {what}");
        assert!(rows.iter().any(|row| (row.0.as_str(), &row.1) == ("fleet", &way)), "{way}: {rows:?}");
    }
    assert_eq!(redis.keys().await?, [""; 0]);
    let alone = shell.dwell(&["bench", "--only", "fleet"])?;
    assert!(alone.code == Some(64) && alone.err.contains("--redis"), "{alone:?}");
    Ok(())
}

#[tokio::test]
async fn bench_scale_covers_every_dimension() -> Result<()> {
    let redis = RedisServer::start().await?;
    let rows = benched(&Shell::without_broker()?, &["--only", "scale", "--redis", &redis.url()])?;
    for way in ["64 partitions", "16 groups", "100 consumers", "1,000,000 bytes", "8 members", "100 topics"] {
        for way in [way.to_owned(), format!("Redis, {way}")] {
            assert!(rows.iter().any(|row| row.1 == way && row.3.is_some()), "{way}: {rows:?}");
        }
    }
    assert_eq!(redis.keys().await?, [""; 0]);
    Ok(())
}

#[tokio::test]
async fn bench_of_fair_groups_compares_with_a_group_that_is_not_fair() -> Result<()> {
    let redis = RedisServer::start().await?;
    let only = ["--only", "fair", "--only", "keys", "--only", "weights", "--redis", &redis.url()];
    let rows = benched(&Shell::without_broker()?, &only)?;
    let measured = [
        ("fair", "fair, last quiet key"),
        ("fair", "fair, Redis"),
        ("keys", "fair, 1 keys, all"),
        ("keys", "fair, 100 keys, Redis"),
        ("keys", "fair, 100 keys, Redis at most"),
    ];
    for (measure, way) in measured {
        let compared = rows.iter().find(|row| (row.0.as_str(), row.1.as_str()) == (measure, way));
        assert!(compared.is_some_and(|row| row.3.is_some()), "{measure}, {way}: {rows:?}");
    }
    assert!(rows.iter().any(|row| row.0 == "weights" && row.1 == "keys of weight 1 to 10"), "{rows:?}");
    assert_eq!(redis.keys().await?, [""; 0]);
    Ok(())
}

#[test]
fn exit_codes_tell_usage_errors_from_failures() -> Result<()> {
    let shell = Shell::without_broker()?;
    let cases: [(&[&str], i32, &str); 8] = [
        (&["--version"], 0, ""),
        (&[], 64, "Usage: dwell"),
        (&["push", "a b", "x"], 64, "a name has only letters"),
        (&["push", "orders", "x", "--delay", "-1s"], 64, "is negative"),
        (&["push", "orders", "x", "--delay=-1s"], 64, "is negative"),
        (&["config", "check", "--listen", "0.0.0.0:7373"], 64, "is reachable from other machines"),
        (&["config", "check", "--config", "/does/not/exist"], 64, "cannot be read"),
        (&["topic", "list"], 69, "is `dwell serve` running there?"),
    ];
    for (args, code, expected) in cases {
        let said = shell.dwell(args)?;
        assert_eq!(said.code, Some(code), "{args:?}: {said:?}");
        assert!(said.err.contains(expected), "{args:?}: {said:?}");
    }
    Ok(())
}

#[tokio::test]
async fn flags_without_unit_and_times_in_seconds_are_usage_errors() -> Result<()> {
    let shell = Shell::start().await?;
    let cases: [(&[&str], &str); 7] = [
        (&["push", "orders", "x", "--delay", "5"], "5 has no unit; write \"5s\" or \"5ms\""),
        (&["push", "orders", "x", "--ttl", "0"], "0 has no unit"),
        (&["push", "orders", "x", "--at", "1800000000"], "1800000000 looks like seconds; this takes milliseconds"),
        (&["dead-letters", "purge", "orders", "--older-than", "1"], "1 has no unit"),
        (&["group", "pause", "orders", "default", "--for", "1"], "1 has no unit"),
        (&["topic", "create", "orders", "--visibility-timeout", "30"], "30 has no unit"),
        (&["topic", "create", "orders", "--backoff", "1,10"], "1 has no unit"),
    ];
    for (args, expected) in cases {
        let said = shell.dwell(args)?;
        assert_eq!(said.code, Some(64), "{args:?}: {said:?}");
        assert!(said.err.contains(expected), "{args:?}: {said:?}");
    }
    assert_eq!(shell.dwell(&["topic", "list", "--names"])?.out, "");
    let past = shell.dwell(&["push", "orders", "x", "--at", "2001-01-01T00:00:00Z", "--past", "reject"])?;
    assert!(past.code == Some(1) && past.err.contains("is in the past"), "{past:?}");
    assert!(shell.dwell(&["push", "orders", "x", "--at", "2001-01-01T00:00:00Z"])?.out.starts_with("stored "));
    Ok(())
}

#[tokio::test]
async fn delete_asks_and_needs_yes_without_a_terminal() -> Result<()> {
    let shell = Shell::start().await?;
    for id in ["a", "b"] {
        shell.dwell(&["push", "orders", "x", "--id", id, "--max-attempts", "1"])?;
    }
    shell.dwell(&["group", "create", "orders", "audit", "--copy-of", "default"])?;
    shell.dwell(&["consume", "orders", "--count", "2", "--exec", "exit 1"])?;
    let window = ["bulk", "cancel", "orders", "--from", "2001-01-01T00:00:00Z", "--to", "2101-01-01T00:00:00Z"];
    let cases: [(&[&str], &str, &str); 4] = [
        (
            &["dead-letters", "purge", "orders", "--all"],
            "Delete all 2 dead letters of group default of orders, at unix:",
            "2 purged\n",
        ),
        (&window, "Cancel 0 messages of orders due between these times, at unix:", "0 cancelled\n"),
        (&["group", "delete", "orders", "audit"], "with 2 messages, at unix:", "audit deleted, with 2 messages\n"),
        (
            &["topic", "delete", "orders"],
            "Delete the topic orders with 0 messages, at unix:",
            "orders deleted, with 0 messages\n",
        ),
    ];
    for (args, asked, done) in cases {
        let said = shell.dwell(args)?;
        assert_eq!(said.code, Some(64), "{args:?}: {said:?}");
        assert!(said.err.contains(asked) && said.err.contains("--yes"), "{args:?}: {said:?}");
        if args[0] == "dead-letters" {
            let dry = shell.dwell(&["dlq", "purge", "orders", "--all", "--dry-run"])?;
            assert_eq!(dry.out, "2 would be purged\n", "{dry:?}");
        }
        let said = shell.dwell(&[args, &["--yes"][..]].concat())?;
        assert_eq!(said.out, done, "{args:?}: {said:?}");
    }
    Ok(())
}

#[tokio::test]
async fn push_and_consume_work_before_the_topic_exists() -> Result<()> {
    let shell = Shell::start().await?;
    let mut consume = shell.command(&["consume", "orders", "--count", "1"]);
    let mut consumer =
        consume.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed("dwell consume"))?;
    let stderr = consumer.stderr.take().ok_or_else(|| Error::bug("no stderr"))?;
    let mut said = String::new();
    let mut stderr = BufReader::new(stderr);
    stderr.read_line(&mut said).map_err(failed("what it says"))?;
    assert_eq!(said, "topic orders does not exist yet: waiting for it\n");
    assert_eq!(shell.dwell(&["topic", "list"])?.out, "", "a consumer creates no topic");
    let pushed = shell.dwell(&["push", "orders", "first"])?;
    assert_eq!(pushed.err, "topic orders did not exist; it was created for this message\n", "{pushed:?}");
    let consumed = Said::from(consumer.wait_with_output().map_err(failed("dwell consume"))?);
    assert!(consumed.code == Some(0) && consumed.out.ends_with(": first\n"), "{consumed:?}");
    let misspelt = shell.dwell(&["push", "ordres", "{\"a\": 1}", "--content-type", "application/json"])?;
    assert!(misspelt.out.starts_with("stored "), "{misspelt:?}");
    assert_eq!(misspelt.err, "topic ordres did not exist; it was created for this message\n");
    let stopped = shell.stop()?;
    let warned =
        stopped.err.lines().filter(|line| line.contains("WARN") && line.contains("topic did not exist")).count();
    assert_eq!(warned, 2, "{}", stopped.err);
    Ok(())
}
