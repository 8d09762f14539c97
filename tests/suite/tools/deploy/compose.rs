//! compose.yaml: nothing is reachable from another machine, nothing runs with more than it needs, and every file is there.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use dwell::model::error::{Error, Result};
use serde_json::{Value, json};

use super::{checked_config, of_deploy, said, text, yaml};
use crate::support::scratch;

fn compose() -> Result<Value> {
    yaml(&of_deploy("compose.yaml"))?.pop().ok_or_else(|| Error::bug("compose.yaml is empty"))
}

/// The services by name.
fn services(compose: &Value) -> impl Iterator<Item = (&String, &Value)> {
    compose["services"].as_object().into_iter().flatten()
}

fn texts<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a str> {
    value[name].as_array().into_iter().flatten().filter_map(Value::as_str)
}

#[test]
fn every_service_is_hardened_health_checked_and_on_loopback() -> Result<()> {
    let compose = compose()?;
    assert_eq!(
        services(&compose).map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["dwell", "grafana", "prometheus", "redis"]
    );
    for (name, service) in services(&compose) {
        assert_eq!([&service["read_only"], &service["cap_drop"]], [&json!(true), &json!(["ALL"])], "{name}");
        assert_eq!(service["security_opt"], json!(["no-new-privileges:true"]), "{name}");
        assert!(service["healthcheck"]["test"].is_array() && service["mem_limit"].is_string(), "{name}");
        assert!(texts(service, "ports").all(|port| port.starts_with("127.0.0.1:")), "{name}");
        assert!(service["privileged"].is_null() && service["network_mode"].is_null(), "{name}");
    }
    // Redis is published nowhere, and its network leads nowhere.
    assert!(compose["services"]["redis"]["ports"].is_null());
    assert_eq!(
        [&compose["services"]["redis"]["networks"], &compose["networks"]["store"]["internal"]],
        [&json!(["store"]), &json!(true)]
    );
    Ok(())
}

#[test]
fn every_mount_and_secret_exists() -> Result<()> {
    let compose = compose()?;
    let volumes = &compose["volumes"];
    for (name, service) in services(&compose) {
        for mount in texts(service, "volumes") {
            let (from, to) = mount.split_once(':').ok_or_else(|| Error::bug(mount.to_owned()))?;
            match from.starts_with('.') {
                // What is of this repository is only read.
                true => assert!(of_deploy(from).exists() && to.ends_with(":ro"), "{name}: {mount}"),
                false => assert!(volumes[from].is_object(), "{name}: {mount}"),
            }
        }
        for secret in texts(service, "secrets") {
            assert_eq!(compose["secrets"][secret]["file"], format!("./secrets/{secret}"), "{name}");
        }
    }
    // The script makes each of them, once, and for nobody else to read.
    let dir = scratch()?;
    let make = || said(Command::new(of_deploy("secrets.sh")).arg(dir.path()));
    make()?;
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).map_err(crate::support::failed(name));
    let secrets: Vec<_> = compose["secrets"].as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
    let made: BTreeSet<String> = secrets.iter().map(|name| read(name)).collect::<Result<_>>()?;
    assert_eq!(made.len(), 5, "{secrets:?}");
    assert!(made.iter().all(|secret| secret.len() == 64 && secret.bytes().all(|byte| byte.is_ascii_hexdigit())));
    let mode = |name: &str| said(Command::new("stat").arg("--format=%a").arg(dir.path().join(name)));
    assert!(secrets.iter().map(|name| mode(name)).collect::<Result<Vec<_>>>()?.iter().all(|mode| mode == "640\n"));
    make()?;
    assert_eq!(made, secrets.iter().map(|name| read(name)).collect::<Result<BTreeSet<_>>>()?);
    Ok(())
}

