//! Every manifest, and every one that a kustomization makes, against the types of Kubernetes' API.
//!
//! A manifest is read as its kind and written again. What is not there any more is a field that the kind has not; what is
//! there now is one that it needs. The types call every word a string, so the words are here.

use std::collections::BTreeSet;

use dwell::model::error::Result;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::custom::{Certificate, Issuer, PodMonitor, PrometheusRule, ScaledObject};
use super::kustomize::{kustomization, kustomizations, overlays};
use super::yaml;

/// The words of a field: its name, or with that of what is around it where the name alone has several meanings.
const WORDS: [(&str, &[&str]); 16] = [
    ("initContainers.restartPolicy", &["Always"]),
    ("podManagementPolicy", &["OrderedReady", "Parallel"]),
    ("updateStrategy.type", &["RollingUpdate", "OnDelete"]),
    ("strategy.type", &["RollingUpdate", "Recreate"]),
    ("whenDeleted", &["Retain", "Delete"]),
    ("whenScaled", &["Retain", "Delete"]),
    ("fsGroupChangePolicy", &["OnRootMismatch", "Always"]),
    ("seccompProfile.type", &["RuntimeDefault", "Localhost", "Unconfined"]),
    ("whenUnsatisfiable", &["DoNotSchedule", "ScheduleAnyway"]),
    ("httpGet.scheme", &["HTTP", "HTTPS"]),
    ("accessModes", &["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"]),
    ("sessionAffinity", &["ClientIP", "None"]),
    ("clusterIP", &["None"]),
    ("protocol", &["TCP", "UDP", "SCTP"]),
    ("policyTypes", &["Ingress", "Egress"]),
    ("appProtocol", &["http", "https"]),
];

/// What is around quantities.
const QUANTITIES: [&str; 2] = ["requests", "limits"];

/// What is wrong with a manifest, each with its place.
pub(super) fn faults(manifest: &Value) -> Vec<String> {
    let mut found = match manifest["kind"].as_str().unwrap_or_default() {
        "ConfigMap" => read_as::<ConfigMap>(manifest),
        "Deployment" => read_as::<Deployment>(manifest),
        "HorizontalPodAutoscaler" => read_as::<HorizontalPodAutoscaler>(manifest),
        "Namespace" => read_as::<Namespace>(manifest),
        "NetworkPolicy" => read_as::<NetworkPolicy>(manifest),
        "PodDisruptionBudget" => read_as::<PodDisruptionBudget>(manifest),
        "Secret" => read_as::<Secret>(manifest),
        "Service" => read_as::<Service>(manifest),
        "StatefulSet" => read_as::<StatefulSet>(manifest),
        "Certificate" => read_as::<Certificate>(manifest),
        "Issuer" => read_as::<Issuer>(manifest),
        "PodMonitor" => read_as::<PodMonitor>(manifest),
        "PrometheusRule" => read_as::<PrometheusRule>(manifest),
        "ScaledObject" => read_as::<ScaledObject>(manifest),
        other => vec![format!("{other:?} is no kind that is known here")],
    };
    words(manifest, "", "", &mut |_, fault| found.extend(fault));
    found
}

fn read_as<T: DeserializeOwned + Serialize>(manifest: &Value) -> Vec<String> {
    let mut found = Vec::new();
    match serde_path_to_error::deserialize::<_, T>(manifest) {
        Err(error) => found.push(error.to_string()),
        Ok(read) => match serde_json::to_value(read) {
            Err(error) => found.push(error.to_string()),
            Ok(again) => compare(manifest, &again, "", &mut found),
        },
    }
    found
}

/// What was written against what was understood.
fn compare(written: &Value, read: &Value, place: &str, found: &mut Vec<String>) {
    let below = |name: &str| format!("{place}{}{name}", if place.is_empty() { "" } else { "." });
    match (written, read) {
        (Value::Object(written), Value::Object(read)) => {
            for (name, value) in written {
                match read.get(name) {
                    Some(again) => compare(value, again, &below(name), found),
                    None => found.push(format!("{}: no such field", below(name))),
                }
            }
            // An object inside of another one, as a claim in a set, needs to say no kind.
            let is_implied = |name: &str| !place.is_empty() && matches!(name, "apiVersion" | "kind");
            let lacks = read.keys().filter(|name| !written.contains_key(*name) && !is_implied(name));
            found.extend(lacks.map(|name| format!("{}: is needed", below(name))));
        }
        (Value::Array(written), Value::Array(read)) if written.len() == read.len() => {
            let pairs = written.iter().zip(read).enumerate();
            pairs.for_each(|(at, (value, again))| compare(value, again, &below(&at.to_string()), found));
        }
        _ if written == read => {}
        _ => found.push(format!("{place}: {written} is read as {read}")),
    }
}

