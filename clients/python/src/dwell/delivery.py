"""The delivery that a handler gets, the errors that it may raise, and the counters of a worker."""

from __future__ import annotations

import builtins
import threading
import traceback
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Awaitable, Callable, Union

from .answers import Contents
from .values import Duration, duration_field

# The broker cuts a message at 1 KiB, and what is longer of the others, in bytes.
MESSAGE, CLASS, STACK = 1000, 256, 4096


class Retry(Exception):
    """Raised by a handler: deliver the message again, after `after` or the backoff of its topic.

    With `pause_key` all messages of its key wait as long, and no attempt of theirs is counted, as for a 429 with ``Retry-After`` of a
    customer's endpoint. Only in a fair group: in another one the broker refuses it, and delivers the message again after its
    visibility timeout.
    """

    def __init__(self, reason: str = "", *, after: Duration | None = None, pause_key: bool = False) -> None:
        duration_field("after", after)
        super().__init__(reason)
        self.after = after
        self.pause_key = pause_key


class Bury(Exception):
    """Raised by a handler: the message can never succeed; make it a dead letter."""


@dataclass(frozen=True, kw_only=True)
class Delivery(Contents):
    """A message that was handed to this worker. `lost` is set once another consumer may have it."""

    id: str
    receipt: str
    attempt: int
    partition: int
    due_at: datetime
    deadline: datetime
    lateness_ms: int
    lost: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)
    _extend: Callable[[Duration], bool] | None = field(default=None, repr=False, compare=False)

    @property
    def bytes(self) -> builtins.bytes:
        """The payload."""
        return self.payload

    def extend(self, visibility: Duration) -> bool:
        """Moves the deadline to `visibility` from now. Returns whether the delivery still belongs to this worker.

        Raises `DwellError` if the broker refuses this time, such as one beyond a limit. The deadline is then as before, and the worker
        still extends it by its visibility timeout.
        """
        return bool(self._extend and self._extend(visibility))


Handler = Callable[[Delivery], Union[None, Awaitable[None]]]
Hook = Callable[[str, Union[Delivery, None]], None]


@dataclass
class Stats:
    """Counters since the start, and the state now. `last_poll` is a Unix time, `lateness_ms` of the last delivery."""

    delivered: int = 0
    acked: int = 0
    nacked: int = 0
    buried: int = 0
    released: int = 0
    extended: int = 0
    stale: int = 0
    lost: int = 0
    poll_failures: int = 0
    settle_failures: int = 0
    in_flight: int = 0
    lateness_ms: int = 0
    last_poll: float = 0.0


def reason_of(error: BaseException, *, has_details: bool) -> str | dict[str, Any]:
    """The reason of a nack: the text of an error, and with details its class and where it was raised."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    message = cut(str(error), MESSAGE)
    if not has_details:
        return message or cut(name, MESSAGE)
    # The first frame is the worker's.
    frames = error.__traceback__ and (error.__traceback__.tb_next or error.__traceback__)
    raised = traceback.TracebackException(kind, error, frames)
    lines, said = list(raised.format()), list(raised.format_exception_only())
    # Class and message are beside it, so its end is where the error arose.
    stack = "".join(lines[:-len(said)] if lines[-len(said):] == said else lines).rstrip()
    return {"class": cut(name, CLASS), "message": message, "stack": cut(stack, STACK, keeps_end=True)}


def cut(text: str, most: int, *, keeps_end: bool = False) -> str:
    """The text with at most so many bytes of UTF-8, cut at a character."""
    encoded = text.encode(errors="replace")
    return (encoded[-most:] if keeps_end else encoded[:most]).decode(errors="ignore")
