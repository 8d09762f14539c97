"""The worker: reserves messages that are due, runs a handler for each, and settles it."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import queue
import signal
import threading
import time
from dataclasses import dataclass, replace
from typing import Any, Awaitable, Callable, Iterator, Mapping

from . import _requests as requests
from ._async_client import AsyncClient
from ._client import Client
from ._http import Interrupt, Interrupted, Transport
from ._repeats import REPEATED, backoff
from .delivery import Bury, Delivery, Handler, Hook, Retry, Stats, reason_of
from .errors import DwellError
from .values import Duration, duration_field, from_answer, milliseconds, seconds

log = logging.getLogger("dwell")

# Decisions of a request, at most.
GATHERED = 100
SUCCESS = frozenset({"acked", "nacked", "buried", "extended", "released", "pending"})
# How long a settlement waits at least for its answer, in seconds.
SETTLE_TIMEOUT = 1.0
# Refusals that a new token, scope or topic ends.
PATIENT = REPEATED | {0, 401, 403, 404, 500}


async def _awaited(result: Awaitable[None] | None) -> None:
    if result is not None:
        await result


def _status_of(error: DwellError) -> str:
    """The status of each receipt of a request that failed as a whole."""
    # The topic, the group or the only receipt does not exist: one that is unknown among others has a verdict. A 404 without a type is not
    # of a broker.
    if error.status == 404 and error.type:
        return "unknown"
    return "unreachable" if error.status in PATIENT else "refused"


@dataclass
class _Slot:
    delivery: Delivery
    # The visibility timeout of its reserve, in seconds.
    visible: float
    deadline: float
    extend_at: float
    extend_until: float
    decision: tuple[str, Mapping[str, Any]] | None = None
    decided_at: float = 0.0
    not_before: float = 0.0
    tries: int = 0
    # Its settlement has a separate request, since the broker refused it together with others.
    is_alone: bool = False
    # Its extension has a separate request, since the broker refused it together with others.
    is_extended_alone: bool = False
    has_begun: bool = False
    has_ended: bool = False
    task: asyncio.Task[None] | None = None


class Worker:
    """Handles messages of a group, up to `concurrency` at a time.

    A handler that returns acknowledges its message. An exception delivers it again after the backoff of the topic, `Retry` after
    the given time, and `Bury` makes it a dead letter. While a handler runs, the worker extends the deadline of its delivery, for
    up to `max_runtime`. `visibility` is how long a delivery is hidden from other consumers without that; default: the
    visibility timeout of the topic.

    With the text of an exception the broker keeps its class and stack, unless `error_details` is false. `on_event` is called
    with the name of a counter of `Stats`, or ``settled``, and the delivery.
    """

    def __init__(
        self,
        client: Client | AsyncClient,
        topic: str,
        *,
        group: str = "default",
        concurrency: int = 8,
        visibility: Duration | None = None,
        max_runtime: Duration = "1h",
        drain: Duration = "25s",
        wait: Duration = "30s",
        error_details: bool = True,
        handler: Handler | None = None,
        on_event: Hook | None = None,
    ) -> None:
        self._path = requests.group_path(topic, group)
        if concurrency < 1:
            raise ValueError("concurrency has to be at least 1")
        if visibility is not None and not milliseconds(visibility):
            raise ValueError("visibility has to be above 0")
        self._client = client
        self._transport = self._connect()
        self._concurrency = concurrency
        self._visibility = visibility
        # The longest visibility timeout that a reserve has answered with, in seconds.
        self._visible = 0.0
        self._error_details = error_details
        self._max_runtime, self._drain = seconds(max_runtime), seconds(drain)
        self._wait, self._wait_seconds = wait, seconds(wait)
        self._handler = handler
        self.on_event = on_event
        self._stats = Stats()
        self._error: BaseException | None = None
        # One lock, and a condition for each loop, so that a decision wakes only those that wait for it.
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        self._decided = threading.Condition(lock)
        self._begun_or_extended = threading.Condition(lock)
        self._slots: dict[str, _Slot] = {}
        self._stopping = threading.Event()
        self._is_over = False
        self._control: queue.SimpleQueue[float | None] = queue.SimpleQueue()
        self._begun: queue.SimpleQueue[_Slot | None] = queue.SimpleQueue()
        self._interrupt = Interrupt()
        self._handler_threads = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def _connect(self) -> Transport:
        """Connections of this worker alone, to the server of its client."""
        client = self._client
        return Transport(
            client.server, token_file=client.token_file, ca_file=client.ca_file, timeout=client.timeout, retry_for=0.0
        )

    def handle(self, handler: Handler) -> Handler:
        """Sets the handler: a function or a coroutine function. May be used as a decorator."""
        self._handler = handler
        return handler

    @property
    def stats(self) -> Stats:
        """A copy of the counters, for health checks and metrics."""
        with self._changed:
            return replace(self._stats, in_flight=len(self._slots))

    def run(self) -> None:
        """Works until `stop`, SIGTERM or SIGINT. A second signal ends it without `drain`. Raises an error that cannot pass."""
        with self._signals():
            self._work()

    async def run_async(self) -> None:
        """Works until `stop`, or until its asyncio task is cancelled. Coroutine handlers run in the loop that awaits this."""
        self._loop = asyncio.get_running_loop()
        work = asyncio.ensure_future(asyncio.to_thread(self._work))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            self.stop()
            await work
            raise

    def stop(self, drain: Duration | None = None) -> None:
        """Reserves nothing more, and waits up to `drain` for handlers. Returns at once; `run` returns at the end."""
        self._control.put(self._drain if drain is None else seconds(drain))

    def _work(self) -> None:
        if self._handler is None:
            raise ValueError("a worker needs a handler")
        own_loop, loop_thread = None, threading.current_thread()
        if self._loop is None and inspect.iscoroutinefunction(self._handler):
            own_loop = self._loop = asyncio.new_event_loop()
            loop_thread = self._thread(own_loop.run_forever)
        poll = self._thread(self._poll_loop)
        helpers = [self._thread(self._settle_loop), self._thread(self._extend_loop)]
        drain = self._control.get()
        self._stopping.set()
        self._interrupt.set()
        with self._changed:
            self._changed.notify_all()
        poll.join(2.0)
        with self._changed:
            for slot in self._slots.values():
                self._give_back(slot)
        self._drain_for(drain or 0.0)
        with self._changed:
            for slot in self._slots.values():
                if not slot.decision and not slot.has_ended:
                    self._abandon(slot)
                    self._decide(slot, "nack", reason="the worker stopped before the handler had finished", delay="0s")
            # Decisions are sent, or given up at their deadline.
            self._changed.wait_for(lambda: not any(slot.decision for slot in self._slots.values()), max(5.0, self._visible))
            self._is_over = True
            self._changed.notify_all()
            self._decided.notify()
            self._begun_or_extended.notify()
        for _ in range(self._handler_threads):
            self._begun.put(None)
        for helper in helpers:
            helper.join(2.0)
        if own_loop:
            own_loop.call_soon_threadsafe(own_loop.stop)
            loop_thread.join(2.0)
            own_loop.close()
        self._transport.close()
        if self._error:
            raise self._error

    def _drain_for(self, drain: float) -> None:
        """Waits for the handlers. Another `stop` may shorten it."""
        until = time.monotonic() + drain
        while (left := until - time.monotonic()) > 0:
            with self._changed:
                if self._changed.wait_for(lambda: not self._slots or not self._control.empty(), min(left, 0.1)) and not self._slots:
                    return
            if not self._control.empty():
                until = min(until, time.monotonic() + (self._control.get() or 0.0))

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        seen: list[int] = []

        def on_signal(number: int, _: object) -> None:
            seen.append(number)
            self._control.put(self._drain if len(seen) == 1 else 0.0)

        before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _thread(self, target: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                target()
            except Exception as error:
                # A worker without one of its threads would look alive and do nothing.
                log.exception("the worker failed")
                self._error = self._error or error
                self.stop("0s")

        thread = threading.Thread(target=run, name=f"dwell{target.__name__}", daemon=True)
        thread.start()
        return thread

    def _event(self, name: str, delivery: Delivery | None) -> None:
        if hasattr(self._stats, name):
            setattr(self._stats, name, getattr(self._stats, name) + 1)
        if self.on_event:
            try:
                self.on_event(name, delivery)
            except Exception:
                log.exception("on_event failed")

    # Reserve

    def _poll_loop(self) -> None:
        # A broker hands out the messages of its own partitions, so polls that change between brokers would move them around.
        transport = self._connect()
        try:
            self._poll(transport)
        finally:
            transport.close()

    def _poll(self, transport: Transport) -> None:
        failures = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping.is_set() or self._free() > 0)
                free = self._free()
            if self._stopping.is_set():
                return
            body = {
                "max": free,
                **duration_field("wait", self._wait),
                **duration_field("visibility_timeout", self._visibility),
            }
            try:
                answer = transport.call(
                    "POST", f"{self._path}/reserve", body, timeout=self._wait_seconds + 10, interrupt=self._interrupt
                )
            except Interrupted:
                return
            except DwellError as error:
                with self._changed:
                    self._event("poll_failures", None)
                log.warning("reserve failed: %s", error)
                if error.status not in PATIENT:
                    self._error = error
                    self.stop()
                    return
                self._stopping.wait(max(error.retry_after, backoff(failures, first=0.1)))
                failures += 1
                continue
            failures = 0
            with self._changed:
                self._stats.last_poll = time.time()
                now = time.monotonic()
                visible = answer["visibility_timeout_ms"] / 1000
                self._visible = max(self._visible, visible)
                for delivery in answer["deliveries"]:
                    self._begin(delivery, now, visible)
                self._begun_or_extended.notify()

    def _running(self) -> int:
        return sum(not slot.decision for slot in self._slots.values())

    def _free(self) -> int:
        """How many handlers can begin. Settlements may be under way for as many more."""
        return min(self._concurrency - self._running(), 2 * self._concurrency - len(self._slots), 1000)

    def _begin(self, answer: Mapping[str, Any], now: float, visible: float) -> None:
        def extend(visibility: Duration) -> bool:
            refusal = self._extend([slot], milliseconds(visibility))
            if slot.delivery.lost.is_set():
                return False
            if refusal:
                raise refusal
            return True

        delivery = replace(from_answer(Delivery, answer), _extend=extend)
        slot = _Slot(delivery, visible, now + visible, now + visible / 3, now + self._max_runtime)
        self._slots[delivery.receipt] = slot
        self._stats.lateness_ms = delivery.lateness_ms
        self._event("delivered", delivery)
        if self._stopping.is_set():
            self._give_back(slot)
        elif self._loop and inspect.iscoroutinefunction(self._handler):
            self._loop.call_soon_threadsafe(self._handle_in_loop, slot)
        else:
            if self._handler_threads < self._running():
                self._handler_threads += 1
                self._thread(self._handle_loop)
            self._begun.put(slot)

    def _may_handle(self, slot: _Slot) -> bool:
        """Whether a handler may begin. From then on the delivery is not given back unhandled."""
        with self._changed:
            slot.has_begun = not slot.decision
            return slot.has_begun

    def _give_back(self, slot: _Slot) -> None:
        """Releases a delivery that no handler has begun: it is due again at once, and counts as no attempt."""
        if not slot.has_begun and not slot.decision:
            self._decide(slot, "release")

    # Handle

    def _handle_loop(self) -> None:
        while slot := self._begun.get():
            if not self._may_handle(slot):
                continue
            try:
                assert self._handler
                result = self._handler(slot.delivery)
                if inspect.isawaitable(result):
                    asyncio.run(_awaited(result))
                error: BaseException | None = None
            except BaseException as raised:
                error = raised
            self._end(slot, error)

    def _handle_in_loop(self, slot: _Slot) -> None:
        """Starts a coroutine handler. Runs in the loop."""

        def ended(task: asyncio.Task[None]) -> None:
            self._end(slot, asyncio.CancelledError() if task.cancelled() else task.exception())

        if slot.delivery.lost.is_set():
            self._end(slot, None)
        elif self._may_handle(slot):
            assert self._handler and self._loop
            slot.task = self._loop.create_task(_awaited(self._handler(slot.delivery)))
            slot.task.add_done_callback(ended)

    def _end(self, slot: _Slot, error: BaseException | None) -> None:
        with self._changed:
            slot.has_ended = True
            if slot.decision:
                return
            if slot.delivery.lost.is_set():
                self._forget(slot)
            elif error is None:
                self._decide(slot, "ack")
            elif isinstance(error, Bury):
                self._decide(slot, "nack", bury=True, **self._reason(error))
            elif isinstance(error, Retry):
                pause = {"pause_key": True} if error.pause_key else {}
                self._decide(slot, "nack", **self._reason(error), **duration_field("delay", error.after), **pause)
            else:
                log.warning("handler of %s failed", slot.delivery.id, exc_info=error)
                self._decide(slot, "nack", **self._reason(error))

    def _reason(self, error: BaseException) -> dict[str, Any]:
        """The field with the reason. The text of a `Retry` or `Bury` says all, unless another error caused it."""
        is_asked = isinstance(error, (Retry, Bury)) and not error.__cause__
        if is_asked and not str(error):
            return {}
        return {"reason": reason_of(error, has_details=self._error_details and not is_asked)}

    def _abandon(self, slot: _Slot) -> None:
        slot.delivery.lost.set()
        if slot.task and self._loop:
            self._loop.call_soon_threadsafe(slot.task.cancel)

    def _forget(self, slot: _Slot) -> None:
        self._slots.pop(slot.delivery.receipt, None)
        self._changed.notify_all()

    # Settle

    def _decide(self, slot: _Slot, verb: str, **fields: Any) -> None:
        slot.decision = (verb, fields)
        slot.decided_at = time.monotonic()
        self._changed.notify_all()
        self._decided.notify()

    def _settle_loop(self) -> None:
        """Sends decisions until the worker is over. One request is under way at a time, and decisions gather meanwhile."""
        while True:
            with self._changed:
                while not (batch := self._gathered()):
                    if self._is_over:
                        return
                    times = [slot.not_before for slot in self._slots.values() if slot.decision]
                    self._decided.wait(max(0.0, min(times) - time.monotonic()) if times else None)
            verb = batch[0].decision[0] if batch[0].decision else ""
            receipts: list[Any] = [s.delivery.receipt for s in batch]
            if verb == "nack":
                receipts = [{"receipt": s.delivery.receipt, **s.decision[1]} for s in batch if s.decision]
            timeout = min(s.visible for s in batch) / 3
            try:
                verdicts = self._verdicts(verb, {"receipts": receipts}, timeout)
            except DwellError as error:
                log.warning("%s of %d deliveries failed: %s", verb, len(batch), error)
                status = _status_of(error)
                verdicts = [{"status": status}] * len(batch)
                if status == "refused" and len(batch) > 1:
                    for slot in batch:
                        slot.is_alone = True
                    continue
            with self._changed:
                for slot, verdict in zip(batch, verdicts):
                    self._settled(slot, verb, verdict)

    def _gathered(self) -> list[_Slot]:
        """The decisions to send now: one verb, those that were made first."""
        now = time.monotonic()
        ready = [slot for slot in self._slots.values() if slot.decision and slot.not_before <= now]
        if not ready:
            return []
        ready.sort(key=lambda slot: slot.decided_at)
        if ready[0].is_alone:
            return ready[:1]
        verb = ready[0].decision and ready[0].decision[0]
        return [slot for slot in ready if slot.decision and slot.decision[0] == verb and not slot.is_alone][:GATHERED]

    def _verdicts(self, verb: str, body: Mapping[str, Any], timeout: float) -> list[Mapping[str, Any]]:
        answer = self._transport.call("POST", f"{self._path}/{verb}", body, timeout=max(SETTLE_TIMEOUT, timeout))
        verdicts: list[Mapping[str, Any]] = answer["results"]
        return verdicts

    def _settled(self, slot: _Slot, verb: str, verdict: Mapping[str, Any]) -> None:
        status, delivery = verdict["status"], slot.delivery
        if status in SUCCESS:
            # The nack of the last attempt is answered with "buried".
            is_buried = status == "buried" or bool(slot.decision and slot.decision[1].get("bury"))
            outcome = {"ack": "acked", "release": "released"}.get(verb, "buried" if is_buried else "nacked")
            self._event(outcome, delivery)
        elif status == "refused":
            self._event("settle_failures", delivery)
            log.warning("%s of %s was refused: it may be delivered again", verb, delivery.id)
        elif status == "unreachable":
            self._event("settle_failures", delivery)
            if time.monotonic() < slot.deadline:
                slot.not_before = time.monotonic() + backoff(slot.tries)
                slot.tries += 1
                return
            log.warning("%s of %s was not answered before the deadline: it may be delivered again", verb, delivery.id)
        else:
            self._event("stale", delivery)
            log.warning("%s of %s came too late: %s", verb, delivery.id, verdict.get("reason", status))
        self._event("settled", delivery)
        self._forget(slot)

    # Extend

    def _extend_loop(self) -> None:
        while True:
            with self._changed:
                while True:
                    if self._is_over:
                        return
                    now = time.monotonic()
                    running = [s for s in self._slots.values() if not s.decision and not s.delivery.lost.is_set()]
                    for slot in running:
                        if now >= slot.deadline:
                            self._lose(slot)
                    due = [s for s in running if s.extend_at <= now < min(s.deadline, s.extend_until)]
                    if due:
                        break
                    times = [s.extend_at if now < s.extend_at < s.extend_until else s.deadline for s in running if now < s.deadline]
                    self._begun_or_extended.wait(max(0.0, min(times) - now) if times else None)
            # Each for as long as its reserve said, which is the same for all unless the topic was changed.
            batches = [[slot] for slot in due if slot.is_extended_alone]
            for visible in sorted({slot.visible for slot in due}):
                equal = [slot for slot in due if slot.visible == visible and not slot.is_extended_alone]
                batches += [equal[start:start + 1000] for start in range(0, len(equal), 1000)]
            for batch in batches:
                if self._extend(batch, round(batch[0].visible * 1000)):
                    self._end_extending(batch)

    def _extend(self, slots: list[_Slot], visible_ms: int) -> DwellError | None:
        """Extends deliveries in one call. Returns the error if the broker would refuse the same request again."""
        asked = time.monotonic()
        body = {"receipts": [s.delivery.receipt for s in slots], "visibility_timeout_ms": visible_ms}
        visible = visible_ms / 1000
        others = "unreachable"
        refusal: DwellError | None = None
        try:
            verdicts = self._verdicts("extend", body, slots[0].visible / 3)
        except DwellError as error:
            log.warning("extend of %d deliveries failed: %s", len(slots), error)
            others = _status_of(error)
            refusal = error if others == "refused" else None
            verdicts = [{"status": others}] * len(slots)
        with self._changed:
            for slot, verdict in zip(slots, verdicts):
                if verdict["status"] in SUCCESS:
                    slot.deadline, slot.extend_at, slot.is_extended_alone = asked + visible, asked + visible / 3, False
                    self._event("extended", slot.delivery)
                elif verdict["status"] == "unreachable":
                    slot.extend_at = time.monotonic() + min(1.0, slot.visible / 10)
                elif verdict["status"] == "refused":
                    # A handler may have asked for a wrong time, so the worker keeps its own.
                    pass
                elif not slot.decision:
                    self._lose(slot)
            self._begun_or_extended.notify()
        return refusal

    def _end_extending(self, slots: list[_Slot]) -> None:
        """Extends a delivery no more. If the broker refused several together, one may be wrong: each has another request."""
        with self._changed:
            for slot in slots:
                if len(slots) > 1:
                    slot.is_extended_alone = True
                    continue
                slot.extend_until = 0.0
                log.warning("extend of %s was refused: the delivery is lost at its deadline", slot.delivery.id)

    def _lose(self, slot: _Slot) -> None:
        if not slot.delivery.lost.is_set():
            log.warning("delivery of %s is lost: another consumer may have it", slot.delivery.id)
            self._event("lost", slot.delivery)
            self._abandon(slot)
