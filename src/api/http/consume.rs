//! Consuming: reserve and stream.
//!
//! Waiting consumers hold connections for long, so they get fewer places than there are connections. Nothing is delivered
//! to a consumer whose token was revoked, or while there is no room for its answer.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use dwell_client::wire::consume::{Deliveries, Delivery, Reserve};
use futures_util::stream::unfold;
use utoipa::IntoParams;

use super::connection_limit::{Connection, WaitingRead};
use super::document::{BodyProblem, TopicProblem, WaitProblem};
use super::message_json::contents_of;
use super::path_params::{GroupPath, NoParams, Params};
use super::problem::{Class, Problem};
use super::strict_json::JsonOrDefault;
use super::{Admitted, App, reply, schema};
use crate::broker::{Broker, ReserveRequest, ReservedDeliveries, Selection, StreamRequest, is_topic_missing};
use crate::delivery::{self, Gather, Session};
use crate::gate::access::{Scope, Scopes, Shown};
use crate::gate::{Identity, Pass, Place};
use crate::model::limits::{STREAM_IN_FLIGHT_MAX, STREAM_SILENCE_MAX};
use crate::model::message::{GroupName, TopicName};
use crate::model::retry::OnFailure;
use crate::model::time::one_span;

fn request(asked: Reserve) -> Result<(ReserveRequest, Selection), Problem> {
    let request = ReserveRequest {
        max: asked.max.unwrap_or(1),
        wait: one_span("wait", asked.wait, asked.wait_ms)?.unwrap_or_default(),
        visibility_timeout: one_span("visibility_timeout", asked.visibility_timeout, asked.visibility_timeout_ms)?,
    };
    let min_age = one_span("min_age", asked.min_age, asked.min_age_ms)?.unwrap_or_default();
    let on_failure = asked.on_failure.map_or(Ok(OnFailure::default()), |text| text.parse())?;
    let gather = Gather {
        min: asked.min.unwrap_or(1),
        linger: one_span("linger", asked.linger, asked.linger_ms)?.unwrap_or_default(),
        same_key: asked.same_key,
    };
    let selection = Selection { min_age, per_key: asked.per_key.unwrap_or(1), on_failure, gather };
    request.check(selection)?;
    Ok((request, selection))
}

fn handed(delivery: delivery::Delivery) -> Delivery {
    Delivery {
        receipt: delivery.receipt,
        id: delivery.message.id.into(),
        contents: contents_of(delivery.message.envelope),
        attempt: delivery.attempt,
        partition: delivery.partition.0,
        due_at: delivery.message.due_at,
        deadline: delivery.deadline,
        lateness_ms: u64::try_from(delivery.lateness.as_millis()).unwrap_or(u64::MAX),
    }
}

/// Reserve messages that are due, or wait for the first one.
///
/// Settle each delivery before its `deadline`: otherwise the message is delivered again. A topic that does not exist is waited for; after `wait` the answer is 404.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/groups/{group}/reserve", operation_id = "reserveMessages",
    tag = "consuming", request_body = Option<Reserve>,
    params(GroupPath),
    responses((status = 200, description = "What was due", body = Deliveries), Problem, TopicProblem, BodyProblem, WaitProblem)
)]
pub(crate) async fn reserve(
    app: Admitted,
    GroupPath(topic, group): GroupPath,
    _: NoParams,
    Client(connection): Client,
    asked: JsonOrDefault<Reserve>,
) -> Result<Response, Problem> {
    let (request, selection) = asked.read(request)?;
    let waits = connection.filter(|_| !request.wait.is_zero());
    // From here to the reply nothing awaits: a client that leaves in between loses no delivery.
    let consumer = Consumer::enter(&app, app.pass(), waits.as_ref())?;
    let reserved = consumer.take(Box::pin(app.broker().reserve_selected(&topic, &group, request, selection))).await?;
    let ReservedDeliveries { deliveries, visibility_timeout } =
        reserved.map_err(|error| Problem::from(error).of_waiting())?;
    let payloads = deliveries.iter().map(|delivery| delivery.message.envelope.size());
    let held = app.gate.answers.take(app.pass().identity(), reply::weigh(payloads));
    let timeout = ("visibility_timeout_ms", u64::try_from(visibility_timeout.as_millis()).unwrap_or(u64::MAX).into());
    Ok(reply::list_and("deliveries", deliveries.into_iter().map(handed), Some(timeout), held))
}

const IN_FLIGHT: usize = 100;

