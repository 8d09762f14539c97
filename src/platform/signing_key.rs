//! A secret key that signs what dwell gives out and takes back, so that nobody else can make it or change it.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

use crate::model::error::{Error, Result};
use crate::model::limits::RECEIPT_KEYS_MAX;

const KEY_BYTES: usize = 32;
/// Bytes that SHA-256 takes in at once. A shorter key of HMAC is filled up with zeros.
const BLOCK_BYTES: usize = 64;
/// Bytes of a signature: 96 bits of HMAC-SHA256. A guess can only be tried at a broker, so they are enough.
pub const SIGNATURE_BYTES: usize = 12;

/// Bytes that nobody can guess. Errors: `Unavailable` when the operating system has none.
pub fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut bytes).map_err(|_| Error::unavailable("the operating system gave no random numbers"))?;
    Ok(bytes)
}

/// A random key of 256 bits. [`SigningKey::text`] is the only way to see it.
///
/// Clones share it: every owned partition has one.
#[derive(Clone)]
pub struct SigningKey(Arc<Keyed>);

struct Keyed {
    bytes: [u8; KEY_BYTES],
    /// HMAC that has read the key: half of the work of a short text.
    keyed: Hmac<Sha256>,
}

impl SigningKey {
    /// Errors: `Unavailable` when the operating system has no random numbers.
    pub fn fresh() -> Result<SigningKey> {
        Ok(SigningKey::of(random()?))
    }

    /// `None` for a text that is no key.
    pub fn from_text(text: &str) -> Option<SigningKey> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        Some(SigningKey::of(bytes.try_into().ok()?))
    }

    fn of(bytes: [u8; KEY_BYTES]) -> SigningKey {
        let mut block = [0; BLOCK_BYTES];
        block[..KEY_BYTES].copy_from_slice(&bytes);
        SigningKey(Arc::new(Keyed { bytes, keyed: Hmac::new(&block.into()) }))
    }

    /// The key itself, to store it: 43 characters.
    pub fn text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0.bytes)
    }

    pub fn sign(&self, bytes: &[u8]) -> [u8; SIGNATURE_BYTES] {
        let code = self.0.keyed.clone().chain_update(bytes).finalize().into_bytes();
        std::array::from_fn(|at| code[at])
    }

    /// Compares in constant time.
    pub fn has_signed(&self, bytes: &[u8], signature: &[u8]) -> bool {
        self.sign(bytes).ct_eq(signature).into()
    }
}

impl PartialEq for SigningKey {
    fn eq(&self, other: &SigningKey) -> bool {
        self.0.bytes.ct_eq(&other.0.bytes).into()
    }
}

impl Eq for SigningKey {}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(***)")
    }
}

/// The keys that are known, the newest first; at most [`RECEIPT_KEYS_MAX`].
#[derive(Debug)]
pub struct KeyRing(RwLock<Arc<[SigningKey]>>);

impl KeyRing {
    pub fn new(keys: impl IntoIterator<Item = SigningKey>) -> KeyRing {
        KeyRing(RwLock::new(keys.into_iter().take(RECEIPT_KEYS_MAX).collect()))
    }

    pub fn all(&self) -> Arc<[SigningKey]> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn newest(&self) -> Option<SigningKey> {
        self.all().first().cloned()
    }

    /// Makes a key the newest; the oldest of the others are forgotten. False if it is that already.
    pub fn learn(&self, key: &SigningKey) -> bool {
        let mut keys = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if keys.first() == Some(key) {
            return false;
        }
        let others = keys.iter().filter(|known| *known != key).cloned();
        *keys = std::iter::once(key.clone()).chain(others).take(RECEIPT_KEYS_MAX).collect();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_random_hidden_and_read_back() -> Result<()> {
        let key = SigningKey::fresh()?;
        assert_ne!(key, SigningKey::fresh()?);
        assert_eq!((SigningKey::from_text(&key.text()), key.text().len()), (Some(key.clone()), 43));
        assert_eq!(format!("{key:?}"), "SigningKey(***)");
        for bad in ["", "x", &key.text()[1..], &format!("{}A", key.text()), &"é".repeat(22)] {
            assert_eq!(SigningKey::from_text(bad), None, "{bad}");
        }
        Ok(())
    }

    /// The second test case of RFC 4231, cut as its fifth one is.
    #[test]
    fn signature_is_the_beginning_of_hmac_sha256() {
        let mut bytes = [0; KEY_BYTES];
        bytes[..4].copy_from_slice(b"Jefe");
        let signature = SigningKey::of(bytes).sign(b"what do ya want for nothing?");
        let published = [0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24, 0x26];
        assert_eq!(signature, published);
    }

    #[test]
    fn only_the_whole_signature_of_the_same_text_and_key_fits() -> Result<()> {
        let key = SigningKey::fresh()?;
        let signature = key.sign(b"text");
        assert!(key.has_signed(b"text", &signature));
        assert!(!key.has_signed(b"Text", &signature) && !SigningKey::fresh()?.has_signed(b"text", &signature));
        for length in 0..SIGNATURE_BYTES {
            assert!(!key.has_signed(b"text", &signature[..length]), "{length}");
        }
        Ok(())
    }

    #[test]
    fn key_ring_has_the_newest_key_first_and_forgets_the_oldest() -> Result<()> {
        let keys = (0..=RECEIPT_KEYS_MAX).map(|_| SigningKey::fresh()).collect::<Result<Vec<_>>>()?;
        let ring = KeyRing::new(None);
        assert_eq!(ring.newest(), None);
        assert!(keys.iter().all(|key| ring.learn(key) && !ring.learn(key)));
        let newest: Vec<_> = keys.iter().rev().take(RECEIPT_KEYS_MAX).cloned().collect();
        assert_eq!(*ring.all(), *newest);
        assert!(ring.learn(&newest[1]));
        assert_eq!((ring.newest(), ring.all().len()), (Some(newest[1].clone()), RECEIPT_KEYS_MAX));
        Ok(())
    }
}
