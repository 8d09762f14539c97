//! Every limit, with its unit and its reason. Past a limit comes a clear error, never a silent drop.

use std::time::Duration;

use dwell_client::wire::items::ITEMS_MAX;
use dwell_client::wire::messages;

/// Bytes of a topic or group name. Names are part of every Redis key and metric label.
pub const NAME_BYTES_MAX: usize = 100;

/// Bytes of a request id that a client gives; it is in every line of the log about the request.
pub const REQUEST_ID_BYTES_MAX: usize = 128;
/// Spans that wait to be exported; further ones are dropped and counted.
pub const SPANS_WAITING_MAX: usize = 4_096;
/// Bytes of a `tracestate` that is kept: as many as the specification asks every party to hand on.
pub const TRACESTATE_BYTES_MAX: usize = 512;
pub const TRACESTATE_ENTRIES_MAX: usize = 32;

/// Bytes of a message id. A 26-character ULID is what dwell makes itself.
pub const ID_BYTES_MAX: usize = 128;
pub const KEY_BYTES_MAX: usize = 256;
/// Receives with a `ReceiveRequestAttemptId` that a broker remembers, each with up to ten receipts; then the oldest is
/// forgotten. Clients that use them ask again within seconds.
pub const RECEIVE_ATTEMPTS_MAX: usize = 2_000;

/// Bytes of one payload and its attachment. Larger things belong into an object store, their address into the message.
pub const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;
pub const META_COUNT_MAX: usize = messages::META_COUNT_MAX;
pub const META_BYTES_MAX: usize = 8 * 1024;
pub const CONTENT_TYPE_BYTES_MAX: usize = 128;
/// Bytes of one stored envelope: the payload and everything that travels with it.
pub const ENVELOPE_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + 24 * 1024;

/// Messages in one batch push over HTTP, and deliveries, receipts and ids in one request.
pub const BATCH_MESSAGES_MAX: usize = ITEMS_MAX;
/// Bytes of a request body that holds a batch, or nacks: a thousand with their reasons fit. Larger than [`CALL_BYTES_MAX`], since
/// base64 grows by a third.
pub const BATCH_BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes of a JSON request body that is neither a batch nor a nack.
pub const REQUEST_BODY_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Bytes of a small request body: a part of the room for bodies is left to those.
pub const SMALL_BODY_BYTES_MAX: usize = 64 * 1024;
/// Bytes of all request bodies that are being read at the same time, but for those that come in one piece.
pub const BODIES_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Bytes of the header of an HTTP request: [`META_BYTES_MAX`] and a percent-encoded key fit.
pub const HEADER_BYTES_MAX: usize = 16 * 1024;
/// Lines of the header of an HTTP request. Holds [`META_COUNT_MAX`] and what clients and proxies add.
pub const HEADER_LINES_MAX: usize = 100;

/// Characters of an access token at least. Sixteen that are random are not guessed.
pub const TOKEN_BYTES_MIN: usize = 16;
/// Characters of an access token at most. Those that name things inside themselves fit.
pub const TOKEN_BYTES_MAX: usize = 1_024;
/// Access tokens of one broker: each request is compared with all of them.
pub const TOKENS_MAX: usize = 100;

