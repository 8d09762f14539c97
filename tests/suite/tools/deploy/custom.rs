//! The kinds that Kubernetes has not itself: those fields of the Prometheus operator, KEDA and cert-manager that are used here.
//! Another one is a mistake until it is added.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `monitoring.coreos.com/v1`
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct PodMonitor {
    api_version: Monitoring,
    kind: String,
    metadata: Metadata,
    pub(super) spec: PodMonitorSpec,
}

/// `monitoring.coreos.com/v1`
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct PrometheusRule {
    api_version: Monitoring,
    kind: String,
    metadata: Metadata,
    spec: RuleGroups,
}

/// `keda.sh/v1alpha1`
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ScaledObject {
    api_version: Keda,
    kind: String,
    metadata: Metadata,
    spec: ScaledObjectSpec,
}

/// `cert-manager.io/v1`
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Certificate {
    api_version: CertManager,
    kind: String,
    metadata: Metadata,
    pub(super) spec: CertificateSpec,
}

/// `cert-manager.io/v1`
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Issuer {
    api_version: CertManager,
    kind: String,
    pub(super) metadata: Metadata,
    pub(super) spec: IssuerSpec,
}

#[derive(Debug, Serialize, Deserialize)]
enum Monitoring {
    #[serde(rename = "monitoring.coreos.com/v1")]
    V1,
}

#[derive(Debug, Serialize, Deserialize)]
enum Keda {
    #[serde(rename = "keda.sh/v1alpha1")]
    V1Alpha1,
}

#[derive(Debug, Serialize, Deserialize)]
enum CertManager {
    #[serde(rename = "cert-manager.io/v1")]
    V1,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Metadata {
    pub(super) name: String,
    /// Absent until an overlay says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct PodMonitorSpec {
    selector: Selector,
    pub(super) pod_metrics_endpoints: Vec<Endpoint>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Selector {
    match_labels: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Endpoint {
    pub(super) port: String,
    path: String,
    #[serde(rename = "interval")]
    every: Span,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scheme: Option<Scheme>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tls_config: Option<TlsConfig>,
    /// Absent for a port that needs no token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) authorization: Option<Authorization>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleGroups {
    groups: Vec<RuleGroup>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleGroup {
    name: String,
    #[serde(rename = "interval", skip_serializing_if = "Option::is_none")]
    every: Option<Span>,
    rules: Vec<Rule>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alert: Option<String>,
    expr: String,
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pending: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keep_firing_for: Option<Span>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ScaledObjectSpec {
    scale_target_ref: ScaleTarget,
    min_replica_count: u32,
    max_replica_count: u32,
    polling_interval: u32,
    cooldown_period: u32,
    fallback: Fallback,
    triggers: Vec<Trigger>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScaleTarget {
    kind: String,
    name: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Fallback {
    failure_threshold: u32,
    replicas: u32,
}

/// Its settings are texts.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Trigger {
    r#type: Scaler,
    metric_type: MetricType,
    metadata: PrometheusQuery,
    #[serde(skip_serializing_if = "Option::is_none")]
    authentication_ref: Option<Named>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Scaler {
    Prometheus,
}

/// The one with which a fallback works.
#[derive(Debug, Serialize, Deserialize)]
enum MetricType {
    AverageValue,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct PrometheusQuery {
    server_address: String,
    threshold: String,
    ignore_null_values: String,
    query: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Scheme {
    Http,
    Https,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct TlsConfig {
    pub(super) ca: Ca,
    pub(super) server_name: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ca {
    pub(super) secret: SecretKey,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Authorization {
    pub(super) credentials: SecretKey,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SecretKey {
    pub(super) name: String,
    pub(super) key: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct CertificateSpec {
    pub(super) secret_name: String,
    duration: Span,
    renew_before: Span,
    private_key: PrivateKey,
    #[serde(rename = "isCA", default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_ca: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    common_name: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) dns_names: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    usages: Vec<Usage>,
    pub(super) issuer_ref: IssuerRef,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct PrivateKey {
    algorithm: Algorithm,
    size: u16,
    encoding: Encoding,
    rotation_policy: RotationPolicy,
}

#[derive(Debug, Serialize, Deserialize)]
enum Algorithm {
    #[serde(rename = "RSA")]
    Rsa,
    #[serde(rename = "ECDSA")]
    Ecdsa,
    Ed25519,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Encoding {
    Pkcs1,
    Pkcs8,
}

#[derive(Debug, Serialize, Deserialize)]
enum RotationPolicy {
    Always,
    Never,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Usage {
    #[serde(rename = "digital signature")]
    DigitalSignature,
    #[serde(rename = "server auth")]
    ServerAuth,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IssuerRef {
    kind: IssuerKind,
    pub(super) name: String,
}

#[derive(Debug, Serialize, Deserialize)]
enum IssuerKind {
    Issuer,
    ClusterIssuer,
}

/// Who signs: the key itself, or the authority of a secret.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) enum IssuerSpec {
    SelfSigned(Nothing),
    Ca(Authority),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Authority {
    pub(super) secret_name: String,
}

/// A span as Go writes it, `15s` or `2160h`; kept as it was written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(try_from = "String")]
struct Span(String);

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(text: String) -> Result<Span, String> {
        let number = text.strip_suffix(['s', 'm', 'h']).unwrap_or_default();
        match number.parse::<u32>().is_ok_and(|number| number > 0) {
            true => Ok(Span(text)),
            false => Err(format!("{text:?} is no span")),
        }
    }
}
