//! Calls to the disk that fail: what they covered is lost, and nothing of it was promised.

use dwell::model::error::Result;
use fastrand::Rng;

use super::recorded::{Fault, Recorded};
use super::trace::Event;
use super::work::{Answers, Place, Work, holds, holds_at};
use crate::support::{Process, RedisServer, eventually, from_environment};

/// How often the power is cut, unless `DWELL_ROUNDS` says otherwise.
const CUTS: usize = 12;
/// Calls of each producer, in each act of a story.
const CALLS: usize = 5;
const NOT_YET: &str = "the store cannot be opened again yet";

const SETTINGS: [(&str, &str); 3] =
    [("WAL_LIMIT_BYTES", "16777216"), ("TOPIC_PARTITIONS", "2"), ("REDIS_TIMEOUT", "1s")];

/// A recorded disk, a process on it, and what it answered.
struct Story {
    place: Place,
    /// Before its disk, which goes with its log.
    process: Process,
    recorded: Recorded,
    settings: Vec<(String, String)>,
    answers: Answers,
    rng: Rng,
    cuts: usize,
}

impl Story {
    async fn begin(place: Place, settings: &[(&str, &str)]) -> Result<Story> {
        let seed = from_environment("DWELL_SEED")?.unwrap_or_else(|| fastrand::u64(..));
        println!("DWELL_SEED={seed}");
        let recorded = Recorded::new()?;
        let settings: Vec<_> =
            SETTINGS.iter().chain(settings).map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let process = serve(&recorded, &settings).await?;
        let cuts = from_environment("DWELL_ROUNDS")?.unwrap_or(CUTS);
        let (answers, rng) = (Answers::default(), Rng::with_seed(seed));
        Ok(Story { place, recorded, settings, process, answers, rng, cuts })
    }

    /// Calls of the place fail so many times.
    fn set(&self, fault: Fault, times: u32) -> Result<()> {
        self.recorded.set(fault, times, self.place.part())
    }

    /// Pushes, and answers how many of the messages were promised to be there.
    async fn push(&self, name: &str) -> Result<usize> {
        self.pushes(CALLS, name).await
    }

    async fn pushes(&self, calls: usize, name: &str) -> Result<usize> {
        let before = self.promised()?;
        let Story { answers, recorded, place, .. } = self;
        let work = Work { answers, recorded, client: &self.process.client, place: *place };
        work.pushes(calls, name).await?;
        Ok(self.promised()? - before)
    }

    fn promised(&self) -> Result<usize> {
        Ok(self.answers.with(self.place.promise(), self.recorded.moment()?).len())
    }

    /// The process is killed; what it wrote is still in the memory of the machine, but not on the disk where a call failed.
    async fn restart(&mut self) -> Result<()> {
        self.set(Fault::Die, 0)?;
        // What was on its way before that is recorded by now.
        self.process.client.get("/livez").await;
        self.process.kill()?;
        self.set(Fault::None, 0)?;
        self.process = serve(&self.recorded, &self.settings).await?;
        Ok(())
    }

    /// Probes and what needs attention name the disk, and no server that is not there.
    async fn blames_its_disk(&self) -> Result<()> {
        let client = &self.process.client;
        let (status, ready) = client.get("/readyz").await.unwrap_or_default();
        let (_, attention) = client.get("/v1/attention").await.unwrap_or_default();
        let texts = [ready["detail"].to_string(), attention["attention"][0]["cause"].to_string()];
        assert_eq!(status, 503, "{ready}");
        for text in texts {
            assert!(text.contains("once the disk is repaired or has space") && !text.contains("Redis"), "{text}");
        }
        let metrics = client.text("/metrics").await.unwrap_or_default();
        assert!(metrics.contains("dwell_store_info{kind=\"embedded\"} 1"), "{metrics}");
        Ok(())
    }

    /// Whatever the moment of a power cut: the answers hold.
    async fn holds(&mut self) -> Result<()> {
        holds(&self.recorded.trace()?, &self.answers, self.place, self.cuts, &mut self.rng).await
    }
}

async fn serve(recorded: &Recorded, settings: &[(String, String)]) -> Result<Process> {
    let settings: Vec<_> = settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    recorded.serve(&settings).await
}

/// A log or a store whose disk fails once, then for a while, is written again without a restart.
async fn log_story(place: Place, fault: Fault, settings: &[(&str, &str)]) -> Result<()> {
    let mut story = Story::begin(place, settings).await?;
    assert!(story.push("before").await? > 0, "{:?}", story.answers.tally());
    story.set(fault, 1)?;
    story.push("once").await?;
    story.set(fault, u32::MAX >> 1)?;
    assert_eq!(story.push("always").await?, 0, "{:?}", story.answers.tally());
    if matches!(place, Place::Store) {
        story.blames_its_disk().await?;
    }
    story.set(Fault::None, 0)?;
    let mut tried = 0;
    eventually("it is written again", async || {
        tried += 1;
        Ok((story.push(&format!("mended-{tried}")).await? > 0).then_some(()))
    })
    .await?;
    story.holds().await?;
    story.restart().await?;
    assert!(story.push("after").await? > 0, "{:?}", story.answers.tally());
    story.holds().await
}

