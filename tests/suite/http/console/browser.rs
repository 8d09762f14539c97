//! A real Chromium, steered over WebDriver: the build without windows, which takes less processor time than the other.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use dwell::model::error::{Error, Result};
use dwell::platform::https::{self, Roots};
use reqwest::{Client, Method};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{eventually, failed, scratch};

/// What an element is called in WebDriver.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// How often a driver is started until one listens.
const STARTS: usize = 5;

/// The key Enter.
pub(super) const ENTER: &str = "\u{e007}";

/// The key Tab.
pub(super) const TAB: &str = "\u{e004}";

/// The key Escape.
pub(super) const ESCAPE: &str = "\u{e00c}";

/// Starts a chromedriver, and ends it with all that it started once this process is gone: standard input is at its end then,
/// however the process ended. A driver that ends by itself takes the rest with it. chromedriver starts a browser by its path
/// alone, and expects a page, which this one opens only if it is told to.
const WATCHED: &str = r#"
    command -v chromium-headless-shell >/dev/null || exec echo 'install chromium-headless-shell, of the package of this name'
    printf '#!/bin/sh\nexec chromium-headless-shell "$@" about:blank\n' >"$HOME/chromium"
    chmod +x "$HOME/chromium"
    { chromedriver "$@"; kill -KILL 0; } </dev/null &
    cat >/dev/null
    trap '' TERM
    kill -TERM 0
    sleep 1
    rm -rf -- "$HOME"
    kill -KILL 0"#;

/// Browsers that a story is done with. To start one costs more than most stories do.
static IDLE: Mutex<Vec<Driver>> = Mutex::new(Vec::new());

/// chromedriver with its browser. All that it started ends with it.
struct Driver {
    child: Child,
    url: String,
    /// The address of the browser's session, once it has one.
    session: Option<String>,
    profile: TempDir,
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The driver and all that it started are a group of their own. It may have ended by itself.
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let _ = group.map(|group| kill_process_group(group, Signal::KILL));
        let _ = self.child.wait();
    }
}

/// One tab.
pub(super) struct Browser {
    client: Client,
    session: String,
    driver: Driver,
}

/// Something on the page.
pub(super) struct Element(String);

impl Driver {
    /// Starts one. It ends at once if another program takes the port that it chose, so it is started again then.
    fn start() -> Result<Driver> {
        let mut said = String::new();
        for _ in 0..STARTS {
            match Driver::listen()? {
                Ok(driver) => return Ok(driver),
                Err(instead) => said = instead,
            }
        }
        Err(Error::unavailable(format!("chromedriver ended {STARTS} times; it said {said:?}")))
    }

    /// One that listens, or what one said that did not.
    fn listen() -> Result<std::result::Result<Driver, String>> {
        let profile = scratch()?;
        let mut command = Command::new("sh");
        command.args(["-c", WATCHED, "sh", "--port=0", "--log-level=SEVERE"]).env("HOME", profile.path());
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(failed("sh"))?;
        let stdout = child.stdout.take().ok_or_else(|| Error::bug("no stdout"))?;
        let mut driver = Driver { child, url: String::new(), session: None, profile };
        let mut said = String::new();
        for line in BufReader::new(stdout).lines() {
            let line = line.map_err(failed("what chromedriver says"))?;
            if let Some((_, port)) = line.split_once("started successfully on port ") {
                driver.url = format!("http://127.0.0.1:{}", port.trim_end_matches('.'));
                return Ok(Ok(driver));
            }
            said += &line;
        }
        Ok(Err(said))
    }

