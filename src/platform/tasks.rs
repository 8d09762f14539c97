//! The only place that starts background loops, so that the server can stop them in order and wait for them.

use std::future::{Future, poll_fn};
use std::pin::pin;

use futures_util::future::BoxFuture;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::model::error::{Error, Result};

/// Runs what serves a value and ends with it, such as the connection of a client: no stop waits for it.
pub(crate) fn detach(run: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(run);
}

/// Runs work that waits for a disk beside the async workers. A runtime of one thread runs it in place, so that what it does
/// on simulated time depends on nothing else. Errors: `Bug` when the work panicked.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::CurrentThread => Ok(work()),
        _ => {
            let done = tokio::task::spawn_blocking(work).await;
            done.map_err(|error| Error::bug(format!("work beside the runtime failed: {error}")))
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Tasks {
    pub fn new() -> Tasks {
        Tasks::default()
    }

    /// The loop must end soon after [`Tasks::stopping`] fires.
    pub fn start(&self, run: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(run);
    }

    /// Runs a loop here until `wanted` is there, which saves a hand-over; what is left of the loop then, or when this is
    /// dropped, runs in the background.
    pub async fn drive<T>(&self, run: BoxFuture<'static, ()>, wanted: impl Future<Output = T>) -> T {
        let mut run = Driven { rest: Some(run), tasks: self };
        let mut wanted = pin!(wanted);
        poll_fn(|context| {
            // Taken out, so that a loop that panics is not run again.
            run.rest = run.rest.take().and_then(|mut rest| rest.as_mut().poll(context).is_pending().then_some(rest));
            wanted.as_mut().poll(context)
        })
        .await
    }

    /// Returns once a newly started future has run: as soon as a thread of the runtime is free.
    pub async fn lap(&self) {
        let (done, ran) = oneshot::channel();
        self.start(async move {
            let _ = done.send(());
        });
        let _ = ran.await;
    }

    pub fn stopping(&self) -> CancellationToken {
        self.stop.clone()
    }

    pub async fn stop(&self) {
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}

struct Driven<'a> {
    rest: Option<BoxFuture<'static, ()>>,
    tasks: &'a Tasks,
}

impl Drop for Driven<'_> {
    fn drop(&mut self) {
        if let Some(rest) = self.rest.take()
            && Handle::try_current().is_ok()
        {
            self.tasks.start(rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn no_iteration_runs_while_runtime_threads_are_blocked() -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()?;
        let tasks = Tasks::new();
        let (log, said) = mpsc::channel();
        let (release, stuck) = mpsc::channel::<()>();
        let (began, has_begun) = oneshot::channel();
        let freed = log.clone();
        runtime.block_on(async {
            tasks.start(async move {
                let _ = began.send(());
                let _ = stuck.recv();
                let _ = freed.send("free");
            });
            let _ = has_begun.await;
            let lap = async {
                tasks.lap().await;
                let _ = log.send("lap");
            };
            tokio::join!(lap, async { drop(release) });
        });
        assert_eq!(said.try_iter().collect::<Vec<_>>(), ["free", "lap"]);
        Ok(())
    }

    #[tokio::test]
    async fn loop_finishes_after_its_caller_returns_or_is_dropped() {
        let (tasks, go) = (Tasks::new(), CancellationToken::new());
        let (log, said) = mpsc::channel();
        let steps = |begun: oneshot::Sender<()>| {
            let (log, go) = (log.clone(), go.clone());
            async move {
                let _ = begun.send(());
                go.cancelled().await;
                let _ = log.send("done");
            }
        };
        let (begun, has_begun) = oneshot::channel();
        assert_eq!(tasks.drive(Box::pin(steps(begun)), has_begun).await, Ok(()));
        let mut gone = Box::pin(tasks.drive(Box::pin(steps(oneshot::channel().0)), pending::<()>()));
        assert!(futures_util::poll!(gone.as_mut()).is_pending());
        drop(gone);
        assert!(said.try_recv().is_err());
        go.cancel();
        tasks.stop().await;
        assert_eq!(said.try_iter().collect::<Vec<_>>(), ["done", "done"]);
    }

    #[tokio::test]
    async fn finished_loop_leaves_nothing_behind() {
        let (tasks, (over, is_over)) = (Tasks::new(), oneshot::channel());
        let run = async move {
            let _ = over.send(());
        };
        assert_eq!(tasks.drive(Box::pin(run), is_over).await, Ok(()));
        assert_eq!(tasks.tracker.len(), 0);
    }
}
