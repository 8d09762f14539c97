//! Where a Redis is, and how a connection to it is made.

use std::fmt;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::{AsyncPushSender, MultiplexedConnection, PubSub};
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, ConnectionInfo, ProtocolVersion,
    RedisConnectionInfo, RedisError, RedisResult, TlsCertificates, Value,
};

use super::{RedisOptions, failure};
use crate::model::error::{Error, Result};
use crate::platform::clock::Clock;
use crate::platform::https::Roots;
use crate::platform::tasks::detach;

/// Timeouts of a call after which the kernel gives up on a peer that acknowledges nothing.
const SILENT_TIMEOUTS: u32 = 3;

/// A Redis, and the clients that connect to it. They are made anew when what they log in with has changed.
#[derive(Clone)]
pub(super) struct Address {
    info: ConnectionInfo,
    options: RedisOptions,
    made: Arc<Mutex<(u64, Arc<Clients>)>>,
}

struct Clients {
    client: Client,
    /// Does not log in: our own first calls do, so that people read what Redis says about it, not that it failed.
    bare: Client,
    subscriber: Client,
    login: Vec<Cmd>,
}

impl Clients {
    fn new(info: &ConnectionInfo, options: &RedisOptions) -> Result<Clients> {
        let mut user = info.redis_settings().clone().set_skip_set_lib_name();
        if let Some(password) = &options.password {
            user = user.set_password(password.expose());
        }
        let bare = RedisConnectionInfo::default().set_skip_set_lib_name();
        let as_user = |user| client(info.clone().set_redis_settings(user), options);
        Ok(Clients {
            client: as_user(user.clone())?,
            subscriber: as_user(user.clone().set_protocol(ProtocolVersion::RESP3))?,
            bare: as_user(bare)?,
            login: login(&user),
        })
    }
}

impl Address {
    pub(super) fn new(options: &RedisOptions, url: &str) -> Result<Address> {
        let refused =
            |error: RedisError| Error::invalid("redis.url", format!("is not a Redis URL ({})", error.category()));
        let info = Client::open(url).map_err(refused)?.get_connection_info().clone();
        Address::of(info.set_tcp_settings(tcp_settings(options.timeout)), options.clone())
    }

    fn of(info: ConnectionInfo, options: RedisOptions) -> Result<Address> {
        let (number, options) = options.renewed();
        let made = Arc::new(Mutex::new((number, Arc::new(Clients::new(&info, &options)?))));
        Ok(Address { info, options, made })
    }