    /// The session of its browser, which is started unless it runs.
    async fn session(&mut self, client: &Client) -> Result<String> {
        if let Some(session) = &self.session {
            return Ok(session.clone());
        }
        let profile = format!("--user-data-dir={}", self.profile.path().join("profile").display());
        let flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"];
        let quiet = [
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-breakpad",
            "--hide-scrollbars",
        ];
        let args: Vec<&str> = flags.into_iter().chain(quiet).chain(["--window-size=1280,900", &profile]).collect();
        let chromium = json!({"args": args, "binary": self.profile.path().join("chromium")});
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": chromium, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}}});
        let made = said_by(client, Method::POST, &format!("{}/session", self.url), &wanted).await?;
        let id = made["sessionId"].as_str().ok_or_else(|| Error::bug(format!("no session: {made}")))?;
        Ok(self.session.insert(format!("{}/session/{id}", self.url)).clone())
    }
}

impl Browser {
    /// One with an empty tab and without cookies, in a browser that is idle or else a new one.
    pub(super) async fn start() -> Result<Browser> {
        let client =
            https::client(&Roots::none())?.no_proxy().build().map_err(|error| Error::bug(error.to_string()))?;
        let idle = IDLE.lock().map_err(|_| Error::bug("a story panicked"))?.pop();
        let mut driver = idle.map_or_else(Driver::start, Ok)?;
        let session = driver.session(&client).await?;
        Ok(Browser { client, session, driver })
    }

    /// Leaves the browser to another story: with a new tab, which nothing emulates, and without what this story stored and
    /// logged.
    pub(super) async fn leave(self) -> Result<()> {
        let used = self.ask(Method::GET, "/window/handles", Value::Null).await?;
        let tab = self.tell("/window/new", json!({"type": "tab"})).await?["handle"].take();
        for handle in used.as_array().into_iter().flatten() {
            self.tell("/window", json!({"handle": handle})).await?;
            self.ask(Method::DELETE, "/window", Value::Null).await?;
        }
        self.tell("/window", json!({"handle": tab})).await?;
        self.devtools("Network.clearBrowserCache", json!({})).await?;
        self.devtools("Network.clearBrowserCookies", json!({})).await?;
        self.devtools("Storage.clearDataForOrigin", json!({"origin": "*", "storageTypes": "all"})).await?;
        for kind in ["browser", "performance"] {
            self.log(kind).await?;
        }
        IDLE.lock().map_err(|_| Error::bug("a story panicked"))?.push(self.driver);
        Ok(())
    }

    async fn ask(&self, method: Method, target: &str, body: Value) -> Result<Value> {
        said_by(&self.client, method, &format!("{}{target}", self.session), &body).await
    }

    async fn tell(&self, target: &str, body: Value) -> Result<Value> {
        self.ask(Method::POST, target, body).await
    }

    /// Goes to an address.
    pub(super) async fn open(&self, url: &str) -> Result<()> {
        self.tell("/url", json!({"url": url})).await.map(drop)
    }

    /// Runs a script in the page, the body of a function, and gives what it returns.
    pub(super) async fn run(&self, script: &str, args: Value) -> Result<Value> {
        self.tell("/execute/sync", json!({"script": script, "args": args})).await
    }

    /// Lets a minute pass for the page, in no time.
    pub(super) async fn minute(&self) -> Result<()> {
        let begin = "window.minuteOver = false; setTimeout(() => { window.minuteOver = true; }, 60000)";
        self.run(begin, json!([])).await?;
        self.devtools("Emulation.setVirtualTimePolicy", json!({"policy": "advance", "budget": 60_001})).await?;
        let over = async || Ok((self.run("return window.minuteOver", json!([])).await? == true).then_some(()));
        patiently("a minute of the browser", over).await
    }

    /// Says something to the browser itself, over the protocol of its developer tools.
    pub(super) async fn devtools(&self, command: &str, params: Value) -> Result<Value> {
        self.tell("/goog/cdp/execute", json!({"cmd": command, "params": params})).await
    }

    /// What the browser logged since it was asked last: `browser` or `performance`.
    pub(super) async fn log(&self, kind: &str) -> Result<Vec<Value>> {
        Ok(self.tell("/se/log", json!({"type": kind})).await?.as_array().cloned().unwrap_or_default())
    }

