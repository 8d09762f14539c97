//! What the manifests of Kubernetes say of each other, and of dwell: ports, probes, times, sizes, permissions, secrets.

use std::collections::BTreeSet;
use std::path::Path;

use dwell::app::config::{Config, Durability};
use dwell::model::error::{Error, Result};
use dwell::model::limits::DISK_RESERVE_BYTES;
use serde_json::{Value, json};

use super::kustomize::overlays;
use super::pods::{Secrets, containers, dwell_of, items, pods, selects, spec_of};

#[test]
fn selectors_match_pods_and_ports_have_names() -> Result<()> {
    let mut seen = 0;
    for (_, manifests) in overlays()? {
        let pods = pods(&manifests);
        for value in &manifests {
            let selector = match value["kind"].as_str().unwrap_or_default() {
                "Service" => &value["spec"]["selector"],
                "NetworkPolicy" => &value["spec"]["podSelector"]["matchLabels"],
                "Deployment" | "StatefulSet" | "PodDisruptionBudget" | "PodMonitor" => {
                    &value["spec"]["selector"]["matchLabels"]
                }
                _ => continue,
            };
            let selected: Vec<_> = pods.iter().filter(|(_, labels, _)| selects(selector, labels)).collect();
            assert_eq!(selected.len(), 1, "{value}");
            seen += 1;
            let ports: Vec<_> = containers(selected[0].2).flat_map(|one| items(one, "/ports")).collect();
            let named = |name: &Value| ports.iter().any(|port| port["name"] == *name);
            let goes = |port: &Value| named(&port["targetPort"]) && port["port"] == 7373;
            assert!(value["kind"] != "Service" || items(value, "/spec/ports").all(goes), "{value}");
            assert!(items(value, "/spec/podMetricsEndpoints").all(|one| named(&one["port"])), "{value}");
            let into = items(value, "/spec/ingress").flat_map(|rule| items(rule, "/ports"));
            assert!(into.map(|port| &port["port"]).all(named), "{value}");
        }
    }
    assert!(seen >= 18, "{seen}");
    Ok(())
}

#[test]
fn containers_are_non_root_with_read_only_file_systems() -> Result<()> {
    for (_, manifests) in overlays()? {
        for (name, _, spec) in pods(&manifests) {
            let pod = &spec["securityContext"];
            assert_eq!(
                [&pod["runAsNonRoot"], &pod["seccompProfile"]["type"]],
                [&json!(true), &json!("RuntimeDefault")]
            );
            assert!(pod["runAsUser"].as_u64() > Some(0) && pod["fsGroup"].as_u64() > Some(0), "{name}: {pod}");
            let given = [&spec["automountServiceAccountToken"], &spec["enableServiceLinks"]];
            assert_eq!(given, [&json!(false); 2], "{name}");
            containers(spec).for_each(|container| is_closed(name, container));
        }
    }
    Ok(())
}

fn is_closed(name: &str, container: &Value) {
    let closed = json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]},
    });
    assert_eq!(container["securityContext"], closed, "{name}: {container}");
    let memory = [&container["resources"]["limits"]["memory"], &container["resources"]["requests"]["memory"]];
    assert!(memory.iter().all(|memory| memory.is_string()), "{name}: {container}");
}

/// Livez and readyz are not mistaken for each other: a pod that is restarted because Redis is away is worse off.
#[test]
fn probes_use_the_right_endpoints() -> Result<()> {
    for (_, manifests) in overlays()? {
        for (name, _, spec) in pods(&manifests) {
            let dwell = dwell_of(spec)?;
            for (probe, path, command) in [
                ("startupProbe", "/livez", json!(["/dwell", "health", "--live"])),
                ("livenessProbe", "/livez", json!(["/dwell", "health", "--live"])),
                ("readinessProbe", "/readyz", json!(["/dwell", "health"])),
            ] {
                let (http, exec) = (&dwell[probe]["httpGet"], &dwell[probe]["exec"]["command"]);
                match dwell["restartPolicy"] == "Always" {
                    // A sidecar, on loopback.
                    true => assert_eq!(*exec, command, "{name}: {probe}"),
                    false => {
                        assert_eq!([&http["path"], &http["port"]], [&json!(path), &json!("http")], "{name}: {probe}")
                    }
                }
            }
            // A start may take two minutes; nothing else is restarted for being slow at it.
            let start = ["periodSeconds", "failureThreshold"].map(|field| dwell["startupProbe"][field].as_u64());
            assert!(matches!(start, [Some(s), Some(n)] if s * n >= 120), "{name}: {start:?}");
        }
    }
    Ok(())
}

/// A number of bytes as Kubernetes writes it.
fn bytes(quantity: &Value) -> Option<u64> {
    let text = quantity.as_str()?;
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let factor =
        [("", 0), ("Mi", 20), ("Gi", 30)].into_iter().find_map(|(name, shift)| (name == unit).then_some(1 << shift));
    Some(number.parse::<u64>().ok()? * factor?)
}

/// The volume for `data_dir`: what it asks for.
fn storage<'a>(manifests: &'a [Value], name: &str) -> Option<&'a Value> {
    let workload =
        manifests.iter().find(|value| value["metadata"]["name"] == name && value["spec"]["template"].is_object())?;
    let of_set = workload.pointer("/spec/volumeClaimTemplates/0/spec/resources/requests/storage");
    let volumes = items(workload, "/spec/template/spec/volumes");
    let ephemeral =
        volumes.filter_map(|volume| volume.pointer("/ephemeral/volumeClaimTemplate/spec/resources/requests/storage"));
    of_set.or(ephemeral.last())
}

