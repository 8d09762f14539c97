"""A producer that gathers the pushes of many threads into batches."""

from __future__ import annotations

import atexit
import threading
import time
from concurrent import futures
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, List

from . import _requests as requests
from ._client import Client
from ._gathering import Buffer, Entry, blamed, encoded, given_up, limits_of, outcomes
from ._repeats import backoff, patience
from .answers import PushResult
from .errors import DwellError
from .settings import PushOptions
from .values import Duration, not_empty

if TYPE_CHECKING:
    from typing_extensions import Unpack

Pushed = Entry["Future[PushResult]"]


class Producer:
    """Pushes that many threads make at the same time travel together, in batches. Each has its own result.

    A message waits up to `linger` for others. While a batch of its topic is under way, it waits up to 20 ms, and as long as
    `batches_in_flight` batches are under way. A push waits while the buffer is full: `buffer_messages` or `buffer_bytes` that have
    no result yet. Close it, or use it in a ``with`` statement: what was submitted is sent before it ends.
    """

    def __init__(
        self,
        client: Client,
        *,
        linger: Duration = "0s",
        batch_messages: int = requests.BATCH_MESSAGES,
        batch_bytes: int = requests.BATCH_BYTES,
        buffer_messages: int = 10_000,
        buffer_bytes: int = 32 << 20,
        batches_in_flight: int = 4,
    ) -> None:
        self._client = client
        self._limits = limits_of(linger, batch_messages, batch_bytes, buffer_messages, buffer_bytes, batches_in_flight)
        lock = threading.Lock()
        self._ready, self._room = threading.Condition(lock), threading.Condition(lock)
        self._buffer: Buffer[Future[PushResult]] = Buffer(self._limits)
        self._open: set[Future[PushResult]] = set()
        self._flushed = 0.0
        self._is_closed = False
        self._senders: List[threading.Thread] = []

    def push(self, topic: str, payload: Any, *, timeout: float | None = None, **options: Unpack[PushOptions]) -> PushResult:
        """Pushes one message as `Client.push` does, and waits for its result.

        Raises `TimeoutError` after `timeout` seconds; a message that still waits then is not sent.
        """
        until = None if timeout is None else time.monotonic() + timeout
        future = self.submit(topic, payload, timeout=timeout, **options)
        try:
            return future.result(None if until is None else max(0.0, until - time.monotonic()))
        except futures.TimeoutError:
            future.cancel()
            raise TimeoutError(f"the message has no result after {timeout:g} s") from None
        except BaseException:
            future.cancel()
            raise

    def submit(
        self, topic: str, payload: Any, *, timeout: float | None = None, **options: Unpack[PushOptions]
    ) -> Future[PushResult]:
        """Pushes one message and returns the future of its result. A future that is cancelled in time is not sent.

        While the buffer is full it waits; it raises `TimeoutError` after `timeout` seconds.
        """
        not_empty("topic", topic)
        entry: Pushed = Entry(encoded(payload, options), Future(), 0.0)
        with self._ready:
            if not self._room.wait_for(lambda: self._is_closed or self._buffer.has_room(len(entry.encoded)), timeout):
                raise TimeoutError(f"the buffer of the producer is full for {timeout:g} s")
            if self._is_closed:
                raise RuntimeError("the producer is closed")
            self._begin()
            entry.at = time.monotonic()
            waiting = self._buffer.add(topic, entry)
            self._open.add(entry.future)
            # The first one has a sender wait for the linger, and one that makes a full batch ends that.
            if waiting == 1 or waiting == self._limits.batch_messages:
                self._ready.notify()
        return entry.future

    def flush(self, timeout: float | None = None) -> None:
        """Waits until all that was pushed before has a result. Raises `TimeoutError` after `timeout` seconds."""
        with self._ready:
            self._flushed = time.monotonic()
            before = [*self._open]
            self._ready.notify_all()
        if futures.wait(before, timeout).not_done:
            raise TimeoutError(f"not all messages have a result after {timeout:g} s")

    def close(self) -> None:
        """Sends all that was pushed, and refuses later pushes with `RuntimeError`."""
        with self._ready:
            self._is_closed = True
            self._flushed = time.monotonic()
            senders = [*self._senders]
            self._ready.notify_all()
            self._room.notify_all()
        for sender in senders:
            sender.join()
        atexit.unregister(self.close)

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> None:
        if not self._senders:
            # Daemons, since a thread that is none would keep a program from its end; but what was submitted is sent.
            atexit.register(self.close)
            for n in range(self._limits.batches_in_flight):
                self._senders.append(threading.Thread(target=self._send_loop, name=f"dwell_producer_{n}", daemon=True))
                self._senders[-1].start()

    def _send_loop(self) -> None:
        while True:
            with self._ready:
                while True:
                    topic, pause = self._buffer.next_topic(time.monotonic(), self._flushed)
                    if topic is not None and not pause:
                        break
                    if topic is None and self._is_closed:
                        return
                    self._ready.wait(pause if topic is not None else None)
                batch = self._buffer.take(topic)
                if self._buffer.is_waiting:
                    self._ready.notify()
                cancelled = [entry for entry in batch if not entry.future.set_running_or_notify_cancel()]
                self._forget(cancelled)
            left = [entry for entry in batch if not entry.future.cancelled()]
            try:
                self._send(topic, left)
            except Exception as error:
                # An answer that cannot be read: no caller waits forever.
                for entry in left:
                    if not entry.future.done():
                        entry.future.set_exception(error)
            with self._ready:
                self._buffer.answered(topic)
                self._forget(left)

    def _forget(self, entries: List[Pushed]) -> None:
        self._buffer.free(entries)
        self._open.difference_update(entry.future for entry in entries)
        self._room.notify_all()

    def _send(self, topic: str, batch: List[Pushed]) -> None:
        """Sends a batch until each of its messages has a result."""
        path = requests.topic_path(topic, "messages", "batch")
        until = time.monotonic() + self._client.retry_for
        tries = 0
        batches = [batch] if batch else []
        while batches:
            left = batches.pop()
            body = requests.batch_body(entry.encoded for entry in left)
            try:
                answer = self._client._transport.call(
                    "POST", path, body, retry_for=patience(until, self._client.retry_for), is_bounded=True
                )
            except DwellError as error:
                wrong, again = blamed(error, len(left))
                for n, blame in wrong.items():
                    left[n].future.set_exception(blame)
                batches += [[left[n] for n in part] for part in again]
                continue
            results, again_now = outcomes(answer["results"])
            pause = backoff(tries)
            is_over = time.monotonic() + pause > until
            for n, result in enumerate(results):
                if isinstance(result, PushResult):
                    left[n].future.set_result(result)
                elif n not in again_now:
                    left[n].future.set_exception(result)
                elif is_over:
                    left[n].future.set_exception(given_up(result, self._client.server, self._client.retry_for))
            if again_now and not is_over:
                tries += 1
                time.sleep(pause)
                batches.append([left[n] for n in again_now])
