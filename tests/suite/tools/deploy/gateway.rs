//! The gateway of Kubernetes as its brokers, its clients and Prometheus see it: where each is reached, what is shown there,
//! and what lets them through.

use std::sync::Arc;

use dwell::app::config::Config;
use dwell::model::error::{Error, Result};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::{ServerName, UnixTime};
use serde_json::{Value, json};

use super::custom::{Certificate, Issuer, IssuerSpec, PodMonitor, Scheme};
use super::kustomize::overlays;
use super::pods::{Secrets, dwell_of, items, selects, spec_of};

const GATEWAY: &str = "dwell-gateway";

/// An overlay: its gateway's configuration, its namespace and its manifests.
type Overlay = (Config, String, Vec<Value>);

fn gateways() -> Result<Vec<Overlay>> {
    let secrets = Secrets::new()?;
    let overlay = |(one, manifests): (super::kustomize::Kustomization, Vec<Value>)| {
        let namespace = one.namespace.unwrap_or_default();
        Ok((secrets.config(&manifests, GATEWAY)?, namespace, manifests))
    };
    overlays()?.into_iter().map(overlay).collect()
}

/// Manifests as what they are.
fn typed<T: serde::de::DeserializeOwned>(manifests: &[Value], kind: &str) -> Result<Vec<T>> {
    let read = |one: &Value| serde_json::from_value(one.clone()).map_err(|error| Error::bug(format!("{one}: {error}")));
    manifests.iter().filter(|one| one["kind"] == kind).map(read).collect()
}

fn named<'a>(manifests: &'a [Value], kind: &str, name: &str) -> Result<&'a Value> {
    let found = manifests.iter().find(|one| one["kind"] == kind && one["metadata"]["name"] == name);
    found.ok_or_else(|| Error::bug(format!("no {kind} {name}")))
}

/// The name of a pod of a StatefulSet is resolved by its headless service, also while the pod is not ready.
#[test]
fn each_broker_has_a_stable_name_and_listens_on_the_network() -> Result<()> {
    for (config, namespace, manifests) in gateways()? {
        let set = named(&manifests, "StatefulSet", GATEWAY)?;
        let service = set["spec"]["serviceName"].as_str().unwrap_or_default();
        assert_eq!(config.listen.to_string(), "0.0.0.0:7373");
        let service = &named(&manifests, "Service", service)?["spec"];
        assert_eq!([&service["clusterIP"], &service["publishNotReadyAddresses"]], [&json!("None"), &json!(true)]);
        assert!(selects(&service["selector"], &set["spec"]["template"]["metadata"]["labels"]), "{service}");
        assert!(named(&manifests, "Namespace", &namespace).is_ok());
    }
    Ok(())
}

/// Nothing but Redis is between them.
#[test]
fn brokers_do_not_reach_each_other() -> Result<()> {
    for (_, _, manifests) in gateways()? {
        let labels = &named(&manifests, "StatefulSet", GATEWAY)?["spec"]["template"]["metadata"]["labels"];
        let policy = named(&manifests, "NetworkPolicy", GATEWAY)?;
        for (direction, peers) in [("ingress", "/from"), ("egress", "/to")] {
            let path = format!("/spec/{direction}");
            let theirs = items(policy, &path).flat_map(|rule| items(rule, peers));
            let mut here = theirs.filter(|peer| selects(&peer["podSelector"]["matchLabels"], labels));
            assert!(here.next().is_none(), "{direction}: {policy}");
        }
    }
    Ok(())
}

/// One that speaks TLS to some and expects plain HTTP from others is reached by nobody.
#[test]
fn tls_is_used_by_all_clients_of_the_gateway_or_none() -> Result<()> {
    let mut with = Vec::new();
    for (config, _, manifests) in gateways()? {
        let tls = config.tls.is_some();
        with.push(tls);
        let container = dwell_of(spec_of(&manifests, GATEWAY)?)?;
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            assert_eq!(container[probe]["httpGet"]["scheme"] == "HTTPS", tls, "{probe}");
        }
        for service in [GATEWAY, "dwell-gateway-brokers"] {
            let ports = &named(&manifests, "Service", service)?["spec"]["ports"];
            assert_eq!(ports[0]["appProtocol"] == "https", tls, "{service}");
        }
        for monitor in typed::<PodMonitor>(&manifests, "PodMonitor")? {
            // A sidecar is reached by Prometheus and its own pod, and speaks plain HTTP.
            let expected = tls && monitor.spec.pod_metrics_endpoints.iter().all(|endpoint| endpoint.port == "http");
            for endpoint in &monitor.spec.pod_metrics_endpoints {
                assert_eq!(endpoint.scheme == Some(Scheme::Https), expected, "{monitor:?}");
                assert_eq!(endpoint.tls_config.is_some(), expected, "{monitor:?}");
            }
        }
    }
    assert_eq!(with, [false, true], "the example is without, production with");
    Ok(())
}

