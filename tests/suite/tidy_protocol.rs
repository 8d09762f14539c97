//! docs/protocol.md is true: its requests, its limits and its vectors are those of the code.

use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::time::Duration;

use dwell::limits;
use dwell::partition::{Partition, hash};

const PAGE: &str = include_str!("../../docs/protocol.md");

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// The cells of the rows of the table that begins with `header`.
fn table(header: &str) -> Vec<Vec<&'static str>> {
    let rows = PAGE.lines().skip_while(|line| *line != header).skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

#[test]
fn every_request_of_the_page_is_served_and_the_other_way_round() -> Outcome {
    let written: BTreeSet<String> =
        PAGE.lines().filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`')).map(str::to_owned).collect();
    let document = dwell::http::openapi();
    let mut served = BTreeSet::new();
    for (path, item) in document["paths"].as_object().ok_or("no paths")? {
        for method in item.as_object().ok_or("no methods")?.keys() {
            served.insert(format!("{} {path}", method.to_uppercase()));
        }
    }
    assert_eq!(written, served);
    Ok(())
}

#[test]
fn every_parameter_and_field_that_is_served_is_on_the_page() -> Outcome {
    let document = dwell::http::openapi();
    let mut names = BTreeSet::new();
    for item in document["paths"].as_object().ok_or("no paths")?.values().filter_map(|item| item.as_object()) {
        for parameter in item.values().filter_map(|operation| operation["parameters"].as_array()).flatten() {
            names.insert(parameter["name"].as_str().ok_or("no name")?.to_owned());
        }
    }
    collect_fields(&document["components"]["schemas"], &mut names);
    assert!(names.len() > 40, "{names:?}");
    let missing: Vec<_> = names
        .iter()
        .filter(|name| {
            ![format!("`{name}`"), format!("\"{name}\""), format!("{{{name}}}")].iter().any(|n| PAGE.contains(n))
        })
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    Ok(())
}

fn collect_fields(schema: &serde_json::Value, names: &mut BTreeSet<String>) {
    if let Some(fields) = schema["properties"].as_object() {
        names.extend(fields.keys().cloned());
    }
    match schema {
        serde_json::Value::Object(parts) => parts.values().for_each(|part| collect_fields(part, names)),
        serde_json::Value::Array(parts) => parts.iter().for_each(|part| collect_fields(part, names)),
        _ => {}
    }
}

#[test]
fn every_limit_of_the_page_is_the_one_of_the_code() {
    let days = |span: Duration| format!("{} d", with_commas(usize::try_from(span.as_secs() / 86_400).unwrap_or(0)));
    let seconds = |span: Duration| format!("{} s", span.as_secs());
    let bytes = |limit| format!("{} bytes", with_commas(limit));
    let visibility = format!(
        "{} ms to {} h",
        limits::VISIBILITY_TIMEOUT_MIN.as_millis(),
        limits::VISIBILITY_TIMEOUT_MAX.as_secs() / 3_600
    );
    let expected = [
        ("topic and group names", bytes(limits::NAME_BYTES_MAX)),
        ("message id", bytes(limits::ID_BYTES_MAX)),
        ("request id", bytes(limits::REQUEST_ID_BYTES_MAX)),
        ("`tracestate`", bytes(limits::TRACESTATE_BYTES_MAX)),
        ("entries of a `tracestate`", with_commas(limits::TRACESTATE_ENTRIES_MAX)),
        ("message key", bytes(limits::KEY_BYTES_MAX)),
        ("payload", bytes(limits::PAYLOAD_BYTES_MAX)),
        ("content type", bytes(limits::CONTENT_TYPE_BYTES_MAX)),
        ("meta entries of a message", with_commas(limits::META_COUNT_MAX)),
        ("meta names and values of a message together", bytes(limits::META_BYTES_MAX)),
        ("messages of a batch; deliveries, receipts and ids of a request", with_commas(limits::BATCH_MESSAGES_MAX)),
        ("body of a batch or an envelope", bytes(limits::BATCH_BODY_BYTES_MAX)),
        ("body of another JSON request", bytes(limits::REQUEST_BODY_BYTES_MAX)),
        ("all bodies that are being read", bytes(limits::BODIES_BYTES_MAX)),
        ("delay, or due time from now", days(limits::DELAY_MAX)),
        ("wait of a reserve", seconds(limits::WAIT_MAX)),
        ("visibility timeout", visibility),
        ("attempts", with_commas(usize::try_from(limits::ATTEMPTS_MAX).unwrap_or(0))),
        ("steps of a backoff ladder", with_commas(limits::LADDER_STEPS_MAX)),
        ("priority", limits::PRIORITY_MAX.to_string()),
        (
            "messages in a row that are handed out before the one that was due first",
            limits::PASSED_OVER_MAX.to_string(),
        ),
        ("dedup window", days(limits::DEDUP_WINDOW_MAX)),
        ("cancelled messages remembered, in a partition", with_commas(limits::CANCELLED_IDS_MAX)),
        ("for which they are remembered", format!("{} h", limits::CANCELLED_KEPT.as_secs() / 3_600)),
        ("partitions of a topic", with_commas(limits::PARTITIONS_MAX.into())),
        ("topics", with_commas(limits::TOPICS_MAX)),
        ("groups of a topic", with_commas(limits::GROUPS_MAX)),
        ("partitions of all groups that a broker is a member of", with_commas(limits::MEMBER_PARTITIONS_MAX)),
        (
            "rate of a group",
            format!("{} to {} messages a second", limits::RATE_MIN, with_commas(limits::RATE_MAX as usize)),
        ),
        ("deliveries in flight in a partition of a group", with_commas(limits::IN_FLIGHT_MAX)),
        (
            "messages in an owner's memory that wait for others of their key, in a partition of a group",
            with_commas(limits::PARKED_MESSAGES_MAX),
        ),
        (
            "payloads in flight or waiting for others of their key, in a partition of a group",
            format!("{} bytes", with_commas(limits::ORDERED_BYTES_MAX)),
        ),
        (
            "messages of a group in a partition, dead ones not counted; in Redis",
            with_commas(usize::try_from(limits::PAIR_MESSAGES_MAX).unwrap_or(0)),
        ),
        (
            "free disk space below which the embedded store refuses pushes",
            bytes(usize::try_from(limits::DISK_RESERVE_BYTES).unwrap_or(0)),
        ),
        ("deliveries in flight in a stream", with_commas(limits::STREAM_IN_FLIGHT_MAX)),
        ("silence of a stream", seconds(limits::STREAM_SILENCE_MAX)),
        ("webhooks", with_commas(limits::WEBHOOKS_MAX)),
        ("POSTs of a webhook at the same time", with_commas(limits::WEBHOOK_CONCURRENCY_MAX)),
        ("body of an answer to a POST that is read", bytes(limits::WEBHOOK_ANSWER_BYTES_MAX)),
        ("`Retry-After` of an answer to a POST (cut)", days(limits::RETRY_AFTER_MAX)),
        ("payloads in one answer, but for its last message", bytes(limits::DELIVERIES_BYTES_MAX)),
        ("consumers waiting in a group", with_commas(limits::WAITERS_MAX)),
        (
            "decisions remembered, and as many deadlines that passed, in a partition of a group",
            with_commas(limits::RECENT_DECISIONS_MAX),
        ),
        ("requests of other brokers that wait for an answer", bytes(limits::DATAGRAMS_BYTES_MAX)),
        ("verdicts remembered for them", with_commas(limits::REMOTE_VERDICTS_MAX)),
        ("reason of a nack (cut)", bytes(limits::REASON_BYTES_MAX)),
        ("payload of a cron job", bytes(limits::SCHEDULE_PAYLOAD_BYTES_MAX)),
        ("cron expression; name of a time zone", bytes(limits::SCHEDULE_CRON_BYTES_MAX)),
        ("span of a cron job, shortest", seconds(limits::SCHEDULE_EVERY_MIN)),
        ("missed occurrences that are made up for, the newest", with_commas(limits::SCHEDULE_FIRES_MAX)),
        ("cron jobs in a partition of a topic", with_commas(limits::SCHEDULES_MAX)),
        ("partitions with cron jobs, of all topics; in Redis", with_commas(limits::SCHEDULE_PLACES_MAX)),
        ("spans of a forecast", with_commas(limits::FORECAST_SPANS_MAX)),
        ("spans of a forecast, times partitions", with_commas(limits::FORECAST_COUNTS_MAX)),
        ("reads over whole topics at the same time", with_commas(limits::HEAVY_READS_MAX)),
        ("time that such a read waits for others", seconds(limits::HEAVY_READ_WAIT_MAX)),
        ("failed attempts in a history, the newest", with_commas(limits::HISTORY_MAX)),
        ("reason in a history (cut)", bytes(limits::HISTORY_REASON_BYTES_MAX)),
        ("text that dead messages are looked through for", bytes(limits::DEAD_TEXT_BYTES_MAX)),
        ("dead messages that a request looks at", with_commas(limits::DEAD_LOOKED_AT_MAX)),
        ("time that a request works on dead messages", seconds(limits::DEAD_REQUEST_MAX)),
        ("time that a request moves messages to another topic", seconds(limits::MOVE_REQUEST_MAX)),
        ("time that a request changes the messages of a window", seconds(limits::WINDOW_REQUEST_MAX)),
        ("how much later a parked message is due", days(limits::PARKED_FOR)),
        (
            "dead messages redriven or purged a second, when a rate is given",
            with_commas(usize::try_from(limits::REDRIVE_RATE_MAX).unwrap_or(0)),
        ),
        ("age of dead messages that a topic may keep", days(limits::DEAD_MAX_AGE_MAX)),
        (
            "dead messages of a group in a partition that a topic may keep, when it is bounded",
            with_commas(usize::try_from(limits::DEAD_MAX_COUNT_MAX).unwrap_or(0)),
        ),
        ("open connections (for one more another one gives way)", with_commas(limits::CONNECTIONS_MAX)),
        ("connections of consumers that wait", format!("{} of 10", limits::WAITING_TENTHS)),
        ("answers that are not read, of all connections", bytes(limits::ANSWERS_BYTES_MAX)),
        ("time that a request waits for room among them", seconds(limits::ANSWER_PATIENCE)),
        ("time for a client to read on, while there is no room among them", seconds(limits::ANSWER_TIMEOUT_SCARCE)),
        ("header of a request", bytes(limits::HEADER_BYTES_MAX)),
        ("lines of a header", with_commas(limits::HEADER_LINES_MAX)),
        ("errors that a problem lists", with_commas(limits::LISTED_ERRORS_MAX)),
        ("time for a header", seconds(limits::HEADER_TIMEOUT)),
        ("silence of a connection between two requests", seconds(limits::IDLE_TIMEOUT)),
        ("time for a body", seconds(limits::BODY_TIMEOUT)),
        ("time for a client to read on, while an answer waits for it", seconds(limits::ANSWER_TIMEOUT)),
    ];
    let written: Vec<_> = table("| what | limit |").iter().map(|row| (row[0], row[1].to_owned())).collect();
    assert_eq!(written, expected);
}

fn with_commas(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

#[test]
fn the_vectors_of_the_page_are_right() -> Outcome {
    let unquoted = |cell: &'static str| cell.trim_matches('`');
    let vectors = table("| bytes | text | hash |");
    assert_eq!(vectors.len(), 12);
    for row in vectors {
        let digits = unquoted(row[0]).as_bytes();
        let pairs = digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap_or(""), 16));
        let bytes = pairs.collect::<Result<Vec<_>, _>>()?;
        assert_eq!(format!("{:#010x}", hash(&bytes)), unquoted(row[2]), "{row:?}");
    }
    let eight = NonZeroU16::new(8).ok_or("eight is zero")?;
    let keys = table("| key | hash | partition |");
    assert_eq!(keys.len(), 4);
    for row in keys {
        let key = unquoted(row[0]);
        assert_eq!(format!("{:#010x}", hash(key.as_bytes())), unquoted(row[1]), "{key}");
        assert_eq!(Partition::of(key, eight).to_string(), row[2], "{key}");
    }
    Ok(())
}
