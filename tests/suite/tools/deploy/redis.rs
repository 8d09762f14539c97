//! redis.conf and the users that go with it: a real redis-server takes them, and dwell needs no more.

use std::path::Path;
use std::process::Command;

use dwell::model::error::Result;
use serde_json::json;
use tempfile::TempDir;

use super::{of_deploy, said};
use crate::support::{Process, RedisServer, eventually, failed, scratch};

/// A file of its own directory.
fn write(dir: &Path, name: &str, text: &str) -> Result<String> {
    let path = dir.join(name);
    std::fs::write(&path, text).map_err(failed("a file"))?;
    Ok(path.display().to_string())
}

/// What redis-users.sh writes for these files.
fn users(files: &[&str]) -> Result<String> {
    said(Command::new(of_deploy("redis-users.sh")).args(files))
}

/// Starts redis-server with redis.conf, but for what is of this machine: where it is, and where it keeps what it has.
async fn configured(dir: TempDir) -> Result<RedisServer> {
    let passwords = [write(dir.path(), "password", "opensesame\n")?, write(dir.path(), "admin", "root-of-it")?];
    let acl = write(dir.path(), "users.acl", &users(&[&passwords[0], &passwords[1]])?)?;
    let (conf, place) = (of_deploy("redis.conf").display().to_string(), dir.path().display().to_string());
    RedisServer::guarded(dir, &["--include", &conf, "--port", "0", "--dir", &place, "--aclfile", &acl]).await
}

/// What an administrator is answered.
fn as_admin(redis: &RedisServer, command: &[&str]) -> Result<String> {
    let socket = redis.socket();
    let login = ["-s", &socket, "--user", "admin", "--no-auth-warning", "--pass", "root-of-it", "--raw"];
    said(Command::new("redis-cli").args(login).args(command)).map(|said| said.trim_end().to_owned())
}

#[tokio::test]
async fn dwell_runs_with_the_shipped_redis_configuration_and_acl() -> Result<()> {
    let mut redis = configured(scratch()?).await?;
    let dir = scratch()?;
    let password = redis.dir().join("password").display().to_string();
    let settings = [("REDIS_URL", &*format!("{}?user=dwell", redis.url())), ("REDIS_PASSWORD_FILE", &*password)];
    let dwell = Process::serve(dir.path(), &settings).await?;
    let pushed = dwell.client.post("/v1/topics/orders/messages?id=a&raw=true", &json!("close 4711")).await;
    assert_eq!(pushed.map(|(status, _)| status), Some(201));
    // It is told what a 201 survives.
    let (_, ready) = dwell.client.get("/readyz").await.unwrap_or_default();
    assert_eq!(ready["status"], "ready", "{ready}");
    assert!(ready.to_string().contains("append-only"), "{ready}");

    let stranger = |command: &[&str]| said(Command::new("redis-cli").args(["-s", &redis.socket()]).args(command));
    for command in [&["GET", "dwell:id"][..], &["ACL", "WHOAMI"], &["FLUSHALL"]] {
        assert!(stranger(command)?.contains("NOAUTH"), "{command:?}");
    }
    for (name, value) in [
        ("maxmemory-policy", "noeviction"),
        ("appendonly", "yes"),
        ("appendfsync", "everysec"),
        ("no-appendfsync-on-rewrite", "no"),
        ("save", ""),
        ("maxmemory", "1073741824"),
        ("min-replicas-to-write", "0"),
        ("timeout", "0"),
    ] {
        assert_eq!(as_admin(&redis, &["CONFIG", "GET", name])?, format!("{name}\n{value}").trim_end());
    }
    let refused = as_admin(&redis, &["ACL", "LOG"])?;
    assert!(!refused.contains("\ndwell\n") || refused.contains("config|get"), "{refused}");

    // Killed and started again it has what it answered for: with a default user who may do nothing, it has not.
    redis.kill()?;
    redis.restart_with(&[]).await?;
    eventually("the message is there", async || {
        let found = dwell.client.get("/v1/topics/orders/messages/a").await;
        Ok(found.filter(|(status, message)| *status == 200 && message["id"] == "a"))
    })
    .await?;
    Ok(())
}

#[test]
fn acl_users_have_digests_and_need_a_password() -> Result<()> {
    let dir = scratch()?;
    let [good, empty, placeholder] = ["opensesame\n", "\n", "CHANGE-ME\n"].map(|text| (text, text.len().to_string()));
    let path = |(text, name): &(&str, String)| write(dir.path(), name, text);
    let made = users(&[&path(&good)?])?;
    assert!(
        made.starts_with("user default off ~* &* +@all\nuser dwell on #") && !made.contains("opensesame"),
        "{made}"
    );
    assert_eq!(made.lines().count(), 2, "{made}");
    for wrong in [empty, placeholder] {
        assert!(users(&[&path(&wrong)?]).is_err_and(|error| error.detail().contains("has no password")));
    }
    assert!(users(&["/nowhere"]).is_err());
    Ok(())
}