/// Calls `see` with each field that has words or quantities, and with what is wrong there.
fn words(value: &Value, around: &str, name: &str, see: &mut impl FnMut(&'static str, Option<String>)) {
    match value {
        // Not what somebody chose freely: labels, and the data of a ConfigMap.
        Value::Object(fields) if !matches!(name, "labels" | "matchLabels" | "data") => {
            fields.iter().for_each(|(inside, value)| words(value, name, inside, see));
        }
        Value::Array(items) => items.iter().for_each(|item| match item {
            Value::Object(_) => words(item, around, name, see),
            item => words(item, name, name, see),
        }),
        Value::String(text) => {
            let both = format!("{around}.{name}");
            if let Some((field, all)) = WORDS.into_iter().find(|(field, _)| *field == name || *field == both) {
                see(field, (!all.contains(&text.as_str())).then(|| format!("{field}: {text:?} is none of {all:?}")));
            }
            if let Some(field) = QUANTITIES.into_iter().find(|field| *field == around) {
                see(field, (!is_quantity(text)).then(|| format!("{both}: {text:?} is no quantity")));
            }
        }
        _ => {}
    }
}

fn is_quantity(text: &str) -> bool {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    !number.is_empty() && matches!(unit, "" | "m" | "k" | "M" | "G" | "T" | "Ki" | "Mi" | "Gi" | "Ti")
}

#[test]
fn every_manifest_matches_its_schema() -> Result<()> {
    let (mut wrong, mut checked, mut kinds) = (Vec::new(), 0, BTreeSet::new());
    let mut note = |place: String, faults: Vec<String>| {
        checked += 1;
        wrong.extend(faults.into_iter().map(|fault| format!("{place}: {fault}")));
    };
    for one in kustomizations()? {
        for path in one.resources.iter().map(|name| one.dir.join(name)).filter(|path| !path.is_dir()) {
            yaml(&path)?.iter().for_each(|manifest| note(path.display().to_string(), faults(manifest)));
        }
        // A part of an object lacks what the object has. What JSON patches bring is seen where it goes to, below.
        for path in one.patches.iter().map(|patch| one.dir.join(&patch.path)) {
            for patch in yaml(&path)?.iter().filter(|patch| !patch.is_array()) {
                let faults = faults(patch).into_iter().filter(|fault| !fault.ends_with(": is needed")).collect();
                note(path.display().to_string(), faults);
            }
        }
    }
    for (one, manifests) in overlays()? {
        for manifest in &manifests {
            let (kind, name) = (&manifest["kind"], &manifest["metadata"]["name"]);
            kinds.insert(kind.to_string());
            note(format!("{}: {kind} {name}", one.dir.display()), faults(manifest));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(checked >= 40 && kinds.len() == 11, "{checked} of {kinds:?}");
    Ok(())
}

#[test]
fn every_schema_field_is_used() -> Result<()> {
    let mut used = BTreeSet::new();
    for (_, manifests) in overlays()? {
        let mut see = |field, _| used.extend([field]);
        manifests.iter().for_each(|manifest| words(manifest, "", "", &mut see));
    }
    let all: BTreeSet<_> = WORDS.into_iter().map(|(field, _)| field).chain(QUANTITIES).collect();
    assert_eq!(used, all);
    Ok(())
}

/// The manifest of production with another value at a place, or with one field more.
fn changed(manifests: &[Value], kind: &str, place: &str, value: Value) -> Result<Value> {
    let wanted = |one: &&Value| one["kind"] == kind && one.pointer("/metadata/name") != Some(&json!("producer"));
    let mut manifest = manifests.iter().find(wanted).cloned().unwrap_or_default();
    assert_eq!(faults(&manifest), [""; 0], "{kind}");
    let (above, name) = place.rsplit_once('/').unwrap_or_default();
    match (manifest.pointer_mut(above).and_then(Value::as_object_mut), value) {
        (Some(fields), Value::Null) => drop(fields.remove(name)),
        (Some(fields), value) => drop(fields.insert(name.to_owned(), value)),
        (None, _) => return Err(dwell::model::error::Error::bug(format!("{kind} has no {above}"))),
    }
    Ok(manifest)
}

#[test]
fn schema_errors_are_detected_and_named() -> Result<()> {
    let production = overlays()?.into_iter().find(|(one, _)| one.is("production")).unwrap_or_default().1;
    let container = "/spec/template/spec/containers/0";
    for (kind, place, value, fault) in [
        ("StatefulSet", "/spec/replica", json!(3), "spec.replica: no such field"),
        (
            "StatefulSet",
            "/spec/replicas",
            json!("three"),
            "spec.replicas: invalid type: string \"three\", expected i32",
        ),
        ("StatefulSet", "/spec/selector", Value::Null, "spec.selector: is needed"),
        ("StatefulSet", "/spec/podManagementPolicy", json!("parallel"), "podManagementPolicy: \"parallel\" is none of"),
        ("StatefulSet", "/apiVersion", json!("apps/v1beta1"), "\"apps/v1beta1\", expected apps/v1"),
        ("StatefulSet", "/kind", json!("StatefulSets"), "\"StatefulSets\" is no kind that is known here"),
        ("StatefulSet", "/spec/template/spec/volumes/0/secrets", json!({}), "volumes.0.secrets: no such field"),
        ("Service", "/spec/ports/0/port", json!("7373"), "spec.ports[0].port: invalid type: string"),
        ("Service", "/spec/sessionAffinity", json!("ClientIp"), "sessionAffinity: \"ClientIp\" is none of"),
        ("NetworkPolicy", "/spec/policyTypes", json!(["ingress"]), "policyTypes: \"ingress\" is none of"),
        ("NetworkPolicy", "/spec/ingres", json!([]), "spec.ingres: no such field"),
        ("PodDisruptionBudget", "/spec/maxUnavailable", json!(true), "spec.maxUnavailable: invalid type: boolean"),
        ("Secret", "/data/app", json!(7), "data.app: invalid type: integer"),
        ("PodMonitor", "/spec/podMetricsEndpoints/0/tlsconfig", json!({}), "unknown field `tlsconfig`"),
        ("PodMonitor", "/spec/podMetricsEndpoints/0/scheme", json!("tls"), "unknown variant `tls`"),
        ("PodMonitor", "/spec/podMetricsEndpoints/0/interval", json!("soon"), "\"soon\" is no span"),
        ("Certificate", "/spec/secretName", Value::Null, "missing field `secretName`"),
        ("Certificate", "/spec/privateKey/algorithm", json!("DSA"), "unknown variant `DSA`"),
        ("Issuer", "/spec", json!({"selfsigned": {}}), "unknown variant `selfsigned`"),
    ] {
        let found = faults(&changed(&production, kind, place, value)?);
        assert!(found.iter().any(|found| found.contains(fault)), "{kind} {place}: {found:?}");
    }
    for (place, value, fault) in [
        ("image_pull_policy", json!("Always"), "image_pull_policy: no such field"),
        ("args", json!("serve"), "args: invalid type: string"),
        ("resources", json!({"requests": {"memory": "64MiB"}}), "requests.memory: \"64MiB\" is no quantity"),
        ("startupProbe", json!({"httpGet": {"path": "/livez"}}), "httpGet.port: is needed"),
        ("startupProbe", json!({"httpGet": {"port": 1, "scheme": "https"}}), "httpGet.scheme: \"https\" is none of"),
    ] {
        let found = faults(&changed(&production, "StatefulSet", &format!("{container}/{place}"), value)?);
        assert!(found.iter().any(|found| found.contains(fault)), "{place}: {found:?}");
    }
    for (wrong, why) in [
        (json!({"resource": ["a"]}), "unknown field `resource`"),
        (json!({"resources": "a"}), "resources: invalid type: string"),
        (json!({"configMapGenerator": [{"name": "a", "behavior": "merged", "files": []}]}), "unknown variant `merged`"),
        (json!({"patches": [{"path": "a", "target": {"kind": "a", "names": "a"}}]}), "unknown field `names`"),
    ] {
        let refused = kustomization(wrong).err().unwrap_or_default();
        assert!(refused.contains(why), "{why}: {refused}");
    }
    Ok(())
}
