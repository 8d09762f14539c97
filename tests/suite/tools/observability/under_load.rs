//! Two real brokers on a real Redis under load, a real Prometheus that scrapes them: every query of the dashboards and
//! every rule finds something, and the alert fires when Redis is stopped.
//!
//! `make dashboards` prints what each query found.

use axum::Router;
use dwell::model::error::{Error, Result};
use dwell::model::time::Timestamp;
use dwell::platform::clock::Clock;

use super::broker::Broker;
use super::load::Load;
use super::prometheus::{Api, PATIENCE, Prometheus};
use super::queries::{self, ALL, Choice, list, text};
use crate::support::{Application, RedisServer, eventually_within, scratch};

/// Rounds of the load, whatever Prometheus has seen before.
const ROUNDS_MIN: usize = 3;

/// Rounds of the load until Prometheus has to have seen it. On a machine that is busy with other tests a round takes half
/// a second, and a scrape comes each second.
const ROUNDS_MAX: usize = 200;

/// Pushes to each broker while Redis is away.
const BUFFERED: usize = 50;

/// A broker with everything switched on.
fn config(redis: &str, post_to: &str) -> String {
    format!(
        "durability = \"journal\"\n\
         [log]\nlevel = \"warn\"\n\
         [redis]\nurl = \"{redis}\"\ntimeout = \"300ms\"\n\
         [lease]\nttl = \"2s\"\n\
         [group]\nheartbeat = \"200ms\"\n\
         [[webhook]]\ntopic = \"mail\"\ngroup = \"default\"\nurl = \"{post_to}\"\n"
    )
}

