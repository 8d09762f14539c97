"""What is pushed and what the broker answers."""

from __future__ import annotations

import base64
import json
import os
import re
import time
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Literal, Mapping, TypeVar, Union, cast

Duration = Union[str, timedelta]
"""Text such as ``30s`` or ``1h30m``, or a `timedelta`."""
Conflict = Literal["keep", "reject", "replace", "debounce"]

T = TypeVar("T")
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def ulid() -> str:
    """A new ULID: sortable by time, unique."""
    number = time.time_ns() // 1_000_000 << 80 | int.from_bytes(os.urandom(10), "big")
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))


def milliseconds(duration: Duration) -> int:
    """A duration in whole milliseconds, rounded up. Raises `ValueError` if the text is not a duration."""
    if isinstance(duration, timedelta):
        return -(-duration // timedelta(milliseconds=1))
    if not re.fullmatch(r"(\d+(\.\d+)?(ms|[smhd]))+", duration):
        raise ValueError(f"{duration!r} is not a duration such as '30s', '1h30m' or '250ms'")
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|[smhd])", duration)
    return round(sum(float(number) * _UNITS[unit] for number, unit in parts) * 1000)


def seconds(duration: Duration) -> float:
    """A duration in seconds."""
    return milliseconds(duration) / 1000


def duration_field(name: str, duration: Duration | None) -> dict[str, Any]:
    """The field of a request for a duration: text is passed on as it is."""
    if duration is None:
        return {}
    if isinstance(duration, str):
        return {name: duration}
    if isinstance(duration, timedelta):
        return {f"{name}_ms": milliseconds(duration)}
    raise TypeError(f"{name}: expected text such as '30s' or a timedelta, not {duration!r}")


def time_field(name: str, at: datetime | str | None) -> dict[str, Any]:
    """The field of a request for a time."""
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise ValueError(f"{name}: a datetime without a time zone")
        return {name: at.isoformat()}
    return {} if at is None else {name: at}


@lru_cache
def _names(kind: Any) -> frozenset[str]:
    return frozenset(f.name for f in fields(kind))


def from_answer(kind: type[T], answer: Mapping[str, Any]) -> T:
    """A dataclass of the fields of an answer. Fields that this version does not know are left out."""
    known = _names(cast(Any, kind))
    values = {name: _value(name, value) for name, value in answer.items() if name in known}
    if "payload" in known:
        text = answer.get("payload")
        values["payload"] = base64.b64decode(answer.get("payload_base64", "")) if text is None else text.encode()
    return kind(**values)


def _value(name: str, value: Any) -> Any:
    is_time = isinstance(value, str) and (name.endswith("_at") or name == "deadline")
    return datetime.fromisoformat(value.replace("Z", "+00:00")) if is_time else value


@dataclass
class NewMessage:
    """A message to push. `payload` is bytes, text, or any other value, which is sent as JSON."""

    payload: Any
    id: str = field(default_factory=ulid)
    key: str | None = None
    delay: Duration | None = None
    due_at: datetime | str | None = None
    past: Literal["now", "reject"] | None = None
    ttl: Duration | None = None
    priority: int | None = None
    max_attempts: int | None = None
    conflict: Conflict | None = None
    content_type: str | None = None
    meta: Mapping[str, str] | None = None
    dedup_key: str | None = None
    dedup_for: Duration | None = None

    def encoded(self) -> bytes:
        """The message as JSON."""
        if isinstance(self.payload, (bytes, bytearray, memoryview)):
            body: dict[str, Any] = {"payload_base64": base64.b64encode(self.payload).decode()}
        else:
            body = {"payload" if isinstance(self.payload, str) else "payload_json": self.payload}
        body |= {"id": self.id, **duration_field("delay", self.delay), **time_field("due_at", self.due_at)}
        body |= {**duration_field("ttl", self.ttl), **duration_field("dedup_for", self.dedup_for)}
        for name in ("key", "past", "priority", "max_attempts", "conflict", "content_type", "meta", "dedup_key"):
            value = getattr(self, name)
            if value is not None:
                body[name] = value
        return json.dumps(body, separators=(",", ":")).encode()


@dataclass(frozen=True)
class PushResult:
    """Where a message is. `status` is ``stored``, ``journaled``, ``buffered``, ``duplicate``, ``replaced``, ``debounced``, or ``error``."""

    id: str
    status: str
    partition: int | None = None
    due_at: datetime | None = None
    differs: bool = False
    duplicate_of: str | None = None
    replicas: int | None = None
    topic_created: bool = False
    error: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Control:
    """The outcome of a cancel or a reschedule: `status` is ``cancelled``, ``rescheduled`` or ``partly``."""

    id: str
    status: str
    partition: int
    groups: list[Mapping[str, str]]
    due_at: datetime | None = None
    buffered: bool = False


@dataclass(frozen=True)
class Message:
    """A message and its state in a group: ``scheduled``, ``ready``, ``blocked``, ``backoff``,
    ``in_flight`` or ``dead``."""

    id: str
    state: str
    partition: int
    attempts: int
    payload: bytes = b""
    key: str | None = None
    etag: str | None = None
    due_at: datetime | None = None
    next_at: datetime | None = None
    pushed_at: datetime | None = None
    expires_at: datetime | None = None
    died_at: datetime | None = None
    content_type: str | None = None
    meta: Mapping[str, str] = field(default_factory=dict)
    dedup_key: str | None = None
    dead_letter_source: Mapping[str, Any] | None = None
    attributes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    priority: int = 0
    max_attempts: int | None = None
    owner: str | None = None
    reason: str | None = None
    last_error: str | None = None
    history: list[Mapping[str, Any]] = field(default_factory=list)
    unreadable: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None

    def json(self) -> Any:
        """The payload, read as JSON."""
        return json.loads(self.payload)
