//! Lines of the log on their way to stderr. One thread writes them, and nothing waits for it: a disk that is full loses lines, and a
//! program that does not read them holds up this thread alone.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Lines that wait, at most. Those past them are dropped, and counted in a later line.
const LINES_MAX: usize = 4_096;

/// How long the end of the process waits for the last lines.
const PATIENCE: Duration = Duration::from_secs(1);

/// The log of the process, once it has begun.
static LOG: OnceLock<LogWriter> = OnceLock::new();

enum Work {
    Line(Vec<u8>),
    /// Answers once everything before it is written.
    Flush(SyncSender<()>),
}

#[derive(Clone)]
pub(super) struct LogWriter {
    work: SyncSender<Work>,
    dropped: Arc<AtomicU64>,
}

/// The log of the process, which goes to stderr.
pub(super) fn log() -> LogWriter {
    LOG.get_or_init(|| LogWriter::start(io::stderr())).clone()
}

/// Waits until the lines so far are written, or for a second.
pub(crate) fn flush_log() {
    if let Some(log) = LOG.get() {
        log.wait();
    }
}

impl LogWriter {
    /// Without a thread lines are written at once.
    fn start(out: impl Write + Send + 'static) -> LogWriter {
        let (work, received) = sync_channel(LINES_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let counted = dropped.clone();
        // If there is no thread, its end of the channel is gone with it.
        let _ = std::thread::Builder::new().name("dwell-log".into()).spawn(move || write_all(out, &received, &counted));
        LogWriter { work, dropped }
    }

    fn wait(&self) {
        let (done, is_done) = sync_channel(1);
        if self.work.try_send(Work::Flush(done)).is_ok() {
            let _ = is_done.recv_timeout(PATIENCE);
        }
    }
}

impl Write for LogWriter {
    /// Takes a whole line. It never fails: who logs can do nothing about it.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.work.try_send(Work::Line(line.to_vec())) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
            Err(TrySendError::Disconnected(_)) => {
                let _ = io::stderr().lock().write_all(line);
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_all(mut out: impl Write, received: &Receiver<Work>, dropped: &AtomicU64) {
    while let Ok(work) = received.recv() {
        match work {
            // Where it cannot be written there is nobody to tell.
            Work::Line(line) => drop(out.write_all(&line)),
            Work::Flush(done) => drop(done.send(())),
        }
        let lines = dropped.swap(0, Ordering::Relaxed);
        if lines > 0 {
            tracing::warn!(lines, "lines of the log dropped: they are read too slowly");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// Takes what it is given once the lock is free.
    struct Slow(Arc<Mutex<Vec<u8>>>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_nobody_reads_hold_up_nothing_and_are_counted() -> io::Result<()> {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let mut log = LogWriter::start(Slow(heard.clone()));
        let is_stuck = heard.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..2 * LINES_MAX {
            log.write_all(b"line\n")?;
        }
        // One of them may be with the thread.
        let dropped = log.dropped.load(Ordering::Relaxed);
        assert!((LINES_MAX as u64 - 1..=LINES_MAX as u64).contains(&dropped), "{dropped}");
        drop(is_stuck);
        while log.work.try_send(Work::Line(Vec::new())).is_err() {
            std::thread::yield_now();
        }
        log.wait();
        let written = heard.lock().unwrap_or_else(PoisonError::into_inner).len() / "line\n".len();
        assert_eq!((written as u64 + dropped, log.dropped.load(Ordering::Relaxed)), (2 * LINES_MAX as u64, 0));
        Ok(())
    }

    #[test]
    fn a_line_that_cannot_be_written_fails_nobody() -> io::Result<()> {
        let mut log = LogWriter::start(io::Cursor::new([0; 0]));
        log.write_all(b"line\n")?;
        log.wait();
        log.write_all(b"line\n")
    }
}
