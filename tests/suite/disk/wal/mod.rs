//! The write-ahead log: what it answered holds, whatever happens to the process, the disk and the files.

mod crash;
mod damage;
mod disk;
mod model;
mod power;
pub(crate) mod support;

use std::time::Duration;

use dwell::model::error::Result;
use dwell::model::limits::PAYLOAD_BYTES_MAX;
use dwell::model::message::TopicName;
use dwell::model::topic::{Descriptor, Settings};
use dwell::platform::clock::Clock;
use dwell::telemetry::metrics::Metrics;
use dwell::wal::{Cancelled, Record, Wal, WalOptions};

use self::support::{Story, all_of, files_below, ids_of, push};

#[tokio::test]
async fn appended_records_are_read_in_order_after_a_restart() -> Result<()> {
    let mut story = Story::new()?;
    story.append(&["a", "b"]).await?;
    story.append(&["c"]).await?;
    assert_eq!(story.ids().await?, ["a", "b", "c"]);
    story = story.reopened().await?;
    assert_eq!(story.ids().await?, ["a", "b", "c"]);
    story.append(&["d"]).await?;
    let page = story.wal.page(None, 2, usize::MAX).await?;
    assert_eq!(ids_of(&page), ["a", "b"]);
    story.wal.trim(page[1].position).await?;
    assert_eq!(story.wal.depth().records, 2);
    story = story.reopened().await?;
    assert_eq!((story.wal.depth().records, story.ids().await?), (2, vec!["c".to_owned(), "d".to_owned()]));
    Ok(())
}

#[tokio::test]
async fn cancel_of_a_message_that_is_replaying_removes_nothing() -> Result<()> {
    let story = Story::new()?;
    story.append(&["a", "b", "a"]).await?;
    assert_eq!(ids_of(&story.wal.page(None, 1, usize::MAX).await?), ["a"]);
    assert_eq!((story.cancel("a").await?, story.wal.depth().records), (Cancelled::Replaying, 3));
    story.wal.take_back().await?;
    assert_eq!((story.cancel("a").await?, story.wal.depth().records), (Cancelled::Removed, 1));
    Ok(())
}

#[tokio::test]
async fn cancel_removes_a_message_unless_handed_out() -> Result<()> {
    let mut story = Story::new()?;
    story.append(&["a", "b", "c", "b"]).await?;
    assert_eq!(story.cancel("x").await?, Cancelled::Absent);
    assert_eq!(story.cancel("b").await?, Cancelled::Removed);
    assert_eq!((story.wal.depth().records, story.cancel("b").await?), (2, Cancelled::Absent));
    story = story.reopened().await?;
    assert_eq!(story.wal.depth().records, 2);
    assert_eq!(ids_of(&story.wal.peek(None, 9, usize::MAX).await?), ["a", "c"], "a look hands nothing out");
    assert_eq!(ids_of(&story.wal.page(None, 1, usize::MAX).await?), ["a"]);
    assert_eq!(story.cancel("a").await?, Cancelled::Replaying);
    assert_eq!(story.cancel("c").await?, Cancelled::RemovedSent, "perhaps an earlier process sent it");
    story.append(&["d", "e"]).await?;
    assert_eq!(ids_of(&story.wal.page(None, 2, usize::MAX).await?), ["a", "d"]);
    assert_eq!(story.cancel("d").await?, Cancelled::Replaying);
    story.wal.take_back().await?;
    assert_eq!((story.cancel("d").await?, story.cancel("e").await?), (Cancelled::Removed, Cancelled::Removed));
    let page = story.wal.page(None, 9, usize::MAX).await?;
    assert_eq!(ids_of(&page), ["a"]);
    story.wal.trim(page[0].position).await?;
    assert_eq!((story.cancel("a").await?, story.wal.depth().records), (Cancelled::Absent, 0));
    Ok(())
}

