//! The files of the dashboards: they are what their source makes, and Grafana can read them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use dwell::model::error::Result;
use serde_json::Value;

use super::boards;
use super::incidents::moments::{BOARDS, marks, open_row};
use super::queries::{DASHBOARDS, dashboard, list, panels, text};
use super::{grafana, read};

/// Units that Grafana knows, as far as they are used.
const UNITS: [&str; 7] = ["short", "mps", "reqps", "ops", "s", "bytes", "percentunit"];

/// What each kind of panel has besides.
const KINDS: [&str; 5] = ["timeseries", "stat", "bargauge", "heatmap", "table"];

const RUNBOOKS: &str = include_str!("../../../../docs/operate/runbooks.md");

#[test]
fn dashboard_files_match_their_source() -> Result<()> {
    let made = boards::files(boards::RUNBOOKS);
    let names: BTreeSet<String> = DASHBOARDS.iter().map(|name| format!("{name}.json")).collect();
    assert_eq!(made.iter().map(|(file, _)| file.clone()).collect::<BTreeSet<_>>(), names);
    for (file, text) in made {
        let committed = read(&grafana(&format!("dashboards/{file}")))?;
        assert!(committed == text, "grafana/dashboards/{file} differs from its source: cargo run --example dashboards");
    }
    Ok(())
}

#[test]
fn every_dashboard_is_valid_for_grafana_10() -> Result<()> {
    for name in DASHBOARDS {
        let dashboard = dashboard(name)?;
        assert_eq!(text(&dashboard, "uid"), format!("dwell-{name}"));
        assert!((36..=41).contains(&dashboard["schemaVersion"].as_u64().unwrap_or_default()));
        assert!(!text(&dashboard, "title").is_empty() && !text(&dashboard, "description").is_empty());
        assert_eq!(dashboard["links"][0]["tags"], dashboard["tags"], "{name} leads to the others");
        let all = list(&dashboard, "panels").flat_map(|panel| std::iter::once(panel).chain(list(panel, "panels")));
        let ids: Vec<u64> = all.filter_map(|panel| panel["id"].as_u64()).collect();
        assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>(), "{name}");
        assert!(panels(&dashboard).count() >= 9, "{name}");
    }
    Ok(())
}

#[test]
fn every_panel_has_a_description() -> Result<()> {
    for name in DASHBOARDS {
        let dashboard = dashboard(name)?;
        for panel in panels(&dashboard) {
            let (title, kind) = (text(panel, "title"), text(panel, "type"));
            let place = format!("{name}, {title}");
            assert!(!title.is_empty() && KINDS.contains(&kind), "{place}: {kind}");
            assert!(text(panel, "description").ends_with('.'), "{place}: it has no description");
            let field = &panel["fieldConfig"]["defaults"];
            assert!(UNITS.contains(&text(field, "unit")), "{place}: {}", field["unit"]);
            assert_eq!(field["thresholds"]["steps"][0]["value"], Value::Null, "{place}: steps begin without a value");
            let steps: Vec<f64> =
                list(&field["thresholds"], "steps").filter_map(|step| step["value"].as_f64()).collect();
            assert!(steps.is_sorted(), "{place}: {steps:?}");
            let targets: Vec<_> = list(panel, "targets").collect();
            let ids: BTreeSet<_> = targets.iter().map(|target| text(target, "refId")).collect();
            assert!(!ids.is_empty() && ids.len() == targets.len(), "{place}: {ids:?}");
            for target in targets {
                assert_eq!(text(&target["datasource"], "uid"), "${datasource}", "{place}");
                assert_ne!(target["instant"], target["range"], "{place}");
            }
        }
    }
    Ok(())
}

#[test]
fn panels_do_not_overlap() -> Result<()> {
    for name in DASHBOARDS {
        let dashboard = dashboard(name)?;
        // What is inside a collapsed row is shown only when it is opened.
        for shown in std::iter::once(&dashboard).chain(list(&dashboard, "panels")) {
            let mut taken: BTreeMap<(u64, u64), &str> = BTreeMap::new();
            for panel in list(shown, "panels") {
                let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap_or(u64::MAX));
                assert!(w > 0 && h > 0 && x.saturating_add(w) <= 24, "{name}: {}", panel["gridPos"]);
                for place in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
                    let other = taken.insert(place, text(panel, "title"));
                    assert_eq!(other, None, "{name}: {} is on the same place", panel["title"]);
                }
            }
        }
    }
    Ok(())
}

#[test]
fn all_rows_but_the_first_are_collapsed() -> Result<()> {
    for name in DASHBOARDS {
        let dashboard = dashboard(name)?;
        let rows = list(&dashboard, "panels").filter(|panel| panel["type"] == "row");
        for (n, row) in rows.enumerate() {
            assert_eq!(row["collapsed"], n > 0, "{name}, {}", row["title"]);
            assert_eq!(list(row, "panels").next().is_some(), n > 0, "{name}, {}", row["title"]);
        }
        let open = list(&dashboard, "panels").position(|panel| panel["collapsed"] == true).unwrap_or_default();
        assert!(list(&dashboard, "panels").skip(open).all(|panel| panel["type"] == "row"), "{name}");
    }
    Ok(())
}

