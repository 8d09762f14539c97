//! HTTP: requests become calls of the broker, and outcomes become replies. docs/reference is the contract.

mod actions;
mod connection_limit;
mod counted_answer;
mod half_close;
mod reply;
mod schema;
mod field_errors;
mod message_json;
mod problem;
mod admitted;
mod body;
mod console;
mod origin_guard;
mod listen;
mod path_params;
mod document;
mod body_errors;
mod strict_json;
mod authorization;
mod list;
mod overview;
mod bulk;
mod consume;
mod cron;
mod dead_letters;
mod gateway;
mod message;
mod operations;
mod push;
mod batch;
mod request_log;
mod settle;
#[cfg(test)]
mod tests;
mod timeouts;
mod listener;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod topics;
mod groups;

use std::ops::{ControlFlow, Deref};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use dwell_client::wire::operations::Reloaded;
use futures_util::{FutureExt, TryFutureExt};
use tokio_util::sync::CancellationToken;
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use actions::{ACTIONS, CONSOLE};
pub use authorization::CLI_USER_AGENT_PREFIX;
pub use console::{Console, FILES as CONSOLE_FILES};
pub use gateway::{AnswerRoom, Desk, Gateway, GatewayCall, GatewayReply, Head, TakeError};
pub use listen::{LISTEN_ACCEPTED, Listen, MODE_ACCEPTED, SocketMode, Tls, TlsFiles, check_certificates, check_key};
pub use listener::{ConnectionOptions, Listener, ListenerOptions};
pub use origin_guard::Guard;
pub use problem::{ProblemType, problem_types};

use crate::broker::Broker;
use crate::gate::access::Access;
use crate::gate::{AnswerBudget, Audience, Gate};
use crate::model::error::Result;
use crate::model::limits::BODY_TIMEOUT;
use crate::platform::clock::Clock;
use crate::platform::tasks::Tasks;
use crate::platform::test_clock::TestClock;
use crate::telemetry::metrics::Metrics;
pub(crate) use admitted::Admitted;
use admitted::Gated;
use request_log::{FailureLog, Observed};

/// Reads the configuration of the process again.
#[async_trait]
pub trait Reload: Send + Sync {
    /// # Errors: `Invalid` for a configuration that is wrong: nothing has changed then. `NotFound` if there is none.
    async fn reload(&self) -> Result<Reloaded>;
}

/// The state that every request shares. It is cloned for each request, so a clone must be cheap.
#[derive(Clone)]
pub struct App(Arc<Inner>);

#[derive(Clone)]
pub struct Inner {
    broker: Gated,
    metrics: Arc<Metrics>,
    clock: Clock,
    guard: Guard,
    gate: Gate,
    gateway: Option<Arc<dyn Gateway>>,
    test_clock: Option<Arc<TestClock>>,
    reload: Option<Arc<dyn Reload>>,
    tasks: Tasks,
    failures: Arc<FailureLog>,
    /// Fires when the broker begins to stop: from then on it is not ready.
    stopping: CancellationToken,
    /// Fires when a client asks the broker to drain.
    drain: CancellationToken,
    body_timeout: Duration,
    console: Console,
}

impl App {
    pub fn new(broker: Broker, clock: Clock, guard: Guard, tasks: Tasks) -> App {
        App(Arc::new(Inner {
            metrics: broker.metrics(),
            broker: Gated::new(broker),
            clock,
            guard,
            gate: Gate::new(Access::free()),
            gateway: None,
            test_clock: None,
            reload: None,
            tasks,
            failures: Arc::default(),
            stopping: CancellationToken::new(),
            drain: CancellationToken::new(),
            body_timeout: BODY_TIMEOUT,
            console: Console::Full,
        }))
    }

    pub fn with_body_timeout(mut self, body_timeout: Duration) -> App {
        Arc::make_mut(&mut self.0).body_timeout = body_timeout;
        self
    }

    fn with_gate(mut self, change: impl FnOnce(Gate) -> Gate) -> App {
        let inner = Arc::make_mut(&mut self.0);
        inner.gate = change(inner.gate.clone());
        self
    }

    #[cfg(test)]
    pub(crate) fn with_bodies(self, bytes: usize) -> App {
        self.with_gate(|gate| gate.with_bodies(bytes))
    }

    /// `bytes` of all answers together; a request waits for room for `patience`.
    pub fn with_answers(self, bytes: usize, patience: Duration) -> App {
        self.with_gate(|gate| gate.with_answers(bytes, patience))
    }

    pub fn with_connections(self, max: usize) -> App {
        self.with_gate(|gate| gate.with_connections(max))
    }

    pub fn with_access(self, access: Access) -> App {
        self.with_gate(|gate| gate.with_access(access))
    }

    pub fn with_console(mut self, console: Console) -> App {
        Arc::make_mut(&mut self.0).console = console;
        self
    }

    /// The same application behind the listener for operators: the same routes, gate and memory, and no other protocol.
    pub fn for_operators(&self, guard: Guard) -> App {
        let console = if self.console == Console::Off { Console::Off } else { Console::ReadOnly };
        let gate = self.gate.behind(Audience::Operators);
        App(Arc::new(Inner { guard, gate, console, gateway: None, ..Inner::clone(&self.0) }))
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

    pub fn with_reload(mut self, reload: Arc<dyn Reload>) -> App {
        Arc::make_mut(&mut self.0).reload = Some(reload);
        self
    }

    pub(crate) fn answers(&self) -> Arc<AnswerBudget> {
        self.gate.answers.clone()
    }

    pub fn drain(&self) -> CancellationToken {
        self.drain.clone()
    }

    pub fn stopping(&self) -> CancellationToken {
        self.stopping.clone()
    }
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
        .routes(routes!(groups::pause_key))
        .routes(routes!(groups::resume_key))
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
        .routes(routes!(settle::release))
        .routes(routes!(settle::extend))
        .routes(routes!(dead_letters::list))
        .routes(routes!(dead_letters::redrive))
        .routes(routes!(dead_letters::purge))
        .routes(routes!(operations::hand_over))
        .routes(routes!(operations::reload))
        .routes(routes!(operations::drain))
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
    let guarded = app.guard.allows(&request);
    match gateway::check(app, request, guarded).await {
        ControlFlow::Continue((request, Ok(()))) => authorization::check(app, request, next).await,
        ControlFlow::Continue((_, Err(problem))) => problem.into_response(),
        ControlFlow::Break(response) => response,
    }
}
