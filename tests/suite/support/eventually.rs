//! Waiting for what runs on real time: another process, or Redis' expiry. The only place of the tests that does.

use std::time::Duration;

use dwell::model::error::{Error, Result};

use super::PATIENCE;

/// The pauses between questions: short ones at first, for what comes at once, and then longer ones, since a question costs something.
fn pauses(patience: Duration) -> impl Iterator<Item = Duration> {
    let (short, long) = (Duration::from_millis(5), Duration::from_millis(20));
    let rest = (patience.as_millis() / long.as_millis()) as usize;
    std::iter::repeat_n(short, 20).chain(std::iter::repeat_n(long, rest))
}

fn too_long(patience: Duration, what: &str) -> Error {
    Error::unavailable(format!("{patience:?} went by without this: {what}"))
}

/// Asks again and again until the answer is there.
pub(crate) async fn eventually<T>(what: &str, ask: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    eventually_within(PATIENCE, what, ask).await
}

/// The same of what takes longer than others: who looks only each second, as Prometheus does.
pub(crate) async fn eventually_within<T>(
    patience: Duration,
    what: &str,
    mut ask: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    for pause in pauses(patience) {
        if let Some(answer) = ask().await? {
            return Ok(answer);
        }
        tokio::time::sleep(pause).await;
    }
    Err(too_long(patience, what))
}

/// The same for a task of its own: what it asks has to own what it needs.
pub(crate) async fn repeatedly<T, F>(what: &str, mut ask: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Option<T>>>,
{
    for pause in pauses(PATIENCE) {
        if let Some(answer) = ask().await? {
            return Ok(answer);
        }
        tokio::time::sleep(pause).await;
    }
    Err(too_long(PATIENCE, what))
}

/// What the operating system refused, as an error of the story.
pub(crate) fn failed(what: &str) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::unavailable(format!("{what}: {error}"))
}
