//! The write-ahead log on this disk: durable appends against a bare file, opening, reading, and memory.
//!
//! `cargo bench --bench wal` appends from 64 callers for some rounds, each first to a file that is appended to and synced
//! by one thread for all who wait, then to the log, and prints the ratio; then it opens and reads a million records.
//! `cargo bench --bench wal -- backlog` appends 2 GB, reads them page by page as a replay does, and prints the memory
//! that it took. `DWELL_BENCH_DIR` is where the files lie; otherwise the directory for temporary files.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use dwell::model::error::{Error, Result};
use dwell::model::message::{Conflict, MessageId, NewMessage, TopicName};
use dwell::model::time::Timestamp;
use dwell::platform::clock::Clock;
use dwell::telemetry::metrics::Metrics;
use dwell::wal::{Record, Wal, WalOptions};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

const CALLERS: usize = 64;
const ROUNDS: usize = 5;
/// Appends of one round.
const APPENDS: usize = 64_000;
/// Bytes of a payload.
const PAYLOAD_BYTES: usize = 100;
/// Bytes of the same record in the bare file: what the log writes of it before sled adds its own.
const RECORD_BYTES: usize = 190;
/// Records that are opened and read.
const RECORDS: usize = 1_000_000;
/// Records and payload bytes of the backlog.
const BACKLOG: (usize, usize) = (200_000, 10_000);

fn main() -> Result<()> {
    let is_backlog = std::env::args().any(|argument| argument == "backlog");
    let runtime = Runtime::new().map_err(failed("a runtime"))?;
    if is_backlog { runtime.block_on(backlog()) } else { compare(&runtime).and_then(|()| runtime.block_on(reading())) }
}

fn compare(runtime: &Runtime) -> Result<()> {
    let mut ratios = Vec::new();
    for round in 1..=ROUNDS {
        let dir = scratch()?;
        let bare = Arc::new(Bare::start(&dir.path().join("bare"))?);
        let bare_rate = runtime.block_on(appends(vec![b'x'; RECORD_BYTES], move |bytes| {
            let bare = bare.clone();
            async move { bare.append(bytes).await }
        }))?;
        let wal = Arc::new(open(&dir.path().join("wal"))?);
        let wal_rate = runtime.block_on(appends(push(1, PAYLOAD_BYTES)?, move |record| {
            let wal = wal.clone();
            async move { wal.append(vec![record]).await }
        }))?;
        let ratio = wal_rate / bare_rate;
        println!(
            "round {round}: callers={CALLERS} payload_bytes={PAYLOAD_BYTES}: bare file {bare_rate:.0}/s, log {wal_rate:.0}/s, ratio {ratio:.2}"
        );
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    println!("durable appends: median ratio {:.2} of a bare file with group commit and fdatasync", ratios[ROUNDS / 2]);
    Ok(())
}

/// Durable appends a second of all callers.
async fn appends<T, F>(what: T, append: impl Fn(T) -> F + Clone + Send + 'static) -> Result<f64>
where
    T: Clone + Send + 'static,
    F: Future<Output = Result<()>> + Send,
{
    let began = Instant::now();
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (append, what) = (append.clone(), what.clone());
            tokio::spawn(async move {
                for _ in 0..APPENDS / CALLERS {
                    append(what.clone()).await?;
                }
                Ok::<_, Error>(())
            })
        })
        .collect();
    for caller in callers {
        caller.await.map_err(|error| Error::bug(error.to_string()))??;
    }
    Ok(APPENDS as f64 / began.elapsed().as_secs_f64())
}

/// One thread that writes what gathered to a file, syncs it, and answers.
struct Bare {
    waiters: Sender<(Vec<u8>, oneshot::Sender<bool>)>,
}

impl Bare {
    fn start(path: &Path) -> Result<Bare> {
        let mut file = File::create(path).map_err(failed("a file"))?;
        let (waiters, arrivals) = channel::<(Vec<u8>, oneshot::Sender<bool>)>();
        std::thread::spawn(move || {
            while let Ok(first) = arrivals.recv() {
                let group: Vec<_> = std::iter::once(first).chain(arrivals.try_iter()).collect();
                let bytes: Vec<u8> = group.iter().flat_map(|(bytes, _)| bytes).copied().collect();
                let is_durable = file.write_all(&bytes).and_then(|()| file.sync_data()).is_ok();
                for (_, waiter) in group {
                    let _ = waiter.send(is_durable);
                }
            }
        });
        Ok(Bare { waiters })
    }

