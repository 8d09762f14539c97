//! What becomes of a message whose time to live is over.

use serde::{Deserialize, Serialize};

/// What becomes of a message whose time to live is over before it was handed out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Expiry {
    /// It is gone.
    #[default]
    Drop,
    /// It is dead, with the reason `expired`.
    Bury,
}

impl Expiry {
    /// Both.
    pub const ALL: &[Expiry] = &[Expiry::Drop, Expiry::Bury];

    /// The stable name, as in the API and in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Expiry::Drop => "drop",
            Expiry::Bury => "bury",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Expiry> {
        Expiry::ALL.iter().copied().find(|expiry| expiry.name() == name)
    }
}