/// Time for the header of an HTTP request to arrive, from its first byte; for a first request from the connect.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Silence between two requests of a connection, after which it is closed; answers announce it. As long as the default of
/// nginx, and longer than that of most clients, so that clients close first.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(75);
pub const IDLE_TIMEOUT_MIN: Duration = Duration::from_secs(1);
pub const IDLE_TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// Errors that a problem lists: enough to correct a generated batch, little enough to read.
pub const LISTED_ERRORS_MAX: usize = 100;
pub const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long an answer waits for its client to read on: what is not read is kept in memory, and so is its connection.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long an answer waits for its client to read on while there is no room for other answers.
pub const ANSWER_TIMEOUT_SCARCE: Duration = Duration::from_secs(2);
/// Bytes of all answers that their clients have not read, but for the last one that is begun. Two dozen of the largest.
pub const ANSWERS_BYTES_MAX: usize = 128 * 1024 * 1024;
/// How long a request waits for room among the answers that their clients have not read.
pub const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of an answer that is not counted among them: the buffers of its connection take more.
pub const ANSWER_UNCOUNTED_BYTES_MAX: usize = 4 * 1024;
/// How many times as long a text may be in JSON: a control character becomes `\u0001`.
pub const JSON_GROWTH_MAX: usize = 6;
/// Bytes of a refused body that are still read, so that its sender gets to see why it was refused.
pub const REFUSED_BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Message ids in one call to the store. Lua's `unpack` fails at 8,000 values, and a call must stay short.
pub const CALL_IDS_MAX: usize = 1_000;
/// Bytes of bodies in one call to the store, unless a single message is larger.
pub const CALL_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Message ids that one call of recovery moves: recovery runs beside live traffic.
pub const RECOVER_IDS_MAX: usize = 250;
/// Keys whose sorted messages one call of the owner of a fair group asks for, or lists.
pub const SORTED_KEYS_MAX: usize = 500;
/// Messages with a conflict policy in one call to the store: each is looked up and written for itself.
pub const POLICY_IDS_MAX: usize = 250;
/// Changes of a journal that one call restores: all that one call set, and as much again of others.
pub const RESTORE_CHANGES_MAX: usize = 2 * CALL_IDS_MAX;

pub const DELAY_MAX: Duration = Duration::from_secs(3_650 * 86_400);
/// How far one request moves a test clock.
pub const CLOCK_MOVE_MAX: Duration = DELAY_MAX;
/// Occurrences of cron jobs that one request of a test clock fires.
pub const CLOCK_MOVE_FIRES_MAX: usize = 10_000;
pub const WAIT_MAX: Duration = Duration::from_secs(60);
/// How long a message may wait for others of its batch, as long as a consumer may wait.
pub const LINGER_MAX: Duration = WAIT_MAX;
/// Shortest visibility timeout: shorter ones expire on the way to the consumer.
pub const VISIBILITY_TIMEOUT_MIN: Duration = Duration::from_millis(100);
/// Longest visibility timeout, as in SQS. A longer piece of work extends.
pub const VISIBILITY_TIMEOUT_MAX: Duration = Duration::from_secs(12 * 3_600);
pub const ATTEMPTS_MAX: u32 = 1_000;
pub const LADDER_STEPS_MAX: usize = 32;
pub const DEDUP_WINDOW_MAX: Duration = Duration::from_secs(7 * 86_400);
pub const DEDUP_KEY_BYTES_MAX: usize = 128;
pub const DEDUP_FOR_MIN: Duration = Duration::from_secs(1);
pub const DEDUP_FOR_MAX: Duration = Duration::from_secs(7 * 86_400);
/// How long a dedup key is remembered after its window: as long as a log may still bring a push that falls into the window.
pub const DEDUP_KEPT: Duration = Duration::from_secs(24 * 3_600);
/// Dedup keys past their windows that a partition remembers; past it the oldest are forgotten, which only a replay notices.
pub const DEDUP_PAST_MAX: usize = 100_000;
pub const PRIORITY_MAX: u8 = 9;
/// How often in a row the message of a partition that is due first may be passed over by others of a higher priority. So one
/// hand-over of ten is for what is due first, and nothing waits indefinitely.
pub const PASSED_OVER_MAX: usize = 9;
pub const MIN_AGE_MAX: Duration = Duration::from_secs(3_650 * 86_400);

/// How long a cancelled id is remembered: as long as a log may still bring the message back.
pub const CANCELLED_KEPT: Duration = Duration::from_secs(24 * 3_600);
/// Cancelled ids that a partition remembers; past it the oldest are forgotten, which only a replay of them would notice.
/// A group in which a message was not cancelled counts as one more.
pub const CANCELLED_IDS_MAX: usize = 100_000;

/// Partitions of one topic. Every owned partition costs a lease renewal each third of the lease ttl.
pub const PARTITIONS_MAX: u16 = 1_024;
/// Groups of one topic. A push writes to all of them in one call.
pub const GROUPS_MAX: usize = 16;
/// Partitions of all groups that one broker is a member of: each costs about 8 KiB, and a renewal each third of the lease ttl
/// when it is owned. The share of one token is as many as the largest topic with all its groups has.
pub const MEMBER_PARTITIONS_MAX: usize = PARTITIONS_MAX as usize * GROUPS_MAX / 8 * 10;

