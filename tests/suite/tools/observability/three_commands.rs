//! The three commands of docs/how-to/monitor.md: Redis, dwell and Prometheus on this machine.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use dwell::model::error::{Error, Result};

use super::prometheus::Api;
use super::queries::{list, text};
use super::{free_port, grafana, read};
use crate::pages::readme::session;
use crate::support::{failed, scratch};

/// What a command started. It is killed when dropped.
struct Started(Child);

impl Started {
    /// Types a command, which puts itself into the background, into a shell of its own that becomes it.
    fn by(command: &str) -> Result<Started> {
        let command = command.strip_suffix(" &").ok_or_else(|| Error::bug(format!("{command} stays in front")))?;
        let mut shell = Command::new("bash");
        shell.args(["-c", &format!("exec {command}")]).current_dir(env!("CARGO_MANIFEST_DIR"));
        shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        shell.spawn().map(Started).map_err(failed(command))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The commands with ports and directories of this test instead of those of the page.
fn typed(dir: &Path, [redis, dwell, prometheus]: [u16; 3]) -> Result<Vec<String>> {
    let config = read(&grafana("prometheus/prometheus.yml"))?;
    let rules = grafana("prometheus/rules.yml");
    let config = config.replace("7373", &dwell.to_string()).replace("rules.yml", &rules.display().to_string());
    let config_file = dir.join("prometheus.yml");
    std::fs::write(&config_file, config).map_err(failed("a configuration"))?;
    let replaced = [
        // The first one: the directories of this test may be there too.
        ("target/watched/", format!("{}/", dir.display())),
        ("cargo run --locked --release --", env!("CARGO_BIN_EXE_dwell").to_owned()),
        ("serve ", format!("serve --listen 127.0.0.1:{dwell} ")),
        ("--appendonly yes", format!("--appendonly yes --dir {}", dir.display())),
        ("grafana/prometheus/prometheus.yml", config_file.display().to_string()),
        ("6380", redis.to_string()),
        ("9091", prometheus.to_string()),
    ];
    let session = session("watched")?;
    // Each of these has to be in the session, or the test would play something else.
    for (what, _) in &replaced {
        assert!(session.contains(what), "{what} is not in the session");
    }
    let typed = |line: &str| replaced.iter().fold(line.to_owned(), |line, (from, to)| line.replace(from, to));
    Ok(session.lines().map(typed).collect())
}

#[tokio::test]
async fn three_commands_make_prometheus_scrape_dwell_and_redis() -> Result<()> {
    let (dir, ports) = (scratch()?, [free_port()?, free_port()?, free_port()?]);
    let commands = typed(dir.path(), ports)?;
    assert_eq!(commands.len(), 3, "{commands:#?}");
    let _started = commands.iter().map(|command| Started::by(command)).collect::<Result<Vec<_>>>()?;
    let api = Api::at(&format!("http://127.0.0.1:{}", ports[2]))?;
    api.is_ready().await?;
    api.until(r#"up{job="dwell"}"#, |up| up == 1.0).await?;
    api.until("dwell_redis_up", |up| up == 1.0).await?;
    let data = api.ask("rules", &[]).await?;
    let rules: Vec<_> = list(&data, "groups").flat_map(|group| list(group, "rules")).collect();
    assert!(rules.iter().any(|rule| text(rule, "name") == "DwellRedisDown"), "{rules:?}");
    Ok(())
}
