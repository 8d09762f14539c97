//! The files of the dashboards: they are what their source makes, and Grafana can read them.

use std::collections::{BTreeMap, BTreeSet};

use dwell::model::error::Result;
use serde_json::Value;

use super::boards;
use super::queries::{dashboard, list, text};
use super::{grafana, read};

const NAMES: [&str; 5] = ["overview", "reliability", "groups", "process", "runbooks"];

/// Units that Grafana knows, as far as they are used.
const UNITS: [&str; 7] = ["short", "mps", "reqps", "ops", "s", "bytes", "percentunit"];

/// What each kind of panel has besides.
const KINDS: [&str; 6] = ["timeseries", "stat", "bargauge", "heatmap", "table", "text"];

fn panels(dashboard: &Value) -> Vec<&Value> {
    list(dashboard, "panels").filter(|panel| panel["type"] != "row").collect()
}

#[test]
fn the_files_are_what_their_source_makes() -> Result<()> {
    let made = boards::files();
    let names: BTreeSet<String> = NAMES.iter().map(|name| format!("{name}.json")).collect();
    assert_eq!(made.iter().map(|(file, _)| file.clone()).collect::<BTreeSet<_>>(), names);
    for (file, text) in made {
        let committed = read(&grafana(&format!("dashboards/{file}")))?;
        assert!(committed == text, "grafana/dashboards/{file} differs from its source: cargo run --example dashboards");
    }
    Ok(())
}

#[test]
fn every_dashboard_is_one_for_grafana_10() -> Result<()> {
    for name in NAMES {
        let dashboard = dashboard(name)?;
        assert_eq!(text(&dashboard, "uid"), format!("dwell-{name}"));
        assert!((36..=41).contains(&dashboard["schemaVersion"].as_u64().unwrap_or_default()));
        assert!(!text(&dashboard, "title").is_empty() && !text(&dashboard, "description").is_empty());
        assert_eq!(dashboard["links"][0]["tags"], dashboard["tags"], "{name} leads to the others");
        let ids: Vec<u64> = list(&dashboard, "panels").filter_map(|panel| panel["id"].as_u64()).collect();
        assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>(), "{name}");
        assert!(panels(&dashboard).len() >= 9, "{name}");
    }
    Ok(())
}

#[test]
fn every_panel_says_what_it_shows() -> Result<()> {
    for name in NAMES {
        let dashboard = dashboard(name)?;
        for panel in panels(&dashboard) {
            let (title, kind) = (text(panel, "title"), text(panel, "type"));
            let place = format!("{name}, {title}");
            assert!(!title.is_empty() && KINDS.contains(&kind), "{place}: {kind}");
            if kind == "text" {
                assert!(text(&panel["options"], "content").len() > 100, "{place}");
                continue;
            }
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
fn panels_stand_beside_each_other() -> Result<()> {
    for name in NAMES {
        let dashboard = dashboard(name)?;
        let mut taken: BTreeMap<(u64, u64), &str> = BTreeMap::new();
        for panel in list(&dashboard, "panels") {
            let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap_or(u64::MAX));
            assert!(w > 0 && h > 0 && x.saturating_add(w) <= 24, "{name}: {}", panel["gridPos"]);
            for place in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
                let other = taken.insert(place, text(panel, "title"));
                assert_eq!(other, None, "{name}: {} is on the same place", panel["title"]);
            }
        }
    }
    Ok(())
}

/// A query that names a variable which nobody can choose finds nothing in Grafana, and an error in no log.
#[test]
fn every_variable_of_a_query_can_be_chosen() -> Result<()> {
    let (mut chosen, mut used) = (BTreeSet::new(), BTreeSet::new());
    for name in NAMES {
        let dashboard = dashboard(name)?;
        let known: BTreeSet<String> =
            list(&dashboard["templating"], "list").map(|variable| text(variable, "name").to_owned()).collect();
        let targets = panels(&dashboard).into_iter().flat_map(|panel| list(panel, "targets"));
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
fn every_link_to_a_runbook_leads_to_it() -> Result<()> {
    let runbooks = dashboard("runbooks")?;
    let mut linked = 0;
    for name in NAMES {
        let dashboard = dashboard(name)?;
        for link in panels(&dashboard).into_iter().flat_map(|panel| list(panel, "links")) {
            let id =
                text(link, "url").strip_prefix("/d/dwell-runbooks?viewPanel=").and_then(|id| id.parse::<u64>().ok());
            let target = list(&runbooks, "panels").find(|panel| panel["id"].as_u64() == id);
            let title = target.map(|panel| format!("Runbook of {}", text(panel, "title")));
            assert_eq!(title.as_deref(), link["title"].as_str(), "{name}: {link}");
            linked += 1;
        }
    }
    assert!(linked > 20, "{linked}");
    // A link of the page leads nowhere from Grafana.
    for panel in panels(&runbooks) {
        assert!(!text(&panel["options"], "content").contains("]("), "{}", panel["title"]);
    }
    Ok(())
}