/// A long poll takes as long as the client said.
#[test]
fn request_latency_excludes_long_polls() -> Result<()> {
    let document = dwell::api::http::openapi();
    let waits = |path: &str| {
        let body = &document["paths"][path]["post"]["requestBody"]["content"];
        let name = body["application/json"]["schema"]["$ref"].as_str().and_then(|name| name.rsplit('/').next());
        path.ends_with("/stream")
            || name.is_some_and(|name| !document["components"]["schemas"][name]["properties"]["wait"].is_null())
    };
    let paths = document["paths"].as_object().into_iter().flat_map(serde_json::Map::keys);
    let waiting: Vec<&String> = paths.filter(|path| waits(path)).collect();
    assert_eq!(waiting.len(), 2, "{waiting:?}");
    assert!(waiting.iter().all(|path| path.ends_with("/reserve") || path.ends_with("/stream")), "{waiting:?}");
    let times =
        super::queries::all()?.into_iter().filter(|query| query.expression.contains("dwell_http_request_seconds"));
    let without = format!("route!~\"{}\"", boards::WAITING_ROUTES);
    let wrong: Vec<_> = times.filter(|query| !query.expression.contains(&without)).map(|query| query.panel).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    Ok(())
}

/// A query that names a variable which nobody can choose finds nothing in Grafana, and an error in no log.
#[test]
fn every_query_variable_is_defined() -> Result<()> {
    let (mut chosen, mut used) = (BTreeSet::new(), BTreeSet::new());
    for name in DASHBOARDS {
        let dashboard = dashboard(name)?;
        let known: BTreeSet<String> =
            list(&dashboard["templating"], "list").map(|variable| text(variable, "name").to_owned()).collect();
        let targets = panels(&dashboard).flat_map(|panel| list(panel, "targets"));
        for target in targets.chain(list(&dashboard["annotations"], "list")) {
            let word = |rest: &str| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().map(str::to_owned);
            let names =
                text(target, "expr").split('$').skip(1).filter_map(word).filter(|name| name != "__rate_interval");
            used.extend(names.inspect(|variable| assert!(known.contains(variable), "{name}: {variable}")));
        }
        chosen.extend(known);
    }
    used.insert("datasource".to_owned());
    assert_eq!(chosen, used, "what can be chosen, and what queries use");
    Ok(())
}

#[test]
fn every_runbook_link_resolves() -> Result<()> {
    let mut linked = 0;
    for name in DASHBOARDS {
        let dashboard = dashboard(name)?;
        for link in panels(&dashboard).flat_map(|panel| list(panel, "links")) {
            let alert = text(link, "title").trim_start_matches("Runbook of ");
            assert!(RUNBOOKS.contains(&format!("\n### {alert}\n")), "{name}: {alert}");
            assert_eq!(text(link, "url"), format!("{}#{}", boards::RUNBOOKS, alert.to_lowercase()), "{name}");
            linked += 1;
        }
    }
    assert!(linked > 20, "{linked}");
    Ok(())
}

#[test]
fn generator_accepts_another_runbook_url() {
    let files = boards::files("https://wiki.example.com/dwell");
    assert!(files.iter().all(|(_, text)| text.contains("https://wiki.example.com/dwell#dwell")));
    assert!(files.iter().all(|(_, text)| !text.contains(boards::RUNBOOKS)));
}

/// The tables of docs/operate/dashboards.md have the panels of today, at the moments that incidents write down.
#[test]
fn page_of_moments_has_every_open_panel() -> Result<()> {
    const INCIDENTS: [&str; 4] = [
        include_str!("incidents/brokers.rs"),
        include_str!("incidents/consumers.rs"),
        include_str!("incidents/losses.rs"),
        include_str!("incidents/redis.rs"),
    ];
    let mut panels = Vec::new();
    for name in BOARDS {
        let board = dashboard(name)?;
        panels.extend(open_row(&board).into_iter().map(|panel| format!("| {name} | {} | ", text(panel, "title"))));
    }
    assert!(panels.len() > 15, "{panels:?}");
    let mut written: Vec<&str> = INCIDENTS.iter().flat_map(|source| source.split(".shows(\"").skip(1)).collect();
    written.iter_mut().for_each(|rest| *rest = rest.split('"').next().unwrap_or_default());
    assert_eq!(written.len(), 9, "{written:?}");
    let page = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operate/dashboards.md"))?;
    assert_eq!(page.matches("<!-- moment: ").count(), 9);
    for moment in written {
        let (begin, end) = marks(moment);
        let table = page.split_once(&begin).and_then(|(_, rest)| Some(rest.split_once(end)?.0)).unwrap_or_default();
        let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
        let rows: Vec<&str> = rows.collect();
        let are_there =
            rows.len() == panels.len() && rows.iter().zip(&panels).all(|(row, panel)| row.starts_with(panel));
        assert!(
            are_there,
            "{moment}: make incidents DASHBOARDS=docs/operate/dashboards.md writes its table: {rows:#?}"
        );
    }
    Ok(())
}
