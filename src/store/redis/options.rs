//! How to reach Redis.

use std::time::Duration;

use super::confirmed::Confirmation;
use crate::platform::secret::Secret;

/// How to reach Redis. Printing it for debugging shows no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisOptions {
    /// `redis://[user:password@]host:port[/db]`, `rediss://…` for TLS, `redis+unix:///path`, or
    /// `redis+sentinel://[user:password@]host:port,…/name[/db][?sentinel_user=…&sentinel_password=…]`.
    pub url: Secret,
    /// The password, if the URL has none.
    pub password: Option<Secret>,
    /// Certificates, as PEM, that the server's has to follow from; without, the system's.
    pub ca: Option<String>,
    /// Certificate and key of this client, as PEM, for a server that asks for them.
    pub identity: Option<(String, Secret)>,
    /// What every key begins with. Letters, digits, `.`, `_` and `-`.
    pub prefix: String,
    /// How long one call may take, 50 ms to 60 s.
    pub timeout: Duration,
    /// Whether to run on a Redis that may evict keys, and so lose messages without an error.
    pub allow_eviction: bool,
    /// Which servers must have a change before it is answered.
    pub confirmation: Confirmation,
}

impl RedisOptions {
    /// The defaults for a URL.
    pub fn new(url: impl Into<Secret>) -> RedisOptions {
        RedisOptions {
            url: url.into(),
            password: None,
            ca: None,
            identity: None,
            prefix: "dwell".to_owned(),
            timeout: Duration::from_secs(1),
            allow_eviction: false,
            confirmation: Confirmation::default(),
        }
    }
}
