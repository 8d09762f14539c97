"""What OpenAPI cannot say about requests: the ranges of durations, and which fields go together.

A request that the document allows is changed to one that these rules allow, too. One that the document forbids is sent as
it is.
"""

import json
import os
import re

import schemathesis
from hypothesis import strategies as st

# In the range of every duration: of a visibility timeout (100 ms to 12 h) and of a wait (up to 60 s), say.
SHORT = ["1s", "1500ms", "PT2S"]
DURATIONS = {
    "dead_max_age", "debounce_max", "dedup_for", "dedup_window", "delay", "every", "for", "initial", "linger", "max", "min_age",
    "older_than", "spread", "step", "ttl", "visibility_timeout", "wait", "younger_than",
}  # fmt: skip
# Of those that exclude each other the first one stays.
EXCLUSIVE = [
    ("delay", "due_at"), ("for", "until"), ("every", "cron", "time_zone"),
    ("payload", "payload_base64", "payload_json"), ("payload_base64", "payload_json"),
    ("initial", "initial_ms"), ("max", "max_ms"), ("steps", "steps_ms"),
    ("ids", "all", "dry_run", "reason", "older_than", "younger_than", "text", "limit", "rate"), ("delay", "bury"),
    ("all", "reason", "older_than", "younger_than", "text", "limit", "rate"),
]  # fmt: skip
SELECTORS = ("ids", "all", "reason", "older_than", "older_than_ms", "younger_than", "younger_than_ms", "text")
# A receipt of the group `default` of the topic `orders`, which the broker gave out; any other text is answered 422.
RECEIPT = os.environ["CONTRACT_RECEIPT"]
ETAG = r'[*]|"[0-9]{1,15}[.][0-9]{1,9}"'
TRACEPARENT, TRACESTATE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "congo=t61rcWkgMzE"
# A stream has no end, so it uses a group that does not exist: a topic would be created. The others use a topic that does not
# exist: they would delete the one that all use.
ENDLESS, DELETING = "streamMessages", ("deleteTopic", "deleteGroup", "moveTopic")

schemathesis.openapi.format("dwell-duration", st.sampled_from(SHORT))
schemathesis.openapi.format("date-time", st.sampled_from(["2026-01-02T03:04:05Z", "2026-01-02T04:04:05.678+01:00"]))
schemathesis.openapi.format("etag", st.sampled_from(["*", '"1767323045678.1"']))
schemathesis.openapi.format("cron", st.sampled_from(["0 3 * * *", "*/5 9-17 * * MON-FRI"]))
schemathesis.openapi.format("time-zone", st.sampled_from(["UTC", "Europe/Berlin"]))
schemathesis.openapi.format("tracestate", st.just(TRACESTATE))
schemathesis.openapi.format("traceparent", st.just(TRACEPARENT))


@schemathesis.serializer("application/x-ndjson")
def write_lines(ctx, value):
    return json.dumps(value).encode() + b"\n"


# Of records too: a page is in the form of the log, so text is none, and is refused.
@schemathesis.serializer("application/vnd.dwell.records")
def write_page(ctx, value):
    return value if isinstance(value, bytes) else json.dumps(value).encode()


@schemathesis.deserializer("application/x-ndjson")
def read_lines(ctx, response):
    return json.loads(next(line for line in response.text.splitlines() if line))


