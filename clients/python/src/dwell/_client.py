"""The client: push, cancel, reschedule, find and explain messages."""

# Generated from _async_client.py: python3 tools/unasync.py

from __future__ import annotations

import os
import time
from time import sleep
from typing import Any, Iterator, Iterable, List, Literal, Mapping

from . import _requests as requests
from ._administration import Administration
from ._http import Transport, each
from ._repeats import backoff, patience
from .answers import Control, Explained, ListedMessage, Message, PushResult
from .errors import DwellError, PushManyError
from .settings import Conflict, Identified, NewMessage, Past, State
from .values import Duration, Time, due_fields, from_answer, not_empty, time_field, ulid


class Client(Administration):
    """A client of one broker, or of several behind one address. It may be used by many threads.

    `server` is ``http://HOST:PORT``, ``https://HOST:PORT`` or ``unix:/PATH``; default ``DWELL_SERVER``, and else
    ``http://127.0.0.1:7373``. `token_file` (default ``DWELL_TOKEN_FILE``) is read again when it changes. `ca_file` (default
    ``DWELL_CA_FILE``) verifies the broker. `timeout` is for one request, `retry_for` for all repeats of a call, in seconds.

    Each call raises `DwellError` if the broker refuses it, `Unavailable` if it has no final answer when `retry_for` is over,
    and `ValueError` or `TypeError`, before a request, for an argument that cannot be right.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        token_file: str | None = None,
        ca_file: str | None = None,
        timeout: float = 30.0,
        retry_for: float = 5.0,
    ) -> None:
        if timeout <= 0 or retry_for < 0:
            raise ValueError("timeout has to be above 0, and retry_for at least 0")
        self.server = server or os.environ.get("DWELL_SERVER") or "http://127.0.0.1:7373"
        self.timeout = timeout
        self.retry_for = retry_for
        self.token_file = token_file or os.environ.get("DWELL_TOKEN_FILE")
        self.ca_file = ca_file or os.environ.get("DWELL_CA_FILE")
        self._transport = Transport(
            self.server, token_file=self.token_file, ca_file=self.ca_file, timeout=timeout, retry_for=retry_for
        )

    def push(
        self,
        topic: str,
        payload: Any,
        *,
        id: str | None = None,
        key: str | None = None,
        delay: Duration | None = None,
        due_at: Time | None = None,
        past: Past | None = None,
        ttl: Duration | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        conflict: Conflict | None = None,
        content_type: str | None = None,
        meta: Mapping[str, str] | None = None,
        dedup_key: str | None = None,
        dedup_for: Duration | None = None,
        spread: Duration | None = None,
        debounce_max: Duration | None = None,
    ) -> PushResult:
        """Pushes one message. `payload` is bytes, text, or any other value, which is sent as JSON.

        The message has an id before it is sent, so repeats store it once. `delay` is counted from now; default: due at once.
        `spread` moves the due time by up to that span, by a value that the id decides. With
        `conflict` ``debounce``, `debounce_max` is how long after its first push the message may be due at the latest.
        """
        message = NewMessage(
            payload, ulid() if id is None else id, key, delay, due_at, past, ttl, priority, max_attempts, conflict,
            content_type, meta, dedup_key, dedup_for, spread, debounce_max,
        )
        path = requests.topic_path(topic, "messages")
        return from_answer(PushResult, self._produce("POST", path, message.encoded(), requests.trace()))

    def push_many(self, topic: str, messages: Iterable[NewMessage]) -> List[PushResult]:
        """Pushes messages in batches and repeats those that the broker could not store.

        Returns a result for each message, in order. Raises `PushManyError` if any was not accepted, and `DwellError` if the
        broker refused a whole batch; the batches before it are stored.
        """
        results: List[PushResult] = []
        path = requests.topic_path(topic, "messages", "batch")
        headers = requests.trace()
        for batch in requests.batches(messages):
            results += self._push_batch(path, batch, headers)
        failed = [result for result in results if result.error]
        if failed:
            first = failed[0].error or {}
            detail = f"{len(failed)} of {len(results)} messages were not accepted, the first with: {first.get('detail')}"
            raise PushManyError(int(first.get("status", 0)), {**first, "detail": detail}, results)
        return results

    def get(self, topic: str, id: str, *, key: str | None = None, group: str | None = None) -> Message:
        """Gets a message with its state in a group, ``default`` unless given."""
        path = requests.message_path(topic, id, key, group=None if group is None else not_empty("group", group))
        return from_answer(Message, self._produce("GET", path))

    def get_many(
        self, topic: str, messages: Iterable[str | Identified], *, group: str | None = None
    ) -> List[Message | DwellError]:
        """Gets messages, given by ids or by objects with id and key, some at once. Each has its message or its error, in order."""

        def one(names: tuple[str, str | None]) -> Message:
            return self.get(topic, names[0], key=names[1], group=group)

        return each(one, [requests.names_of(message) for message in messages])

    def cancel(self, topic: str, id: str, *, key: str | None = None) -> Control:
        """Cancels a message in every group in which it waits. Raises `DwellError` ``conflict`` if a consumer has it."""
        return from_answer(Control, self._produce("DELETE", requests.message_path(topic, id, key)))

    def cancel_many(self, topic: str, messages: Iterable[str | Identified]) -> List[Control | DwellError]:
        """Cancels messages, given by ids or by objects with id and key, some at once. Each has its outcome or its error, in order."""

        def one(names: tuple[str, str | None]) -> Control:
            return self.cancel(topic, names[0], key=names[1])

        return each(one, [requests.names_of(message) for message in messages])

    def reschedule(
        self,
        topic: str,
        id: str,
        *,
        key: str | None = None,
        delay: Duration | None = None,
        due_at: Time | None = None,
        past: Past | None = None,
        etag: str | None = None,
    ) -> Control:
        """Gives a message that waits another due time: `delay` from now, or `due_at`. With an `etag` only if it still has that."""
        if delay is None and due_at is None:
            raise ValueError("reschedule needs a delay or due_at")
        body = {**due_fields(delay, due_at), **requests.given(past=past)}
        headers = {"If-Match": etag} if etag else {}
        return from_answer(Control, self._produce("PATCH", requests.message_path(topic, id, key), body, headers))

    def reschedule_many(
        self,
        topic: str,
        messages: Iterable[str | Identified],
        *,
        delay: Duration | None = None,
        due_at: Time | None = None,
        past: Past | None = None,
    ) -> List[Control | DwellError]:
        """Gives messages another due time, some at once. Each has its outcome or its error, in order."""

        def one(names: tuple[str, str | None]) -> Control:
            return self.reschedule(topic, names[0], key=names[1], delay=delay, due_at=due_at, past=past)

        return each(one, [requests.names_of(message) for message in messages])

    def list(
        self,
        topic: str,
        *,
        state: State | None = None,
        group: str | None = None,
        from_: Time | None = None,
        to: Time | None = None,
        order: Literal["due", "partition"] | None = None,
        page_size: int | None = None,
    ) -> Iterator[ListedMessage]:
        """Iterates over messages by state and due time, page by page. Default: all that no consumer has and that are not dead.

        `order` is ``due``, over all partitions, or ``partition``, the default. `page_size` is 1 to 1,000.
        """
        query = {
            **requests.given(state=state, group=group, order=order, limit=page_size),
            **time_field("from", from_),
            **time_field("to", to),
        }
        for page in self._pages(requests.topic_path(topic, "messages"), query):
            for message in page["messages"]:
                yield from_answer(ListedMessage, message)

    def explain(self, topic: str, id: str, *, key: str | None = None) -> Explained:
        """Says why a message is not delivered yet, for each group."""
        return from_answer(Explained, self._call("GET", requests.message_path(topic, id, key, "explain")))

    def close(self) -> None:
        """Closes idle connections."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _produce(
        self, method: str, path: str, body: bytes | Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        """A call of a producer, which ends within `retry_for`."""
        return self._transport.call(method, path, body, headers, is_bounded=True)

    def _push_batch(self, path: str, batch: List[bytes], headers: Mapping[str, str]) -> List[PushResult]:
        results: dict[int, PushResult] = {}
        left = [*range(len(batch))]
        until = time.monotonic() + self.retry_for
        for tries in range(1 << 30):
            body = requests.batch_body(batch[n] for n in left)
            retry_for = patience(until, self.retry_for)
            answer = self._transport.call("POST", path, body, headers, retry_for=retry_for, is_bounded=True)
            results |= {n: from_answer(PushResult, result) for n, result in zip(left, answer["results"])}
            left = [n for n in left if (results[n].error or {}).get("type") in requests.TRANSIENT]
            wait = backoff(tries)
            if not left or time.monotonic() + wait > until:
                break
            sleep(wait)
        return [results[n] for n in range(len(batch))]
