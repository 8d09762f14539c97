//! A dashboard: its rows, laid out, and what can be chosen at its top.

use serde_json::{Value, json};

use super::panel::{Panel, source};

/// Columns of Grafana's grid.
const COLUMNS: u32 = 24;

/// The form of the file. Grafana 10 and 11 read it; newer ones bring it up to date by themselves.
const SCHEMA: u32 = 39;

/// Counters, which are there while Redis is unavailable, and the store stats, which include topics without traffic.
const OF_TOPICS: &str = r#"__name__=~"dwell_(pushes_total|deliveries_total|messages)""#;

/// A dashboard.
pub(crate) struct Dashboard {
    /// The name of its file, and the end of its id.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) description: &'static str,
    pub(crate) rows: Vec<Row>,
}

/// Panels under a title. All rows but the first are collapsed, so that only what is looked at is asked for.
pub(crate) struct Row {
    pub(crate) title: &'static str,
    pub(crate) panels: Vec<Panel>,
}

impl Dashboard {
    /// The id by which links find it.
    pub(crate) fn uid(name: &str) -> String {
        format!("dwell-{name}")
    }

    /// The file of the dashboard. Its panels link to the runbooks at this URL.
    pub(crate) fn json(&self, runbooks: &str) -> Value {
        json!({
            "uid": Dashboard::uid(self.name),
            "title": self.title,
            "description": self.description,
            "tags": ["dwell"],
            "schemaVersion": SCHEMA,
            "editable": true,
            "graphTooltip": 1,
            "timezone": "browser",
            "time": {"from": "now-1h", "to": "now"},
            "refresh": "10s",
            "links": [{
                "type": "dashboards", "title": "dwell", "tags": ["dwell"], "asDropdown": false,
                "includeVars": true, "keepTime": true, "targetBlank": false, "icon": "external link",
                "tooltip": "", "url": "",
            }],
            "annotations": {"list": marks()},
            "templating": {"list": variables()},
            "panels": self.panels(runbooks),
        })
    }

    fn panels(&self, runbooks: &str) -> Vec<Value> {
        let (mut placed, mut id, mut y) = (Vec::new(), 0, 0);
        for row in &self.rows {
            let is_open = placed.is_empty();
            let (panels, height) = row.panels(id + 2, y + 1, runbooks);
            let next_id = id + 1 + panels.len();
            let (inside, below) = if is_open { (Vec::new(), panels) } else { (panels, Vec::new()) };
            placed.push(json!({
                "id": id + 1, "type": "row", "title": row.title, "collapsed": !is_open, "panels": inside,
                "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y},
            }));
            placed.extend(below);
            (id, y) = (next_id, y + 1 + if is_open { height } else { 0 });
        }
        placed
    }
}

impl Row {
    /// The panels from this id and this line of the grid on, and how many lines they need.
    fn panels(&self, first_id: usize, top: u32, runbooks: &str) -> (Vec<Value>, u32) {
        let (mut placed, mut x, mut y, mut height) = (Vec::new(), 0, top, 0);
        for panel in &self.panels {
            if x + panel.width() > COLUMNS {
                (x, y, height) = (0, y + height, 0);
            }
            placed.push(panel.json(first_id + placed.len(), [x, y], runbooks));
            (x, height) = (x + panel.width(), height.max(panel.height()));
        }
        (placed, y + height - top)
    }
}

/// What can be chosen: where the metrics are, and which brokers, topics and groups are shown.
fn variables() -> Vec<Value> {
    let chosen = |name: &str, title: &str, query: &str| {
        json!({
            "name": name, "label": title, "type": "query", "datasource": source(),
            "definition": query, "query": {"query": query, "refId": "A"},
            "refresh": 2, "sort": 1, "multi": true, "includeAll": true, "allValue": ".*",
            "current": {"text": ["All"], "value": ["$__all"], "selected": true}, "hide": 0,
        })
    };
    vec![
        json!({
            "name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus",
            "refresh": 1, "multi": false, "includeAll": false, "current": {"text": "", "value": ""}, "hide": 0,
        }),
        chosen("job", "Job", "label_values(dwell_build_info, job)"),
        chosen("instance", "Broker", r#"label_values(dwell_build_info{job=~"$job"}, instance)"#),
        chosen("topic", "Topic", &format!(r#"label_values({{{OF_TOPICS},job=~"$job"}}, topic)"#)),
        chosen("group", "Group", &format!(r#"label_values({{{OF_TOPICS},job=~"$job",topic=~"$topic"}}, group)"#)),
    ]
}

/// What is marked in all panels: alerts that fire, and starts of brokers.
fn marks() -> Vec<Value> {
    let alerts = r#"ALERTS{alertname=~"Dwell.+",alertstate="firing"}"#;
    let starts = r#"process_start_time_seconds{job=~"$job",instance=~"$instance"} * 1000"#;
    vec![
        json!({
            "name": "Alerts", "datasource": source(), "enable": true, "iconColor": "red", "expr": alerts,
            "titleFormat": "{{alertname}}", "textFormat": "{{instance}} {{topic}} {{group}}", "step": "10s",
        }),
        json!({
            "name": "Starts", "datasource": source(), "enable": true, "iconColor": "blue", "expr": starts,
            "titleFormat": "{{instance}} started", "useValueForTime": true, "step": "60s",
        }),
    ]
}
