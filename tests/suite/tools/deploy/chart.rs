//! The chart of Helm: what it renders, as `make chart` keeps it here, and `make package` compares.

use std::collections::BTreeSet;

use dwell::model::error::{Error, Result};
use serde_json::{Value, json};

use super::pods::{Secrets, dwell_of, environment};
use super::schema::faults;
use super::{loaded, of_deploy, text, yaml};

/// What the chart renders of the values of example.yaml.
fn example() -> Result<Vec<Value>> {
    yaml(&of_deploy("helm/example.rendered.yaml"))
}

fn one<'a>(manifests: &'a [Value], kind: &str) -> Result<&'a Value> {
    manifests.iter().find(|one| one["kind"] == kind).ok_or_else(|| Error::bug(format!("no {kind}")))
}

#[test]
fn rendered_chart_is_valid_for_kubernetes() -> Result<()> {
    let manifests = example()?;
    let found: Vec<_> = manifests.iter().flat_map(faults).collect();
    assert!(found.is_empty(), "{found:#?}");
    let kinds: BTreeSet<_> = manifests.iter().filter_map(|one| one["kind"].as_str()).collect();
    let expected = ["ConfigMap", "NetworkPolicy", "PodDisruptionBudget", "Service", "StatefulSet"];
    assert!(kinds.into_iter().eq(expected), "{manifests:?}");
    Ok(())
}

#[test]
fn chart_values_reach_their_fields() -> Result<()> {
    let (manifests, secrets) = (example()?, Secrets::new()?);
    let set = &one(&manifests, "StatefulSet")?["spec"];
    let pod = &set["template"]["spec"];
    let dwell = dwell_of(pod)?;
    assert_eq!(set["replicas"], 3);
    assert_eq!(dwell["image"], concat!("registry.example.com/dwell:", env!("CARGO_PKG_VERSION")));
    assert_eq!(dwell["resources"]["limits"], json!({"memory": "2Gi"}));
    assert_eq!(pod["volumes"][1]["secret"]["secretName"], "dwell-tokens");
    assert_eq!(set["volumeClaimTemplates"][0]["spec"]["storageClassName"], "ssd");
    let toml = one(&manifests, "ConfigMap")?["data"]["dwell.toml"].as_str().unwrap_or_default();
    let secret = secrets.file("dwell");
    let config = loaded(toml, &environment(dwell), "/run/secrets/dwell", &secret)?;
    assert_eq!((config.topic_defaults.partitions.get(), config.auto_create), (16, false));
    Ok(())
}

/// kustomize begins with what the chart renders of its defaults.
#[test]
fn chart_and_base_have_this_version_and_one_source() -> Result<()> {
    assert_eq!(text("helm/dwell/files/gateway.toml")?, text("kubernetes/base/gateway.toml")?);
    for file in ["gateway.yaml", "gateway-network.yaml"] {
        assert!(text(&format!("kubernetes/base/{file}"))?.starts_with("# Rendered from deploy/helm/dwell "), "{file}");
    }
    let chart = yaml(&of_deploy("helm/dwell/Chart.yaml"))?.remove(0);
    assert_eq!([&chart["version"], &chart["appVersion"]], [env!("CARGO_PKG_VERSION"); 2]);
    let base = text("kubernetes/base/kustomization.yaml")?;
    assert!(base.contains(concat!("newTag: ", env!("CARGO_PKG_VERSION"))), "{base}");
    Ok(())
}
