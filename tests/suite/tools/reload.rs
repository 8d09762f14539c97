//! What changes while a broker runs: by SIGHUP, by `dwell reload`, and by itself when a file with a secret changes.

use std::path::Path;
use std::process::{Command, Stdio};

use dwell::model::error::Result;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::http::api::served::Outcome;
use crate::support::{PROGRAM, Process, RedisServer, eventually, failed, scratch, signal_to};

/// A broker whose log is at `info`, on the configuration in its directory.
async fn serve(dir: &Path) -> Result<Process> {
    let config = dir.join("dwell.toml").display().to_string();
    // The level is that of the configuration.
    Process::serve(dir, &[("CONFIG", config.as_str()), ("LOG_FORMAT", "json"), ("LOG_LEVEL", "")]).await
}

fn write(dir: &Path, config: &str) -> Result<()> {
    std::fs::write(dir.join("dwell.toml"), config).map_err(failed("a configuration"))
}

/// `dwell reload --json`: what it said, or why not.
fn reload(dir: &Path, token: &str) -> Outcome<Result<Value, String>> {
    let server = format!("unix:{}", dir.join("dwell.sock").display());
    let mut command = Command::new(PROGRAM);
    command.env_clear().args(["reload", "--json", "--server", &server]).args(["--token-file", token]);
    let said = command.stdin(Stdio::null()).output()?;
    Ok(match said.status.success() {
        true => Ok(serde_json::from_slice(&said.stdout)?),
        false => Err(String::from_utf8(said.stderr)?),
    })
}

/// Waits for a line of the log with these texts.
async fn logged(dir: &Path, texts: &[&str]) -> Result<()> {
    let log = || std::fs::read_to_string(dir.join("dwell.log")).unwrap_or_default();
    let said = async || Ok(log().lines().any(|line| texts.iter().all(|text| line.contains(text))).then_some(()));
    eventually(&format!("the log says {texts:?}"), said).await.map(drop)
}

const ADMIN: &str = "s3cret-of-the-operator";

/// A configuration with a token of an admin, and further text.
fn with_admin(dir: &Path, more: &str) -> Outcome<(String, String)> {
    let file = dir.join("admin").display().to_string();
    std::fs::write(&file, ADMIN)?;
    let config = format!("{more}\n[[auth.token]]\nname = 'admin'\nfile = '{file}'\nscopes = ['admin']\n");
    Ok((config, file))
}

#[tokio::test]
async fn tokens_webhooks_and_the_level_of_the_log_change_without_a_restart() -> Outcome {
    let dir = scratch()?;
    let dir = dir.path();
    let (config, admin) = with_admin(dir, "lease.ttl = '10s'\n[log]\nlevel = 'info'\n")?;
    write(dir, &config)?;
    let process = serve(dir).await?;
    let status = async |token: &str| process.client.as_holder(token, "/v1/topics").await;
    assert_eq!(reload(dir, &admin)?, Ok(json!({"changed": [], "needs_restart": []})));
    assert_eq!((status(ADMIN).await, status("s3cret-of-a-new-one").await), (Some(200), Some(401)));

    std::fs::write(dir.join("new"), "s3cret-of-a-new-one")?;
    let (changed, _) = with_admin(dir, "lease.ttl = '20s'\n[log]\nlevel = 'debug'\n")?;
    let file = dir.join("new");
    let token = format!("[[auth.token]]\nname = 'new'\nfile = '{}'\nscopes = ['view']\n", file.display());
    let webhook = "[[webhook]]\ntopic = 'orders'\nurl = 'http://127.0.0.1:1/'\n";
    write(dir, &format!("{changed}{token}{webhook}"))?;
    let said = reload(dir, &admin)??;
    assert_eq!(said, json!({"changed": ["log.level", "auth.token", "webhook"], "needs_restart": ["lease.ttl"]}));
    assert_eq!((status(ADMIN).await, status("s3cret-of-a-new-one").await), (Some(200), Some(200)));
    logged(dir, &["webhook started", "orders"]).await?;
    logged(dir, &["DEBUG"]).await?;
    logged(dir, &["they need a restart", "lease.ttl"]).await?;

    // What is wrong changes nothing, and is said.
    write(dir, &format!("{changed}[log]\nlevle = 'info'\n"))?;
    let refused = reload(dir, &admin)?.err().unwrap_or_default();
    assert!(refused.contains("levle") || refused.contains("duplicate"), "{refused}");
    logged(dir, &["configuration not reloaded: the one before stays in force"]).await?;
    write(dir, "")?;
    assert!(reload(dir, &admin)?.is_err_and(|why| why.contains("the end of the last one, need a restart")));
    assert_eq!(status("s3cret-of-a-new-one").await, Some(200));

    // A token that is gone is refused, and one of them needs admin to reload.
    write(dir, &changed)?;
    let new = file.display().to_string();
    assert!(reload(dir, &new)?.is_err_and(|why| why.contains("scope admin")));
    assert_eq!(reload(dir, &admin)??["needs_restart"], json!(["lease.ttl"]), "it is still pending");
    assert_eq!((status(ADMIN).await, status("s3cret-of-a-new-one").await), (Some(200), Some(401)));
    Ok(())
}

