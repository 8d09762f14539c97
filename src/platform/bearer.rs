//! A token itself. Printing it, also for debugging, shows nothing of it.

use std::fmt;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::model::limits::{TOKEN_BYTES_MAX, TOKEN_BYTES_MIN};
use crate::platform::secret::Secret;

/// What a token is compared by.
pub(crate) type Digest = [u8; 32];

/// The digest of anything.
pub(crate) fn digest(text: &str) -> Digest {
    Sha256::digest(text).into()
}

/// A token that is one by its form.
#[derive(Clone, PartialEq, Eq)]
pub struct Bearer {
    secret: Secret,
    digest: Digest,
}

impl Bearer {
    /// Reads what a file holds; white space around the token is none of it. The error says what is wrong, and nothing of
    /// what was read.
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

    /// Whether it has this digest; how long that takes says nothing about how alike they are.
    pub(crate) fn is(&self, other: &Digest) -> bool {
        self.digest.ct_eq(other).into()
    }

    /// The value of `Authorization` that shows it, for sending and for nothing else.
    pub fn authorization(&self) -> Secret {
        Secret::from(format!("Bearer {}", self.secret.expose()))
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_word_that_is_long_enough_and_no_error_shows_it() {
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
}
