//! Random calls and restarts against a model of forty lines.

use std::time::Duration;

use dwell::model::error::Result;
use dwell::model::time::Timestamp;
use dwell::platform::clock::Clock;
use dwell::wal::{Cancelled, Entry, Position};
use fastrand::Rng;

use super::support::{Story, all_of, ids_of, push};

const SEEDS: u64 = 12;
const STEPS: usize = 120;

/// What should be in the log.
#[derive(Default)]
struct Model {
    waiting: Vec<Expected>,
    /// Number of the entries handed out since the last restart, all of them at the beginning.
    handed: Option<Position>,
}

struct Expected {
    id: String,
    at: Timestamp,
    /// Known once it was read.
    position: Option<Position>,
    /// By an earlier process.
    inherited: bool,
}

impl Model {
    fn append(&mut self, id: String, at: Timestamp) {
        self.waiting.push(Expected { id, at, position: None, inherited: false });
    }

    /// Holds a page that begins with the entry at this index to what should be there.
    fn check(&mut self, from: usize, page: &[Entry]) {
        for (expected, entry) in self.waiting[from..].iter_mut().zip(page) {
            assert_eq!((&expected.id, expected.at), (&ids_of(std::slice::from_ref(entry))[0], entry.at));
            assert!(expected.position.is_none_or(|position| position == entry.position), "a record has moved");
            expected.position = Some(entry.position);
        }
        self.handed = self.handed.max(page.last().map(|entry| entry.position));
    }

    fn trim(&mut self, through: Position) {
        self.waiting.retain(|expected| expected.position.is_none_or(|position| position > through));
    }

    fn cancel(&mut self, id: &str) -> Cancelled {
        let handed = self.handed;
        let is_handed = |expected: &Expected| expected.position.is_some_and(|position| Some(position) <= handed);
        let is_there = self.waiting.iter().any(|expected| expected.id == id);
        let is_replaying = self.waiting.iter().any(|expected| expected.id == id && is_handed(expected));
        let is_inherited = self.waiting.iter().any(|expected| expected.id == id && expected.inherited);
        if !is_replaying {
            self.waiting.retain(|expected| expected.id != id);
        }
        match (is_there, is_replaying) {
            (_, true) => Cancelled::Replaying,
            (true, false) if is_inherited => Cancelled::RemovedSent,
            (true, false) => Cancelled::Removed,
            (false, false) => Cancelled::Absent,
        }
    }
}

async fn step(rng: &mut Rng, mut story: Story, model: &mut Model, number: usize) -> Result<Story> {
    let now = Clock::Manual(story.time.clone()).now();
    match rng.u32(0..100) {
        0..45 => {
            let many = rng.usize(1..40);
            let ids: Vec<String> = (0..many).map(|n| format!("{number}-{}", n % 30)).collect();
            let records = ids.iter().map(|id| push(id, rng.usize(0..6_000))).collect::<Result<_>>()?;
            story.wal.append(records).await?;
            ids.into_iter().for_each(|id| model.append(id, now));
        }
        45..65 => {
            // After something that was read before, or from the beginning.
            let known = model.waiting.iter().take_while(|expected| expected.position.is_some()).count();
            let from = rng.usize(0..=known.min(50));
            let after = from.checked_sub(1).and_then(|before| model.waiting[before].position);
            let page = story.wal.page(after, rng.usize(1..60), rng.usize(1..100_000)).await?;
            assert_eq!(page.is_empty(), model.waiting.len() == from);
            model.check(from, &page);
        }
        65..78 => {
            let known: Vec<Position> = model.waiting.iter().filter_map(|expected| expected.position).collect();
            if let Some(through) = rng.choice(known) {
                story.wal.trim(through).await?;
                model.trim(through);
            }
        }
        78..88 => {
            let id = format!("{}-{}", rng.usize(0..=number), rng.usize(0..30));
            assert_eq!(story.cancel(&id).await?, model.cancel(&id), "{id}");
        }
        88..90 => {
            story.wal.take_back().await?;
            model.handed = None;
        }
        90..97 => {
            story.time.advance(Duration::from_millis(rng.u64(0..1_000)));
        }
        _ => {
            story = story.reopened().await?;
            model.handed = None;
            model.waiting.iter_mut().for_each(|expected| expected.inherited = true);
        }
    }
    assert_eq!(story.wal.depth().records as usize, model.waiting.len());
    assert_eq!((story.wal.depth().lost, story.wal.depth().damaged), (0, 0));
    Ok(story)
}

#[tokio::test]
async fn random_calls_and_restarts_match_the_model() -> Result<()> {
    for seed in 0..SEEDS {
        // On failure the seed is the last one printed.
        println!("seed {seed}");
        let mut rng = Rng::with_seed(seed);
        let mut story = Story::with(|options| options.segment_bytes = 800_000)?;
        let mut model = Model::default();
        for number in 0..STEPS {
            story = step(&mut rng, story, &mut model, number).await?;
        }
        let rest = all_of(&story.wal).await?;
        assert_eq!(rest.len(), model.waiting.len());
        model.check(0, &rest);
    }
    Ok(())
}
