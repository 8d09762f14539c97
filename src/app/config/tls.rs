//! TLS of the listener, as a configuration says it.

use std::path::{Path, PathBuf};

use super::reader::Reader;
use crate::api::http::{Listen, TlsFiles, check_certificates, check_key};

impl Reader<'_> {
    /// The files of the listener's TLS, if it has any.
    pub(super) fn tls(&mut self, listen: &Listen) -> Option<TlsFiles> {
        let accepted = "a file with one or more certificates as PEM";
        let certificates = |path: &str| check_certificates(Path::new(path)).map(|()| Some(PathBuf::from(path)));
        let cert = self.parsed("tls.cert_file", accepted, None, certificates);
        let key = self.parsed("tls.key_file", "a file with a private key as PEM", None, |path| {
            check_key(Path::new(path)).map(|()| Some(PathBuf::from(path)))
        });
        let client_ca = self.parsed("tls.client_ca_file", accepted, None, certificates);
        let given = ["tls.cert_file", "tls.key_file", "tls.client_ca_file"].map(|key| self.layers.get(key).is_some());
        let first = ["tls.cert_file", "tls.key_file", "tls.client_ca_file"].into_iter().zip(given).find(|(_, on)| *on);
        let first = first.map(|(key, _)| key)?;
        if !given[0] || !given[1] {
            self.refuse(first, "tls.cert_file and tls.key_file together", "is given without another one");
        } else if let Listen::Unix(_) = listen {
            self.refuse(first, "an address with a port in `listen`", "is for TLS, which a Unix socket does not need");
        }
        let files = TlsFiles { cert: cert?, key: key?, client_ca };
        if let Err(why) = files.check() {
            self.refuse("tls.key_file", "the key of the first certificate in tls.cert_file", why);
        }
        Some(files)
    }
}
