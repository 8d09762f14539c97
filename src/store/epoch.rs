//! Who owns a pair: members and epochs.

use std::fmt;
use std::sync::Arc;

use crate::address::Address;
use crate::topic::Pair;

/// A process that may own pairs. It has a random part, so that a restarted process is another member.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(Arc<str>);

impl MemberId {
    /// A member of this process, named for people by `name` (cut to 64 of `A-Z a-z 0-9 . _ -`). The address under which
    /// others reach it is a part of its id, so that whoever sees a lease knows where its owner is.
    pub fn fresh(name: &str, advertised: Option<&Address>) -> MemberId {
        let keep = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let name: String = name.chars().filter(keep).take(64).collect();
        let address = advertised.map_or_else(String::new, |address| format!("@{address}"));
        MemberId(format!("{name}-{}{address}", random_text()).into())
    }

    /// The member that the store names.
    pub fn from_store(text: &str) -> MemberId {
        MemberId(text.into())
    }

    /// Where it is reached. `None` when it does not say so, and when what it says is no address: the store may hold
    /// what dwell never wrote.
    pub fn advertised(&self) -> Option<Address> {
        let (_, address) = self.0.split_once('@')?;
        Address::parse(address).ok()
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

/// What an owner claims when it renews.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The pair.
    pub pair: Pair,
    /// The epoch under which it owns the pair.
    pub epoch: Epoch,
}

/// 12 random characters: 62 bits, never used twice in practice.
fn random_text() -> String {
    std::iter::repeat_with(fastrand::alphanumeric).take(12).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MEMBER_BYTES_MAX;

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
        assert_ne!(MemberId::fresh("host", None), MemberId::fresh("host", None));
        assert!(MemberId::fresh("a b/{}:@é", None).as_str().starts_with("ab-"));
    }

    #[test]
    fn a_member_carries_its_address_and_no_other_text() {
        let address = Address::parse("unix:/run/d@well/b.sock").ok();
        assert_eq!(MemberId::fresh("host", address.as_ref()).advertised(), address);
        assert_eq!(MemberId::fresh("host", None).advertised(), None);
        for hostile in ["host-1@", "host-1@http://", "host-1@file:///etc/passwd", "host-1@http://169.254.169.254:80"] {
            assert_eq!(MemberId::from_store(hostile).advertised(), None, "{hostile}");
        }
        let longest =
            MemberId::fresh(&"h".repeat(100), Address::parse(&format!("unix:/{}", "a".repeat(106))).ok().as_ref());
        assert!(longest.as_str().len() <= MEMBER_BYTES_MAX);
    }
}
