//! Signing a POST, so that its receiver knows that it comes from this broker, and when.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::error::{Error, Result};

/// What dwell and the application share. Printing it, also for debugging, shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Any bytes but none.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Option<Secret> {
        Some(Secret(bytes.into())).filter(|secret| !secret.0.is_empty())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// Makes signatures with one secret.
#[derive(Debug, Clone)]
pub(super) struct Signer(Hmac<Sha256>);

impl Signer {
    pub(super) fn new(secret: &Secret) -> Result<Signer> {
        let mac = Hmac::new_from_slice(&secret.0);
        mac.map(Signer).map_err(|error| Error::bug(format!("a secret of any length makes a signer: {error}")))
    }

    /// The value of `Dwell-Signature`: the time is signed with the body, so that an old POST cannot be sent again as new.
    pub(super) fn sign(&self, unix_seconds: u64, body: &[u8]) -> String {
        let time = unix_seconds.to_string();
        format!("t={time},v1={}", self.hex(&[time.as_bytes(), b".", body]))
    }

    fn hex(&self, parts: &[&[u8]]) -> String {
        let mut mac = self.0.clone();
        for part in parts {
            mac.update(part);
        }
        mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signer(secret: &[u8]) -> Result<Signer> {
        Signer::new(&Secret::new(secret).ok_or_else(|| Error::bug("an empty secret"))?)
    }

    /// RFC 4231, test cases 2 and 6.
    #[test]
    fn the_published_vectors_hold() -> Result<()> {
        assert_eq!(
            signer(b"Jefe")?.hex(&[b"what do ya want ", b"", b"for nothing?"]),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            signer(&[0xaa; 131])?.hex(&[b"Test Using Larger Than Block-Size Key - Hash Key First"]),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
        Ok(())
    }

    #[test]
    fn the_example_of_the_protocol_page_is_right() -> Result<()> {
        let signature = signer(b"a secret")?.sign(1_767_323_045, b"close order 4711");
        let page = include_str!("../../docs/protocol.md");
        assert!(page.contains(&signature), "{signature}");
        Ok(())
    }

    #[test]
    fn a_secret_is_never_shown_and_never_empty() {
        assert_eq!(format!("{:?}", Secret::new("s3cret")), "Some(Secret(***))");
        assert_eq!(Secret::new(""), None);
    }
}
