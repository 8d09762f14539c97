//! The fields of compose.yaml, as much of the Compose specification as is used there. Another one is a mistake until it is
//! added: Compose itself says so only where there is Docker.

use std::collections::BTreeMap;

use dwell::model::error::Result;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{of_deploy, yaml};

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Compose {
    name: String,
    /// What services have in common. It is merged into them.
    #[serde(rename = "x-hardened")]
    hardened: Value,
    services: BTreeMap<String, Service>,
    networks: BTreeMap<String, Network>,
    volumes: BTreeMap<String, Nothing>,
    secrets: BTreeMap<String, SecretFile>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Service {
    image: String,
    build: Option<Build>,
    restart: Restart,
    read_only: bool,
    cap_drop: Vec<String>,
    security_opt: Vec<String>,
    group_add: Vec<String>,
    logging: Logging,
    entrypoint: Option<Vec<String>>,
    command: Option<Vec<String>>,
    user: Option<String>,
    environment: Option<BTreeMap<String, String>>,
    depends_on: Option<Vec<String>>,
    networks: Vec<String>,
    ports: Option<Vec<Port>>,
    volumes: Vec<String>,
    tmpfs: Option<Vec<String>>,
    secrets: Vec<String>,
    healthcheck: HealthCheck,
    stop_grace_period: Option<Span>,
    ulimits: Option<Limits>,
    mem_limit: Size,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Build {
    context: String,
    dockerfile: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Restart {
    No,
    Always,
    OnFailure,
    UnlessStopped,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Logging {
    driver: LogDriver,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum LogDriver {
    Local,
    Journald,
    JsonFile,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HealthCheck {
    test: Vec<String>,
    #[serde(rename = "interval")]
    every: Span,
    timeout: Span,
    retries: u32,
    start_period: Option<Span>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    nofile: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Network {
    internal: Option<bool>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretFile {
    file: String,
}

/// A text of a form.
macro_rules! form {
    ($name:ident, $what:literal, $is:expr) => {
        #[derive(Debug, Serialize, Deserialize)]
        #[serde(try_from = "String")]
        struct $name(String);

        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> std::result::Result<$name, String> {
                let is: fn(&str) -> bool = $is;
                if is(&text) { Ok($name(text)) } else { Err(format!("{text:?} is no {}", $what)) }
            }
        }
    };
}

form!(Span, "span", |text| is_number(text.strip_suffix(['s', 'm', 'h']).unwrap_or_default()));
form!(Size, "size", |text| is_number(text.strip_suffix(['k', 'm', 'g']).unwrap_or_default()));
form!(Port, "address, port and port of the container", |text| {
    let parts: Vec<&str> = text.split(':').collect();
    let is_port = |port: &&str| port.parse::<u16>().is_ok_and(|port| port > 0);
    parts.len() == 3 && parts[0].parse::<std::net::Ipv4Addr>().is_ok() && parts[1..].iter().all(is_port)
});

fn is_number(text: &str) -> bool {
    text.parse::<u32>().is_ok_and(|number| number > 0)
}

fn compose(fields: Value) -> std::result::Result<Compose, String> {
    serde_path_to_error::deserialize(fields).map_err(|error| error.to_string())
}

fn written() -> Result<Value> {
    Ok(yaml(&of_deploy("compose.yaml"))?.into_iter().next().unwrap_or_default())
}

#[test]
fn compose_file_has_only_known_fields() -> Result<()> {
    let compose = compose(written()?).map_err(dwell::model::error::Error::bug)?;
    for (name, service) in &compose.services {
        let networks = service.networks.iter().all(|network| compose.networks.contains_key(network));
        let secrets = service.secrets.iter().all(|secret| compose.secrets.contains_key(secret));
        let before = service.depends_on.iter().flatten().all(|other| compose.services.contains_key(other));
        assert!(networks && secrets && before, "{name}: {service:?}");
        let first = service.healthcheck.test.first().map(String::as_str);
        assert!(matches!(first, Some("CMD" | "CMD-SHELL")), "{name}: {first:?}");
    }
    let used =
        |name: &String, of: fn(&Service) -> &Vec<String>| compose.services.values().any(|one| of(one).contains(name));
    assert!(compose.secrets.keys().all(|name| used(name, |one| &one.secrets)));
    assert!(compose.networks.keys().all(|name| used(name, |one| &one.networks)));
    let mounted = |volume: &String| {
        let mut all = compose.services.values().flat_map(|one| &one.volumes);
        all.any(|mount| mount.split(':').next() == Some(volume))
    };
    assert!(compose.volumes.keys().all(mounted));
    Ok(())
}

#[test]
fn invalid_compose_files_are_detected() -> Result<()> {
    for (place, value, why) in [
        ("/services/redis/stop_grace_perod", json!("1m"), "services.redis.stop_grace_perod: unknown field"),
        ("/services/dwell/healthcheck/retry", json!(3), "services.dwell.healthcheck.retry: unknown field"),
        ("/services/dwell/healthcheck/retries", json!("three"), "services.dwell.healthcheck.retries: invalid type"),
        ("/services/dwell/stop_grace_period", json!("half"), "stop_grace_period: \"half\" is no span"),
        ("/services/dwell/restart", json!("unless_stopped"), "unknown variant `unless_stopped`"),
        ("/services/dwell/mem_limit", json!("1 GB"), "mem_limit: \"1 GB\" is no size"),
        ("/services/dwell/ports", json!(["7373:7373"]), "ports[0]: \"7373:7373\" is no address"),
        ("/networks/store/intern", json!(true), "networks.store.intern: unknown field"),
        ("/network", json!({}), "network: unknown field"),
    ] {
        let mut fields = written()?;
        let (above, name) = place.rsplit_once('/').unwrap_or_default();
        let object = fields.pointer_mut(above).and_then(Value::as_object_mut);
        assert!(object.map(|object| object.insert(name.to_owned(), value)).is_some(), "{place}");
        let refused = compose(fields).err().unwrap_or_default();
        assert!(refused.contains(why), "{place}: {refused}");
    }
    Ok(())
}
