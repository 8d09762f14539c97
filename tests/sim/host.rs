//! A machine that runs one process: its clocks, its entropy, and a runtime whose time is simulated.
//!
//! A host runs only while [`Host::run_until`] is called, on the thread of the caller. Time inside is that of the runtime: it
//! jumps to the next timer when nothing is ready, so a span of any length costs what happens in it.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dwell_simulated_machine::{Machine, enter};
use dwell_simulated_redis::Time;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::Instant;

use crate::lock;

/// What the uptime of every host begins with, so that nothing happens at zero.
const UPTIME_US: u64 = 1_000_000_000;

pub(crate) struct Host {
    machine: Arc<Clocks>,
    process: Option<Process>,
}

struct Process {
    runtime: Runtime,
    /// The runtime's time at its start, and the true one.
    origin: Instant,
    started: Time,
}

/// True time, and what this machine makes of it.
pub(crate) struct Clocks {
    now: AtomicU64,
    first: Time,
    origin: Mutex<Option<(Instant, Time)>>,
    skew_us: AtomicI64,
    random: Mutex<fastrand::Rng>,
}

impl Clocks {
    /// True time: that of the runtime inside of it, and otherwise that of the simulation.
    pub(crate) fn now(&self) -> Time {
        let origin = *lock(&self.origin);
        match origin.filter(|_| Handle::try_current().is_ok()) {
            Some((origin, started)) => started + micros(Instant::now().saturating_duration_since(origin)),
            None => Time(self.now.load(Relaxed)),
        }
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

struct Seen(Arc<Clocks>);

impl Machine for Seen {
    fn wall(&self) -> u64 {
        self.0.now().0.saturating_add_signed(self.0.skew_us.load(Relaxed)) * 1_000
    }

    fn uptime(&self) -> u64 {
        (self.0.now().since(self.0.first) + UPTIME_US) * 1_000
    }

    fn random(&self) -> u64 {
        lock(&self.0.random).u64(..)
    }
}

impl Host {
    pub(crate) fn new(seed: u64, now: Time) -> Host {
        let machine = Clocks {
            now: AtomicU64::new(now.0),
            first: now,
            origin: Mutex::default(),
            skew_us: AtomicI64::new(0),
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
        };
        Host { machine: Arc::new(machine), process: None }
    }

    pub(crate) fn clocks(&self) -> Arc<Clocks> {
        self.machine.clone()
    }

    pub(crate) fn set_skew(&self, skew_us: i64) {
        self.machine.skew_us.store(skew_us, Relaxed);
    }

    /// Runs code on this machine, outside of its process.
    pub(crate) fn on<T>(&self, run: impl FnOnce() -> T) -> T {
        let before = enter(Some(Box::new(Seen(self.machine.clone()))));
        let answer = run();
        enter(before);
        answer
    }

    /// Starts a process that begins with this; the one before has to have ended.
    pub(crate) fn start(&mut self, now: Time, main: impl Future<Output = ()> + Send + 'static) -> std::io::Result<()> {
        self.machine.now.store(now.0, Relaxed);
        let process = self.on(|| -> std::io::Result<Process> {
            let runtime = Builder::new_current_thread().enable_time().start_paused(true).build()?;
            let origin = runtime.block_on(async { Instant::now() });
            runtime.spawn(main);
            Ok(Process { runtime, origin, started: now })
        })?;
        *lock(&self.machine.origin) = Some((process.origin, now));
        self.process = Some(process);
        Ok(())
    }

    pub(crate) fn handle(&self) -> Option<Handle> {
        self.process.as_ref().map(|process| process.runtime.handle().clone())
    }

    pub(crate) fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Ends the process without a word: what it had in memory is gone.
    pub(crate) fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            self.on(move || drop(process));
            *lock(&self.machine.origin) = None;
        }
    }

    /// Lets the process work until then.
    pub(crate) fn run_until(&self, until: Time) {
        if let Some(process) = &self.process {
            let end = process.origin + Duration::from_micros(until.since(process.started));
            self.on(|| process.runtime.block_on(async { tokio::time::sleep_until(end).await }));
        }
        self.machine.now.store(until.0, Relaxed);
    }

    /// Lets time pass while the process does nothing: it was suspended.
    pub(crate) fn suspend_until(&self, until: Time) {
        if let Some(process) = &self.process {
            let end = process.origin + Duration::from_micros(until.since(process.started));
            self.on(|| {
                process.runtime.block_on(async {
                    tokio::time::advance(end.saturating_duration_since(Instant::now())).await;
                });
            });
        }
        self.machine.now.store(until.0, Relaxed);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.kill();
    }
}
