//! Looks at this machine.

use std::path::Path;

use rustix::process::{Resource, getrlimit};

/// Where systemd-timesyncd says that it set the clock.
const SYNCHRONISED: &str = "/run/systemd/timesync/synchronized";

/// Open files that a process may have; `None` for no limit. Of this process, when the other one's cannot be seen: then
/// its number is not answered.
pub(super) fn open_files(of: Option<u32>) -> (Option<u64>, Option<u32>) {
    let seen = of.and_then(|pid| {
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
        Some((soft_limit(&limits)?, Some(pid)))
    });
    seen.unwrap_or_else(|| (getrlimit(Resource::Nofile).current, None))
}

/// A line is `Max open files            1024                 524288               files`.
fn soft_limit(limits: &str) -> Option<Option<u64>> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_ascii_whitespace().next()? {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    }
}

/// Whether the clock was set by systemd-timesyncd; `None` where that does not run.
pub(super) fn is_synchronised() -> Option<bool> {
    let mark = Path::new(SYNCHRONISED);
    mark.parent().filter(|dir| dir.is_dir()).map(|_| mark.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_another_process_is_read() {
        let limits = "Limit  Soft  Hard  Units\nMax open files            1024                 524288     files\n";
        assert_eq!(soft_limit(limits), Some(Some(1_024)));
        assert_eq!(soft_limit("Max open files  unlimited unlimited files"), Some(None));
        assert_eq!(soft_limit(""), None);
        assert_eq!(open_files(Some(std::process::id())).1, Some(std::process::id()));
        assert_eq!(open_files(None), (getrlimit(Resource::Nofile).current, None));
    }
}
