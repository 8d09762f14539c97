//! What Linux says of a process: its processor time and its memory.

use std::time::Duration;

use crate::cli::failure::Failure;

/// Processor time of all threads so far.
pub(super) fn cpu(pid: u32) -> Result<Duration, Failure> {
    let threads = format!("/proc/{pid}/task");
    let mut nanos = 0;
    for thread in std::fs::read_dir(&threads).map_err(unreadable(&threads))? {
        let path = thread.map_err(unreadable(&threads))?.path().join("schedstat");
        // A thread may have ended since the directory was read.
        let text = std::fs::read_to_string(path).unwrap_or_default();
        nanos += text.split(' ').next().and_then(|nanos| nanos.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(nanos))
}

/// Bytes in memory.
pub(super) fn resident(pid: u32) -> Result<u64, Failure> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path).map_err(unreadable(&path))?;
    let field = text.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    field
        .and_then(|kilobytes| kilobytes.parse::<u64>().ok())
        .map(|kilobytes| kilobytes * 1_024)
        .ok_or_else(|| Failure::new(format!("{path} does not say how much memory it has")))
}

fn unreadable(path: &str) -> impl Fn(std::io::Error) -> Failure {
    move |error| Failure::new(format!("cannot read {path}: {error}"))
}
