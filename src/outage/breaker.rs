//! Whether pushes go to the store or to the WAL.

use tokio::sync::watch;

use crate::model::error::{Error, Kind};
use crate::platform::clock::Clock;
use crate::platform::log_throttle::RepeatThrottle;

/// Closed while the store answers. It opens with the first push that the store does not take. It closes as soon as the
/// store has answered a page of what was buffered (or a ping, if nothing was): the rest of a long WAL is replayed beside
/// live pushes. The page itself is trimmed from the WAL a moment later.
#[derive(Debug)]
pub(super) struct Breaker {
    reason: watch::Sender<Option<Error>>,
    away: RepeatThrottle,
    refused: RepeatThrottle,
}

impl Default for Breaker {
    fn default() -> Breaker {
        Breaker {
            reason: watch::Sender::new(None),
            away: RepeatThrottle::default(),
            refused: RepeatThrottle::default(),
        }
    }
}

impl Breaker {
    /// Why pushes do not go to the store; `None` while they do.
    pub(super) fn reason(&self) -> Option<Error> {
        self.reason.borrow().clone()
    }

    /// Whether what is buffered belongs to another store, so that nothing may be added to it.
    pub(super) fn refusal(&self) -> Option<Error> {
        self.reason().filter(|reason| reason.kind() == Kind::Conflict)
    }

    /// Sends pushes elsewhere from now on. What is wrong may change while it is open: the last reason is shown.
    pub(super) fn open(&self, why: &Error) {
        self.reason.send_if_modified(|reason| {
            let opened = reason.is_none();
            *reason = Some(why.clone());
            opened
        });
        let now = Clock::System.instant();
        if why.kind() == Kind::Conflict {
            if self.refused.is_due(now) {
                tracing::error!(error = %why, "pushes are refused");
            }
        } else if self.away.is_due(now) {
            tracing::warn!(error = %why, "the store is away: pushes are buffered on disk");
        }
    }

    /// Sends pushes to the store again.
    pub(super) fn close(&self) {
        self.reason.send_if_modified(|reason| reason.take().is_some());
        // Both are over, and both have to know.
        if self.away.is_over() | self.refused.is_over() {
            tracing::info!("the store is back: pushes go there again");
        }
    }

    /// Returns once it is open.
    pub(super) async fn opened(&self) {
        // The sender lives as long as this, so waiting cannot fail.
        let _ = self.reason.subscribe().wait_for(Option::is_some).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_keeps_the_last_reason_until_it_closes() {
        let breaker = Breaker::default();
        assert_eq!(breaker.reason(), None);
        breaker.open(&Error::unavailable("refused"));
        breaker.open(&Error::unavailable("refused again"));
        breaker.opened().await;
        assert_eq!(breaker.reason(), Some(Error::unavailable("refused again")));
        assert_eq!(breaker.refusal(), None);
        breaker.open(&Error::new(Kind::Conflict, "another"));
        assert_eq!(breaker.refusal(), Some(Error::new(Kind::Conflict, "another")));
        breaker.close();
        assert_eq!(breaker.reason(), None);
    }
}
