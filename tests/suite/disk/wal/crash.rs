//! A process with a log is killed at random moments, or its disk takes nothing more: what it answered holds.
//!
//! The child is this very binary, running the test `child` alone, which does nothing unless it is told a directory.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use dwell::model::error::{Error, Result};
use dwell::platform::clock::Clock;
use dwell::wal::{Wal, WalOptions};

use super::support::{all_of, ids_of, metrics, push};
use crate::support::{failed, scratch};

const ROUNDS: usize = 15;
/// Where the child finds its log, and what its ids begin with.
const DIR: &str = "DWELL_CHILD_LOG";
const PREFIX: &str = "DWELL_CHILD_PREFIX";

fn open(dir: &Path) -> Result<Wal> {
    let mut options = WalOptions::new(dir.to_owned(), 1 << 30, Clock::System);
    options.disk_reserve_bytes = 0;
    options.segment_bytes = 700_000;
    Wal::open(options, metrics()?)
}

/// Appends from several callers at once, and trims what it read, until somebody kills it; says what it is about to do and
/// what is done.
#[tokio::test]
async fn child() -> Result<()> {
    let (Ok(dir), Ok(prefix)) = (std::env::var(DIR), std::env::var(PREFIX)) else { return Ok(()) };
    let wal = open(Path::new(&dir))?;
    for round in 0.. {
        let several: Vec<Vec<String>> = (0..fastrand::usize(1..6))
            .map(|n| (0..fastrand::usize(1..20)).map(|m| format!("{prefix}-{round}-{n}-{m}")).collect())
            .collect();
        let append = async |ids: Vec<String>| {
            println!("appending {}", ids.join(" "));
            let records = ids.iter().map(|id| push(id, fastrand::usize(0..9_000))).collect::<Result<_>>()?;
            wal.append(records).await?;
            println!("appended {}", ids.join(" "));
            Ok::<_, Error>(())
        };
        futures_util::future::try_join_all(several.into_iter().map(append)).await?;
        if round % 4 == 3 {
            let page = wal.page(None, fastrand::usize(1..900), 4 << 20).await?;
            let last = page.last().ok_or_else(|| Error::bug("nothing to trim"))?.position;
            println!("trimming {}", ids_of(&page).join(" "));
            wal.trim(last).await?;
            println!("trimmed {}", ids_of(&page).join(" "));
        }
    }
    Ok(())
}

/// What the children said.
#[derive(Default)]
struct Ledger {
    appending: BTreeSet<String>,
    appended: BTreeSet<String>,
    trimming: BTreeSet<String>,
    trimmed: BTreeSet<String>,
}

impl Ledger {
    fn hear(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let said = match word {
            "appending" => &mut self.appending,
            "appended" => &mut self.appended,
            "trimming" => &mut self.trimming,
            "trimmed" => &mut self.trimmed,
            _ => return,
        };
        said.extend(rest.split_whitespace().map(str::to_owned));
    }

    /// Opens the log and holds it to what was answered.
    async fn check(&self, dir: &Path) -> Result<()> {
        let wal = open(dir)?;
        let ids = ids_of(&all_of(&wal).await?);
        let present: BTreeSet<String> = ids.iter().cloned().collect();
        assert_eq!(present.len(), ids.len(), "something is there twice");
        let lost: Vec<_> = self.appended.difference(&present).filter(|id| !self.trimming.contains(*id)).collect();
        let back: Vec<_> = self.trimmed.intersection(&present).collect();
        let phantoms: Vec<_> = present.difference(&self.appending).collect();
        assert!(lost.is_empty() && back.is_empty() && phantoms.is_empty(), "{lost:?} {back:?} {phantoms:?}");
        let depth = wal.depth();
        assert_eq!((depth.records as usize, depth.damaged, depth.lost), (ids.len(), 0, 0));
        Ok(())
    }
}

/// This binary as a child that runs one test, started through a shell that runs `before` first.
fn spawn(test: &str, dir: &Path, prefix: &str, before: &str) -> Result<Child> {
    let this = std::env::current_exe().map_err(failed("the path of this binary"))?;
    Command::new("sh")
        .args(["-c", &format!("{before} exec \"$0\" --exact {test} --nocapture")])
        .arg(this)
        .env(DIR, dir)
        .env(PREFIX, prefix)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed("a child"))
}

#[tokio::test]
async fn no_acknowledged_write_is_lost_on_a_kill() -> Result<()> {
    let (dir, mut ledger) = (scratch()?, Ledger::default());
    let dir = dir.path().join("wal");
    for round in 0..ROUNDS {
        let mut child = spawn("disk::wal::crash::child", &dir, &round.to_string(), "")?;
        let said = child.stdout.take().ok_or_else(|| Error::bug("a child without an output"))?;
        let lines = fastrand::usize(5..200);
        for (number, line) in BufReader::new(said).lines().enumerate() {
            ledger.hear(&line.map_err(failed("what a child says"))?);
            if number == lines {
                child.kill().map_err(failed("killing a child"))?;
            }
        }
        child.wait().map_err(failed("a child"))?;
        ledger.check(&dir).await?;
    }
    assert!(ledger.trimmed.len() > ROUNDS, "too little happened to prove anything");
    Ok(())
}
