//! The limits, from the constants of src/model/limits.rs.

use std::time::Duration;

use dwell::model::limits as l;

use super::table;

const HEAD: &str = "\
# Limits

This page lists every limit of dwell. If a request exceeds one, dwell refuses it, and the error names the limit. It never drops anything silently.
";

/// A limit: what it bounds, and its value as people read it.
type Row = (&'static str, String);

pub(super) fn page() -> String {
    let chapter = |(title, rows): (&str, Vec<Row>)| {
        let rows: Vec<_> = rows.into_iter().map(|(what, limit)| [what.to_owned(), limit]).collect();
        format!("\n## {title}\n\n{}", table(["what", "limit"], &rows))
    };
    let chapters: String = chapters().into_iter().map(chapter).collect();
    format!("{HEAD}{chapters}")
}

/// Every limit that a client or an operator can meet.
fn chapters() -> [(&'static str, Vec<Row>); 7] {
    [
        ("Names and messages", messages()),
        ("Time and attempts", times()),
        ("Topics and groups", topics()),
        ("Requests and connections", requests()),
        ("Delivery", delivery()),
        ("Cron jobs and webhooks", cron()),
        ("Reads and bulk operations", reads()),
    ]
}

fn messages() -> Vec<Row> {
    vec![
        ("Name of a topic, group or cron job", bytes(l::NAME_BYTES_MAX)),
        ("Message id", bytes(l::ID_BYTES_MAX)),
        ("Receipt", bytes(l::RECEIPT_BYTES_MAX)),
        ("Message key", bytes(l::KEY_BYTES_MAX)),
        ("Dedup key", bytes(l::DEDUP_KEY_BYTES_MAX)),
        ("Payload, with its attachment", bytes(l::PAYLOAD_BYTES_MAX)),
        ("Content type", bytes(l::CONTENT_TYPE_BYTES_MAX)),
        ("Meta entries of a message", number(l::META_COUNT_MAX)),
        ("Meta names and values of a message together", bytes(l::META_BYTES_MAX)),
        ("`tracestate`", format!("{}, {} entries", bytes(l::TRACESTATE_BYTES_MAX), l::TRACESTATE_ENTRIES_MAX)),
        ("Request id", bytes(l::REQUEST_ID_BYTES_MAX)),
        ("Access tokens of a broker", number(l::TOKENS_MAX)),
        ("Access token", format!("{} to {} characters", l::TOKEN_BYTES_MIN, number(l::TOKEN_BYTES_MAX))),
        ("Priority", format!("0 to {}", l::PRIORITY_MAX)),
    ]
}

fn times() -> Vec<Row> {
    let visibility = format!("{} to {}", span(l::VISIBILITY_TIMEOUT_MIN), span(l::VISIBILITY_TIMEOUT_MAX));
    vec![
        ("Delay, or due time from now", span(l::DELAY_MAX)),
        ("Visibility timeout", visibility),
        ("Attempts", number(l::ATTEMPTS_MAX)),
        ("Steps of a backoff ladder", number(l::LADDER_STEPS_MAX)),
        ("Deduplication window", span(l::DEDUP_WINDOW_MAX)),
        ("Window of a dedup key", format!("{} to {}", span(l::DEDUP_FOR_MIN), span(l::DEDUP_FOR_MAX))),
        ("Time for which a dedup key is remembered after its window", span(l::DEDUP_KEPT)),
        ("Dedup keys of a partition that are remembered after their window", number(l::DEDUP_PAST_MAX)),
        ("Time for which a cancelled id is remembered", span(l::CANCELLED_KEPT)),
        ("Cancelled ids remembered in a partition", number(l::CANCELLED_IDS_MAX)),
        ("`min_age` of a reserve", span(l::MIN_AGE_MAX)),
        ("`linger` of a reserve", span(l::LINGER_MAX)),
        ("Wait of a reserve", span(l::WAIT_MAX)),
        ("Added delay of a parked message", span(l::PARKED_FOR)),
    ]
}

fn topics() -> Vec<Row> {
    vec![
        ("Topics", number(l::TOPICS_MAX)),
        ("Name of an annotation of a topic", bytes(l::ANNOTATION_NAME_BYTES_MAX)),
        ("Annotations of a topic: all names and texts", bytes(l::ANNOTATIONS_BYTES_MAX)),
        ("Partitions of a topic", number(l::PARTITIONS_MAX)),
        ("Groups of a topic", number(l::GROUPS_MAX)),
        ("Partitions of all groups that a broker is a member of", number(l::MEMBER_PARTITIONS_MAX)),
        ("Messages of a group in a partition, without dead letters; in Redis", number(l::GROUP_PARTITION_MESSAGES_MAX)),
        (
            "Rate of a group, or of each of its keys",
            format!("{} to {} messages a second", l::RATE_MIN, number(l::RATE_MAX as u64)),
        ),
        ("Deliveries of a key that may be made at once, if keys have a rate", number(l::KEY_BURST_MAX)),
        (
            "Keys, or beginnings of keys, of a group that have a weight, and that have other limits",
            number(l::KEY_PATTERNS_MAX as u64),
        ),
        ("Weight of a key", format!("1 to {}", l::KEY_WEIGHT_MAX)),
        ("Paused keys of a group in a partition", number(l::PAUSED_KEYS_MAX as u64)),
        ("Keys of a fair group that its description lists", number(l::KEYS_SHOWN_MAX as u64)),
        ("Age of dead letters, if a topic limits it", span(l::DEAD_MAX_AGE_MAX)),
        ("Dead letters of a group in a partition, if a topic limits them", number(l::DEAD_MAX_COUNT_MAX)),
        ("Failed attempts kept in the history of a message", number(l::HISTORY_MAX)),
        ("Free disk space below which the embedded store refuses pushes", bytes(l::DISK_RESERVE_BYTES)),
        ("Ids and dedup keys of the write-ahead log that a broker lists in memory", number(l::HELD_IDS_MAX)),
        ("Size of the write-ahead log", format!("{} to {}", bytes(l::WAL_BYTES_MIN), bytes(l::WAL_BYTES_MAX))),
    ]
}

fn requests() -> Vec<Row> {
    vec![
        ("Messages of a batch; deliveries, receipts and ids of a request", number(l::BATCH_MESSAGES_MAX)),
        ("Body of a batch, of nacks, or an envelope", bytes(l::BATCH_BODY_BYTES_MAX)),
        ("Body of another JSON request", bytes(l::REQUEST_BODY_BYTES_MAX)),
        ("All bodies that are being read", bytes(l::BODIES_BYTES_MAX)),
        ("Header of a request", format!("{}, {} lines", bytes(l::HEADER_BYTES_MAX), l::HEADER_LINES_MAX)),
        ("Errors that a problem lists", number(l::LISTED_ERRORS_MAX)),
        (
            "Open connections; a new one closes the one that has waited longest for its client",
            number(l::CONNECTIONS_MAX),
        ),
        ("Open connections of `admin.listen`; a new one closes an idle one", number(l::OPERATORS_CONNECTIONS_MAX)),
        ("Share of the connections that waiting consumers may use", format!("{} of 10", l::WAITING_TENTHS)),
        (
            "Share of the waiting consumers, and of the memberships of a broker, that one token may take",
            format!("{} of 10", l::WAITING_SHARE_TENTHS),
        ),
        ("`Host` of a request", bytes(l::HOST_BYTES_MAX)),
        ("Time for the header of a request", span(l::HEADER_TIMEOUT)),
        ("Time for the body of a request", span(l::BODY_TIMEOUT)),
        (
            "Idle time of a connection between two requests, `http.idle_timeout`",
            format!("{}; from {} to {}", span(l::IDLE_TIMEOUT), span(l::IDLE_TIMEOUT_MIN), span(l::IDLE_TIMEOUT_MAX)),
        ),
        ("Longest pause of a client while it reads an answer", span(l::ANSWER_TIMEOUT)),
        ("That pause, while unread answers use all of their memory", span(l::ANSWER_TIMEOUT_SCARCE)),
        ("Unread answers of all connections", bytes(l::ANSWERS_BYTES_MAX)),
        ("Time that a request waits for memory for its answer", span(l::ANSWER_PATIENCE)),
    ]
}

fn delivery() -> Vec<Row> {
    vec![
        ("Payloads in one answer, without its last message", bytes(l::DELIVERIES_BYTES_MAX)),
        ("Deliveries in flight in a partition of a group", number(l::IN_FLIGHT_MAX)),
        ("Deliveries in flight of a stream", number(l::STREAM_IN_FLIGHT_MAX)),
        ("Successive messages of a key in one batch (`per_key`)", number(l::PER_KEY_MAX)),
        ("`ReceiveRequestAttemptId`s of SQS clients that a broker remembers", number(l::RECEIVE_ATTEMPTS_MAX)),
        ("Requests of other brokers that wait for an answer", bytes(l::DATAGRAMS_BYTES_MAX)),
        ("Verdicts remembered for other brokers", number(l::REMOTE_VERDICTS_MAX)),
        ("Silence of a stream before it sends an empty line", span(l::STREAM_SILENCE_MAX)),
        ("Consumers that wait in a group", number(l::WAITERS_MAX)),
        ("Deliveries by priority in a row, before the message that was due first", number(l::PASSED_OVER_MAX)),
        ("Decisions remembered in a partition of a group", number(l::RECENT_DECISIONS_MAX)),
        ("Message of the reason of a nack; longer ones are cut", bytes(l::REASON_BYTES_MAX)),
        ("Class of that reason", bytes(l::ERROR_CLASS_BYTES_MAX)),
        ("Stack of that reason", bytes(l::ERROR_STACK_BYTES_MAX)),
        ("Reason in a history; longer ones are cut", bytes(l::HISTORY_REASON_BYTES_MAX)),
        (
            "With an ordering: messages of a partition that wait in memory for others of their key",
            number(l::PARKED_MESSAGES_MAX),
        ),
        ("With an ordering: payloads of a partition in memory", bytes(l::ORDERED_BYTES_MAX)),
    ]
}

fn cron() -> Vec<Row> {
    vec![
        ("Payload of a cron job", bytes(l::SCHEDULE_PAYLOAD_BYTES_MAX)),
        ("Cron expression, name of a time zone", bytes(l::SCHEDULE_CRON_BYTES_MAX)),
        ("Interval of a cron job", format!("{} to {}", span(l::SCHEDULE_EVERY_MIN), span(l::SCHEDULE_EVERY_MAX))),
        ("Missed times of a cron job that are pushed later (the newest ones)", number(l::CRON_JOB_FIRES_MAX)),
        ("Time by which one request moves a test clock", span(l::CLOCK_MOVE_MAX)),
        ("Times of cron jobs that one move of a test clock fires", number(l::CLOCK_MOVE_FIRES_MAX)),
        ("Cron jobs in a partition of a topic", number(l::CRON_JOBS_MAX)),
        ("Partitions with cron jobs, of all topics; in Redis", number(l::SCHEDULE_PLACES_MAX)),
        ("Webhooks", number(l::WEBHOOKS_MAX)),
        ("Concurrent requests of a webhook", number(l::WEBHOOK_CONCURRENCY_MAX)),
        ("Timeout of a webhook", format!("{} to {}", span(l::WEBHOOK_TIMEOUT_MIN), span(l::WEBHOOK_TIMEOUT_MAX))),
        ("Body of a webhook's answer that is read", bytes(l::WEBHOOK_ANSWER_BYTES_MAX)),
        ("`Retry-After` of a webhook's answer; longer ones are cut", span(l::RETRY_AFTER_MAX)),
    ]
}

fn reads() -> Vec<Row> {
    vec![
        ("Concurrent reads over whole topics", number(l::HEAVY_READS_MAX)),
        ("Concurrent reads over whole topics of one token", number(l::WHOLE_READS_OF_TOKEN_MAX)),
        ("Time that such a read waits for its turn", span(l::HEAVY_READ_WAIT_MAX)),
        ("Spans of a forecast", number(l::FORECAST_SPANS_MAX)),
        ("Spans of a forecast, times partitions", number(l::FORECAST_COUNTS_MAX)),
        ("Search text for dead letters", bytes(l::DEAD_TEXT_BYTES_MAX)),
        ("Dead letters that one request reads", number(l::DEAD_LOOKED_AT_MAX)),
        (
            "Topics that forward a dead letter, one after the other, if the next one forwards too",
            number(l::FORWARD_HOPS_MAX),
        ),
        ("Time that one request works on dead letters", span(l::DEAD_REQUEST_MAX)),
        ("Dead letters redriven or purged a second, when a rate is given", number(l::REDRIVE_RATE_MAX)),
        ("Time that one request moves messages to another topic", span(l::MOVE_REQUEST_MAX)),
        ("Time that one bulk request works", span(l::WINDOW_REQUEST_MAX)),
    ]
}

fn bytes(limit: impl TryInto<u64>) -> String {
    let limit = limit.try_into().unwrap_or(u64::MAX);
    let units = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| limit >= *unit && limit.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{} {name}", limit / unit),
        None => format!("{} bytes", number(limit)),
    }
}

fn number(limit: impl TryInto<u64>) -> String {
    let digits = limit.try_into().unwrap_or(u64::MAX).to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    let units = [(86_400, "d"), (3_600, "h"), (1, "s")];
    match units.into_iter().find(|(unit, _)| seconds > 0 && seconds.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{} {name}", number(seconds / unit)),
        None => format!("{} ms", span.as_millis()),
    }
}
