//! One Redis.

use std::time::Duration;

use dwell::model::error::Result;
use dwell::store::redis::{Diagnostics, Outcome, RedisOptions};
use serde_json::json;

use super::{ACL, Doctor};
use crate::support::{Certificates, Process, RedisServer, eventually, failed};

async fn sound() -> Result<RedisServer> {
    let durable = ["--save", "", "--appendonly", "yes", "--appendfsync", "always"];
    let bounds = ["--maxmemory", "1gb", "--enable-debug-command", "local"];
    let server = RedisServer::start_with(&[&durable[..], &bounds[..]].concat()).await?;
    server.ask::<()>(&format!("ACL SETUSER {}", ACL.trim().trim_start_matches("user "))).await?;
    Ok(server)
}

/// The names of everything below a directory.
fn names(dir: &std::path::Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(dir).map_err(failed("a directory"))?;
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

#[tokio::test]
async fn healthy_installation_passes_and_is_unchanged() -> Result<()> {
    let (server, doctor) = (sound().await?, Doctor::new()?);
    let url = format!("{}?user=dwell&pass=password", server.url());
    let broker = Process::serve(doctor.dir(), &[("REDIS_URL", &url)]).await?;
    // Nobody takes it meanwhile.
    let push = broker.client.post("/v1/topics/orders/messages?id=a&delay=1h&raw=true", &json!("x")).await;
    assert_eq!(push.map(|(status, _)| status), Some(201));
    let reserve = broker.client.post("/v1/topics/orders/groups/default/reserve", &json!({"wait": "0s"})).await;
    assert_eq!(reserve.map(|(status, _)| status), Some(200));
    eventually("every partition is owned", async || {
        let keys = server.keys().await?;
        Ok((keys.iter().filter(|key| key.ends_with(":default:lease")).count() == 8).then_some(()))
    })
    .await?;
    let before = (names(doctor.dir())?, server.keys().await?);
    let said = doctor.asked(&["--redis", &url])?;
    assert_eq!((said.code, said.complaints().len()), (Some(0), 0), "{said:#?}");
    assert!(said.says("keys", "ok", "1 of 1 topic "), "{said:#?}");
    assert!(said.says("members", "ok", "1 broker in"), "{said:#?}");
    assert!(said.says("wal", "ok", "has it") && !said.says("wal", "ok", "no process"), "{said:#?}");
    assert!(said.says("broker", "ok", "is ready, dwell "), "{said:#?}");
    let mut keys = server.keys().await?;
    // The broker counts for a while after somebody looked at its metrics.
    keys.retain(|key| key != "dwell:stats-collector");
    assert_eq!((names(doctor.dir())?, keys), before);
    // Everybody may ask everything.
    let all = doctor.asked(&["--redis", &server.url()])?;
    assert_eq!((all.code, all.complaints().len()), (Some(0), 0), "{all:#?}");
    assert!(all.says("persistence", "ok", "fsync always") && said.says("persistence", "skip", "CONFIG GET"));
    Ok(())
}

#[tokio::test]
async fn each_defect_is_named_with_its_fix() -> Result<()> {
    let (server, doctor) = (sound().await?, Doctor::new()?);
    // What breaks it, what mends it, and what is said meanwhile.
    let cases = [
        (
            "CONFIG SET maxmemory-policy allkeys-lru",
            "CONFIG SET maxmemory-policy noeviction",
            "eviction",
            "fail",
            "redis-cli config set maxmemory-policy noeviction",
        ),
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 1gb", "memory", "fail", "redis-cli config set maxmemory 2"),
        ("CONFIG SET maxmemory 0", "CONFIG SET maxmemory 1gb", "memory", "warn", "no maxmemory"),
        (
            "CONFIG SET appendonly no",
            "CONFIG SET appendonly yes",
            "persistence",
            "fail",
            "redis-cli config set appendonly yes",
        ),
        (
            "CONFIG SET appendfsync no",
            "CONFIG SET appendfsync always",
            "persistence",
            "warn",
            "redis-cli config set appendfsync everysec",
        ),
        (
            "ACL SETUSER default -flushall",
            "ACL SETUSER default +@all",
            "persistence",
            "fail",
            "redis-cli acl setuser default '~*' '&*' +@all",
        ),
        ("CONFIG SET timeout 30", "CONFIG SET timeout 0", "clients", "warn", "redis-cli config set timeout 0"),
        (
            "CONFIG SET tcp-keepalive 0",
            "CONFIG SET tcp-keepalive 300",
            "clients",
            "warn",
            "redis-cli config set tcp-keepalive 300",
        ),
        ("SET dwell:topics x", "DEL dwell:topics", "keys", "fail", "dwell:topics (of another type)"),
        ("SADD dwell:topics not/a/name", "DEL dwell:topics", "keys", "fail", "no name of a topic"),
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "role", "fail", "replica of 127.0.0.1:1"),
    ];
    for (break_it, mend_it, check, status, says) in cases {
        server.ask::<::redis::Value>(break_it).await?;
        // On a busy machine the call itself may have been a slow one.
        server.ask::<::redis::Value>("SLOWLOG RESET").await?;
        let said = doctor.asked(&["--redis", &server.url()])?;
        assert!(said.says(check, status, says), "{break_it}: {:#?}", said.complaints());
        assert!(said.complaints().iter().all(|finding| finding.check == check), "{break_it}: {:#?}", said.complaints());
        assert_eq!(said.code, Some(i32::from(status == "fail")), "{break_it}");
        server.ask::<::redis::Value>(mend_it).await?;
    }
    server.ask::<::redis::Value>("DEBUG SLEEP 0.1").await?;
    let slow = doctor.asked(&["--redis", &server.url()])?;
    assert!(slow.says("slow-log", "warn", "another program's") && slow.complaints().len() == 1, "{slow:#?}");
    server.ask::<::redis::Value>("SLOWLOG RESET").await?;
    let said = doctor.asked(&["--redis", &server.url()])?;
    assert_eq!((said.code, said.complaints().len()), (Some(0), 0), "{:#?}", said.complaints());
    Ok(())
}

