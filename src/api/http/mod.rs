//! HTTP: requests become calls of the broker, and outcomes become replies. docs/reference is the contract.

mod answer_budget;
mod authorization;
mod batch;
mod body;
mod body_errors;
mod bulk;
mod connection_limit;
mod console;
mod consume;
mod cron;
mod dead_letters;
mod document;
mod field_errors;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
mod groups;
mod half_close;
mod list;
mod listen;
mod listener;
mod message;
mod message_json;
mod operations;
mod origin_guard;
mod overview;
mod path_params;
mod problem;
mod push;
mod reply;
mod request_log;
mod schema;
mod settle;
mod strict_json;
#[cfg(test)]
mod tests;
mod timeouts;
mod topics;

use std::ops::{ControlFlow, Deref};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::{FutureExt, TryFutureExt};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use authorization::CLI_USER_AGENT_PREFIX;
pub use console::{Console, FILES as CONSOLE_FILES};
pub use gateway::{AnswerRoom, Consumers, Gateway, GatewayReply, Head, TakeError};
pub use listen::{LISTEN_ACCEPTED, Listen, MODE_ACCEPTED, SocketMode, Tls, TlsFiles, check_certificates, check_key};
pub use listener::{ConnectionOptions, Listener, ListenerOptions};
pub use origin_guard::Guard;
pub use problem::{ProblemType, problem_types};

use crate::api::access::Access;
use crate::broker::Broker;
use crate::model::limits::{
    ANSWER_PATIENCE, ANSWERS_BYTES_MAX, BODIES_BYTES_MAX, BODY_TIMEOUT, CONNECTIONS_MAX, WAITING_TENTHS,
};
use crate::platform::clock::Clock;
use crate::platform::tasks::Tasks;
use crate::platform::test_clock::TestClock;
use crate::telemetry::metrics::Metrics;
use answer_budget::AnswerBudget;
use body::BodyBudget;
use request_log::{FailureLog, Observed};

/// The state that every request shares. It is cloned for each, so a clone must be cheap.
#[derive(Clone)]
pub struct App(Arc<Inner>);

#[derive(Clone)]
pub struct Inner {
    broker: Broker,
    metrics: Arc<Metrics>,
    clock: Clock,
    guard: Guard,
    access: Access,
    gateway: Option<Arc<dyn Gateway>>,
    test_clock: Option<Arc<TestClock>>,
    tasks: Tasks,
    failures: Arc<FailureLog>,
    /// Fires when the broker begins to stop: from then on it is not ready.
    stopping: CancellationToken,
    body_timeout: Duration,
    console: Console,
    bodies: Arc<BodyBudget>,
    answers: Arc<AnswerBudget>,
    waiting: Arc<Semaphore>,
}

impl App {
    pub fn new(broker: Broker, clock: Clock, guard: Guard, tasks: Tasks) -> App {
        App(Arc::new(Inner {
            metrics: broker.metrics(),
            broker,
            clock,
            guard,
            access: Access::free(),
            gateway: None,
            test_clock: None,
            tasks,
            failures: Arc::default(),
            stopping: CancellationToken::new(),
            body_timeout: BODY_TIMEOUT,
            console: Console::Full,
            bodies: Arc::new(BodyBudget::new(BODIES_BYTES_MAX)),
            answers: AnswerBudget::new(ANSWERS_BYTES_MAX, ANSWER_PATIENCE),
            waiting: places_of(CONNECTIONS_MAX),
        }))
    }

    pub fn with_body_timeout(mut self, body_timeout: Duration) -> App {
        Arc::make_mut(&mut self.0).body_timeout = body_timeout;
        self
    }

    #[cfg(test)]
    pub(crate) fn with_bodies(mut self, bytes: usize) -> App {
        Arc::make_mut(&mut self.0).bodies = Arc::new(BodyBudget::new(bytes));
        self
    }

    /// `bytes` of all answers together; a request waits for room for `patience`.
    pub fn with_answers(mut self, bytes: usize, patience: Duration) -> App {
        Arc::make_mut(&mut self.0).answers = AnswerBudget::new(bytes, patience);
        self
    }

    pub fn with_connections(mut self, max: usize) -> App {
        Arc::make_mut(&mut self.0).waiting = places_of(max);
        self
    }

    pub fn with_console(mut self, console: Console) -> App {
        Arc::make_mut(&mut self.0).console = console;
        self
    }

