//! One broker process: built in order, stopped in order.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use tokio_util::sync::CancellationToken;

use crate::api::http::{
    self, App, ConnectionOptions, Console, Listen, Listener, ListenerOptions, Reload as _, SocketMode, Tls, TlsFiles,
};
use crate::api::webhook::Webhook;
use crate::app::engine::{Engine, StoreOptions};
use crate::app::reload::{Parts, ReloadOptions, Reloader};
use crate::broker::{self, host_name};
use crate::gate::access::{Access, Token};
use crate::model::error::{Error, Kind, Result};
use crate::model::limits::{ANSWER_PATIENCE, ANSWERS_BYTES_MAX, BODY_TIMEOUT, OPERATORS_CONNECTIONS_MAX};
use crate::platform::clock::Clock;
use crate::platform::tasks::Tasks;
use crate::platform::test_clock::TestClock;
use crate::sqs::{Sqs, SqsOptions};
use crate::store::Description;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::spans::{SpanOptions, Tracer};

#[derive(Debug, Clone)]
pub struct ServerOptions {
    pub listen: Listen,
    /// Where operators get probes, metrics and status, and nothing else. Other machines may reach it also without tokens.
    pub admin: Option<Listen>,
    pub socket_mode: SocketMode,
    pub tls: Option<TlsFiles>,
    /// Access tokens with their scopes. Without any, everyone who reaches the listener may do everything, and other machines do not.
    pub tokens: Vec<Token>,
    pub store: StoreOptions,
    pub broker: broker::Options,
    pub connections: ConnectionOptions,
    /// How long a stop still takes pushes.
    pub linger: Duration,
    pub body_timeout: Duration,
    pub answer_bytes: usize,
    pub answer_patience: Duration,
    pub console: Console,
    pub webhooks: Vec<Webhook>,
    /// Whether SQS clients are served, and how.
    pub sqs: Option<SqsOptions>,
    pub spans: Option<SpanOptions>,
    /// Without them the configuration cannot be read again.
    pub reload: Option<ReloadOptions>,
    /// The clock of the machine, unless a test moves time.
    pub clock: Clock,
    /// Whether clients may move the time of messages: with the embedded store only, and for this machine only.
    pub test_clock: bool,
}

