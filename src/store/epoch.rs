//! Who owns a pair: members and epochs.

use std::fmt;
use std::sync::Arc;

use crate::model::limits::MEMBER_BYTES_MAX;
use crate::model::topic::GroupPartition;

/// A process that may own pairs. It has a random part, so that a restarted process is another member.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(Arc<str>);

impl MemberId {
    /// A member of this process, named for people by `name` (cut to 64 of `A-Z a-z 0-9 . _ -`).
    pub fn fresh(name: &str) -> MemberId {
        let name: String = name.chars().filter(is_plain).take(64).collect();
        MemberId(format!("{name}-{}", random_text()).into())
    }

    /// The member that the store names.
    pub fn from_store(text: &str) -> MemberId {
        MemberId(text.into())
    }

    /// Whether dwell can have written it: the store may hold what dwell never wrote.
    pub fn is_plausible(&self) -> bool {
        (1..=MEMBER_BYTES_MAX).contains(&self.0.len()) && self.0.chars().all(|c| is_plain(&c))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One acquisition of a pair. Compared for equality only: after a data loss of the store a number may come again,
/// its random token never does.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Epoch {
    number: u64,
    token: Arc<str>,
}

impl Epoch {
    /// The epoch that follows number `number`, with a token that was never used.
    pub fn after(number: u64) -> Epoch {
        Epoch { number: number.saturating_add(1), token: random_text().into() }
    }

    /// Its number, for people; tokens tell epochs apart.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether it is what an owner leaves that gave its lease up: nobody has it.
    pub fn is_nobodys(&self) -> bool {
        &*self.token == "-"
    }

    /// Reads `<number>.<token>`.
    pub fn parse(text: &str) -> Option<Epoch> {
        let (number, token) = text.split_once('.')?;
        let plain = !token.is_empty() && token.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        plain.then_some(Epoch { number: number.parse().ok()?, token: token.into() })
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.number, self.token)
    }
}

/// The current epoch of a pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// The epoch; `None` if the last one was given up.
    pub epoch: Option<Epoch>,
    /// Who holds the lease; nobody does while it has lapsed.
    pub member: Option<MemberId>,
}

/// What an owner claims when it renews.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The pair.
    pub pair: GroupPartition,
    /// The epoch under which it owns the pair.
    pub epoch: Epoch,
}

/// Whether a member's id may contain it.
fn is_plain(c: &char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

/// 12 random characters: 62 bits, never used twice in practice.
pub(crate) fn random_text() -> String {
    std::iter::repeat_with(fastrand::alphanumeric).take(12).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_read_back_and_never_comes_twice() {
        let epoch = Epoch::after(16);
        assert_eq!(Epoch::parse(&epoch.to_string()), Some(epoch.clone()));
        assert_ne!(Epoch::after(16), epoch);
        for bad in ["", "17", "17.", ".a", "x.a", "17.a/b", "17.a b"] {
            assert_eq!(Epoch::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_member_is_new_each_time_and_its_name_is_clean() {
        assert_ne!(MemberId::fresh("host"), MemberId::fresh("host"));
        assert!(MemberId::fresh("a b/{}:@é").as_str().starts_with("ab-"));
    }

    #[test]
    fn only_what_dwell_writes_is_plausible() {
        for name in ["", "host", "a b/{}:@é", &"h".repeat(100)] {
            assert!(MemberId::fresh(name).is_plausible(), "{name}");
        }
        for hostile in ["", "a{b}", "a:b", "a b", "a\nb", "é", &"h".repeat(MEMBER_BYTES_MAX + 1)] {
            assert!(!MemberId::from_store(hostile).is_plausible(), "{hostile}");
        }
    }
}
