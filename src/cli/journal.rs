//! The journal of systemd behind stderr: a line that begins with `<N>` has the priority N there (sd-daemon(3)).

use std::fmt::Display;
use std::os::fd::AsFd;
use std::sync::LazyLock;

use rustix::fs::fstat;
use tracing::Level;

/// Priority of what ends a process.
const ERROR: u8 = 3;

/// Whether stderr of this process is the journal. A child that inherits the variable and has another stderr says so by its device.
static IS_STDERR: LazyLock<bool> = LazyLock::new(|| {
    let named = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    is_stream(&named, std::io::stderr())
});

/// Whether a file is the stream that `JOURNAL_STREAM` names by its device and inode.
fn is_stream(named: &str, file: impl AsFd) -> bool {
    fstat(file).is_ok_and(|stat| named == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// The beginning of a line of this level.
pub(crate) fn prefix(level: Level) -> &'static str {
    match (*IS_STDERR, level) {
        (false, _) => "",
        (true, Level::ERROR) => "<3>",
        (true, Level::WARN) => "<4>",
        (true, Level::INFO) => "<6>",
        (true, Level::DEBUG | Level::TRACE) => "<7>",
    }
}

/// A text that reports an error: each line of it is one for the journal, too.
pub(crate) fn error(text: impl Display) -> String {
    match *IS_STDERR {
        false => text.to_string(),
        true => text.to_string().lines().map(|line| format!("<{ERROR}>{line}")).collect::<Vec<_>>().join("\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_stream_is_the_journal() -> std::io::Result<()> {
        let (one, other) = (tempfile::tempfile()?, tempfile::tempfile()?);
        let stat = fstat(&one)?;
        let named = format!("{}:{}", stat.st_dev, stat.st_ino);
        assert!(is_stream(&named, &one) && !is_stream(&named, &other));
        for other in ["", "1", ":", "1:2:3", &format!("{named} ")] {
            assert!(!is_stream(other, &one), "{other:?}");
        }
        Ok(())
    }
}
