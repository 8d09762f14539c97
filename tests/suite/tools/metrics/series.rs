//! Which series there are from the start, and how many there can be.

use std::collections::BTreeSet;

use dwell::model::error::{Error, Result};
use dwell::model::message::{GroupName, TopicName};
use dwell::telemetry::metrics::{GROUP_LABELS_MAX, Metrics, TOPIC_LABELS_MAX};
use serde_json::json;

use super::page::Page;
use crate::support::{Process, RedisServer, eventually, scratch};

/// What has no series on any store without more being done; docs/how-to/monitor.md says so.
const CONFIGURED: [&str; 6] = [
    "dwell_certificate_end_timestamp_seconds",
    "dwell_webhook_requests_total",
    "dwell_webhook_request_seconds",
    "dwell_group_keys",
    "dwell_group_paused_keys",
    "dwell_group_busiest_key_ratio",
];

/// What is there once somebody has looked for a moment.
const OF_THE_STATS: [&str; 7] = [
    "dwell_messages",
    "dwell_messages_due",
    "dwell_oldest_ready_age_seconds",
    "dwell_group_paused",
    "dwell_group_closed",
    "dwell_stats_collection_seconds",
    "dwell_stats_age_seconds",
];

/// What only Redis has.
fn is_of_redis(name: &str) -> bool {
    let of_nodes = ["dwell_redis_evicted_keys_total", "dwell_redis_may_evict"].contains(&name);
    let of_calls = ["dwell_redis_call_seconds", "dwell_redis_errors_total"].contains(&name);
    name.starts_with("dwell_wal_") || name.starts_with("dwell_redis_memory_") || of_nodes || of_calls
}

async fn look(dwell: &Process) -> Result<Page> {
    let text = dwell.client.text("/metrics").await.ok_or_else(|| Error::unavailable("no page of metrics"))?;
    Ok(Page::of(&text))
}

/// The families that have no series once a topic is declared and the stats are collected.
async fn missing(settings: &[(&str, &str)]) -> Result<BTreeSet<&'static str>> {
    let dir = scratch()?;
    let dwell = Process::serve(dir.path(), settings).await?;
    let declared = dwell.client.put("/v1/topics/orders", &json!({})).await;
    assert_eq!(declared.map(|(status, _)| status), Some(201));
    let page = eventually("the stats are collected", async || {
        Ok(Some(look(&dwell).await?).filter(|page| page.value("dwell_stats_collector") == Some(1.0)))
    })
    .await?;
    let there = page.families();
    let metrics = Metrics::new()?;
    let families: BTreeSet<&'static str> = metrics.families().iter().map(|family| family.name).collect();
    for (series, _) in page.all("dwell_settled_total").chain(page.all("dwell_pushes_total")) {
        assert_eq!(page.value(series), Some(0.0), "{series}");
    }
    assert_eq!(page.all("dwell_pushes_total").count(), 7);
    assert_eq!(page.all("dwell_settled_total").count(), 8);
    let unlisted: Vec<_> = there.iter().filter(|name| !families.contains(base(name))).collect();
    assert!(unlisted.is_empty(), "{unlisted:?}");
    Ok(families.into_iter().filter(|name| !there.contains(name)).collect())
}

