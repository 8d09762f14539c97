//! `dwell config check` finds what `dwell serve` refuses before it connects to anything, in the same words.

use std::path::Path;
use std::process::{Command, Output};

use dwell::model::error::Result;

use crate::support::{PROGRAM, failed, scratch};

/// The exit code of a command on a configuration file, and what it says.
fn ended(command: &[&str], config: &Path, dir: &Path) -> Result<(Option<i32>, String)> {
    let mut dwell = Command::new("timeout");
    dwell.args(["20", PROGRAM]).args(command).arg("--config").arg(config).args(["--log-level", "error"]).env_clear();
    let listen = format!("unix:{}", dir.join("dwell.sock").display());
    dwell.args(["--listen", &listen, "--data-dir"]).arg(dir.join("data"));
    let Output { status, stdout, stderr } = dwell.output().map_err(failed("dwell"))?;
    Ok((status.code(), String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned()))
}

#[test]
fn config_check_refuses_what_serve_refuses() -> Result<()> {
    let dir = scratch()?;
    let garbage = dir.path().join("garbage.pem");
    std::fs::write(&garbage, "no certificate").map_err(failed("a file"))?;
    let garbage = garbage.display().to_string();
    let webhook = "[[webhook]]\ntopic = 'orders'\nurl = 'https://localhost/hook'";
    let cases = [
        ("redis.url = 'redis://127.0.0.1:1/99x'".to_owned(), "redis.url"),
        ("redis.url = 'redis+sentinel://127.0.0.1:1'".to_owned(), "redis.url"),
        (format!("redis.url = 'rediss://127.0.0.1:1'\nredis.ca_file = '{garbage}'"), "certificate"),
        (format!("tls.cert_file = '{garbage}'\ntls.key_file = '{garbage}'"), "tls"),
        (format!("trace.otlp_endpoint = 'https://127.0.0.1:1'\ntrace.otlp_ca_file = '{garbage}'"), "otlp"),
        (format!("{webhook}\nca_file = '{garbage}'"), "ca_file"),
        ("[[webhook]]\ntopic = 'orders'\nurl = 'http://10.1.2.3/hook'".to_owned(), "allow_remote"),
    ];
    let config = dir.path().join("dwell.toml");
    for (text, expected) in cases {
        std::fs::write(&config, &text).map_err(failed("a configuration"))?;
        let (served, said) = ended(&["serve"], &config, dir.path())?;
        assert!(served != Some(0) && served != Some(124) && said.contains(expected), "{text}: {served:?} {said}");
        let (checked, found) = ended(&["config", "check"], &config, dir.path())?;
        assert_eq!((checked, &found), (served, &said), "{text}");
        assert!(!dir.path().join("data").exists(), "{text}: something was created");
    }
    Ok(())
}
