//! A target over TLS: it is posted to if its certificate is believed, and not otherwise. The target is another broker.

use dwell::api::http::TlsFiles;
use dwell::model::error::{Error, Result};
use tempfile::TempDir;

use super::shop::Shop;
use crate::http::api::served::Served;
use crate::support::{Certificates, World, scratch, stories};

stories! { trusted_target_receives_posts, untrusted_target_receives_nothing }

fn bug(error: Box<dyn std::error::Error>) -> Error {
    Error::bug(error.to_string())
}

/// A target with a certificate, its URL, and the directory of its files.
async fn target() -> Result<(Served, String, TempDir)> {
    let dir = scratch()?;
    Certificates::new()?.write(dir.path())?;
    let tls = TlsFiles { cert: dir.path().join("cert"), key: dir.path().join("key"), client_ca: None };
    let served = Served::start_with(|options| options.tls = Some(tls)).await.map_err(bug)?;
    served.ask("PUT /v1/topics/posted").await.map_err(bug)?;
    let url = format!("{}/v1/topics/posted/messages", served.base);
    Ok((served, url, dir))
}

async fn trusted_target_receives_posts(world: World) -> Result<()> {
    let (target, url, dir) = target().await?;
    let shop = Shop::open(&world, &url, |webhook, _| webhook.ca_file = Some(dir.path().join("ca"))).await?;
    shop.push(&["a"]).await?;
    shop.becomes("a", None).await?;
    assert_eq!(target.counts("posted").await.map_err(bug)?, [0, 1, 0, 0]);
    Ok(())
}

async fn untrusted_target_receives_nothing(world: World) -> Result<()> {
    let ((target, url, _dir), other) = (target().await?, scratch()?);
    Certificates::new()?.write(other.path())?;
    let shop = Shop::open(&world, &url, |webhook, settings| {
        (webhook.ca_file, settings.max_attempts) = (Some(other.path().join("ca")), 1);
    })
    .await?;
    shop.push(&["a"]).await?;
    let why = shop.dead().await?;
    assert!(why.contains("certificate"), "{why}");
    assert_eq!(target.counts("posted").await.map_err(bug)?, [0, 0, 0, 0]);
    Ok(())
}
