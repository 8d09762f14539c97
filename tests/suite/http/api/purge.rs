//! Purging dead letters: only with a selector, and counted first if that is asked for.

use serde_json::json;

use super::served::{Outcome, Served};

const DEAD: &str = "/v1/topics/mails/groups/default/dead-letters";

/// A topic with so many dead letters.
async fn with_dead(count: usize) -> Outcome<Served> {
    let dwell = Served::start().await?;
    for n in 0..count {
        dwell.send(dwell.request(&format!("POST /v1/topics/mails/messages?id=m{n}"))?.body("x")).await?;
    }
    let mut left = count;
    while left > 0 {
        let taken = dwell.reserve("mails").await?;
        left -= taken.len();
        let bury = |delivery: &serde_json::Value| json!({"receipt": delivery["receipt"], "bury": true});
        let receipts: Vec<_> = taken.iter().map(bury).collect();
        dwell.tell("POST /v1/topics/mails/groups/default/nack", json!({"receipts": receipts})).await?;
    }
    Ok(dwell)
}

#[tokio::test]
async fn purge_without_selector_is_refused() -> Outcome {
    let dwell = with_dead(3).await?;
    let purge = format!("POST {DEAD}/purge");
    let answer = dwell.ask(&purge).await?;
    assert_eq!(answer.status, 422, "a body that a proxy dropped purges nothing: {answer:?}");
    for body in [json!({}), json!({"all": false}), json!({"limit": 10}), json!({"rate": 5}), json!({"dry_run": true})] {
        let answer = dwell.send(dwell.request(&purge)?.json(&body)).await?;
        assert_eq!(answer.status, 422, "{body}: {answer:?}");
        assert!(answer.body["detail"].as_str().is_some_and(|detail| detail.contains("{\"all\": true}")), "{answer:?}");
    }
    for body in [
        json!({"all": true, "ids": ["m1"]}),
        json!({"all": true, "reason": "buried"}),
        json!({"dry_run": true, "ids": ["m1"]}),
    ] {
        assert_eq!(dwell.send(dwell.request(&purge)?.json(&body)).await?.status, 422, "{body}");
    }
    assert_eq!(dwell.ask(&format!("DELETE {DEAD}")).await?.status, 405);
    assert_eq!(dwell.counts("mails").await?, [0, 0, 0, 3]);
    Ok(())
}

#[tokio::test]
async fn purged_messages_are_counted() -> Outcome {
    let dwell = with_dead(3).await?;
    for n in 0..2 {
        dwell.send(dwell.request(&format!("POST /v1/topics/mails/messages?id=w{n}&delay=1h"))?.body("x")).await?;
    }
    dwell.tell(&format!("POST {DEAD}/purge"), json!({"ids": ["m0"]})).await?;
    let group = "POST /v1/topics/mails/groups/default/purge";
    assert_eq!(dwell.tell(group, json!({"all": true, "dead_letters": true})).await?, json!({"purged": 4}));
    let metrics = dwell.driven(dwell.request("GET /metrics")?.send()).await??.text().await?;
    for (kind, count) in [("message", 2), ("dead_letter", 3)] {
        let series = format!("dwell_purged_total{{group=\"default\",kind=\"{kind}\",topic=\"mails\"}} {count}");
        assert!(metrics.contains(&series), "{series}: {metrics}");
    }
    Ok(())
}

#[tokio::test]
async fn dry_run_counts_and_purge_deletes() -> Outcome {
    let dwell = with_dead(3).await?;
    let purge = format!("POST {DEAD}/purge");
    for selector in [json!({"all": true}), json!({"reason": "buried"}), json!({"younger_than": "1h"})] {
        let mut body = selector.clone();
        body["dry_run"] = true.into();
        assert_eq!(dwell.tell(&purge, body.clone()).await?, json!({"purged": 0, "matching": 3}), "{selector}");
        let redriven = dwell.tell(&format!("POST {DEAD}/redrive"), body).await?;
        assert_eq!(redriven, json!({"redriven": 0, "matching": 3}), "{selector}");
    }
    let none = json!({"older_than": "1h", "dry_run": true});
    assert_eq!(dwell.tell(&purge, none).await?, json!({"purged": 0, "matching": 0}));
    assert_eq!(dwell.counts("mails").await?, [0, 0, 0, 3]);
    assert_eq!(dwell.tell(&purge, json!({"ids": ["m1"]})).await?, json!({"purged": 1}));
    assert_eq!(dwell.tell(&purge, json!({"all": true})).await?, json!({"purged": 2}));
    assert_eq!(dwell.counts("mails").await?, [0, 0, 0, 0]);
    Ok(())
}
