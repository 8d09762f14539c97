//! Passwords, keys and payloads are nowhere in what the real binary says, however much it says and whatever goes wrong.

use axum::Router;
use axum::http::StatusCode;
use dwell::model::error::Result;

use super::{Sidecar, dwell};
use crate::support::{Application, RedisServer, eventually, failed, scratch};

/// Everything that must not be said has this in it.
const SECRET: &str = "s3cret";

const PASSWORD: &str = "s3cret-acl-password";
const PAYLOAD: &str = "s3cret-payload";

/// A Redis whose user `app` has the password.
async fn redis() -> Result<RedisServer> {
    let user = format!(">{PASSWORD}");
    let acl = ["--user", "app", "on", &user, "~*", "&*", "+@all"];
    RedisServer::start_with(&[&["--save", "", "--appendonly", "yes"], &acl[..]].concat()).await
}

fn with_password(redis: &RedisServer, password: &str) -> String {
    format!("url = '{}?user=app&pass={password}'\n", redis.url())
}

/// What is said never has a secret in it; and something is said.
fn is_clean(said: &str) {
    assert!(said.len() > 20, "{said}");
    for line in said.lines() {
        assert!(!line.contains(SECRET), "{line}");
    }
}

/// Asks for everything that shows something, and for things that are wrong.
async fn collect_attention(sidecar: &Sidecar) -> Result<()> {
    let push = "POST /v1/topics/orders/messages";
    for (line, body) in [
        ("GET /readyz", ""),
        ("GET /metrics", ""),
        ("GET /openapi.json", ""),
        ("GET /v1/topics", ""),
        ("GET /v1/topics/orders", ""),
        ("GET /v1/topics/orders/groups", ""),
        ("GET /nowhere", ""),
        (push, PAYLOAD),
        (&format!("{push}?delay=1h"), PAYLOAD),
        (&format!("{push}?dealy=1h"), PAYLOAD),
    ] {
        is_clean(&sidecar.ask(line, body).await?.1);
    }
    // What is wrong with a body may be said to who sent it, and to nobody else.
    for body in [format!("{{\"messages\": [\"{PAYLOAD}\"]}}"), format!("{{\"{PAYLOAD}\": 1}}"), PAYLOAD.to_owned()] {
        assert!(sidecar.ask(&format!("{push}/batch"), &body).await?.0 >= 400);
    }
    let reserve = r#"{"max": 10, "wait": "1s", "visibility_timeout": "100ms"}"#;
    sidecar.ask("POST /v1/topics/orders/groups/default/reserve", reserve).await.map(drop)
}

#[tokio::test]
async fn run_with_an_outage_logs_no_secret() -> Result<()> {
    let mut redis = redis().await?;
    let (sent, failing) = (Application::told().await?, Application::serve(failing(), 0).await?);
    let (application, mut posts) = sent;
    for format in ["text", "json"] {
        let dir = scratch()?;
        let secret = dir.path().join("hook");
        std::fs::write(&secret, "s3cret-of-the-webhook").map_err(failed("a secret"))?;
        let webhook = |topic: &str, url: String| {
            format!("[[webhook]]\ntopic = '{topic}'\nurl = '{url}'\nsecret_file = '{}'\n", secret.display())
        };
        let config = format!(
            "durability = 'journal'\n[log]\nlevel = 'trace'\nformat = '{format}'\n[redis]\ntimeout = '200ms'\nprefix = '{format}'\n{}{}{}",
            with_password(&redis, PASSWORD),
            webhook("hooked", application.url()),
            webhook("failing", failing.url()),
        );
        let mut sidecar = Sidecar::start(&config).await?;
        for topic in ["orders", "hooked", "failing"] {
            sidecar.tell(&format!("POST /v1/topics/{topic}/messages"), PAYLOAD).await?;
        }
        posts.next().await?.answer(StatusCode::NO_CONTENT);
        collect_attention(&sidecar).await?;

        redis.kill()?;
        collect_attention(&sidecar).await?;
        redis.restart().await?;
        sidecar.until_ready_says("\"ready\"").await?;

        // The password is another one from now on, and then the right one again.
        let set = async |password: &str| {
            redis.ask::<String>(&format!("ACL SETUSER app resetpass >{password}")).await?;
            redis.ask::<i64>("CLIENT KILL TYPE normal SKIPME yes").await
        };
        set("s3cret-another").await?;
        let lost = async || Ok(Some(sidecar.ask("GET /readyz", "").await?.1).filter(|it| it.contains("WRONGPASS")));
        is_clean(&eventually("/readyz says WRONGPASS", lost).await?);
        collect_attention(&sidecar).await?;
        set(PASSWORD).await?;
        sidecar.until_ready_says("\"ready\"").await?;

        assert!(sidecar.stop().await?.success());
        let said = sidecar.said()?;
        is_clean(&said);
        for expected in
            ["answered", "the store is unavailable", "a request failed", "WRONGPASS", "webhook target fails", "stopped"]
        {
            assert!(said.contains(expected), "{expected}: {said}");
        }
    }
    Ok(())
}

