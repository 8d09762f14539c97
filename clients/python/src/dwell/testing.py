"""A broker for tests, whose time they move: `with broker() as broker: ... broker.advance("30d")`."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Iterator, Mapping

from ._client import Client
from ._http import Transport
from .values import Duration, Time, duration_field, time_field

_START_TIMEOUT = 30.0
_STOP_TIMEOUT = 30.0
# Many cron jobs may fire before the answer.
_MOVE_TIMEOUT = 300.0


@dataclass(frozen=True)
class Moved:
    """The outcome of a move of the clock."""

    now: datetime
    #: The groups in which messages became due: ``{"topic", "group", "messages"}``.
    due: list[Mapping[str, Any]]
    #: The cron jobs that fired: ``{"topic", "name", "times"}``.
    fired: list[Mapping[str, Any]]
    #: Deliveries whose visibility timeout passed.
    timed_out: int


class Broker:
    """A broker on a test clock. `server` is its address, and `client` a client of it."""

    def __init__(self, server: str) -> None:
        self.server = server
        self.client = Client(server)
        self._transport = Transport(server, token_file=None, ca_file=None, timeout=_MOVE_TIMEOUT, retry_for=0.0)

    def advance(self, by: Duration) -> Moved:
        """Moves time forward. Messages that become due can be received once it returns."""
        return self._move(duration_field("advance", by))

    def advance_to(self, to: Time) -> Moved:
        """Moves time forward to a time that is not past."""
        return self._move(time_field("to", to))

    def now(self) -> datetime:
        """The time of messages."""
        return _time(self._transport.call("GET", "/v1/test/clock")["now"])

    def _move(self, request: Mapping[str, Any]) -> Moved:
        # Never repeated: the clock would move again.
        answer = self._transport.call("POST", "/v1/test/clock", request, is_repeatable=False)
        return Moved(_time(answer["now"]), answer["due"], answer["fired"], answer["timed_out"])


@contextlib.contextmanager
def broker(binary: str | None = None) -> Iterator[Broker]:
    """Runs ``dwell serve --test-clock`` on a free port with a temporary directory, and ends both.

    `binary` is the program; default ``DWELL_BIN``, and else ``dwell`` in ``PATH``. Raises `RuntimeError` if it does not start.
    """
    program = binary or os.environ.get("DWELL_BIN") or shutil.which("dwell")
    if not program:
        raise RuntimeError("there is no dwell in PATH; DWELL_BIN may name it")
    # Nothing from the environment may change what it does.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DWELL_")}
    with tempfile.TemporaryDirectory(prefix="dwell-test-") as directory:
        args = [program, "serve", "--test-clock", "--listen", "127.0.0.1:0", "--data-dir", directory, "--log-level", "error"]
        process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=None, env=environment, text=True)
        try:
            running = Broker(_address(process))
            with running.client, contextlib.closing(running._transport):
                yield running
        finally:
            process.terminate()
            try:
                process.wait(_STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout:
                process.stdout.close()


def _address(process: subprocess.Popen[str]) -> str:
    """The address that it prints once it serves."""
    for line in process.stdout or ():
        words = line.split()
        if words[:1] == ["address"]:
            return words[1]
    raise RuntimeError(f"dwell serve --test-clock ended with {process.wait(_START_TIMEOUT)}")


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
