//! TLS that cannot be agreed on.

use dwell::store::Backend as _;
use std::sync::Arc;

use dwell::model::error::{Kind, Result};
use dwell::platform::clock::Clock;
use dwell::store::redis::{Redis, RedisOptions};
use dwell::telemetry::metrics::Metrics;

use crate::support::{Certificates, kind_of};

#[tokio::test]
async fn redis_certificate_must_be_trusted() -> Result<()> {
    let (certificates, others) = (Certificates::new()?, Certificates::new()?);
    let (_server, options) = certificates.server().await?;
    let open = async |options: RedisOptions| Redis::open(options, Clock::System, Arc::new(Metrics::new()?)).await;
    let good = open(options.clone()).await?;
    good.ping().await?;
    assert!(good.describe().location.ends_with("(TLS)"));
    let refusal = async |options: RedisOptions| {
        let refused = open(options).await?.ping().await.err();
        Ok::<_, dwell::model::error::Error>(
            refused.filter(|error| error.kind() == Kind::Unavailable).map(|e| e.to_string()),
        )
    };
    // Its certificate is of another authority; this client has none, or one of another; it is not for this name.
    let url = options.url.expose().to_owned();
    for (options, says) in [
        (RedisOptions { ca: others.options(&url).ca, ..options.clone() }, "certificate"),
        (RedisOptions { identity: None, ..options.clone() }, ""),
        (RedisOptions { identity: others.options(&url).identity, ..options.clone() }, ""),
        (RedisOptions { url: url.replace("localhost", "127.0.0.2").into(), ..options.clone() }, "certificate"),
        (RedisOptions { url: url.replace("rediss", "redis").into(), ..options.clone() }, "TLS"),
    ] {
        let refused = refusal(options).await?;
        assert!(refused.as_ref().is_some_and(|error| error.contains(says)), "{says}: {refused:?}");
    }
    let unreadable = RedisOptions { ca: Some("-----BEGIN CERTIFICATE-----\nAA".to_owned()), ..options };
    assert_eq!(kind_of(open(unreadable).await), Some(Kind::Invalid));
    Ok(())
}
