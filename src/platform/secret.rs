//! Secrets, access tokens, and files with tokens.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::model::limits::{TOKEN_BYTES_MAX, TOKEN_BYTES_MIN};
use crate::platform::clock::Instant;

/// A text that is never shown, not even its length; [`Secret::expose`] returns it.
///
/// Comparisons of equal lengths take constant time. Memory is not wiped: the libraries that get the text copy it.
#[derive(Clone, Default, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    pub fn new(text: impl Into<Box<str>>) -> Secret {
        Secret(text.into())
    }

    pub fn expose(&self) -> &str {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        self.0.as_bytes().ct_eq(other.0.as_bytes()).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Secret {
        Secret::new(text)
    }
}

impl From<&String> for Secret {
    fn from(text: &String) -> Secret {
        Secret::new(text.as_str())
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Secret {
        Secret::new(text)
    }
}

pub(crate) type Digest = [u8; 32];

pub(crate) fn digest(text: &str) -> Digest {
    Sha256::digest(text).into()
}

#[derive(Clone, PartialEq, Eq)]
pub struct Bearer {
    secret: Secret,
    digest: Digest,
}

impl Bearer {
    /// Ignores surrounding white space. The error contains nothing of the text.
    pub fn parse(text: &str) -> Result<Bearer, String> {
        let text = text.trim();
        match text {
            "" => Err("is empty".to_owned()),
            _ if !text.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Err("holds something that is no visible ASCII character: a token is one word".to_owned())
            }
            _ if !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&text.len()) => Err(format!(
                "holds a token of {} characters; {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} are needed",
                text.len()
            )),
            _ => Ok(Bearer { secret: Secret::from(text), digest: digest(text) }),
        }
    }

    pub(crate) fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Compares in constant time.
    pub(crate) fn is(&self, other: &Digest) -> bool {
        self.digest.ct_eq(other).into()
    }

    pub fn authorization(&self) -> Secret {
        Secret::from(format!("Bearer {}", self.secret.expose()))
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer(***)")
    }
}

const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Bytes of white space that are still read.
const AROUND: usize = 64;

const READABLE_BY_OTHERS: u32 = 0o004;

/// A file that contains only a token. It is read again, at most once a second, when the token is asked for; the time stamp
/// is ignored, since a replaced file may have the same.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    read: Mutex<Option<Reading>>,
}

#[derive(Debug)]
struct Reading {
    at: Instant,
    found: Result<Bearer, String>,
}

impl TokenFile {
    pub fn new(path: PathBuf) -> TokenFile {
        TokenFile { path, read: Mutex::default() }
    }

    /// # Errors: Why there is no valid token; nothing of the content.
    pub fn token(&self, now: Instant) -> Result<Bearer, String> {
        if let Some(read) = &*self.lock()
            && now.since(read.at) < LOOK_AGAIN
        {
            return read.found.clone();
        }
        self.reread(now)
    }

    /// Ignores the cache: for a client whose token was refused.
    pub fn reread(&self, now: Instant) -> Result<Bearer, String> {
        let mut read = self.lock();
        let (found, is_open) = match TokenFile::read(&self.path) {
            Ok((token, is_open)) => (Ok(token), is_open),
            Err(why) => (Err(why), false),
        };
        let before = read.as_ref().map(|read| &read.found);
        if before != Some(&found) {
            self.note(before.is_none(), &found, is_open);
        }
        *read = Some(Reading { at: now, found: found.clone() });
        found
    }

    /// The token, and whether other users may read the file.
    pub fn read(path: &Path) -> Result<(Bearer, bool), String> {
        let why = |error: std::io::Error| format!("cannot be read: {error}");
        let file = File::open(path).map_err(why)?;
        let mode = file.metadata().map_err(why)?.permissions().mode();
        let mut bytes = Vec::new();
        file.take((TOKEN_BYTES_MAX + AROUND) as u64).read_to_end(&mut bytes).map_err(why)?;
        let text = String::from_utf8(bytes).map_err(|_| "is not text".to_owned())?;
        Bearer::parse(&text).map(|token| (token, mode & READABLE_BY_OTHERS != 0))
    }

    fn note(&self, first: bool, found: &Result<Bearer, String>, is_open: bool) {
        let file = self.path.display();
        match found {
            Err(why) => tracing::warn!(%file, why, "a token file holds no token; what it held is refused"),
            Ok(_) if !first => tracing::info!(%file, "a token file holds another token"),
            Ok(_) => {}
        }
        if is_open {
            tracing::warn!(%file, "everybody on this machine may read a token file; chmod o-r helps");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Reading>> {
        // Nothing panics while the lock is held.
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    #[test]
    fn secret_is_hidden_in_debug_and_unchanged() {
        let secret = Secret::from("s3cret");
        assert_eq!(format!("{secret:?} {:?}", Some(("user", &secret))), "*** Some((\"user\", ***))");
        assert_eq!(secret.expose(), "s3cret");
        assert!(!secret.is_empty() && Secret::default().is_empty());
    }

    #[test]
    fn only_equal_secrets_are_equal() {
        let secret = Secret::from("s3cret");
        assert_eq!(secret, Secret::from("s3cret".to_owned()));
        for other in ["", "s3cre", "s3crets", "S3cret", "s3creT"] {
            assert_ne!(secret, Secret::from(other), "{other}");
        }
        assert_eq!(Secret::default(), Secret::from(""));
    }

    #[test]
    fn token_format_is_enforced_without_leaking_it() {
        let word = |length: usize| "s3cr3t!~".repeat(length).chars().take(length).collect::<String>();
        for good in [word(16), format!(" {}\r\n", word(16)), word(1_024)] {
            assert!(Bearer::parse(&good).is_ok_and(|secret| secret.is(&digest(good.trim()))), "{good:?}");
        }
        let inside = format!("{} {}", word(16), word(16));
        for bad in [String::new(), " \n".to_owned(), word(15), word(1_025), inside, format!("{}é", word(16))] {
            let why = Bearer::parse(&bad).err().unwrap_or_default();
            assert!(!why.is_empty() && !why.contains("s3cr3t"), "{bad:?}: {why}");
        }
        let shown = Bearer::parse(&word(16)).map(|secret| format!("{secret:?}"));
        assert_eq!(shown.as_deref(), Ok("Bearer(***)"));
    }

    #[test]
    fn world_readable_file_is_flagged_and_a_large_one_refused() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("token");
        std::fs::write(&path, "0123456789abcdef\n")?;
        for (mode, open) in [(0o600, false), (0o640, false), (0o644, true)] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode))?;
            assert_eq!(TokenFile::read(&path).map(|(_, open)| open), Ok(open), "{mode:o}");
        }
        std::fs::write(&path, "x".repeat(10 * TOKEN_BYTES_MAX))?;
        assert!(TokenFile::read(&path).is_err());
        std::fs::write(&path, b"0123456789abcdef\xff")?;
        assert_eq!(TokenFile::read(&path).err().as_deref(), Some("is not text"));
        assert!(TokenFile::read(dir.path()).is_err_and(|why| why.starts_with("cannot be read")));
        Ok(())
    }
}