def agree(fields, operation):
    """Makes fields, or parameters, that are each allowed go together."""
    fields.pop("cursor", None)  # Opaque: only dwell makes one.
    for name, value in fields.items():
        if isinstance(value, float) and value.is_integer():
            fields[name] = int(value)  # 5.0 is an integer in JSON Schema, and none in dwell.
    for name in [name for name in fields if name.removesuffix("_ms") in DURATIONS and name.endswith("_ms")]:
        fields.pop(name)
        fields.setdefault(name.removesuffix("_ms"), SHORT[1])  # The same rules; one of the two.
    if "due_at" not in fields:
        fields.pop("past", None)
    else:
        fields["past"] = "now"
    for name in DURATIONS & fields.keys():
        if name != "max" or operation != "reserveMessages":
            fields[name] = "30d" if name == "ttl" else SHORT[0]
    if "tracestate" in fields or "traceparent" in fields:
        fields.update(traceparent=TRACEPARENT, tracestate=TRACESTATE)
    for name in ("annotations", "meta"):
        if len(json.dumps(fields.get(name, {}))) > 8_000:
            fields[name] = {"source": "checkout"}
    if "@" in str(fields.get("id", "")):
        fields["id"] = "order-4711"  # An id with a time may be for an occurrence of a cron job.
    if "content_type" in fields:
        fields["content_type"] = "text/plain"
    if "dedup_for" in fields or "dedup_key" in fields:
        fields.update(dedup_for=SHORT[0], dedup_key="order-4711")
        fields.pop("conflict", None)  # It is `keep`.
        fields.pop("debounce_max", None)
    if "debounce_max" in fields:
        fields["conflict"] = "debounce"
    if operation == "reserveMessages":
        fields.pop("per_key", None)  # The topic has no ordering,
        fields.pop("on_failure", None)  # so a batch has no rest.
    if fields.get("order") == "due":
        fields["state"] = "scheduled"
    for first, *others in EXCLUSIVE:
        if first in fields:
            for other in others:
                fields.pop(other, None)
    if "every" not in fields and "cron" in fields:
        fields.pop("from", None)
    if fields.get("action") in ("cancel", "park", "unpark"):
        fields.pop("by", None)
        fields.pop("by_ms", None)
    elif "action" in fields:
        fields["by"] = "2h"
        fields.pop("by_ms", None)
    if "due_at" in fields:
        fields["due_at"] = "2026-01-02T03:04:05Z"  # Not more than ten years ahead.
    if "from" in fields and "to" in fields:
        fields["from"], fields["to"] = "2026-01-02T03:04:05Z", "2026-01-02T04:04:05Z"
    if fields.get("max_in_flight"):
        fields["max_in_flight"] = 5_000  # At least as many as partitions.
    if {"fair", "key_max_in_flight", "key_rate", "key_burst", "weights", "key_limits"} & fields.keys():
        fields.update(fair="none", key_max_in_flight=0, key_rate=0, weights={}, key_limits={})  # Its topic may have an ordering.
        fields.pop("key_burst", None)  # Only with a rate of a key.
    if fields.get("window"):
        fields["window"] = {"from": "00:00", "to": "23:59", "time_zone": "Europe/Berlin"}  # A time zone that exists.
    if isinstance(fields.get("backoff"), dict):
        agree(fields["backoff"], operation)
        if fields["backoff"]["kind"] == "ladder":
            fields["backoff"]["steps"] = SHORT
            fields["backoff"].pop("steps_ms", None)
        else:
            fields["backoff"].setdefault("initial", SHORT[0])
            fields["backoff"].setdefault("max", SHORT[0])
    if "receipt" in fields:
        fields["receipt"] = RECEIPT
    if isinstance(fields.get("receipts"), list):
        fields["receipts"] = [RECEIPT if isinstance(item, str) else item for item in fields["receipts"]]
    for item in fields.get("messages") or fields.get("receipts") or []:
        if isinstance(item, dict):
            agree(item, operation)


def complete(message):
    """Gives a message a payload, if it has none."""
    if isinstance(message, dict) and not {"payload_base64", "payload_json"} & message.keys():
        message.setdefault("payload", "")


def is_allowed(meta, operation):
    """Whether the document allows a request as it is sent: the headers of a push that it may forbid are taken away."""
    wrong = {place.name for place, part in meta.components.items() if part.mode.is_negative} if meta else {"BODY"}
    return not wrong or wrong == {"HEADER"} and operation == "pushMessage"


def remove_header(case, name):
    for found in [found for found in case.headers or {} if found.lower() == name]:
        case.headers.pop(found)


@schemathesis.hook
def before_call(ctx, case, kwargs):
    operation = case.operation.definition.raw.get("operationId")
    if not is_allowed(case.meta, operation):
        if operation == ENDLESS:
            case.path_parameters.update(topic="orders", group="absent")
            (case.query or {}).pop("visibility_timeout_ms", None)
        if operation == "pushMessage":
            remove_header(case, "dwell-raw")  # With it any body is a payload.
        return
    if "topic" in (case.path_parameters or {}):
        case.path_parameters["topic"] = "absent" if operation in DELETING else "orders"
        if "group" in case.path_parameters:
            case.path_parameters["group"] = "absent" if operation == ENDLESS else "default"
    if "If-Match" in case.headers and not re.fullmatch(ETAG, case.headers["If-Match"]):
        case.headers["If-Match"] = "*"  # Some headers of the coverage phase are not of their pattern.
    if "id" in (case.query or {}):
        case.headers.pop("Idempotency-Key", None)  # The same as `id`.
    if "@" in case.headers.get("Idempotency-Key", ""):
        case.headers["Idempotency-Key"] = "order-4711"
    if operation == "rescheduleMessage" and isinstance(case.body, dict) and "due_at" not in case.body:
        case.body.setdefault("delay", SHORT[0])
    if operation == "rescheduleMessage" and isinstance(case.body, dict) and "due_at" in case.body:
        case.body["past"] = "now"
    if operation == "createOrUpdateCronJob" and isinstance(case.body, dict):
        complete(case.body)
        if "cron" not in case.body:
            case.body.setdefault("every", SHORT[0])
    if operation == "pushMessage":
        remove_header(case, "idempotency-key")  # A key stands for one payload, and another one is refused.
    if operation == "pushMessage" and isinstance(case.body, dict):
        complete(case.body)
        case.query = {}  # An envelope says all of it.
        remove_header(case, "dwell-raw")
    if operation == "purgeGroup" and isinstance(case.body, dict):
        case.body["all"] = True
    if operation in ("purgeDeadLetters", "redriveDeadLetters") and isinstance(case.body, dict):
        if not case.body.get("all"):
            case.body.pop("all", None)
        if not any(case.body.get(name) for name in SELECTORS):
            case.body["all"] = True
    if operation == "extendMessages" and isinstance(case.body, dict):
        case.body.setdefault("visibility_timeout", SHORT[0])
    if operation == "pushMessages" and isinstance(case.body, dict):
        for message in case.body.get("messages", [case.body]):
            complete(message)
    for fields in (case.query, case.body):
        if isinstance(fields, dict):
            agree(fields, operation)
