//! The dashboards as code: what each of them shows, in the order of its panels.

mod dashboard;
mod panel;
mod query;

mod overview;
mod reliability;
mod groups;
mod process;
mod runbooks;

use self::dashboard::Dashboard;

/// What a message may be late and still count as on time, seconds. A bucket of `dwell_lateness_seconds`, and that of
/// grafana/prometheus/rules.yml.
pub(crate) const ON_TIME_SECONDS: f64 = 0.25;

/// The part of all deliveries that may be later than that.
pub(crate) const LATE_PART: f64 = 0.01;

/// The files of grafana/dashboards: name and text.
pub(crate) fn files() -> Vec<(String, String)> {
    let all = [overview::board(), reliability::board(), groups::board(), process::board(), runbooks::board()];
    all.iter().map(|board| (format!("{}.json", board.name), format!("{:#}\n", board.json()))).collect()
}

/// The page of the runbooks, for panels that lead to it.
fn runbook(alert: &str) -> Option<String> {
    runbooks::panel_of(alert).map(|id| format!("/d/{}?viewPanel={id}", Dashboard::uid(runbooks::NAME)))
}
