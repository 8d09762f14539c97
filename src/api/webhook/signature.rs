//! Signing a POST, so that its receiver knows that it comes from this broker, and when.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::model::error::{Error, Result};

/// Makes signatures with one secret.
#[derive(Debug, Clone)]
pub(super) struct Signer(Hmac<Sha256>);

impl Signer {
    pub(super) fn new(secret: &[u8]) -> Result<Signer> {
        let mac = Hmac::new_from_slice(secret);
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

    /// RFC 4231, test cases 2 and 6.
    #[test]
    fn the_published_vectors_hold() -> Result<()> {
        assert_eq!(
            Signer::new(b"Jefe")?.hex(&[b"what do ya want ", b"", b"for nothing?"]),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            Signer::new(&[0xaa; 131])?.hex(&[b"Test Using Larger Than Block-Size Key - Hash Key First"]),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
        Ok(())
    }

    #[test]
    fn the_example_of_the_page_is_right() -> Result<()> {
        let signature = Signer::new(b"a secret")?.sign(1_767_323_045, b"close order 4711");
        let page = include_str!("../../../docs/how-to/webhooks.md");
        assert!(page.contains(&signature), "{signature}");
        Ok(())
    }
}
