//! A clock for tests, which is moved forward. How far is kept in the directory of the store, so that the time of messages does
//! not go back with a restart.

use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};

use super::clock::{Ahead, Clock};
use super::disk::{MarkerFile, is_empty_directory, make_private_directory, sync_directory};
use crate::model::error::{Error, Kind, Result};
use crate::model::time::ms_up;

const FILE: &str = "test-clock";

#[derive(Debug)]
pub struct TestClock {
    ahead: Ahead,
    /// Moves follow one another.
    file: Mutex<MarkerFile>,
}

/// One move at a time: until it is dropped nobody else moves the clock.
pub struct Turn<'a> {
    clock: &'a TestClock,
    file: MutexGuard<'a, MarkerFile>,
}

impl TestClock {
    /// A test clock for the store in `dir`, as far ahead as it was there. Errors: `Conflict` when the directory has been used
    /// with the clock of the machine, `Unavailable` when the disk does not let it be read or written.
    pub fn open(dir: &Path) -> Result<TestClock> {
        let place = dir.display();
        let failed = |error: io::Error| Error::unavailable(format!("the test clock in {place}: {error}"));
        make_private_directory(dir).map_err(failed)?;
        let is_new = is_empty_directory(dir).map_err(failed)?;
        let (file, ahead_ms) = match MarkerFile::peek(&dir.join(FILE)).map_err(failed)? {
            Some(ahead_ms) => (MarkerFile::open(&dir.join(FILE)).map_err(failed)?.0, ahead_ms),
            None if is_new => (begin(dir).map_err(failed)?, 0),
            None => {
                let why = format!("{place} has messages of the real clock: give --test-clock an empty data directory");
                return Err(Error::new(Kind::Conflict, why));
            }
        };
        Ok(TestClock { ahead: Ahead::by(Duration::from_millis(ahead_ms)), file: Mutex::new(file) })
    }

    pub fn clock(&self) -> Clock {
        Clock::Ahead(self.ahead.clone())
    }

    /// How far it is ahead of the clock of the machine.
    pub fn ahead(&self) -> Duration {
        self.ahead.get()
    }

    pub async fn turn(&self) -> Turn<'_> {
        Turn { clock: self, file: self.file.lock().await }
    }
}

fn begin(dir: &Path) -> io::Result<MarkerFile> {
    let (file, _) = MarkerFile::open(&dir.join(FILE))?;
    file.set(0)?;
    sync_directory(dir)?;
    Ok(file)
}

impl Turn<'_> {
    /// Errors: `Unavailable` when the disk does not take it; then it is not moved.
    pub fn advance(&self, by: Duration) -> Result<()> {
        let ahead = self.clock.ahead.get() + by;
        let noted = self.file.set(ms_up(ahead)).and_then(|()| self.file.sync());
        noted.map_err(|error| Error::unavailable(format!("the clock is not moved: {error}")))?;
        self.clock.ahead.advance(by);
        Ok(())
    }
}

/// Checks that a store in `dir` may go by `clock`. Errors: `Conflict` when it was used with a test clock: by the clock of the
/// machine its messages are in the future.
pub fn check(dir: &Path, clock: &Clock) -> Result<()> {
    let is_marked = dir.join(FILE).exists();
    if is_marked && !matches!(clock, Clock::Ahead(_)) {
        let place = dir.display();
        let why = format!("{place} was used with a test clock: start with --test-clock, or use another data directory");
        return Err(Error::new(Kind::Conflict, why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn directory_is_bound_to_its_first_clock() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let (real, test) = (dir.path().join("real"), dir.path().join("test"));
        std::fs::create_dir(&real)?;
        std::fs::write(real.join("db"), "messages")?;
        assert!(TestClock::open(&real).is_err_and(|error| error.kind() == Kind::Conflict));
        assert_eq!(check(&real, &Clock::System), Ok(()));
        let day = Duration::from_secs(86_400);
        let clock = TestClock::open(&test).map_err(io::Error::other)?;
        assert_eq!(clock.ahead(), Duration::ZERO);
        clock.turn().await.advance(day).map_err(io::Error::other)?;
        drop(clock);
        assert!(check(&test, &Clock::System).is_err_and(|error| error.kind() == Kind::Conflict));
        let clock = TestClock::open(&test).map_err(io::Error::other)?;
        assert_eq!((clock.ahead(), check(&test, &clock.clock())), (day, Ok(())));
        Ok(())
    }
}