    /// The button, link or summary with this name, once there is one, in the dialog if one is open.
    pub(super) async fn named(&self, name: &str) -> Result<Element> {
        let script = "const root = document.querySelector('dialog[open]') ?? document;
            return [...root.querySelectorAll('button, summary'), ...root.querySelectorAll('a')].find((e) =>
                e.checkVisibility() && (e.getAttribute('aria-label') ?? e.textContent).trim() === arguments[0]) ?? null";
        patiently(name, async || {
            let found = self.run(script, json!([name])).await?;
            Ok(found[ELEMENT].as_str().map(|id| Element(id.to_owned())))
        })
        .await
    }

    /// The field with this label, once there is one, in the dialog if one is open.
    pub(super) async fn field(&self, label: &str) -> Result<Element> {
        let script = "const root = document.querySelector('dialog[open]') ?? document;
            const found = [...root.querySelectorAll('label')].find((e) => e.textContent.startsWith(arguments[0]));
            return found?.control?.checkVisibility() ? found.control : null";
        patiently(label, async || {
            let found = self.run(script, json!([label])).await?;
            Ok(found[ELEMENT].as_str().map(|id| Element(id.to_owned())))
        })
        .await
    }

    /// Clicks as a hand does: on what is there, and once more if the page moved away under it.
    pub(super) async fn click(&self, name: &str) -> Result<()> {
        patiently(&format!("a click on {name}"), async || {
            let met = self.click_at(self.named(name).await?).await;
            while_it_is_there(met).map(|met| met.filter(|met| *met).map(drop))
        })
        .await
    }

    /// Clicks the field with this label.
    pub(super) async fn click_field(&self, label: &str) -> Result<()> {
        let met = self.click_at(self.field(label).await?).await?;
        if met { Ok(()) } else { Err(Error::bug(format!("{label} was not met"))) }
    }

    /// Presses on what has this name with a pointer: `mouse` or `touch`.
    pub(super) async fn point(&self, name: &str, kind: &str) -> Result<()> {
        let Element(id) = self.named(name).await?;
        let script = "arguments[0].scrollIntoView({block: 'center', inline: 'center'})";
        self.run(script, json!([{ELEMENT: id}])).await?;
        let moved = json!({"type": "pointerMove", "duration": 0, "x": 0, "y": 0, "origin": {ELEMENT: id}});
        let press = |kind: &str| json!({"type": kind, "button": 0});
        let pointer = json!({"type": "pointer", "id": kind, "parameters": {"pointerType": kind},
            "actions": [moved, press("pointerDown"), press("pointerUp")]});
        self.tell("/actions", json!({"actions": [pointer]})).await.map(drop)
    }

    /// Whether the click arrived: a page that moves may have something else at the place by then.
    async fn click_at(&self, Element(id): Element) -> Result<bool> {
        let listen = "window.met = false; arguments[0].addEventListener('click', () => { window.met = true; }, true)";
        self.run(listen, json!([{ELEMENT: id}])).await?;
        self.tell(&format!("/element/{id}/click"), json!({})).await?;
        // A click that opened another page left none of this there.
        Ok(self.run("return window.met !== false", json!([])).await? == true)
    }

    /// Writes into a field, in place of what is in it.
    pub(super) async fn write(&self, label: &str, text: &str) -> Result<()> {
        patiently(&format!("text in {label}"), async || {
            while_it_is_there(self.write_into(self.field(label).await?, text).await)
        })
        .await
    }

    async fn write_into(&self, Element(id): Element, text: &str) -> Result<()> {
        self.tell(&format!("/element/{id}/clear"), json!({})).await?;
        self.tell(&format!("/element/{id}/value"), json!({"text": text})).await.map(drop)
    }

    /// Chooses what has these words in a field.
    pub(super) async fn choose(&self, label: &str, words: &str) -> Result<()> {
        let Element(id) = self.field(label).await?;
        let script = "const [select, words] = arguments;
            const option = [...select.options].find((e) => e.textContent === words);
            if (!option) return [...select.options].map((e) => e.textContent).join();
            select.value = option.value;
            for (const kind of ['input', 'change']) select.dispatchEvent(new Event(kind, {bubbles: true}));
            return null";
        let there = self.run(script, json!([{ELEMENT: id}, words])).await?;
        if there.is_null() { Ok(()) } else { Err(Error::bug(format!("{label} has no {words:?} but {there}"))) }
    }