#[test]
fn dwell_and_prometheus_configurations_match_the_services() -> Result<()> {
    let compose = compose()?;
    let dwell = &compose["services"]["dwell"];
    let dir = scratch()?;
    said(Command::new(of_deploy("secrets.sh")).arg(dir.path()))?;
    let config = checked_config(&of_deploy("compose/dwell.toml"), "/run/secrets", dir.path())?;
    assert_eq!(config.listen.to_string(), "0.0.0.0:7373");
    assert_eq!(config.data_dir.as_deref(), Some(Path::new("/var/lib/dwell")));
    let mounts: Vec<_> = texts(dwell, "volumes").collect();
    assert!(mounts.contains(&"dwell-data:/var/lib/dwell"), "{mounts:?}");
    let grace = dwell["stop_grace_period"].as_str().and_then(|text| text.strip_suffix('s')?.parse().ok());
    assert!(grace.map(Duration::from_secs) >= Some(config.drain_timeout + Duration::from_secs(10)), "{grace:?}");
    let given: BTreeSet<_> = texts(dwell, "secrets").collect();
    let toml = text("compose/dwell.toml")?;
    let wanted: BTreeSet<_> = toml.split("/run/secrets/").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(wanted, given);
    // Prometheus asks where dwell is, with a secret that it has, and has the rules.
    let prometheus = yaml(&of_deploy("compose/prometheus.yml"))?.remove(0);
    let scrape = &prometheus["scrape_configs"][0];
    assert_eq!(scrape["static_configs"][0]["targets"], json!(["dwell:7373"]));
    assert_eq!(scrape["authorization"]["credentials_file"], "/run/secrets/dwell-metrics");
    assert_eq!(prometheus["rule_files"], json!(["rules.yml"]));
    let service = &compose["services"]["prometheus"];
    assert!(texts(service, "secrets").any(|secret| secret == "dwell-metrics"));
    assert!(texts(service, "volumes").any(|mount| mount.ends_with(":/etc/prometheus/rules.yml:ro")));
    Ok(())
}

/// Redis is started by a line of shell: it is played here, with the places of this machine.
#[tokio::test]
async fn the_redis_of_compose_starts_and_is_healthy() -> Result<()> {
    let compose = compose()?;
    let redis = &compose["services"]["redis"];
    let dir = scratch()?;
    let (secrets, here) = (dir.path().join("secrets"), dir.path().display().to_string());
    said(Command::new(of_deploy("secrets.sh")).arg(&secrets))?;
    let deploy = of_deploy("redis.conf").with_file_name("").display().to_string();
    let places = |line: &str| {
        // What is put in may be below /tmp too.
        let line = line.replace("/tmp/", &format!("{here}/")).replace("--dir /data", &format!("--dir {here}"));
        let line = line.replace("/run/secrets/", &format!("{}/", secrets.display()));
        line.replace("/etc/dwell/", &deploy).replace("$$", "$")
    };
    let start = texts(redis, "command").next().map(places).ok_or_else(|| Error::bug("no command"))?;
    // On a socket in place of all addresses: no port of this machine is taken.
    let start = start.replace("--bind '* -::*'", &format!("--port 0 --unixsocket {here}/redis.sock"));
    let mut server = Command::new("sh")
        .args(["-ec", &start])
        .stdout(Stdio::null())
        .spawn()
        .map_err(crate::support::failed("redis-server"))?;
    let check = redis["healthcheck"]["test"][1].as_str().map(places).unwrap_or_default();
    let check = check.replace("redis-cli ", &format!("redis-cli -s {here}/redis.sock "));
    let healthy = async || Ok(said(Command::new("sh").args(["-c", &check])).ok());
    let well = crate::support::eventually("Redis is healthy", healthy).await;
    let wrong = said(Command::new("sh").args(["-c", &check.replace("--user dwell", "--user admin")]));
    server.kill().and_then(|()| server.wait()).map_err(crate::support::failed("redis-server"))?;
    well?;
    assert!(wrong.is_err());
    Ok(())
}
