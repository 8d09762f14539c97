//! TLS of the listener: encrypted, with certificates that change, and nobody who is slow holds up others.

use std::path::Path;
use std::time::Duration;

use dwell::api::http::{ConnectionOptions, TlsFiles};
use dwell::model::error::Kind;
use dwell::platform::https::{self, Roots};
use reqwest::Client;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::http::api::served::{Outcome, Served};
use crate::support::Certificates;

/// The files of a listener whose certificates are in a directory.
fn files(dir: &Path) -> TlsFiles {
    TlsFiles { cert: dir.join("cert"), key: dir.join("key"), client_ca: None }
}

/// A broker that speaks TLS, and the directory of its certificates.
async fn encrypted(connections: ConnectionOptions) -> Outcome<(Served, TempDir)> {
    let dir = tempfile::tempdir()?;
    Certificates::new()?.write(dir.path())?;
    let tls = files(dir.path());
    let served = Served::start_with(|options| (options.tls, options.connections) = (Some(tls), connections));
    Ok((served.await?, dir))
}

/// A client that believes the authority in that file.
fn client(ca: &Path) -> Outcome<Client> {
    Ok(https::client(&Roots::read(ca)?)?.no_proxy().pool_max_idle_per_host(0).build()?)
}

async fn alive(client: &Client, dwell: &Served) -> bool {
    client.get(format!("{}/livez", dwell.base)).send().await.is_ok_and(|answer| answer.status().is_success())
}

#[tokio::test]
async fn listener_with_a_certificate_speaks_only_tls() -> Outcome {
    let (dwell, dir) = encrypted(ConnectionOptions::default()).await?;
    assert!(dwell.base.starts_with("https://127.0.0.1:"), "{}", dwell.base);
    let known = client(&dir.path().join("ca"))?;
    assert!(alive(&known, &dwell).await);
    assert!(!alive(&https::client(&Roots::none())?.no_proxy().build()?, &dwell).await);
    let plain = dwell.base.replace("https://", "http://");
    assert!(known.get(format!("{plain}/livez")).send().await.is_err());
    // Its own pages are https here.
    let asked = async |origin: &str| -> Outcome<u16> {
        let request = known.put(format!("{}/v1/topics/orders", dwell.base)).header("origin", origin);
        Ok(dwell.driven(request.send()).await??.status().as_u16())
    };
    assert_eq!((asked(&dwell.base).await?, asked(&plain).await?), (201, 403));
    Ok(())
}

#[tokio::test]
async fn certificate_is_reloaded_and_a_broken_one_ignored() -> Outcome {
    let (dwell, dir) = encrypted(ConnectionOptions::default()).await?;
    let (ca, other) = (dir.path().join("ca"), tempfile::tempdir()?);
    Certificates::new()?.write(other.path())?;
    let (before, after) = (client(&ca)?, client(&other.path().join("ca"))?);
    let both = async || [alive(&before, &dwell).await, alive(&after, &dwell).await];
    assert_eq!(both().await, [true, false]);
    // A key without its certificate: what was good goes on.
    std::fs::copy(other.path().join("key"), dir.path().join("key"))?;
    dwell.pass(Duration::from_secs(1));
    assert_eq!(both().await, [true, false]);
    std::fs::copy(other.path().join("cert"), dir.path().join("cert"))?;
    assert_eq!(both().await, [true, false], "nothing is looked at within a second");
    dwell.pass(Duration::from_secs(1));
    assert_eq!(both().await, [false, true]);
    std::fs::remove_file(dir.path().join("cert"))?;
    dwell.pass(Duration::from_secs(1));
    assert_eq!(both().await, [false, true]);
    Ok(())
}

#[tokio::test]
async fn stalled_tls_handshake_times_out_without_blocking_others() -> Outcome {
    let short = ConnectionOptions { header_timeout: Duration::from_secs(2), ..ConnectionOptions::default() };
    let (dwell, dir) = encrypted(short).await?;
    let address = dwell.base.strip_prefix("https://").ok_or("no address")?;
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(address).await?);
    }
    let known = client(&dir.path().join("ca"))?;
    assert!(alive(&known, &dwell).await);
    // Also who begins, and who speaks something else.
    silent[0].write_all(b"\x16\x03\x01\x02\x00\x01").await?;
    silent[1].write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
    for stream in &mut silent {
        let mut said = Vec::new();
        let closed = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut said)).await?;
        // It may be reset; nothing of HTTP is said.
        assert!(closed.is_err() || !said.starts_with(b"HTTP"), "{said:?}");
    }
    assert!(alive(&known, &dwell).await);
    Ok(())
}

#[tokio::test]
async fn client_ca_requires_a_client_certificate() -> Outcome {
    let dir = tempfile::tempdir()?;
    let certificates = Certificates::new()?;
    certificates.write(dir.path())?;
    let tls = TlsFiles { client_ca: Some(dir.path().join("ca")), ..files(dir.path()) };
    let dwell = Served::start_with(|options| options.tls = Some(tls)).await?;
    assert!(!alive(&client(&dir.path().join("ca"))?, &dwell).await);
    assert!(certificates.shown_to(dwell.base.trim_start_matches("https://")).await?.starts_with("HTTP/1.1 200"));
    assert_eq!(Certificates::new()?.shown_to(dwell.base.trim_start_matches("https://")).await.unwrap_or_default(), "");
    Ok(())
}

#[tokio::test]
async fn unusable_tls_files_fail_the_start() -> Outcome {
    let dir = tempfile::tempdir()?;
    Certificates::new()?.write(dir.path())?;
    let other = tempfile::tempdir()?;
    Certificates::new()?.write(other.path())?;
    let good = files(dir.path());
    for (tls, said) in [
        (TlsFiles { key: other.path().join("key"), ..good.clone() }, "`tls`: "),
        (TlsFiles { cert: dir.path().join("absent"), ..good.clone() }, "absent cannot be read: No such file"),
        (TlsFiles { cert: dir.path().join("key"), ..good.clone() }, "holds no certificate"),
        (TlsFiles { key: dir.path().join("cert"), ..good.clone() }, "holds no private key"),
        (TlsFiles { client_ca: Some(dir.path().join("key")), ..good.clone() }, "holds no certificate"),
    ] {
        let refused = Served::start_with(|options| options.tls = Some(tls.clone())).await.err();
        let error = refused.and_then(|error| error.downcast::<dwell::model::error::Error>().ok()).ok_or("no error")?;
        assert_eq!(error.kind(), Kind::Invalid, "{tls:?}");
        assert!(error.detail().contains(said), "{tls:?}: {}", error.detail());
        assert!(!error.detail().contains("PRIVATE"), "{}", error.detail());
    }
    Ok(())
}