    pub(super) fn at(&self, host: &str, port: u16) -> Address {
        let addr = match self.info.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
                host: host.to_owned(),
                port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(host.to_owned(), port),
        };
        // Its options made clients already.
        Address::of(self.info.clone().set_addr(addr), self.options.clone()).unwrap_or_else(|_| self.clone())
    }

    fn clients(&self) -> Arc<Clients> {
        let (number, options) = self.options.renewed();
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.0 != number {
            match Clients::new(&self.info, &options) {
                Ok(clients) => *made = (number, Arc::new(clients)),
                Err(error) => {
                    tracing::warn!(%error, "what Redis is logged in with cannot be used; the ones before are used on");
                    made.0 = number;
                }
            }
        }
        made.1.clone()
    }

    /// Where it is, without secrets.
    pub(super) fn location(&self) -> String {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, port) => format!("{host}:{port}"),
            ConnectionAddr::TcpTls { host, port, .. } => format!("{host}:{port} (TLS)"),
            ConnectionAddr::Unix(path) => path.display().to_string(),
            _ => "unknown".to_owned(),
        }
    }

    pub(super) fn host(&self) -> &str {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
            _ => "",
        }
    }

    /// A new connection, and what it has to say first to be let in. Each looks the name up again.
    pub(super) async fn connect(&self) -> Result<(MultiplexedConnection, Vec<Cmd>)> {
        let clients = self.clients();
        let connected = self.open(&clients.bare, self.config()).await;
        connected.map(|connection| (connection, clients.login.clone())).map_err(|error| failure::of_connecting(&error))
    }

    pub(super) async fn log_in(&self) -> Result<MultiplexedConnection> {
        let (mut connection, login) = self.connect().await?;
        for command in &login {
            match connection.send_packed_command(command).await {
                Ok(Value::ServerError(error)) => return Err(failure::of_connecting(&error.into())),
                Ok(_) => {}
                Err(error) => return Err(failure::of_greeting(&error)),
            }
        }
        Ok(connection)
    }

    pub(super) async fn subscribe(&self, sink: impl AsyncPushSender) -> Result<MultiplexedConnection> {
        let config = self.config().set_push_sender(sink);
        let connected = self.open(&self.clients().subscriber, config).await;
        connected.map_err(|error| failure::of_connecting(&error))
    }

    async fn open(&self, client: &Client, config: AsyncConnectionConfig) -> RedisResult<MultiplexedConnection> {
        match (&self.options.dialer, client.get_connection_info().addr()) {
            (Some(dialer), ConnectionAddr::Tcp(host, port)) => {
                let settings = client.get_connection_info().redis_settings();
                let opened = async {
                    let stream = dialer.dial(host, *port).await?;
                    let (connection, driver) = MultiplexedConnection::new_with_config(settings, stream, config).await?;
                    detach(driver);
                    Ok(connection)
                };
                tokio::select! {
                    biased;
                    opened = opened => opened,
                    () = Clock::System.sleep(self.options.timeout) => Err(std::io::Error::from(ErrorKind::TimedOut).into()),
                }
            }
            _ => client.get_multiplexed_async_connection_with_config(&config).await,
        }
    }

    fn config(&self) -> AsyncConnectionConfig {
        let timeout = Some(self.options.timeout);
        AsyncConnectionConfig::new().set_connection_timeout(timeout).set_response_timeout(timeout)
    }

    async fn open_pubsub(&self) -> RedisResult<PubSub> {
        let client = &self.clients().client;
        match (&self.options.dialer, client.get_connection_info().addr()) {
            (Some(dialer), ConnectionAddr::Tcp(host, port)) => {
                let settings = client.get_connection_info().redis_settings();
                PubSub::new(settings, dialer.dial(host, *port).await?).await
            }
            _ => client.get_async_pubsub().await,
        }
    }

    pub(super) async fn listen(&self) -> Result<PubSub> {
        tokio::select! {
            connected = self.open_pubsub() => connected.map_err(|error| failure::of_connecting(&error)),
            () = Clock::System.sleep(self.options.timeout) => Err(failure::silent()),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.location())
    }
}

fn client(info: ConnectionInfo, options: &RedisOptions) -> Result<Client> {
    let opened = match info.addr() {
        ConnectionAddr::TcpTls { .. } => {
            // The client library takes a text without certificates for none at all.
            let roots = options.ca.as_deref().map(|ca| Roots::parse(ca.as_bytes())).transpose();
            roots.map_err(|why| Error::invalid("redis.ca_file", why))?;
            let pem = |text: &str| text.as_bytes().to_vec();
            let identity = options.identity.as_ref();
            let client_tls = identity.map(|(certificate, key)| ClientTlsConfig {
                client_cert: pem(certificate),
                client_key: pem(key.expose()),
            });
            Client::build_with_tls(info, TlsCertificates { client_tls, root_cert: options.ca.as_deref().map(pem) })
        }
        _ => Client::open(info),
    };
    opened.map_err(|error| Error::invalid("redis.ca_file, redis.cert_file or redis.key_file", error))
}

/// A peer that is gone without a word is noticed by the kernel, also while nothing is sent.
fn tcp_settings(timeout: Duration) -> TcpSettings {
    let patience = (timeout * SILENT_TIMEOUTS).max(Duration::from_secs(1));
    // The kernel counts these in whole seconds, and refuses 0.
    let pause = timeout.max(Duration::from_secs(1));
    let keepalive = TcpKeepalive::new().with_time(patience).with_interval(pause);
    // Calls are small and each is waited for: they must not wait for one another in the kernel.
    TcpSettings::default().set_nodelay(true).set_keepalive(keepalive).set_user_timeout(patience)
}

fn login(user: &RedisConnectionInfo) -> Vec<Cmd> {
    let mut login = Vec::new();
    if let Some(password) = user.password() {
        let mut auth = redis::cmd("AUTH");
        if let Some(name) = user.username() {
            auth.arg(name);
        }
        auth.arg(password);
        login.push(auth);
    }
    if user.db() != 0 {
        let mut select = redis::cmd("SELECT");
        select.arg(user.db());
        login.push(select);
    }
    login
}