#[tokio::test]
async fn segments_are_rotated_and_their_space_reclaimed() -> Result<()> {
    let story = Story::with(|options| options.segment_bytes = 600_000)?;
    for n in 0..40 {
        let records = (0..50).map(|m| push(&format!("{n}-{m}"), 1_000)).collect::<Result<_>>()?;
        story.wal.append(records).await?;
    }
    let full = story.bytes_on_disk()?;
    assert!(story.segments()? > 3 && full > 2_000_000, "{} segments, {full} bytes", story.segments()?);
    let all = all_of(&story.wal).await?;
    let expected: Vec<_> = (0..2_000).map(|n| format!("{}-{}", n / 50, n % 50)).collect();
    assert_eq!(ids_of(&all), expected);
    assert!(all.windows(2).all(|two| two[0].position < two[1].position));
    story.wal.trim(all[1_999].position).await?;
    assert_eq!((story.wal.depth().records, story.wal.depth().oldest), (0, None));
    let empty = story.bytes_on_disk()?;
    assert!(empty < full / 3, "{full} bytes, and {empty} after everything was trimmed");
    Ok(())
}

#[tokio::test]
async fn the_largest_messages_stay_in_the_file_that_is_synced() -> Result<()> {
    let mut story = Story::new()?;
    let large = |n: usize| push(&format!("large-{n}"), PAYLOAD_BYTES_MAX);
    story.wal.append((0..9).map(large).collect::<Result<_>>()?).await?;
    story.wal.append((0..5_000).map(|n| push(&format!("small-{n}"), 5_000)).collect::<Result<_>>()?).await?;
    assert_eq!(story.cancel("large-3").await?, Cancelled::Removed);
    story = story.reopened().await?;
    let page = story.wal.page(None, 100, PAYLOAD_BYTES_MAX).await?;
    assert_eq!(ids_of(&page), ["large-0"], "a page has the first record even if it is larger than a page");
    assert_eq!(story.ids().await?.len(), 5_008);
    let blobs = files_below(&story.options.dir)?;
    assert!(!blobs.iter().any(|path| path.parent().is_some_and(|dir| dir.ends_with("blobs"))), "{blobs:?}");
    Ok(())
}

#[tokio::test]
async fn depth_reports_pending_records_and_their_age() -> Result<()> {
    let mut story = Story::new()?;
    let began = Clock::Manual(story.time.clone()).now();
    assert_eq!(story.wal.depth().oldest, None);
    story.append(&["a"]).await?;
    story.time.advance(Duration::from_secs(5));
    story.append(&["b", "c"]).await?;
    assert_eq!((story.wal.depth().records, story.wal.depth().oldest), (3, Some(began)));
    story = story.reopened().await?;
    assert_eq!((story.wal.depth().records, story.wal.depth().oldest), (3, Some(began)));
    let page = story.wal.page(None, 1, 1_000).await?;
    story.wal.trim(page[0].position).await?;
    let later = began.plus(Duration::from_secs(5));
    assert_eq!((story.wal.depth().records, story.wal.depth().oldest), (2, Some(later)));
    let page = story.wal.page(None, 10, 1_000).await?;
    story.wal.trim(page[1].position).await?;
    assert_eq!((story.wal.depth().records, story.wal.depth().oldest), (0, None));
    Ok(())
}

#[tokio::test]
async fn buffered_topic_settings_survive_a_restart() -> Result<()> {
    let mut story = Story::new()?;
    let wanted = Descriptor::new(TopicName::new("orders")?, Settings { max_attempts: 3, ..Settings::default() });
    story.wal.append(vec![Record::Create(wanted.clone()), push("a", 10)?]).await?;
    story = story.reopened().await?;
    let all = all_of(&story.wal).await?;
    assert_eq!(all[0].record, Record::Create(wanted));
    assert_eq!(all[1].record, push("a", 10)?);
    Ok(())
}

#[tokio::test]
async fn wal_metrics_match_its_operations() -> Result<()> {
    let story = Story::new()?;
    let (metrics, dir) = (Metrics::new()?, story.dir.path().join("other"));
    let wal = Wal::open(WalOptions { dir, ..story.options.clone() }, metrics.wal("journal"))?;
    wal.append(vec![push("a", 10)?, push("b", 10)?]).await?;
    story.time.advance(Duration::from_secs(7));
    wal.observe();
    let text = metrics.text()?;
    for line in [
        "dwell_wal_records{log=\"journal\"} 2",
        "dwell_wal_oldest_age_seconds{log=\"journal\"} 7",
        "dwell_wal_fsync_seconds_count{log=\"journal\"} 1",
        "dwell_wal_damaged_total{log=\"journal\"} 0",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    assert!(text.contains(&format!("dwell_wal_bytes{{log=\"journal\"}} {}", wal.depth().bytes)), "{text}");
    Ok(())
}
