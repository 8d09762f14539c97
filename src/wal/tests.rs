//! What only time would show: files that rest, and a disk that could not be read when the log was opened.

use std::path::Path;

use super::append::Addition;
use super::log::Log;
use super::options::WalOptions;
use super::segment::Segment;
use crate::codec::{Record, UnnumberedRecord};
use crate::model::error::{Error, Result};
use crate::model::message::TopicName;
use crate::model::time::Timestamp;
use crate::model::topic::{Descriptor, Settings};
use crate::platform::clock::Clock;
use crate::telemetry::metrics::Metrics;

fn open(dir: &Path) -> Result<Log> {
    let mut options = WalOptions::new(dir.to_owned(), 1 << 30, Clock::System);
    options.disk_reserve_bytes = 0;
    Log::open(options, Metrics::new()?.wal("wal"))
}

fn append(log: &mut Log, topic: &str) -> Result<()> {
    let at = Timestamp::from_ms(1);
    let record = Record::Create(Descriptor::new(TopicName::new(topic)?, Settings::default()));
    let records = vec![UnnumberedRecord::new(&record, at)?];
    log.append(vec![Addition { records }]).into_iter().collect()
}

fn topics(log: &mut Log) -> Result<Vec<String>> {
    let name = |entry: super::Entry| match entry.record {
        Record::Create(descriptor) | Record::Delete(descriptor) => descriptor.topic.to_string(),
        Record::Push { message, .. } | Record::Set { message, .. } => message.id.to_string(),
        Record::Cancel { id, .. } | Record::End { id, .. } => id.to_string(),
    };
    Ok(log.page(None, 100, 1 << 20)?.into_iter().map(name).collect())
}

#[test]
fn a_log_that_rests_has_no_file_open_and_goes_on_when_asked() -> Result<()> {
    let dir = tempfile::tempdir().map_err(|error| Error::unavailable(error.to_string()))?;
    let mut log = open(dir.path())?;
    assert!(log.is_resting());
    append(&mut log, "a")?;
    assert!(!log.is_resting());
    log.rest();
    assert!(log.is_resting());
    append(&mut log, "b")?;
    log.rest();
    assert_eq!((topics(&mut log)?, log.segments.len()), (vec!["a".to_owned(), "b".to_owned()], 1));
    Ok(())
}

/// The mark may be older than what is in the segment, so without opening it nobody knows where it ends.
#[test]
fn nothing_is_deleted_or_appended_behind_an_end_that_is_not_known() -> Result<()> {
    let dir = tempfile::tempdir().map_err(|error| Error::unavailable(error.to_string()))?;
    let mut log = open(dir.path())?;
    append(&mut log, "a")?;
    append(&mut log, "b")?;
    log.rest();
    // As if it could not be opened when the log was, and its mark were that of an empty segment.
    std::fs::remove_file(dir.path().join(Segment::name(1)).join("last")).map_err(|e| Error::bug(e.to_string()))?;
    log.segments = [Segment::found(dir.path(), 1, None)].into();
    log.next = 1;
    log.remove_done();
    append(&mut log, "c")?;
    assert_eq!(topics(&mut log)?, ["a", "b", "c"]);
    Ok(())
}

/// A write fails in a segment that has nothing else: its records were refused, and never come back.
#[test]
fn what_was_refused_in_a_new_segment_does_not_come_back() -> Result<()> {
    let dir = tempfile::tempdir().map_err(|error| Error::unavailable(error.to_string()))?;
    let mut log = open(dir.path())?;
    for topic in ["a", "b", "c"] {
        append(&mut log, topic)?;
    }
    drop(log);
    // As the seal is after the first write failed.
    let mark = crate::platform::disk::MarkerFile::open(&dir.path().join(Segment::name(1)).join("sealed"));
    mark.and_then(|(mark, _)| mark.set(1)).map_err(|error| Error::bug(error.to_string()))?;
    let mut log = open(dir.path())?;
    append(&mut log, "new")?;
    assert_eq!((topics(&mut log)?, log.segments.len()), (vec!["new".to_owned()], 1));
    drop(log);
    let mut log = open(dir.path())?;
    assert_eq!(topics(&mut log)?, ["new"]);
    append(&mut log, "newer")?;
    assert_eq!(topics(&mut log)?, ["new", "newer"]);
    Ok(())
}
