//! What the manifests of Kubernetes say of each other, and of dwell: ports, probes, times, sizes, permissions.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use dwell::error::{Error, Result};
use serde_json::{Value, json};

use super::manifests::{Kustomization, kustomizations};
use super::{checked_config, of_deploy, said};
use crate::support::scratch;

/// The kustomization that all others build on.
fn base() -> Result<Kustomization> {
    kustomizations()?.into_iter().find(|one| one.is("base")).ok_or_else(|| Error::bug("no base"))
}

/// The manifests of a kind.
fn of_kind<'a>(manifests: &'a [Value], kind: &str) -> Vec<&'a Value> {
    let found: Vec<_> = manifests.iter().filter(|value| value["kind"] == kind).collect();
    assert!(!found.is_empty(), "no {kind}");
    found
}

fn items<'a>(value: &'a Value, place: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(place).and_then(Value::as_array).into_iter().flatten()
}

/// The pods that the manifests make: their name, labels and spec.
fn pods(manifests: &[Value]) -> Vec<(&str, &Value, &Value)> {
    let workloads = ["Deployment", "StatefulSet"].into_iter().flat_map(|kind| of_kind(manifests, kind));
    let pod = |workload: &'static str, value: &Value| value.pointer(workload).is_some();
    let mut pods = Vec::new();
    for value in workloads {
        assert!(pod("/spec/template/spec", value), "{value}");
        let template = &value["spec"]["template"];
        pods.push((
            value["metadata"]["name"].as_str().unwrap_or_default(),
            &template["metadata"]["labels"],
            &template["spec"],
        ));
    }
    pods
}

fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    items(spec, "/initContainers").chain(items(spec, "/containers"))
}

/// The container of a pod that runs dwell.
fn dwell_of(spec: &Value) -> Result<&Value> {
    containers(spec).find(|one| one["name"] == "dwell").ok_or_else(|| Error::bug(format!("no dwell in {spec}")))
}

/// Whether labels have all that a selector asks for.
fn selects(selector: &Value, labels: &Value) -> bool {
    let wanted = selector.as_object().into_iter().flatten();
    wanted.fold(!selector.is_null(), |all, (name, value)| all && labels[name] == *value)
}

#[test]
fn selectors_select_pods_and_ports_have_names() -> Result<()> {
    let all = kustomizations()?.iter().map(Kustomization::manifests).collect::<Result<Vec<_>>>()?.concat();
    let base = base()?.manifests()?;
    let pods = pods(&base);
    let mut seen = 0;
    for value in &all {
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
        if value["kind"] == "Service" {
            let ports: Vec<_> = containers(selected[0].2).flat_map(|one| items(one, "/ports")).collect();
            let named = |target: &Value| ports.iter().any(|port| port["name"] == *target);
            assert!(
                items(value, "/spec/ports").all(|port| named(&port["targetPort"]) && port["port"] == 7373),
                "{value}"
            );
        }
    }
    assert!(seen >= 8, "{seen}");
    Ok(())
}

#[test]
fn no_container_is_root_or_may_write_where_it_should_not() -> Result<()> {
    for (name, _, spec) in pods(&base()?.manifests()?) {
        let pod = &spec["securityContext"];
        assert_eq!([&pod["runAsNonRoot"], &pod["seccompProfile"]["type"]], [&json!(true), &json!("RuntimeDefault")]);
        assert!(pod["runAsUser"].as_u64() > Some(0) && pod["fsGroup"].as_u64() > Some(0), "{name}: {pod}");
        assert_eq!([&spec["automountServiceAccountToken"], &spec["enableServiceLinks"]], [&json!(false); 2], "{name}");
        for container in containers(spec) {
            let how = &container["securityContext"];
            let closed = json!({
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"]},
            });
            assert_eq!(*how, closed, "{name}: {container}");
            let memory = [&container["resources"]["limits"]["memory"], &container["resources"]["requests"]["memory"]];
            assert!(memory.iter().all(|memory| memory.is_string()), "{name}: {container}");
        }
    }
    Ok(())
}

