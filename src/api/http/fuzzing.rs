//! For fuzz/: what strangers send, read without a broker.

use std::future::pending;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::routing::any;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio_util::sync::CancellationToken;

use super::connection_limit::{Connection, ConnectionLimiter};
use super::listener::{ConnectionContext, ConnectionOptions, connection};
use super::{message_json, path_params};
use crate::gate::AnswerBudget;
use crate::model::trace::TraceContext;

/// The bytes of standard base64, as a push gives its payload.
pub fn base64(text: &str) -> Option<Bytes> {
    message_json::bytes_of("payload_base64", text).ok()
}

/// The text of a name or value of a query.
pub fn percent_decoded(text: &str) -> Option<String> {
    path_params::decode(text).ok()
}

/// The headers of a trace as they are sent on, if they are read.
pub fn trace(traceparent: &str, tracestate: Option<&str>) -> Option<(String, Option<String>)> {
    let trace = TraceContext::of_headers(traceparent, tracestate)?;
    Some((trace.traceparent(), trace.tracestate().map(str::to_owned)))
}

/// Sends these pieces over one connection, closes the sending side, and returns the answers. A request to `/wait` is a read that
/// waits.
pub async fn conversation(pieces: &[&[u8]]) -> Vec<u8> {
    let waits = any(async |request: axum::extract::Request| {
        let _waits = request.extensions().get::<Connection>().map(Connection::wait);
        pending::<()>().await
    });
    let router = Router::new().route("/wait", waits).fallback(async |body: Bytes| format!("{} bytes", body.len()));
    let (mut client, broker) = duplex(64);
    let occupied = ConnectionLimiter::new(1).enter(None).await;
    let context = ConnectionContext {
        options: ConnectionOptions::default(),
        answers: AnswerBudget::new(1, Duration::ZERO),
        peer: None,
    };
    let served = connection(broker, router, context, occupied.slot(), CancellationToken::new());
    let mut answers = Vec::new();
    let talk = async {
        let (mut reads, mut writes) = tokio::io::split(&mut client);
        let says = async {
            for piece in pieces {
                // It may be refused before it is sent whole.
                if writes.write_all(piece).await.is_err() {
                    return;
                }
                tokio::task::yield_now().await;
            }
            let _ = writes.shutdown().await;
        };
        let _ = tokio::join!(says, reads.read_to_end(&mut answers));
    };
    tokio::join!(served, talk);
    answers
}
