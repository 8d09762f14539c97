//! The names of a log. It takes another one when records are handed over, so that how far it was replayed under the first
//! one never says more than it did then.

use std::fmt;
use std::str::FromStr;

use super::entry::Position;

/// The name of a log, and those it had before, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) now: String,
    before: Vec<Before>,
}

/// A name under which the records through this number may have been handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Before {
    name: String,
    through: u64,
}

impl Names {
    /// A name that no log had.
    pub(super) fn new() -> Names {
        Names { now: ulid::Ulid::new().to_string(), before: Vec::new() }
    }

    /// With another name, once the records from `first` through `end` may have been handed over under this one.
    pub(super) fn followed(self, first: Position, end: Position) -> Names {
        let Names { now: name, mut before } = self;
        before.retain(|before| before.through >= first.number());
        before.push(Before { name, through: end.number() });
        Names { before, ..Names::new() }
    }

    /// The name under which a record may have been handed over first.
    pub(super) fn handed_over_under(&self, at: Position) -> Option<String> {
        let before = self.before.iter().find(|before| at.number() <= before.through)?;
        Some(before.name.clone())
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.now)?;
        self.before.iter().try_for_each(|Before { name, through }| write!(f, " {name}:{through}"))
    }
}

impl FromStr for Names {
    type Err = ();

    fn from_str(text: &str) -> Result<Names, ()> {
        let mut words = text.split(' ');
        let now = words.next().filter(|name| !name.is_empty()).ok_or(())?.to_owned();
        let before = |word: &str| {
            let (name, through) = word.split_once(':')?;
            Some(Before { name: name.to_owned(), through: through.parse().ok()? })
        };
        let before = words.map(before).collect::<Option<_>>().ok_or(())?;
        Ok(Names { now, before })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_keeps_the_name_under_which_it_was_handed_over_first() {
        let first = Names::new();
        assert_eq!(first.handed_over_under(Position(1)), None);
        let second = first.clone().followed(Position(1), Position(7));
        let third = second.clone().followed(Position(7), Position(9));
        assert!(first.now != second.now && second.now != third.now);
        let under = |number| third.handed_over_under(Position(number));
        assert_eq!((under(7), under(8), under(10)), (Some(first.now.clone()), Some(second.now.clone()), None));
        let fourth = third.clone().followed(Position(10), Position(10));
        assert_eq!(fourth.handed_over_under(Position(9)), Some(third.now.clone()));
        for names in [first, third] {
            assert_eq!(names.to_string().parse(), Ok(names));
        }
        assert_eq!(("".parse::<Names>(), "a b".parse::<Names>()), (Err(()), Err(())));
    }
}
