//! A set of numbers as people write it: `3,7-9`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::run::Failure;

pub(crate) struct Numbers(pub(crate) BTreeSet<usize>);

impl fmt::Display for Numbers {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<usize> = self.0.iter().copied().collect();
        let spans = numbers.chunk_by(|before, after| before + 1 == *after);
        for (place, span) in spans.enumerate() {
            let comma = if place > 0 { "," } else { "" };
            match span {
                [first, .., last] => write!(to, "{comma}{first}-{last}")?,
                [only] => write!(to, "{comma}{only}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

impl FromStr for Numbers {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Numbers, Failure> {
        let mut numbers = BTreeSet::new();
        for span in text.split(',').filter(|span| !span.is_empty()) {
            let (first, last) = span.split_once('-').unwrap_or((span, span));
            numbers.extend(first.parse::<usize>()?..=last.parse()?);
        }
        Ok(Numbers(numbers))
    }
}
