//! What a broker shows to others when it forwards, and whose certificates it believes.

use std::path::PathBuf;

use reqwest::header::HeaderValue;

use crate::access::TokenFile;
use crate::address::Address;
use crate::clock::Instant;
use crate::error::Result;
use crate::https::Roots;

/// The files of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CredentialFiles {
    /// The token that is shown. Whoever may write to the store may have it sent to a place of their choice that is as near
    /// as this broker's own, so it is one that is good for consuming and nothing else.
    pub token: Option<PathBuf>,
    /// The certificates that others' have to follow from; without, the system's.
    pub ca: Option<PathBuf>,
}

/// What is shown and believed.
#[derive(Debug)]
pub struct Credentials {
    token: Option<TokenFile>,
    roots: Roots,
}

impl Credentials {
    /// Those of a broker that is reached at `own`, if others reach it.
    ///
    /// # Errors
    /// `Invalid` when certificates are needed and cannot be read.
    pub fn open(files: CredentialFiles, own: Option<&Address>) -> Result<Credentials> {
        let roots = Roots::choose("group.ca_file", files.ca.as_deref(), own.is_some_and(Address::is_tls))?;
        Ok(Credentials { token: files.token.map(TokenFile::new), roots })
    }

    /// Nothing, and nobody.
    pub(super) fn none() -> Credentials {
        Credentials { token: None, roots: Roots::none() }
    }

    /// The value of `Authorization`, if there is a token. The error says why it cannot be read.
    pub(super) fn authorization(&self, now: Instant) -> std::result::Result<Option<HeaderValue>, String> {
        let Some(file) = &self.token else { return Ok(None) };
        let token = file.token(now).map_err(|why| format!("the own token {why}"))?;
        let value = HeaderValue::from_str(token.authorization().expose());
        let mut value = value.map_err(|_| "the own token cannot be sent".to_owned())?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    pub(super) fn roots(&self) -> &Roots {
        &self.roots
    }
}
