//! A process with an embedded store is killed at random moments, or its disk takes nothing more: what it answered holds.
//!
//! The child is this very binary, running the test `child` alone, which does nothing unless it is told a directory.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use dwell::model::error::{Error, Result};
use dwell::model::message::TopicName;
use dwell::model::time::Timestamp;
use dwell::model::topic::Descriptor;
use dwell::platform::clock::{Clock, Manual};
use dwell::store::embedded::Embedded;
use dwell::store::{Settlement, Store};

use crate::support::{TestTopic, acks, failed, ids_of, scratch, up_to};

const ROUNDS: usize = 8;
/// Where the child finds its store, and what its ids begin with.
const DIR: &str = "DWELL_CHILD_DIR";
const PREFIX: &str = "DWELL_CHILD_PREFIX";

/// The topic of a store in a directory, under a clock that stands still, so that everything is due.
async fn open(dir: &Path) -> Result<TestTopic> {
    let time = Manual::at(Timestamp::from_ms(1_767_323_045_678));
    let store: Store = Store::of(Arc::new(Embedded::open(dir, Clock::Manual(time.clone()))?));
    let descriptor = store.topics.create(&Descriptor::new(TopicName::new("orders")?, Default::default())).await?;
    Ok(TestTopic { store, time, descriptor })
}

/// Pushes and acks until somebody kills it, or the store refuses twice; says what it is about to do and what is done.
#[tokio::test]
async fn child() -> Result<()> {
    let (Ok(dir), Ok(prefix)) = (std::env::var(DIR), std::env::var(PREFIX)) else { return Ok(()) };
    let orders = open(Path::new(&dir)).await?;
    let mut owner = orders.owner().await?;
    orders.recover(&mut owner).await?;
    let mut refusals = 0;
    for round in 0.. {
        let names: Vec<String> = (0..fastrand::usize(1..30)).map(|n| format!("{prefix}-{round}-{n}")).collect();
        let messages = names.iter().map(|id| orders.message(id, 0)).collect::<Result<Vec<_>>>()?;
        println!("pushing {}", names.join(" "));
        match orders.push_all(&messages).await {
            Ok(_) => println!("pushed {}", names.join(" ")),
            Err(error) => {
                println!("refused {error}");
                refusals += 1;
                if refusals == 2 {
                    return Ok(());
                }
            }
        }
        let Ok(taken) = owner.reserve(up_to(fastrand::usize(1..40))).await else { continue };
        let all = ids_of(&taken.messages);
        let (some, rest) = all.split_at(fastrand::usize(0..=all.len()));
        println!("acking {}", some.join(" "));
        let rest = Settlement { remaining: vec![(taken.reservation, crate::support::ids(rest)?)], ..acks(some)? };
        if owner.settle(&rest).await.is_ok() {
            println!("acked {}", some.join(" "));
        }
    }
    Ok(())
}

/// What the children said.
#[derive(Default)]
struct Ledger {
    pushing: BTreeSet<String>,
    pushed: BTreeSet<String>,
    acking: BTreeSet<String>,
    acked: BTreeSet<String>,
    refused: Vec<String>,
}

impl Ledger {
    fn hear(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let said = match word {
            "pushing" => &mut self.pushing,
            "pushed" => &mut self.pushed,
            "acking" => &mut self.acking,
            "acked" => &mut self.acked,
            "refused" => return self.refused.push(rest.to_owned()),
            _ => return,
        };
        said.extend(rest.split_whitespace().map(str::to_owned));
    }

    /// Opens the store and holds it to what was answered.
    async fn check(&self, dir: &Path) -> Result<()> {
        let orders = open(dir).await?;
        let mut owner = orders.owner().await?;
        orders.recover(&mut owner).await?;
        let mut present = BTreeSet::new();
        loop {
            let taken = owner.reserve(up_to(1_000)).await?.messages;
            if taken.is_empty() {
                break;
            }
            present.extend(taken.iter().map(|message| message.id.to_string()));
        }
        let lost: Vec<_> = self.pushed.difference(&present).filter(|id| !self.acking.contains(*id)).collect();
        let back: Vec<_> = self.acked.intersection(&present).collect();
        let phantoms: Vec<_> = present.difference(&self.pushing).collect();
        assert!(lost.is_empty() && back.is_empty() && phantoms.is_empty(), "{lost:?} {back:?} {phantoms:?}");
        Ok(())
    }
}

/// This binary as a child, started through a shell that runs `before` first.
fn spawn(dir: &Path, prefix: &str, before: &str) -> Result<Child> {
    let this = std::env::current_exe().map_err(failed("the path of this binary"))?;
    Command::new("sh")
        .args(["-c", &format!("{before} exec \"$0\" --exact disk::crash_embedded::child --nocapture")])
        .arg(this)
        .env(DIR, dir)
        .env(PREFIX, prefix)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed("a child"))
}

/// Writes down what a child says, and kills it after so many lines.
fn listen(ledger: &mut Ledger, mut child: Child, lines: usize) -> Result<()> {
    let said = child.stdout.take().ok_or_else(|| Error::bug("a child without an output"))?;
    for (number, line) in BufReader::new(said).lines().enumerate() {
        ledger.hear(&line.map_err(failed("what a child says"))?);
        if number == lines {
            child.kill().map_err(failed("killing a child"))?;
        }
    }
    child.wait().map_err(failed("a child")).map(|_| ())
}

#[tokio::test]
async fn no_acknowledged_write_is_lost_on_a_kill() -> Result<()> {
    let (dir, mut ledger) = (scratch()?, Ledger::default());
    for round in 0..ROUNDS {
        let child = spawn(dir.path(), &round.to_string(), "")?;
        listen(&mut ledger, child, fastrand::usize(5..200))?;
        ledger.check(dir.path()).await?;
    }
    assert!(ledger.acked.len() > ROUNDS, "too little happened to prove anything");
    assert_eq!(ledger.refused, [""; 0]);
    Ok(())
}

#[tokio::test]
async fn full_disk_never_yields_a_false_success() -> Result<()> {
    let (dir, mut ledger) = (scratch()?, Ledger::default());
    // No file may pass 4 MiB; going past it is an error, as on a full disk, and not a signal.
    let child = spawn(dir.path(), "full", "trap '' XFSZ; ulimit -f 8192;")?;
    listen(&mut ledger, child, usize::MAX)?;
    let [first, second] = ledger.refused.as_slice() else {
        return Err(Error::bug(format!("the disk did not fill: {:?}", ledger.refused)));
    };
    // The first push may be there or not; the second one is certainly not.
    assert!(first.starts_with("outcome-unknown") || first.starts_with("unavailable"), "{first}");
    assert!(second.starts_with("unavailable") && second.contains("opened again once the disk"), "{second}");
    ledger.check(dir.path()).await
}
