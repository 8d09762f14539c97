//! The workflows of .github: each command is a target of the Makefile, so whatever runs there also runs here.

use std::path::{Path, PathBuf};

use dwell::model::error::{Error, Result};
use serde_json::Value;

use super::{text, yaml};
use crate::support::failed;

const MAKEFILE: &str = include_str!("../../../../Makefile");

fn workflows() -> Result<Vec<(PathBuf, Value)>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(".github/workflows");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed(".github/workflows"))? {
        let path = entry.map_err(failed("an entry"))?.path();
        let workflow =
            yaml(&path)?.into_iter().next().ok_or_else(|| Error::bug(format!("{} is empty", path.display())))?;
        found.push((path, workflow));
    }
    assert!(found.len() >= 2, "{found:?}");
    Ok(found)
}

fn steps(workflow: &Value) -> impl Iterator<Item = &Value> {
    let jobs = workflow["jobs"].as_object().into_iter().flatten();
    jobs.flat_map(|(_, job)| job["steps"].as_array().into_iter().flatten())
}

#[test]
fn every_workflow_command_is_a_make_target() -> Result<()> {
    let is_target =
        |name: &str| MAKEFILE.lines().any(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(':')));
    let mut seen = 0;
    for (path, workflow) in workflows()? {
        for run in steps(&workflow).filter_map(|step| step["run"].as_str()) {
            let target = run.strip_prefix("make ").unwrap_or_default();
            assert!(is_target(target), "{}: {run:?} is no `make TARGET` of the Makefile", path.display());
            seen += 1;
        }
    }
    assert!(seen > 15, "{seen}");
    Ok(())
}

/// What is built there is what the image is built with.
#[test]
fn workflows_build_with_the_rust_of_the_image() -> Result<()> {
    let dockerfile = text("Dockerfile")?;
    let version = dockerfile.lines().find_map(|line| line.strip_prefix("ARG RUST_VERSION=")).unwrap_or_default();
    let containers: Vec<Value> = workflows()?
        .iter()
        .flat_map(|(_, workflow)| workflow["jobs"].as_object().into_iter().flatten())
        .map(|(_, job)| job["container"].clone())
        .filter(|container| !container.is_null())
        .collect();
    assert!(containers.len() >= 5 && containers.iter().all(|one| *one == format!("rust:{version}-bookworm")));
    Ok(())
}

#[test]
fn workflow_permissions_are_minimal_and_releases_need_a_tag() -> Result<()> {
    for (path, workflow) in workflows()? {
        assert_eq!(workflow["permissions"], serde_json::json!({"contents": "read"}), "{}", path.display());
        for uses in steps(&workflow).filter_map(|step| step["uses"].as_str()) {
            assert!(uses.split_once("@v").is_some_and(|(_, version)| !version.is_empty()), "{uses}");
        }
        // YAML 1.1 would read `on` as true; this parser does not.
        let pushes = &workflow["on"]["push"];
        assert_eq!(pushes["tags"].is_array(), path.ends_with("release.yml"), "{pushes}");
    }
    Ok(())
}
