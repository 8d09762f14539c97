//! Consumers in processes of their own, which print what they get.

use std::collections::BTreeMap;
use std::process::Stdio;

use dwell::model::error::{Error, Result};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::dwell;
use crate::support::{PATIENCE, failed};

/// A process that prints each message it gets. Killed when dropped.
pub(super) struct Printer(Child);

/// What was printed: by whom, which message, which attempt.
type Printed = (usize, String, u64);

impl Printer {
    /// Sends SIGKILL and waits for the end.
    pub(super) async fn kill(mut self) -> Result<()> {
        self.0.kill().await.map_err(failed("the end of a consumer"))
    }
}

/// Who got each message, and as which attempt.
pub(super) struct Got {
    times: BTreeMap<String, Vec<(u64, usize)>>,
    printers: usize,
    to: mpsc::UnboundedSender<Printed>,
    printed: mpsc::UnboundedReceiver<Printed>,
}

/// Messages that came again.
pub(super) struct Again {
    /// Those that came as a later attempt.
    pub(super) later: usize,
    /// Those of them that had been printed before.
    pub(super) twice: usize,
    /// No attempt was printed twice, and no later attempt before somebody was killed.
    pub(super) is_right: bool,
}

impl Got {
    pub(super) fn nothing() -> Got {
        let (to, printed) = mpsc::unbounded_channel();
        Got { times: BTreeMap::new(), printers: 0, to, printed }
    }

    /// Starts a process. `read` finds id and attempt in a line of its output.
    pub(super) fn start(&mut self, args: &[String], read: fn(&str) -> Option<(String, u64)>) -> Result<Printer> {
        let mut command = Command::new(dwell()?);
        command.args(args).env_clear().kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(failed("a consumer"))?;
        let out = child.stdout.take().ok_or_else(|| Error::bug("no output"))?;
        let (number, to) = (self.printers, self.to.clone());
        self.printers += 1;
        tokio::spawn(async move {
            let mut lines = BufReader::new(out).lines();
            // A line that was cut off by a kill is no line.
            while let Ok(Some(line)) = lines.next_line().await {
                let printed = read(&line).map(|(id, attempt)| (number, id, attempt));
                if printed.is_some_and(|printed| to.send(printed).is_err()) {
                    return;
                }
            }
        });
        Ok(Printer(child))
    }

    /// Waits until so many messages have come.
    pub(super) async fn until(&mut self, count: usize) -> Result<()> {
        while self.times.len() < count {
            let next = timeout(PATIENCE, self.printed.recv()).await;
            let Ok(Some((number, id, attempt))) = next else {
                let so_far = self.times.len();
                return Err(Error::unavailable(format!("{so_far} of {count} messages, then none for {PATIENCE:?}")));
            };
            self.times.entry(id).or_default().push((attempt, number));
        }
        Ok(())
    }

    /// How many messages have come.
    pub(super) fn count(&self) -> usize {
        self.times.len()
    }

    /// What came again, after the first process was killed and another went on.
    pub(super) fn again(&self) -> Again {
        let mut again = Again { later: 0, twice: 0, is_right: true };
        for times in self.times.values() {
            again.later += usize::from(times.iter().any(|(attempt, _)| *attempt > 1));
            again.twice += usize::from(times.len() > 1);
            // The output of two processes comes in any order.
            let mut times = times.clone();
            times.sort_unstable();
            again.is_right &= matches!(times.as_slice(), [(1, _)] | [(2.., 1)] | [(1, 0), (2.., 1)]);
        }
        again
    }
}
