//! HTTP clients with TLS by rustls and ring.
//!
//! Every client is built here: a default one would look for a process-wide cryptography provider, and panic.

use std::error::Error as StdError;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, Error as RustlsError, RootCertStore};

use crate::model::error::{Error, Result, innermost_cause};
use crate::model::time::Timestamp;

#[derive(Clone)]
pub struct Roots(Arc<RootCertStore>);

impl Roots {
    pub fn none() -> Roots {
        Roots(Arc::new(RootCertStore::empty()))
    }

    pub fn system() -> Result<Roots> {
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        // Every system has some that are old or invalid.
        roots.add_parsable_certificates(found.certs);
        match roots.is_empty() {
            true => Err(Error::invalid("ca_file", "is needed: this system has no certificates")),
            false => Ok(Roots(Arc::new(roots))),
        }
    }

    /// The CA certificates of a file, otherwise those of the system. # Errors: `Invalid` when the file, which `field`
    /// names, cannot be used, or there are no certificates.
    pub fn choose(field: &str, file: Option<&Path>, are_needed: bool) -> Result<Roots> {
        match file {
            Some(path) => Roots::read(path).map_err(|why| Error::invalid(field, why)),
            None if are_needed => Roots::system(),
            None => Ok(Roots::none()),
        }
    }

    pub fn read(path: &Path) -> Result<Roots, String> {
        Roots::parse(&std::fs::read(path).map_err(|error| format!("cannot be read: {error}"))?)
    }

    pub fn parse(pem: &[u8]) -> Result<Roots, String> {
        let mut roots = RootCertStore::empty();
        for root in certificates(pem)? {
            roots.add(root).map_err(|error| format!("holds a certificate that cannot be used: {error}"))?;
        }
        Ok(Roots(Arc::new(roots)))
    }
}

impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Roots({})", self.0.len())
    }
}

pub fn client(roots: &Roots) -> Result<ClientBuilder> {
    let builder =
        ClientConfig::builder_with_provider(Arc::new(default_provider())).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| Error::bug(format!("cannot begin TLS: {error}")))?;
    let config = builder.with_root_certificates(roots.0.clone()).with_no_client_auth();
    Ok(reqwest::Client::builder().tls_backend_preconfigured(config))
}

pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if all.is_empty() => Err("holds no certificate: PEM is expected".to_owned()),
        Ok(all) => Ok(all),
        Err(error) => Err(format!("holds no whole certificate: {error}")),
    }
}

/// When the first of these certificates ends, in whole seconds; `None` if that cannot be read.
///
/// webpki says it when it refuses a certificate at a time that no certificate reaches, so nothing else that parses X.509 is needed.
pub(crate) fn end_of(certificates: &[CertificateDer<'_>]) -> Option<Timestamp> {
    let (roots, algorithms) = (RootCertStore::empty(), default_provider().signature_verification_algorithms.all);
    let end = |certificate: &CertificateDer<'_>| {
        let parsed = ParsedCertificate::try_from(certificate).ok()?;
        let never = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
        match verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], never, algorithms) {
            Err(RustlsError::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
                Some(Timestamp::from_ms(not_after.as_secs().saturating_mul(1_000)))
            }
            _ => None,
        }
    };
    certificates.iter().filter_map(end).min()
}

pub fn broker_client(roots: &Roots) -> Result<ClientBuilder> {
    let builder = client(roots)?.user_agent(concat!("dwell/", env!("CARGO_PKG_VERSION")));
    Ok(builder.no_proxy().redirect(Policy::none()).retry(reqwest::retry::never()))
}

pub fn build(builder: ClientBuilder) -> Result<Client> {
    builder.build().map_err(|error| Error::bug(format!("cannot make an HTTP client: {}", innermost_cause(&error))))
}

/// Whether a request failed because its connection was closed before anything was answered.
pub(crate) fn was_closed(error: &reqwest::Error) -> bool {
    const CLOSED: [ErrorKind; 3] = [ErrorKind::ConnectionReset, ErrorKind::ConnectionAborted, ErrorKind::BrokenPipe];
    let mut cause = if error.is_connect() { None } else { StdError::source(error) };
    while let Some(this) = cause {
        let by_hyper = this.downcast_ref::<hyper::Error>();
        let by_system = this.downcast_ref::<io::Error>().map(io::Error::kind);
        if by_hyper.is_some_and(|error| error.is_incomplete_message() || error.is_canceled() || error.is_closed())
            || by_system.is_some_and(|kind| CLOSED.contains(&kind))
        {
            return true;
        }
        cause = this.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_certificates_is_refused() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("ca.pem");
        let read = || Roots::read(&path).err().unwrap_or_default();
        assert!(read().starts_with("cannot be read: No such file"), "{}", read());
        for nothing in ["", "nonsense"] {
            std::fs::write(&path, nothing)?;
            assert_eq!(read(), "holds no certificate: PEM is expected");
        }
        std::fs::write(&path, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")?;
        assert!(read().starts_with("holds a certificate that cannot be used"), "{}", read());
        Ok(())
    }

    #[test]
    fn client_without_trusted_roots_can_be_built() {
        assert!(client(&Roots::none()).is_ok_and(|builder| builder.build().is_ok()));
    }
}
