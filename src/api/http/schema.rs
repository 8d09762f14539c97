//! Schemas that many requests and answers share. They exist only for the OpenAPI document; a pattern describes the syntax
//! that the parser of the same name accepts.

use serde_json::json;
use utoipa::openapi::schema::{
    AdditionalProperties, AnyOfBuilder, ArrayBuilder, Discriminator, KnownFormat, ObjectBuilder, OneOfBuilder, Schema,
    SchemaFormat, SchemaType, Type,
};
use utoipa::openapi::{Components, Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

use crate::codec::DeadLetterReason;
use crate::delivery::Verdict;
use crate::model::error::Fault;
use crate::model::limits::{
    ANNOTATION_NAME_BYTES_MAX, ANNOTATIONS_BYTES_MAX, CONTENT_TYPE_BYTES_MAX, DEAD_TEXT_BYTES_MAX, DEDUP_KEY_BYTES_MAX,
    ID_BYTES_MAX, KEY_BYTES_MAX, KEY_PATTERNS_MAX, KEY_WEIGHT_MAX, LADDER_STEPS_MAX, META_COUNT_MAX, NAME_BYTES_MAX,
    RATE_MAX, RATE_MIN, TRACESTATE_BYTES_MAX,
};
use crate::model::message;
use crate::model::retry;
use crate::model::window::weekdays;

/// Not only dots: URLs would lose them.
const NAME: &str = r"^[.]*[A-Za-z0-9_-][A-Za-z0-9._-]*$";

const NAME_OR_NONE: &str = r"^([.]*[A-Za-z0-9_-][A-Za-z0-9._-]*)?$";

const ID: &str = r"^([.]{0,2}[!-\-/-~]|[.]{3})[!-~]*$";

/// Units in descending order, or an ISO 8601 duration without years and months.
const DURATION: &str =
    r"^(([0-9]+(w|d|h|m|s|ms|us|ns))+|P([0-9]+W)?([0-9]+D)?(T([0-9]+H)?([0-9]+M)?([0-9]+([.][0-9]+)?S)?)?)$";

/// Padded, with zero in the unused bits.
const BASE64: &str = r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$";

const MEDIA_TYPE: &str = r"^[!-.0-:<-~]+/[!-.0-:<-~]+ *(;[ -~]*)?$";

const VISIBLE: &str = r"^[ -~]*$";

const PRINTABLE: &str = r"^[^\u0000-\u001f\u007f-\u009f]*$";

const TRACEPARENT: &str = r"^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?$";

const ETAG: &str = r#"^([*]|"[0-9]{1,15}[.][0-9]{1,9}")$"#;

const TOPIC_ETAG: &str = r#"^([*]|"[0-9]{1,16}")$"#;

/// Smaller numbers look like seconds.
const TIME_MIN: u64 = 100_000_000_000;

/// The last millisecond of the year 9999.
const TIME_MAX: u64 = 253_402_300_799_999;

fn text(pattern: &str, lengths: std::ops::RangeInclusive<usize>) -> ObjectBuilder {
    let (shortest, longest) = lengths.into_inner();
    let text = ObjectBuilder::new().schema_type(Type::String).pattern(Some(pattern));
    text.min_length(Some(shortest)).max_length(Some(longest))
}

fn free_text(lengths: std::ops::RangeInclusive<usize>) -> ObjectBuilder {
    let (shortest, longest) = lengths.into_inner();
    ObjectBuilder::new().schema_type(Type::String).min_length(Some(shortest)).max_length(Some(longest))
}

fn pattern(pattern: &str, format: &str) -> ObjectBuilder {
    let format = SchemaFormat::Custom(format.to_owned());
    ObjectBuilder::new().schema_type(Type::String).pattern(Some(pattern)).format(Some(format))
}

fn words(words: impl IntoIterator<Item = &'static str>) -> ObjectBuilder {
    let words: Vec<_> = words.into_iter().collect();
    ObjectBuilder::new().schema_type(Type::String).examples(words.first().copied()).enum_values(Some(words))
}

fn date_time() -> ObjectBuilder {
    let format = SchemaFormat::KnownFormat(KnownFormat::DateTime);
    ObjectBuilder::new().schema_type(Type::String).format(Some(format)).examples(["2026-01-02T03:04:05.678Z"])
}

fn integer(range: std::ops::RangeInclusive<u64>) -> ObjectBuilder {
    let format = SchemaFormat::KnownFormat(KnownFormat::Int64);
    let integer = ObjectBuilder::new().schema_type(Type::Integer).format(Some(format));
    integer.minimum(Some(*range.start() as f64)).maximum(Some(*range.end() as f64))
}

fn duration(about: &str) -> Ref {
    let mut reference = Ref::from_schema_name("Duration");
    reference.description = about.to_owned();
    reference
}

fn number(least: f64, most: f64) -> ObjectBuilder {
    let format = SchemaFormat::KnownFormat(KnownFormat::Double);
    let number = ObjectBuilder::new().schema_type(Type::Number).format(Some(format));
    number.minimum(Some(least)).maximum(Some(most))
}

/// An optional list of a schema that is registered under a name elsewhere.
pub(crate) fn list_of(name: &str) -> ArrayBuilder {
    let types = SchemaType::from_iter([Type::Array, Type::Null]);
    ArrayBuilder::new().schema_type(types).items(Ref::from_schema_name(name))
}

fn steps(of: RefOr<Schema>) -> ArrayBuilder {
    let steps = ArrayBuilder::new().items(of).description(Some("1 to 32 delays."));
    steps.min_items(Some(1)).max_items(Some(LADDER_STEPS_MAX))
}

macro_rules! schemas {
    ($($(#[doc = $doc:literal])+ $name:ident = $schema:expr;)+) => {
        $(
            $(#[doc = $doc])+
            pub(crate) enum $name {}

            impl PartialSchema for $name {
                fn schema() -> RefOr<Schema> {
                    $schema.description(Some(concat!($($doc),+).trim())).into()
                }
            }

            impl ToSchema for $name {}
        )+

        /// All of them, by their names.
        fn all() -> Vec<(&'static str, RefOr<Schema>)> {
            vec![$((stringify!($name), $name::schema())),+]
        }
    };
}

/// Says what the schemas are that the types of the wire only name.
pub(crate) fn define(components: &mut Components) {
    for (name, schema) in all() {
        if let Some(named) = components.schemas.get_mut(name) {
            *named = schema;
        }
    }
}

schemas! {
    /// Name of a topic: 1 to 100 of `A-Z a-z 0-9 . _ -`, not only dots.
    TopicName = text(NAME, 1..=NAME_BYTES_MAX).examples(["orders"]);
    /// Name of a topic, or nothing.
    TopicNameOrNone = text(NAME_OR_NONE, 0..=NAME_BYTES_MAX).examples(["orders-dead"]);
    /// Name of a group: 1 to 100 of `A-Z a-z 0-9 . _ -`, not only dots.
    GroupName = text(NAME, 1..=NAME_BYTES_MAX).examples(["default"]);
    /// Name of a cron job: 1 to 100 of `A-Z a-z 0-9 . _ -`, not only dots.
    CronName = text(NAME, 1..=NAME_BYTES_MAX).examples(["nightly"]);
    /// Message id: 1 to 128 visible ASCII characters without spaces, neither `.` nor `..`.
    MessageId = text(ID, 1..=ID_BYTES_MAX).examples(["order-4711"]);
    /// Message key: 1 to 256 bytes of UTF-8 without control characters. Messages with equal keys share a partition.
    Key = text(PRINTABLE, 1..=KEY_BYTES_MAX).examples(["customer-7"]);
    /// A dedup key: 1 to 128 bytes of UTF-8 without control characters.
    DedupKey = text(PRINTABLE, 1..=DEDUP_KEY_BYTES_MAX).examples(["close-4711"]);
    /// A delivery's receipt, which settles or extends it. Opaque.
    Receipt = ObjectBuilder::new().schema_type(Type::String).examples(["AmvT0rJ8k1xQd5Zb2nYc7hWf3uLs9eGp4iKo6aXtRv_q"]);
    /// A receipt, alone or as `{"receipt": "…"}`.
    ReceiptOrObject = AnyOfBuilder::new()
        .item(Ref::from_schema_name("Receipt"))
        .item(ObjectBuilder::new()
            .property("receipt", Ref::from_schema_name("Receipt"))
            .required("receipt")
            .additional_properties(Some(AdditionalProperties::FreeForm(false))))
        .examples(["AmvT0rJ8k1xQd5Zb2nYc7hWf3uLs9eGp4iKo6aXtRv_q"]);
    /// The `next_cursor` of the previous answer. Opaque.
    Cursor = pattern("^.*$", "cursor").examples(["3.0.1767323045678.b3JkZXItNDcxMQ"]);
    /// Names a message's due time and attempts.
    Etag = pattern(ETAG, "etag").examples(["\"1767323045678.1\""]);
    /// Names a version of a topic; `*` is any.
    TopicEtag = pattern(TOPIC_ETAG, "etag").examples(["\"1767323045678\""]);
    /// A duration: text with units (`30s`, `1h30m`, `250ms`, `30d`), or ISO 8601 (`PT30M`).
    Duration = pattern(DURATION, "dwell-duration").examples(["30s"]);
    /// An OpenAPI 3.1 document.
    OpenApiDocument = ObjectBuilder::new()
        .schema_type(Type::Object)
        .examples([json!({"openapi": "3.1.0", "info": {"title": "dwell", "version": "0.1.0"}, "paths": {}})]);
    /// Metrics in the text format of Prometheus.
    MetricsText = ObjectBuilder::new()
        .schema_type(Type::String)
        .examples(["# TYPE dwell_http_requests_total counter\n"]);
    /// Text to search for, byte for byte: 1 to 256 bytes.
    SearchText = ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(1))
        .max_length(Some(DEAD_TEXT_BYTES_MAX))
        .examples(["smtp: 550"]);
    /// Messages delivered in a second, at most: 0.001 to 100,000, or 0 for no limit.
    Rate = AnyOfBuilder::new()
        .item(number(RATE_MIN, RATE_MAX))
        .item(integer(0..=0))
        .examples([10.0]);
    /// A point in time: RFC 3339 with any offset, or integer milliseconds since 1970-01-01T00:00:00Z from 10^11 on.
    Time = AnyOfBuilder::new()
        .item(date_time())
        .item(integer(TIME_MIN..=TIME_MAX))
        .examples(["2026-01-02T03:04:05Z"]);
    /// A payload: any bytes, at most 1 MiB.
    Payload = ObjectBuilder::new()
        .schema_type(Type::String)
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::Binary)))
        .examples(["close order 4711"]);
    /// Bytes in standard base64 with padding.
    Base64 = pattern(BASE64, "byte").examples(["/wA="]);
    /// Media type of a payload: up to 128 visible ASCII characters.
    ContentType = text(MEDIA_TYPE, 3..=CONTENT_TYPE_BYTES_MAX).examples(["text/plain"]);
    /// Names and values that travel with a payload: at most 32 entries, 8 KiB together.
    Meta = ObjectBuilder::new()
        .schema_type(Type::Object)
        .property_names(Some(text("^[a-z0-9._-]+$", 1..=255)))
        .additional_properties(Some(text(PRINTABLE, 0..=8_192)))
        .extensions(Some([("maxProperties".to_owned(), json!(META_COUNT_MAX))].into_iter().collect()))
        .examples([json!({"source": "checkout"})]);
    /// Texts about a topic: names of 1 to 128 bytes, at most 16 KiB together.
    Annotations = ObjectBuilder::new()
        .schema_type(Type::Object)
        .property_names(Some(free_text(1..=ANNOTATION_NAME_BYTES_MAX)))
        .additional_properties(Some(free_text(0..=ANNOTATIONS_BYTES_MAX)))
        .examples([json!({"team": "checkout"})]);
    /// How large the shares of keys are: names of keys, or beginnings of names with a `*` behind them, at most 100.
    Weights = ObjectBuilder::new()
        .schema_type(Type::Object)
        .property_names(Some(text(PRINTABLE, 1..=KEY_BYTES_MAX)))
        .additional_properties(Some(integer(1..=u64::from(KEY_WEIGHT_MAX))))
        .extensions(Some([("maxProperties".to_owned(), json!(KEY_PATTERNS_MAX))].into_iter().collect()))
        .examples([json!({"customer-7": 3, "gold-*": 2})]);
    /// W3C `traceparent`.
    TraceParent = pattern(TRACEPARENT, "traceparent")
        .examples(["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"]);
    /// W3C `tracestate`.
    TraceState = text(VISIBLE, 0..=TRACESTATE_BYTES_MAX).format(Some(SchemaFormat::Custom("tracestate".into())))
        .examples(["congo=t61rcWkgMzE"]);
    /// Cron expression of five fields: minute, hour, day of month, month, day of week; or a name such as `@daily`.
    CronExpression = pattern(r"^\s*(@[A-Za-z]+|\S+\s+\S+\s+\S+\s+\S+\s+\S+)\s*$", "cron").examples(["0 3 * * *"]);
    /// State of a cron job: `failed` when its next time cannot be computed.
    CronState = words(["active", "paused", "failed"]);
    /// IANA name of a time zone.
    TimeZone = pattern("^[A-Za-z0-9_+/-]+$", "time-zone").examples(["Europe/Berlin"]);
    /// Hours and minutes: `00:00` to `23:59`.
    TimeOfDay = pattern("^([01][0-9]|2[0-3]):[0-5][0-9]$", "time-of-day").examples(["09:00"]);
    /// A day of the week.
    Weekday = words(weekdays());
    /// Code of an error: docs/reference/errors.md lists them all.
    FaultCode = words(Fault::ALL.map(Fault::code));
    /// Policy for a due time in the past.
    Past = words(["now", "reject"]);
    /// Policy of a push when a message with its id exists.
    ConflictPolicy = words(message::Conflict::ALL.map(message::Conflict::name));
    /// Policy for the later messages of a key in a batch when one fails.
    OnFailure = words(retry::OnFailure::ALL.map(retry::OnFailure::name));
    /// Outcome of a push.
    PushStatus = words(["stored", "journaled", "buffered", "duplicate", "replaced", "debounced", "error"]);
    /// State of a message in a group.
    MessageState = words(["scheduled", "ready", "blocked", "backoff", "in_flight", "dead"]);
    /// Order of a list of messages.
    ListOrder = words(["partition", "due"]);
    /// Order of a list of dead letters.
    DeadLetterOrder = words(["partition", "oldest", "newest"]);
    /// Why a message is dead.
    DeathReason = words(DeadLetterReason::ALL.map(DeadLetterReason::name));
    /// State of a group; `paused`, `closed` and `copying` groups deliver nothing.
    GroupState = words(["active", "paused", "closed", "copying"]);
    /// Order of delivery within a topic.
    Ordering = words(["none", "key"]);
    /// Whether the keys of a group take turns.
    Fairness = words(["none", "key"]);
    /// Policy for an expired message.
    Expiry = words(["drop", "bury"]);
    /// Policy for missed occurrences.
    Missed = words(["last", "skip", "all"]);
    /// Bulk operation on the messages of a window.
    BulkAction = words(["cancel", "postpone", "advance", "park", "unpark"]);
    /// Inconsistency of stored data.
    Defect = words("body_without_id id_without_body charge_without_body \
        dead_id_without_body dead_body_without_id".split(' '));
    /// Outcome of a cancel or reschedule.
    ControlStatus = words(["cancelled", "rescheduled", "partly"]);
    /// Outcome of a cancel or reschedule in one group.
    GroupControlStatus = words(["cancelled", "rescheduled", "in_flight", "dead", "absent"]);
    /// Verdict on one receipt.
    VerdictStatus = words("acked nacked released buried extended stale unknown_outcome unknown pending unreachable".split(' '));
    /// Why a decision about a delivery does not count.
    VerdictReason = words(Verdict::REFUSALS.into_iter().filter_map(Verdict::reason));
    /// Why a message is not delivered yet.
    ExplainReason = words("scheduled retrying paused closed copying no_consumer rate_limited at_max_in_flight key_paused key_at_max_in_flight key_rate_limited \
        behind_others ready prefetched backoff behind_its_key in_flight moving decided elsewhere \
        dead buffered unknown".split(' '));
    /// Delay between attempts that grows by a factor.
    ExponentialBackoff = ObjectBuilder::new()
        .additional_properties(Some(AdditionalProperties::FreeForm(false)))
        .property("kind", words(["exponential"]))
        .property("initial", duration("The first delay."))
        .property("initial_ms", integer(0..=TIME_MAX).description(Some("The same in milliseconds; replies have this one.")))
        .property("max", duration("The longest delay."))
        .property("max_ms", integer(0..=TIME_MAX).description(Some("The same in milliseconds; replies have this one.")))
        .property("factor", number(1.0, 100.0).description(Some("Factor from one delay to the next.")))
        .property("jitter", number(0.0, 1.0).description(Some("Fraction by which a delay is randomly shortened at most.")))
        .required("kind")
        .required("factor")
        .required("jitter")
        .examples([json!({"kind": "exponential", "initial": "1s", "max": "10m", "factor": 2.0, "jitter": 0.2})]);
    /// Listed delays: before the second, the third, … attempt. The last one repeats.
    LadderBackoff = ObjectBuilder::new()
        .additional_properties(Some(AdditionalProperties::FreeForm(false)))
        .property("kind", words(["ladder"]))
        .property("steps", steps(Ref::from_schema_name("Duration").into()))
        .property("steps_ms", steps(integer(0..=TIME_MAX).into()).description(Some("The same in milliseconds; replies have this one.")))
        .required("kind")
        .examples([json!({"kind": "ladder", "steps": ["10s", "1m", "10m"]})]);
    /// Delay after a failed attempt.
    Backoff = OneOfBuilder::new()
        .item(Ref::from_schema_name("ExponentialBackoff"))
        .item(Ref::from_schema_name("LadderBackoff"))
        .discriminator(Some(Discriminator::with_mapping("kind", [
            ("exponential", "#/components/schemas/ExponentialBackoff"),
            ("ladder", "#/components/schemas/LadderBackoff"),
        ])));
}
