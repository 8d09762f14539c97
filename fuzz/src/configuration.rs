//! Configuration files, through the loader that `dwell serve` uses.

use std::ffi::OsString;
use std::path::PathBuf;

use dwell::app::config::{Config, Sources, settings, show};
use libfuzzer_sys::Corpus;
use tempfile::TempDir;

use crate::kept;

thread_local! {
    static DIR: TempDir = tempfile::tempdir().expect("a directory");
}

pub(crate) fn run(data: &[u8]) -> Corpus {
    let sources = written("dwell.toml", data);
    let config = match Config::load(&sources) {
        Ok(config) => config,
        Err(errors) => {
            assert!(!errors.to_string().is_empty());
            return kept(!errors.to_string().contains("TOML"));
        }
    };
    let shown = show(&settings(&sources).expect("what was loaded is shown"));
    // A password is masked, and then what is shown is another configuration.
    if !shown.contains("***") {
        match Config::load(&written("shown.toml", shown.as_bytes())) {
            Ok(again) => assert_eq!(again, config, "{shown}"),
            Err(errors) => panic!("{errors}\n{shown}"),
        }
    }
    Corpus::Keep
}

fn written(name: &str, text: &[u8]) -> Sources {
    let path: PathBuf = DIR.with(|dir| dir.path().join(name));
    std::fs::write(&path, text).expect("a file");
    let home = (OsString::from("HOME"), OsString::from("/nowhere"));
    Sources { file: Some(path), env: vec![home], ..Sources::default() }
}
