//! The only place that starts background loops, so that the server can stop them in order and wait for them.

use std::future::Future;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

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
            tokio::join!(lap, async { drop(release) });
        });
        assert_eq!(said.try_iter().collect::<Vec<_>>(), ["free", "lap"]);
        Ok(())
    }
}
