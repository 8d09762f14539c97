"""The common part of the producers for threads and for asyncio: the buffer, and how answers become results. Sends nothing itself."""

from __future__ import annotations

import re
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any, Deque, Generic, List, Mapping, Sequence, Tuple, TypeVar

from . import _requests as requests
from .answers import PushResult
from .errors import DwellError, Unavailable
from .settings import NewMessage, PushOptions
from .values import Duration, from_answer, seconds

F = TypeVar("F")
# The pointer of an error to one message of a batch.
_POINTER = re.compile(r"/messages/(\d+)(/.*)?")
# While a batch of a topic is under way, the next one gathers for so many seconds at most.
_GATHER_S = 0.02
_ABOUT_A_MESSAGE = frozenset({400, 413, 422})


@dataclass(eq=False)
class Entry(Generic[F]):
    """A message that was pushed, and the future of its result."""

    encoded: bytes
    future: F
    at: float


@dataclass(frozen=True)
class Limits:
    """The limits of a producer."""

    linger: float
    batch_messages: int
    batch_bytes: int
    buffer_messages: int
    buffer_bytes: int
    batches_in_flight: int


def limits_of(
    linger: Duration, batch_messages: int, batch_bytes: int, buffer_messages: int, buffer_bytes: int, batches_in_flight: int
) -> Limits:
    """The limits, checked."""
    if not 1 <= batch_messages <= requests.BATCH_MESSAGES:
        raise ValueError(f"batch_messages has to be 1 to {requests.BATCH_MESSAGES}")
    if not 1 <= batch_bytes <= requests.BATCH_BYTES:
        raise ValueError(f"batch_bytes has to be 1 to {requests.BATCH_BYTES}")
    if min(buffer_messages, buffer_bytes, batches_in_flight) < 1:
        raise ValueError("buffer_messages, buffer_bytes and batches_in_flight have to be at least 1")
    return Limits(seconds(linger), batch_messages, batch_bytes, buffer_messages, buffer_bytes, batches_in_flight)


class Buffer(Generic[F]):
    """Messages that wait, by topic, and how much is held with those under way."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._topics: dict[str, Deque[Entry[F]]] = {}
        self._under_way: Counter[str] = Counter()
        self.messages = 0
        self.bytes = 0

    @property
    def is_waiting(self) -> bool:
        """Whether messages wait to be sent."""
        return bool(self._topics)

    def has_room(self, size: int) -> bool:
        """Whether a message may be added. One that is larger than the buffer may be alone in it."""
        limits = self._limits
        return not self.messages or (self.messages < limits.buffer_messages and self.bytes + size <= limits.buffer_bytes)

    def add(self, topic: str, entry: Entry[F]) -> int:
        """Adds a message. Returns how many of its topic wait."""
        self.messages += 1
        self.bytes += len(entry.encoded)
        waiting = self._topics.setdefault(topic, deque())
        waiting.append(entry)
        return len(waiting)

    def free(self, entries: Sequence[Entry[F]]) -> None:
        """Forgets messages that have their results, or were cancelled."""
        self.messages -= len(entries)
        self.bytes -= sum(len(entry.encoded) for entry in entries)

    def remove(self, topic: str, entry: Entry[F]) -> None:
        """Removes a message that still waits."""
        waiting = self._topics.get(topic)
        if waiting and entry in waiting:
            waiting.remove(entry)
            if not waiting:
                del self._topics[topic]
            self.free([entry])

    def next_topic(self, now: float, flushed: float) -> Tuple[str | None, float]:
        """The topic whose batch is sent next, and how long that waits. A message from before `flushed` waits no longer."""
        best, wait = None, 0.0
        for topic, waiting in self._topics.items():
            head = waiting[0].at
            is_full = len(waiting) >= self._limits.batch_messages
            gathers = max(self._limits.linger, _GATHER_S) if self._under_way[topic] else self._limits.linger
            left = 0.0 if is_full or head <= flushed else max(0.0, head + gathers - now)
            if best is None or left < wait:
                best, wait = topic, left
        return best, wait

    def take(self, topic: str) -> List[Entry[F]]:
        """A batch of a topic. The topic goes behind the others."""
        waiting = self._topics.pop(topic)
        batch = [waiting.popleft()]
        size = len(batch[0].encoded)
        while waiting and len(batch) < self._limits.batch_messages:
            size += len(waiting[0].encoded) + 1
            if size > self._limits.batch_bytes:
                break
            batch.append(waiting.popleft())
        if waiting:
            self._topics[topic] = waiting
        self._under_way[topic] += 1
        return batch

    def answered(self, topic: str) -> None:
        """A batch of this topic is not under way any more."""
        self._under_way[topic] -= 1
        if not self._under_way[topic]:
            del self._under_way[topic]


def encoded(payload: Any, options: PushOptions) -> bytes:
    """A message as it is sent, with the current span of OpenTelemetry."""
    given: dict[str, Any] = {**options, **requests.trace()}
    if given.get("id") is None:
        given.pop("id", None)
    return NewMessage(payload, **given).encoded()


def outcomes(answers: Sequence[Mapping[str, Any]]) -> Tuple[List[PushResult | DwellError], List[int]]:
    """The results of a batch, or the errors; and which of them are to be sent again."""
    results: List[PushResult | DwellError] = []
    again = []
    for n, answer in enumerate(answers):
        problem = answer.get("error")
        if problem and problem.get("type") in requests.TRANSIENT:
            again.append(n)
        results.append(DwellError(int(problem.get("status", 0)), problem) if problem else from_answer(PushResult, answer))
    return results, again


def given_up(error: DwellError, server: str, retry_for: float) -> Unavailable:
    """The error of a message that the broker could not store in time."""
    text = f"{server}: the message was not stored within {retry_for:g} s: {error}"
    failed = Unavailable(error.status, error.problem, 0.0, text)
    failed.__cause__ = error
    return failed


def blamed(error: DwellError, count: int) -> Tuple[dict[int, DwellError], List[List[int]]]:
    """Which messages of a refused batch get an error, and in which batches the others are sent again."""
    everyone = [*range(count)]
    if error.status not in _ABOUT_A_MESSAGE or count == 1:
        return {n: alone(error, n) for n in everyone}, []
    wrong: dict[int, DwellError] = {}
    for fault in error.problem.get("errors", ()):
        if place := _POINTER.fullmatch(str(fault.get("pointer", ""))):
            n = int(place[1])
            if n < count:
                faults = [*(wrong[n].problem["errors"] if n in wrong else ()), {**fault, "pointer": place[2] or ""}]
                problem = {**error.problem, "errors": faults, "detail": "; ".join(f"`{f['pointer']}`: {f.get('detail')}" for f in faults)}
                wrong[n] = DwellError(error.status, problem)
    if wrong:
        valid = [n for n in everyone if n not in wrong]
        return wrong, [valid] if valid else []
    # The answer names none: halves find it.
    return {}, [everyone[:count // 2], everyone[count // 2:]]


def alone(error: DwellError, n: int) -> DwellError:
    """An error for one of several callers: each may add its own traceback."""
    if n == 0:
        return error
    kind, args, state = error.__reduce__()
    copy: DwellError = kind(*args)
    copy.__dict__.update(state)
    copy.__cause__ = error.__cause__
    return copy
