//! A process that reads a stream is killed half-way through a large backlog.

use std::time::Instant;

use dwell::model::error::Result;

use crate::backlog::{IN_FLIGHT, with_one_killed};
use crate::report::{Report, show};

/// `dwell consume --stream` twice; one of them gets SIGKILL.
pub(crate) async fn killed(report: &mut Report, messages: usize) -> Result<()> {
    let since = Instant::now();
    let got = with_one_killed(messages).await?;
    let (took, lost) = (since.elapsed(), messages - got.count());
    let figures = format!("{messages} messages, {lost} lost, in {}", show(took));
    report.row("SIGKILL of 1 of 2 stream consumers half-way", figures, "none lost", lost == 0);
    let again = got.again();
    let figures = format!("{} came as attempt 2, {} of them had been printed", again.later, again.twice);
    let kept = again.is_right && (1..=IN_FLIGHT).contains(&again.later);
    report.row("what it had in hand came again", figures, format!("1 to {IN_FLIGHT}"), kept);
    Ok(())
}
