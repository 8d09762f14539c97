//! The README and the pages of docs/ are true: their sessions run as printed, and their commands exist.

mod commands;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use dwell::model::error::{Error, Result};
use dwell::model::time::{Timestamp, parse_timestamp};
use dwell::platform::clock::Clock;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{RedisServer, failed, scratch};

const README: &str = include_str!("../../../README.md");
const QUICKSTART: &str = include_str!("../../../docs/quickstart.md");
const CLOSE_UNPAID_ORDERS: &str = include_str!("../../../docs/tutorials/close-unpaid-orders.md");
const REDIS_KEYS: &str = include_str!("../../../docs/reference/redis-keys.md");
const REDIS: &str = include_str!("../../../docs/operate/redis.md");
const MONITOR: &str = include_str!("../../../docs/how-to/monitor.md");

/// Pages for beginners. All that they tell to type is a session, and each page begins with a new broker.
const TUTORIALS: [&str; 8] = [
    README,
    QUICKSTART,
    CLOSE_UNPAID_ORDERS,
    include_str!("../../../docs/tutorials/retries-with-backoff.md"),
    include_str!("../../../docs/tutorials/debounced-reminders.md"),
    include_str!("../../../docs/tutorials/cron.md"),
    include_str!("../../../docs/how-to/fair-customers.md"),
    include_str!("../../../docs/how-to/limit-calls.md"),
];

/// What stands before a session, and is followed by its name.
const SESSION: &str = "<!-- session: ";

/// The address of the broker on every page.
const ADDRESS: &str = "http://127.0.0.1:7373";

/// What begins a line that is printed, in a session.
const PRINTED: &str = "# => ";

/// `dwell serve` in a process of its own, on a free port.
struct Broker {
    child: Child,
    url: String,
    _dir: TempDir,
}

