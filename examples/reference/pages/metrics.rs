//! The metrics, from their registry.

use dwell::model::error::Result;
use dwell::telemetry::metrics::Metrics;

use super::table;

const HEAD: &str = "\
# Metrics

This page lists every metric. `GET /metrics` serves them in the text format of Prometheus. A scrape makes no calls to the store. A broker has
separate series for 200 of the topics that it uses, with 400 groups. All others share the label `other`, so sums are right. If a topic is
deleted, or not used for 10 minutes, another topic gets its place.
";

/// The chapters: a title and what the names in it begin with. The last one takes the rest.
const CHAPTERS: [(&str, &str); 6] = [
    ("Redis", "dwell_redis_"),
    ("Write-ahead log and journal", "dwell_wal_"),
    ("HTTP", "dwell_http_"),
    ("Webhooks", "dwell_webhook_"),
    ("Process", "process_"),
    ("Messages and brokers", ""),
];

pub(super) fn page() -> Result<String> {
    let metrics = Metrics::new()?;
    let families = metrics.families();
    let mut text = HEAD.to_owned();
    for (n, (title, _)) in CHAPTERS.iter().enumerate().rev().take(1).chain(CHAPTERS.iter().enumerate().take(5)) {
        let mine = |name: &str| CHAPTERS.iter().position(|(_, begin)| name.starts_with(begin)) == Some(n);
        let rows: Vec<_> = families
            .iter()
            .filter(|family| mine(family.name))
            .map(|family| {
                let labels = family.labels.join(", ");
                [format!("`{}`", family.name), family.kind.to_string(), labels, family.help.to_string()]
            })
            .collect();
        text.push_str(&format!("\n## {title}\n\n{}", table(["metric", "type", "labels", "meaning"], &rows)));
    }
    Ok(text)
}
