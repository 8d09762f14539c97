//! Looks at the disk, without disturbing a broker that uses the same directory: one small file is written and removed.
//! Then judges it, the logs and the embedded store.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, access, statfs};

use super::Finding;
use super::speed::spread_of;
use crate::app::config::Config;
use crate::cli::output::bytes;
use crate::model::limits::DISK_RESERVE_BYTES;
use crate::model::spelling::counted;
use crate::model::time::{Timestamp, short_span};
use crate::platform::clock::Clock;
use crate::platform::disk::{MarkerFile, free_bytes, lock_holder};
use crate::wal::Inspection;

const WRITES: usize = 20;
const WRITE_BYTES: usize = 512;

#[derive(Debug)]
pub(super) struct DataDir {
    pub(super) disk: DiskFacts,
    pub(super) wal: Result<Option<Inspection>, String>,
    pub(super) journal: Result<Option<Inspection>, String>,
    pub(super) store: StoreFacts,
}

impl DataDir {
    /// Looks at everything that a broker with this configuration keeps on disk. It may take as long as the disk does.
    pub(super) fn look(config: &Config, dir: &Path) -> DataDir {
        let survey = |name| Inspection::of(&dir.join(name)).map_err(|error| error.to_string());
        let (wal, journal) = (survey("wal"), survey("journal"));
        let logs = match (config.redis.url.is_some(), config.journal_window().is_some()) {
            (false, _) => [None, None],
            (true, false) => [Some(&wal), None],
            (true, true) => [Some(&wal), Some(&journal)],
        };
        let wanted = |survey: &Result<Option<Inspection>, String>| {
            let taken = survey.as_ref().ok().and_then(Option::as_ref).map_or(0, |survey| survey.bytes);
            config.wal_limit_bytes.saturating_sub(taken)
        };
        let wanted_bytes = logs.into_iter().flatten().map(wanted).sum();
        let above = above(dir);
        let there = above.as_deref().unwrap_or(dir);
        let disk = DiskFacts {
            dir: dir.to_owned(),
            kind: statfs(there).ok().and_then(|found| u64::try_from(found.f_type).ok()),
            free_bytes: free_bytes(there),
            writes: match &above {
                // The broker creates missing directories, this check does not.
                Some(above) => access(above, Access::WRITE_OK | Access::EXEC_OK)
                    .map(|()| Vec::new())
                    .map_err(|errno| io::Error::from(errno).to_string()),
                None => probe(dir).map_err(|error| error.to_string()),
            },
            wanted_bytes,
            above,
        };
        DataDir { disk, wal, journal, store: store_facts(&dir.join("store")) }
    }

    pub(super) fn holder(&self) -> Option<u32> {
        let of = |survey: &Result<Option<Inspection>, String>| survey.as_ref().ok()?.as_ref()?.holder;
        of(&self.wal).or(self.store.holder)
    }
}

/// The nearest directory above one that is not there; `None` when it is there.
fn above(dir: &Path) -> Option<PathBuf> {
    if dir.is_dir() {
        return None;
    }
    let nearest = dir.ancestors().skip(1).find(|above| above.is_dir());
    Some(nearest.map_or_else(|| PathBuf::from("."), Path::to_owned))
}

struct Probe(PathBuf, File);