/// Livez and readyz are not mistaken for each other: a pod that is restarted because Redis is away is worse off.
#[test]
fn probes_ask_what_they_are_for() -> Result<()> {
    for (name, _, spec) in pods(&base()?.manifests()?) {
        let dwell = dwell_of(spec)?;
        let sidecar = dwell["restartPolicy"] == "Always";
        for (probe, path, command) in [
            ("startupProbe", "/livez", json!(["/dwell", "health", "--live"])),
            ("livenessProbe", "/livez", json!(["/dwell", "health", "--live"])),
            ("readinessProbe", "/readyz", json!(["/dwell", "health"])),
        ] {
            let (http, exec) = (&dwell[probe]["httpGet"], &dwell[probe]["exec"]["command"]);
            match sidecar {
                // On loopback.
                true => assert_eq!(*exec, command, "{name}: {probe}"),
                false => assert_eq!(*http, json!({"path": path, "port": "http"}), "{name}: {probe}"),
            }
        }
        // A start may take two minutes; nothing else is restarted for being slow at it.
        let start = &dwell["startupProbe"];
        assert!(
            start["periodSeconds"].as_u64().zip(start["failureThreshold"].as_u64()).is_some_and(|(s, n)| s * n >= 120)
        );
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
fn the_configurations_are_correct_and_fit_their_pods() -> Result<()> {
    let (all, base) = (kustomizations()?, base()?);
    let manifests = base.manifests()?;
    let dir = scratch()?;
    said(Command::new(of_deploy("secrets.sh")).arg(dir.path()))?;
    for (from, to) in [("dwell-admin", "admin"), ("dwell-app", "app"), ("dwell-metrics", "metrics")] {
        std::fs::rename(dir.path().join(from), dir.path().join(to)).map_err(crate::support::failed(from))?;
    }
    std::fs::write(dir.path().join("redis-url"), "redis://dwell:secret@redis:6379")
        .map_err(crate::support::failed("a file"))?;
    let mut seen = 0;
    for one in &all {
        for (pod, name) in [("dwell-gateway", "dwell-gateway"), ("producer", "dwell-sidecar")] {
            let Some(file) = one.config(name) else { continue };
            let config = checked_config(&file, "/run/secrets/dwell", dir.path())?;
            fits(&config, pod, &manifests)?;
            let text = std::fs::read_to_string(&file).map_err(crate::support::failed("a configuration"))?;
            let wanted: BTreeSet<_> =
                text.split("/run/secrets/dwell/").skip(1).filter_map(|rest| rest.split('"').next()).collect();
            for overlay in all.iter().filter(|one| !one.secret_keys().is_empty()) {
                let keys = overlay.secret_keys();
                assert!(wanted.iter().all(|key| keys.contains(key)), "{file:?} wants {wanted:?} of {keys:?}");
            }
            seen += 1;
        }
    }
    assert_eq!(seen, 3);
    Ok(())
}

/// A configuration, as `dwell config show` prints it, is one for this pod.
fn fits(config: &dwell::config::Config, pod: &str, manifests: &[Value]) -> Result<()> {
    let pods = pods(manifests);
    let (_, _, spec) = pods.iter().find(|(name, ..)| *name == pod).ok_or_else(|| Error::bug(pod.to_owned()))?;
    let grace = spec["terminationGracePeriodSeconds"].as_u64().unwrap_or(0);
    assert!(grace >= config.drain_timeout.as_secs() + 20, "{pod}: {grace} s");
    let size = storage(manifests, pod).and_then(bytes).ok_or_else(|| Error::bug(format!("{pod} has no storage")))?;
    assert!(size >= 2 * config.wal_limit_bytes, "{pod}: {size} bytes");
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