impl ServerOptions {
    pub fn new(listen: Listen, store: StoreOptions, broker: broker::Options) -> ServerOptions {
        ServerOptions {
            listen,
            admin: None,
            store,
            broker,
            socket_mode: SocketMode::PRIVATE,
            tls: None,
            tokens: Vec::new(),
            connections: ConnectionOptions::default(),
            linger: Duration::ZERO,
            body_timeout: BODY_TIMEOUT,
            answer_bytes: ANSWERS_BYTES_MAX,
            answer_patience: ANSWER_PATIENCE,
            console: Console::Full,
            webhooks: Vec::new(),
            sqs: None,
            spans: None,
            reload: None,
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
    admin: Option<Listen>,
    is_tls: bool,
    engine: Engine,
    reloader: Arc<Reloader>,
    stopping: CancellationToken,
    /// Fires when a client asks for a drain.
    drain: CancellationToken,
    linger: Duration,
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
        let (asks, is_tls, socket_mode) = (access.asks(), options.tls.is_some(), options.socket_mode);
        let tls = |files: Option<TlsFiles>| files.map(|files| Tls::new(files, machine.clone())).transpose();
        let bind = async |listen: Listen, tls: Option<Tls>, beyond: bool| {
            Listener::bind(listen, &ListenerOptions { beyond, socket_mode, tls }).await
        };
        let certificate = tls(options.tls.clone())?;
        let listener = bind(options.listen, certificate.clone(), asks).await?;
        // A probe has no certificate to show.
        let admin_tls = tls(options.tls.map(|files| TlsFiles { client_ca: None, ..files }))?;
        let admin = options.admin.map(|admin| bind(admin, admin_tls, true));
        let admin = OptionFuture::from(admin).await.transpose()?;
        let (mut behaviour, mut exporter) = (options.broker, None);
        if let Some(spans) = options.spans {
            let (tracer, exports) = Tracer::exporting(spans, machine.clone())?;
            (behaviour.tracer, exporter) = (tracer, Some(exports));
        }
        let renewal = options.store.renewal();
        let engine = Engine::start(options.store, behaviour, clock.clone()).await?;
        let (broker, connections, exports) = (engine.broker().clone(), Tasks::new(), Tasks::new());
        let metrics = broker.metrics();
        if let Some(exporter) = exporter {
            exports.start(exporter.run(broker.member().to_string(), metrics.clone(), exports.stopping()));
        }
        let (groups, tokens) = (engine.groups().clone(), access.clone());
        let parts = Parts { broker: broker.clone(), access: tokens, renewal, groups, clock: machine.clone() };
        let reloader = Reloader::start(parts, options.webhooks, options.reload)?;
        watch_files(certificate, reloader.clone(), metrics.clone(), &connections);
        let address = listener.address().clone();
        if address.is_beyond() && !is_tls {
            tracing::warn!(%address, "listening beyond loopback without TLS: tokens and messages can be read on their way");
        }
        let sqs = options.sqs.map(|sqs| Sqs::new(broker.clone(), machine, sqs, is_tls, engine.groups().clone()));
        let app = App::new(broker, clock, address.guard(is_tls), connections.clone());
        let app = app.with_body_timeout(options.body_timeout).with_console(options.console);
        let app = app.with_connections(options.connections.max);
        let app = app.with_answers(options.answer_bytes, options.answer_patience);
        let app = app.with_access(access).with_test_clock(test_clock).with_reload(reloader.clone());
        let (drain, linger) = (app.drain(), options.linger);
        let app = sqs.into_iter().fold(app, |app, sqs| app.with_gateway(sqs));
        let (stopping, answers) = (app.stopping(), app.answers());
        let Description { kind, location, durability } = engine.describe();
        let version = env!("CARGO_PKG_VERSION");
        tracing::info!(version, address = %address.url(is_tls), store = kind, location, durability, "started");
        let admin = admin.map(|listener| {
            let address = listener.address().clone();
            let app = app.for_operators(address.guard_for_operators(is_tls, asks));
            tell_of_operators(&address, is_tls, asks);
            let options = ConnectionOptions { max: OPERATORS_CONNECTIONS_MAX, ..options.connections };
            let (answers, metrics) = (answers.clone(), metrics.clone());
            connections.start(listener.serve(http::router(app), answers, options, metrics, connections.clone()));
            address
        });
        connections.start(listener.serve(
            http::router(app),
            answers,
            options.connections,
            metrics,
            connections.clone(),
        ));
        Ok(Server { address, admin, is_tls, engine, reloader, stopping, drain, linger, connections, exports })
    }

    /// Where it listens: `http://127.0.0.1:7373`, with the port that it got, `https://…` with TLS, or `unix:/path`.
    pub fn url(&self) -> String {
        self.address.url(self.is_tls)
    }

    /// Where operators get probes, metrics and status, if that has its own listener.
    pub fn admin_url(&self) -> Option<String> {
        self.admin.as_ref().map(|address| address.url(self.is_tls))
    }

    /// Where clients on this machine reach it: [`Server::url`], but a wildcard address is shown as loopback, or with TLS the name
    /// of this machine, as in its certificate.
    pub fn open_url(&self) -> String {
        self.address.open_url(self.is_tls, &host_name())
    }

    pub fn describe(&self) -> Description {
        self.engine.describe()
    }

    /// Reads the configuration again, and applies what needs no restart. The outcome is in the log.
    pub async fn reload(&self) {
        // It is in the log, and there is nobody else to tell.
        let _ = self.reloader.reload().await;
    }

    /// Waits until a client asks the broker to drain: [`Server::stop`] does it.
    pub async fn drain_asked(&self) {
        self.drain.cancelled().await;
    }

    /// Stops in order, so that no delivery is cut off from its ack and no answered push from its disk.
    pub async fn stop(self) -> Result<()> {
        // From here on it is not ready, so that nothing new is sent here.
        self.stopping.cancel();
        tracing::info!("stopping: nothing more is handed out");
        // Long polls and streams return, deliveries that are out may still be settled, leases are given up. Pushes are still taken.
        tokio::join!(self.engine.drain(), Clock::System.sleep(self.linger));
        tracing::info!("stopping: leases are given up");
        // Requests that are being answered are answered.
        self.connections.stop().await;
        self.engine.replay().await;
        let closed = self.engine.close().await;
        self.exports.stop().await;
        match &closed {
            Ok(()) => tracing::info!("stopped"),
            Err(error) => tracing::error!(%error, "stopped, and the store was not closed cleanly"),
        }
        closed
    }
}

fn watch_files(certificate: Option<Tls>, reloader: Arc<Reloader>, metrics: Arc<Metrics>, tasks: &Tasks) {
    let stop = tasks.stopping();
    tasks.start(watch_certificate(certificate, metrics, stop.clone()));
    tasks.start(async move { reloader.watch(stop).await });
}

/// How often it is looked when the certificate ends.
const CERTIFICATE_LOOK: Duration = Duration::from_secs(5);

/// Reads the certificate again when its file has changed, also while nobody connects, and warns once when it has expired.
async fn watch_certificate(tls: Option<Tls>, metrics: Arc<Metrics>, stop: CancellationToken) {
    let Some(tls) = tls else { return };
    let mut warned_of = None;
    loop {
        let (end, file) = tls.look();
        if let Some(end) = end {
            let (file, seconds) = (file.display().to_string(), i64::try_from(end.as_ms() / 1_000).unwrap_or(i64::MAX));
            metrics.process.certificate_end.with_label_values(&[&file]).set(seconds);
            if end < Clock::System.now() && warned_of.replace(end) != Some(end) {
                tracing::warn!(file, %end, "the certificate has expired: clients that verify it do not connect");
            }
        }
        if stop.run_until_cancelled(Clock::System.sleep(CERTIFICATE_LOOK)).await.is_none() {
            return;
        }
    }
}

/// Says what the listener for operators shows, and to whom.
fn tell_of_operators(address: &Listen, is_tls: bool, asks: bool) {
    let address_shown = address.url(is_tls);
    match (asks, address.is_beyond()) {
        (true, _) => {
            tracing::info!(address = %address_shown, "listening for operators: probes, and for any token metrics and status")
        }
        (false, false) => {
            tracing::info!(address = %address_shown, "listening for operators: probes, metrics and status")
        }
        (false, true) => tracing::warn!(
            address = %address_shown,
            "listening for operators without tokens: other machines see names and counts"
        ),
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopping.cancel();
        self.connections.stopping().cancel();
        self.exports.stopping().cancel();
    }
}
