//! What is known of the store's clock over a restart, while the store does not answer.

use std::fmt;
use std::str::FromStr;

use crate::model::error::Error;

/// Begins the text of a note. A text without it is an offset alone, as an earlier version of dwell wrote it.
const VERSION: &str = "2";

/// Stands for a boot that has no id.
const NO_BOOT: &str = "-";

/// The store's clock beside the clocks of this machine, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockNote {
    /// The boot of the machine; `None` where the system does not name it.
    pub boot_id: Option<String>,
    /// The store's time minus the time since that boot, in microseconds.
    pub since_boot_us: i64,
    /// The store's time minus the wall clock's, in microseconds.
    pub ahead_us: i64,
    /// The store's time at that moment, in microseconds since 1970.
    pub store_us: i64,
}

/// The clocks of this machine, read at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Here {
    /// As in [`ClockNote::boot_id`].
    pub(super) boot_id: Option<String>,
    /// Microseconds since the boot.
    pub(super) boot_us: i64,
    /// The wall clock, in microseconds since 1970.
    pub(super) wall_us: i64,
}

impl ClockNote {
    /// A note of this moment, for an offset from the boot clock.
    pub(super) fn of(here: Here, since_boot_us: i64) -> ClockNote {
        let store_us = here.boot_us.saturating_add(since_boot_us);
        ClockNote { boot_id: here.boot_id, since_boot_us, ahead_us: store_us.saturating_sub(here.wall_us), store_us }
    }

    /// The store's time minus the time since the boot, in microseconds, as far as this note tells. On the same boot
    /// nobody can have set that clock; on another one the wall clock counts.
    ///
    /// # Errors
    /// `Unavailable` when one of the clocks went back: behind the note, or the wall clock behind `newest_us`, which it had
    /// reached before.
    pub(super) fn offset_us(&self, here: &Here, newest_us: Option<i64>) -> Result<i64, Error> {
        if here.boot_id.is_some() && self.boot_id == here.boot_id {
            let store_us = here.boot_us.saturating_add(self.since_boot_us);
            return if store_us < self.store_us { Err(gone_back()) } else { Ok(self.since_boot_us) };
        }
        let store_us = here.wall_us.saturating_add(self.ahead_us);
        if store_us < self.store_us || newest_us.is_some_and(|newest_us| here.wall_us < newest_us) {
            return Err(gone_back());
        }
        Ok(store_us.saturating_sub(here.boot_us))
    }

    /// Whether one of the offsets is another than in an earlier note of the same boot, by more than so many microseconds.
    pub(super) fn is_off(&self, earlier: &ClockNote, by_us: u64) -> bool {
        self.since_boot_us.abs_diff(earlier.since_boot_us) > by_us || self.ahead_us.abs_diff(earlier.ahead_us) > by_us
    }
}

fn gone_back() -> Error {
    Error::unavailable(
        "the clock of this machine is behind what was noted before, and the store has not said what time it is: no due time \
         is fixed until it has",
    )
}

impl fmt::Display for ClockNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClockNote { boot_id, since_boot_us, ahead_us, store_us } = self;
        write!(f, "{VERSION} {} {since_boot_us} {ahead_us} {store_us}", boot_id.as_deref().unwrap_or(NO_BOOT))
    }
}

impl FromStr for ClockNote {
    type Err = Error;

    fn from_str(text: &str) -> Result<ClockNote, Error> {
        let wrong = || Error::corrupt(format!("no note of the store's clock: {text:?}"));
        let number = |text: &str| text.parse::<i64>().map_err(|_| wrong());
        match text.split(' ').collect::<Vec<_>>()[..] {
            [ahead_us] => Ok(ClockNote { boot_id: None, since_boot_us: 0, ahead_us: number(ahead_us)?, store_us: 0 }),
            [VERSION, boot_id, since_boot_us, ahead_us, store_us] => Ok(ClockNote {
                boot_id: Some(boot_id.to_owned()).filter(|id| id != NO_BOOT),
                since_boot_us: number(since_boot_us)?,
                ahead_us: number(ahead_us)?,
                store_us: number(store_us)?,
            }),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_US: i64 = 3_600_000_000;

    fn here(boot_id: Option<&str>, boot_us: i64, wall_us: i64) -> Here {
        Here { boot_id: boot_id.map(str::to_owned), boot_us, wall_us }
    }

    /// At noon by the wall clock, two hours after the boot `a`, with a store that is five seconds ahead.
    fn noted() -> ClockNote {
        ClockNote::of(here(Some("a"), 2 * HOUR_US, 12 * HOUR_US), 10 * HOUR_US + 5_000_000)
    }

    #[test]
    fn a_note_is_read_back_and_garbage_is_not() {
        for note in [noted(), ClockNote { boot_id: None, since_boot_us: -7, ahead_us: i64::MIN, store_us: 0 }] {
            assert_eq!(note.to_string().parse(), Ok(note));
        }
        let old = ClockNote { boot_id: None, since_boot_us: 0, ahead_us: -1_234_567, store_us: 0 };
        assert_eq!("-1234567".parse(), Ok(old));
        for garbage in ["", "x", "2 a", "2 a 1 2", "2 a 1 2 x", "3 a 1 2 3", "2 a 1 2 3 4"] {
            assert!(garbage.parse::<ClockNote>().is_err(), "{garbage}");
        }
    }

    #[test]
    fn on_the_same_boot_the_wall_clock_may_be_anything() {
        let note = noted();
        assert_eq!(note.ahead_us, 5_000_000);
        for wall_us in [0, 12 * HOUR_US, 90 * HOUR_US] {
            let later = here(Some("a"), 3 * HOUR_US, wall_us);
            assert_eq!(note.offset_us(&later, Some(50 * HOUR_US)), Ok(note.since_boot_us));
        }
        // A machine that was put back to an earlier moment of the same boot.
        assert!(note.offset_us(&here(Some("a"), HOUR_US, 12 * HOUR_US), None).is_err());
    }

    #[test]
    fn on_another_boot_the_wall_clock_counts_unless_it_went_back() {
        let note = noted();
        for boot_id in [Some("b"), None] {
            let later = here(boot_id, 60_000_000, 13 * HOUR_US);
            assert_eq!(note.offset_us(&later, Some(13 * HOUR_US)), Ok(13 * HOUR_US + 5_000_000 - 60_000_000));
            assert!(note.offset_us(&later, Some(13 * HOUR_US + 1)).is_err());
            assert!(note.offset_us(&here(boot_id, 60_000_000, 12 * HOUR_US - 1), None).is_err());
        }
        let nameless = ClockNote { boot_id: None, ..note };
        assert!(nameless.offset_us(&here(None, 3 * HOUR_US, 11 * HOUR_US), None).is_err());
    }
}
