"""Durations, times and ids: how they are checked, sent, and read from answers."""

from __future__ import annotations

import base64
import json
import os
import re
import threading
import time
import types
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Callable, Mapping, TypeVar, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

Duration = Union[str, timedelta]
"""Text such as ``30s``, ``1h30m`` or ``PT30M``, or a `timedelta`."""
Time = Union[str, datetime]
"""Text as in RFC 3339, or a `datetime` with a time zone."""

T = TypeVar("T")
_LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_ENCODER = json.JSONEncoder(separators=(",", ":"))
_UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_ISO = re.compile(r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
_ISO_UNITS = (7 * 86_400_000, 86_400_000, 3_600_000, 60_000, 1_000)


class Ids:
    """ULIDs that count up for a while. Those share all but the last three characters, so the broker keeps messages that are
    pushed together in one partition."""

    # A run ends after so many ids, and after this time, so that a slow producer spreads its messages.
    RUN_IDS = 250
    RUN_MS = 5

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun_ms = 0
        self._prefix = ""
        self._used = self.RUN_IDS

    def next(self) -> str:
        now_ms = time.time_ns() // 1_000_000
        with self._lock:
            if self._used == self.RUN_IDS or not self._begun_ms <= now_ms < self._begun_ms + self.RUN_MS:
                self._begin(now_ms)
            used = self._used
            self._used += 1
            return self._prefix + _digits(used, 3)

    def _begin(self, now_ms: int) -> None:
        number = now_ms << 65 | int.from_bytes(os.urandom(9), "big") & (1 << 65) - 1
        self._prefix = _digits(number, 23)
        self._begun_ms, self._used = now_ms, 0


def _digits(number: int, count: int) -> str:
    """A number in so many characters of a ULID."""
    return "".join([_LETTERS[number >> shift & 31] for shift in range(5 * (count - 1), -1, -5)])


_ids = Ids()
if hasattr(os, "register_at_fork"):
    # Else the ids of a parent and its child would be the same.
    os.register_at_fork(after_in_child=_ids.__init__)  # type: ignore[misc]


def ulid() -> str:
    """A new ULID: sortable by time, unique."""
    return _ids.next()


def compact(value: Any) -> bytes:
    """A value as JSON. Raises `TypeError` if it cannot be written as that."""
    return _ENCODER.encode(value).encode()


def milliseconds(duration: Duration) -> int:
    """A duration in whole milliseconds, rounded up. Raises `ValueError` if it is negative, or the text is not a duration."""
    if isinstance(duration, timedelta):
        return -(-_not_negative("a duration", duration) // timedelta(milliseconds=1))
    if not isinstance(duration, str):
        raise TypeError(f"expected text such as '30s' or a timedelta, not {duration!r}")
    if (iso := _ISO.fullmatch(duration)) and any(iso.groups()):
        return round(sum(float(number) * unit for number, unit in zip(iso.groups(), _ISO_UNITS) if number))
    if not re.fullmatch(r"(\d+(\.\d+)?(ms|[smhd]))+", duration):
        raise ValueError(f"{duration!r} is not a duration such as '30s', '1h30m' or 'PT30M'")
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|[smhd])", duration)
    return round(sum(float(number) * _UNITS[unit] for number, unit in parts))


def seconds(duration: Duration) -> float:
    """A duration in seconds."""
    return milliseconds(duration) / 1000


def duration_field(name: str, duration: Duration | None) -> dict[str, Any]:
    """The field of a request for a duration: text is passed on as it is. Raises `ValueError` if it is negative."""
    if duration is None:
        return {}
    if isinstance(duration, str):
        if not duration or duration.lstrip().startswith("-"):
            raise ValueError(f"{name}: {duration!r} is not a duration of at least 0")
        return {name: duration}
    if isinstance(duration, timedelta):
        return {f"{name}_ms": milliseconds(_not_negative(name, duration))}
    raise TypeError(f"{name}: expected text such as '30s' or a timedelta, not {duration!r}")


def time_field(name: str, at: Time | None) -> dict[str, Any]:
    """The field of a request for a time."""
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise ValueError(f"{name}: a datetime without a time zone")
        return {name: at.isoformat()}
    return {} if at is None else {name: at}


def due_fields(delay: Duration | None, due_at: Time | None) -> dict[str, Any]:
    """The fields for when a message is due."""
    if delay is not None and due_at is not None:
        raise ValueError("delay and due_at exclude each other")
    return {**duration_field("delay", delay), **time_field("due_at", due_at)}


def not_empty(name: str, text: str) -> str:
    """The text, unless it is empty or no text."""
    if not isinstance(text, str):
        raise TypeError(f"{name}: expected text, not {text!r}")
    if not text:
        raise ValueError(f"{name} is empty")
    return text


def _not_negative(name: str, duration: timedelta) -> timedelta:
    if duration < timedelta(0):
        raise ValueError(f"{name}: {duration!r} is negative")
    return duration


# Answers


def from_answer(kind: type[T], answer: Mapping[str, Any]) -> T:
    """A dataclass of the fields of an answer. Fields that this version does not know are left out."""
    values = {name: read(answer[key]) for name, key, read in _readers(cast(Any, kind)) if key in answer}
    if "payload_base64" in answer and "payload" in kind.__dataclass_fields__:  # type: ignore[attr-defined]
        values["payload"] = base64.b64decode(answer["payload_base64"])
    return kind(**values)


@lru_cache(maxsize=None)
def _readers(kind: type[Any]) -> list[tuple[str, str, Callable[[Any], Any]]]:
    """Of each field: its name, its name in answers, and how its value is read."""
    hints = get_type_hints(kind)
    readers = []
    for field in fields(kind):
        if not field.name.startswith("_"):
            hint = hints[field.name]
            # A name that Python keeps for itself has an underscore behind it; a duration is in milliseconds.
            key = field.name.rstrip("_") + ("_ms" if timedelta in (hint, *get_args(hint)) else "")
            readers.append((field.name, key, reader(hint)))
    return readers


def reader(hint: Any) -> Callable[[Any], Any]:
    """How a value of an answer is read, by its type."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return next((read for arg in args if (read := reader(arg)) is not _as_it_is), _as_it_is)
    if origin is list:
        read_item = reader(args[0])
        return lambda items: [read_item(item) for item in items]
    if hint is datetime:
        return lambda text: datetime.fromisoformat(text.replace("Z", "+00:00"))
    if hint is timedelta:
        return lambda ms: timedelta(milliseconds=ms)
    if hint is bytes:
        return lambda text: cast(str, text).encode()
    if isinstance(hint, type) and is_dataclass(hint):
        return lambda answer: from_answer(hint, answer)
    return _read_settings if is_typeddict(hint) else _as_it_is


def _read_settings(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they can be sent again: durations without ``_ms``, as `timedelta`."""
    settings: dict[str, Any] = {}
    for name, value in answer.items():
        if name.endswith("_ms"):
            spans = [timedelta(milliseconds=ms) for ms in value] if isinstance(value, list) else timedelta(milliseconds=value)
            settings[name.removesuffix("_ms")] = spans
        else:
            settings[name] = _read_settings(value) if name == "backoff" else value
    return settings


def _as_it_is(value: Any) -> Any:
    return value
