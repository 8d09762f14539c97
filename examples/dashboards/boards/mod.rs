//! The dashboards as code: what each of them shows, in the order of its panels.

mod dashboard;
mod panel;
mod query;

mod overview;
mod reliability;
mod groups;
mod process;

/// How long a consumer may wait for a message that is due, and it still counts as on time, seconds. A bucket of
/// `dwell_lateness_asked_seconds`, and that of grafana/prometheus/rules.yml.
pub(crate) const ON_TIME_SECONDS: f64 = 0.1;

/// What 99 of 100 deliveries should be below, seconds: a bucket of `dwell_lateness_asked_seconds`.
pub(crate) const TARGET_SECONDS: f64 = 0.01;

/// The part of all deliveries that may be later than that.
pub(crate) const LATE_PART: f64 = 0.01;

/// The part of all pushes that may fail.
pub(crate) const FAILED_PART: f64 = 0.001;

/// How many times as fast as promised a budget may be spent before an alert fires, each with its long and its short window.
pub(crate) const BURN_RATES: [(f64, &str, &str); 3] = [(14.4, "1h", "5m"), (6.0, "6h", "30m"), (1.0, "3d", "6h")];

/// Routes that wait for messages on purpose: how long they take says nothing about how fast dwell is.
pub(crate) const WAITING_ROUTES: &str = ".+/(reserve|stream)|AmazonSQS.ReceiveMessage";

/// Where docs/operate/runbooks.md is, unless the generator is told. A placeholder, also in grafana/prometheus/rules.yml.
pub(crate) const RUNBOOKS: &str = "https://git.example.com/dwell/blob/main/docs/operate/runbooks.md";

/// The files of grafana/dashboards: name and text. Panels link to the runbooks at this URL.
pub(crate) fn files(runbooks: &str) -> Vec<(String, String)> {
    let all = [overview::board(), reliability::board(), groups::board(), process::board()];
    all.iter().map(|board| (format!("{}.json", board.name), format!("{:#}\n", board.json(runbooks)))).collect()
}
