//! An application that webhooks post to.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use dwell::model::error::{Error, Result};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::tls::{Certificates, TlsListener};
use super::{eventually, failed};

/// An application on a thread of its own. Dropped, it is gone with every connection, as if it was killed.
pub(crate) struct Application {
    address: SocketAddr,
    runtime: Option<Runtime>,
}

impl Application {
    /// One that answers by itself, on any free port if it is 0.
    pub(crate) async fn serve(router: Router, port: u16) -> Result<Application> {
        let (runtime, listener, address) = Application::listen(port).await?;
        runtime.spawn(async move { axum::serve(TcpListener::from_std(listener)?, router).await });
        Ok(Application { address, runtime: Some(runtime) })
    }

    /// One that answers by itself, over TLS.
    pub(crate) async fn serve_over_tls(router: Router, certificates: &Certificates) -> Result<Application> {
        let (acceptor, (runtime, listener, address)) = (certificates.acceptor()?, Application::listen(0).await?);
        runtime.spawn(async move {
            let listener = TlsListener { listener: TcpListener::from_std(listener)?, acceptor };
            axum::serve(listener, router).await
        });
        Ok(Application { address, runtime: Some(runtime) })
    }

    async fn listen(port: u16) -> Result<(Runtime, std::net::TcpListener, SocketAddr)> {
        // The one before on this port is gone a moment after it was dropped.
        let bind = || std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let listener = eventually("the application listens", async || Ok(bind().ok())).await?;
        listener.set_nonblocking(true).map_err(failed("a socket"))?;
        let address = listener.local_addr().map_err(failed("an address"))?;
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(failed("a runtime"))?;
        Ok((runtime, listener, address))
    }

    /// One whose POSTs the story answers.
    pub(crate) async fn told() -> Result<(Application, Posts)> {
        let (sender, posts) = mpsc::unbounded_channel();
        let router = Router::new().fallback(hear).with_state(sender);
        Ok((Application::serve(router, 0).await?, Posts(posts)))
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Where it listens.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/posted", self.address)
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The POSTs that an application gets.
pub(crate) struct Posts(mpsc::UnboundedReceiver<Posted>);

impl Posts {
    /// The next one.
    pub(crate) async fn next(&mut self) -> Result<Posted> {
        let next = timeout(Duration::from_secs(10), self.0.recv()).await;
        next.ok().flatten().ok_or_else(|| Error::unavailable("10 seconds went by without a POST"))
    }

    /// Whether there is none that was not heard.
    pub(crate) fn are_none(&self) -> bool {
        self.0.is_empty()
    }
}

/// A POST that waits for its answer.
#[derive(Debug)]
pub(crate) struct Posted {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    answer: oneshot::Sender<Response>,
}

impl Posted {
    /// A header; empty if there is none.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    pub(crate) fn answer(self, response: impl IntoResponse) {
        // Nobody waits for it any more: then the story says so elsewhere.
        let _ = self.answer.send(response.into_response());
    }

    /// Waits until nobody waits for the answer any more.
    pub(crate) async fn given_up(mut self) -> Result<()> {
        let closed = timeout(Duration::from_secs(10), self.answer.closed()).await;
        closed.map_err(|_| Error::unavailable("10 seconds went by, and the POST is still open"))
    }
}

async fn hear(State(posts): State<mpsc::UnboundedSender<Posted>>, headers: HeaderMap, body: Bytes) -> Response {
    let (answer, answered) = oneshot::channel();
    // The story may have ended.
    let _ = posts.send(Posted { headers, body, answer });
    answered.await.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}
