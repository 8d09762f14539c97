//! What kustomize makes of deploy/kubernetes: as much of it as is used there, and an error for all else.
//!
//! Names get no hash, and the values of secrets are empty.

use std::path::{Path, PathBuf};

use dwell::model::error::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::merge::{change, merge};
use super::{of_deploy, yaml};
use crate::support::failed;

/// A kustomization or a component of one. Fields that are not used here are mistakes until they are added.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct Kustomization {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) namespace: Option<String>,
    pub(super) resources: Vec<String>,
    pub(super) components: Vec<String>,
    pub(super) patches: Vec<Patch>,
    config_map_generator: Vec<Generator>,
    pub(super) secret_generator: Vec<Generator>,
    generator_options: GeneratorOptions,
    pub(super) configurations: Vec<String>,
    images: Vec<Image>,
    /// Where it lies.
    #[serde(skip)]
    pub(super) dir: PathBuf,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Patch {
    pub(super) path: String,
    target: Target,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    kind: String,
    name: String,
}

/// What makes a ConfigMap or a Secret of files, `key=path` each.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Generator {
    name: String,
    #[serde(default)]
    behavior: Behavior,
    pub(super) files: Vec<String>,
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Behavior {
    #[default]
    Create,
    Replace,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct GeneratorOptions {
    labels: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Image {
    name: String,
    new_name: String,
    new_tag: String,
}

/// Where kinds that kustomize does not know hold the names of what it renames.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Names {
    pub(super) name_reference: Vec<NameReference>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct NameReference {
    pub(super) kind: String,
    pub(super) version: String,
    pub(super) field_specs: Vec<FieldSpec>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FieldSpec {
    pub(super) kind: String,
    pub(super) path: String,
}

/// Every kustomization and component, sorted by path.
pub(super) fn kustomizations() -> Result<Vec<Kustomization>> {
    let mut found = Vec::new();
    for dir in directories(&of_deploy("kubernetes"))? {
        let file = dir.join("kustomization.yaml");
        if file.exists() {
            let read = yaml(&file)?.into_iter().next().unwrap_or_default();
            let read = kustomization(read).map_err(|error| Error::bug(format!("{}: {error}", file.display())))?;
            found.push(Kustomization { dir, ..read });
        }
    }
    assert!(found.len() >= 5, "{found:?}");
    Ok(found)
}

/// A kustomization of its fields.
pub(super) fn kustomization(fields: Value) -> std::result::Result<Kustomization, String> {
    serde_path_to_error::deserialize(fields).map_err(|error| error.to_string())
}

/// What is applied to a cluster: every kustomization with a namespace, and its manifests.
pub(super) fn overlays() -> Result<Vec<(Kustomization, Vec<Value>)>> {
    let overlays = kustomizations()?.into_iter().filter(|one| one.namespace.is_some());
    let rendered = overlays.map(|one| one.rendered().map(|manifests| (one, manifests)));
    let rendered: Vec<_> = rendered.collect::<Result<_>>()?;
    assert!(rendered.len() >= 2, "{rendered:?}");
    Ok(rendered)
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

/// The kustomization in a directory.
fn beside(dir: &Path) -> Result<Kustomization> {
    let wanted = dir.canonicalize().map_err(failed(&dir.display().to_string()))?;
    let is_it = |one: &Kustomization| one.dir.canonicalize().is_ok_and(|dir| dir == wanted);
    kustomizations()?.into_iter().find(is_it).ok_or_else(|| Error::bug(format!("no kustomization in {wanted:?}")))
}

impl Kustomization {
    pub(super) fn is(&self, end: &str) -> bool {
        self.dir.ends_with(end)
    }

    /// The files that become keys, as `(key, path)`.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        let generators = self.config_map_generator.iter().chain(&self.secret_generator);
        generators.flat_map(|generator| &generator.files).filter_map(|file| file.split_once('='))
    }

    /// The manifests that it makes.
    pub(super) fn rendered(&self) -> Result<Vec<Value>> {
        let mut all = Vec::new();
        self.add_to(&mut all)?;
        Ok(all)
    }

    /// Adds what it brings to what is there, and changes all of it: in the order of kustomize.
    fn add_to(&self, all: &mut Vec<Value>) -> Result<()> {
        for path in self.resources.iter().map(|name| self.dir.join(name)) {
            match path.is_dir() {
                true => all.extend(beside(&path)?.rendered()?),
                false => all.extend(yaml(&path)?),
            }
        }
        for component in &self.components {
            beside(&self.dir.join(component))?.add_to(all)?;
        }
        for generator in &self.config_map_generator {
            let data = |path: &str| std::fs::read_to_string(self.dir.join(path)).map_err(failed(path));
            self.generate("ConfigMap", generator, data, all)?;
        }
        for generator in &self.secret_generator {
            self.generate("Secret", generator, |_| Ok(String::new()), all)?;
        }
        self.patches.iter().try_for_each(|patch| self.patch(patch, all))?;
        for manifest in all.iter_mut() {
            self.name_images(manifest);
            if let Some(namespace) = self.namespace.as_ref().filter(|_| manifest["kind"] != "Namespace") {
                manifest["metadata"]["namespace"] = json!(namespace);
            }
        }
        Ok(())
    }

    fn generate(
        &self,
        kind: &str,
        Generator { name, behavior, files }: &Generator,
        contents: impl Fn(&str) -> Result<String>,
        all: &mut Vec<Value>,
    ) -> Result<()> {
        let mut data = Map::new();
        for file in files {
            let (key, path) = file.split_once('=').ok_or_else(|| Error::bug(format!("{file} has no key")))?;
            data.insert(key.to_owned(), json!(contents(path)?));
        }
        let there = all.iter().position(|one| one["kind"] == kind && one["metadata"]["name"] == **name);
        match (there, behavior) {
            (None, Behavior::Create) => {
                let labels = &self.generator_options.labels;
                let metadata = json!({"name": name, "labels": labels});
                all.push(json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": data}));
            }
            (Some(at), Behavior::Replace) => all[at]["data"] = Value::Object(data),
            _ => return Err(Error::bug(format!("{kind} {name}: {behavior:?}, and it is there: {}", there.is_some()))),
        }
        Ok(())
    }

    /// Changes what a patch is for. kustomize passes over a patch that is for nothing; here it is an error.
    fn patch(&self, Patch { path, target }: &Patch, all: &mut [Value]) -> Result<()> {
        let is_it = |one: &&mut Value| one["kind"] == *target.kind && one["metadata"]["name"] == *target.name;
        let object = all.iter_mut().find(is_it).ok_or_else(|| Error::bug(format!("{path}: no {target:?}")))?;
        for patch in yaml(&self.dir.join(path))? {
            let changed = match patch {
                Value::Array(operations) => operations.into_iter().try_for_each(|one| change(object, one)),
                patch => {
                    let same = |name: &str| object.pointer(name) == patch.pointer(name);
                    match ["/apiVersion", "/kind", "/metadata/name"].into_iter().find(|name| !same(name)) {
                        Some(other) => Err(format!("{other} is that of another object")),
                        None => merge(object, &patch, ""),
                    }
                }
            };
            changed.map_err(|why| Error::bug(format!("{}/{path}: {why}", self.dir.display())))?;
        }
        Ok(())
    }

    fn name_images(&self, manifest: &mut Value) {
        for list in ["initContainers", "containers"] {
            let containers = manifest.pointer_mut(&format!("/spec/template/spec/{list}"));
            for container in containers.and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(image) = self.images.iter().find(|image| container["image"] == *image.name) {
                    container["image"] = json!(format!("{}:{}", image.new_name, image.new_tag));
                }
            }
        }
    }
}