/// Fewest messages a second that a group may be limited to: one in about a quarter of an hour.
pub const RATE_MIN: f64 = 0.001;
pub const RATE_MAX: f64 = 100_000.0;
/// How long a slot is open in which a message of a limited group may be handed out. Longer, and the rate that is reached
/// stays farther below the limit; shorter, and slots are lost to calls that take long.
pub const SLOT_OPEN: Duration = Duration::from_millis(50);
/// How far ahead a slot may be given. When the book of slots is lost none is given for this time and [`SLOT_OPEN`].
pub const SLOT_AHEAD_MAX: Duration = Duration::from_secs(1);

pub const TOPICS_MAX: usize = 10_000;
/// Bytes of the name of an annotation.
pub const ANNOTATION_NAME_BYTES_MAX: usize = 128;
/// Bytes of all annotations of a topic: each partition keeps a copy of the topic's settings.
pub const ANNOTATIONS_BYTES_MAX: usize = 16 * 1024;
/// Messages that an owner holds ready in memory, for each partition of a group.
pub const PREFETCH_MESSAGES_MAX: usize = 1_000;
/// Deliveries of one key that may be made at once, where a key has a rate.
pub const KEY_BURST_MAX: u32 = 10_000;
/// Entries of `weights`, and of `key_limits`, of a group: each partition has a copy.
pub const KEY_PATTERNS_MAX: usize = 100;
/// The largest weight of a key; others have 1.
pub const KEY_WEIGHT_MAX: u32 = 100;
/// Keys of which the owner of a partition remembers when their last deliveries were, where keys have a rate.
pub const PACED_KEYS_MAX: usize = 100_000;
/// By how much earlier than its rate lets it be delivered a message is in the memory of its owner.
pub const PACE_AHEAD: Duration = Duration::from_millis(250);
/// Messages of one key that the memory of a fair group holds although others wait.
pub const KEY_AHEAD_MIN: usize = 2;
/// Sorted messages that are reserved at a time, beside as many that are due.
pub const SORTED_MESSAGES_MAX: usize = CALL_IDS_MAX / 2;
/// Keys of a group that may be paused in one partition at a time.
pub const PAUSED_KEYS_MAX: usize = 10_000;
/// Keys of a fair group that a description of it has: those with the most messages, and the paused ones that are free first.
pub const KEYS_SHOWN_MAX: usize = 100;
/// The oldest due messages of a fair group that one call looks at, and at most as many of the newest: those that the memory has no room
/// for are sorted.
pub const DUE_LOOKED_AT_MAX: usize = 500;
/// Bytes of bodies that an owner holds ready in memory, for each partition of a group.
pub const PREFETCH_BYTES_MAX: usize = CALL_BYTES_MAX;
/// Bytes of bodies that all owned partitions together hold in memory, unless the configuration says otherwise.
pub const PREFETCH_LIMIT_BYTES: u64 = 256 * 1024 * 1024;
/// Bytes of the smallest such limit: several of the largest messages fit.
pub const PREFETCH_LIMIT_BYTES_MIN: u64 = 16 * 1024 * 1024;
pub const PREFETCH_LIMIT_BYTES_MAX: u64 = 64 * 1024 * 1024 * 1024;
/// Messages that stand behind others of their key in an owner's memory, for each partition of a group of a topic with
/// ordering. Past it nothing is reserved until some are handed out: what is behind waits in the store.
pub const PARKED_MESSAGES_MAX: usize = 10_000;
/// Bytes of bodies that an owner keeps of messages in flight and behind others of their key, for each partition of a group
/// of a topic with ordering, but for one more call.
pub const ORDERED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Deliveries in flight for each partition of a group. Past it nothing more is handed out until some settle.
pub const IN_FLIGHT_MAX: usize = 20_000;

