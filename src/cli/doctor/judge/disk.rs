//! The disk under `data_dir`.

use std::path::PathBuf;
use std::time::Duration;

use super::super::finding::Finding;
use super::{bytes, millis, spread};
use crate::model::limits::DISK_RESERVE_BYTES;

/// A small durable write that half of them should not take.
const SLOW_WRITE: Duration = Duration::from_millis(50);

/// One that none should take.
const SLOWEST_WRITE: Duration = Duration::from_secs(1);

/// What a kind of file system means for what dwell keeps there: its number, its name, and what is wrong with it.
const FILE_SYSTEMS: [(u64, &str, &str); 11] = [
    (0xEF53, "ext4", ""),
    (0x5846_5342, "xfs", ""),
    (0x9123_683E, "btrfs", ""),
    (0x2FC1_2FC1, "zfs", ""),
    (0x0102_1994, "tmpfs", "it is memory: a restart of the machine, or of the pod, takes what is there"),
    (0x8584_58F6, "ramfs", "it is memory: a restart of the machine takes what is there"),
    (0x794C_7630, "overlay", "it is the layer of a container: what is there goes with the container"),
    (0x6969, "nfs", "it is on the network: its durable writes and its locks are those of a server"),
    (0xFE53_4D42, "smb", "it is on the network: its durable writes and its locks are those of a server"),
    (0xFF53_4D42, "cifs", "it is on the network: its durable writes and its locks are those of a server"),
    (0x0102_1997, "9p", "it is another machine's: its durable writes are that one's"),
];

/// What was seen of the disk under a directory.
#[derive(Debug, Clone)]
pub(in super::super) struct DiskFacts {
    /// The directory.
    pub(in super::super) dir: PathBuf,
    /// The nearest directory that is there, if it is another one.
    pub(in super::super) above: Option<PathBuf>,
    /// The kind of file system, as statfs numbers it.
    pub(in super::super) kind: Option<u64>,
    /// Bytes that are free.
    pub(in super::super) free_bytes: Option<u64>,
    /// How long small durable writes took; or why one failed. Empty where none was tried.
    pub(in super::super) writes: Result<Vec<Duration>, String>,
    /// Bytes that may still be written below it.
    pub(in super::super) wanted_bytes: u64,
}

/// Everything about the disk.
pub(in super::super) fn disk(facts: &DiskFacts) -> Vec<Finding> {
    let mut findings = vec![place(facts), space(facts)];
    findings.extend(writes(facts));
    findings
}

fn place(facts: &DiskFacts) -> Finding {
    let dir = facts.dir.display();
    if let Err(error) = &facts.writes {
        let advice = match error.contains("No space") || error.contains("File too large") {
            true => format!("df -h {dir}; make room there"),
            false => format!("chown -R USER {dir}, for the user that runs dwell; or another --data-dir"),
        };
        return Finding::fail("data-dir", format!("{dir} cannot be written: {error}"), advice);
    }
    let kind = facts.kind.unwrap_or(0);
    let known = FILE_SYSTEMS.iter().find(|(number, _, _)| *number == kind);
    let name = known.map_or_else(|| format!("file system {kind:#x}"), |(_, name, _)| (*name).to_owned());
    let there = match &facts.above {
        None => format!("{dir} on {name}"),
        Some(above) => format!("{dir} is not there yet; {} is on {name}", above.display()),
    };
    match known.filter(|(_, _, wrong)| !wrong.is_empty()) {
        None => Finding::ok("data-dir", there),
        Some((_, _, wrong)) => {
            let advice = "let --data-dir lie on a disk of this machine; in a container, on a volume";
            Finding::warn("data-dir", format!("{there}: {wrong}"), advice)
        }
    }
}

