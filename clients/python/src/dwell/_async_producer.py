"""A producer that gathers the pushes of many tasks into batches."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Deque, List

from . import _requests as requests
from ._async_client import AsyncClient
from ._gathering import Buffer, Entry, blamed, encoded, given_up, limits_of, outcomes
from ._repeats import backoff, patience
from .answers import PushResult
from .errors import DwellError
from .settings import PushOptions
from .values import Duration, not_empty

if TYPE_CHECKING:
    from typing_extensions import Unpack

Pushed = Entry["asyncio.Future[PushResult]"]


class AsyncProducer:
    """Pushes that many tasks make at the same time travel together, in batches. Each has its own result.

    A message waits up to `linger` for others. While a batch of its topic is under way, it waits up to 20 ms, and as long as
    `batches_in_flight` batches are under way. A push waits while the buffer is full: `buffer_messages` or `buffer_bytes` that have
    no result yet. A push whose task is cancelled before it was sent is not sent. Use it in an ``async with`` statement, in one event
    loop.
    """

    def __init__(
        self,
        client: AsyncClient,
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
        self._buffer: Buffer[asyncio.Future[PushResult]] = Buffer(self._limits)
        self._open: set[asyncio.Future[PushResult]] = set()
        self._flushed = 0.0
        self._is_closed = False
        # Those that wait for room, the first one first.
        self._waiting: Deque[asyncio.Future[None]] = deque()
        self._places = asyncio.Semaphore(batches_in_flight)
        self._changed = asyncio.Event()
        self._gathering: asyncio.Task[None] | None = None
        self._sending: set[asyncio.Task[None]] = set()

    async def push(self, topic: str, payload: Any, **options: Unpack[PushOptions]) -> PushResult:
        """Pushes one message as `AsyncClient.push` does, and waits for its result."""
        not_empty("topic", topic)
        message = encoded(payload, options)
        await self._wait_for_room(len(message))
        future: asyncio.Future[PushResult] = asyncio.get_running_loop().create_future()
        entry: Pushed = Entry(message, future, time.monotonic())
        waiting = self._buffer.add(topic, entry)
        self._open.add(future)
        if waiting == 1 or waiting == self._limits.batch_messages:
            self._changed.set()
        if self._gathering is None:
            self._gathering = asyncio.create_task(self._gather_loop())
        try:
            return await future
        except asyncio.CancelledError:
            self._buffer.remove(topic, entry)
            self._wake()
            raise
        finally:
            self._open.discard(future)

    async def flush(self) -> None:
        """Waits until all that was pushed before has a result."""
        self._flushed = time.monotonic()
        self._changed.set()
        if self._open:
            await asyncio.wait([*self._open])

    async def aclose(self) -> None:
        """Sends all that was pushed, and refuses later pushes with `RuntimeError`."""
        self._is_closed = True
        self._wake()
        await self.flush()
        if self._sending:
            await asyncio.wait([*self._sending])
        if self._gathering:
            self._gathering.cancel()
            await asyncio.wait([self._gathering])
            self._gathering = None

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _wait_for_room(self, size: int) -> None:
        is_first = False
        while not self._is_closed and not (self._buffer.has_room(size) and (is_first or not self._waiting)):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            # One that was woken and has still no room keeps its place.
            (self._waiting.appendleft if is_first else self._waiting.append)(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                self._wake()
                raise
            is_first = True
        if self._is_closed:
            raise RuntimeError("the producer is closed")
        self._wake()

    def _wake(self) -> None:
        """Wakes the first that waits for room, which wakes the next one; all of them at the end."""
        while self._waiting and (self._is_closed or self._buffer.has_room(0)):
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                if not self._is_closed:
                    return

    async def _gather_loop(self) -> None:
        while True:
            topic, pause = self._buffer.next_topic(time.monotonic(), self._flushed)
            if topic is None or pause:
                self._changed.clear()
                try:
                    await asyncio.wait_for(self._changed.wait(), pause if topic is not None else None)
                except asyncio.TimeoutError:
                    pass
                continue
            await self._places.acquire()
            # Meanwhile others came, or all were cancelled.
            topic, _ = self._buffer.next_topic(time.monotonic(), self._flushed)
            batch = self._buffer.take(topic) if topic is not None else []
            if topic is None:
                self._places.release()
                continue
            sending = asyncio.create_task(self._send_and_forget(topic, batch))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)

    async def _send_and_forget(self, topic: str, batch: List[Pushed]) -> None:
        try:
            await self._send(topic, [entry for entry in batch if not entry.future.done()])
        except Exception as error:
            # An answer that cannot be read: no caller waits forever.
            for entry in batch:
                if not entry.future.done():
                    entry.future.set_exception(error)
        finally:
            self._places.release()
            self._buffer.answered(topic)
            self._buffer.free(batch)
            self._changed.set()
            self._wake()

    async def _send(self, topic: str, batch: List[Pushed]) -> None:
        """Sends a batch until each of its messages has a result."""
        path = requests.topic_path(topic, "messages", "batch")
        until = time.monotonic() + self._client.retry_for
        tries = 0
        batches = [batch] if batch else []
        while batches:
            left = batches.pop()
            body = requests.batch_body(entry.encoded for entry in left)
            try:
                answer = await self._client._transport.call(
                    "POST", path, body, retry_for=patience(until, self._client.retry_for), is_bounded=True
                )
            except DwellError as error:
                wrong, again = blamed(error, len(left))
                for n, blame in wrong.items():
                    self._end(left[n], blame)
                batches += [[left[n] for n in part] for part in again]
                continue
            results, again_now = outcomes(answer["results"])
            pause = backoff(tries)
            is_over = time.monotonic() + pause > until
            for n, result in enumerate(results):
                if isinstance(result, PushResult) or n not in again_now:
                    self._end(left[n], result)
                elif is_over:
                    self._end(left[n], given_up(result, self._client.server, self._client.retry_for))
            if again_now and not is_over:
                tries += 1
                await asyncio.sleep(pause)
                batches.append([left[n] for n in again_now])

    @staticmethod
    def _end(entry: Pushed, result: PushResult | DwellError) -> None:
        # Its task may have been cancelled meanwhile.
        if entry.future.done():
            return
        if isinstance(result, PushResult):
            entry.future.set_result(result)
        else:
            entry.future.set_exception(result)
