//! The processes: what they use, whom they answer, and how fast.

use super::WAITING_ROUTES;
use super::dashboard::{Dashboard, Row};
use super::panel::{Panel, Unit};
use super::query::{Of, chosen, over, quantile, rate, sum};

pub(super) fn board() -> Dashboard {
    Dashboard {
        name: "process",
        title: "dwell: process",
        description: "What the brokers use, how fast they respond, the store stats and the webhooks.",
        rows: vec![
            Row { title: "Process", panels: process() },
            Row { title: "HTTP", panels: http() },
            Row { title: "Store stats", panels: store_stats() },
            Row { title: "Webhooks", panels: webhooks() },
        ],
    }
}

fn process() -> Vec<Panel> {
    let uptime = format!("time() - {}", chosen("process_start_time_seconds", Of::Process));
    let of_each = |metric| over("max", "instance", &chosen(metric, Of::Process));
    vec![
        Panel::lines("CPU", "Cores in use, by broker.", Unit::Count)
            .query(rate("instance", "process_cpu_seconds_total", Of::Process), "{{instance}}"),
        Panel::lines("Memory", "Resident memory, by broker.", Unit::Bytes)
            .query(of_each("process_resident_memory_bytes"), "{{instance}}"),
        Panel::lines("Files", "Open files and sockets, and how many there may be.", Unit::Count)
            .query(of_each("process_open_fds"), "{{instance}} open")
            .query(of_each("process_max_fds"), "{{instance}} at most"),
        Panel::lines(
            "Uptime",
            "Since each broker started. A broker that starts again and again begins at 0 each time.",
            Unit::Seconds,
        )
        .query(over("min", "instance", &uptime), "{{instance}}")
        .watched_by("DwellDown"),
        Panel::table(
            "Versions",
            "What runs where. Two versions at a time are normal during an upgrade only.",
            Unit::Count,
        )
        .query(over("max", "instance, version", &chosen("dwell_build_info", Of::Process)), "")
        .wide(16),
    ]
}

fn http() -> Vec<Panel> {
    let not_waiting = format!(r#"dwell_http_request_seconds{{route!~"{WAITING_ROUTES}"}}"#);
    vec![
        Panel::lines("ConnectionOptions", "Open HTTP connections, by broker.", Unit::Count)
            .query(sum("instance", "dwell_http_connections", Of::Process), "{{instance}}"),
        Panel::lines("Requests", "Requests answered, by route.", Unit::RequestsPerSecond)
            .query(rate("route", "dwell_http_requests_total", Of::Process), "{{route}}"),
        Panel::lines(
            "Requests, p99",
            "99 of 100 requests are faster than this, by route; without long polls and streams, which wait on purpose.",
            Unit::Seconds,
        )
        .query(quantile(0.99, "route", &not_waiting, Of::Process), "{{route}}"),
    ]
}

fn store_stats() -> Vec<Panel> {
    let of_each = |metric| over("max", "instance", &chosen(metric, Of::Process));
    // Only the collector exports these, whichever broker is selected.
    let of_collector = |metric| over("max", "instance", &chosen(metric, Of::Fleet));
    vec![
        Panel::lines(
            "Stats collector",
            "1 for the broker that counts the messages of all topics; one in a fleet.",
            Unit::Count,
        )
        .query(of_each("dwell_stats_collector"), "{{instance}}")
        .watched_by("DwellNoStatsCollector"),
        Panel::lines("Collection time", "How long the last collection took.", Unit::Seconds)
            .query(of_collector("dwell_stats_collection_seconds"), "{{instance}}"),
        Panel::lines("Age of the stats", "Time since the last complete collection.", Unit::Seconds)
            .query(of_collector("dwell_stats_age_seconds"), "{{instance}}")
            .watched_by("DwellNoStatsCollector"),
    ]
}

fn webhooks() -> Vec<Panel> {
    vec![
        Panel::lines("Posts", "Posts of webhooks, by what the answer did.", Unit::RequestsPerSecond)
            .query(
                rate("topic, group, outcome", "dwell_webhook_requests_total", Of::Group),
                "{{topic}} {{group}} {{outcome}}",
            )
            .wide(12),
        Panel::lines("Posts, p99", "99 of 100 posts are answered faster than this.", Unit::Seconds)
            .query(quantile(0.99, "topic, group", "dwell_webhook_request_seconds", Of::Group), "{{topic}} {{group}}")
            .wide(12),
    ]
}
