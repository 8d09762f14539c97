//! Can it lose something? Durability of pushes, the logs on the local disk, Redis.

use super::dashboard::{Dashboard, Row};
use super::panel::{Panel, Unit};
use super::query::{Of, chosen, grown, over, quantile, rate, sum};

pub(super) fn board() -> Dashboard {
    Dashboard {
        name: "reliability",
        title: "dwell: reliability",
        description: "What a 2xx survives: durability of pushes, the write-ahead log and the journal, Redis.",
        rows: vec![
            Row { title: "What must be zero", panels: zeros() },
            Row { title: "Pushes", panels: pushes() },
            Row { title: "Write-ahead log and journal", panels: logs() },
            Row { title: "Redis", panels: redis() },
        ],
    }
}

fn zeros() -> Vec<Panel> {
    let zero = |title, description, metric| {
        let grown = over("sum", "", &format!("increase({}[1h])", chosen(metric, Of::Process)));
        Panel::stat(title, description, Unit::Count).query(grown, "").from(0.5, "red")
    };
    vec![
        zero("Repairs", "Messages that were found in no place or in two, in the last hour.", "dwell_repairs_total")
            .watched_by("DwellRepairs"),
        zero(
            "Losses of Redis",
            "Times that Redis lost what it had answered, in the last hour.",
            "dwell_redis_losses_total",
        )
        .watched_by("DwellRedisLosses"),
        zero(
            "Damaged records",
            "Damages found in the logs on the local disk, in the last hour.",
            "dwell_wal_damaged_total",
        )
        .watched_by("DwellWalDamaged"),
        zero("Lost records", "Records that damage took, in the last hour.", "dwell_wal_lost_total")
            .watched_by("DwellWalDamaged"),
        zero(
            "Leases lost",
            "Epochs of the last hour that ended because another broker has the partition, or Redis lost data.",
            "dwell_leases_lost_total",
        )
        .watched_by("DwellLeasesLost"),
        Panel::stat(
            "Breakers open",
            "Brokers whose pushes go to the local disk now, because Redis does not take them.",
            Unit::Count,
        )
        .query(sum("", "dwell_breaker_open", Of::Process), "")
        .from(1.0, "red")
        .watched_by("DwellRedisRefuses"),
    ]
}

