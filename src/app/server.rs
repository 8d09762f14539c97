//! One broker process: built in order, stopped in order.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::api::http::{
    self, App, ConnectionOptions, Console, Listen, Listener, ListenerOptions, SocketMode, Tls, TlsFiles,
};
use crate::api::webhook::{Subscription, Webhook};
use crate::app::engine::{Engine, StoreOptions};
use crate::broker::{self, host_name};
use crate::gate::access::{Access, Token};
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::{ANSWER_PATIENCE, ANSWERS_BYTES_MAX, BODY_TIMEOUT};
use crate::platform::clock::Clock;
use crate::platform::tasks::Tasks;
use crate::platform::test_clock::TestClock;
use crate::sqs::{Sqs, SqsOptions};
use crate::store::Description;
use crate::telemetry::spans::{SpanOptions, Tracer};

#[derive(Debug, Clone)]
pub struct ServerOptions {
    pub listen: Listen,
    pub socket_mode: SocketMode,
    pub tls: Option<TlsFiles>,
    /// Access tokens with their scopes. Without any, everyone who reaches the listener may do everything, and other machines do not.
    pub tokens: Vec<Token>,
    pub store: StoreOptions,
    pub broker: broker::Options,
    pub connections: ConnectionOptions,
    pub body_timeout: Duration,
    pub answer_bytes: usize,
    pub answer_patience: Duration,
    pub console: Console,
    pub webhooks: Vec<Webhook>,
    /// Whether SQS clients are served, and how.
    pub sqs: Option<SqsOptions>,
    pub spans: Option<SpanOptions>,
    /// The clock of the machine, unless a test moves time.
    pub clock: Clock,
    /// Whether clients may move the time of messages: with the embedded store only, and for this machine only.
    pub test_clock: bool,
}

impl ServerOptions {
    pub fn new(listen: Listen, store: StoreOptions, broker: broker::Options) -> ServerOptions {
        ServerOptions {
            listen,
            store,
            broker,
            socket_mode: SocketMode::PRIVATE,
            tls: None,
            tokens: Vec::new(),
            connections: ConnectionOptions::default(),
            body_timeout: BODY_TIMEOUT,
            answer_bytes: ANSWERS_BYTES_MAX,
            answer_patience: ANSWER_PATIENCE,
            console: Console::Full,
            webhooks: Vec::new(),
            sqs: None,
            spans: None,
            clock: Clock::System,
            test_clock: false,
        }
    }

    /// Refuses what a start would refuse, without a listener, a directory or a network.
    pub fn check(&self) -> Result<()> {
        self.store.check()?;
        self.check_test_clock()?;
        self.tls.clone().map(|files| Tls::new(files, self.clock.clone())).transpose()?;
        self.spans.clone().map(|spans| Tracer::exporting(spans, self.clock.clone())).transpose()?;
        let mut webhooks = self.webhooks.iter().filter(|webhook| webhook.enabled);
        webhooks.try_for_each(|webhook| webhook.check(self.clock.clone()))
    }
}

impl ServerOptions {
    /// Time that anyone may move is for tests: what others share goes by the clock of the machine.
    fn check_test_clock(&self) -> Result<()> {
        let why = match &self.store {
            _ if !self.test_clock => return Ok(()),
            StoreOptions::Redis { .. } => {
                "with Redis: its messages belong to other brokers, too; use the embedded store"
            }
            StoreOptions::Embedded { .. } if self.listen.is_beyond() => {
                "on an address that other machines reach: listen on loopback or a Unix socket"
            }
            StoreOptions::Embedded { .. } if !self.tokens.is_empty() => {
                "with access tokens: they are for brokers whose messages count"
            }
            StoreOptions::Embedded { .. } => return Ok(()),
        };
        Err(Error::new(Kind::Invalid, format!("there is no test clock {why}")))
    }

    fn open_test_clock(&self) -> Result<Option<Arc<TestClock>>> {
        self.check_test_clock()?;
        match &self.store {
            StoreOptions::Embedded { dir } if self.test_clock => Ok(Some(Arc::new(TestClock::open(dir)?))),
            StoreOptions::Embedded { .. } | StoreOptions::Redis { .. } => Ok(None),
        }
    }
}

/// A running broker process. Dropping it stops everything at once; [`Server::stop`] stops it in order.
pub struct Server {
    address: Listen,
    is_tls: bool,
    engine: Engine,
    stopping: CancellationToken,
    connections: Tasks,
    exports: Tasks,
}