/// The certificate is made as production asks for it, and looked at by those who look at it in the cluster.
#[test]
fn certificate_covers_exactly_the_dns_names_in_use() -> Result<()> {
    let mut checked = 0;
    for (_, namespace, manifests) in gateways()?.into_iter().filter(|(config, ..)| config.tls.is_some()) {
        let certificates: Vec<Certificate> = typed(&manifests, "Certificate")?;
        let mounted = items(spec_of(&manifests, GATEWAY)?, "/volumes").find(|volume| volume["name"] == "tls");
        let secret = mounted.map(|volume| &volume["secret"]["secretName"]).cloned().unwrap_or_default();
        let own = certificates.iter().find(|one| secret == *one.spec.secret_name);
        let own = own.ok_or_else(|| Error::bug(format!("no certificate for {secret}")))?;
        is_signed(own, &certificates, &typed(&manifests, "Issuer")?)?;
        let accepts = verifier(&own.spec.dns_names)?;
        let mut called = vec![format!("{GATEWAY}.{namespace}"), format!("{GATEWAY}.{namespace}.svc.cluster.local")];
        called.extend((0..16).map(|n| format!("{GATEWAY}-{n}.dwell-gateway-brokers.{namespace}.svc")));
        for monitor in typed::<PodMonitor>(&manifests, "PodMonitor")? {
            let endpoints = monitor.spec.pod_metrics_endpoints.into_iter().filter_map(|endpoint| endpoint.tls_config);
            for config in endpoints {
                assert_eq!(
                    (config.ca.secret.name.as_str(), config.ca.secret.key.as_str()),
                    (&*own.spec.secret_name, "ca.crt")
                );
                called.push(config.server_name);
            }
        }
        assert_eq!(called.len(), 19);
        assert!(called.iter().all(|name| accepts(name)), "{called:?} of {:?}", own.spec.dns_names);
        for other in ["dwell-gateway-0", "redis", "dwell-gateway-0.dwell-gateway-brokers.other.svc", "10.0.0.1"] {
            assert!(!accepts(other), "{other}");
        }
        checked += 1;
    }
    assert_eq!(checked, 1);
    Ok(())
}

/// From a certificate to the authority of its issuer, which signs itself.
fn is_signed(one: &Certificate, certificates: &[Certificate], issuers: &[Issuer]) -> Result<()> {
    let issuer = |one: &Certificate| {
        let found = issuers.iter().find(|issuer| issuer.metadata.name == one.spec.issuer_ref.name);
        found.ok_or_else(|| Error::bug(format!("no issuer {}", one.spec.issuer_ref.name)))
    };
    let IssuerSpec::Ca(authority) = &issuer(one)?.spec else {
        return Err(Error::bug("a certificate that signs itself has no ca.crt that others believe"));
    };
    let above = certificates.iter().find(|above| above.spec.secret_name == authority.secret_name);
    let above = above.ok_or_else(|| Error::bug(format!("no authority {}", authority.secret_name)))?;
    assert!(above.spec.is_ca && !one.spec.is_ca, "{above:?}");
    assert!(matches!(issuer(above)?.spec, IssuerSpec::SelfSigned(_)), "{above:?}");
    Ok(())
}

/// Whether a client that calls a name takes a certificate with these.
fn verifier(names: &[String]) -> Result<impl Fn(&str) -> bool> {
    let refused = |error: rcgen::Error| Error::bug(format!("a certificate: {error}"));
    let mut params = CertificateParams::new(Vec::new()).map_err(refused)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().map_err(refused)?).map_err(refused)?;
    let (params, key) = (CertificateParams::new(names.to_vec()), KeyPair::generate().map_err(refused)?);
    let certificate = params.and_then(|params| params.signed_by(&key, &authority)).map_err(refused)?;
    let certificate = certificate.der().clone();
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).map_err(|error| Error::bug(format!("an authority: {error}")))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let verifier = verifier.map_err(|error| Error::bug(format!("a verifier: {error}")))?;
    Ok(move |name: &str| {
        let Ok(name) = ServerName::try_from(name.to_owned()) else { return false };
        verifier.verify_server_cert(&certificate, &[], &name, &[], UnixTime::now()).is_ok()
    })
}
