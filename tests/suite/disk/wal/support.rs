//! A log in a scratch directory, and what is told with it.

use std::path::{Path, PathBuf};

use dwell::model::error::Result;
use dwell::model::message::{Conflict, MessageId, NewMessage, TopicName};
use dwell::model::time::Timestamp;
use dwell::model::version::Version;
use dwell::platform::clock::{Clock, Manual};
use dwell::telemetry::metrics::{Metrics, WalMetrics};
use dwell::wal::{Cancelled, Entry, Record, Wal, WalOptions};
use tempfile::TempDir;

use crate::support::{failed, scratch};

/// When every story begins.
const START: Timestamp = Timestamp::from_ms(1_767_323_045_678);

/// A log and the hands of its clock.
pub(super) struct Story {
    pub(super) wal: Wal,
    pub(super) time: Manual,
    pub(super) options: WalOptions,
    pub(super) dir: TempDir,
}

impl Story {
    /// A log with room for whatever is told, that leaves the disk of the test machine alone.
    pub(super) fn new() -> Result<Story> {
        Story::with(|_| {})
    }

    pub(super) fn with(change: impl FnOnce(&mut WalOptions)) -> Result<Story> {
        let (dir, time) = (scratch()?, Manual::at(START));
        let mut options = WalOptions::new(dir.path().join("wal"), 1 << 30, Clock::Manual(time.clone()));
        options.disk_reserve_bytes = 0;
        change(&mut options);
        Ok(Story { wal: Wal::open(options.clone(), metrics()?)?, time, options, dir })
    }

    /// The same after a restart.
    pub(super) async fn reopened(self) -> Result<Story> {
        self.reopened_after(|_| Ok(())).await
    }

    /// The same after a restart, before which something happened to its directory.
    pub(super) async fn reopened_after(self, happen: impl FnOnce(&Path) -> Result<()>) -> Result<Story> {
        let Story { wal, time, options, dir } = self;
        wal.close().await?;
        drop(wal);
        happen(&options.dir)?;
        Ok(Story { wal: Wal::open(options.clone(), metrics()?)?, time, options, dir })
    }

    /// Appends messages together.
    pub(super) async fn append(&self, ids: &[&str]) -> Result<()> {
        self.wal.append(ids.iter().map(|id| push(id, 10)).collect::<Result<_>>()?).await
    }

    /// The ids of everything that waits.
    pub(super) async fn ids(&self) -> Result<Vec<String>> {
        Ok(ids_of(&all_of(&self.wal).await?))
    }

    pub(super) async fn cancel(&self, id: &str) -> Result<Cancelled> {
        self.wal.cancel(&TopicName::new("orders")?, &MessageId::new(id)?).await
    }

    /// Bytes of all files below the directory, but for what is kept in reserve.
    pub(super) fn bytes_on_disk(&self) -> Result<u64> {
        let files = files_below(&self.options.dir)?;
        files
            .iter()
            .filter(|path| !path.ends_with("reserve"))
            .map(|path| Ok(path.metadata().map_err(failed("a file"))?.len()))
            .sum()
    }

    /// Number of the segments.
    pub(super) fn segments(&self) -> Result<usize> {
        Ok(segments_in(&self.options.dir)?.len())
    }
}

/// The directories of a log's segments, in order.
pub(super) fn segments_in(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed("the log"))? {
        let path = entry.map_err(failed("an entry"))?.path();
        if path.extension().is_none() && path.join("db").exists() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// All files below a directory.
pub(super) fn files_below(dir: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut dirs) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).map_err(failed("a directory"))? {
            let path = entry.map_err(failed("an entry"))?.path();
            if path.is_dir() { dirs.push(path) } else { found.push(path) }
        }
    }
    Ok(found)
}

pub(crate) fn metrics() -> Result<WalMetrics> {
    Ok(Metrics::new()?.wal("wal"))
}

/// The push of a message with a payload of so many bytes.
pub(crate) fn push(id: &str, bytes: usize) -> Result<Record> {
    let message = NewMessage::new(vec![b'x'; bytes]).id(MessageId::new(id)?).accept(START)?;
    Ok(Record::Push {
        topic: TopicName::new("orders")?,
        message,
        version: Version::from_us(1),
        conflict: Conflict::Keep,
        call: None,
        origin: None,
    })
}

/// Everything that waits, read in pages.
pub(crate) async fn all_of(wal: &Wal) -> Result<Vec<Entry>> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = wal.page(after, 100, 1 << 20).await?;
        let Some(last) = page.last() else { return Ok(all) };
        after = Some(last.position);
        all.extend(page);
    }
}

pub(crate) fn ids_of(entries: &[Entry]) -> Vec<String> {
    let id = |entry: &Entry| match &entry.record {
        Record::Push { message, .. } | Record::Set { message, .. } => message.id.to_string(),
        Record::Cancel { id, .. } => format!("cancel {id}"),
        Record::End { id, .. } => format!("end {id}"),
        Record::Purge { group, .. } => format!("purge {group}"),
        Record::CronJob { name, .. } => format!("cron {name}"),
        Record::Create(descriptor) => format!("create {}", descriptor.topic),
        Record::Delete(descriptor) => format!("delete {}", descriptor.topic),
    };
    entries.iter().map(id).collect()
}

/// Copies a directory with all that is in it.
pub(super) fn copied(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).map_err(failed("a directory"))?;
    for entry in std::fs::read_dir(from).map_err(failed("a directory"))? {
        let path = entry.map_err(failed("an entry"))?.path();
        let new = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copied(&path, &new)?
        } else {
            std::fs::copy(&path, new).map(drop).map_err(failed("a file"))?
        }
    }
    Ok(())
}