impl Server {
    /// # Errors
    /// `Invalid` options, `Conflict` when the address or the directory is in use, and the store's.
    pub async fn start(options: ServerOptions) -> Result<Server> {
        // Binding first: an address in use must not cost a take-over of the store.
        let test_clock = options.open_test_clock()?;
        let clock = test_clock.as_ref().map_or(options.clock, |test_clock| test_clock.clock());
        // Others check signatures, certificates and dates by their own clocks.
        let machine = clock.of_machine();
        let access = Access::new(options.tokens, machine.clone());
        access.look();
        let tls = options.tls.map(|files| Tls::new(files, machine.clone())).transpose()?;
        let is_tls = tls.is_some();
        let listener_options = ListenerOptions { asks: access.asks(), socket_mode: options.socket_mode, tls };
        let listener = Listener::bind(options.listen, &listener_options).await?;
        let (mut behaviour, mut exporter) = (options.broker, None);
        if let Some(spans) = options.spans {
            let (tracer, exports) = Tracer::exporting(spans, machine.clone())?;
            (behaviour.tracer, exporter) = (tracer, Some(exports));
        }
        let engine = Engine::start(options.store, behaviour, clock.clone()).await?;
        let (broker, connections, exports) = (engine.broker().clone(), Tasks::new(), Tasks::new());
        let metrics = broker.metrics();
        if let Some(exporter) = exporter {
            exports.start(exporter.run(broker.member().to_string(), metrics.clone(), exports.stopping()));
        }
        for webhook in options.webhooks.into_iter().filter(|webhook| webhook.enabled) {
            let subscription = Subscription::new(broker.clone(), webhook, machine.clone())?;
            engine.groups().start(subscription.run(engine.groups().stopping()));
        }
        let address = listener.address().clone();
        if address.is_beyond() && !is_tls {
            tracing::warn!(%address, "listening beyond loopback without TLS: tokens and messages can be read on their way");
        }
        let sqs = options.sqs.map(|sqs| Sqs::new(broker.clone(), machine, sqs, is_tls, engine.groups().clone()));
        let app = App::new(broker, clock, address.guard(is_tls), connections.clone());
        let app = app.with_body_timeout(options.body_timeout).with_console(options.console);
        let app = app.with_connections(options.connections.max);
        let app = app.with_answers(options.answer_bytes, options.answer_patience);
        let app = app.with_access(access).with_test_clock(test_clock);
        let app = match sqs {
            Some(sqs) => app.with_gateway(sqs),
            None => app,
        };
        let (stopping, answers) = (app.stopping(), app.answers());
        let Description { kind, location, durability } = engine.describe();
        let version = env!("CARGO_PKG_VERSION");
        tracing::info!(version, address = %address.url(is_tls), store = kind, location, durability, "started");
        connections.start(listener.serve(
            http::router(app),
            answers,
            options.connections,
            metrics,
            connections.clone(),
        ));
        Ok(Server { address, is_tls, engine, stopping, connections, exports })
    }

    /// Where it listens: `http://127.0.0.1:7373`, with the port that it got, `https://…` with TLS, or `unix:/path`.
    pub fn url(&self) -> String {
        self.address.url(self.is_tls)
    }

    /// Where clients on this machine reach it: [`Server::url`], but a wildcard address is shown as loopback, or with TLS the name
    /// of this machine, as in its certificate.
    pub fn open_url(&self) -> String {
        self.address.open_url(self.is_tls, &host_name())
    }

    pub fn describe(&self) -> Description {
        self.engine.describe()
    }

    /// Stops in order, so that no delivery is cut off from its ack and no answered push from its disk.
    pub async fn stop(self) -> Result<()> {
        // From here on it is not ready, so that nothing new is sent here.
        self.stopping.cancel();
        tracing::info!("stopping: nothing more is handed out");
        // Long polls and streams return, deliveries that are out may still be settled, leases are given up.
        self.engine.drain().await;
        tracing::info!("stopping: leases are given up");
        // Requests that are being answered are answered.
        self.connections.stop().await;
        let closed = self.engine.close().await;
        self.exports.stop().await;
        match &closed {
            Ok(()) => tracing::info!("stopped"),
            Err(error) => tracing::error!(%error, "stopped, and the store was not closed cleanly"),
        }
        closed
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopping.cancel();
        self.connections.stopping().cancel();
        self.exports.stopping().cancel();
    }
}
