//! One panel, and its form in Grafana.

use serde_json::{Value, json};

/// How values are shown.
#[derive(Clone, Copy)]
pub(crate) enum Unit {
    Count,
    Messages,
    MessagesPerSecond,
    RequestsPerSecond,
    CallsPerSecond,
    Seconds,
    Bytes,
    /// A part of 1.
    Part,
}

impl Unit {
    fn id(self) -> &'static str {
        match self {
            Unit::Count | Unit::Messages => "short",
            Unit::MessagesPerSecond => "mps",
            Unit::RequestsPerSecond => "reqps",
            Unit::CallsPerSecond => "ops",
            Unit::Seconds => "s",
            Unit::Bytes => "bytes",
            Unit::Part => "percentunit",
        }
    }
}

/// What kind of picture it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Lines,
    Areas,
    Stat,
    Bars,
    Heatmap,
    Table,
}

/// One panel. Its queries are in order; the first is A.
pub(crate) struct Panel {
    kind: Kind,
    title: String,
    description: String,
    unit: Unit,
    width: u32,
    queries: Vec<(String, String)>,
    /// From which value on which colour; below the first it is green.
    steps: Vec<(f64, &'static str)>,
    /// Words for values, with their colour.
    words: Vec<(i64, &'static str, &'static str)>,
    max: Option<f64>,
    nothing: Option<&'static str>,
    alert: Option<&'static str>,
}

/// A good value's colour. The others are words of Grafana too: `orange`, `red`.
const GOOD: &str = "green";

impl Panel {
    fn new(kind: Kind, title: &str, description: &str, unit: Unit, width: u32) -> Panel {
        let (title, description) = (title.to_owned(), description.to_owned());
        let (queries, steps, words) = Default::default();
        Panel { kind, title, description, unit, width, queries, steps, words, max: None, nothing: None, alert: None }
    }

    /// Lines over time.
    pub(crate) fn lines(title: &str, description: &str, unit: Unit) -> Panel {
        Panel::new(Kind::Lines, title, description, unit, 8)
    }

    /// Areas over time, one upon the other.
    pub(crate) fn areas(title: &str, description: &str, unit: Unit) -> Panel {
        Panel::new(Kind::Areas, title, description, unit, 8)
    }

    /// One number.
    pub(crate) fn stat(title: &str, description: &str, unit: Unit) -> Panel {
        Panel::new(Kind::Stat, title, description, unit, 4)
    }

    /// A bar for each value of now.
    pub(crate) fn bars(title: &str, description: &str, unit: Unit) -> Panel {
        Panel::new(Kind::Bars, title, description, unit, 8)
    }

    /// The buckets of a histogram over time.
    pub(crate) fn heatmap(title: &str, description: &str, unit: Unit) -> Panel {
        Panel::new(Kind::Heatmap, title, description, unit, 8)
    }

    /// A row for each series of now. Several queries are columns, each named by its legend.
    pub(crate) fn table(title: &str, description: &str, unit: Unit) -> Panel {
        Panel::new(Kind::Table, title, description, unit, 12)
    }

    /// One more query. `{{label}}` in a legend is the value of that label.
    pub(crate) fn query(mut self, query: String, legend: &str) -> Panel {
        self.queries.push((query, legend.to_owned()));
        self
    }

    /// From this value on it is this colour.
    pub(crate) fn from(mut self, value: f64, colour: &'static str) -> Panel {
        self.steps.push((value, colour));
        self
    }

    /// What a number means.
    pub(crate) fn word(mut self, value: i64, word: &'static str, colour: &'static str) -> Panel {
        self.words.push((value, word, colour));
        self
    }

    /// The largest value there is.
    pub(crate) fn most(mut self, max: f64) -> Panel {
        self.max = Some(max);
        self
    }

    /// The words where there is no value.
    pub(crate) fn or_else(mut self, words: &'static str) -> Panel {
        self.nothing = Some(words);
        self
    }

    /// So many of the 24 columns.
    pub(crate) fn wide(mut self, columns: u32) -> Panel {
        self.width = columns;
        self
    }

    /// The alert that watches the same; its runbook is a link of the panel.
    pub(crate) fn watched_by(mut self, alert: &'static str) -> Panel {
        self.alert = Some(alert);
        self
    }

    pub(super) fn width(&self) -> u32 {
        self.width
    }

    /// Rows of Grafana's grid.
    pub(super) fn height(&self) -> u32 {
        match self.kind {
            Kind::Stat => 4,
            _ => 8,
        }
    }

    /// The panel as Grafana has it, at a place of its grid.
    pub(super) fn json(&self, id: usize, [x, y]: [u32; 2], runbooks: &str) -> Value {
        let mut panel = json!({
            "id": id,
            "type": self.type_id(),
            "title": self.title,
            "gridPos": {"h": self.height(), "w": self.width, "x": x, "y": y},
        });
        panel["description"] = self.description.as_str().into();
        panel["datasource"] = source();
        panel["fieldConfig"] = json!({"defaults": self.field(), "overrides": []});
        panel["options"] = self.options();
        panel["targets"] = (b'A'..).zip(&self.queries).map(|(id, query)| self.target(id, query)).collect();
        if self.kind == Kind::Table {
            panel["transformations"] = self.columns();
        }
        if let Some(alert) = self.alert {
            let url = format!("{runbooks}#{}", alert.to_lowercase());
            panel["links"] = json!([{
                "type": "link", "title": format!("Runbook of {alert}"), "url": url, "targetBlank": true,
                "icon": "external link", "tooltip": "", "tags": [],
            }]);
        }
        panel
    }

