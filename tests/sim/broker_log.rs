//! What brokers log, beside what clients see.

use std::io::{self, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use dwell_simulated_redis::Time;
use tracing_subscriber::EnvFilter;

use crate::lock;

static LINES: Mutex<Vec<(Time, String)>> = Mutex::new(Vec::new());
static NOW: AtomicU64 = AtomicU64::new(0);
static BROKER: AtomicUsize = AtomicUsize::new(0);

/// Whose turn it is now.
pub(crate) fn turn(broker: usize, now: Time) {
    BROKER.store(broker, Relaxed);
    NOW.store(now.0, Relaxed);
}

/// From here on logs are kept: those that `LOG` lets through, as `RUST_LOG` would.
pub(crate) fn keep() {
    let filter = std::env::var("LOG").unwrap_or_else(|_| "warn".to_owned());
    let lines = tracing_subscriber::fmt().without_time().with_ansi(false).with_target(false).with_writer(|| Line);
    let _ = lines.with_env_filter(EnvFilter::new(filter)).try_init();
}

pub(crate) fn take() -> Vec<(Time, String)> {
    std::mem::take(&mut *lock(&LINES))
}

struct Line;

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let line = format!("  broker {} logs {}", BROKER.load(Relaxed), text.trim_end());
        lock(&LINES).push((Time(NOW.load(Relaxed)), line));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
