//! The web console in a real browser, against a real broker: what it offers does what it says.

mod administration;
mod browser;
mod consistency;
mod dead;
mod hostile;
mod accessibility;
mod modes;
mod on_call;
mod overview;
mod screenshots;
mod keyboard;
mod operations;

use dwell::api::http::Listen;
use dwell::app::engine::StoreOptions;
use dwell::app::server::{Server, ServerOptions};
use dwell::model::error::{Error, Result};
use dwell::platform::https::{self, Roots};
use reqwest::{Client, Method};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{failed, scratch};
use browser::Browser;

/// A broker on the embedded store and the system's clock, and a browser that shows its console.
struct Console {
    browser: Browser,
    base: String,
    client: Client,
    _server: Server,
    _dir: TempDir,
}

impl Console {
    async fn start() -> Result<Console> {
        Console::start_with(|_, _| {}).await
    }

    async fn start_with(change: impl FnOnce(&mut ServerOptions, &TempDir)) -> Result<Console> {
        let dir = scratch()?;
        let store = StoreOptions::Embedded { dir: dir.path().join("store") };
        let traffic_step = std::time::Duration::from_secs(1);
        let behaviour = dwell::broker::Options { traffic_step, ..dwell::broker::Options::default() };
        let mut options = ServerOptions::new(Listen::ephemeral(), store, behaviour);
        change(&mut options, &dir);
        let server = Server::start(options).await?;
        let client =
            https::client(&Roots::none())?.no_proxy().build().map_err(|error| Error::bug(error.to_string()))?;
        Ok(Console { browser: Browser::start().await?, base: server.url(), client, _server: server, _dir: dir })
    }

    /// Shows a place, as in `#/topics/orders`.
    async fn open(&self, place: &str) -> Result<()> {
        // A place of the same page is gone to without loading it again.
        self.browser.open(&format!("{}/ui{place}", self.base)).await
    }

    /// What the API answers: the status and the JSON.
    async fn ask(&self, line: &str, body: Value) -> Result<(u16, Value)> {
        let (method, target) = line.split_once(' ').ok_or_else(|| Error::bug("a method and a target"))?;
        let method: Method = method.parse().map_err(|_| Error::bug("a method"))?;
        let request = self.client.request(method, format!("{}{target}", self.base));
        let request = if body.is_null() { request } else { request.json(&body) };
        let wrong = |error: reqwest::Error| Error::unavailable(format!("{line}: {error}"));
        let answer = request.send().await.map_err(wrong)?;
        let status = answer.status().as_u16();
        Ok((status, serde_json::from_slice(&answer.bytes().await.map_err(wrong)?).unwrap_or_default()))
    }

    /// The JSON of a 2xx of the API.
    async fn tell(&self, line: &str, body: Value) -> Result<Value> {
        match self.ask(line, body).await? {
            (200..300, body) => Ok(body),
            refused => Err(Error::bug(format!("{line}: {refused:?}"))),
        }
    }

    /// Pushes messages as the API takes them in a batch.
    async fn push(&self, topic: &str, messages: Vec<Value>) -> Result<()> {
        let batch = format!("POST /v1/topics/{topic}/messages/batch");
        self.tell(&batch, json!({"messages": messages})).await.map(drop)
    }

    /// Makes messages dead, with these ids, in the group `default`.
    async fn bury(&self, topic: &str, messages: Vec<Value>, reason: &str) -> Result<()> {
        let mut left = messages.len();
        self.push(topic, messages).await?;
        let group = format!("POST /v1/topics/{topic}/groups/default");
        while left > 0 {
            let taken = self.tell(&format!("{group}/reserve"), json!({"max": 100, "wait": "5s"})).await?;
            let taken = taken["deliveries"].as_array().cloned().unwrap_or_default();
            let bury = |delivery: &Value| json!({"receipt": delivery["receipt"], "reason": reason, "bury": true});
            let receipts: Vec<_> = taken.iter().map(bury).collect();
            left = left.checked_sub(receipts.len()).ok_or_else(|| Error::bug("more than were pushed"))?;
            self.tell(&format!("{group}/nack"), json!({"receipts": receipts})).await?;
        }
        Ok(())
    }

    /// Leaves the browser, and looks through what it logged: no error of a script, nothing that the policy had to stop, and no
    /// request to anywhere else. An answer that is an error is none of those; a browser logs it all the same.
    async fn end(self) -> Result<()> {
        for entry in self.browser.log("browser").await? {
            assert_eq!(entry["source"], "network", "{entry}");
        }
        let mut asked = 0;
        for entry in self.browser.log("performance").await? {
            let event: Value = serde_json::from_str(entry["message"].as_str().unwrap_or_default()).unwrap_or_default();
            let (event, params) = (&event["message"]["method"], &event["message"]["params"]);
            if event != "Network.requestWillBeSent" {
                continue;
            }
            let url = params["request"]["url"].as_str().unwrap_or_default();
            // What the browser shows before it goes anywhere.
            if url.starts_with("data:") || url.starts_with("chrome") {
                continue;
            }
            assert!(url.starts_with(&format!("{}/", self.base)), "{url}");
            asked += 1;
        }
        assert!(asked > 10, "{asked}");
        self.browser.leave().await
    }
}

/// Runs a line in a shell in which `dwell` is the one under test, and gives what it printed.
async fn in_a_shell(line: &str) -> Result<String> {
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_dwell"));
    let path = binary.parent().map(|dir| dir.display().to_string()).unwrap_or_default();
    let mut shell = tokio::process::Command::new("bash");
    shell
        .args(["-c", line])
        .env_clear()
        .env("PATH", format!("{path}:/usr/bin:/bin"))
        .env("LC_ALL", "C.UTF-8")
        .kill_on_drop(true);
    let ran = shell.output().await.map_err(failed("bash"))?;
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    if ran.status.success() {
        return Ok(said);
    }
    Err(Error::bug(format!("{line}: {said}{}", String::from_utf8_lossy(&ran.stderr))))
}

#[test]
fn scripts_import_only_lower_layers_and_use_glossary_words() {
    let mut known = vec![];
    for (name, text) in dwell::api::http::CONSOLE_FILES.into_iter().filter(|(name, _)| name.ends_with(".js")) {
        for line in text.lines().filter(|line| line.starts_with("import ")) {
            let from = line.rsplit('"').nth(1).unwrap_or_default().trim_start_matches("./");
            assert!(known.contains(&from), "{name} imports {from}");
        }
        assert!(text.starts_with("// @ts-check\n// "), "{name} does not say what it is");
        assert!(text.lines().count() <= 250, "{name} is long");
        for markup in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "setTimeout(\""] {
            assert!(!text.contains(markup), "{name} has {markup}");
        }
        known.push(name);
    }
    assert!(known.len() > 15, "{known:?}");
}
