//! `dwell doctor` as an operator calls it: real servers and disks, each with one thing wrong.

mod broker;
mod disk;
mod fleet;
mod redis;

use std::path::Path;
use std::process::{Command, Stdio};

use dwell::model::error::{Error, Result};
use serde::Deserialize;
use tempfile::TempDir;

use crate::support::{failed, scratch};

const ACL: &str = include_str!("../../../../deploy/redis.acl");

/// What depends on the machine that the test runs on, and how busy that is. Unit tests judge it.
const OF_THE_MACHINE: [&str; 6] = ["latency", "disk-latency", "disk-space", "data-dir", "open-files", "time"];

/// A place to call it from.
struct Doctor {
    dir: TempDir,
}

/// A line of its JSON, which has these fields and no others.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Finding {
    check: String,
    status: String,
    found: String,
    advice: Option<String>,
}

/// What it said, and how it ended.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    findings: Vec<Finding>,
}

impl Doctor {
    fn new() -> Result<Doctor> {
        Ok(Doctor { dir: scratch()? })
    }

    fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The command, with nothing from the environment that could change what it does.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dwell"));
        command.arg("doctor").args(args).env_clear().stdin(Stdio::null());
        command.env("DWELL_DATA_DIR", self.dir());
        command.env("DWELL_SERVER", format!("unix:{}", self.dir().join("dwell.sock").display()));
        command
    }

    fn asked(&self, args: &[&str]) -> Result<Said> {
        read(self.command(args).arg("--json"))
    }
}

fn read(command: &mut Command) -> Result<Said> {
    let output = command.output().map_err(failed("dwell doctor"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let line = |line| serde_json::from_str(line).map_err(|error| Error::bug(format!("{line}: {error}")));
    let findings = said.lines().map(line).collect::<Result<Vec<Finding>>>()?;
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{findings:?}");
    for finding in &findings {
        assert_eq!(finding.advice.is_none(), ["ok", "skip"].contains(&finding.status.as_str()), "{finding:?}");
    }
    Ok(Said { code: output.status.code(), findings })
}

impl Said {
    /// Everything about a thing.
    fn of(&self, check: &str) -> Vec<&Finding> {
        self.findings.iter().filter(|finding| finding.check == check).collect()
    }

    /// Whether a check has this status, and says or advises this.
    fn says(&self, check: &str, status: &str, text: &str) -> bool {
        self.of(check).iter().any(|finding| {
            let all = format!("{} → {}", finding.found, finding.advice.as_deref().unwrap_or_default());
            finding.status == status && all.contains(text)
        })
    }

    /// Everything that is not as it should be, and that is not the machine's.
    fn complaints(&self) -> Vec<&Finding> {
        let is_of_dwell = |check: &str| !OF_THE_MACHINE.contains(&check);
        self.findings
            .iter()
            .filter(|finding| !["ok", "skip"].contains(&finding.status.as_str()) && is_of_dwell(&finding.check))
            .collect()
    }
}
