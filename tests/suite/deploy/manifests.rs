//! The manifests of Kubernetes as they lie in deploy/kubernetes, and what each kustomization makes of them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use dwell::error::{Error, Result};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{of_deploy, yaml};
use crate::support::failed;

/// The fields of a kustomization that are used here; another one is a mistake until it is added.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct Kustomization {
    api_version: String,
    kind: String,
    namespace: String,
    resources: Vec<String>,
    components: Vec<String>,
    patches: Vec<Patch>,
    config_map_generator: Vec<Generator>,
    secret_generator: Vec<Generator>,
    generator_options: Value,
    configurations: Vec<String>,
    images: Vec<Value>,
    /// Where it lies.
    #[serde(skip)]
    dir: PathBuf,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Patch {
    path: String,
    target: Target,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    kind: String,
    name: String,
}

/// What makes a ConfigMap or a Secret of files, `key=path` each.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Generator {
    name: String,
    behavior: String,
    files: Vec<String>,
}

/// What the Prometheus operator calls a PodMonitor, as far as it is used here.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "that it is read is the test")]
struct PodMonitor {
    api_version: String,
    kind: String,
    metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    spec: PodMonitorSpec,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "that it is read is the test")]
struct PodMonitorSpec {
    selector: k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector,
    pod_metrics_endpoints: Vec<Endpoint>,
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "that it is read is the test")]
struct Endpoint {
    port: String,
    path: String,
    interval: String,
    authorization: Authorization,
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "that it is read is the test")]
struct Authorization {
    credentials: k8s_openapi::api::core::v1::SecretKeySelector,
}

/// Every kustomization, sorted by path.
pub(super) fn kustomizations() -> Result<Vec<Kustomization>> {
    let mut found = Vec::new();
    for dir in directories(&of_deploy("kubernetes"))? {
        let file = dir.join("kustomization.yaml");
        if file.exists() {
            let read = yaml(&file)?.pop().unwrap_or_default();
            let read = serde_json::from_value::<Kustomization>(read);
            let read = read.map_err(|error| Error::bug(format!("{}: {error}", file.display())))?;
            found.push(Kustomization { dir, ..read });
        }
    }
    assert!(found.len() >= 4, "{found:?}");
    Ok(found)
}

/// A directory and all below it, but for secrets that somebody made.
fn directories(root: &Path) -> Result<Vec<PathBuf>> {
    let mut all = vec![root.to_owned()];
    let mut looked_at = 0;
    while let Some(dir) = all.get(looked_at).cloned() {
        looked_at += 1;
        for entry in std::fs::read_dir(dir).map_err(failed("a directory"))? {
            let path = entry.map_err(failed("an entry"))?.path();
            if path.is_dir() && !path.ends_with("secrets") {
                all.push(path);
            }
        }
    }
    all.sort();
    Ok(all)
}

impl Kustomization {
    /// The manifests that it brings, with those of the kustomizations it builds on.
    pub(super) fn manifests(&self) -> Result<Vec<Value>> {
        let mut manifests = Vec::new();
        for path in self.resources.iter().map(|name| self.dir.join(name)) {
            match path.is_dir() {
                true => manifests.extend(beside(&path)?.manifests()?),
                false => manifests.extend(yaml(&path)?),
            }
        }
        Ok(manifests)
    }

    fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        let generators = self.config_map_generator.iter().chain(&self.secret_generator);
        generators.flat_map(|generator| &generator.files).filter_map(|file| file.split_once('='))
    }

    /// The keys of the secret that it makes.
    pub(super) fn secret_keys(&self) -> BTreeSet<&str> {
        let files = self.secret_generator.iter().flat_map(|generator| &generator.files);
        files.filter_map(|file| Some(file.split_once('=')?.0)).collect()
    }

    /// The file behind the one key of the ConfigMap of a name.
    pub(super) fn config(&self, name: &str) -> Option<PathBuf> {
        let generator = self.config_map_generator.iter().find(|generator| generator.name == name)?;
        Some(self.dir.join(generator.files.first()?.strip_prefix("dwell.toml=")?))
    }

    pub(super) fn is(&self, end: &str) -> bool {
        self.dir.ends_with(end)
    }
}

/// The kustomization in a directory.
fn beside(dir: &Path) -> Result<Kustomization> {
    let wanted = dir.canonicalize().map_err(failed(&dir.display().to_string()))?;
    let is_it = |one: &Kustomization| one.dir.canonicalize().is_ok_and(|dir| dir == wanted);
    kustomizations()?.into_iter().find(is_it).ok_or_else(|| Error::bug(format!("no kustomization in {wanted:?}")))
}

/// Reads a value as what the API says it is; a field that the API does not know is an error.
fn check<T: DeserializeOwned>(value: &Value) -> Result<()> {
    let mut unknown = Vec::new();
    let read: Result<T, _> = serde_ignored::deserialize(value.clone(), |path| unknown.push(path.to_string()));
    let name = format!("{} {}", value["kind"], value["metadata"]["name"]);
    read.map_err(|error| Error::bug(format!("{name}: {error}")))?;
    match unknown.is_empty() {
        true => Ok(()),
        false => Err(Error::bug(format!("{name}: the API does not know {unknown:?}"))),
    }
}

