//! Requests of SQS clients to the whole router, over the embedded store.

use axum::body::Body;
use axum::http::{HeaderValue, Request, Uri};
use bytes::Bytes;
use tokio::time::timeout;
use tower::ServiceExt;

use super::*;
use crate::api::http::{App, Guard, router};
use crate::broker::Options;
use crate::model::topic::Settings;
use crate::store::Store;
use crate::store::embedded::Embedded;
use crate::telemetry::metrics::Metrics;

/// A part of a request keeps the whole buffer that its connection read.
#[tokio::test]
async fn waiting_receive_keeps_nothing_that_was_read() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let store = Store::of(Arc::new(Embedded::open(&dir.path().join("store"), Clock::System)?));
    let broker = Broker::new(store, Arc::new(Metrics::new()?), Tasks::new(), Options::default());
    broker.declare(TopicName::new("orders")?, Settings::default()).await?;
    let sqs = Sqs::new(broker.clone(), Clock::System, SqsOptions::default(), false, Tasks::new());
    let app = App::new(broker, Clock::System, Guard::Loopback { tls: false }, Tasks::new()).with_gateway(sqs);
    let read = |bytes: &[u8]| Bytes::from(bytes.to_vec());
    let target = read(b"/000000000000/orders");
    let action = read(b"AmazonSQS.ReceiveMessage");
    let body = read(br#"{"QueueUrl": "http://localhost/000000000000/orders", "WaitTimeSeconds": 20}"#);
    let request = Request::post(Uri::from_maybe_shared(target.clone())?).header("host", "localhost:7373");
    let request = request.header("x-amz-target", HeaderValue::from_maybe_shared(action.clone())?);
    let answer = router(app).oneshot(request.body(Body::from(body.clone()))?);
    tokio::pin!(answer);
    assert!(timeout(Duration::from_millis(500), answer.as_mut()).await.is_err(), "it waits for a message");
    assert_eq!([target, action, body].map(|read| read.is_unique()), [true; 3], "target, header, body");
    Ok(())
}
