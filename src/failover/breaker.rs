//! Whether pushes go to the store or to the WAL.

use tokio::sync::watch;

use crate::error::{Error, Kind};

/// Closed while the store answers. It opens with the first push that the store does not take, and closes when the store
/// has taken what was buffered meanwhile, or has answered at all if that is nothing.
#[derive(Debug)]
pub(super) struct Breaker(watch::Sender<Option<Error>>);

impl Default for Breaker {
    fn default() -> Breaker {
        Breaker(watch::Sender::new(None))
    }
}

impl Breaker {
    /// Why pushes do not go to the store; `None` while they do.
    pub(super) fn reason(&self) -> Option<Error> {
        self.0.borrow().clone()
    }

    /// Whether what is buffered belongs to another store, so that nothing may be added to it.
    pub(super) fn refusal(&self) -> Option<Error> {
        self.reason().filter(|reason| reason.kind() == Kind::Conflict)
    }

    /// Sends pushes elsewhere from now on.
    pub(super) fn open(&self, why: &Error) {
        let opened = self.0.send_if_modified(|reason| {
            let changed = reason.as_ref().is_none_or(|reason| reason.kind() != why.kind());
            if changed {
                *reason = Some(why.clone());
            }
            changed
        });
        if opened && why.kind() == Kind::Conflict {
            tracing::error!(%why, "pushes are refused");
        } else if opened {
            tracing::warn!(%why, "the store is away: pushes are buffered on disk");
        }
    }

    /// Sends pushes to the store again.
    pub(super) fn close(&self) {
        if self.0.send_if_modified(|reason| reason.take().is_some()) {
            tracing::info!("the store is back: pushes go there again");
        }
    }

    /// Returns once it is open.
    pub(super) async fn opened(&self) {
        // The sender lives as long as this, so waiting cannot fail.
        let _ = self.0.subscribe().wait_for(Option::is_some).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_keeps_the_first_reason_of_a_kind_until_it_closes() {
        let breaker = Breaker::default();
        assert_eq!(breaker.reason(), None);
        breaker.open(&Error::unavailable("refused"));
        breaker.open(&Error::unavailable("refused again"));
        breaker.opened().await;
        assert_eq!(breaker.reason(), Some(Error::unavailable("refused")));
        assert_eq!(breaker.refusal(), None);
        breaker.open(&Error::new(Kind::Conflict, "another"));
        assert_eq!(breaker.refusal(), Some(Error::new(Kind::Conflict, "another")));
        breaker.close();
        assert_eq!(breaker.reason(), None);
    }
}