    async fn append(&self, bytes: Vec<u8>) -> Result<()> {
        let (answer, answered) = oneshot::channel();
        let gone = || Error::unavailable("the bare file failed");
        self.waiters.send((bytes, answer)).map_err(|_| gone())?;
        if answered.await.unwrap_or(false) { Ok(()) } else { Err(gone()) }
    }
}

async fn reading() -> Result<()> {
    let dir = scratch()?;
    let path = dir.path().join("wal");
    let wal = open(&path)?;
    for from in (0..RECORDS).step_by(1_000) {
        wal.append((from..from + 1_000).map(|n| push(n, PAYLOAD_BYTES)).collect::<Result<_>>()?).await?;
    }
    let bytes = wal.depth().bytes;
    wal.close().await?;
    let began = Instant::now();
    let wal = open(&path)?;
    let opened = began.elapsed();
    let (read, took) = read(&wal, |_| Ok(())).await?;
    println!(
        "records={read} payload_bytes={PAYLOAD_BYTES}: {} MB on disk, opened in {opened:.2?}, read in {took:.2?}",
        bytes / 1_000_000
    );
    Ok(())
}

/// Reads and trims everything, and shows each page to `look`: how many records there were, and how long it took.
async fn read(wal: &Wal, mut look: impl FnMut(usize) -> Result<()>) -> Result<(usize, Duration)> {
    let (began, mut records) = (Instant::now(), 0);
    loop {
        let page = wal.page(None, 1_000, 4 << 20).await?;
        let Some(last) = page.last() else { return Ok((records, began.elapsed())) };
        records += page.len();
        look(records)?;
        wal.trim(last.position).await?;
    }
}

async fn backlog() -> Result<()> {
    let dir = scratch()?;
    let path = dir.path().join("wal");
    let (records, payload) = BACKLOG;
    let mut options = WalOptions::new(path.clone(), u64::MAX, Clock::System);
    options.disk_reserve_bytes = 0;
    let wal = Wal::open(options.clone(), Metrics::new()?.wal("wal"))?;
    for from in (0..records).step_by(200) {
        wal.append((from..from + 200).map(|n| push(n, payload)).collect::<Result<_>>()?).await?;
    }
    let (bytes, appended) = (wal.depth().bytes, peak_memory()?);
    wal.close().await?;
    let wal = Wal::open(options, Metrics::new()?.wal("wal"))?;
    let (read, took) = read(&wal, |_| Ok(())).await?;
    println!(
        "records={read} payload_bytes={payload}: {} MB on disk; appending took at most {appended} MB of memory; read and \
         trimmed in {took:.2?}, with at most {} MB; {} MB are left on disk",
        bytes / 1_000_000,
        peak_memory()?,
        wal.depth().bytes / 1_000_000
    );
    Ok(())
}

/// The most memory that this process ever had, in megabytes.
fn peak_memory() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").map_err(failed("/proc/self/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kilobytes.map(|kilobytes| kilobytes / 1_000).ok_or_else(|| Error::bug("no VmHWM in /proc/self/status"))
}

fn open(dir: &Path) -> Result<Wal> {
    Wal::open(WalOptions::new(dir.to_owned(), 1 << 40, Clock::System), Metrics::new()?.wal("wal"))
}

fn push(number: usize, bytes: usize) -> Result<Record> {
    let id = MessageId::new(format!("01JH{number:022}"))?;
    let message = NewMessage::new(vec![b'x'; bytes]).id(id).accept(Timestamp::from_ms(1_767_323_045_678))?;
    Ok(Record::Push {
        topic: TopicName::new("orders")?,
        message,
        version: dwell::model::version::Version::from_us(1),
        call: None,
        origin: None,
        conflict: Conflict::Keep,
    })
}

fn scratch() -> Result<tempfile::TempDir> {
    let base = std::env::var_os("DWELL_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    tempfile::tempdir_in(base).map_err(failed("a scratch directory"))
}

fn failed(what: &str) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::unavailable(format!("{what}: {error}"))
}