#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct StreamParams {
    /// 1 to 1,000 deliveries of this stream that are not settled. Default 100.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    max_in_flight: Option<usize>,
    /// 100 ms to 12 h. Default: the topic's.
    #[param(value_type = Option<schema::Duration>)]
    visibility_timeout: Option<Duration>,
    /// The same in milliseconds; not together with `visibility_timeout`.
    #[param(value_type = Option<u64>, example = 30000)]
    visibility_timeout_ms: Option<Duration>,
}

impl<S: Sync> FromRequestParts<S> for StreamParams {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<StreamParams, Problem> {
        let params =
            Params::read(parts.uri.query(), &["max_in_flight", "visibility_timeout", "visibility_timeout_ms"])?;
        Ok(StreamParams {
            max_in_flight: params.number("max_in_flight", 1..=STREAM_IN_FLIGHT_MAX)?,
            visibility_timeout: params.span("visibility_timeout")?,
            visibility_timeout_ms: params.millis("visibility_timeout_ms")?,
        })
    }
}

/// Stream messages as they become due, one a line, until either side ends the stream.
///
/// Settle them with other requests. An empty line shows that the stream is open. It may begin before its topic exists.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/groups/{group}/stream", operation_id = "streamMessages",
    tag = "consuming",
    params(GroupPath, StreamParams),
    responses(
        (status = 200, description = "A delivery a line", body = Delivery, content_type = "application/x-ndjson"),
        Problem, TopicProblem, WaitProblem,
    )
)]
pub(crate) async fn stream(
    app: Admitted,
    GroupPath(topic, group): GroupPath,
    params: StreamParams,
    Client(connection): Client,
) -> Result<impl IntoResponse, Problem> {
    let max_in_flight = params.max_in_flight.unwrap_or(IN_FLIGHT);
    let visibility_timeout = one_span("visibility_timeout", params.visibility_timeout, params.visibility_timeout_ms);
    let visibility_timeout = visibility_timeout.map_err(Problem::of_query)?;
    let request = StreamRequest { max_in_flight, visibility_timeout };
    let consumer = Consumer::enter(&app, app.pass(), connection.as_ref())?;
    let stream = match app.broker().stream(&topic, &group, request).await {
        Err(error) if is_topic_missing(&error) => {
            Stream::Early(Box::new(Early { broker: app.broker().clone(), of: (topic, group), request }))
        }
        session => Stream::Open(session.map_err(|error| Problem::of_query(error).of_waiting())?),
    };
    let lines = Body::from_stream(unfold((consumer, stream), next_line));
    let headers = [
        (header::CONTENT_TYPE, "application/x-ndjson"),
        // A proxy that gathered lines would deliver nothing, and each line that it held would cost an attempt.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
        (header::CACHE_CONTROL, "no-store, no-transform"),
    ];
    Ok((headers, lines))
}

/// A stream, which may begin before its topic exists.
enum Stream {
    Early(Box<Early>),
    Open(Session),
}

/// A stream whose topic does not exist yet.
struct Early {
    broker: Broker,
    of: (TopicName, GroupName),
    request: StreamRequest,
}

/// A line, and the stream after it; `None` when the stream is over.
async fn next_line((consumer, stream): (Consumer, Stream)) -> Option<(Result<Bytes, Infallible>, (Consumer, Stream))> {
    match stream {
        Stream::Open(session) => next_delivery(consumer, session).await,
        Stream::Early(early) => {
            let Early { broker, of: (topic, group), request } = &*early;
            match consumer.take(broker.await_topic(topic, group, STREAM_SILENCE_MAX)).await.ok()? {
                Ok(_) => next_delivery(consumer, broker.stream(topic, group, *request).await.ok()?).await,
                Err(error) if is_topic_missing(&error) => {
                    Some((Ok(Bytes::from_static(b"\n")), (consumer, Stream::Early(early))))
                }
                Err(_) => None,
            }
        }
    }
}

/// Between taking a delivery and returning its line nothing awaits, so every taken delivery is written. A slow client is
/// not polled, and nothing is taken for it.
async fn next_delivery(
    consumer: Consumer,
    session: Session,
) -> Option<(Result<Bytes, Infallible>, (Consumer, Stream))> {
    let line = match consumer.take(session.next(STREAM_SILENCE_MAX)).await {
        Ok(Some(delivery)) => {
            let mut line = serde_json::to_vec(&handed(delivery)).ok()?;
            line.push(b'\n');
            line.into()
        }
        Ok(None) if session.is_over() => {
            session.end();
            return None;
        }
        Ok(None) => Bytes::from_static(b"\n"),
        Err(problem) if problem.status() == StatusCode::SERVICE_UNAVAILABLE => Bytes::from_static(b"\n"),
        // Its unsettled deliveries go back when the session is dropped.
        Err(_) => return None,
    };
    Some((Ok(line), (consumer, Stream::Open(session))))
}

