//! Reading a request body within its limits: of size, of time, and of the memory of all bodies together.

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, HeaderValue, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::App;
use super::problem::{Class, Problem};
use crate::gate::{Identity, NoRoom, Pass};
use crate::model::error::Kind;
use crate::model::limits::REFUSED_BODY_BYTES_MAX;
use crate::model::time::show_span;

/// Bytes set aside before a body arrives; the rest grows with the bytes that arrive, not with the announced size.
const FIRST_BYTES: u64 = 64 * 1024;

/// `who` is whose the request is, as far as is known. # Errors: 415 for a `Content-Encoding` other than identity, 413 past the limit (before reading, if the size was
/// announced), 408 when it does not arrive in time, 400 when it ends early, 503 when all bodies together are too large
/// or this one was evicted.
pub(crate) async fn read(
    app: &App,
    (who, headers): (&Identity, &HeaderMap),
    mut body: Body,
    limit: usize,
    what: &str,
) -> Result<Bytes, Problem> {
    if let Err(problem) = expect_identity(headers) {
        refused(app, headers, body);
        return Err(problem);
    }
    let announced = body.size_hint().lower();
    if usize::try_from(announced).map_or(true, |size| size > limit) {
        refused(app, headers, body);
        return Err(too_large(what, announced, limit));
    }
    match timeout(app.body_timeout, collect(app, who, &mut body, limit)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(Broken::TooLarge)) => {
            discard(app, body);
            Err(too_large(what, limit + 1, limit))
        }
        Ok(Err(Broken::Evicted)) => {
            let detail = "the bodies of all requests together are too many bytes, and this one has waited longest for more of it";
            Err(Problem::new(Class::Verb(Kind::Full), detail))
        }
        Ok(Err(Broken::Cut)) => Err(Problem::malformed(format!("`{what}` ended early or is badly framed"))),
        Err(_) => {
            let detail = format!("`{what}` did not arrive within {}", show_span(app.body_timeout));
            Err(Problem::new(Class::Timeout, detail))
        }
    }
}

/// Reads the body of a request that passed the gate, of which its action may have another limit. # Errors: as [`read`].
pub(crate) async fn read_for(
    app: &App,
    (pass, headers): (&Pass, &HeaderMap),
    body: Body,
    limit: usize,
    what: &str,
) -> Result<Bytes, Problem> {
    read(app, (pass.identity(), headers), body, limit.min(pass.action().body_bytes), what).await
}

fn expect_identity(headers: &HeaderMap) -> Result<(), Problem> {
    let is_identity = |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity");
    match headers.get_all(header::CONTENT_ENCODING).iter().find(|value| !is_identity(value)) {
        None => Ok(()),
        Some(other) => {
            let detail = format!(
                "`Content-Encoding` is {:?}, and only identity is accepted; a payload may be compressed if its \
                 content type or its meta says so",
                String::from_utf8_lossy(other.as_bytes())
            );
            Err(Problem::new(Class::UnsupportedMediaType, detail))
        }
    }
}

pub(crate) fn refused(app: &App, headers: &HeaderMap, body: Body) {
    // A client that sent `Expect` does not send a refused body; reading would ask it to.
    if !headers.contains_key(header::EXPECT) && !body.is_end_stream() {
        discard(app, body);
    }
}

enum Broken {
    TooLarge,
    Evicted,
    Cut,
}

async fn collect(app: &App, who: &Identity, body: &mut Body, limit: usize) -> Result<Bytes, Broken> {
    let first = usize::try_from(body.size_hint().lower().min(FIRST_BYTES)).unwrap_or(0);
    let mut bytes = BytesMut::with_capacity(first);
    next(body, limit, &mut bytes).await?;
    if body.is_end_stream() {
        return Ok(bytes.freeze());
    }
    let mut reading = app.gate.bodies.begin(who.clone());
    loop {
        reading.hold(bytes.len()).map_err(|NoRoom| Broken::Evicted)?;
        tokio::select! {
            is_more = next(body, limit, &mut bytes) => if !is_more? { return Ok(bytes.freeze()) },
            () = reading.evicted() => return Err(Broken::Evicted),
        }
    }
}

async fn next(body: &mut Body, limit: usize, bytes: &mut BytesMut) -> Result<bool, Broken> {
    let Some(frame) = body.frame().await else { return Ok(false) };
    let Ok(data) = frame.map_err(|_| Broken::Cut)?.into_data() else { return Ok(true) };
    if data.len() > limit - bytes.len() {
        return Err(Broken::TooLarge);
    }
    bytes.extend_from_slice(&data);
    Ok(true)
}