/// Says what it was sent, as a careless application does.
fn failing() -> Router {
    Router::new().fallback(async |body: String| (StatusCode::INTERNAL_SERVER_ERROR, format!("no room for {body}")))
}

#[tokio::test]
async fn start_with_a_wrong_password_logs_no_secret() -> Result<()> {
    let redis = redis().await?;
    let sentinel =
        "url = 'redis+sentinel://app:s3cret-a@127.0.0.1:1/main?sentinel_user=u&sentinel_password=s3cret-b'\n";
    let cluster = "url = 'rediss+cluster://app:s3cret-a@127.0.0.1:1,127.0.0.1:2'\n".to_owned();
    for url in [with_password(&redis, "s3cret-wrong"), sentinel.to_owned(), cluster] {
        let config = format!("[log]\nlevel = 'trace'\n[redis]\ntimeout = '200ms'\nstart_without = true\n{url}");
        let mut sidecar = Sidecar::start(&config).await?;
        collect_attention(&sidecar).await?;
        is_clean(&sidecar.until_ready_says("degraded").await?);
        assert!(sidecar.stop().await?.success());
        is_clean(&sidecar.said()?);
    }
    Ok(())
}

#[tokio::test]
async fn password_from_a_file_is_not_logged() -> Result<()> {
    let (redis, dir) = (redis().await?, scratch()?);
    let file = dir.path().join("password");
    std::fs::write(&file, format!("{PASSWORD}\n")).map_err(failed("a password"))?;
    let (url, file) = (format!("{}?user=app", redis.url()), file.display());
    let config = format!("[log]\nlevel = 'trace'\n[redis]\nurl = '{url}'\npassword_file = '{file}'\n");
    let mut sidecar = Sidecar::start(&config).await?;
    sidecar.until_ready_says("\"ready\"").await?;
    collect_attention(&sidecar).await?;
    assert!(sidecar.stop().await?.success());
    is_clean(&sidecar.said()?);
    Ok(())
}

#[test]
fn command_line_prints_no_secret() -> Result<()> {
    let dir = scratch()?;
    let file = dir.path().join("dwell.toml");
    let config = file.display().to_string();
    let url = "redis://app:s3cret-url@127.0.0.1:1";
    let cases = [
        (format!("redis.url = '{url}'\n"), vec!["config", "show"], 0),
        (format!("redis.url = '{url}'\n"), vec!["config", "check"], 0),
        (format!("redis.url = '{url}\n"), vec!["config", "check"], 64),
        (format!("redis.url = ['{url}']\n"), vec!["config", "show"], 64),
        (format!("redis.url = '{url}'\nredis.url_file = 'x'\n"), vec!["serve"], 64),
        (String::new(), vec!["serve", "--redis", "http://app:s3cret@host"], 64),
        (String::new(), vec!["config", "show", "--redis", url], 0),
    ];
    for (text, args, code) in cases {
        std::fs::write(&file, &text).map_err(failed("a configuration"))?;
        let output = dwell(dir.path(), &[&args[..], &["--config", &config]].concat()).output();
        let output = output.map_err(failed("dwell"))?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert_eq!(output.status.code(), Some(code), "{text} {args:?}: {said}");
        assert!(!said.is_empty() && !said.contains(SECRET), "{text} {args:?}: {said}");
    }
    Ok(())
}
