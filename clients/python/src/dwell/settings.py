"""Messages and settings of topics, as they are sent to the broker. The names are those of the HTTP API."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any, List, Literal, Mapping, Protocol, TypedDict, Union

from .values import Duration, Time, compact, due_fields, duration_field, milliseconds, not_empty, ulid

Conflict = Literal["keep", "reject", "replace", "debounce", "after"]
Past = Literal["now", "reject"]
State = Literal["scheduled", "ready", "blocked", "backoff", "in_flight", "dead"]
DeathReason = Literal["max_attempts", "buried", "unreadable", "expired"]
BulkAction = Literal["cancel", "postpone", "advance", "park", "unpark"]
Missed = Literal["last", "skip", "all"]
Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
#: What takes turns in a group: with ``key`` each key that has due messages has its share of the deliveries, however many another one has; with
#: ``none`` messages are delivered in the order of their due times.
Fairness = Literal["none", "key"]


class Identified(Protocol):
    """An object with the id and the key of a message, such as a `NewMessage`, `Message`, `ListedMessage` or `Delivery`."""

    @property
    def id(self) -> str: ...

    @property
    def key(self) -> str | None: ...


class ExponentialBackoff(TypedDict, total=False):
    """A delay between attempts that grows by a factor."""

    kind: Literal["exponential"]
    initial: Duration
    max: Duration
    #: Factor from one delay to the next.
    factor: float
    #: Fraction by which a delay is randomly shortened at most.
    jitter: float


class LadderBackoff(TypedDict, total=False):
    """Listed delays: before the second, the third, … attempt. The last one repeats."""

    kind: Literal["ladder"]
    steps: list[Duration]


class DeadLetterTopic(TypedDict):
    """The topic to which dead letters move; an empty name for none."""

    topic: str


class TopicSettings(TypedDict, total=False):
    """Settings of a topic. Those that are absent stay unchanged, or have their defaults in a new topic."""

    partitions: int
    visibility_timeout: Duration
    max_attempts: int
    backoff: Union[ExponentialBackoff, LadderBackoff]
    dead_letter: DeadLetterTopic
    dead_max_age: Duration
    dead_max_count: int
    dedup_window: Duration
    on_expiry: Literal["drop", "bury"]
    ordering: Literal["none", "key"]
    ttl: Duration
    annotations: Mapping[str, str]


#: When a group delivers messages, from one time of the day to another, such as ``09:00``, on all days or on some, by the clock of UTC or of a time
#: zone. An empty one is always open.
DeliveryWindow = TypedDict(
    "DeliveryWindow", {"days": List[Weekday], "from": str, "to": str, "time_zone": str}, total=False
)


class KeyLimit(TypedDict, total=False):
    """Limits of some keys of a fair group. One that is absent is that of the group."""

    #: Deliveries in flight of each such key, at most; 0 is without a limit.
    max_in_flight: int
    #: Deliveries of each such key in a second, at most, 0.001 to 100,000; 0 is without a limit.
    rate: float
    #: Deliveries of each such key that may come at once, 1 to 10,000; only with a `rate`. Default 1.
    burst: int


class PushOptions(TypedDict, total=False):
    """The options of a push. `NewMessage` has the same fields."""

    id: str | None
    key: str | None
    delay: Duration | None
    due_at: Time | None
    past: Past | None
    ttl: Duration | None
    priority: int | None
    max_attempts: int | None
    conflict: Conflict | None
    content_type: str | None
    meta: Mapping[str, str] | None
    dedup_key: str | None
    dedup_for: Duration | None
    spread: Duration | None
    debounce_max: Duration | None


@dataclass
class NewMessage:
    """A message to push. `payload` is bytes, text, or any other value, which is sent as JSON.

    It has an id before it is sent, so it is stored once, however often it is sent.
    """

    payload: Any
    id: str = field(default_factory=ulid)
    key: str | None = None
    delay: Duration | None = None
    due_at: Time | None = None
    past: Past | None = None
    ttl: Duration | None = None
    priority: int | None = None
    max_attempts: int | None = None
    conflict: Conflict | None = None
    content_type: str | None = None
    meta: Mapping[str, str] | None = None
    dedup_key: str | None = None
    dedup_for: Duration | None = None
    #: The due time moves by up to this, by a value that the id decides.
    spread: Duration | None = None
    #: With the policy ``debounce``: how long after its first push the message may be due at the latest.
    debounce_max: Duration | None = None
    traceparent: str | None = None
    tracestate: str | None = None

    def encoded(self) -> bytes:
        """The message as JSON. Raises `ValueError` or `TypeError` for what the broker would refuse in any case."""
        body = payload_field(self.payload)
        body |= {"id": not_empty("id", self.id), **due_fields(self.delay, self.due_at)}
        for name in ("ttl", "dedup_for", "spread", "debounce_max"):
            body |= duration_field(name, getattr(self, name))
        if self.key is not None:
            body["key"] = not_empty("key", self.key)
        if self.dedup_key is not None:
            body["dedup_key"] = not_empty("dedup_key", self.dedup_key)
        for name in ("past", "priority", "max_attempts", "conflict", "content_type", "meta", "traceparent", "tracestate"):
            value = getattr(self, name)
            if value is not None:
                body[name] = value
        return compact(body)


def payload_field(payload: Any) -> dict[str, Any]:
    """The field for a payload: bytes, text, or any other value, which is sent as JSON."""
    if isinstance(payload, (bytes, bytearray, memoryview)):
        return {"payload_base64": base64.b64encode(payload).decode()}
    return {"payload" if isinstance(payload, str) else "payload_json": payload}


def settings_body(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a topic as they are sent. Raises `TypeError` if there is no setting of a name."""
    body: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in TopicSettings.__annotations__:
            raise TypeError(f"{name!r} is not a setting of a topic")
        if name in ("visibility_timeout", "dead_max_age", "dedup_window", "ttl"):
            body |= duration_field(name, value)
        else:
            body[name] = _backoff_body(value) if name == "backoff" else value
    return body


def _backoff_body(backoff: Mapping[str, Any]) -> dict[str, Any]:
    body = {name: value for name, value in backoff.items() if name not in ("initial", "max", "steps")}
    body |= {**duration_field("initial", backoff.get("initial")), **duration_field("max", backoff.get("max"))}
    steps = backoff.get("steps", [])
    if all(isinstance(step, str) for step in steps):
        return {**body, "steps": steps} if steps else body
    return {**body, "steps_ms": [milliseconds(step) for step in steps]}
