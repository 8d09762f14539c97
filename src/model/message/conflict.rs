//! The policies of a push whose id is there.

use crate::model::error::{Error, Fault, Result};
use crate::model::limits::{CALL_IDS_MAX, POLICY_IDS_MAX};
use crate::model::spelling::names;

/// Policy of a push whose id is already there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Conflict {
    #[default]
    Keep,
    Reject,
    /// Replaces a waiting message; one that is in flight or dead stays, and the push is refused.
    Replace,
    /// Gives a waiting message its due time; one that is in flight or dead stays, and the push is refused.
    Debounce,
    /// Follows a message that is in flight, instead of one that does already: it takes its place once that has ended. One that
    /// waits or is dead stays, and the push is a duplicate. Each group decides for itself.
    After,
}

names! { Conflict::name:
    Keep => "keep",
    Reject => "reject",
    Replace => "replace",
    Debounce => "debounce",
    After => "after",
}

impl Conflict {
    /// Messages that one call to the store pushes under this policy.
    pub fn call_ids_max(self) -> usize {
        match self {
            Conflict::Keep => CALL_IDS_MAX,
            Conflict::Reject | Conflict::Replace | Conflict::Debounce | Conflict::After => POLICY_IDS_MAX,
        }
    }
}

impl std::str::FromStr for Conflict {
    type Err = Error;

    fn from_str(text: &str) -> Result<Conflict> {
        let known = Conflict::ALL.into_iter().find(|conflict| conflict.name() == text);
        known.ok_or_else(|| {
            let why = format!("{text:?} is not one of keep, reject, replace, debounce, after");
            Error::wrong(Fault::Choice, "conflict", why)
        })
    }
}