impl Drop for Probe {
    fn drop(&mut self) {
        // The next check reports the error of the disk.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn probe(dir: &Path) -> io::Result<Vec<Duration>> {
    let path = dir.join(format!(".doctor-{}", std::process::id()));
    let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
    let mut probe = Probe(path, file);
    let mut took = Vec::with_capacity(WRITES);
    for _ in 0..WRITES {
        let began = Clock::System.instant();
        probe.1.write_all(&[0; WRITE_BYTES])?;
        probe.1.sync_data()?;
        took.push(Clock::System.instant().since(began));
    }
    Ok(took)
}

fn store_facts(dir: &Path) -> StoreFacts {
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let bytes = files.filter_map(|file| file.metadata().ok()).filter(Metadata::is_file).map(|file| file.len()).sum();
    let mark = dir.join("commits");
    let age = std::fs::metadata(&mark).ok().map(|mark| {
        let at = Timestamp::from_ms(u64::try_from(mark.mtime()).unwrap_or(0) * 1_000);
        Duration::from_secs(Clock::System.now().since(at).as_secs())
    });
    StoreFacts {
        is_there: dir.join("db").exists(),
        bytes,
        commits: MarkerFile::peek(&mark).ok().flatten(),
        age,
        holder: lock_holder(&dir.join("db")),
    }
}

/// A small durable write that half of them should not take.
const SLOW_WRITE: Duration = Duration::from_millis(50);
const SLOWEST_WRITE: Duration = Duration::from_secs(1);

/// The risk of a kind of file system for dwell's files: its number, its name, and what is wrong with it.
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

#[derive(Debug, Clone)]
pub(super) struct DiskFacts {
    pub(super) dir: PathBuf,
    pub(super) above: Option<PathBuf>,
    pub(super) kind: Option<u64>,
    pub(super) free_bytes: Option<u64>,
    /// How long small durable writes took; or why one failed. Empty where none was tried.
    pub(super) writes: Result<Vec<Duration>, String>,
    pub(super) wanted_bytes: u64,
}

pub(super) fn disk(facts: &DiskFacts) -> Vec<Finding> {
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
    let (found, middle, most) = spread_of(facts.writes.as_deref().unwrap_or_default(), "durable writes")?;
    Some(match middle > SLOW_WRITE || most > SLOWEST_WRITE {
        true => Finding::warn(
            "disk-latency",
            found,
            "each push that is buffered waits for one: use a faster disk, or fewer neighbours on it",
        ),
        false => Finding::ok("disk-latency", found),
    })
}

const NEARLY_FULL: u64 = 80;

#[derive(Debug, Clone, Default)]
pub(super) struct StoreFacts {
    pub(super) is_there: bool,
    pub(super) bytes: u64,
    pub(super) commits: Option<u64>,
    pub(super) age: Option<Duration>,
    pub(super) holder: Option<u32>,
}

/// A log that may take so many bytes; `identity` is which data Redis holds, if it says so.
pub(super) fn log(
    check: &'static str,
    survey: &Result<Option<Inspection>, String>,
    limit_bytes: u64,
    identity: Option<&str>,
) -> Finding {
    let survey = match survey {
        Ok(Some(survey)) => survey,
        Ok(None) => return Finding::skip(check, "not there yet: nothing is buffered"),
        Err(error) => {
            let advice = "chown -R USER DATA_DIR, for the user that runs dwell";
            return Finding::fail(check, format!("cannot be read: {error}"), advice);
        }
    };
    let held = survey.holder.map_or("no process has it".to_owned(), |pid| format!("process {pid} has it"));
    let found = format!("waiting: {}, {} on disk; {held}", counted(survey.records, "record"), bytes(survey.bytes));
    let of_another = identity.zip(survey.store_identity.as_deref()).is_some_and(|(redis, log)| redis != log);
    if of_another && survey.records > 0 {
        let found = format!("{found}; they were buffered for another Redis, or another `redis.prefix`");
        let advice = "correct `redis.url`; or, if this Redis is its successor, `dwell serve --adopt` once";
        return Finding::fail(check, found, advice);
    }
    if survey.bytes >= limit_bytes {
        let found = format!("{found}; it is full, and takes nothing more");
        return Finding::fail(check, found, "bring Redis back, or raise `wal.limit_bytes` and restart dwell");
    }
    if survey.set_aside > 0 {
        let found = format!("{found}; damaged and set aside: {}", counted(survey.set_aside, "segment"));
        let advice = "look at the disk and at dwell's log; keep them until it is clear what was lost";
        return Finding::warn(check, found, advice);
    }
    if survey.bytes.saturating_mul(100) / limit_bytes.max(1) >= NEARLY_FULL {
        let found = format!("{found}; {} is the limit", bytes(limit_bytes));
        return Finding::warn(check, found, "bring Redis back, or raise `wal.limit_bytes` and restart dwell");
    }
    // A journal holds what Redis has too; records of a log are in no other place.
    if check == "wal" && survey.records > 0 {
        let advice = match survey.holder {
            Some(_) => {
                "bring Redis back if it is unavailable; otherwise they are being replayed: look again in a moment"
            }
            None => "start `dwell serve` with this --data-dir: they are nowhere else",
        };
        return Finding::warn(check, found, advice);
    }
    Finding::ok(check, found)
}

pub(super) fn store(facts: &StoreFacts) -> Finding {
    if !facts.is_there {
        return Finding::skip("store", "embedded; not there yet");
    }
    let held = facts.holder.map_or("no process has it".to_owned(), |pid| format!("process {pid} has it"));
    let size = bytes(facts.bytes);
    match facts.commits {
        None => Finding::fail(
            "store",
            format!("embedded, {size}, and its mark of the last commit cannot be read; {held}"),
            "restore it from a copy; `dwell serve` says what is missing",
        ),
        Some(commits) => {
            let age = facts.age.map_or(String::new(), |age| format!(", the last {} ago", short_span(age)));
            Finding::ok("store", format!("embedded, {size}, {}{age}; {held}", counted(commits, "commit")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn disk_probe_leaves_no_file_and_creates_no_directory() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        assert_eq!(probe(dir.path())?.len(), WRITES);
        assert_eq!(std::fs::read_dir(dir.path())?.count(), 0);
        let deep = dir.path().join("a/b");
        assert_eq!(above(&deep), Some(dir.path().to_owned()));
        assert!(probe(&deep).is_err() && !deep.exists());
        assert_eq!(above(dir.path()), None);
        Ok(())
    }

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
    fn local_disk_is_ok_and_network_disks_are_named() {
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
    fn unwritable_directory_fails() {
        let with = |error: &str| place(&DiskFacts { writes: Err(error.to_owned()), ..sound() });
        assert!(with("Permission denied (os error 13)").advice.is_some_and(|advice| advice.contains("chown")));
        assert!(with("No space left on device (os error 28)").advice.is_some_and(|advice| advice.contains("df -h")));
        assert_eq!(with("anything").status, Status::Fail);
    }

    #[test]
    fn free_space_thresholds_are_exact() {
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

    const LIMIT: u64 = 1_000;

    fn judged(survey: Inspection) -> Finding {
        log("wal", &Ok(Some(survey)), LIMIT, Some("here"))
    }

    #[test]
    fn buffered_records_warn_and_those_of_another_redis_fail() {
        assert_eq!(log("wal", &Ok(None), LIMIT, None).status, Status::Skip);
        assert_eq!(log("wal", &Err("denied".to_owned()), LIMIT, None).status, Status::Fail);
        let empty = Inspection { holder: Some(7), ..Inspection::default() };
        assert_eq!(judged(empty.clone()).found, "waiting: 0 records, 0 B on disk; process 7 has it");
        let waiting = Inspection { records: 3, store_identity: Some("here".to_owned()), ..empty };
        assert!(judged(waiting.clone()).advice.is_some_and(|advice| advice.contains("bring Redis back")));
        let left = Inspection { holder: None, ..waiting.clone() };
        assert!(judged(left).advice.is_some_and(|advice| advice.contains("start `dwell serve`")));
        assert_eq!(log("journal", &Ok(Some(waiting.clone())), LIMIT, Some("here")).status, Status::Ok);
        let other = Inspection { store_identity: Some("there".to_owned()), ..waiting };
        assert!(judged(other.clone()).advice.is_some_and(|advice| advice.contains("--adopt")));
        assert_eq!(judged(Inspection { records: 0, ..other }).status, Status::Ok);
    }

    #[test]
    fn log_check_covers_size_and_damage() {
        let status = |bytes| judged(Inspection { bytes, ..Inspection::default() }).status;
        assert_eq!([799, 800, 999, 1_000].map(status), [Status::Ok, Status::Warn, Status::Warn, Status::Fail]);
        assert_eq!(judged(Inspection { set_aside: 1, ..Inspection::default() }).status, Status::Warn);
    }

    #[test]
    fn store_without_its_marker_file_fails() {
        assert_eq!(store(&StoreFacts::default()).status, Status::Skip);
        let there = StoreFacts { is_there: true, bytes: 4_096, ..StoreFacts::default() };
        assert_eq!(store(&there).status, Status::Fail);
        let sound = StoreFacts { commits: Some(1_200), age: Some(Duration::from_secs(3)), holder: Some(9), ..there };
        assert_eq!(store(&sound).found, "embedded, 4.0 KiB, 1,200 commits, the last 3s ago; process 9 has it");
    }
}