/// Bytes of the message of the reason that a consumer gives with a nack, kept as the last error of its message.
pub const REASON_BYTES_MAX: usize = 1_024;
/// Bytes of the class of that error.
pub const ERROR_CLASS_BYTES_MAX: usize = 256;
/// Bytes of its stack.
pub const ERROR_STACK_BYTES_MAX: usize = 4 * 1024;
/// Failed attempts of a message that are remembered, the newest ones.
pub const HISTORY_MAX: usize = 16;
/// Bytes of a reason in the history of attempts, as JSON: a whole history stays below 4 KiB, one part of a value.
pub const HISTORY_REASON_BYTES_MAX: usize = 200;
pub const DEAD_TEXT_BYTES_MAX: usize = 256;

/// Bytes of the payload of a cron job: all cron jobs of a partition are read in one call.
pub const SCHEDULE_PAYLOAD_BYTES_MAX: usize = 16 * 1024;
pub const SCHEDULE_CRON_BYTES_MAX: usize = 256;
pub const SCHEDULE_EVERY_MIN: Duration = Duration::from_secs(1);
pub const SCHEDULE_EVERY_MAX: Duration = DELAY_MAX;
/// Missed occurrences of a cron job that are made up for, the newest.
pub const CRON_JOB_FIRES_MAX: usize = 100;
pub const CRON_JOBS_MAX: usize = 100;
pub const SCHEDULE_PLACES_MAX: usize = 10_000;
/// Findings after which an audit answers; the next call continues.
pub const AUDIT_FINDINGS_MAX: usize = 1_000;
pub const FORECAST_SPANS_MAX: usize = 500;
/// Spans times partitions of a forecast: each is one look into the store. The standard 60 spans fit the largest topic.
pub const FORECAST_COUNTS_MAX: usize = 65_536;
/// Reads over whole topics at the same time (forecast, topic, window, verification, explain). A further one waits.
pub const HEAVY_READS_MAX: usize = 2;
/// Of those, how many one token makes at the same time: a turn is left to others.
pub const WHOLE_READS_OF_TOKEN_MAX: usize = 1;
/// How long a read over a whole topic waits for others before it is refused.
pub const HEAVY_READ_WAIT_MAX: Duration = Duration::from_secs(10);
/// Dead messages a second that a request may ask to redrive.
pub const REDRIVE_RATE_MAX: u32 = 100_000;
/// How long one request works on dead messages before it answers where to go on.
pub const DEAD_REQUEST_MAX: Duration = Duration::from_secs(5);
/// How long one request changes the messages of a window before it answers where to go on.
pub const WINDOW_REQUEST_MAX: Duration = Duration::from_secs(5);
pub const PARKED_FOR: Duration = Duration::from_secs(1_825 * 86_400);
/// How long one request moves messages to another topic before it answers how far it came.
pub const MOVE_REQUEST_MAX: Duration = Duration::from_secs(5);
/// Dead messages that one request looks through for those that are meant, before it answers where to go on.
pub const DEAD_LOOKED_AT_MAX: usize = 100_000;
/// Topics that forward a dead letter, one after the other. A chain has two or three; in a circle of topics a message that
/// always fails would go round without end, as fast as it fails.
pub const FORWARD_HOPS_MAX: u32 = 8;
pub const DEAD_MAX_AGE_MAX: Duration = DELAY_MAX;
pub const DEAD_MAX_COUNT_MAX: u64 = 10_000_000;

/// Open connections of the HTTP listener. One more waits in the kernel.
pub const CONNECTIONS_MAX: usize = 10_000;
/// Open connections of the listener for operators: scrapers and probes are a few, and one more than these evicts one that is idle.
pub const OPERATORS_CONNECTIONS_MAX: usize = 64;
/// Tenths of the connections that waiting consumers may take (long poll, stream); the rest is for other clients.
pub const WAITING_TENTHS: usize = 9;
/// Tenths of the places of waiting consumers, and of the memberships of a broker, that one token may take.
pub const WAITING_SHARE_TENTHS: usize = 8;
/// Bytes of `Host`: the longest name of DNS, a colon and a port. It is repeated in answers.
pub const HOST_BYTES_MAX: usize = 253 + 1 + 5;
pub const STREAM_IN_FLIGHT_MAX: usize = 1_000;
/// Longest silence of a stream: then an empty line is written, since only a write finds out that nobody reads any more.
pub const STREAM_SILENCE_MAX: Duration = Duration::from_secs(15);