fn base(name: &str) -> &str {
    ["_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
}

#[tokio::test]
async fn every_family_has_series_from_the_start_on_the_embedded_store() -> Result<()> {
    let missing = missing(&[]).await?;
    let metrics = Metrics::new()?;
    let of_redis = metrics.families().iter().map(|family| family.name).filter(|name| is_of_redis(name));
    assert_eq!(missing, of_redis.chain(CONFIGURED).collect());
    Ok(())
}

#[tokio::test]
async fn every_family_has_series_from_the_start_on_redis() -> Result<()> {
    let redis = RedisServer::start().await?;
    assert_eq!(missing(&[("REDIS_URL", &redis.url())]).await?, CONFIGURED.into());
    Ok(())
}

#[tokio::test]
async fn every_outcome_series_exists_from_the_start() -> Result<()> {
    let (redis, dir) = (RedisServer::start().await?, scratch()?);
    let dwell = Process::serve(dir.path(), &[("REDIS_URL", &redis.url())]).await?;
    let page = look(&dwell).await?;
    for verb in ["push", "settle", "claim_stats", "stats", "command"] {
        assert!(page.value(&format!("dwell_redis_call_seconds_count{{verb=\"{verb}\"}}")).is_some(), "{verb}");
    }
    for kind in dwell::model::error::Kind::ALL {
        let series = format!("dwell_redis_errors_total{{kind=\"{}\"}}", kind.name());
        assert_eq!(page.value(&series), Some(0.0), "{series}");
    }
    for log in ["wal", "journal"] {
        assert_eq!(page.value(&format!("dwell_wal_replayed_total{{log=\"{log}\"}}")), Some(0.0));
    }
    assert_eq!(page.value("dwell_wal_limit_bytes{log=\"wal\"}"), Some(1_073_741_824.0));
    assert_eq!(page.value("dwell_wal_limit_bytes{log=\"journal\"}"), Some(0.0));
    let document = dwell::api::http::openapi();
    let paths = document["paths"].as_object().ok_or_else(|| Error::bug("no paths"))?;
    assert!(paths.len() > 20);
    for route in paths.keys() {
        for code in ["500", "503", "504"] {
            let series = format!("dwell_http_requests_total{{code=\"{code}\",route=\"{route}\"}}");
            assert_eq!(page.value(&series), Some(0.0), "{series}");
        }
        assert!(page.value(&format!("dwell_http_request_seconds_count{{route=\"{route}\"}}")).is_some(), "{route}");
    }
    let push = "dwell_http_requests_total{code=\"201\",route=\"/v1/topics/{topic}/messages\"}";
    assert_eq!(page.value(push), Some(0.0));
    let process = ["process_cpu_seconds_total", "process_open_fds", "process_threads", "process_start_time_seconds"];
    for name in process.into_iter().chain(["process_resident_memory_bytes", "dwell_data_dir_free_bytes"]) {
        assert!(page.value(name).is_some_and(|value| value > 0.0), "{name}: {:?}", page.value(name));
    }
    Ok(())
}

/// An alert is on pushes that fail.
#[tokio::test]
async fn push_refused_by_request_is_not_a_failure() -> Result<()> {
    let dir = scratch()?;
    let dwell = Process::serve(dir.path(), &[]).await?;
    for expected in [201, 409, 409] {
        let push =
            dwell.client.post("/v1/topics/orders/messages?id=a&delay=1h&conflict=reject&raw=true", &json!("x")).await;
        assert_eq!(push.map(|(status, _)| status), Some(expected));
    }
    let page = look(&dwell).await?;
    let pushed: Vec<_> = page.all("dwell_pushes_total").filter(|(_, count)| *count > 0.0).collect();
    assert_eq!(pushed, [("dwell_pushes_total{outcome=\"stored\",topic=\"orders\"}", 1.0)]);
    Ok(())
}

/// A million names make no more series than some hundred do.
#[test]
fn a_million_topics_do_not_grow_the_series() -> Result<()> {
    let (metrics, group) = (Metrics::new()?, GroupName::standard());
    let feed = |names: std::ops::Range<usize>| -> Result<Page> {
        for n in names {
            let topic = TopicName::new(format!("t{n}"))?;
            metrics.topic(&topic).stored.inc();
            metrics.group(&topic, &group).first.inc();
        }
        Ok(Page::of(&metrics.text()?))
    };
    let some = feed(0..TOPIC_LABELS_MAX + 1)?.len();
    let page = feed(TOPIC_LABELS_MAX + 1..1_000_000)?;
    assert_eq!(page.len(), some);
    let stored: f64 = page.all("dwell_pushes_total").map(|(_, value)| value).sum();
    let others = page.value("dwell_pushes_total{outcome=\"stored\",topic=\"other\"}");
    assert_eq!((stored, others), (1_000_000.0, Some((1_000_000 - TOPIC_LABELS_MAX) as f64)));
    assert_eq!(page.all("dwell_deliveries_total").map(|(_, value)| value).sum::<f64>(), 1_000_000.0);
    Ok(())
}

/// Topics times groups is a product, and has a limit of its own.
#[test]
fn many_groups_do_not_grow_the_series() -> Result<()> {
    let metrics = Metrics::new()?;
    for topic in 0..TOPIC_LABELS_MAX {
        for group in 0..TOPIC_LABELS_MAX {
            metrics.group(&TopicName::new(format!("t{topic}"))?, &GroupName::new(format!("g{group}"))?).first.inc();
        }
    }
    let page = Page::of(&metrics.text()?);
    let firsts: Vec<f64> = page
        .all("dwell_deliveries_total")
        .filter(|(series, _)| series.contains("first"))
        .map(|(_, value)| value)
        .collect();
    // The first two topics have all of their groups, the others share one each.
    assert_eq!(firsts.len(), GROUP_LABELS_MAX + TOPIC_LABELS_MAX - GROUP_LABELS_MAX / TOPIC_LABELS_MAX);
    assert_eq!(firsts.iter().sum::<f64>(), (TOPIC_LABELS_MAX * TOPIC_LABELS_MAX) as f64);
    Ok(())
}

/// The same over HTTP: what a client can name makes no series past the limits, with topics that are made by a push and
/// with those that cannot be.
#[tokio::test]
async fn names_in_requests_do_not_grow_the_series() -> Result<()> {
    let dir = scratch()?;
    // It counts as often as a lease runs.
    let dwell = Process::serve(dir.path(), &[("LEASE_TTL", "1s")]).await?;
    let push = async |from: usize, to: usize| -> Result<Page> {
        for n in from..to {
            let one = dwell.client.post(&format!("/v1/topics/t{n}/messages?raw=true"), &json!("x")).await;
            assert_eq!(one.map(|(status, _)| status), Some(201));
            let _ = dwell.client.get(&format!("/v1/topics/unknown{n}")).await;
            let _ = dwell.client.get(&format!("/nothing/{n}")).await;
            let _ = dwell.client.get(&format!("/v1/topics/t{n}/groups/g{n}")).await;
        }
        look(&dwell).await
    };
    let of_requests = |page: &Page| page.len() - OF_THE_STATS.iter().map(|name| page.all(name).count()).sum::<usize>();
    let some = push(0, TOPIC_LABELS_MAX + 5).await?;
    let more = push(TOPIC_LABELS_MAX + 5, TOPIC_LABELS_MAX + 305).await?;
    assert_eq!(of_requests(&more), of_requests(&some));
    let ready = |page: &Page, labels: &str| page.value(&format!("dwell_messages{{{labels}}}"));
    let stats = eventually("the collector counts all of them", async || {
        let others = "group=\"other\",state=\"ready\",topic=\"other\"";
        Ok(Some(look(&dwell).await?).filter(|page| ready(page, others) == Some(305.0)))
    })
    .await?;
    assert_eq!(stats.all("dwell_messages").count(), 6 * (TOPIC_LABELS_MAX + 1), "six states");
    assert_eq!(ready(&stats, "group=\"default\",state=\"ready\",topic=\"t0\""), Some(1.0));
    Ok(())
}

/// A hundred topics make a page of some size, whether they have one partition each or sixteen.
#[tokio::test]
async fn partitions_are_not_a_label() -> Result<()> {
    let mut lengths = Vec::new();
    for partitions in [1, 16] {
        let dir = scratch()?;
        let dwell = Process::serve(dir.path(), &[]).await?;
        for n in 0..100 {
            let topic = format!("/v1/topics/t{n}");
            let declared = dwell.client.put(&topic, &json!({"partitions": partitions})).await;
            assert_eq!(declared.map(|(status, _)| status), Some(201));
        }
        let page = eventually("the stats are collected", async || {
            Ok(Some(look(&dwell).await?).filter(|page| page.value("dwell_stats_collector") == Some(1.0)))
        })
        .await?;
        lengths.push(page.len());
    }
    assert_eq!(lengths[0], lengths[1]);
    // A topic with its group, and what there is without any.
    assert!(lengths[0] < 100 * 100 + 2_000, "{lengths:?}");
    Ok(())
}