/// The connection of a request; `None` in tests that have none.
pub(crate) struct Client(Option<Connection>);

impl<S: Sync> FromRequestParts<S> for Client {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Client, Infallible> {
        Ok(Client(parts.extensions.get().cloned()))
    }
}

/// A consumer that waits, with its place.
pub(crate) struct Consumer {
    app: App,
    who: Identity,
    shown: Option<Shown>,
    _place: Place,
    _waits: Option<WaitingRead>,
}

impl Consumer {
    /// `waits` is the connection of one that waits: if the client closes its sending side, it has gone, and so has this
    /// consumer. # Errors: 429 `full` when all places, or those of one token, are taken.
    pub(crate) fn enter(app: &App, pass: &Pass, waits: Option<&Connection>) -> Result<Consumer, Problem> {
        let (who, shown) = (pass.identity().clone(), pass.shown());
        let place = app.gate.places.enter(&who).map_err(|full| Problem::from(full).of_waiting())?;
        Ok(Consumer { app: app.clone(), who, shown, _place: place, _waits: waits.map(Connection::wait) })
    }

    /// Polls `work`, which takes deliveries, only while the token is valid and there is room for an answer. # Errors:
    /// 401 when the token is revoked, 503 `full` when there is no room in time.
    pub(crate) async fn take<T>(&self, work: impl Future<Output = T>) -> Result<T, Problem> {
        let mut work = pin!(work);
        let allowed = poll_fn(|context| match self.is_allowed() {
            true => work.as_mut().poll(context).map(Ok),
            false => Poll::Ready(Err(Problem::new(Class::Unauthorized, "the token was revoked meanwhile"))),
        });
        self.app.gate.answers.while_room(&self.who, allowed).await?
    }

    fn is_allowed(&self) -> bool {
        let access = self.app.gate.access();
        let consume = Scopes::of(&[Scope::Consume]);
        !access.asks()
            || self.shown.and_then(|shown| access.owner(shown)).is_some_and(|actor| actor.scopes.grant(consume))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::poll;
    use tokio::sync::oneshot;

    use super::*;
    use crate::api::http::ACTIONS;
    use crate::api::http::tests::app;
    use crate::gate::access::{Access, Token};
    use crate::gate::{Claim, Sent};
    use crate::model::time::Timestamp;
    use crate::platform::clock::{Clock, Manual};

    type Outcome = Result<(), Box<dyn std::error::Error>>;

    const TOKEN: &str = "0123456789abcdef";

    async fn pass(app: &App, token: Option<&str>) -> Result<Pass, Box<dyn std::error::Error>> {
        let entrant = app.gate.enter(Claim::Token(token)).map_err(|refusal| refusal.detail().to_owned())?;
        let action = ACTIONS.iter().find(|action| action.name.ends_with("/reserve")).ok_or("no action")?;
        Ok(app.gate.pass(entrant, action, Sent::OnPurpose).await.map_err(|refusal| refusal.detail().to_owned())?)
    }

    #[tokio::test]
    async fn nothing_is_reserved_once_the_token_is_revoked() -> Outcome {
        let (dir, time) = (tempfile::tempdir()?, Manual::at(Timestamp::from_ms(0)));
        let file = dir.path().join("token");
        std::fs::write(&file, TOKEN)?;
        let token = Token { name: "a".into(), file: file.clone(), scopes: Scopes::of(&[Scope::Consume]) };
        let app = app()?.with_access(Access::new(vec![token], Clock::Manual(time.clone())));
        let pass = pass(&app, Some(TOKEN)).await?;
        let Ok(consumer) = Consumer::enter(&app, &pass, None) else { return Err("there is a place".into()) };
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
    async fn waiting_consumers_may_use_nine_tenths_of_the_connections() -> Outcome {
        for (connections, places) in [(1, 1), (10, 9), (25, 22)] {
            let app = app()?.with_connections(connections);
            let pass = pass(&app, None).await?;
            let enter = || Consumer::enter(&app, &pass, None);
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
