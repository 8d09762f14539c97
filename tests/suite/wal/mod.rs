//! The write-ahead log: what it answered holds, whatever happens to the process, the disk and the files.

mod crash;
mod damage;
mod disk;
mod model;
mod power;
mod support;

use dwell::error::Result;
use dwell::wal::Cancelled;

use self::support::{Story, all_of, ids_of, push};

#[tokio::test]
async fn what_is_appended_is_read_in_order_and_survives_a_restart() -> Result<()> {
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
async fn a_message_is_cancelled_unless_it_was_handed_out() -> Result<()> {
    let mut story = Story::new()?;
    story.append(&["a", "b", "c", "b"]).await?;
    assert_eq!(story.cancel("x").await?, Cancelled::Absent);
    assert_eq!(story.cancel("b").await?, Cancelled::Removed);
    assert_eq!((story.wal.depth().records, story.cancel("b").await?), (2, Cancelled::Absent));
    story = story.reopened().await?;
    assert_eq!(story.wal.depth().records, 2);
    assert_eq!(ids_of(&story.wal.page(None, 1, usize::MAX).await?), ["a"]);
    assert_eq!(story.cancel("a").await?, Cancelled::Replaying);
    assert_eq!(story.cancel("c").await?, Cancelled::Removed);
    let page = story.wal.page(None, 9, usize::MAX).await?;
    assert_eq!(ids_of(&page), ["a"]);
    story.wal.trim(page[0].position).await?;
    assert_eq!((story.cancel("a").await?, story.wal.depth().records), (Cancelled::Absent, 0));
    Ok(())
}

#[tokio::test]
async fn records_lie_in_many_segments_and_their_space_comes_back() -> Result<()> {
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
    assert!(all.windows(2).all(|pair| pair[0].position < pair[1].position));
    story.wal.trim(all[1_999].position).await?;
    assert_eq!((story.wal.depth().records, story.wal.depth().oldest), (0, None));
    let empty = story.bytes_on_disk()?;
    assert!(empty < full / 3, "{full} bytes, and {empty} after everything was trimmed");
    Ok(())
}
