"""When a request is sent again, and how it fails in the end. Sends nothing itself."""

from __future__ import annotations

import json
import os
import random
import time
from typing import Any, Mapping

from .errors import DwellError, Unavailable
from .values import compact

# Answers after which the same request may succeed.
REPEATED = frozenset({408, 429, 503, 504})


class NoAnswer(Exception):
    """A request had no answer. `is_sent`: the broker may have read it."""

    def __init__(self, cause: Exception, is_sent: bool) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}")
        self.cause = cause
        self.is_sent = is_sent


def backoff(tries: int, *, first: float = 0.05, most: float = 2.0) -> float:
    """How long to wait before try number `tries` + 1, in seconds: exponential, with jitter."""
    return float(min(most, first * 2 ** min(tries, 16)) * random.uniform(0.5, 1.0))


def patience(until: float, retry_for: float) -> float:
    """For how long a call that may be repeated for `retry_for` seconds may still be: at least for a short try."""
    return max(0.1, until - time.monotonic()) if retry_for else 0.0


class Repeats:
    """The tries of one call."""

    def __init__(self, server: str, retry_for: float, is_repeatable: bool) -> None:
        self._server = server
        self._retry_for = retry_for
        self._is_repeatable = is_repeatable
        self._until = time.monotonic() + retry_for
        self._tries = 0
        # Whether an earlier try may have succeeded.
        self._is_open = False

    def timeout(self, timeout: float, *, is_bounded: bool) -> float:
        """How long the next try may take. If it is bounded, no longer than the call may be repeated."""
        return min(timeout, max(0.1, self._until - time.monotonic())) if is_bounded and self._retry_for else timeout

    def after(self, error: DwellError | NoAnswer) -> float:
        """How long to wait before the next try. Raises the error of the call if there is none."""
        is_lost = isinstance(error, NoAnswer)
        retry_after = error.retry_after if isinstance(error, DwellError) else 0.0
        if isinstance(error, DwellError):
            error.repeated = self._is_open
            if error.status not in REPEATED:
                raise error
        is_applied = error.is_sent if isinstance(error, NoAnswer) else error.status == 504
        self._is_open = self._is_open or is_applied
        wait = max(retry_after, backoff(self._tries))
        self._tries += 1
        if time.monotonic() + wait <= self._until and (self._is_repeatable or not is_applied):
            return wait
        cause = error.cause if isinstance(error, NoAnswer) else error
        tried = f" within {self._retry_for:g} s" if self._retry_for and self._is_repeatable else ""
        text = f"{self._server}: no {'' if is_lost else 'final '}answer{tried}: {error}"
        status, problem = (0, {"detail": text}) if isinstance(error, NoAnswer) else (error.status, error.problem)
        failed = Unavailable(status, problem, retry_after, text)
        failed.repeated = self._is_open and not is_applied
        raise failed from cause


class Token:
    """The token in a file, read again when the file changes."""

    def __init__(self, file: str | None) -> None:
        self._file = file
        self._seen: tuple[int, int, int] | None = None
        self._token = ""

    def read(self, *, again: bool = False) -> str:
        """The token; empty without a file."""
        if not self._file:
            return ""
        try:
            stat = os.stat(self._file)
            seen = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
            if again or seen != self._seen:
                with open(self._file, encoding="ascii") as file:
                    self._token = file.read().strip()
                self._seen = seen
        except OSError as error:
            # A file that is being replaced may be absent for a moment.
            if not self._token:
                raise NoAnswer(error, is_sent=False) from error
        return self._token


def encoded(body: bytes | Mapping[str, Any] | None) -> bytes | None:
    """A body as it is sent."""
    return body if isinstance(body, bytes) or body is None else compact(body)


def decoded(status: int, retry_after: str, raw: bytes) -> Any:
    """The answer. Raises `DwellError` if it is a problem."""
    try:
        answer = json.loads(raw) if raw else {}
    except ValueError:
        answer = {"detail": raw[:200].decode(errors="replace")}
    # A problem with verdicts or results is an answer to read: only some of it failed.
    if status < 300 or (isinstance(answer, dict) and "results" in answer):
        return answer
    raise DwellError(status, answer if isinstance(answer, dict) else {}, float(retry_after) if retry_after.isdigit() else 0.0)
