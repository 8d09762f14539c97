//! Who is on call: types the commands of a runbook during its incident, as the page prints them, with a token.

use std::process::{Command, Stdio};

use dwell::model::error::{Error, Result};

use super::fleet::Fleet;
use crate::support::{PROGRAM, failed};
use crate::tools::observability::broker::Broker;
use crate::tools::observability::rules::commands;

/// What stands before a redis-cli that finds the Redis of the incident.
const REDIS_CLI: &str = "redis-cli ";

/// What a command said, and how it ended.
#[derive(Debug)]
pub(super) struct Typed {
    pub(super) is_done: bool,
    pub(super) said: String,
}

impl Fleet {
    /// Types a command of a runbook for the first broker.
    pub(super) async fn types(&self, runbook: &str, command: &str, names: &[(&str, &str)]) -> Result<Typed> {
        self.types_at(&self.brokers[0], runbook, command, names).await
    }

    /// Types a command of a runbook, whose placeholders have these names, for this broker.
    pub(super) async fn types_at(
        &self,
        broker: &Broker,
        runbook: &str,
        command: &str,
        names: &[(&str, &str)],
    ) -> Result<Typed> {
        let is_there = commands().contains(&(runbook, command.to_owned()));
        assert!(is_there, "the runbook of {runbook} has no command `{command}`");
        // A word of the command: `TOPIC` is none of `--topic`.
        let named = |word: &str| names.iter().find(|(name, _)| *name == word).map(|(_, is)| (*is).to_owned());
        let words: Vec<String> =
            command.split(' ').map(|word| named(word).unwrap_or_else(|| word.to_owned())).collect();
        // There is no terminal to say yes at.
        let yes = if command.contains(" purge ") { " --yes" } else { "" };
        let socket = self.redis().await.socket();
        let typed = (words.join(" ") + yes).replace(REDIS_CLI, &format!("{REDIS_CLI}-s {socket} "));
        let dir = self.dir.path();
        let bin = dir.join("bin");
        if !bin.exists() {
            std::fs::create_dir(&bin).map_err(failed("a directory"))?;
            std::os::unix::fs::symlink(PROGRAM, bin.join("dwell")).map_err(failed("a link"))?;
        }
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("/bin/bash");
        shell.env_clear().env("PATH", format!("{}:{path}", bin.display())).env("HOME", dir);
        shell.env("DWELL_SERVER", broker.url()).env("DWELL_TOKEN_FILE", dir.join("token"));
        shell.env("DWELL_CONFIG", broker.dir.join("dwell.toml"));
        if dir.join("ca").exists() {
            shell.env("DWELL_CA_FILE", dir.join("ca"));
        }
        shell.args(["-c", &typed]).stdin(Stdio::null());
        let output = tokio::task::spawn_blocking(move || shell.output()).await;
        let output = output.map_err(|error| Error::bug(error.to_string()))?.map_err(failed(&typed))?;
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
        Ok(Typed { is_done: output.status.success(), said })
    }
}

impl Typed {
    /// It did what it was for, and said all of this.
    #[track_caller]
    pub(super) fn says(self, words: &[&str]) {
        assert!(self.is_done && words.iter().all(|words| self.said.contains(words)), "{words:?}: {self:#?}");
    }
}