#[tokio::test]
async fn a_hangup_reloads_and_ends_nothing() -> Outcome {
    let dir = scratch()?;
    let dir = dir.path();
    write(dir, "[log]\nlevel = 'info'\n")?;
    let mut process = serve(dir).await?;
    write(dir, "[log]\nlevel = 'debug'\n")?;
    for _ in 0..20 {
        signal_to(process.id(), Signal::HUP)?;
    }
    logged(dir, &["told to reload", "SIGHUP"]).await?;
    logged(dir, &["configuration reloaded", "log.level"]).await?;
    write(dir, "nonsense = 1\n")?;
    signal_to(process.id(), Signal::HUP)?;
    logged(dir, &["configuration not reloaded", "nonsense"]).await?;
    assert_eq!(process.client.get("/livez").await.map(|(status, _)| status), Some(200));
    signal_to(process.id(), Signal::TERM)?;
    process.ended().await?;
    logged(dir, &["\"stopped\""]).await?;
    Ok(())
}

/// A command to a Redis that asks for a password.
fn told(redis: &RedisServer, password: &str, command: &str) -> Outcome {
    let mut client = Command::new("redis-cli");
    client.args(["-s", &redis.socket(), "--no-auth-warning", "-a", password]).args(command.split(' '));
    let said = client.output()?;
    assert!(said.status.success() && !said.stdout.starts_with(b"ERR"), "{said:?}");
    Ok(())
}

#[tokio::test]
async fn a_password_of_redis_that_changes_in_its_file_is_used_by_itself() -> Outcome {
    let dir = scratch()?;
    let dir = dir.path();
    let redis = RedisServer::guarded(scratch()?, &["--save", "", "--requirepass", "the-old-one"]).await?;
    std::fs::write(dir.join("password"), "the-old-one\n")?;
    let url = format!("redis+unix://{}", redis.socket());
    let password = dir.join("password").display().to_string();
    write(dir, &format!("[redis]\nurl = '{url}'\npassword_file = '{password}'\n[log]\nlevel = 'info'\n"))?;
    let process = serve(dir).await?;
    let pushed = async || process.client.post("/v1/topics/t/messages", &json!({"payload": "x"})).await.map(|(s, _)| s);
    assert_eq!(pushed().await, Some(201));
    // Redis gets another password, and ends its connections; an edit of the configuration waits for somebody's word.
    told(&redis, "the-old-one", "CONFIG SET requirepass the-new-one")?;
    told(&redis, "the-new-one", "CLIENT KILL TYPE normal SKIPME yes")?;
    eventually("a push is buffered", async || Ok(pushed().await.filter(|status| *status == 202))).await?;
    let config = std::fs::read_to_string(dir.join("dwell.toml"))?;
    write(dir, &config.replace("'info'", "'debug'"))?;
    std::fs::write(dir.join("password"), "the-new-one\n")?;
    eventually("a push is stored", async || Ok(pushed().await.filter(|status| *status == 201))).await?;
    let log = std::fs::read_to_string(dir.join("dwell.log"))?;
    let reloaded: Vec<_> = log.lines().filter(|line| line.contains("configuration reloaded")).collect();
    assert!(reloaded.len() == 1 && reloaded[0].contains("redis.password_file"), "{reloaded:?}");
    assert!(!reloaded[0].contains("log.level") && !log.contains("the-new-one"), "{reloaded:?}");
    Ok(())
}

/// A certificate for this machine that ended long ago, and its key.
fn write_expired(dir: &Path) -> Outcome {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
    (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
    let key = KeyPair::generate()?;
    std::fs::write(dir.join("cert"), params.self_signed(&key)?.pem())?;
    std::fs::write(dir.join("key"), key.serialize_pem())?;
    Ok(())
}

#[tokio::test]
async fn an_expired_certificate_is_in_the_log_the_metrics_and_doctor() -> Outcome {
    let dir = scratch()?;
    let dir = dir.path();
    write_expired(dir)?;
    let file = |name: &str| dir.join(name).display().to_string();
    // The certificate is for the listener for operators here: this one is a socket.
    write(
        dir,
        &format!(
            "[admin]\nlisten = '127.0.0.1:0'\n[tls]\ncert_file = '{}'\nkey_file = '{}'\n[log]\nlevel = 'info'\n",
            file("cert"),
            file("key")
        ),
    )?;
    let process = serve(dir).await?;
    logged(dir, &["the certificate has expired", "2021-01-01"]).await?;
    let line = format!("dwell_certificate_end_timestamp_seconds{{file=\"{}\"}} 1609459200", file("cert"));
    let metrics = process.client.text("/metrics").await.unwrap_or_default();
    assert!(metrics.contains(&line), "{metrics}");
    let mut doctor = Command::new(PROGRAM);
    doctor.env_clear().args(["doctor", "--json", "--config", &file("dwell.toml"), "--data-dir", &file("other")]);
    let said = String::from_utf8(doctor.output()?.stdout)?;
    let found: Vec<Value> = said.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let certificate = found.iter().find(|finding| finding["check"] == "certificate").ok_or("no such check")?;
    assert_eq!(certificate["status"], "fail", "{certificate}");
    // A new one is read by itself.
    crate::support::Certificates::new()?.write(dir)?;
    let renewed = async || {
        let metrics = process.client.text("/metrics").await.unwrap_or_default();
        Ok((metrics.contains("dwell_certificate_end_timestamp_seconds") && !metrics.contains(&line)).then_some(()))
    };
    eventually("the metric shows the new certificate", renewed).await?;
    Ok(())
}
