"""Paths, headers and bodies that several calls have in common."""

from __future__ import annotations

import sys
from typing import Any, Iterable, Iterator, Mapping, TypeVar
from urllib.parse import quote

from .settings import DeathReason, Identified, NewMessage
from .values import Duration, duration_field, not_empty

# A batch has up to 1,000 messages and 8 MiB.
BATCH_MESSAGES = 1000
BATCH_BYTES = 7 << 20
# Items of a batch with these errors are sent again.
TRANSIENT = frozenset(f"urn:dwell:error:{name}" for name in ("full", "unavailable", "outcome-unknown"))

T = TypeVar("T")


def topic_path(topic: str, *parts: str) -> str:
    """The path of a topic, or of what is below it."""
    return "/".join(["/v1/topics", quote(not_empty("topic", topic), safe=""), *(quote(part, safe="") for part in parts)])


def group_path(topic: str, group: str, *parts: str) -> str:
    """The path of a group, or of what is below it."""
    return topic_path(topic, "groups", not_empty("group", group), *parts)


def key_path(topic: str, group: str, key: str, *parts: str) -> str:
    """The path of a key of a group, or of what is below it."""
    if key in (".", ".."):
        raise ValueError(f"the key {key!r} is a step of a path: pause the group")
    return group_path(topic, group, "keys", not_empty("key", key), *parts)


def message_path(topic: str, id: str, key: str | None, *parts: str, **query: str | None) -> str:
    """The path of a message."""
    if key is not None:
        query["key"] = not_empty("key", key)
    return with_query(topic_path(topic, "messages", not_empty("id", id), *parts), query)


def with_query(path: str, query: Mapping[str, Any]) -> str:
    """A path with the parameters that are given."""
    given = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in query.items() if value is not None)
    return f"{path}?{given}" if given else path


def names_of(message: str | Identified) -> tuple[str, str | None]:
    """The id and the key of a message: an id alone has no key. Raises `ValueError` if one is empty."""
    if isinstance(message, str):
        return not_empty("id", message), None
    return not_empty("id", message.id), None if message.key is None else not_empty("key", message.key)


def given(**fields: T | None) -> dict[str, T]:
    """The fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}


def dead_letters_filter(
    reason: DeathReason | None, older_than: Duration | None, younger_than: Duration | None, text: str | None
) -> dict[str, Any]:
    """The fields that select dead letters."""
    ages = {**duration_field("older_than", older_than), **duration_field("younger_than", younger_than)}
    return {**given(reason=reason, text=text), **ages}


def selections(
    ids: Iterable[str | Identified] | None, all: bool, filters: Mapping[str, Any], limits: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The bodies that select dead letters. Raises `ValueError` unless exactly one of ids, all and filters is given."""
    chosen = [ids is not None, all, bool(filters)]
    if sum(chosen) != 1:
        raise ValueError("give ids, or all=True, or a filter such as older_than")
    if ids is None:
        return [{**({"all": True} if all else {}), **filters, **limits}]
    if limits:
        raise ValueError("ids exclude limit, rate and dry_run")
    names = [names_of(message)[0] for message in ids]
    return [{"ids": names[first:first + 1000]} for first in range(0, len(names), 1000)]


def batches(messages: Iterable[NewMessage]) -> Iterator[list[bytes]]:
    """Messages as they are sent, in batches."""
    batch: list[bytes] = []
    size = 0
    for message in messages:
        encoded = message.encoded()
        if len(batch) == BATCH_MESSAGES or (batch and size + len(encoded) > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(encoded)
        size += len(encoded) + 1
    if batch:
        yield batch


def batch_body(batch: Iterable[bytes]) -> bytes:
    """The body of a batch."""
    return b'{"messages":[' + b",".join(batch) + b"]}"


def trace() -> dict[str, str]:
    """`traceparent` and `tracestate` of the current span, if the application uses OpenTelemetry."""
    # An application that has not imported it has no span, and a failed import is slow each time.
    if "opentelemetry" not in sys.modules:
        return {}
    from opentelemetry import propagate  # type: ignore[import-not-found,unused-ignore]

    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return {name: carrier[name] for name in ("traceparent", "tracestate") if name in carrier}
