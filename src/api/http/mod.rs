//! HTTP: requests become calls of the broker's verbs, their outcomes become replies. docs/reference is the contract.
//!
//! Nothing here knows which store there is, holds a delivery, or decides about a message.

mod access;
mod answer_budget;
mod verify;
mod batch;
mod body;
mod body_budget;
mod body_errors;
mod console;
mod consume;
mod consumer;
mod control;
mod created;
mod connection_limit;
mod dead;
mod document;
mod explain;
mod fallback;
mod field_errors;
mod forecast;
mod groups;
mod origin_guard;
mod hand_over;
mod json_list;
mod keep_alive;
mod list;
mod listen;
mod listener;
mod topic_move;
mod get_message;
mod authorization;
mod request_log;
mod operations;
mod path_params;
mod write_timeout;
mod problem;
mod problem_sets;
mod problem_types;
mod push;
mod schema;
mod reply;
mod cron;
mod route_metrics;
mod settle;
mod message_json;
mod socket;
mod stream;
mod strict_json;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod tls;
mod topics;
mod audit_log;
mod body_tracking;
mod bulk;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use audit_log::BY_HAND;
pub use console::{Console, FILES as CONSOLE_FILES};
pub use listen::{ACCEPTED as LISTEN_ACCEPTED, Listen};
pub use listener::{Connections, Door, Listener};
pub use origin_guard::Guard;
pub use problem_types::{ProblemType, problem_types};
pub use socket::{MODE_ACCEPTED, SocketMode};
pub use tls::{Tls, TlsFiles, check_certificates, check_key};

use crate::api::access::Access;
use crate::broker::Broker;
use crate::model::limits::{
    ANSWER_PATIENCE, ANSWERS_BYTES_MAX, BODIES_BYTES_MAX, BODY_TIMEOUT, CONNECTIONS_MAX, WAITING_TENTHS,
};
use crate::platform::clock::Clock;
use crate::platform::tasks::Tasks;
use crate::telemetry::metrics::Metrics;
use answer_budget::AnswerBudget;
use body_budget::BodyBudget;
use request_log::Faults;

/// What every request has at hand. Clones share it: each layer of each request makes some, so one must cost no more than
/// a counter.
#[derive(Clone)]
pub struct App(Arc<Inner>);

/// What is shared.
#[derive(Clone)]
pub struct Inner {
    broker: Broker,
    metrics: Arc<Metrics>,
    clock: Clock,
    guard: Guard,
    access: Access,
    /// Reads what is left of refused bodies.
    tasks: Tasks,
    /// Logs what fails.
    faults: Arc<Faults>,
    /// Fires when the broker begins to stop: from then on it is not ready.
    stopping: CancellationToken,
    body_timeout: Duration,
    console: Console,
    /// Bytes that all bodies together may still take.
    bodies: Arc<BodyBudget>,
    /// Bytes that all answers together may take until they are read.
    answers: Arc<AnswerBudget>,
    /// Places for consumers that wait.
    waiting: Arc<Semaphore>,
}

impl App {
    /// An application over `broker`, whose requests run in `tasks`.
    pub fn new(broker: Broker, clock: Clock, guard: Guard, tasks: Tasks) -> App {
        App(Arc::new(Inner {
            metrics: broker.metrics(),
            broker,
            clock,
            guard,
            access: Access::free(),
            tasks,
            faults: Arc::default(),
            stopping: CancellationToken::new(),
            body_timeout: BODY_TIMEOUT,
            console: Console::Full,
            bodies: Arc::new(BodyBudget::new(BODIES_BYTES_MAX)),
            answers: AnswerBudget::new(ANSWERS_BYTES_MAX, ANSWER_PATIENCE),
            waiting: places_of(CONNECTIONS_MAX),
        }))
    }

    /// Gives a body another time to arrive.
    pub fn with_body_timeout(mut self, body_timeout: Duration) -> App {
        Arc::make_mut(&mut self.0).body_timeout = body_timeout;
        self
    }

    /// Gives bodies that are being read another bound: bytes of all of them.
    #[cfg(test)]
    pub(crate) fn with_bodies(mut self, bytes: usize) -> App {
        Arc::make_mut(&mut self.0).bodies = Arc::new(BodyBudget::new(bytes));
        self
    }