fn too_large(what: &str, size: impl std::fmt::Display, limit: usize) -> Problem {
    Problem::new(Class::Verb(Kind::TooLarge), format!("`{what}`: {size} or more bytes, at most {limit} are accepted"))
}

/// Reads on after the answer: closing a connection with unread bytes would reset it, and lose the answer.
fn discard(app: &App, mut body: Body) {
    let (limit, stop) = (app.body_timeout, app.tasks.stopping());
    app.tasks.start(async move {
        let mut left = REFUSED_BODY_BYTES_MAX;
        let rest = async {
            while let Some(Ok(frame)) = body.frame().await {
                let size = frame.data_ref().map_or(0, Bytes::len);
                match left.checked_sub(size) {
                    Some(less) => left = less,
                    None => return,
                }
            }
        };
        let _ = stop.run_until_cancelled(timeout(limit, rest)).await;
    });
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use std::time::Duration;

    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;
    use crate::api::http::tests::app;

    type Chunks = futures_util::stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>>;

    fn chunked(chunks: &[&'static [u8]]) -> Body {
        let frames: Vec<_> = chunks.iter().map(|c| Ok(Frame::data(Bytes::from_static(c)))).collect();
        Body::new(StreamBody::<Chunks>::new(futures_util::stream::iter(frames)))
    }

    async fn read_five(app: &App, body: Body) -> Result<Bytes, u16> {
        read(app, (&Identity::LOCAL, &HeaderMap::new()), body, 5, "body")
            .await
            .map_err(|problem| problem.status().as_u16())
    }

    #[tokio::test]
    async fn body_at_the_limit_is_read_and_one_byte_more_is_too_large() -> crate::model::error::Result<()> {
        let app = app()?;
        assert_eq!(read_five(&app, Body::from("12345")).await, Ok(Bytes::from("12345")));
        assert_eq!(read_five(&app, chunked(&[b"123", b"45"])).await, Ok(Bytes::from("12345")));
        assert_eq!(read_five(&app, Body::from("123456")).await, Err(413));
        assert_eq!(read_five(&app, chunked(&[b"123", b"456"])).await, Err(413));
        assert_eq!(read_five(&app, Body::empty()).await, Ok(Bytes::new()));
        Ok(())
    }

    #[tokio::test]
    async fn total_body_memory_is_bounded_and_released() -> crate::model::error::Result<()> {
        let app = app()?;
        let app = app.with_bodies(4);
        for _ in 0..3 {
            assert!(read_five(&app, chunked(&[b"12", b"34"])).await.is_ok());
        }
        assert_eq!(read_five(&app, chunked(&[b"12", b"345"])).await, Err(503));
        assert!(read_five(&app, Body::from("12345")).await.is_ok(), "it comes in one piece");
        Ok(())
    }

    #[tokio::test]
    async fn stalled_body_is_evicted_for_an_arriving_one() -> crate::model::error::Result<()> {
        let app = app()?.with_bodies(4);
        let begun = futures_util::stream::once(async { Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"123"))) });
        let silent = futures_util::StreamExt::chain(begun, futures_util::stream::pending());
        let mut slow = std::pin::pin!(read_five(&app, Body::new(StreamBody::new(silent))));
        assert!(futures_util::poll!(slow.as_mut()).is_pending());
        assert!(read_five(&app, chunked(&[b"1", b"2"])).await.is_ok());
        assert_eq!(slow.await, Err(503));
        Ok(())
    }

    struct Silent;

    impl HttpBody for Silent {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silent_client_gets_408_after_the_body_timeout() -> crate::model::error::Result<()> {
        let app = app()?;
        let began = tokio::time::Instant::now();
        assert_eq!(read_five(&app, Body::new(Silent)).await, Err(408));
        assert_eq!(began.elapsed().as_secs(), 30);
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn rest_of_a_refused_body_is_drained_within_limits() -> crate::model::error::Result<()> {
        let app = app()?;
        assert_eq!(read_five(&app, chunked(&[b"123456", b"more"])).await, Err(413));
        assert_eq!(read_five(&app, Body::new(Silent.map_frame(|frame| frame))).await, Err(408));
        discard(&app, Body::new(Silent));
        let ended = timeout(Duration::from_secs(60), app.tasks.stop()).await;
        assert!(ended.is_ok());
        Ok(())
    }
}
