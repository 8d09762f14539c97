//! How dwell begins an HTTP client: TLS by rustls with ring, and whose certificates it believes.
//!
//! Every client begins here. One that was begun otherwise would look for a cryptography that was installed for the whole
//! process, and panic without. Nothing here connects.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use crate::model::error::{Error, Result, innermost_cause};

/// Whose certificates are believed.
#[derive(Clone)]
pub struct Roots(Arc<RootCertStore>);

impl Roots {
    /// Nobody's: for `http://` and sockets.
    pub fn none() -> Roots {
        Roots(Arc::new(RootCertStore::empty()))
    }

    /// Those of the system.
    ///
    /// # Errors
    /// `Invalid` when it has none.
    pub fn system() -> Result<Roots> {
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        // Some that are old or odd are in every system.
        roots.add_parsable_certificates(found.certs);
        match roots.is_empty() {
            true => Err(Error::invalid("ca_file", "is needed: this system has no certificates of its own")),
            false => Ok(Roots(Arc::new(roots))),
        }
    }

    /// Those of a file, or without one those of the system, if any are needed.
    ///
    /// # Errors
    /// `Invalid` when there is a file that cannot be used, which `field` names, or no certificate at all.
    pub fn choose(field: &str, file: Option<&Path>, are_needed: bool) -> Result<Roots> {
        match file {
            Some(path) => Roots::read(path).map_err(|why| Error::invalid(field, why)),
            None if are_needed => Roots::system(),
            None => Ok(Roots::none()),
        }
    }

    /// Those that follow from the certificates of a file, as PEM. The error says what is wrong with it.
    pub fn read(path: &Path) -> std::result::Result<Roots, String> {
        Roots::parse(&std::fs::read(path).map_err(|error| format!("cannot be read: {error}"))?)
    }

    /// The same of PEM that was read before.
    pub fn parse(pem: &[u8]) -> std::result::Result<Roots, String> {
        let all: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let mut roots = RootCertStore::empty();
        for root in all.map_err(|error| format!("holds no whole certificate: {error}"))? {
            roots.add(root).map_err(|error| format!("holds a certificate that cannot be used: {error}"))?;
        }
        if roots.is_empty() {
            return Err("holds no certificate: PEM is expected".to_owned());
        }
        Ok(Roots(Arc::new(roots)))
    }
}

impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Roots({})", self.0.len())
    }
}

/// A client that believes those, and knows nothing else yet.
///
/// # Errors
/// `Bug` when the cryptography lacks what TLS needs.
pub fn client(roots: &Roots) -> Result<ClientBuilder> {
    let builder =
        ClientConfig::builder_with_provider(Arc::new(default_provider())).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| Error::bug(format!("cannot begin TLS: {error}")))?;
    let config = builder.with_root_certificates(roots.0.clone()).with_no_client_auth();
    Ok(reqwest::Client::builder().tls_backend_preconfigured(config))
}

/// A client of the broker: it says who it is, goes where it is told and nowhere else, and its caller decides about repeats.
///
/// # Errors
/// Those of [`client`].
pub fn broker_client(roots: &Roots) -> Result<ClientBuilder> {
    let builder = client(roots)?.user_agent(concat!("dwell/", env!("CARGO_PKG_VERSION")));
    Ok(builder.no_proxy().redirect(Policy::none()).retry(reqwest::retry::never()))
}

/// The client that was begun.
///
/// # Errors
/// `Bug` when it cannot be made.
pub fn build(builder: ClientBuilder) -> Result<Client> {
    builder.build().map_err(|error| Error::bug(format!("cannot make an HTTP client: {}", innermost_cause(&error))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_certificates_is_refused() -> std::result::Result<(), Box<dyn std::error::Error>> {
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
    fn a_client_that_believes_nobody_can_be_made_anywhere() {
        assert!(client(&Roots::none()).is_ok_and(|builder| builder.build().is_ok()));
    }
}