    fn type_id(&self) -> &'static str {
        match self.kind {
            Kind::Lines | Kind::Areas => "timeseries",
            Kind::Stat => "stat",
            Kind::Bars => "bargauge",
            Kind::Heatmap => "heatmap",
            Kind::Table => "table",
        }
    }

    fn target(&self, id: u8, (query, legend): &(String, String)) -> Value {
        let now = matches!(self.kind, Kind::Bars | Kind::Table);
        let format = match self.kind {
            Kind::Heatmap => "heatmap",
            Kind::Table => "table",
            _ => "time_series",
        };
        json!({
            "refId": char::from(id).to_string(),
            "datasource": source(),
            "editorMode": "code",
            "expr": query,
            "legendFormat": legend,
            "format": format,
            "instant": now,
            "range": !now,
        })
    }

    /// How the answers to its queries become the columns of a table.
    fn columns(&self) -> Value {
        let hidden = json!({"Time": true, "__name__": true, "Value": true});
        let names: serde_json::Map<String, Value> = ('A'..)
            .zip(&self.queries)
            .filter(|(_, (_, legend))| !legend.is_empty())
            .map(|(id, (_, legend))| (format!("Value #{id}"), legend.as_str().into()))
            .collect();
        json!([
            {"id": "merge", "options": {}},
            {"id": "organize", "options": {"excludeByName": hidden, "renameByName": names}},
        ])
    }

    fn field(&self) -> Value {
        let first = json!({"color": GOOD, "value": null});
        let further = self.steps.iter().map(|(value, colour)| json!({"color": colour, "value": number(*value)}));
        let steps: Vec<Value> = std::iter::once(first).chain(further).collect();
        let by_value = matches!(self.kind, Kind::Stat | Kind::Bars);
        let mut field = json!({
            "unit": self.unit.id(),
            "color": {"mode": if by_value { "thresholds" } else { "palette-classic" }},
            "thresholds": {"mode": "absolute", "steps": steps},
            "custom": self.custom(),
        });
        // Offsets are below zero too.
        if let Some(max) = self.max {
            field["max"] = number(max);
        }
        if let Some(words) = self.nothing {
            field["noValue"] = words.into();
        }
        if !self.words.is_empty() {
            let word = |(value, text, colour): &(i64, &str, &str)| {
                (value.to_string(), json!({"text": text, "color": colour, "index": 0}))
            };
            let words: serde_json::Map<String, Value> = self.words.iter().map(word).collect();
            field["mappings"] = json!([{"type": "value", "options": words}]);
        }
        field
    }

    fn custom(&self) -> Value {
        let stacked = if self.kind == Kind::Areas { "normal" } else { "none" };
        match self.kind {
            Kind::Lines | Kind::Areas => json!({
                "drawStyle": "line",
                "lineWidth": 1,
                "fillOpacity": if self.kind == Kind::Areas { 30 } else { 8 },
                "showPoints": "never",
                "axisSoftMin": 0,
                "stacking": {"mode": stacked, "group": "A"},
                "thresholdsStyle": {"mode": if self.steps.is_empty() { "off" } else { "line" }},
            }),
            _ => json!({}),
        }
    }

    fn options(&self) -> Value {
        let last = json!({"calcs": ["lastNotNull"], "fields": "", "values": false});
        match self.kind {
            Kind::Lines | Kind::Areas => json!({
                "legend": {"displayMode": "table", "placement": "bottom", "showLegend": true,
                           "calcs": ["lastNotNull", "max"]},
                "tooltip": {"mode": "multi", "sort": "desc"},
            }),
            Kind::Stat => json!({"reduceOptions": last, "colorMode": "value", "graphMode": "area",
                                 "textMode": "auto", "orientation": "auto", "justifyMode": "auto"}),
            Kind::Bars => json!({"reduceOptions": last, "displayMode": "gradient", "orientation": "horizontal",
                                 "showUnfilled": true, "legend": {"showLegend": false, "displayMode": "list",
                                                                  "placement": "bottom", "calcs": []}}),
            Kind::Heatmap => json!({"calculate": false, "yAxis": {"unit": self.unit.id()}, "cellGap": 1,
                                    "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "reverse": false,
                                              "fill": "dark-orange", "exponent": 0.5},
                                    "legend": {"show": true}, "tooltip": {"mode": "single"}}),
            Kind::Table => json!({"showHeader": true}),
        }
    }
}

/// A number as Grafana writes it: 0 and not 0.0, which its schema refuses; 0.144 and not 0.14400000000000002.
fn number(value: f64) -> Value {
    let rounded = (value * 1e6).round() / 1e6;
    rounded.to_string().parse().unwrap_or_else(|_| json!(rounded))
}

/// The Prometheus that is chosen at the top.
pub(super) fn source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}
