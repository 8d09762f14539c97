//! The files of deploy/kubernetes, and what names them.

use std::collections::BTreeSet;
use std::process::Command;

use dwell::model::error::{Error, Result};
use serde_json::Value;

use super::kustomize::{Names, kustomizations, overlays};
use super::{of_deploy, said, yaml};
use crate::support::{failed, scratch};

#[test]
fn kustomizations_list_exactly_the_existing_files() -> Result<()> {
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

/// A component that no overlay has would be checked by nothing.
#[test]
fn every_component_is_part_of_an_overlay() -> Result<()> {
    let all = kustomizations()?;
    let used: BTreeSet<String> = all.iter().flat_map(|one| one.components.clone()).collect();
    for one in all.iter().filter(|one| one.kind == "Component") {
        let name = one.dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        assert!(used.iter().any(|used| used.ends_with(&format!("/components/{name}"))), "{name}: {used:?}");
    }
    Ok(())
}

/// What gets a hash in its name is named by a kind that kustomize does not know: where, says a file.
#[test]
fn name_references_of_hashed_secrets_exist() -> Result<()> {
    let mut seen = 0;
    for one in kustomizations()? {
        for path in one.configurations.iter().map(|name| one.dir.join(name)) {
            let fields = yaml(&path)?.into_iter().next().unwrap_or_default();
            let names: Names = serde_path_to_error::deserialize(fields)
                .map_err(|error| Error::bug(format!("{}: {error}", path.display())))?;
            for reference in &names.name_reference {
                assert_eq!((&*reference.kind, &*reference.version), ("Secret", "v1"), "{reference:?}");
                seen +=
                    reference.field_specs.iter().map(|field| named(&field.kind, &field.path)).sum::<Result<usize>>()?;
            }
        }
    }
    assert_eq!(seen, 1);
    Ok(())
}

/// How often a place of a kind holds the name of a secret that is made: everywhere, or it is the wrong place.
fn named(kind: &str, path: &str) -> Result<usize> {
    let mut seen = 0;
    for (_, manifests) in overlays()? {
        let made: Vec<_> = manifests.iter().filter(|one| one["kind"] == "Secret").collect();
        for manifest in manifests.iter().filter(|one| one["kind"] == kind) {
            let found = path.split('/').fold(vec![manifest], |values, name| {
                let inside = values.into_iter().flat_map(|value| match &value[name] {
                    Value::Array(items) => items.iter().collect(),
                    Value::Null => Vec::new(),
                    value => vec![value],
                });
                inside.collect()
            });
            if found.is_empty() {
                // A port that needs no token: nothing of it names a secret.
                assert!(!manifest.to_string().contains("credentials"), "{kind} has no {path}");
                continue;
            }
            assert!(found.iter().all(|name| made.iter().any(|one| one["metadata"]["name"] == **name)), "{found:?}");
            seen += 1;
        }
    }
    Ok(seen)
}

/// The steps of docs/how-to/kubernetes.md, but for the one that needs a cluster, in a copy of this directory.
#[test]
fn printed_steps_create_the_secrets_of_the_example() -> Result<()> {
    let page = include_str!("../../../../docs/how-to/kubernetes.md");
    let part =
        page.split("\n## Apply the manifests\n").nth(1).and_then(|rest| rest.split("```").nth(1)).unwrap_or_default();
    let (apply, steps): (Vec<&str>, Vec<&str>) = part.lines().skip(1).partition(|line| line.starts_with("kubectl "));
    assert_eq!((apply.len(), steps.len()), (1, 2), "{part}");
    let dir = scratch()?;
    said(Command::new("cp").arg("-r").arg(of_deploy("")).arg(dir.path().join("deploy")))?;
    said(Command::new("sh").args(["-ec", &steps.join("\n")]).current_dir(dir.path()))?;
    let example = apply[0].rsplit(' ').next().map(|name| dir.path().join(name)).unwrap_or_default();
    let all = kustomizations()?;
    let one = all.iter().find(|one| one.is("example")).ok_or_else(|| Error::bug("no example"))?;
    for (_, path) in one.files() {
        let length = std::fs::metadata(example.join(path)).map_err(failed(path))?.len();
        assert!(length > 20, "{path}: {length} bytes");
    }
    Ok(())
}

#[test]
fn repository_contains_no_secrets() -> Result<()> {
    for one in kustomizations()?.iter().filter(|one| one.namespace.is_some()) {
        let secrets: Vec<_> = one.secret_generator.iter().flat_map(|generator| &generator.files).collect();
        assert!(secrets.len() == 5 && secrets.iter().all(|file| file.contains("=secrets/")), "{secrets:?}");
    }
    let ignored = include_str!("../../../../.gitignore");
    assert!(ignored.lines().any(|line| line == "secrets"), "{ignored}");
    Ok(())
}