    pub fn with_access(mut self, access: Access) -> App {
        Arc::make_mut(&mut self.0).access = access;
        self
    }

    /// Another protocol on the same listener.
    pub fn with_gateway(mut self, gateway: Arc<dyn Gateway>) -> App {
        Arc::make_mut(&mut self.0).gateway = Some(gateway);
        self
    }

    /// A clock that clients may move; [`App::new`] got it as its clock.
    pub fn with_test_clock(mut self, test_clock: Option<Arc<TestClock>>) -> App {
        Arc::make_mut(&mut self.0).test_clock = test_clock;
        self
    }

    pub(crate) fn answers(&self) -> Arc<AnswerBudget> {
        self.answers.clone()
    }

    pub fn stopping(&self) -> CancellationToken {
        self.stopping.clone()
    }
}

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

fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(document::Head::openapi())
        .routes(routes!(topics::create_or_update, topics::get, topics::delete))
        .routes(routes!(topics::list))
        .routes(routes!(topics::move_topic))
        .routes(routes!(list::forecast))
        .routes(routes!(message::explain))
        .routes(routes!(bulk::count, bulk::change))
        .routes(routes!(groups::verify, groups::repair))
        .routes(routes!(groups::create_or_update, groups::get, groups::delete))
        .routes(routes!(groups::list))
        .routes(routes!(groups::purge))
        .routes(routes!(groups::pause))
        .routes(routes!(groups::resume))
        .routes(routes!(cron::list))
        .routes(routes!(cron::create_or_update, cron::get, cron::delete))
        .routes(routes!(cron::pause))
        .routes(routes!(cron::resume))
        .routes(routes!(push::push, list::list))
        .routes(routes!(batch::push_batch))
        .routes(routes!(message::get, message::cancel, message::reschedule))
        .routes(routes!(consume::reserve))
        .routes(routes!(consume::stream))
        .routes(routes!(settle::ack))
        .routes(routes!(settle::nack))
        .routes(routes!(settle::extend))
        .routes(routes!(dead_letters::list))
        .routes(routes!(dead_letters::redrive))
        .routes(routes!(dead_letters::purge))
        .routes(routes!(operations::hand_over))
        .routes(routes!(operations::test_clock, operations::move_test_clock))
        .routes(routes!(overview::traffic))
        .routes(routes!(overview::attention))
        .routes(routes!(overview::brokers))
        .routes(routes!(operations::livez))
        .routes(routes!(operations::readyz))
        // Lines of metrics repeat one another, so they shrink to a tenth.
        .merge(OpenApiRouter::new().routes(routes!(operations::metrics)).layer(compression()))
        .routes(routes!(operations::openapi))
}

fn compression() -> CompressionLayer {
    CompressionLayer::new().quality(CompressionLevel::Fastest)
}

pub fn openapi() -> serde_json::Value {
    document::complete(routes().into_openapi())
}

pub fn router(app: App) -> Router {
    let (router, document) = routes().split_for_parts();
    request_log::expect(&app.metrics.http, &document);
    // The path of a batch is also the path of the message with the id `batch`.
    let of_batch = get(message::get).delete(message::cancel).patch(message::reschedule);
    let router = router.route("/v1/topics/{topic}/messages/batch", of_batch);
    layered(router.merge(console::routes(app.console)), app)
}

fn layered(router: Router<App>, app: App) -> Router {
    router
        .fallback(request_log::no_route)
        .method_not_allowed_fallback(request_log::no_method)
        // One layer, since each one puts every request into one more box, and copies the layers below it.
        .layer(from_fn_with_state(app.clone(), observe))
        .with_state(app)
}

async fn observe(State(app): State<App>, request: Request, next: Next) -> Response {
    let observed = Observed::begin(&app, &request);
    let answer = AssertUnwindSafe(admit(&app, request, next)).catch_unwind();
    observed.end(&app, answer.unwrap_or_else(request_log::panicked)).await
}

/// Checks a request on its way to its route.
async fn admit(app: &App, request: Request, next: Next) -> Response {
    if let Err(problem) = app.guard.allows(&request) {
        return problem.into_response();
    }
    match gateway::check(app, request).await {
        ControlFlow::Continue(request) => authorization::check(app, request, next).await,
        ControlFlow::Break(response) => response,
    }
}
