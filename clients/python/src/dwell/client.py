"""The producer: push, cancel, reschedule and get messages."""

from __future__ import annotations

import os
import time
from datetime import datetime
from typing import Any, Iterable, Iterator, Literal, Mapping
from urllib.parse import quote

from ._http import DwellError, Transport, Unavailable, backoff
from .messages import (
    Conflict, Control, Duration, Message, NewMessage, PushResult, duration_field, from_answer, time_field, ulid,
)

# A batch has up to 1,000 messages and 8 MiB.
BATCH_MESSAGES = 1000
BATCH_BYTES = 7 << 20
_TRANSIENT = tuple(f"urn:dwell:error:{name}" for name in ("full", "unavailable", "outcome-unknown"))


class PushManyError(DwellError):
    """Some messages of a `push_many` were not accepted. `results` has one result for each message, in order."""

    def __init__(self, status: int, problem: Mapping[str, Any], results: list[PushResult]) -> None:
        super().__init__(status, problem)
        self.results = results


class Client:
    """A client of one broker, or of several behind one address. It may be used by many threads.

    `server` is ``http://HOST:PORT``, ``https://HOST:PORT`` or ``unix:/PATH``; default ``DWELL_SERVER``, and else
    ``http://127.0.0.1:7373``. `token_file` (default ``DWELL_TOKEN_FILE``) is read again when it changes. `ca_file` (default
    ``DWELL_CA_FILE``) verifies the broker. `timeout` is for one request, `retry_for` for all repeats of a call, in seconds.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        token_file: str | None = None,
        ca_file: str | None = None,
        timeout: float = 30.0,
        retry_for: float = 60.0,
    ) -> None:
        self.retry_for = retry_for
        self.transport = Transport(
            server or os.environ.get("DWELL_SERVER") or "http://127.0.0.1:7373",
            token_file=token_file or os.environ.get("DWELL_TOKEN_FILE"),
            ca_file=ca_file or os.environ.get("DWELL_CA_FILE"),
            timeout=timeout,
            retry_for=retry_for,
        )

    def create_topic(self, topic: str, **settings: Any) -> Mapping[str, Any]:
        """Creates a topic, or changes the given settings of it, such as ``max_attempts=5``. Repeating it changes nothing."""
        return self._call("PUT", f"/v1/topics/{_part(topic)}", settings)

    def push(
        self,
        topic: str,
        payload: Any,
        *,
        id: str | None = None,
        key: str | None = None,
        delay: Duration | None = None,
        due_at: datetime | str | None = None,
        past: Literal["now", "reject"] | None = None,
        ttl: Duration | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        conflict: Conflict | None = None,
        content_type: str | None = None,
        meta: Mapping[str, str] | None = None,
        dedup_key: str | None = None,
        dedup_for: Duration | None = None,
    ) -> PushResult:
        """Pushes one message. `payload` is bytes, text, or any other value, which is sent as JSON.

        The message has an id before it is sent, so repeats store it once. Raises `DwellError` if the broker refuses it, and
        `Unavailable` if the outcome is unknown when `retry_for` is over.
        """
        message = NewMessage(
            payload, id or ulid(), key, delay, due_at, past, ttl, priority, max_attempts, conflict, content_type, meta,
            dedup_key, dedup_for,
        )
        _, answer = self.transport.call("POST", f"/v1/topics/{_part(topic)}/messages", message.encoded(), _trace())
        return from_answer(PushResult, answer)

    def push_many(self, topic: str, messages: Iterable[NewMessage]) -> list[PushResult]:
        """Pushes messages in batches and repeats those that the broker could not store.

        Returns a result for each message, in order. Raises `PushManyError` if any was not accepted, and `DwellError` if the
        broker refused a whole batch; the batches before it are stored.
        """
        results: list[PushResult] = []
        path = f"/v1/topics/{_part(topic)}/messages/batch"
        headers = _trace()
        for batch in _batches(messages):
            results += self._push_batch(path, batch, headers)
        failed = [result for result in results if result.error]
        if failed:
            first = failed[0].error or {}
            detail = f"{len(failed)} of {len(results)} messages were not accepted, the first with: {first.get('detail')}"
            raise PushManyError(int(first.get("status", 0)), {**first, "detail": detail}, results)
        return results

    def cancel(self, topic: str, id: str, *, key: str | None = None) -> Control:
        """Cancels a message in every group in which it waits. Raises `DwellError` ``conflict`` if a consumer has it."""
        return from_answer(Control, self._call("DELETE", _message(topic, id, key=key)))

    def reschedule(
        self,
        topic: str,
        id: str,
        *,
        key: str | None = None,
        delay: Duration | None = None,
        due_at: datetime | str | None = None,
        past: Literal["now", "reject"] | None = None,
        etag: str | None = None,
    ) -> Control:
        """Gives a message that waits another due time. With an `etag` only if the message still has it."""
        body = {**duration_field("delay", delay), **time_field("due_at", due_at), **({"past": past} if past else {})}
        return from_answer(Control, self._call("PATCH", _message(topic, id, key=key), body, {"If-Match": etag} if etag else {}))

    def get(self, topic: str, id: str, *, key: str | None = None, group: str | None = None) -> Message:
        """Gets a message with its state in a group, ``default`` unless given."""
        return from_answer(Message, self._call("GET", _message(topic, id, key=key, group=group)))

    def close(self) -> None:
        """Closes idle connections."""
        self.transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = self.transport.call(method, path, body, headers)[1]
        return answer

    def _push_batch(self, path: str, batch: list[bytes], headers: Mapping[str, str]) -> list[PushResult]:
        results: dict[int, PushResult] = {}
        left = list(range(len(batch)))
        until = time.monotonic() + self.retry_for
        for tries in range(1 << 30):
            body = b'{"messages":[' + b",".join(batch[n] for n in left) + b"]}"
            _, answer = self.transport.call("POST", path, body, headers, retry_for=max(0.0, until - time.monotonic()))
            results |= {n: from_answer(PushResult, result) for n, result in zip(left, answer["results"])}
            left = [n for n in left if (results[n].error or {}).get("type") in _TRANSIENT]
            wait = backoff(tries)
            if not left or time.monotonic() + wait > until:
                break
            time.sleep(wait)
        return [results[n] for n in range(len(batch))]


def _batches(messages: Iterable[NewMessage]) -> Iterator[list[bytes]]:
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


def _part(name: str) -> str:
    return quote(name, safe="")


def _message(topic: str, id: str, **query: str | None) -> str:
    given = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items() if value is not None)
    return f"/v1/topics/{_part(topic)}/messages/{_part(id)}" + (f"?{given}" if given else "")


def _trace() -> dict[str, str]:
    """`traceparent` and `tracestate` of the current span, if OpenTelemetry is installed."""
    try:
        from opentelemetry import propagate  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return {}
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return {name: carrier[name] for name in ("traceparent", "tracestate") if name in carrier}


__all__ = ["Client", "DwellError", "PushManyError", "Unavailable"]