#[tokio::test]
async fn every_query_returns_data_and_the_alert_fires() -> Result<()> {
    let (dir, mut redis) = (scratch()?, RedisServer::durable().await?);
    let application = Application::serve(Router::new().fallback(|| async { "" }), 0).await?;
    let config = config(&redis.url(), &application.url());
    let one = Broker::start(&dir.path().join("one"), &config).await?;
    let mut two = Broker::start(&dir.path().join("two"), &config).await?;
    let prometheus = Prometheus::start(dir.path(), &[one.port, two.port]).await?;
    let (api, from) = (prometheus.api(), Clock::System.now());
    api.until(r#"sum(up{job="dwell"})"#, |up| up == 2.0).await?;

    let load = Load { one: &one, two: &two };
    load.prepare().await?;
    play(&load, api).await?;
    // One is killed with deliveries out: the other one takes its partitions over.
    two.restart().await?;
    let load = Load { one: &one, two: &two };
    play(&load, api).await?;

    redis.kill()?;
    load.push_buffered(BUFFERED).await?;
    api.alert("DwellRedisDown", true).await?;
    api.until(r#"sum(dwell_wal_records{log="wal"})"#, |waiting| waiting >= 2.0 * BUFFERED as f64).await?;
    every_panel_answers_in_the_outage(api).await?;
    redis.restart().await?;
    api.alert("DwellRedisDown", false).await?;
    api.until(r#"sum(dwell_wal_records{log="wal"})"#, |waiting| waiting == 0.0).await?;
    play(&load, api).await?;
    // What was buffered came late.
    api.until("max(group:dwell_late:ratio_rate5m)", |late| late > 0.0).await?;

    every_panel_shows_something(api, from, two.port).await?;
    every_choice_is_there(api).await?;
    every_rule_finds_something(api, from).await
}

/// Plays rounds until Prometheus has seen both brokers hand out messages, posts of the webhook, and the store stats.
async fn play(load: &Load<'_>, api: &Api) -> Result<()> {
    const SEEN: &str = r#"count(sum by (instance) (rate(dwell_deliveries_total{topic="orders"}[4s])) > 0)
        and sum(rate(dwell_webhook_requests_total[4s])) > 0 and sum(dwell_messages{topic="orders"}) > 0"#;
    for round in 0..ROUNDS_MAX {
        load.round().await?;
        if round >= ROUNDS_MIN && api.value(SEEN).await? == Some(2.0) {
            return Ok(());
        }
    }
    Err(Error::unavailable(format!("{ROUNDS_MAX} rounds, and Prometheus has not seen this: {SEEN}")))
}

/// Prints what each query found. With a choice at the top of the dashboard each still finds something.
async fn every_panel_shows_something(api: &Api, from: Timestamp, port: u16) -> Result<()> {
    let chosen = Choice { topic: "(orders|mail)", group: "default", instance: &format!("127.0.0.1:{port}") };
    println!("\n| dashboard | panel | query | series | largest value |\n|---|---|---|---|---|");
    let mut empty = Vec::new();
    let queries = queries::all()?;
    for query in &queries {
        let expression = ALL.fill(&query.expression);
        let series = api.range(&expression, from).await?;
        let most = series.iter().flat_map(|series| &series.samples).fold(f64::NAN, |a, b| a.max(*b));
        let shown = expression.replace('|', "\\|");
        println!("| {} | {} | `{shown}` | {} | {most:.4} |", query.dashboard, query.panel, series.len());
        let narrow = api.range(&chosen.fill(&query.expression), from).await?;
        if series.is_empty() || narrow.is_empty() {
            let found = format!("{} series of all, {} of those chosen", series.len(), narrow.len());
            empty.push(format!("{}, {}: {expression}: {found}", query.dashboard, query.panel));
        }
    }
    assert!(queries.len() > 60, "{}", queries.len());
    assert!(empty.is_empty(), "{empty:#?}");
    Ok(())
}

/// What nothing is known of while Redis is away: the counts of its messages, and the times of deliveries, of which there
/// are none.
const UNKNOWN: [&str; 14] = [
    "dwell_messages",
    "dwell_oldest_ready_age_seconds",
    "dwell_group_paused",
    "dwell_group_closed",
    "dwell_group_keys",
    "dwell_group_paused_keys",
    "dwell_group_busiest_key_ratio",
    "dwell_stats_collection_seconds",
    "dwell_stats_age_seconds",
    "dwell_lateness_seconds",
    "dwell_lateness_asked_seconds",
    "dwell_lateness_unasked_seconds",
    "dwell_handling_seconds",
    "dwell_webhook_request_seconds",
];

/// Every other query still finds something, and so do the lists at the top.
async fn every_panel_answers_in_the_outage(api: &Api) -> Result<()> {
    let mut empty = Vec::new();
    for query in queries::all()? {
        let expression = ALL.fill(&query.expression);
        let data = api.ask("query", &[("query", &expression)]).await?;
        let is_known = !UNKNOWN.iter().any(|metric| expression.contains(metric));
        if is_known && list(&data, "result").next().is_none() {
            empty.push(format!("{}, {}: {expression}", query.dashboard, query.panel));
        }
    }
    for (label, series) in queries::choices()? {
        let found = api.value(&format!("count(count by ({label}) ({}))", ALL.fill(&series))).await?;
        assert!(found.is_some_and(|found| found >= 1.0), "{label}: {series}");
    }
    assert!(empty.is_empty(), "{empty:#?}");
    Ok(())
}

/// What the lists at the top of a dashboard offer.
async fn every_choice_is_there(api: &Api) -> Result<()> {
    for (label, series) in queries::choices()? {
        let data = api.ask(&format!("label/{label}/values"), &[("match[]", &ALL.fill(&series))]).await?;
        let values: Vec<&str> = data.as_array().into_iter().flatten().filter_map(|value| value.as_str()).collect();
        println!("| all | list: {label} | `{series}` | {} | {} |", values.len(), values.join(", "));
        assert!(!values.is_empty(), "{label}: {series}");
    }
    Ok(())
}

/// The brokers here have no certificate.
const NOTHING_TO_COMPARE: [&str; 1] = ["DwellCertificateEnds"];

/// An expression, and what stands behind each `unless` of it.
fn operands(expression: &str) -> Vec<&str> {
    let mut operands = expression.split(" unless ");
    let first = operands.next();
    first
        .into_iter()
        .chain(operands.map(|operand| match operand.strip_prefix("on (") {
            Some(labelled) => labelled.split_once(") ").map_or(labelled, |(_, rest)| rest),
            None => operand,
        }))
        .collect()
}

/// Every rule was evaluated without an error. With its comparisons answering 0 or 1, instead of nothing while all is
/// well, each has something to compare, also behind `unless`.
async fn every_rule_finds_something(api: &Api, from: Timestamp) -> Result<()> {
    let data = api.ask("rules", &[]).await?;
    let rules: Vec<_> = list(&data, "groups").flat_map(|group| list(group, "rules")).collect();
    assert!(rules.len() > 20, "{}", rules.len());
    for rule in rules {
        let name = text(rule, "name");
        if NOTHING_TO_COMPARE.contains(&name) {
            continue;
        }
        assert_eq!((text(rule, "health"), text(rule, "lastError")), ("ok", ""), "{name}");
        let mut expression = text(rule, "query").to_owned();
        for comparison in [">=", "==", ">", "<"] {
            expression = expression.replace(&format!(" {comparison} "), &format!(" {comparison} bool "));
        }
        for operand in operands(&expression) {
            // Series of other rules are there once those were evaluated, which takes its time on a machine that is busy.
            let something = async || Ok(Some(api.range(operand, from).await?).filter(|series| !series.is_empty()));
            let series = eventually_within(PATIENCE, &format!("{name} finds something: {operand}"), something).await?;
            let most = series.iter().flat_map(|series| &series.samples).fold(f64::NAN, |a, b| a.max(*b));
            println!("| rules | {name} | `{}` | {} | {most:.4} |", operand.replace('|', "\\|"), series.len());
        }
    }
    Ok(())
}