fn check_kind(value: &Value) -> Result<()> {
    let (version, kind) = (value["apiVersion"].as_str(), value["kind"].as_str().unwrap_or_default());
    let (expected, check): (_, fn(&Value) -> Result<()>) = match kind {
        "Namespace" => ("v1", check::<Namespace>),
        "Service" => ("v1", check::<Service>),
        "Deployment" => ("apps/v1", check::<Deployment>),
        "StatefulSet" => ("apps/v1", check::<StatefulSet>),
        "NetworkPolicy" => ("networking.k8s.io/v1", check::<NetworkPolicy>),
        "PodDisruptionBudget" => ("policy/v1", check::<PodDisruptionBudget>),
        "PodMonitor" => ("monitoring.coreos.com/v1", check::<PodMonitor>),
        other => return Err(Error::bug(format!("no schema for {other:?}"))),
    };
    assert_eq!(version, Some(expected), "{kind}");
    check(value)
}

#[test]
fn every_manifest_and_every_patch_is_of_the_api() -> Result<()> {
    let mut checked = 0;
    for kustomization in kustomizations()? {
        let files = kustomization.resources.iter().chain(kustomization.patches.iter().map(|patch| &patch.path));
        for path in files.map(|name| kustomization.dir.join(name)).filter(|path| !path.is_dir()) {
            // A list is a patch of single operations.
            for value in yaml(&path)?.iter().filter(|value| !value.is_array()) {
                check_kind(value)?;
                checked += 1;
            }
        }
    }
    assert!(checked >= 12, "{checked}");
    let misspelt = serde_json::json!({"apiVersion": "v1", "kind": "Service", "spec": {"sessionAfinity": "ClientIP"}});
    assert!(check_kind(&misspelt).is_err_and(|error| error.detail().contains("sessionAfinity")));
    let wrong = serde_json::json!({"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": "80"}]}});
    assert!(check_kind(&wrong).is_err());
    Ok(())
}

#[test]
fn a_kustomization_names_what_is_there_and_everything_that_is_there() -> Result<()> {
    for one in kustomizations()? {
        let component = one.kind == "Component";
        let version = if component { "v1alpha1" } else { "v1beta1" };
        assert_eq!(one.api_version, format!("kustomize.config.k8s.io/{version}"), "{one:?}");
        assert!(component || one.kind == "Kustomization", "{one:?}");
        let patches = one.patches.iter().map(|patch| &patch.path);
        let named = one.resources.iter().chain(&one.components).chain(patches).chain(&one.configurations);
        let named: BTreeSet<&str> = named.map(String::as_str).chain(one.files().map(|(_, path)| path)).collect();
        for path in &named {
            let made = path.starts_with("secrets/");
            assert!(made || one.dir.join(path).exists(), "{}: {path} is not there", one.dir.display());
        }
        for entry in std::fs::read_dir(&one.dir).map_err(failed("a directory"))? {
            let path = entry.map_err(failed("an entry"))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let known = path.is_dir() || name == "kustomization.yaml" || named.contains(&*name);
            assert!(known, "{}: nothing names {name}", one.dir.display());
        }
    }
    Ok(())
}

#[test]
fn every_patch_has_something_to_change() -> Result<()> {
    let all = kustomizations()?;
    for one in &all {
        // A component changes what the base has.
        let below = if one.kind == "Component" {
            all.iter().find(|one| one.is("base")).map(Kustomization::manifests).transpose()?.unwrap_or_default()
        } else {
            one.manifests()?
        };
        for Patch { path, target } in &one.patches {
            let is_it = |value: &&Value| value["kind"] == *target.kind && value["metadata"]["name"] == *target.name;
            let object = below.iter().find(is_it).ok_or_else(|| Error::bug(format!("{path}: no {target:?}")))?;
            for patch in yaml(&one.dir.join(path))? {
                match patch.as_array() {
                    Some(operations) => operations.iter().for_each(|operation| has_place(object, operation)),
                    None => has_names(object, &patch, path),
                }
            }
        }
    }
    Ok(())
}

/// An operation adds below something that is there.
fn has_place(object: &Value, operation: &Value) {
    let path = operation["path"].as_str().unwrap_or_default();
    let above = path.rsplit_once('/').map_or("", |(above, _)| above);
    assert!(operation["op"] == "add" && object.pointer(above).is_some(), "{operation}");
}

/// Containers and volumes are merged by name: one that the object has not would be a new one.
fn has_names(object: &Value, patch: &Value, path: &str) {
    for list in ["initContainers", "containers"] {
        let place = format!("/spec/template/spec/{list}");
        let names = |value: &Value| -> BTreeSet<String> {
            let items = value.pointer(&place).and_then(Value::as_array).into_iter().flatten();
            items.map(|item| item["name"].to_string()).collect()
        };
        assert!(names(patch).is_subset(&names(object)), "{path}: {list}");
    }
}

#[test]
fn secrets_are_made_by_the_script_or_by_hand_and_never_kept_here() -> Result<()> {
    let script = super::text("secrets.sh")?;
    for one in kustomizations()?.iter().filter(|one| !one.secret_generator.is_empty()) {
        assert!(one.is("example") || one.is("production"), "{one:?}");
        for (key, path) in one.files() {
            let name = path.strip_prefix("secrets/").ok_or_else(|| Error::bug(path.to_owned()))?;
            let made = script.lines().any(|line| line.starts_with("for name in") && line.contains(name));
            assert!(made || key == "redis-url", "nothing makes {path}");
        }
    }
    let ignored = include_str!("../../../.gitignore");
    assert!(ignored.lines().any(|line| line == "secrets"), "{ignored}");
    Ok(())
}