#[test]
fn configurations_are_valid_and_fit_their_pods() -> Result<()> {
    let secrets = Secrets::new()?;
    for (one, manifests) in overlays()? {
        for pod in ["dwell-gateway", "producer"] {
            let config = secrets.config(&manifests, pod);
            let config = config.map_err(|error| Error::bug(format!("{}: {pod}: {error}", one.dir.display())))?;
            fits(&config, pod, &manifests)?;
        }
    }
    Ok(())
}

/// A configuration, as `dwell config show` prints it, is one for this pod.
pub(super) fn fits(config: &Config, pod: &str, manifests: &[Value]) -> Result<()> {
    let spec = spec_of(manifests, pod)?;
    let grace = spec["terminationGracePeriodSeconds"].as_u64().unwrap_or(0);
    // Deliveries, and then a hand-over.
    let drains = if config.hand_over.is_some() { 2 } else { 1 };
    assert!(grace >= drains * config.drain_timeout.as_secs() + 20, "{pod}: {grace} s");
    let size = storage(manifests, pod).and_then(bytes).ok_or_else(|| Error::bug(format!("{pod} has no storage")))?;
    // As docs/operate/sizing.md says, and a tenth for the file system.
    let logs = if config.durability == Durability::Journal { 2 } else { 1 };
    let needed = (logs * config.wal_limit_bytes + DISK_RESERVE_BYTES) * 11 / 10;
    assert!(size >= needed, "{pod}: {size} of {needed} bytes");
    let dwell = dwell_of(spec)?;
    assert_eq!(dwell["args"], json!(["serve", "--config", "/etc/dwell/dwell.toml"]));
    let mounted = |path: &Path, writable: bool| {
        let mount =
            items(dwell, "/volumeMounts").find(|mount| mount["mountPath"].as_str().map(Path::new) == Some(path));
        mount.is_some_and(|mount| (mount["readOnly"] != true) == writable)
    };
    assert!(config.data_dir.as_ref().is_some_and(|dir| mounted(dir, true)), "{pod}: data_dir");
    assert!(mounted(Path::new("/etc/dwell"), false) && mounted(Path::new("/run/secrets/dwell"), false), "{pod}");
    let listen = config.listen.to_string();
    assert!(listen.ends_with(":7373"), "{pod}: {listen}");
    Ok(())
}

/// The keys that a secret has: those that an overlay gives it, or those that cert-manager does.
fn keys(manifests: &[Value], secret: &Value) -> BTreeSet<String> {
    let is_it = |one: &&Value| one["kind"] == "Secret" && one["metadata"]["name"] == *secret;
    let certified = |one: &&Value| one["kind"] == "Certificate" && one["spec"]["secretName"] == *secret;
    match manifests.iter().find(is_it) {
        Some(one) => one["data"].as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect(),
        None if manifests.iter().any(|one| certified(&one)) => {
            ["tls.crt", "tls.key", "ca.crt"].map(str::to_owned).into()
        }
        None => BTreeSet::new(),
    }
}

/// The names of files in `text` that are below a directory.
fn files_below(text: &str, dir: &str) -> BTreeSet<String> {
    let dir = format!("{dir}/");
    let end = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'));
    text.split(&dir).skip(1).filter_map(|rest| Some(rest.split(end).next()?.to_owned())).collect()
}

/// Every file of a secret that a container is told of is a key of what is mounted there.
#[test]
fn every_referenced_secret_has_its_keys() -> Result<()> {
    let mut seen = 0;
    for (_, manifests) in overlays()? {
        let config = |spec: &Value| {
            let maps = items(spec, "/volumes").map(|volume| volume["configMap"]["name"].clone());
            let is_one = |one: &&Value, name: &Value| one["kind"] == "ConfigMap" && one["metadata"]["name"] == *name;
            maps.filter_map(|name| manifests.iter().find(|one| is_one(one, &name)))
                .map(Value::to_string)
                .collect::<String>()
        };
        for (pod, _, spec) in pods(&manifests) {
            for container in containers(spec) {
                for mount in items(container, "/volumeMounts") {
                    let volume = items(spec, "/volumes").find(|volume| volume["name"] == mount["name"]);
                    let Some(secret) = volume.map(|volume| &volume["secret"]).filter(|secret| !secret.is_null()) else {
                        continue;
                    };
                    let all = keys(&manifests, &secret["secretName"]);
                    let items: BTreeSet<_> =
                        items(secret, "/items").filter_map(|item| item["key"].as_str().map(str::to_owned)).collect();
                    assert!(items.is_subset(&all), "{pod}: {secret} has {all:?}");
                    let given = if items.is_empty() { all } else { items };
                    let read = if container["name"] == "dwell" { config(spec) } else { String::new() };
                    let told = format!("{container}{read}");
                    let used = files_below(&told, mount["mountPath"].as_str().unwrap_or_default());
                    assert!(used.is_subset(&given) && !used.is_empty(), "{pod}: {used:?} of {given:?}");
                    seen += used.len();
                }
            }
        }
        for endpoint in manifests.iter().flat_map(|one| items(one, "/spec/podMetricsEndpoints")) {
            let asked = [&endpoint["authorization"]["credentials"], &endpoint["tlsConfig"]["ca"]["secret"]];
            for secret in asked.into_iter().filter(|secret| !secret.is_null()) {
                let key = secret["key"].as_str().unwrap_or_default();
                assert!(keys(&manifests, &secret["name"]).contains(key), "{secret}");
                seen += 1;
            }
        }
    }
    assert!(seen >= 18, "{seen}");
    Ok(())
}