fn space(facts: &DiskFacts) -> Finding {
    let Some(free) = facts.free_bytes else {
        return Finding::skip("disk-space", "the file system does not say what is free");
    };
    let (dir, found) = (facts.dir.display(), format!("{} free", bytes(free)));
    if free < DISK_RESERVE_BYTES {
        let found = format!("{found}, and {} are kept free: nothing more is taken", bytes(DISK_RESERVE_BYTES));
        return Finding::fail("disk-space", found, format!("df -h {dir}; make room there"));
    }
    let wanted = facts.wanted_bytes.saturating_add(DISK_RESERVE_BYTES);
    if free < wanted {
        let found = format!(
            "{found}, and the logs may take {} yet: the disk is full before they are",
            bytes(facts.wanted_bytes)
        );
        let advice = format!(
            "make room in {dir}, or lower `wal.limit_bytes` to {}",
            free.saturating_sub(DISK_RESERVE_BYTES) / 2
        );
        return Finding::warn("disk-space", found, advice);
    }
    Finding::ok("disk-space", found)
}

fn writes(facts: &DiskFacts) -> Option<Finding> {
    let writes = facts.writes.as_deref().unwrap_or_default();
    let (least, middle, most) = spread(writes)?;
    let count = writes.len();
    let found = format!(
        "{} / {} / {} (least, median and most of {count} durable writes)",
        millis(least),
        millis(middle),
        millis(most)
    );
    Some(match middle > SLOW_WRITE || most > SLOWEST_WRITE {
        true => Finding::warn(
            "disk-latency",
            found,
            "each push that is buffered waits for one: use a faster disk, or fewer neighbours on it",
        ),
        false => Finding::ok("disk-latency", found),
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::finding::Status;
    use super::*;

    fn sound() -> DiskFacts {
        DiskFacts {
            dir: PathBuf::from("/data"),
            kind: Some(0xEF53),
            free_bytes: Some(10 << 30),
            writes: Ok(vec![Duration::from_millis(2); 20]),
            wanted_bytes: 1 << 30,
            above: None,
        }
    }

    #[test]
    fn a_disk_of_this_machine_is_sound_and_others_are_named() {
        assert!(disk(&sound()).iter().all(|finding| finding.status == Status::Ok), "{:?}", disk(&sound()));
        for (kind, name, wrong) in FILE_SYSTEMS {
            let finding = place(&DiskFacts { kind: Some(kind), ..sound() });
            assert_eq!(finding.status, if wrong.is_empty() { Status::Ok } else { Status::Warn }, "{name}");
        }
        assert_eq!(place(&DiskFacts { kind: Some(1), ..sound() }).found, "/data on file system 0x1");
        let absent = DiskFacts { above: Some(PathBuf::from("/")), ..sound() };
        assert_eq!(place(&absent).found, "/data is not there yet; / is on ext4");
    }

    #[test]
    fn what_cannot_be_written_fails() {
        let with = |error: &str| place(&DiskFacts { writes: Err(error.to_owned()), ..sound() });
        assert!(with("Permission denied (os error 13)").advice.is_some_and(|advice| advice.contains("chown")));
        assert!(with("No space left on device (os error 28)").advice.is_some_and(|advice| advice.contains("df -h")));
        assert_eq!(with("anything").status, Status::Fail);
    }

    #[test]
    fn room_is_judged_at_its_bounds() {
        let status = |free| space(&DiskFacts { free_bytes: Some(free), ..sound() }).status;
        let full = (1 << 30) + DISK_RESERVE_BYTES;
        assert_eq!(
            [DISK_RESERVE_BYTES - 1, DISK_RESERVE_BYTES, full - 1, full].map(status),
            [Status::Fail, Status::Warn, Status::Warn, Status::Ok]
        );
        assert_eq!(space(&DiskFacts { free_bytes: None, ..sound() }).status, Status::Skip);
    }

    #[test]
    fn slow_writes_are_a_warning() {
        let ms = Duration::from_millis;
        let status = |writes| super::writes(&DiskFacts { writes: Ok(writes), ..sound() }).map(|finding| finding.status);
        assert_eq!(
            [status(vec![]), status(vec![ms(50)]), status(vec![ms(51)])],
            [None, Some(Status::Ok), Some(Status::Warn)]
        );
        assert_eq!(status(vec![ms(1), ms(1), ms(1_001)]), Some(Status::Warn));
    }
}
