//! What is never shown: passwords, tokens, keys, and URLs that may hold one.

use std::fmt;

use subtle::ConstantTimeEq as _;

/// A text that is never shown. Printing it for debugging says nothing of it, not even how long it is, and it cannot be
/// printed otherwise: who needs the text says so with [`Secret::expose`].
///
/// Comparing takes as long wherever two secrets of one length differ, so that nobody can find one out letter by letter.
/// The memory is not wiped: the libraries that get the text keep copies of their own.
#[derive(Clone, Default, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// Any text, also an empty one.
    pub fn new(text: impl Into<Box<str>>) -> Secret {
        Secret(text.into())
    }

    /// The text: to be handed to what needs it, never to be logged, shown, or put into an error.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether there is no text.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown_and_is_what_it_was() {
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
}
