//! The image: what its build reads is let through to it, and what it says to run is there.

use std::path::Path;
use std::process::Command;

use dwell::model::error::Result;

use super::systemd_notify::Supervised;
use super::text;
use crate::support::failed;

const IGNORED: &str = include_str!("../../../../.dockerignore");

/// The instructions of a kind, each as one line.
fn instructions(kind: &str) -> Result<Vec<String>> {
    let file = text("Dockerfile")?.replace("\\\n", " ");
    let lines = file.lines().filter_map(|line| line.strip_prefix(&format!("{kind} ")));
    Ok(lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect())
}

/// Whether the builder gets a path of the repository: the last pattern that names it, or a directory above it, decides.
fn is_sent(path: &str) -> bool {
    let patterns = IGNORED.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let names = |pattern: &str| {
        let above = pattern.strip_suffix("/*").map(|dir| format!("{dir}/"));
        let below = above.is_some_and(|dir| path.strip_prefix(&dir).is_some_and(|rest| !rest.is_empty()));
        pattern == "*" || below || path == pattern || path.starts_with(&format!("{pattern}/"))
    };
    patterns.fold(true, |sent, pattern| match pattern.strip_prefix('!') {
        Some(pattern) if names(pattern) => true,
        None if names(pattern) => false,
        _ => sent,
    })
}

#[test]
fn build_context_is_complete_and_has_no_secrets() -> Result<()> {
    for needed in [
        "Cargo.toml",
        "Cargo.lock",
        "src/main.rs",
        "src/store/redis/scripts/push.lua",
        "clients/rust/src/lib.rs",
        "deploy/build-static.sh",
    ] {
        assert!(is_sent(needed), "{needed}");
    }
    for kept in [
        ".git/config",
        "target/debug/dwell",
        "deploy/secrets/dwell-admin",
        "deploy/.env",
        "docs/operate/deploy.md",
        "clients/python/README.md",
        "README.md",
    ] {
        assert!(!is_sent(kept), "{kept}");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for copy in instructions("COPY")?.iter().filter(|copy| !copy.starts_with("--from=")) {
        let mut words: Vec<_> = copy.split(' ').collect();
        words.pop();
        for source in words.iter().filter(|source| **source != ".") {
            assert!(is_sent(source) && root.join(source).exists(), "COPY {copy}: {source}");
        }
    }
    Ok(())
}

#[test]
fn image_runs_unprivileged_and_stops_gracefully() -> Result<()> {
    let last = |kind| Ok(instructions(kind)?.pop().unwrap_or_default());
    assert_eq!(last("FROM")?, "scratch");
    assert_eq!([last("USER")?, last("STOPSIGNAL")?], ["65532:65532", "SIGTERM"]);
    assert_eq!([last("ENTRYPOINT")?, last("CMD")?], [r#"["/dwell"]"#, r#"["serve"]"#]);
    let dir = last("VOLUME")?;
    assert_eq!(last("ENV")?, format!("DWELL_DATA_DIR={dir}"));
    assert!(instructions("COPY")?.iter().any(|copy| copy.contains("--chown=65532:65532") && copy.ends_with(&dir)));
    assert!(instructions("RUN")?.iter().any(|run| run.contains("deploy/build-static.sh /out/dwell")));
    assert!(text("build-static.sh")?.contains("cargo build --locked --release --bin dwell"));
    assert!(include_str!("../../../../Makefile").contains("\nstatic:\n\tdeploy/build-static.sh "));
    Ok(())
}

/// The command of the image's health check, and those of the probes, in front of a real broker.
#[tokio::test]
async fn health_check_follows_the_state_of_dwell() -> Result<()> {
    let check = instructions("HEALTHCHECK")?.concat();
    assert!(check.ends_with(r#"CMD ["/dwell", "health", "--live"]"#), "{check}");
    let mut dwell = Supervised::start(&[], 0)?;
    dwell.says("READY=1")?;
    let health = |flags: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dwell"));
        command.arg("health").args(flags).env_clear().env("DWELL_SERVER", dwell.address());
        command.output().map(|said| (said.status.code(), String::from_utf8_lossy(&said.stdout).into_owned()))
    };
    let health = |flags: &[&str]| health(flags).map_err(failed("dwell health"));
    assert_eq!(health(&["--live"])?, (Some(0), "alive\n".to_owned()));
    assert_eq!(health(&[])?, (Some(0), "ready\n".to_owned()));
    assert_eq!(dwell.stop().await?, Some(0));
    let mut gone = Command::new(env!("CARGO_BIN_EXE_dwell"));
    gone.args(["health", "--live"]).env_clear().env("DWELL_SERVER", dwell.address());
    assert_eq!(gone.output().map_err(failed("dwell health"))?.status.code(), Some(69));
    Ok(())
}
