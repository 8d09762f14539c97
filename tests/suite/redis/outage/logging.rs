//! The log of an outage can be read: what stays wrong is not said twice a second.

use std::cell::RefCell;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use dwell::model::error::Result;
use dwell::store::Pushed;
use tracing_subscriber::fmt::MakeWriter;

use super::Outage;
use crate::support::{Mode, eventually};

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many lines say this.
    fn count(&self, said: &str) -> usize {
        String::from_utf8_lossy(&self.bytes()).lines().filter(|line| line.contains(said)).count()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.bytes().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

thread_local! {
    /// What is logged on this thread, which is that of one test.
    static LOG: RefCell<Option<Log>> = const { RefCell::new(None) };
}

/// Writes to the log of the thread, if it has one.
struct ByThread;

impl<'a> MakeWriter<'a> for ByThread {
    type Writer = Box<dyn Write>;

    fn make_writer(&'a self) -> Box<dyn Write> {
        LOG.with_borrow(|log| match log {
            Some(log) => Box::new(log.clone()) as Box<dyn Write>,
            None => Box::new(std::io::sink()),
        })
    }
}

/// Keeps what this thread logs from warnings on, which is all that these stories are told on. There is one subscriber for
/// all threads: with one of its own, what another test meets first would be off for all.
fn logged() -> Log {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(ByThread).finish();
        // Nobody else in this binary sets one.
        let _ = tracing::subscriber::set_global_default(subscriber);
    });
    let log = Log::default();
    LOG.set(Some(log.clone()));
    log
}

#[tokio::test]
async fn outage_is_logged_once() -> Result<()> {
    let log = logged();
    let began = std::time::Instant::now();
    let outage = Outage::begin().await?.hasty();
    let dwell = outage.dwell().await?;
    dwell.push_one("orders", "a").await?;
    for (round, mode) in [Mode::Refuse, Mode::Pass, Mode::Refuse, Mode::BlackHole].into_iter().enumerate() {
        outage.proxy.set(mode);
        if mode == Mode::Pass {
            dwell.recovered().await?;
            continue;
        }
        let failures = || {
            Ok::<f64, dwell::model::error::Error>(
                dwell.metric("dwell_redis_errors_total{kind=\"unavailable\"}")?.max(0.0),
            )
        };
        let before = failures()?;
        eventually("it is tried again and again", async || {
            dwell.push_one("orders", &format!("{round}")).await?;
            Ok((failures()? >= before + 4.0).then_some(()))
        })
        .await?;
    }
    // Three outages: those that begin within ten seconds of one that was said are not.
    let most = 1 + usize::try_from(began.elapsed().as_secs() / 10).unwrap_or(0);
    let said = log.count("the store is unavailable");
    assert!((1..=most).contains(&said), "{said}, at most {most}: {}", String::from_utf8_lossy(&log.bytes()));
    outage.proxy.set(Mode::Refuse);
    outage.proxy.set(Mode::Pass);
    dwell.recovered().await?;
    dwell.close().await
}

#[tokio::test]
async fn permanent_rejection_is_logged_once_and_keeps_the_journal_small() -> Result<()> {
    let log = logged();
    let outage = Outage { journal: Some(Duration::from_secs(600)), ..Outage::begin().await? };
    let dwell = outage.dwell().await?;
    dwell.push_one("orders", "a").await?;
    outage.proxy.set(Mode::Refuse);
    assert_eq!(dwell.push_one("orders", "b").await?.pushed, Pushed::Buffered);
    // Someone else's key is where the body has to go.
    for key in Outage::hashes("orders") {
        outage.redis.ask::<i64>(&format!("DEL {key}")).await?;
        outage.redis.ask::<String>(&format!("SET {key} something")).await?;
    }
    outage.proxy.set(Mode::Pass);
    let refused = "dwell_redis_errors_total{kind=\"corrupt\"}";
    eventually("it is refused again and again", async || {
        dwell.broker().health().await;
        Ok((dwell.metric(refused)? >= 6.0).then_some(()))
    })
    .await?;
    assert_eq!(log.count("not taken by the store: tried again"), 1, "{}", String::from_utf8_lossy(&log.bytes()));
    assert_eq!(dwell.metric("dwell_wal_records{log=\"wal\"}")?, 1.0);
    assert!(dwell.metric("dwell_wal_records{log=\"journal\"}")? <= 2.0);
    for key in Outage::hashes("orders") {
        outage.redis.ask::<i64>(&format!("DEL {key}")).await?;
    }
    dwell.recovered().await?;
    dwell.close().await
}
