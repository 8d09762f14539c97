//! The chart of Helm: what it renders. One set of values is rendered here by `make chart`; `make chart-test` renders all of them, and
//! gives their directory in `DWELL_CHART`.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use dwell::app::config::Config;
use dwell::model::error::{Error, Result};
use serde_json::{Value, json};

use super::kubernetes::fits;
use super::pods::{Secrets, dwell_of, items, selects, spec_of, toml};
use super::schema::faults;
use super::{loaded, of_deploy, text, yaml};
use crate::support::failed;

const GATEWAY: &str = "dwell-gateway";

/// What the chart renders of the values of registry-values.yaml.
fn example() -> Result<Vec<Value>> {
    yaml(&of_deploy("helm/example.rendered.yaml"))
}

/// What it renders of all sets of values that were rendered, each with its name.
fn sets() -> Result<Vec<(String, Vec<Value>)>> {
    let mut sets = vec![("example".to_owned(), example()?)];
    let Some(dir) = std::env::var_os("DWELL_CHART").map(PathBuf::from) else { return Ok(sets) };
    for entry in std::fs::read_dir(&dir).map_err(failed("DWELL_CHART"))? {
        let path = entry.map_err(failed("an entry"))?.path();
        if path.extension().is_some_and(|end| end == "yaml") {
            let manifests = yaml(&path)?.into_iter().filter(|one| !one.is_null()).collect();
            sets.push((path.display().to_string(), manifests));
        }
    }
    assert!(sets.len() > 10, "{}: {} sets", dir.display(), sets.len());
    Ok(sets)
}

fn one<'a>(manifests: &'a [Value], kind: &str) -> Result<&'a Value> {
    manifests.iter().find(|one| one["kind"] == kind).ok_or_else(|| Error::bug(format!("no {kind}")))
}

/// The configuration of the gateway, with a file for each that it names below `/run/secrets`.
fn config(manifests: &[Value], secrets: &Secrets) -> Result<Config> {
    let here = secrets.file("");
    for mount in items(dwell_of(spec_of(manifests, GATEWAY)?)?, "/volumeMounts") {
        let below = mount["mountPath"].as_str().and_then(|path| path.strip_prefix("/run/secrets/"));
        if let Some(place) = below.map(|name| here.join(name)).filter(|place| !place.exists()) {
            symlink("dwell-tls", place).map_err(failed("a link"))?;
        }
    }
    loaded(toml(manifests, GATEWAY)?, &[], "/run/secrets", &here)
}

#[test]
fn rendered_charts_are_valid_for_kubernetes() -> Result<()> {
    for (name, manifests) in sets()? {
        let found: Vec<_> = manifests.iter().flat_map(faults).collect();
        assert!(found.is_empty(), "{name}: {found:#?}");
    }
    let (manifests, expected) =
        (example()?, ["ConfigMap", "NetworkPolicy", "PodDisruptionBudget", "Service", "StatefulSet"]);
    let kinds: BTreeSet<_> = manifests.iter().filter_map(|one| one["kind"].as_str()).collect();
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
    let config = config(&manifests, &secrets)?;
    assert_eq!((config.topic_defaults.partitions.get(), config.auto_create), (16, false));
    assert_eq!(config.wal_limit_bytes, 10_737_418_240);
    Ok(())
}

/// Times, sizes, probes and ports follow from dwell's configuration.
#[test]
fn rendered_pods_fit_their_configuration() -> Result<()> {
    for (name, manifests) in sets()? {
        let config = config(&manifests, &Secrets::new()?).map_err(|error| Error::bug(format!("{name}: {error}")))?;
        fits(&config, GATEWAY, &manifests)?;
        speaks_one_protocol(&config, &manifests)?;
        is_let_out(&config, &manifests);
        selectors_find_the_pods(&manifests)?;
        leaves_nothing_behind(&config, &manifests)?;
    }
    Ok(())
}

