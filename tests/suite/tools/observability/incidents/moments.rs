//! What the dashboards answer at moments of the incidents: `make incidents DASHBOARDS=docs/operate/dashboards.md` writes the tables
//! of that page anew, from what Prometheus answers to the queries of the panels.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use dwell::model::error::{Error, Result};
use serde_json::Value;

use super::fleet::Fleet;
use crate::support::failed;
use crate::tools::observability::queries::{ALL, dashboard, list, text};
use crate::tools::observability::read;

/// One incident writes at a time.
static WRITES: Mutex<()> = Mutex::new(());

/// The panels that are looked at first: of these dashboards all in the row that is open.
pub(in crate::tools::observability) const BOARDS: [&str; 2] = ["overview", "reliability"];

/// What stands before the table of a moment, and behind it.
pub(in crate::tools::observability) fn marks(moment: &str) -> (String, &'static str) {
    (format!("<!-- moment: {moment} -->\n"), "<!-- end -->\n")
}

/// The panels of the row of a dashboard that is open.
pub(in crate::tools::observability) fn open_row(board: &Value) -> Vec<&Value> {
    let rest = list(board, "panels").skip_while(|panel| panel["type"] == "row");
    rest.take_while(|panel| panel["type"] != "row").collect()
}

impl Fleet {
    /// Asks each panel, all of which answer with one figure or with none; and writes down the table of this moment, if it is
    /// wanted.
    pub(super) async fn shows(&self, moment: &str) -> Result<()> {
        let mut table = "\n| dashboard | panel | answer | color |\n|---|---|---|---|\n".to_owned();
        for name in BOARDS {
            let board = dashboard(name)?;
            for panel in open_row(&board) {
                let query = list(panel, "targets").next().map(|target| text(target, "expr")).unwrap_or_default();
                let data = self.prometheus.api().ask("query", &[("query", &ALL.fill(query))]).await?;
                let samples: Vec<f64> =
                    list(&data, "result").filter_map(|series| series["value"][1].as_str()?.parse().ok()).collect();
                assert!(samples.len() < 2, "{name}, {}: {data}", panel["title"]);
                let (answer, color) = shown(&panel["fieldConfig"]["defaults"], samples.first().copied());
                table += &format!("| {name} | {} | {answer} | {color} |\n", text(panel, "title"));
            }
        }
        match std::env::var("DASHBOARDS") {
            Ok(page) if !page.is_empty() => {
                write(&Path::new(env!("CARGO_MANIFEST_DIR")).join(page), moment, &(table + "\n"))
            }
            _ => Ok(()),
        }
    }
}

fn write(page: &Path, moment: &str, table: &str) -> Result<()> {
    let _alone = WRITES.lock().unwrap_or_else(PoisonError::into_inner);
    let (begin, end) = marks(moment);
    let whole = read(page)?;
    let parts = whole.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(end)?.1)));
    let (before, after) = parts.ok_or_else(|| Error::bug(format!("{} has no {begin:?}", page.display())))?;
    std::fs::write(page, format!("{before}{begin}{table}{end}{after}")).map_err(failed("the page"))
}

/// What Grafana shows for a figure, with its color: its word, or the number with its unit.
fn shown(field: &Value, value: Option<f64>) -> (String, String) {
    let Some(value) = value.filter(|value| !value.is_nan()) else {
        let nothing = text(field, "noValue");
        return (if nothing.is_empty() { "No data".to_owned() } else { nothing.to_owned() }, "-".to_owned());
    };
    let words = list(field, "mappings").filter_map(|mapping| mapping["options"].get(value.to_string()));
    if let Some(word) = words.into_iter().next() {
        return (text(word, "text").to_owned(), text(word, "color").to_owned());
    }
    let steps = list(&field["thresholds"], "steps");
    let step = steps.filter(|step| step["value"].as_f64().is_none_or(|from| value >= from)).last();
    let color = step.map(|step| text(step, "color")).unwrap_or_default().to_owned();
    (with_unit(value, text(field, "unit")), color)
}

/// A number, rounded as far as it is read at a glance.
fn with_unit(value: f64, unit: &str) -> String {
    let rounded = |value: f64| {
        let digits = if value.fract() == 0.0 || value.abs() >= 100.0 { 0 } else { 1 };
        let text = format!("{value:.digits$}");
        text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
    };
    match unit {
        "percentunit" => format!("{} %", rounded(value * 100.0)),
        "s" if value >= 2.0 * 86_400.0 => format!("{} days", rounded(value / 86_400.0)),
        "s" if value >= 7_200.0 => format!("{} hours", rounded(value / 3_600.0)),
        "s" if value >= 120.0 => format!("{} min", rounded(value / 60.0)),
        "s" if value < 1.0 && value > 0.0 => format!("{} ms", rounded(value * 1e3)),
        "s" => format!("{} s", rounded(value)),
        _ => rounded(value),
    }
}

#[test]
fn figures_are_shown_with_units_words_and_colors() {
    let field = serde_json::json!({
        "unit": "s", "noValue": "not counted",
        "mappings": [{"options": {"0": {"text": "away", "color": "red"}}}],
        "thresholds": {"steps": [{"color": "green", "value": null}, {"color": "orange", "value": 60}]},
    });
    let shown = |value| {
        let (answer, color) = shown(&field, value);
        format!("{answer}, {color}")
    };
    assert_eq!(shown(None), "not counted, -");
    assert_eq!(shown(Some(0.0)), "away, red");
    assert_eq!(shown(Some(0.0123)), "12.3 ms, green");
    assert_eq!(shown(Some(61.0)), "61 s, orange");
    assert_eq!(shown(Some(450.0)), "7.5 min, orange");
    assert_eq!(shown(Some(10_800.0)), "3 hours, orange");
    assert_eq!(shown(Some(1e7)), "116 days, orange");
    assert_eq!(with_unit(0.9987, "percentunit"), "99.9 %");
    assert_eq!(with_unit(1234.5, "short"), "1234");
    assert_eq!(with_unit(2.04, "short"), "2");
}
