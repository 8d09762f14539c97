//! The queries of the dashboards as Grafana would send them, from the files that Grafana reads.

use dwell::model::error::{Error, Result};
use serde_json::Value;

use super::{grafana, read};

/// The dashboards.
pub(super) const DASHBOARDS: [&str; 4] = ["overview", "reliability", "groups", "process"];

/// A query, with the place where it stands.
pub(super) struct Query {
    pub(super) dashboard: String,
    pub(super) panel: String,
    pub(super) expression: String,
}

/// What is chosen at the top of a dashboard.
pub(super) struct Choice<'a> {
    pub(super) topic: &'a str,
    pub(super) group: &'a str,
    pub(super) instance: &'a str,
}

/// Everything, which is what a dashboard opens with.
pub(super) const ALL: Choice<'static> = Choice { topic: ".*", group: ".*", instance: ".*" };

/// The file of a dashboard.
pub(super) fn dashboard(name: &str) -> Result<Value> {
    let text = read(&grafana(&format!("dashboards/{name}.json")))?;
    serde_json::from_str(&text).map_err(|error| Error::bug(format!("{name}: {error}")))
}

/// The items of a list; none if it is no list.
pub(super) fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value[name].as_array().into_iter().flatten()
}

pub(super) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// The panels of a dashboard, those of collapsed rows too, without the rows.
pub(super) fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    let inside = |panel| std::iter::once(panel).chain(list(panel, "panels"));
    list(dashboard, "panels").flat_map(inside).filter(|panel| panel["type"] != "row")
}

/// Every query of every dashboard: of the panels, and of the marks in them.
pub(super) fn all() -> Result<Vec<Query>> {
    let mut queries = Vec::new();
    for name in DASHBOARDS {
        let dashboard = dashboard(name)?;
        let mut add = |panel: String, expression: &str| {
            queries.push(Query { dashboard: name.to_owned(), panel, expression: expression.to_owned() });
        };
        for panel in panels(&dashboard) {
            for target in list(panel, "targets") {
                let legend = text(target, "legendFormat");
                let of = if list(panel, "targets").count() > 1 { format!(" ({legend})") } else { String::new() };
                add(format!("{}{of}", text(panel, "title")), text(target, "expr"));
            }
        }
        for mark in list(&dashboard["annotations"], "list") {
            add(format!("mark: {}", text(mark, "name")), text(mark, "expr"));
        }
    }
    Ok(queries)
}

/// The queries that say what can be chosen: the labels' names and the series that have them.
pub(super) fn choices() -> Result<Vec<(String, String)>> {
    let dashboard = dashboard(DASHBOARDS[0])?;
    let queries = list(&dashboard["templating"], "list").filter(|variable| variable["type"] == "query");
    let parts = queries.map(|variable| {
        let call = text(&variable["query"], "query");
        let inside = call.strip_prefix("label_values(").and_then(|call| call.strip_suffix(')'));
        let (series, label) =
            inside.and_then(|inside| inside.rsplit_once(", ")).ok_or_else(|| Error::bug(call.to_owned()))?;
        Ok((label.to_owned(), series.to_owned()))
    });
    parts.collect()
}

impl Choice<'_> {
    /// The expression with the variables replaced, where Prometheus scrapes each second.
    pub(super) fn fill(&self, expression: &str) -> String {
        let chosen = [("$job", ".*"), ("$instance", self.instance), ("$topic", self.topic), ("$group", self.group)];
        // Grafana takes four scrapes, so that two are left when one fails.
        let filled = expression.replace("$__rate_interval", "4s");
        chosen.iter().fold(filled, |filled, (name, value)| filled.replace(name, value))
    }
}
