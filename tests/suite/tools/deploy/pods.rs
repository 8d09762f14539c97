//! The pods that manifests make, and what dwell finds in them: its environment, its secrets, its configuration.

use std::path::PathBuf;

use dwell::app::config::Config;
use dwell::model::error::{Error, Result};
use serde_json::Value;

use super::{loaded, of_deploy, said};
use crate::support::{Certificates, failed, scratch};

/// Where secrets are in a pod.
const SECRETS: &str = "/run/secrets";

/// The items of the list at a place; none, if there is none.
pub(super) fn items<'a>(value: &'a Value, place: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(place).and_then(Value::as_array).into_iter().flatten()
}

/// The pods that the manifests make: their name, labels and spec.
pub(super) fn pods<'a>(manifests: &'a [Value]) -> Vec<(&'a str, &'a Value, &'a Value)> {
    let workloads =
        manifests.iter().filter(|value| matches!(value["kind"].as_str(), Some("Deployment" | "StatefulSet")));
    let pod = |value: &'a Value| {
        let Value::Object(template) = &value["spec"]["template"] else { return None };
        Some((value["metadata"]["name"].as_str()?, &template["metadata"]["labels"], &template["spec"]))
    };
    let pods: Vec<_> = workloads.filter_map(pod).collect();
    assert!(!pods.is_empty(), "no pods");
    pods
}

/// Those of a pod, with the sidecars.
pub(super) fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    items(spec, "/initContainers").chain(items(spec, "/containers"))
}

/// The container of a pod that runs dwell.
pub(super) fn dwell_of(spec: &Value) -> Result<&Value> {
    containers(spec).find(|one| one["name"] == "dwell").ok_or_else(|| Error::bug(format!("no dwell in {spec}")))
}

/// Whether labels have all that a selector asks for.
pub(super) fn selects(selector: &Value, labels: &Value) -> bool {
    let wanted = selector.as_object().into_iter().flatten();
    wanted.fold(!selector.is_null(), |all, (name, value)| all && labels[name] == *value)
}

/// The environment of a container.
pub(super) fn environment(container: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_else(|| unreachable!("{value} is no text")).to_owned();
    items(container, "/env").map(|variable| (text(&variable["name"]), text(&variable["value"]))).collect()
}

/// The files of `/run/secrets` of every pod, with contents.
pub(super) struct Secrets {
    dir: tempfile::TempDir,
}

impl Secrets {
    /// What the script makes, a URL of Redis, and a certificate, under the names of the overlays.
    pub(super) fn new() -> Result<Secrets> {
        let dir = scratch()?;
        let (secrets, tls) = (dir.path().join("dwell"), dir.path().join("dwell-tls"));
        said(std::process::Command::new(of_deploy("secrets.sh")).arg(&secrets))?;
        std::fs::write(secrets.join("redis-url"), "redis://dwell:secret@redis:6379").map_err(failed("a file"))?;
        for name in ["admin", "app", "hand-over", "metrics"] {
            std::fs::rename(secrets.join(format!("dwell-{name}")), secrets.join(name)).map_err(failed(name))?;
        }
        std::fs::create_dir(&tls).map_err(failed("a directory"))?;
        Certificates::new()?.write(&tls)?;
        for (from, to) in [("ca", "ca.crt"), ("cert", "tls.crt"), ("key", "tls.key")] {
            std::fs::rename(tls.join(from), tls.join(to)).map_err(failed(from))?;
        }
        Ok(Secrets { dir })
    }

    /// The configuration of the dwell in a pod, with its file and its environment.
    pub(super) fn config(&self, manifests: &[Value], pod: &str) -> Result<Config> {
        let environment = environment(dwell_of(spec_of(manifests, pod)?)?);
        loaded(toml(manifests, pod)?, &environment, SECRETS, self.dir.path())
    }

    /// Where one of them is, as in `dwell/app`.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A text that names some of them, with where they are.
    pub(super) fn placed(&self, text: &str) -> String {
        text.replace(SECRETS, &self.dir.path().display().to_string())
    }
}

/// The configuration file in a pod.
pub(super) fn toml<'a>(manifests: &'a [Value], pod: &str) -> Result<&'a str> {
    let volume = items(spec_of(manifests, pod)?, "/volumes").find(|volume| volume["name"] == "config");
    let name = volume.map(|volume| &volume["configMap"]["name"]).ok_or_else(|| Error::bug("no configuration"))?;
    let map = manifests.iter().find(|one| one["kind"] == "ConfigMap" && one["metadata"]["name"] == *name);
    let text = map.and_then(|map| map["data"]["dwell.toml"].as_str());
    text.ok_or_else(|| Error::bug(format!("{pod}: no ConfigMap {name}")))
}

/// The spec of the pods of a workload.
pub(super) fn spec_of<'a>(manifests: &'a [Value], pod: &str) -> Result<&'a Value> {
    let spec = pods(manifests).into_iter().find_map(|(name, _, spec)| (name == pod).then_some(spec));
    spec.ok_or_else(|| Error::bug(format!("no pod {pod}")))
}