fn pushes() -> Vec<Panel> {
    let outcomes = r#"dwell_pushes_total{outcome=~"stored|journaled|buffered|failed"}"#;
    let part = |outcome: &str| {
        let of = rate("", &format!(r#"dwell_pushes_total{{outcome="{outcome}"}}"#), Of::Topic);
        format!("{of} / {}", rate("", outcomes, Of::Topic))
    };
    vec![
        Panel::areas("Pushes by durability", "stored: in Redis. journaled: there and on the local disk. buffered: on the local disk, because Redis is unavailable. failed: nowhere, and the producer was told.", Unit::MessagesPerSecond)
            .query(rate("outcome", outcomes, Of::Topic), "{{outcome}}")
            .watched_by("DwellPushesFail")
            .wide(12),
        Panel::lines("Not in Redis", "The part of the pushes that were buffered or failed.", Unit::Part)
            .query(part("buffered"), "buffered")
            .query(part("failed"), "failed")
            .most(1.0)
            .watched_by("DwellPushesFail")
            .wide(12),
    ]
}

fn logs() -> Vec<Panel> {
    let used = format!(
        "{} / {}",
        over("max", "instance, log", &chosen("dwell_wal_bytes", Of::Process)),
        over("max", "instance, log", &chosen("dwell_wal_limit_bytes", Of::Process)),
    );
    let per_log = |metric| over("max", "instance, log", &chosen(metric, Of::Process));
    vec![
        Panel::lines(
            "Records that wait",
            "Pushes on the local disk that Redis has yet to take (wal), or that are kept for its next loss (journal).",
            Unit::Count,
        )
        .query(per_log("dwell_wal_records"), "{{instance}} {{log}}")
        .watched_by("DwellWalOldRecords"),
        Panel::lines("Oldest record", "How long the oldest of them waits.", Unit::Seconds)
            .query(per_log("dwell_wal_oldest_age_seconds"), "{{instance}} {{log}}")
            .watched_by("DwellWalOldRecords"),
        Panel::lines("Size", "Bytes on disk, those of finished records included.", Unit::Bytes)
            .query(per_log("dwell_wal_bytes"), "{{instance}} {{log}}"),
        Panel::lines("Part of the limit", "When it is 1, pushes are refused while Redis is unavailable.", Unit::Part)
            .query(used, "{{instance}} {{log}}")
            .from(0.5, "orange")
            .from(0.9, "red")
            .watched_by("DwellWalFilling"),
        Panel::lines("Free disk", "Free bytes of the file system of data_dir.", Unit::Bytes)
            .query(over("min", "instance", &chosen("dwell_data_dir_free_bytes", Of::Process)), "{{instance}}")
            .watched_by("DwellDiskLow"),
        Panel::lines(
            "Making durable",
            "How long a group of records takes to be on disk, 99 of 100 times.",
            Unit::Seconds,
        )
        .query(quantile(0.99, "log", "dwell_wal_fsync_seconds", Of::Process), "{{log}}, p99")
        .query(quantile(0.5, "log", "dwell_wal_fsync_seconds", Of::Process), "{{log}}, p50"),
        Panel::lines("Replayed", "Records that Redis took.", Unit::MessagesPerSecond)
            .query(rate("log", "dwell_wal_replayed_total", Of::Process), "{{log}}")
            .watched_by("DwellWalOldRecords"),
        Panel::lines(
            "Dropped, damaged, lost",
            "Records of deleted topics; damages found; records that damage took.",
            Unit::Count,
        )
        .query(grown("log", "dwell_wal_dropped_total", Of::Process), "{{log}} dropped")
        .query(grown("log", "dwell_wal_damaged_total", Of::Process), "{{log}} damaged")
        .query(grown("log", "dwell_wal_lost_total", Of::Process), "{{log}} lost")
        .watched_by("DwellWalDamaged"),
    ]
}

fn redis() -> Vec<Panel> {
    let of_nodes = |metric| over("max", "node", &chosen(metric, Of::Process));
    vec![
        Panel::lines("Redis answers", "1 while the store answered last, by broker.", Unit::Count)
            .query(over("min", "instance", &chosen("dwell_redis_up", Of::Process)), "{{instance}}")
            .most(1.0)
            .watched_by("DwellRedisDown"),
        Panel::lines("Breaker", "1 while pushes go to the local disk at once, by broker.", Unit::Count)
            .query(over("max", "instance", &chosen("dwell_breaker_open", Of::Process)), "{{instance}}")
            .most(1.0)
            .watched_by("DwellRedisRefuses"),
        Panel::lines("Memory", "What each Redis uses, and its maxmemory; a limit of 0 is none.", Unit::Bytes)
            .query(of_nodes("dwell_redis_memory_used_bytes"), "{{node}} used")
            .query(of_nodes("dwell_redis_memory_max_bytes"), "{{node}} limit")
            .watched_by("DwellRedisMemory"),
        Panel::lines("Evicted keys", "Keys that Redis deleted to make room, and whether it may.", Unit::Count)
            .query(grown("node", "dwell_redis_evicted_keys_total", Of::Process), "{{node}}")
            .query(of_nodes("dwell_redis_may_evict"), "{{node}} may")
            .from(1.0, "red")
            .watched_by("DwellRedisEvicts"),
        Panel::lines(
            "Clock offset",
            "How far the clock of the broker is ahead of that of Redis. Due times follow Redis.",
            Unit::Seconds,
        )
        .query(over("max", "instance", &chosen("dwell_clock_offset_seconds", Of::Process)), "{{instance}}")
        .watched_by("DwellClockOffset"),
        Panel::lines("Calls", "Calls to Redis, by verb.", Unit::CallsPerSecond)
            .query(rate("verb", "dwell_redis_call_seconds_count", Of::Process), "{{verb}}"),
        Panel::lines("Calls, p99", "99 of 100 calls are faster than this, by verb.", Unit::Seconds)
            .query(quantile(0.99, "verb", "dwell_redis_call_seconds", Of::Process), "{{verb}}"),
        Panel::lines(
            "Errors",
            "Failed calls, by kind: unavailable was certainly not applied, outcome-unknown perhaps.",
            Unit::CallsPerSecond,
        )
        .query(rate("kind", "dwell_redis_errors_total", Of::Process), "{{kind}}")
        .watched_by("DwellRedisDown"),
        Panel::lines(
            "Losses and repairs",
            "Losses of Redis that were noticed, messages that were repaired, and brokers that give back what was lost.",
            Unit::Count,
        )
        .query(grown("", "dwell_redis_losses_total", Of::Process), "losses")
        .query(grown("", "dwell_repairs_total", Of::Process), "repairs")
        .query(sum("", "dwell_restoring", Of::Process), "brokers that restore")
        .watched_by("DwellRedisLosses"),
    ]
}
