//! The manifests of Kubernetes as they lie in deploy/kubernetes, and what each kustomization makes of them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use dwell::error::{Error, Result};
use serde::Deserialize;
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

#[test]
fn every_manifest_and_every_patch_is_of_a_known_version_of_its_kind() -> Result<()> {
    let mut checked = 0;
    for kustomization in kustomizations()? {
        let files = kustomization.resources.iter().chain(kustomization.patches.iter().map(|patch| &patch.path));
        for path in files.map(|name| kustomization.dir.join(name)).filter(|path| !path.is_dir()) {
            // A list is a patch of single operations.
            for value in yaml(&path)?.iter().filter(|value| !value.is_array()) {
                let expected = match value["kind"].as_str().unwrap_or_default() {
                    "Namespace" | "Service" => "v1",
                    "Deployment" | "StatefulSet" => "apps/v1",
                    "NetworkPolicy" => "networking.k8s.io/v1",
                    "PodDisruptionBudget" => "policy/v1",
                    "PodMonitor" => "monitoring.coreos.com/v1",
                    other => return Err(Error::bug(format!("{}: {other:?}", path.display()))),
                };
                assert_eq!(value["apiVersion"], expected, "{}", path.display());
                assert!(value["metadata"]["name"].is_string(), "{}", path.display());
                checked += 1;
            }
        }
    }
    assert!(checked >= 12, "{checked}");
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