    /// Gives answers that are not read other bounds: bytes of all of them, and how long a request waits for room.
    pub fn with_answers(mut self, bytes: usize, patience: Duration) -> App {
        Arc::make_mut(&mut self.0).answers = AnswerBudget::new(bytes, patience);
        self
    }

    /// Says how many connections there may be.
    pub fn with_connections(mut self, max: usize) -> App {
        Arc::make_mut(&mut self.0).waiting = places_of(max);
        self
    }

    /// Says what the console offers.
    pub fn with_console(mut self, console: Console) -> App {
        Arc::make_mut(&mut self.0).console = console;
        self
    }

    /// Asks for these tokens. Without, everyone may do everything.
    pub fn with_access(mut self, access: Access) -> App {
        Arc::make_mut(&mut self.0).access = access;
        self
    }

    /// The room for answers that their clients have not read.
    pub(crate) fn answers(&self) -> Arc<AnswerBudget> {
        self.answers.clone()
    }

    /// Fire it when the broker begins to stop.
    pub fn stopping(&self) -> CancellationToken {
        self.stopping.clone()
    }
}

/// Places for consumers that wait, where there may be so many connections: at least one.
fn places_of(connections: usize) -> Arc<Semaphore> {
    let places = connections.saturating_mul(WAITING_TENTHS) / 10;
    Arc::new(Semaphore::new(places.clamp(1, Semaphore::MAX_PERMITS)))
}

impl Deref for App {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

/// Every route, with its documentation.
fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(document::Head::openapi())
        .routes(routes!(topics::declare, topics::describe, topics::delete))
        .routes(routes!(topics::list))
        .routes(routes!(topic_move::move_topic))
        .routes(routes!(forecast::forecast))
        .routes(routes!(explain::explain))
        .routes(routes!(bulk::count, bulk::change))
        .routes(routes!(verify::verify, verify::repair))
        .routes(routes!(groups::make, groups::describe, groups::delete))
        .routes(routes!(groups::list))
        .routes(routes!(groups::pause))
        .routes(routes!(groups::resume))
        .routes(routes!(cron::list))
        .routes(routes!(cron::put, cron::show, cron::remove))
        .routes(routes!(cron::pause))
        .routes(routes!(cron::resume))
        .routes(routes!(push::push, list::list))
        .routes(routes!(batch::push_batch))
        .routes(routes!(get_message::look, control::cancel, control::reschedule))
        .routes(routes!(consume::reserve))
        .routes(routes!(stream::stream))
        .routes(routes!(settle::ack))
        .routes(routes!(settle::nack))
        .routes(routes!(settle::extend))
        .routes(routes!(dead::list))
        .routes(routes!(dead::redrive))
        .routes(routes!(dead::purge))
        .routes(routes!(hand_over::hand_over))
        .routes(routes!(operations::livez))
        .routes(routes!(operations::readyz))
        .routes(routes!(operations::metrics))
        .routes(routes!(operations::openapi))
}

/// The OpenAPI document of everything that [`router`] serves.
pub fn openapi() -> serde_json::Value {
    document::complete(routes().into_openapi())
}

/// Everything that is served.
pub fn router(app: App) -> Router {
    let (router, document) = routes().split_for_parts();
    route_metrics::expect(&app.metrics.http, &document);
    let of_batch = get(get_message::look_at_batch).delete(control::cancel_batch).patch(control::reschedule_batch);
    let router = router.route("/v1/topics/{topic}/messages/batch", of_batch);
    layered(router.merge(console::routes(app.console)), app)
}

/// What holds for every request, from the outside in: it has a name and is counted, a panic is answered, no other site sent
/// it, and who did may do so.
fn layered(router: Router<App>, app: App) -> Router {
    router
        .fallback(fallback::no_route)
        .method_not_allowed_fallback(fallback::no_method)
        .layer(from_fn_with_state(app.clone(), access::check))
        .layer(from_fn_with_state(app.clone(), origin_guard::check))
        .layer(CatchPanicLayer::custom(request_log::panicked))
        .layer(from_fn_with_state(app.clone(), request_log::observe))
        .with_state(app)
}