impl Broker {
    fn serve(flags: &[&str]) -> Result<Broker> {
        let dir = scratch()?;
        let mut serve = Command::new(env!("CARGO_BIN_EXE_dwell"));
        serve.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(dir.path()).args(flags).env_clear();
        let mut child = serve.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map_err(failed("dwell serve"))?;
        let banner = child.stdout.take().ok_or_else(|| Error::bug("no stdout"))?;
        let mut broker = Broker { child, url: String::new(), _dir: dir };
        for line in BufReader::new(banner).lines() {
            if let Some(url) = line.map_err(failed("the banner"))?.trim().strip_prefix("address ") {
                broker.url = url.trim().to_owned();
                return Ok(broker);
            }
        }
        Err(Error::unavailable("dwell serve ended without a banner"))
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A line that a session printed, and when.
struct Printed {
    line: String,
    at: Timestamp,
}

/// The session that is marked with this name.
pub(crate) fn session(name: &str) -> Result<&'static str> {
    let begin = format!("<!-- session: {name} -->\n```sh\n");
    let behind = [QUICKSTART, REDIS_KEYS, REDIS, MONITOR].into_iter().find_map(|page| page.split_once(&begin));
    let block = behind.and_then(|(_, rest)| rest.split_once("\n```"));
    block.map(|(block, _)| block).ok_or_else(|| Error::bug(format!("no page has a session {name}")))
}

/// The sessions of a page, in order.
fn sessions(page: &'static str) -> impl Iterator<Item = &'static str> {
    page.split(SESSION)
        .skip(1)
        .filter_map(|rest| rest.split_once("-->\n```sh\n")?.1.split_once("\n```").map(|(s, _)| s))
}

/// What a session says it prints: lines that follow each other are one.
fn promised(session: &str) -> Vec<String> {
    let mut promised: Vec<String> = Vec::new();
    let mut follows = false;
    for line in session.lines() {
        let text = line.strip_prefix(PRINTED);
        match (text, promised.last_mut().filter(|_| follows)) {
            (Some(text), Some(before)) => before.push_str(text.trim()),
            (Some(text), None) => promised.push(text.to_owned()),
            (None, _) => {}
        }
        follows = text.is_some();
    }
    promised
}

/// Types a session into a shell that stops at the first command that fails.
fn play(session: &str) -> Result<Vec<Printed>> {
    let mut shell = Command::new("bash");
    shell.args(["-euo", "pipefail", "-c", session]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut shell = shell.spawn().map_err(failed("bash"))?;
    let mut printed = Vec::new();
    if let Some(out) = shell.stdout.take() {
        for line in BufReader::new(out).lines() {
            printed.push(Printed { line: line.map_err(failed("the session"))?, at: Clock::System.now() });
        }
    }
    match shell.wait().map_err(failed("bash"))?.success() {
        true => Ok(printed),
        false => Err(Error::bug("a command of the session failed; it needs bash, curl and redis-cli in PATH")),
    }
}

/// A line without what differs from run to run: times, receipts, lateness. What is not JSON stays as it is.
fn lasting(line: &str) -> Value {
    let mut value = serde_json::from_str(line).unwrap_or_else(|_| Value::from(line));
    mask(&mut value);
    value
}

fn mask(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(mask),
        Value::Object(fields) => {
            for (name, value) in fields {
                let differs = matches!(
                    name.as_str(),
                    "receipt" | "due_at" | "pushed_at" | "next_at" | "deadline" | "lateness_ms" | "request_id"
                );
                // The type stays: a number is no text.
                match value {
                    Value::String(text) if differs => *text = "…".to_owned(),
                    Value::Number(number) if differs => *number = 0.into(),
                    value => mask(value),
                }
            }
        }
        _ => {}
    }
}

/// The session printed what the page says, in that order.
fn check(session: &str, printed: &[Printed]) {
    let printed: Vec<_> = printed.iter().map(|printed| lasting(&printed.line)).collect();
    let promised: Vec<_> = promised(session).iter().map(|line| lasting(line)).collect();
    assert_eq!(printed, promised);
}

/// Plays every session of a page at one broker.
fn play_page(page: &'static str, broker: &Broker, typed: impl Fn(&str) -> String) -> Result<()> {
    let mut played = 0;
    for session in sessions(page) {
        check(session, &play(&typed(&session.replace(ADDRESS, &broker.url)))?);
        played += 1;
    }
    assert_eq!(played, page.matches(SESSION).count());
    assert!(played > 0, "{page}");
    Ok(())
}

#[test]
fn the_first_message_is_delivered_when_it_is_due() -> Result<()> {
    let broker = Broker::serve(&[])?;
    let session = session("quickstart")?;
    assert!(session.contains(ADDRESS));
    let printed = play(&session.replace(ADDRESS, &broker.url))?;
    check(session, &printed);
    // The push is answered at once, the delivery when it is due: not before, and not only when the wait is over.
    let pushed: Value = serde_json::from_str(&printed[0].line).unwrap_or_default();
    let due_at = parse_timestamp(pushed["due_at"].as_str().unwrap_or_default()).map_err(Error::bug)?;
    assert!(printed[0].at < due_at, "the push took until {}", printed[0].at);
    assert!(printed[1].at >= due_at, "delivered at {}, due at {due_at}", printed[1].at);
    assert!(printed[1].at.since(due_at).as_secs() < 3, "delivered at {}, due at {due_at}", printed[1].at);
    Ok(())
}

#[test]
fn every_tutorial_works_as_printed() -> Result<()> {
    for page in TUTORIALS {
        play_page(page, &Broker::serve(&[])?, str::to_owned)?;
    }
    Ok(())
}

#[tokio::test]
async fn the_sessions_work_as_printed_on_redis() -> Result<()> {
    for page in [QUICKSTART, CLOSE_UNPAID_ORDERS, REDIS_KEYS] {
        let redis = RedisServer::start().await?;
        let url = redis.url();
        let socket = url.trim_start_matches("redis+unix://").to_owned();
        let to_server = |session: &str| session.replace("redis-cli ", &format!("redis-cli -s {socket} "));
        play_page(page, &Broker::serve(&["--redis", &url])?, to_server)?;
    }
    Ok(())
}

/// The user of docs/operate/redis.md may do all that dwell does, with deleting a topic, and nothing asks for more.
#[tokio::test]
async fn documented_minimal_redis_user_is_sufficient() -> Result<()> {
    let redis = RedisServer::start().await?;
    let socket = redis.url().trim_start_matches("redis+unix://").to_owned();
    let to_server = |session: &str| session.replace("redis-cli ", &format!("redis-cli -s {socket} "));
    let acl = session("acl")?;
    check(acl, &play(&to_server(acl))?);
    let broker = Broker::serve(&["--redis", &format!("{}?user=dwell&pass=password", redis.url())])?;
    play_page(QUICKSTART, &broker, str::to_owned)?;
    let delete = format!("curl -sw '%{{http_code}}\\n' -X DELETE {}/v1/topics/orders", broker.url);
    assert_eq!(play(&delete)?[0].line, "204");
    let log = play(&to_server("redis-cli --raw acl log"))?;
    let refused: Vec<_> = log.windows(2).filter(|two| two[0].line == "object").map(|two| &two[1].line).collect();
    assert!(refused.iter().all(|what| *what == "config|get"), "{refused:?}");
    Ok(())
}

/// A newcomer runs the same tests as continuous integration.
#[test]
fn continuous_integration_runs_the_test_command_of_the_readme() {
    const COMMAND: &str = "make test";
    assert!(README.lines().any(|line| line.starts_with(COMMAND)));
    assert!(include_str!("../../../.ci/run").lines().any(|line| line == format!("step {COMMAND}")));
}

/// Each command that shows a promise names a module of the suite.
#[test]
fn every_promise_names_existing_tests() {
    const PROMISES: &str = include_str!("../../../docs/concepts/delivery.md");
    const FILTER: &str = "cargo test --locked --test suite ";
    let filters: Vec<_> = PROMISES.split(FILTER).skip(1).filter_map(|rest| rest.split('`').next()).collect();
    assert!(filters.len() >= 4, "{filters:?}");
    let folders = [include_str!("../main.rs"), include_str!("../contract/mod.rs"), include_str!("../redis/mod.rs")];
    for filter in filters {
        let module = format!("mod {filter};");
        assert!(folders.iter().any(|folder| folder.lines().any(|line| line == module)), "{filter}");
    }
}
