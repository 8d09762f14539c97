//! What the stories share: worlds with a store and a clock in them, and topics to tell the story with.

mod process;
mod proxy;
mod application;
mod cluster;
mod redis;
mod resp;
mod running;
mod sentinel;
mod tls;
mod topic;
mod world;

use std::time::Duration;

use dwell::error::{Error, Kind, Result};

pub(crate) use self::application::{Application, Posts};
pub(crate) use self::cluster::Cluster;
pub(crate) use self::process::{HttpClient, Process};
pub(crate) use self::proxy::{Kept, Mode, Proxy, Strike};
pub(crate) use self::redis::RedisServer;
pub(crate) use self::running::Running;
pub(crate) use self::sentinel::{Watched, signal};
pub(crate) use self::tls::Certificates;
pub(crate) use self::topic::{LEASE, TestTopic, acks, buries, ids, ids_of, member, retries, returns, up_to};
pub(crate) use self::world::{World, scratch};

/// Asks again and again until the answer is there. Only for what runs on real time: another process, or Redis' expiry.
pub(crate) async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    for _ in 0..1_000 {
        if let Some(answer) = ask().await? {
            return Ok(answer);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Err(Error::unavailable(format!("5 seconds went by without this: {what}")))
}

/// The same for a task of its own: what it asks has to own what it needs.
pub(crate) async fn repeatedly<T, F>(what: &str, mut ask: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Option<T>>>,
{
    for _ in 0..1_000 {
        if let Some(answer) = ask().await? {
            return Ok(answer);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Err(Error::unavailable(format!("5 seconds went by without this: {what}")))
}

/// The kind of an error, for a story in which it has to fail.
pub(crate) fn kind_of<T>(result: Result<T>) -> Option<Kind> {
    result.err().map(|error| error.kind())
}

/// What the operating system refused, as an error of the story.
pub(crate) fn failed(what: &str) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::unavailable(format!("{what}: {error}"))
}

/// Makes a test of every story for every store.
macro_rules! stories {
    ($($story:ident),* $(,)?) => {
        mod embedded {
            $(#[tokio::test]
            async fn $story() -> dwell::error::Result<()> {
                super::$story(crate::support::World::embedded().await?).await
            })*
        }
        mod redis {
            $(#[tokio::test]
            async fn $story() -> dwell::error::Result<()> {
                super::$story(crate::support::World::redis().await?).await
            })*
        }
    };
}
pub(crate) use stories;
