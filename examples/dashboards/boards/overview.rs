//! Is it healthy? Rates, errors, lateness, what waits, what is dead.

use super::dashboard::{Dashboard, Row};
use super::panel::{Panel, Unit};
use super::query::{Of, chosen, over, quantile, rate, store_stats, sum};
use super::{BURN_RATES, FAILED_PART, LATE_PART, ON_TIME_SECONDS, TARGET_SECONDS};

/// One of the recorded parts of deliveries that were late, for the topics and groups that are chosen.
fn late(window: &str) -> String {
    format!(r#"group:dwell_late:ratio_rate{window}{{job=~"$job",topic=~"$topic",group=~"$group"}}"#)
}

/// The same of pushes that failed, for the brokers that are chosen.
fn failed(window: &str) -> String {
    format!(r#"instance:dwell_pushes_failed:ratio_rate{window}{{job=~"$job",instance=~"$instance"}}"#)
}

/// The part of the deliveries of an hour that were on time, in the group that has it worst. What is due and was not delivered
/// counts as late.
fn on_time() -> String {
    let by_group =
        |metric: &str| over("sum", "job, topic, group", &format!("increase({}[1h])", chosen(metric, Of::Group)));
    let on_time = by_group(&format!(r#"dwell_lateness_asked_seconds_bucket{{le="{ON_TIME_SECONDS}"}}"#));
    let all = by_group("dwell_lateness_asked_seconds_count");
    let waiting = store_stats("max", "job, topic, group", r#"dwell_messages{state="ready"}"#, "state");
    let age = store_stats("max", "job, topic, group", "dwell_oldest_ready_age_seconds", "");
    let together = "on (job, topic, group)";
    format!("min({on_time} / {together} ({all} + {together} {waiting} * {together} ({age} > bool 1)))")
}

/// Brokers that Prometheus knew at any time of the last hour and does not reach.
fn missing() -> String {
    let up = chosen("up", Of::Process);
    format!("max_over_time(count({up})[1h:5s]) - sum({up})")
}

pub(super) fn board() -> Dashboard {
    Dashboard {
        name: "overview",
        title: "dwell: overview",
        description: "Whether dwell is healthy: rates, errors, lateness, what waits and what is dead.",
        rows: vec![
            Row { title: "Now", panels: now() },
            Row { title: "Promises", panels: promises() },
            Row { title: "Brokers side by side", panels: brokers() },
            Row { title: "Rates and errors", panels: rates() },
            Row { title: "Lateness", panels: lateness() },
            Row { title: "What waits, and what is dead", panels: waiting() },
        ],
    }
}

/// What a store gauge shows while no broker collects stats.
const UNCOUNTED: &str = "not counted";

fn now() -> Vec<Panel> {
    let free = format!(
        "({} - {})",
        over("max", "instance, log", &chosen(r#"dwell_wal_limit_bytes{log="wal"}"#, Of::Process)),
        over("max", "instance, log", &chosen(r#"dwell_wal_bytes{log="wal"}"#, Of::Process)),
    );
    let growth = format!("deriv({}[10m])", chosen(r#"dwell_wal_bytes{log="wal"}"#, Of::Process));
    let full_in = format!("min({free} / ({} > 0))", over("max", "instance, log", &growth));
    vec![
        Panel::stat("Brokers", "Brokers that Prometheus reaches.", Unit::Count)
            .query(sum("", "up", Of::Process), "")
            .watched_by("DwellDown")
            .wide(3),
        Panel::stat(
            "Brokers missing",
            "Brokers that were there within the last hour and are not reached now. After the fleet was made smaller, for an hour.",
            Unit::Count,
        )
        .query(missing(), "")
        .from(1.0, "red")
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
            "Of the last hour, in the group that has it worst: within 100 ms of a consumer's asking. What is due and not delivered counts as late.",
            Unit::Part,
        )
        .query(on_time(), "")
        .or_else(UNCOUNTED)
        .most(1.0)
        .watched_by("DwellLate")
        .wide(3),
        Panel::stat("Ready", "Messages that are due and wait for a consumer.", Unit::Messages)
            .query(store_stats("sum", "", r#"dwell_messages{state="ready"}"#, "state"), "")
            .or_else(UNCOUNTED)
            .wide(3),
        Panel::stat("Oldest ready", "How long the oldest of them has been due.", Unit::Seconds)
            .query(store_stats("max", "", "dwell_oldest_ready_age_seconds", ""), "")
            .from(60.0, "orange")
            .from(300.0, "red")
            .watched_by("DwellBacklogGrows")
            .or_else(UNCOUNTED)
            .wide(3),
        Panel::stat("Dead", "Messages that nobody will get unless somebody redrives them.", Unit::Messages)
            .query(store_stats("sum", "", r#"dwell_messages{state="dead"}"#, "state"), "")
            .from(1.0, "orange")
            .watched_by("DwellDeadLetters")
            .or_else(UNCOUNTED)
            .wide(3),
        Panel::stat("Due within an hour", "Messages that become due in the next hour.", Unit::Messages)
            .query(store_stats("sum", "", r#"dwell_messages_due{within="1h"}"#, "within"), "")
            .or_else(UNCOUNTED)
            .wide(3),
        Panel::stat("Alerts", "Alerts of dwell that fire.", Unit::Count)
            .query(r#"count(ALERTS{alertname=~"Dwell.+",alertstate="firing"}) or vector(0)"#.to_owned(), "")
            .from(1.0, "red")
            .wide(3),
        Panel::stat("Paused groups", "Groups whose messages wait because somebody paused them.", Unit::Count)
            .query(store_stats("sum", "", "dwell_group_paused", ""), "")
            .from(1.0, "orange")
            .or_else(UNCOUNTED)
            .wide(5),
        Panel::stat("Waiting consumers", "Long polls, streams and webhooks that wait for a message now.", Unit::Count)
            .query(sum("", "dwell_group_demand", Of::Group), "")
            .wide(5),
        Panel::stat(
            "Restoring",
            "Brokers that give back what Redis lost. Until all have, no message is reserved.",
            Unit::Count,
        )
        .query(sum("", "dwell_restoring", Of::Process), "")
        .word(0, "no", "green")
        .from(1.0, "orange")
        .watched_by("DwellRedisLosses")
        .wide(5),
        Panel::stat(
            "Write-ahead log full in",
            "When the first broker will refuse pushes, if Redis stays away and its log grows as in the last 10 minutes.",
            Unit::Seconds,
        )
        .query(full_in, "")
        .from(0.0, "red")
        .from(3_600.0, "orange")
        .from(86_400.0, "green")
        .or_else("it does not grow")
        .watched_by("DwellWalFilling")
        .wide(6),
    ]
}

fn promises() -> Vec<Panel> {
    let burnt = |panel: Panel, ratio: fn(&str) -> String, budget: f64, of: &str| {
        let windows = ["5m", "30m", "1h", "6h", "3d"].iter();
        let panel = windows.fold(panel, |panel, window| {
            panel.query(format!("max({}) / {budget}", ratio(window)), &format!("{of}, {window}"))
        });
        panel.from(BURN_RATES[2].0, "orange").from(BURN_RATES[0].0, "red")
    };
    let by_topic = quantile(0.99, "topic", "dwell_lateness_asked_seconds", Of::Group);
    vec![
        burnt(
            Panel::lines(
                "Lateness, burn rate",
                "How fast the worst group spends its budget of late deliveries: at 1 all of it in 30 days. An alert fires when a long and a short window are above 14.4, 6 or 1.",
                Unit::Count,
            ),
            late,
            LATE_PART,
            "late",
        )
        .watched_by("DwellLate"),
        burnt(
            Panel::lines(
                "Failed pushes, burn rate",
                "How fast the worst broker spends its budget of failed pushes, in the same windows.",
                Unit::Count,
            ),
            failed,
            FAILED_PART,
            "failed",
        )
        .watched_by("DwellPushesFail"),
        Panel::bars("Latest topics", "The 10 topics whose deliveries come the latest after a consumer has asked, 99 of 100 of them.", Unit::Seconds)
            .query(format!("topk(10, {by_topic} >= 0)"), "{{topic}}")
            .from(ON_TIME_SECONDS, "red")
            .watched_by("DwellLate"),
    ]
}

fn brokers() -> Vec<Panel> {
    let largest = |metric| over("max", "instance", &chosen(metric, Of::Process));
    vec![
        Panel::table("Brokers", "What each broker does now, one below the other.", Unit::Count)
            .query(over("min", "instance", &chosen("dwell_redis_up", Of::Process)), "Redis up")
            .query(sum("instance", "dwell_leases_owned", Of::Group), "Partitions")
            .query(sum("instance", "dwell_group_demand", Of::Group), "Waiting consumers")
            .query(rate("instance", "dwell_pushes_total", Of::Topic), "Pushes/s")
            .query(rate("instance", "dwell_deliveries_total", Of::Group), "Deliveries/s")
            .query(rate("instance", r#"dwell_http_requests_total{code=~"5.."}"#, Of::Process), "Errors/s")
            .query(sum("instance", "dwell_wal_records", Of::Process), "Records on disk")
            .query(largest("dwell_restoring"), "Restoring")
            .query(rate("instance", "process_cpu_seconds_total", Of::Process), "Cores")
            .query(format!("{} / 2^20", largest("process_resident_memory_bytes")), "MiB")
            .query(format!("(time() - {}) / 3600", largest("process_start_time_seconds")), "Hours up")
            .wide(24),
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
        Panel::lines("Lateness, asked", "dwell's part: due, and a consumer waited. Half and 99 of 100 deliveries are faster than this; 99 of 100 should be within 10 ms, and are promised within 100 ms.", Unit::Seconds)
            .query(quantile(0.5, "", "dwell_lateness_asked_seconds", Of::Group), "p50")
            .query(quantile(0.99, "", "dwell_lateness_asked_seconds", Of::Group), "p99")
            .from(TARGET_SECONDS, "orange")
            .from(ON_TIME_SECONDS, "red")
            .watched_by("DwellLate"),
        Panel::lines("Lateness, unasked", "The consumers' part: due, and nobody asked for it. A consumer that polls every 2 seconds has up to 2 seconds.", Unit::Seconds)
            .query(quantile(0.5, "", "dwell_lateness_unasked_seconds", Of::Group), "p50")
            .query(quantile(0.99, "", "dwell_lateness_unasked_seconds", Of::Group), "p99")
            .from(60.0, "orange")
            .watched_by("DwellUnasked"),
        Panel::lines("Late deliveries", "The part of the deliveries later than 100 ms though a consumer waited, by group. 1 in 100 is the budget.", Unit::Part)
            .query(late("5m"), "{{topic}} {{group}}, 5 m")
            .query(late("1h"), "{{topic}} {{group}}, 1 h")
            .from(LATE_PART, "orange")
            .from(BURN_RATES[0].0 * LATE_PART, "red")
            .watched_by("DwellLate"),
        Panel::heatmap("Lateness of all deliveries", "Deliveries a second, by how late they were in all.", Unit::Seconds)
            .query(buckets, "{{le}}"),
    ]
}

fn waiting() -> Vec<Panel> {
    let due = |within| store_stats("sum", "", &format!(r#"dwell_messages_due{{within="{within}"}}"#), "within");
    let between = |from, to| format!("{} - {}", due(to), due(from));
    vec![
        Panel::areas("Messages", "All messages, by state.", Unit::Messages)
            .query(store_stats("sum", "state", "dwell_messages", "state"), "{{state}}")
            .watched_by("DwellNoStatsCollector"),
        Panel::lines(
            "Oldest ready",
            "How long the oldest message that is due has been waiting, by group.",
            Unit::Seconds,
        )
        .query(store_stats("max", "topic, group", "dwell_oldest_ready_age_seconds", ""), "{{topic}} {{group}}")
        .from(300.0, "red")
        .watched_by("DwellBacklogGrows"),
        Panel::bars(
            "Due forecast",
            "Messages that become due from now on. Each is in one span: those of later spans are not in it.",
            Unit::Messages,
        )
        .query(due("1m"), "within 1 minute")
        .query(between("1m", "10m"), "1 to 10 minutes")
        .query(between("10m", "1h"), "10 to 60 minutes")
        .query(between("1h", "1d"), "1 to 24 hours"),
        Panel::lines("Dead", "Dead letters, by group.", Unit::Messages)
            .query(store_stats("sum", "topic, group", r#"dwell_messages{state="dead"}"#, "state"), "{{topic}} {{group}}")
            .watched_by("DwellDeadLetters"),
        Panel::lines(
            "Dead letters dropped and forwarded",
            "Dead letters that the topic's bounds of age or count removed for good, and those moved to a dead-letter topic.",
            Unit::MessagesPerSecond,
        )
        .query(rate("bound", "dwell_dead_dropped_total", Of::Group), "{{bound}}")
        .query(rate("topic", "dwell_dead_forwarded_total", Of::Group), "forwarded: {{topic}}"),
        Panel::lines(
            "Purged",
            "Messages that operators deleted with a purge of a group, or of its dead letters. A client of SQS purges with PurgeQueue.",
            Unit::MessagesPerSecond,
        )
        .query(rate("topic, kind", "dwell_purged_total", Of::Group), "{{topic}} {{kind}}"),
        Panel::lines(
            "Cron jobs",
            "Occurrences of cron jobs: pushed by a broker, or passed over.",
            Unit::MessagesPerSecond,
        )
        .query(rate("outcome", "dwell_cron_occurrences_total", Of::Topic), "{{outcome}}"),
        Panel::lines("Failed cron jobs", "Cron jobs that a broker cannot read or compute. They fire no more.", Unit::Count)
            .query(over("max", "", &chosen("dwell_cron_jobs_failed", Of::Fleet)), "failed"),
    ]
}
