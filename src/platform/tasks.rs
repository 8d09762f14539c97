//! The one place that starts background loops, so that the server can stop them in order and wait for their end.

use std::future::Future;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A set of running loops that stop together. Clones share the set.
#[derive(Debug, Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Tasks {
    /// No loops yet.
    pub fn new() -> Tasks {
        Tasks::default()
    }

    /// Starts a loop. It has to end soon after [`Tasks::stopping`] fires.
    pub fn start(&self, run: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(run);
    }

    /// Returns once something that is started now has run, which it does as soon as a thread of the runtime is free: never
    /// while all of them are stuck.
    pub async fn lap(&self) {
        let (done, ran) = oneshot::channel();
        self.start(async move {
            // Who asked may have gone.
            let _ = done.send(());
        });
        // It is dropped unsent only with the runtime.
        let _ = ran.await;
    }

    /// Fires when the loops have to end.
    pub fn stopping(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Tells the loops to end and waits until they have.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// What is told to a supervisor by a lap: that a thread is free, not that somebody asked.
    #[test]
    fn no_lap_is_run_while_the_threads_of_the_runtime_are_stuck() -> std::io::Result<()> {
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
            // The lap is asked for first, and waits.
            tokio::join!(lap, async { drop(release) });
        });
        assert_eq!(said.try_iter().collect::<Vec<_>>(), ["free", "lap"]);
        Ok(())
    }
}
