//! Web pages, and names that lead here although they are others': with tokens too nothing but dwell's own pages is let in.

use std::net::SocketAddr;

use dwell::api::http::Listen;
use dwell::model::error::Kind;
use reqwest::Method;

use super::{asking, token, tokens_in};
use crate::http::api::served::{Outcome, Served};

/// An address that counts as one beyond loopback, and that no other machine reaches.
const BEYOND: &str = "[::ffff:127.0.0.1]:0";

/// A broker that listens beyond loopback.
async fn beyond() -> Outcome<(Served, tempfile::TempDir)> {
    let dir = tempfile::tempdir()?;
    let tokens = tokens_in(dir.path())?;
    let served = Served::start_with(|options| {
        options.tokens = tokens;
        options.listen = Listen::Tcp(SocketAddr::from(([0, 0, 0, 0, 0, 0xffff, 0x7f00, 1], 0)));
    });
    Ok((served.await?, dir))
}

/// The status of a change that a browser makes: who it says it is asked as, and whose page asks.
async fn changed(dwell: &Served, host: &str, origin: Option<&str>, token: Option<&str>) -> Outcome<u16> {
    let mut request = dwell.request("PUT /v1/topics/orders")?.header("host", host);
    if let Some(origin) = origin {
        request = request.header("origin", origin);
    }
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    Ok(dwell.driven(request.send()).await??.status().as_u16())
}

#[tokio::test]
async fn non_loopback_is_refused_without_tokens_and_served_with_them() -> Outcome {
    assert_eq!(BEYOND.parse::<SocketAddr>()?, SocketAddr::from(([0, 0, 0, 0, 0, 0xffff, 0x7f00, 1], 0)));
    let listen = Listen::parse(BEYOND)?;
    let refused = Served::start_with(|options| options.listen = listen).await.err();
    let error = refused.and_then(|error| error.downcast::<dwell::model::error::Error>().ok()).ok_or("no error")?;
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.detail().contains("add an [[auth.token]]"), "{}", error.detail());

    let (dwell, _dir) = beyond().await?;
    let admin = Some(token("admin"));
    // By whatever name a proxy, a service or a machine is called.
    for host in ["dwell.internal:7373", "10.0.0.4", "gateway.example"] {
        assert!([200, 201].contains(&changed(&dwell, host, None, admin).await?), "{host}");
        assert_eq!(changed(&dwell, host, None, None).await?, 401, "{host}");
        for page in [format!("http://{host}"), format!("https://{host}")] {
            assert_eq!(changed(&dwell, host, Some(&page), admin).await?, 200, "{page}");
            // A page whose name was led here: the browser takes it for dwell's own, and has no token for it.
            assert_eq!(changed(&dwell, host, Some(&page), None).await?, 401, "{page}");
        }
        for page in ["null", "https://evil.example", "http://localhost:7373"] {
            assert_eq!(changed(&dwell, host, Some(page), admin).await?, 403, "{page}");
            assert_eq!(changed(&dwell, host, Some(page), None).await?, 403, "{page}");
        }
    }
    // A page of another site asks before it shows a token, and is not allowed to.
    let ask = dwell.client.request(Method::OPTIONS, format!("{}/v1/topics/orders", dwell.base));
    let ask = ask.header("origin", "https://evil.example").header("access-control-request-method", "PUT");
    let answer = dwell.driven(ask.header("access-control-request-headers", "authorization").send()).await??;
    assert_eq!(answer.status().as_u16(), 403);
    assert!(answer.headers().keys().all(|name| !name.as_str().starts_with("access-control")));
    Ok(())
}

#[tokio::test]
async fn loopback_checks_the_host_header_even_with_tokens() -> Outcome {
    let (dwell, _dir) = asking().await?;
    let admin = Some(token("admin"));
    assert_eq!(changed(&dwell, "localhost:7373", Some("http://localhost:7373"), admin).await?, 201);
    assert_eq!(changed(&dwell, "evil.example", Some("http://evil.example"), admin).await?, 403);
    assert_eq!(changed(&dwell, "localhost:7373", Some("http://evil.example"), admin).await?, 403);
    assert_eq!(changed(&dwell, "localhost:7373", Some("https://localhost:7373"), admin).await?, 403);
    Ok(())
}
