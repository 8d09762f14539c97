//! A load on one topic: lanes that push, lanes that consume, and how long it took.

use std::cell::Cell;
use std::time::Duration;

use futures_util::future::{self, Either, try_join_all};
use tokio_util::sync::CancellationToken;

use super::target::{Taken, Target, Wanted};
use crate::cli::failure::Failure;
use crate::model::message::TopicName;
use crate::platform::clock::{Clock, Instant};

/// How long one request of a consumer waits.
const WAIT: Duration = Duration::from_secs(5);

/// How long after the start everything has to be acked.
const PATIENCE: Duration = Duration::from_secs(300);

/// Who sends what, and how much at a time.
pub(super) struct Load<'a> {
    pub(super) door: &'a Target,
    pub(super) topic: TopicName,
    pub(super) payload: &'a str,
    /// Messages of a request; one is the request for a single message.
    pub(super) batch: usize,
    /// Requests that are out at the same time.
    pub(super) lanes: usize,
}

/// What consumers have seen so far. Everything runs in one future, so cells are enough.
pub(super) struct Tally {
    left: Cell<usize>,
    first: Cell<Option<(Instant, usize)>>,
    last: Cell<Instant>,
    /// Fires at the last ack.
    done: CancellationToken,
}

impl Tally {
    pub(super) fn new(messages: usize) -> Tally {
        let (left, first, last) = (Cell::new(messages), Cell::new(None), Cell::new(Clock::System.instant()));
        Tally { left, first, last, done: CancellationToken::new() }
    }
}

impl Load<'_> {
    /// Pushes so many messages; answers how many a second.
    pub(super) async fn push(&self, messages: usize, wanted: impl Fn(usize) -> Wanted) -> Result<f64, Failure> {
        let began = Clock::System.instant();
        self.pushing(messages, wanted).await?;
        Ok(per_second(messages, Clock::System.instant().since(began)))
    }

    async fn pushing(&self, messages: usize, wanted: impl Fn(usize) -> Wanted) -> Result<(), Failure> {
        let next = Cell::new(0);
        let lane = async || {
            loop {
                let from = next.get();
                let to = (from + self.batch).min(messages);
                if from == to {
                    return Ok::<_, Failure>(());
                }
                next.set(to);
                match self.batch {
                    1 => self.door.push(&self.topic, self.payload, wanted(from)).await?,
                    _ => {
                        let batch: Vec<_> = (from..to).map(&wanted).collect();
                        self.door.push_batch(&self.topic, self.payload, &batch).await?;
                    }
                }
            }
        };
        try_join_all((0..self.lanes).map(|_| lane())).await.map(drop)
    }

    /// Consumes so many messages, until the last ack; `seen` gets every delivery when it comes.
    pub(super) async fn consume(&self, messages: usize, seen: impl Fn(&Taken)) -> Result<Instant, Failure> {
        let tally = Tally::new(messages);
        self.consuming(&tally, seen).await?;
        Ok(tally.last.get())
    }

    /// Consumes a backlog; answers how many a second, from the first delivery on: taking the leases is not counted.
    pub(super) async fn drain(&self, messages: usize) -> Result<f64, Failure> {
        let tally = Tally::new(messages);
        self.consuming(&tally, |_| ()).await?;
        let (began, first) = tally.first.get().unwrap_or((tally.last.get(), 0));
        let counted = if first < messages { messages - first } else { messages };
        Ok(per_second(counted, tally.last.get().since(began)))
    }

    /// Pushes and consumes at the same time; answers how many a second, from the first push to the last ack.
    pub(super) async fn life(&self, messages: usize) -> Result<f64, Failure> {
        // The leases are taken before.
        self.door.reserve(&self.topic, 1, Duration::ZERO).await?;
        let began = Clock::System.instant();
        let tally = Tally::new(messages);
        let pushing = self.pushing(messages, |_| Wanted::default());
        future::try_join(pushing, self.consuming(&tally, |_| ())).await?;
        Ok(per_second(messages, tally.last.get().since(began)))
    }

    /// Consumes until all loads of a tally together have acked its messages.
    pub(super) async fn share(&self, tally: &Tally) -> Result<(), Failure> {
        self.consuming(tally, |_| ()).await
    }

    async fn consuming(&self, tally: &Tally, seen: impl Fn(&Taken)) -> Result<(), Failure> {
        let lane = async || {
            loop {
                let taken = self.door.reserve(&self.topic, self.batch, WAIT).await?;
                if taken.is_empty() {
                    continue;
                }
                taken.iter().for_each(&seen);
                let count = taken.len();
                if tally.first.get().is_none() {
                    tally.first.set(Some((Clock::System.instant(), count)));
                }
                self.door.ack(&self.topic, taken).await?;
                tally.left.set(tally.left.get().saturating_sub(count));
                if tally.left.get() == 0 {
                    tally.last.set(Clock::System.instant());
                    tally.done.cancel();
                    return Ok::<_, Failure>(());
                }
            }
        };
        let lanes = try_join_all((0..self.lanes).map(|_| lane()));
        let done = async {
            tokio::select! {
                () = tally.done.cancelled() => Ok(()),
                () = Clock::System.sleep(PATIENCE) => {
                    Err(Failure::new(format!("{} messages were not acked after {PATIENCE:?}", tally.left.get())))
                }
            }
        };
        tokio::pin!(lanes, done);
        // The lanes that still wait when all is done are dropped.
        match future::select(lanes, done).await {
            Either::Left((ended, done)) => match ended {
                Ok(_) => done.await,
                Err(failure) => Err(failure),
            },
            Either::Right((done, _)) => done,
        }
    }
}

/// A rate; of nothing it is zero.
pub(super) fn per_second(count: usize, took: Duration) -> f64 {
    let count = count as f64;
    if took.is_zero() { 0.0 } else { count / took.as_secs_f64() }
}