fn speaks_one_protocol(config: &Config, manifests: &[Value]) -> Result<()> {
    let (tls, container) = (config.tls.is_some(), dwell_of(spec_of(manifests, GATEWAY)?)?);
    for (probe, path) in [("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
        let asks = &container[probe]["httpGet"];
        assert_eq!((&asks["path"], asks["scheme"] == "HTTPS"), (&json!(path), tls), "{probe}");
    }
    let of = |kind: &'static str| manifests.iter().filter(move |one| one["kind"] == kind);
    for service in of("Service") {
        assert_eq!(service["spec"]["ports"][0]["appProtocol"] == "https", tls, "{service}");
    }
    for endpoint in of("PodMonitor").flat_map(|one| items(one, "/spec/podMetricsEndpoints")) {
        assert_eq!((endpoint["scheme"] == "https", endpoint["tlsConfig"].is_object()), (tls, tls), "{endpoint}");
    }
    Ok(())
}

/// A network policy without the port of a receiver of spans or webhooks makes them fail silently.
fn is_let_out(config: &Config, manifests: &[Value]) {
    let Ok(policy) = one(manifests, "NetworkPolicy") else { return };
    let all: Vec<&Value> = items(policy, "/spec/egress").flat_map(|rule| items(rule, "/ports")).collect();
    let is_open = |port: u16| all.iter().any(|open| open["port"] == port);
    assert!(is_open(53), "{policy}");
    let webhooks = config.webhooks.iter().filter(|webhook| webhook.enabled && webhook.target.allows_remote());
    let urls = webhooks.map(|webhook| webhook.target.to_string());
    for url in urls.chain(config.trace.endpoint.iter().map(ToString::to_string)) {
        let port = reqwest::Url::parse(&url).ok().and_then(|url| url.port_or_known_default()).unwrap_or_default();
        assert!(is_open(port), "{url}: {all:?}");
    }
}

fn selectors_find_the_pods(manifests: &[Value]) -> Result<()> {
    let labels = &one(manifests, "StatefulSet")?["spec"]["template"]["metadata"]["labels"];
    for value in manifests {
        let selector = match value["kind"].as_str().unwrap_or_default() {
            "Service" => &value["spec"]["selector"],
            "NetworkPolicy" => &value["spec"]["podSelector"]["matchLabels"],
            "StatefulSet" | "PodDisruptionBudget" | "PodMonitor" => &value["spec"]["selector"]["matchLabels"],
            _ => continue,
        };
        assert!(selects(selector, labels), "{value}");
    }
    Ok(())
}

/// Brokers that an autoscaler takes away give what they have buffered to the others, and are let through to them.
fn leaves_nothing_behind(config: &Config, manifests: &[Value]) -> Result<()> {
    let Ok(scaler) = one(manifests, "HorizontalPodAutoscaler") else { return Ok(()) };
    let set = &one(manifests, "StatefulSet")?["spec"];
    let grace = &set["template"]["spec"]["terminationGracePeriodSeconds"];
    let policies = &scaler["spec"]["behavior"]["scaleDown"]["policies"];
    assert_eq!(*policies, json!([{"type": "Pods", "value": 1, "periodSeconds": grace}]));
    assert!(config.hand_over.is_some() && set["replicas"].is_null(), "{set}");
    let labels = &set["template"]["metadata"]["labels"];
    let policy = one(manifests, "NetworkPolicy")?;
    for (direction, peers) in [("ingress", "/from"), ("egress", "/to")] {
        let path = format!("/spec/{direction}");
        let mut theirs = items(policy, &path).flat_map(|rule| items(rule, peers));
        assert!(theirs.any(|peer| selects(&peer["podSelector"]["matchLabels"], labels)), "{direction}: {policy}");
    }
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

#[test]
fn chart_installs_the_rules_of_this_version() -> Result<()> {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("grafana/prometheus/rules.yml");
    let same = std::fs::read_to_string(rules).map_err(failed("rules.yml"))? == text("helm/dwell/files/rules.yml")?;
    assert!(same, "run make chart, or cp grafana/prometheus/rules.yml deploy/helm/dwell/files/rules.yml");
    Ok(())
}

/// Helm takes every value that has a default, and a default that the schema does not know could not be set.
#[test]
fn every_value_is_explained_and_has_a_schema() -> Result<()> {
    let schema: Value = serde_json::from_str(&text("helm/dwell/values.schema.json")?)
        .map_err(|error| Error::bug(format!("values.schema.json: {error}")))?;
    let values = yaml(&of_deploy("helm/dwell/values.yaml"))?.remove(0);
    let names = |value: &Value| value.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
    let (mut known, explained): (BTreeSet<String>, BTreeSet<String>) = (names(&schema["properties"]), names(&values));
    known.remove("global");
    assert_eq!(known, explained);
    Ok(())
}