pub const WEBHOOKS_MAX: usize = 100;
pub const WEBHOOK_CONCURRENCY_MAX: usize = 256;
pub const WEBHOOK_TIMEOUT_MIN: Duration = Duration::from_millis(100);
/// Longest time for a POST and its answer. Longer operations answer at once and work in the background, or stream.
pub const WEBHOOK_TIMEOUT_MAX: Duration = Duration::from_secs(3_600);
/// How much longer the visibility timeout of a posted delivery is than the timeout of its POST.
pub const WEBHOOK_MARGIN: Duration = Duration::from_secs(5);
/// Longest `Retry-After` of a webhook's target: a mistake there must not park messages for years.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(86_400);
pub const WEBHOOK_ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Bytes of the path of a Unix socket: what the kernel's address structure has room for.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Bytes of a member's id: what dwell writes is shorter.
pub const MEMBER_BYTES_MAX: usize = 100;
/// Characters of a receipt. With the longest names it has 427.
pub const RECEIPT_BYTES_MAX: usize = 512;
/// Keys that receipts are checked with: that of the store, and those of before it lost its data.
pub const RECEIPT_KEYS_MAX: usize = 4;
/// Brokers that one broker remembers as silent: it looks at the leases before it asks them again.
pub const SILENT_BROKERS_MAX: usize = 1_000;
/// Bytes of a datagram from one broker to another. A thousand decisions with reasons of the greatest length fit.
pub const DATAGRAM_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes of all datagrams that have arrived at a broker and are not answered.
pub const DATAGRAMS_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Verdicts that an owner remembers for requests that other brokers may repeat.
pub const REMOTE_VERDICTS_MAX: usize = 250_000;
/// How long an owner reserves nothing for one who changes messages that it held. Two calls to the store are far shorter; if
/// that one is gone, the partition waits no longer.
pub const RECALL_HOLD_MAX: Duration = Duration::from_millis(250);
/// Successive messages of one key that a consumer may get in one batch.
pub const PER_KEY_MAX: usize = 10;
/// Decisions that an owner remembers after they were made, for each partition of a group: who says the same again,
/// because the first answer was lost, gets it again. As many as one request may make.
pub const RECENT_DECISIONS_MAX: usize = BATCH_MESSAGES_MAX;
pub const WAITERS_MAX: usize = 10_000;
/// Acquisitions that one member of a group has in flight. A new member owns its share after a few round trips, and a
/// store that comes back is not met by all partitions of all members at once.
pub const ACQUIRES_MAX: usize = 32;

/// Messages that a group may hold in one partition, dead ones not counted.
pub const GROUP_PARTITION_MESSAGES_MAX: u64 = 10_000_000;
/// Bytes of the embedded store's disk that pushes leave free: a write that fails on a full disk stops the store until it
/// is opened again, and acknowledging what is there needs room too. More than a few calls write between two looks.
pub const DISK_RESERVE_BYTES: u64 = 64 * 1024 * 1024;
/// Bytes of payloads handed out in one answer, but for the last message of it.
pub const DELIVERIES_BYTES_MAX: usize = 8 * 1024 * 1024;

pub const WAL_BYTES_MIN: u64 = 16 * 1024 * 1024;
pub const WAL_BYTES_MAX: u64 = 1024 * 1024 * 1024 * 1024;
/// Bytes of a note that a write-ahead log keeps beside its records, such as whose they are.
pub const NOTE_BYTES_MAX: usize = 1_024;
/// Ids and dedup keys of the write-ahead log that a broker lists in memory, about 40 bytes each. If the log holds more, any id that a
/// producer gives may be among them, and its push is buffered too until the others are replayed.
pub const HELD_IDS_MAX: usize = 500_000;
/// Microseconds by which the version of a record that is handed over may be ahead of the store's clock: five minutes, since what is
/// ahead cannot be cancelled or replaced until the clock has come that far.
pub const HANDED_OVER_AHEAD_MAX: usize = 300_000_000;
pub const STREAM_BYTES_MAX: usize = 64;