    /// Presses keys one after the other, wherever the focus is.
    pub(super) async fn press(&self, keys: &str) -> Result<()> {
        let both = |key: char| {
            let key = key.to_string();
            [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})]
        };
        let actions: Vec<Value> = keys.chars().flat_map(both).collect();
        self.tell("/actions", json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]}))
            .await
            .map(drop)
    }

    /// What can be read on the page, as one line.
    pub(super) async fn text(&self) -> Result<String> {
        let text = self.run("return document.body.innerText.replace(/\\s+/g, ' ')", json!([])).await?;
        Ok(text.as_str().unwrap_or_default().to_owned())
    }

    /// Waits until this can be read on the page.
    pub(super) async fn reads(&self, text: &str) -> Result<()> {
        let (last, text) = (&mut String::new(), text.split_whitespace().collect::<Vec<_>>().join(" "));
        let there = patiently(&text, async || {
            *last = self.text().await?;
            Ok(last.contains(&text).then_some(()))
        });
        let waited = there.await;
        waited.map_err(|error| Error::unavailable(format!("{}; the page reads: {last}", error.detail())))
    }

    /// Waits until this can not be read on the page any more.
    pub(super) async fn reads_no(&self, text: &str) -> Result<()> {
        patiently(&format!("no {text}"), async || Ok((!self.text().await?.contains(text)).then_some(()))).await
    }

    /// The command line that is shown in the dialog if one is open, or else the last on the page that begins so.
    pub(super) async fn line(&self, begin: &str) -> Result<String> {
        let script = "const root = document.querySelector('dialog[open]') ?? document;
            return [...root.querySelectorAll('.shell code')].map((e) => e.textContent)
                .findLast((line) => line.startsWith(arguments[0])) ?? null";
        patiently(begin, async || Ok(self.run(script, json!([begin])).await?.as_str().map(str::to_owned))).await
    }

    /// What the page looks like, as a PNG in base64.
    pub(super) async fn screenshot(&self) -> Result<String> {
        let shot = self.devtools("Page.captureScreenshot", json!({"format": "png"})).await?;
        Ok(shot["data"].as_str().unwrap_or_default().to_owned())
    }
}

/// Asks again and again until the answer is there: a browser on a machine that does much else has six times as long as others.
pub(super) async fn patiently<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    for _ in 0..5 {
        if let Ok(answer) = eventually(what, &mut ask).await {
            return Ok(answer);
        }
    }
    eventually(what, ask).await
}

/// Nothing, in place of an error, where the page has drawn the element anew or moved something over it.
fn while_it_is_there<T>(done: Result<T>) -> Result<Option<T>> {
    let gone = ["stale element reference", "element click intercepted", "element not interactable"];
    match done {
        Err(error) if gone.iter().any(|gone| error.detail().contains(gone)) => Ok(None),
        done => done.map(Some),
    }
}

/// The `value` of an answer of the driver.
async fn said_by(client: &Client, method: Method, target: &str, body: &Value) -> Result<Value> {
    let failed = |error: reqwest::Error| Error::unavailable(format!("chromedriver: {error}"));
    let request = client.request(method, target);
    let request = if body.is_null() { request } else { request.json(body) };
    let answer = request.send().await.map_err(failed)?;
    let status = answer.status();
    let mut body: Value = answer.json().await.map_err(failed)?;
    if status.is_success() {
        return Ok(body["value"].take());
    }
    let (kind, detail) = (&body["value"]["error"], &body["value"]["message"]);
    Err(Error::bug(format!(
        "{target}: {kind}: {}",
        detail.as_str().unwrap_or_default().lines().next().unwrap_or_default()
    )))
}
