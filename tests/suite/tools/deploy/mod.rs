//! The files of deploy/: what starts dwell is told the truth, and every file is one that its reader takes.

mod chart;
mod compose;
mod custom;
mod gateway;
mod image;
mod kubernetes;
mod kustomize;
mod manifests;
mod merge;
mod two_brokers;
mod pods;
mod redis;
mod schema;
mod services;
mod systemd_notify;
mod systemd;
mod workflows;

use std::path::{Path, PathBuf};
use std::process::Command;

use dwell::app::config::{Config, Sources};
use dwell::model::error::{Error, Result};
use serde::Deserialize as _;
use serde_json::Value;

use crate::support::failed;

/// A file or directory of deploy/.
fn of_deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(name)
}

/// The text of a file of deploy/.
fn text(name: &str) -> Result<String> {
    std::fs::read_to_string(of_deploy(name)).map_err(failed(name))
}

/// What a command says; it has to end well.
fn said(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(failed(&format!("{command:?}")))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(format!("{}{}", text(&output.stdout), text(&output.stderr))),
        false => Err(Error::bug(format!("{command:?}: {}{}", text(&output.stdout), text(&output.stderr)))),
    }
}

/// The documents of a YAML file. A key that is given twice is an error.
fn yaml(path: &Path) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(path).map_err(failed(&path.display().to_string()))?;
    let wrong = |error: &dyn std::fmt::Display| Error::bug(format!("{}: {error}", path.display()));
    let documents = serde_norway::Deserializer::from_str(&text).map(|document| {
        let mut value = serde_norway::Value::deserialize(document).map_err(|error| wrong(&error))?;
        value.apply_merge().map_err(|error| wrong(&error))?;
        serde_json::to_value(value).map_err(|error| wrong(&error))
    });
    documents.collect()
}

/// A configuration file as dwell reads it where it is installed; what is in the directory `secrets` there is in `here`.
fn checked_config(file: &Path, secrets: &str, here: &Path) -> Result<Config> {
    let text = std::fs::read_to_string(file).map_err(failed(&file.display().to_string()))?;
    loaded(&text, &[], secrets, here).map_err(|error| Error::bug(format!("{}: {error}", file.display())))
}

/// The same of the text of a file and an environment.
fn loaded(text: &str, env: &[(String, String)], secrets: &str, here: &Path) -> Result<Config> {
    let copy = here.join("dwell.toml");
    let placed = |text: &str| text.replace(secrets, &here.display().to_string());
    std::fs::write(&copy, placed(text)).map_err(failed("a copy"))?;
    let env = env.iter().map(|(name, value)| (name.into(), placed(value).into())).collect();
    let sources = Sources { file: Some(copy), env, ..Sources::default() };
    Config::load(&sources).map_err(|errors| Error::bug(errors.to_string()))
}
