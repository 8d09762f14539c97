//! A consumer that waits for deliveries, in a long poll or a stream.
//!
//! Consumers that wait take connections for long, so there are fewer places for them than connections. Nothing is taken for
//! a consumer whose token is revoked, or while there is no room for its answer.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use tokio::sync::OwnedSemaphorePermit;

use super::problem::{Class, Problem};
use super::{App, access};
use crate::api::access::{Scope, Scopes, Shown};
use crate::model::error::{Error, Kind};

/// The token of a request, if tokens are asked for.
pub(crate) struct ShownToken(Option<Shown>);

impl FromRequestParts<App> for ShownToken {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<ShownToken, Problem> {
        if !app.access.asks() {
            return Ok(ShownToken(None));
        }
        Ok(ShownToken(access::bearer(&parts.headers)?.map(Shown::new)))
    }
}

/// A consumer that has a place among those that may wait.
pub(crate) struct Consumer {
    app: App,
    token: ShownToken,
    _place: OwnedSemaphorePermit,
}

impl Consumer {
    /// Takes a place.
    ///
    /// # Errors
    /// 429 `full` when all are taken.
    pub(crate) fn enter(app: App, token: ShownToken) -> Result<Consumer, Problem> {
        match app.waiting.clone().try_acquire_owned() {
            Ok(place) => Ok(Consumer { app, token, _place: place }),
            Err(_) => {
                let detail = "as many consumers wait as may: the other connections are for those that do not";
                Err(Problem::of_waiting(Error::new(Kind::Full, detail)))
            }
        }
    }

    /// Does some work that takes deliveries, and nothing of it without a token that is good, or without room for an answer.
    ///
    /// # Errors
    /// 401 when the token is revoked, 503 `full` when there is no room in time.
    pub(crate) async fn take<T>(&self, work: impl Future<Output = T>) -> Result<T, Problem> {
        let mut work = pin!(work);
        let allowed = poll_fn(|context| match self.is_allowed() {
            true => work.as_mut().poll(context).map(Ok),
            false => Poll::Ready(Err(Problem::new(Class::Unauthorized, "the token was revoked meanwhile"))),
        });
        self.app.answers.while_room(allowed).await?
    }

    fn is_allowed(&self) -> bool {
        let access = &self.app.access;
        let consume = Scopes::of(&[Scope::Consume]);
        !access.asks()
            || self.token.0.and_then(|shown| access.owner(shown)).is_some_and(|actor| actor.scopes.grant(consume))
    }
}

/// Whether a problem will be over by itself.
pub(crate) fn is_over_soon(problem: &Problem) -> bool {
    problem.status() == StatusCode::SERVICE_UNAVAILABLE
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::poll;
    use tokio::sync::oneshot;

    use super::*;
    use crate::api::access::{Access, Token};
    use crate::api::http::testing::app;
    use crate::model::time::Timestamp;
    use crate::platform::clock::{Clock, Manual};

    type Outcome = Result<(), Box<dyn std::error::Error>>;

    const TOKEN: &str = "0123456789abcdef";

    #[tokio::test]
    async fn nothing_is_taken_once_the_token_is_revoked() -> Outcome {
        let (dir, time) = (tempfile::tempdir()?, Manual::at(Timestamp::from_ms(0)));
        let file = dir.path().join("token");
        std::fs::write(&file, TOKEN)?;
        let token = Token { name: "a".into(), file: file.clone(), scopes: Scopes::of(&[Scope::Consume]) };
        let app = app()?.with_access(Access::new(vec![token], Clock::Manual(time.clone())));
        let enter = || Consumer::enter(app.clone(), ShownToken(Some(Shown::new(TOKEN))));
        let Ok(consumer) = enter() else { return Err("there is a place".into()) };
        let (push, pushed) = oneshot::channel();
        let mut taken = pin!(consumer.take(pushed));
        assert!(poll!(taken.as_mut()).is_pending());
        std::fs::remove_file(&file)?;
        time.advance(Duration::from_secs(1));
        assert_eq!(push.send(7), Ok(()));
        assert_eq!(taken.await.err().map(|problem| problem.status()), Some(StatusCode::UNAUTHORIZED));
        std::fs::write(&file, TOKEN)?;
        time.advance(Duration::from_secs(1));
        assert_eq!(consumer.take(async { 7 }).await.ok(), Some(7));
        Ok(())
    }

    #[tokio::test]
    async fn nine_tenths_of_the_connections_are_for_consumers_that_wait() -> Outcome {
        for (connections, places) in [(1, 1), (10, 9), (25, 22)] {
            let app = app()?.with_connections(connections);
            let enter = || Consumer::enter(app.clone(), ShownToken(None));
            let entered: Vec<_> = std::iter::repeat_with(enter).take(places).collect();
            assert!(entered.iter().all(Result::is_ok), "{connections}");
            let refused = enter().err().map(|problem| problem.status());
            assert_eq!(refused, Some(StatusCode::TOO_MANY_REQUESTS), "{connections}");
            drop(entered);
            assert!(enter().is_ok(), "{connections}");
        }
        Ok(())
    }
}
