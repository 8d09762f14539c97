//! Is it healthy? Rates, errors, lateness, what waits, what is dead.

use super::dashboard::{Dashboard, Row};
use super::panel::{Panel, Unit};
use super::query::{Of, census, chosen, over, quantile, rate, sum};
use super::{LATE_PART, ON_TIME_SECONDS};

/// One of the recorded parts of deliveries that were late, for the topics and groups that are chosen.
fn late(window: &str) -> String {
    format!(r#"group:dwell_late:ratio_rate{window}{{job=~"$job",topic=~"$topic",group=~"$group"}}"#)
}

pub(super) fn board() -> Dashboard {
    Dashboard {
        name: "overview",
        title: "dwell: overview",
        description: "Whether dwell is healthy: rates, errors, lateness, what waits and what is dead.",
        variables: true,
        rows: vec![
            Row { title: "Now", panels: now() },
            Row { title: "Rates and errors", panels: rates() },
            Row { title: "Lateness", panels: lateness() },
            Row { title: "What waits, and what is dead", panels: waiting() },
        ],
    }
}

fn now() -> Vec<Panel> {
    vec![
        Panel::stat("Brokers", "Brokers that Prometheus reaches.", Unit::Count)
            .query(sum("", "up", Of::Process), "")
            .watched_by("DwellDown")
            .wide(3),
        Panel::stat("Redis", "Whether every broker had an answer from its store last.", Unit::Count)
            .query(over("min", "", &chosen("dwell_redis_up", Of::Process)), "")
            .word(1, "up", "green")
            .word(0, "away", "red")
            .watched_by("DwellRedisDown")
            .wide(3),
        Panel::stat(
            "On time, worst group",
            "Deliveries of the last hour that were on time, in the group that has it worst.",
            Unit::Part,
        )
        .query(format!("1 - max({})", late("1h")), "")
        .most(1.0)
        .watched_by("DwellLate")
        .wide(3),
        Panel::stat("Ready", "Messages that are due and wait for a consumer.", Unit::Messages)
            .query(census("sum", "", r#"dwell_messages{state="ready"}"#, "state"), "")
            .wide(3),
        Panel::stat("Oldest ready", "How long the oldest of them has been due.", Unit::Seconds)
            .query(census("max", "", "dwell_oldest_ready_age_seconds", ""), "")
            .from(60.0, "orange")
            .from(300.0, "red")
            .watched_by("DwellBacklogGrows")
            .wide(3),
        Panel::stat("Dead", "Messages that nobody will get unless somebody redrives them.", Unit::Messages)
            .query(census("sum", "", r#"dwell_messages{state="dead"}"#, "state"), "")
            .from(1.0, "orange")
            .watched_by("DwellDeadLetters")
            .wide(3),
        Panel::stat("Due within an hour", "Messages that become due in the next hour.", Unit::Messages)
            .query(census("sum", "", r#"dwell_messages_due{within="1h"}"#, "within"), "")
            .wide(3),
        Panel::stat("Alerts", "Alerts of dwell that fire.", Unit::Count)
            .query(r#"count(ALERTS{alertname=~"Dwell.+",alertstate="firing"}) or vector(0)"#.to_owned(), "")
            .from(1.0, "red")
            .wide(3),
    ]
}

fn rates() -> Vec<Panel> {
    let errors = r#"dwell_http_requests_total{code=~"[45].."}"#;
    vec![
        Panel::areas("Pushes", "Messages pushed, by what became of them.", Unit::MessagesPerSecond)
            .query(rate("outcome", "dwell_pushes_total", Of::Topic), "{{outcome}}")
            .watched_by("DwellPushesFail"),
        Panel::areas(
            "Deliveries",
            "Messages handed out: the first time, or again after a failure.",
            Unit::MessagesPerSecond,
        )
        .query(rate("kind", "dwell_deliveries_total", Of::Group), "{{kind}}")
        .watched_by("DwellRetryStorm"),
        Panel::areas(
            "Settlements",
            "What consumers did with their deliveries, or the deadline for them.",
            Unit::MessagesPerSecond,
        )
        .query(rate("outcome", "dwell_settled_total", Of::Group), "{{outcome}}")
        .watched_by("DwellTimedOut"),
        Panel::lines("HTTP errors", "Requests answered with 4xx or 5xx, each code a line.", Unit::RequestsPerSecond)
            .query(rate("code", errors, Of::Process), "{{code}}"),
        Panel::lines("HTTP requests", "All requests answered.", Unit::RequestsPerSecond)
            .query(rate("", "dwell_http_requests_total", Of::Process), "requests"),
        Panel::table("Alerts that fire or wait", "Each alert of dwell that fires, or will if it lasts.", Unit::Count)
            .query(r#"ALERTS{alertname=~"Dwell.+"}"#.to_owned(), "")
            .wide(8),
    ]
}

fn lateness() -> Vec<Panel> {
    let buckets = rate("le", "dwell_lateness_seconds_bucket", Of::Group);
    vec![
        Panel::lines("Lateness", "From due to hand-over: half and 99 of 100 deliveries are faster than this. 99 of 100 are promised within 250 ms.", Unit::Seconds)
            .query(quantile(0.5, "", "dwell_lateness_seconds", Of::Group), "p50")
            .query(quantile(0.99, "", "dwell_lateness_seconds", Of::Group), "p99")
            .from(ON_TIME_SECONDS, "red")
            .watched_by("DwellLate"),
        Panel::lines("Late deliveries", "The part of the deliveries later than 250 ms, by group. 1 in 100 is the budget; at 6 in 100 over 6 h, or 14.4 in 100 over 1 h, an alert fires.", Unit::Part)
            .query(late("5m"), "{{topic}} {{group}}, 5 m")
            .query(late("1h"), "{{topic}} {{group}}, 1 h")
            .from(LATE_PART, "orange")
            .from(14.4 * LATE_PART, "red")
            .watched_by("DwellLate"),
        Panel::heatmap("Lateness of all deliveries", "Deliveries a second, by how late they were.", Unit::Seconds)
            .query(buckets, "{{le}}")
            .watched_by("DwellLate"),
    ]
}

fn waiting() -> Vec<Panel> {
    let forecast = Panel::bars(
        "Due forecast",
        "Messages that become due from now on: each span holds the shorter ones.",
        Unit::Messages,
    );
    vec![
        Panel::areas("Messages", "All messages, by state.", Unit::Messages)
            .query(census("sum", "state", "dwell_messages", "state"), "{{state}}")
            .watched_by("DwellNoCensus"),
        Panel::lines(
            "Oldest ready",
            "How long the oldest message that is due has been waiting, by group.",
            Unit::Seconds,
        )
        .query(census("max", "topic, group", "dwell_oldest_ready_age_seconds", ""), "{{topic}} {{group}}")
        .from(300.0, "red")
        .watched_by("DwellBacklogGrows"),
        ["1m", "10m", "1h", "1d"].iter().fold(forecast, |panel, within| {
            let due = format!(r#"dwell_messages_due{{within="{within}"}}"#);
            panel.query(census("sum", "", &due, "within"), within)
        }),
        Panel::lines("Dead", "Dead messages, by group.", Unit::Messages)
            .query(census("sum", "topic, group", r#"dwell_messages{state="dead"}"#, "state"), "{{topic}} {{group}}")
            .watched_by("DwellDeadLetters"),
        Panel::lines(
            "Dead letters dropped and forwarded",
            "Dead letters that the topic's bounds of age or count removed for good, and those moved to a dead-letter topic.",
            Unit::MessagesPerSecond,
        )
        .query(rate("bound", "dwell_dead_dropped_total", Of::Group), "{{bound}}")
        .query(rate("topic", "dwell_dead_forwarded_total", Of::Group), "forwarded: {{topic}}"),
        Panel::lines(
            "Cron jobs",
            "Occurrences of cron jobs: pushed by a broker, or passed over.",
            Unit::MessagesPerSecond,
        )
        .query(rate("outcome", "dwell_cron_occurrences_total", Of::Topic), "{{outcome}}"),
    ]
}