/// A store cannot be opened while its disk is full. The process starts all the same, says so, and opens it once it can.
async fn start_story(fault: Fault) -> Result<()> {
    let mut story = Story::begin(Place::Store, &[]).await?;
    assert!(story.push("before").await? > 0, "{:?}", story.answers.tally());
    story.set(Fault::Die, 0)?;
    story.process.client.get("/livez").await;
    story.process.kill()?;
    // The first attempts fail; then there is space, and the process is ready.
    story.set(fault, 6)?;
    story.process = serve(&story.recorded, &story.settings).await?;
    assert!(story.push("after").await? > 0, "{:?}", story.answers.tally());
    story.holds().await
}

#[tokio::test]
async fn store_on_a_full_disk_is_opened_once_there_is_space() -> Result<()> {
    start_story(Fault::Full).await
}

/// A disk that fails in the midst of an opening, at whichever of its syncs, is no damage: who reads so throws the store away.
#[tokio::test]
async fn disk_that_fails_while_the_store_is_opened_is_no_damage() -> Result<()> {
    let mut story = Story::begin(Place::Store, &[]).await?;
    let mut opened = false;
    for good in 0.. {
        assert!(story.push(&format!("before-{good}")).await? > 0, "{:?}", story.answers.tally());
        // One sync fails, so the store is opened again; and all do from one of those of the opening on.
        let failed = story.process.log()?.matches(NOT_YET).count();
        story.recorded.set_between(good, Fault::Sync, u32::MAX >> 1, story.place.part())?;
        story.push(&format!("once-{good}")).await?;
        eventually("the store was opened, or was not", async || {
            opened = story.process.client.get("/readyz").await.is_some_and(|(status, _)| status == 200);
            Ok((opened || story.process.log()?.matches(NOT_YET).count() > failed).then_some(()))
        })
        .await?;
        let log = story.process.log()?;
        assert!(!log.contains("it is damaged"), "{good}: {log}");
        story.set(Fault::None, 0)?;
        eventually("it is open again", async || {
            Ok(story.process.client.get("/readyz").await.filter(|(status, _)| *status == 200))
        })
        .await?;
        if opened {
            assert!(good > 2, "an opening has only {good} syncs");
            break;
        }
    }
    story.holds().await
}

/// A single sync that fails within an opening, at whichever place: what it covered is written again, or the opening fails.
#[tokio::test]
async fn sync_that_fails_while_the_store_is_opened_loses_nothing() -> Result<()> {
    let mut story = Story::begin(Place::Store, &[]).await?;
    for good in 0..8 {
        assert!(story.push(&format!("before-{good}")).await? > 0, "{:?}", story.answers.tally());
        story.recorded.set_between(good, Fault::Sync, 2, story.place.part())?;
        story.push(&format!("once-{good}")).await?;
        let mut tried = 0;
        eventually("it is written again", async || {
            tried += 1;
            Ok((story.push(&format!("after-{good}-{tried}")).await? > 0).then_some(()))
        })
        .await?;
        story.set(Fault::None, 0)?;
        story.holds().await?;
    }
    Ok(())
}

/// sled writes a snapshot when it is opened, removes the one before, and overwrites segments that the new one needs no more.
/// Until the directory is synced a power cut may keep the removal alone.
#[tokio::test]
async fn power_cut_while_the_store_is_opened_loses_nothing() -> Result<()> {
    let mut story = Story::begin(Place::Store, &[]).await?;
    // Few calls each, so that it is opened at many lengths of its log.
    for opening in 0..12 {
        assert!(story.pushes(2 + opening % 3, &format!("before-{opening}")).await? > 0, "{:?}", story.answers.tally());
        story.restart().await?;
    }
    let trace = story.recorded.trace()?;
    let (mut moments, mut overwritten) = (Vec::new(), 0);
    let mut is_unnamed = false;
    for (number, (_, event)) in trace.events().enumerate() {
        match event {
            Event::Removed { path } if path.to_string_lossy().contains("/snap.") => is_unnamed = true,
            Event::Synced { inode } if trace.is_directory(*inode) => is_unnamed = false,
            Event::Wrote { bytes, .. } if is_unnamed && bytes.len() >= SEGMENT_BYTES => overwritten += 1,
            _ => {}
        }
        if is_unnamed {
            moments.push(number);
        }
    }
    assert!(overwritten > 0, "no segment was overwritten: {} moments", moments.len());
    for moment in moments {
        holds_at(&trace, &story.answers, Place::Store, moment, 16, &mut story.rng).await?;
    }
    Ok(())
}

/// Of sled's log.
const SEGMENT_BYTES: usize = 512 * 1024;

const AWAY: (&str, &str) = ("REDIS_URL", "redis+unix:///nowhere/redis.sock");

macro_rules! faults {
    ($($name:ident: $fault:expr;)*) => {$(
        mod $name {
            use super::*;

            #[tokio::test]
            async fn wal_yields_no_false_success() -> Result<()> {
                log_story(Place::Wal, $fault, &[AWAY]).await
            }

            #[tokio::test]
            async fn journal_yields_no_false_success() -> Result<()> {
                let redis = RedisServer::start().await?;
                let url = redis.url();
                let settings = [("REDIS_URL", url.as_str()), ("DURABILITY", "journal"), ("JOURNAL_WINDOW", "1h")];
                log_story(Place::Journal, $fault, &settings).await
            }

            #[tokio::test]
            async fn embedded_store_yields_no_false_success() -> Result<()> {
                log_story(Place::Store, $fault, &[]).await
            }
        }
    )*};
}

faults! {
    a_failed_sync: Fault::Sync;
    a_failed_barrier: Fault::Barrier;
    a_failed_write: Fault::Write;
    a_full_disk: Fault::Full;
}
