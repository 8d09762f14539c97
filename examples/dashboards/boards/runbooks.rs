//! What each alert means and what to do, from docs/operate/runbooks.md: there when an alert fires, without looking for a page.

use super::dashboard::{Dashboard, Row};
use super::panel::Panel;

const RUNBOOKS: &str = include_str!("../../../docs/operate/runbooks.md");

/// The chapter of the page.
const CHAPTER: &str = "\n## Alerts\n";

pub(super) const NAME: &str = "runbooks";

pub(super) fn board() -> Dashboard {
    let panels = runbooks().map(|(alert, text)| Panel::text(alert, text)).collect();
    Dashboard {
        name: NAME,
        title: "dwell: runbooks",
        description: "What each alert means, how to check it, and what to do. The same as docs/operate/runbooks.md.",
        variables: false,
        rows: vec![Row { title: "Alerts", panels }],
    }
}

/// The id of the panel that has the runbook of an alert.
pub(super) fn panel_of(alert: &str) -> Option<usize> {
    // The row is the first panel, and ids begin at 1.
    runbooks().position(|(name, _)| name == alert).map(|at| at + 2)
}

/// Alerts and their runbooks, as the page has them.
fn runbooks() -> impl Iterator<Item = (&'static str, &'static str)> {
    let chapter = RUNBOOKS.split_once(CHAPTER).map_or("", |(_, rest)| rest);
    let chapter = chapter.split("\n## ").next().unwrap_or_default();
    chapter
        .split("\n### ")
        .skip(1)
        .filter_map(|section| section.split_once('\n'))
        .map(|(alert, text)| (alert, text.trim()))
}
