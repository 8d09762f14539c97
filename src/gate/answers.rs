//! A memory budget, for the whole process, of answers that their clients have not read yet.
//!
//! Clients that send requests and do not read the answers could fill the memory. An answer that may become large waits
//! here for room before it reads anything from the store. Small answers are neither counted nor delayed. No token has more
//! than half of the budget, and clients without a token less.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use super::identity::Identity;
use crate::model::error::{Error, Kind, Result};

#[derive(Debug)]
pub(crate) struct AnswerBudget {
    max: usize,
    patience: Duration,
    held: AtomicUsize,
    freed: Notify,
}

#[derive(Debug)]
pub(crate) struct Held {
    budget: Arc<AnswerBudget>,
    who: Identity,
    bytes: usize,
}

impl AnswerBudget {
    pub(crate) fn new(max: usize, patience: Duration) -> Arc<AnswerBudget> {
        Arc::new(AnswerBudget { max, patience, held: AtomicUsize::new(0), freed: Notify::new() })
    }

    /// Waits for room, then takes so many bytes. An answer is admitted while there is room for a single byte, so the
    /// bytes held exceed the budget by less than the answer admitted last. # Errors: 503 `full` when there is no room
    /// in time.
    pub(crate) async fn admit(self: &Arc<Self>, who: &Identity, bytes: usize) -> Result<Held> {
        let admitted = async {
            loop {
                match self.try_take(who, bytes) {
                    Some(held) => return held,
                    None => self.room(who).await,
                }
            }
        };
        timeout(self.patience, admitted).await.map_err(|_| self.no_room())
    }

    /// Polls `work` only while there is room. # Errors: 503 `full` when there is no room in time.
    pub(crate) async fn while_room<T>(&self, who: &Identity, work: impl Future<Output = T>) -> Result<T> {
        let mut work = pin!(work);
        loop {
            timeout(self.patience, self.room(who)).await.map_err(|_| self.no_room())?;
            let step = |context: &mut Context<'_>| match self.has_room(who) {
                true => work.as_mut().poll(context).map(Some),
                false => Poll::Ready(None),
            };
            if let Some(done) = poll_fn(step).await {
                return Ok(done);
            }
        }
    }

    /// Takes so many bytes, whether there is room or not: they are in memory already.
    pub(crate) fn take(self: &Arc<Self>, who: &Identity, bytes: usize) -> Held {
        self.held.fetch_add(bytes, Ordering::SeqCst);
        if let Some(own) = who.answers() {
            own.fetch_add(bytes, Ordering::SeqCst);
        }
        Held { budget: self.clone(), who: who.clone(), bytes }
    }

    fn try_take(self: &Arc<Self>, who: &Identity, bytes: usize) -> Option<Held> {
        if !self.has_share(who) {
            return None;
        }
        let more = |held: usize| (held < self.max).then_some(held.saturating_add(bytes));
        self.held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok()?;
        if let Some(own) = who.answers() {
            own.fetch_add(bytes, Ordering::SeqCst);
        }
        Some(Held { budget: self.clone(), who: who.clone(), bytes })
    }

    /// Whether there is room among all answers.
    pub(crate) fn is_open(&self) -> bool {
        self.held.load(Ordering::SeqCst) < self.max
    }

    fn has_share(&self, who: &Identity) -> bool {
        who.answers().is_none_or(|own| own.load(Ordering::SeqCst) < who.memory(self.max).max(1))
    }

    pub(crate) fn has_room(&self, who: &Identity) -> bool {
        self.is_open() && self.has_share(who)
    }

    /// Errors: `Full`.
    pub(crate) fn check_room(&self, who: &Identity) -> Result<()> {
        if self.has_room(who) { Ok(()) } else { Err(self.no_room()) }
    }

    async fn room(&self, who: &Identity) {
        loop {
            // Listening begins before the check, so that no release is missed in between.
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            if self.has_room(who) {
                return;
            }
            freed.await;
        }
    }

    fn give_back(&self, who: &Identity, bytes: usize) {
        let before = self.held.fetch_sub(bytes, Ordering::SeqCst);
        let mut has_freed = before >= self.max && before - bytes < self.max;
        if let Some(own) = who.answers() {
            let (before, share) = (own.fetch_sub(bytes, Ordering::SeqCst), who.memory(self.max).max(1));
            has_freed |= before >= share && before - bytes < share;
        }
        if has_freed {
            self.freed.notify_waiters();
        }
    }

    fn no_room(&self) -> Error {
        let why = match self.is_open() {
            true => {
                "answers that clients with this token do not read take all the memory that one token has for answers"
            }
            false => "answers that their clients do not read take all the memory there is for answers",
        };
        Error::new(Kind::Full, why)
    }
}

impl Held {
    pub(crate) fn resize(&mut self, bytes: usize) {
        match bytes.checked_sub(self.bytes) {
            Some(more) => {
                self.budget.held.fetch_add(more, Ordering::SeqCst);
                if let Some(own) = self.who.answers() {
                    own.fetch_add(more, Ordering::SeqCst);
                }
            }
            None => self.budget.give_back(&self.who, self.bytes - bytes),
        }
        self.bytes = bytes;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.give_back(&self.who, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn response_waits_for_budget_and_is_refused_after_the_timeout() -> Result<()> {
        let budget = AnswerBudget::new(100, PATIENCE);
        let mut first = budget.admit(&Identity::LOCAL, 60).await?;
        let second = budget.admit(&Identity::LOCAL, 60).await?;
        assert_eq!(budget.admit(&Identity::LOCAL, 1).await.err().map(|error| error.kind()), Some(Kind::Full));
        let mut third = pin!(budget.admit(&Identity::LOCAL, 1));
        assert!(poll!(third.as_mut()).is_pending());
        first.resize(41);
        assert!(poll!(third.as_mut()).is_pending());
        first.resize(39);
        drop(third.await?);
        drop((first, second));
        assert_eq!(budget.held.load(Ordering::SeqCst), 0);
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn no_work_starts_while_the_budget_is_exhausted() -> Result<()> {
        let budget = AnswerBudget::new(100, PATIENCE);
        let (done, is_done) = tokio::sync::oneshot::channel();
        let mut work = pin!(budget.while_room(&Identity::LOCAL, is_done));
        assert!(poll!(work.as_mut()).is_pending());
        let held = budget.take(&Identity::LOCAL, 100);
        assert!(done.send(7).is_ok());
        assert!(poll!(work.as_mut()).is_pending());
        drop(held);
        assert_eq!(work.await?, Ok(7));
        let _held = budget.take(&Identity::LOCAL, 100);
        assert!(budget.while_room(&Identity::LOCAL, async {}).await.is_err());
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn one_token_leaves_room_to_others() -> Result<()> {
        use super::super::identity::Trust;

        let budget = AnswerBudget::new(100, PATIENCE);
        let [a, b] = ["a", "b"].map(|name| Identity::new(name.into(), Trust::Known));
        let anonymous = Identity::new("".into(), Trust::Anonymous);
        let held = budget.take(&a, 50);
        assert!(budget.admit(&a, 1).await.is_err_and(|error| error.detail().contains("one token")));
        assert_eq!([&a, &b, &anonymous, &Identity::LOCAL].map(|who| budget.has_room(who)), [false, true, true, true]);
        let _few = budget.take(&anonymous, 12);
        assert_eq!([&a, &b, &anonymous, &Identity::LOCAL].map(|who| budget.has_room(who)), [false, true, false, true]);
        let mut waits = pin!(budget.admit(&a, 1));
        assert!(poll!(waits.as_mut()).is_pending());
        drop(held);
        waits.await.map(drop)
    }
}