#[tokio::test]
async fn missing_permissions_are_named() -> Result<()> {
    let (server, doctor) = (sound().await?, Doctor::new()?);
    let asked = |login: &str| doctor.asked(&["--redis", &format!("{}{login}", server.url())]);
    for (rules, check, status, says) in [
        ("-hset", "permissions", "fail", "+hset"),
        ("-evalsha", "permissions", "fail", "evalsha"),
        ("-ssubscribe", "permissions", "warn", "+ssubscribe"),
        ("-info", "redis", "fail", "deploy/redis.acl"),
        ("resetkeys ~other:*", "permissions", "fail", "dwell:id"),
        ("off", "redis", "fail", "acl getuser"),
    ] {
        server.ask::<()>(&format!("ACL SETUSER dwell {rules}")).await?;
        let said = asked("?user=dwell&pass=password")?;
        assert!(said.says(check, status, says), "{rules}: {:#?}", said.complaints());
        assert_eq!(said.code, Some(i32::from(status == "fail")), "{rules}");
        server.ask::<()>(&format!("ACL SETUSER {}", ACL.trim().trim_start_matches("user "))).await?;
    }
    let wrong = asked("?user=dwell&pass=guessed")?;
    assert!(wrong.code == Some(1) && wrong.says("redis", "fail", "WRONGPASS"), "{wrong:#?}");
    assert!(!format!("{wrong:?}").contains("guessed"), "{wrong:?}");
    server.ask::<()>("CONFIG SET requirepass secret").await?;
    let missing = asked("")?;
    assert!(missing.says("redis", "fail", "redis.password_file"), "{missing:#?}");
    Ok(())
}

#[tokio::test]
async fn checks_continue_without_redis_but_need_a_configuration() -> Result<()> {
    let doctor = Doctor::new()?;
    let away = doctor.asked(&["--redis", "redis://127.0.0.1:1"])?;
    assert_eq!(away.code, Some(69));
    assert!(away.says("redis", "fail", "does not answer") && away.of("data-dir").len() == 1, "{away:#?}");
    assert!(away.says("persistence", "skip", "Redis was not reached"), "{away:#?}");
    let wrong = doctor.asked(&["--redis", "redis://"])?;
    assert_eq!((wrong.code, wrong.complaints().len()), (Some(64), 1), "{wrong:#?}");
    assert!(wrong.says("configuration", "fail", "redis.url"), "{wrong:#?}");
    let both = doctor.command(&["--redis", "redis://", "--log-level", "loud"]).output().map_err(failed("doctor"))?;
    let text = String::from_utf8_lossy(&both.stdout).into_owned();
    assert!(text.contains("log.level") && text.ends_with("2 fail, 0 warn, 3 skip, 0 ok\n"), "{text}");
    Ok(())
}

#[tokio::test]
async fn warnings_fail_only_with_strict() -> Result<()> {
    let (server, doctor) = (sound().await?, Doctor::new()?);
    server.ask::<()>("CONFIG SET maxmemory 0").await?;
    for (strict, code) in [(None, 0), (Some("--strict"), 1)] {
        let mut command = doctor.command(&["--redis", &server.url()]);
        let output = command.args(strict).output().map_err(failed("dwell doctor"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(text.contains("\nwarn    memory ") && text.contains("→ redis-cli config set maxmemory "), "{text}");
    }
    Ok(())
}

#[tokio::test]
async fn tls_mismatch_is_reported() -> Result<()> {
    let certificates = Certificates::new()?;
    let (_server, options) = certificates.server().await?;
    let outcome = async |options: &RedisOptions| {
        let diagnostics = Diagnostics::of(options, Duration::from_secs(10)).await?;
        Ok::<_, dwell::model::error::Error>(diagnostics.nodes.into_iter().next().map(|node| node.outcome))
    };
    assert!(matches!(outcome(&options).await?, Some(Outcome::Answered(facts)) if facts.refused == Ok(Vec::new())));
    let url = options.url.expose().to_owned();
    let plain = RedisOptions { url: url.replace("rediss", "redis").into(), ..options.clone() };
    assert!(matches!(outcome(&plain).await?, Some(Outcome::Unreachable(why)) if why.detail().contains("TLS")));
    let foreign = RedisOptions { ca: Certificates::new()?.options(&url).ca, ..options };
    assert!(
        matches!(outcome(&foreign).await?, Some(Outcome::Unreachable(why)) if why.detail().contains("certificate"))
    );
    Ok(())
}
