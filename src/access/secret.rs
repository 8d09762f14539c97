//! A token itself. Printing it, also for debugging, shows nothing of it.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::limits::{TOKEN_BYTES_MAX, TOKEN_BYTES_MIN};

/// What a token is compared by.
pub(super) type Digest = [u8; 32];

/// The digest of anything.
pub(super) fn digest(text: &str) -> Digest {
    Sha256::digest(text).into()
}

/// A token. Clones share it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    text: Arc<str>,
    digest: Digest,
}

impl Secret {
    /// Reads what a file holds; white space around the token is none of it. The error says what is wrong, and nothing of
    /// what was read.
    pub fn parse(text: &str) -> Result<Secret, String> {
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
            _ => Ok(Secret { text: text.into(), digest: digest(text) }),
        }
    }

    /// Whether it has this digest; how long that takes says nothing about how alike they are.
    pub(super) fn is(&self, other: &Digest) -> bool {
        self.digest.ct_eq(other).into()
    }

    /// The value of `Authorization` that shows it, for sending and for nothing else.
    pub fn authorization(&self) -> String {
        format!("Bearer {}", self.text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_word_that_is_long_enough_and_no_error_shows_it() {
        let word = |length: usize| "s3cr3t!~".repeat(length).chars().take(length).collect::<String>();
        for good in [word(16), format!(" {}\r\n", word(16)), word(1_024)] {
            assert!(Secret::parse(&good).is_ok_and(|secret| secret.is(&digest(good.trim()))), "{good:?}");
        }
        let inside = format!("{} {}", word(16), word(16));
        for bad in [String::new(), " \n".to_owned(), word(15), word(1_025), inside, format!("{}é", word(16))] {
            let why = Secret::parse(&bad).err().unwrap_or_default();
            assert!(!why.is_empty() && !why.contains("s3cr3t"), "{bad:?}: {why}");
        }
        let shown = Secret::parse(&word(16)).map(|secret| format!("{secret:?}"));
        assert_eq!(shown.as_deref(), Ok("Secret(***)"));
    }
}
