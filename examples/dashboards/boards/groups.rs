//! Do the groups keep up? Owners, members, lag, retries, handling.

use super::dashboard::{Dashboard, Row};
use super::panel::{Panel, Unit};
use super::query::{Of, grown, quantile, rate, store_stats, sum};

pub(super) fn board() -> Dashboard {
    Dashboard {
        name: "groups",
        title: "dwell: groups",
        description: "Who owns the partitions, how far behind the consumers are, and what becomes of their deliveries.",
        rows: vec![
            Row { title: "Lag", panels: lag() },
            Row { title: "Owners", panels: owners() },
            Row { title: "Deliveries", panels: deliveries() },
        ],
    }
}

fn lag() -> Vec<Panel> {
    let state =
        |state: &str| store_stats("sum", "topic, group", &format!(r#"dwell_messages{{state=~"{state}"}}"#), "state");
    vec![
        Panel::lines(
            "Lag, messages",
            "Messages that are due and wait for a consumer or behind their key.",
            Unit::Messages,
        )
        .query(state("ready|blocked"), "{{topic}} {{group}}")
        .watched_by("DwellBacklogGrows"),
        Panel::lines("Lag, time", "How long the oldest of them has been due.", Unit::Seconds)
            .query(store_stats("max", "topic, group", "dwell_oldest_ready_age_seconds", ""), "{{topic}} {{group}}")
            .watched_by("DwellBacklogGrows"),
        Panel::lines("In flight", "Messages that consumers have in hand.", Unit::Messages)
            .query(state("in_flight"), "{{topic}} {{group}}"),
        Panel::lines(
            "Paused and closed groups",
            "1 while a group is paused, or its window is closed: nobody gets its messages, and they wait.",
            Unit::Count,
        )
        .query(store_stats("max", "topic, group", "dwell_group_paused", ""), "{{topic}} {{group}} paused")
        .query(store_stats("max", "topic, group", "dwell_group_closed", ""), "{{topic}} {{group}} closed")
        .most(1.0)
        .wide(12),
        Panel::lines("Demand", "Consumers that wait for a message, by group, at all brokers together.", Unit::Count)
            .query(sum("topic, group", "dwell_group_demand", Of::Group), "{{topic}} {{group}}")
            .wide(12),
        Panel::lines(
            "Keys",
            "Keys of fair groups that have messages due or in flight, and those that are paused.",
            Unit::Count,
        )
        .query(store_stats("max", "topic, group", "dwell_group_keys", ""), "{{topic}} {{group}}")
        .query(store_stats("max", "topic, group", "dwell_group_paused_keys", ""), "{{topic}} {{group}} paused")
        .wide(12),
        Panel::lines(
            "Share of the busiest key",
            "The part of these messages that one key has: near 1 the others wait for it in a group that is not fair.",
            Unit::Part,
        )
        .query(store_stats("max", "topic, group", "dwell_group_busiest_key_ratio", ""), "{{topic}} {{group}}")
        .most(1.0)
        .wide(12),
    ]
}

fn owners() -> Vec<Panel> {
    vec![
        Panel::areas("Partitions by owner", "Partitions of groups, by the broker that owns them.", Unit::Count)
            .query(sum("instance", "dwell_leases_owned", Of::Group), "{{instance}}")
            .watched_by("DwellLeasesLost"),
        Panel::areas(
            "Partitions with an owner",
            "The same by group: fewer than the topic has means that some wait for an owner.",
            Unit::Count,
        )
        .query(sum("topic, group", "dwell_leases_owned", Of::Group), "{{topic}} {{group}}"),
        Panel::lines(
            "Members without a partition",
            "Brokers that wait, because the group has more members than the topic has partitions.",
            Unit::Count,
        )
        .query(sum("topic, group", "dwell_members_waiting", Of::Group), "{{topic}} {{group}}"),
        Panel::lines(
            "Waiting consumers by broker",
            "Long polls, streams and webhooks, by the broker where they wait: partitions move to brokers that have some.",
            Unit::Count,
        )
        .query(sum("instance, topic, group", "dwell_group_demand", Of::Group), "{{instance}} {{topic}} {{group}}"),
        Panel::lines("Rebalances", "Changes of the members of a group, as each broker saw them.", Unit::Count)
            .query(grown("instance", "dwell_rebalances_total", Of::Process), "{{instance}}"),
        Panel::lines(
            "Takeovers",
            "Partitions that were taken with deliveries of an owner before: after a crash, not after a stop in order.",
            Unit::Count,
        )
        .query(grown("instance", "dwell_takeovers_total", Of::Process), "{{instance}}"),
        Panel::lines(
            "Leases lost",
            "Epochs that ended because another broker has the partition, or Redis lost data.",
            Unit::Count,
        )
        .query(grown("instance", "dwell_leases_lost_total", Of::Process), "{{instance}}")
        .watched_by("DwellLeasesLost"),
    ]
}

fn deliveries() -> Vec<Panel> {
    let retries = format!(
        "{} / {}",
        rate("topic, group", r#"dwell_deliveries_total{kind="retry"}"#, Of::Group),
        rate("topic, group", "dwell_deliveries_total", Of::Group),
    );
    let outcomes = |outcomes: &str| {
        rate("topic, group, outcome", &format!(r#"dwell_settled_total{{outcome=~"{outcomes}"}}"#), Of::Group)
    };
    vec![
        Panel::lines("Deliveries", "Messages handed out, by group.", Unit::MessagesPerSecond)
            .query(rate("topic, group", "dwell_deliveries_total", Of::Group), "{{topic}} {{group}}"),
        Panel::lines("Retries", "The part of the deliveries that are not the first of their message.", Unit::Part)
            .query(retries, "{{topic}} {{group}}")
            .most(1.0)
            .watched_by("DwellRetryStorm"),
        Panel::lines(
            "Not acked",
            "Deliveries that failed, were given back, ran into their deadline, died, or were settled too late.",
            Unit::MessagesPerSecond,
        )
        .query(
            outcomes("nacked|released|timed_out|expired|buried|stale|unknown_outcome"),
            "{{topic}} {{group}} {{outcome}}",
        )
        .watched_by("DwellTimedOut"),
        Panel::lines(
            "Handling time",
            "From hand-over to ack. Near the visibility timeout, deliveries are about to be repeated.",
            Unit::Seconds,
        )
        .query(quantile(0.5, "topic, group", "dwell_handling_seconds", Of::Group), "{{topic}} {{group}}, p50")
        .query(quantile(0.99, "topic, group", "dwell_handling_seconds", Of::Group), "{{topic}} {{group}}, p99")
        .watched_by("DwellTimedOut"),
        Panel::lines("Lateness, p99", "From due to hand-over, by group.", Unit::Seconds)
            .query(quantile(0.99, "topic, group", "dwell_lateness_seconds", Of::Group), "{{topic}} {{group}}")
            .watched_by("DwellLate"),
        Panel::lines(
            "Receipts for other brokers",
            "Requests with receipts that were sent to the broker that owns them, and datagrams that were dropped.",
            Unit::RequestsPerSecond,
        )
        .query(rate("outcome", "dwell_remote_requests_total", Of::Process), "{{outcome}}")
        .query(rate("reason", "dwell_remote_dropped_total", Of::Process), "dropped: {{reason}}"),
    ]
}
