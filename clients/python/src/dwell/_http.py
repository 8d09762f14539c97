"""HTTP: connections that are reused, requests that are repeated, and a token that is read again."""

from __future__ import annotations

import contextlib
import copy
import http.client
import json
import os
import random
import socket
import ssl
import threading
import time
from typing import Any, Callable, Mapping
from urllib.parse import urlsplit

# The broker closes idle connections after 75 seconds.
IDLE = 50.0
CONNECT_TIMEOUT = 10.0
# Answers after which the same request may succeed.
REPEATED = frozenset({408, 429, 503, 504})


class DwellError(Exception):
    """The broker refused a request. `type` is stable, such as ``not-found``; `problem` is the whole answer.

    `repeated`: an earlier try had no answer and may have succeeded. Then a ``conflict`` or ``precondition-failed`` may be its doing.
    """

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after: float = 0.0) -> None:
        self.status = status
        self.problem = problem
        self.type: str = str(problem.get("type", "")).removeprefix("urn:dwell:error:")
        self.detail: str = str(problem.get("detail", ""))
        self.request_id: str = str(problem.get("request_id", ""))
        self.retry_after = retry_after
        self.repeated = False
        super().__init__(f"{status} {self.type}: {self.detail}" if status else self.detail)


class Unavailable(DwellError):
    """No answer, or none that is final, within `retry_for`. A push may be stored: push again with the same id and key."""


class Interrupted(Exception):
    """The caller interrupted a request."""


def backoff(tries: int, *, first: float = 0.05, most: float = 2.0) -> float:
    """How long to wait before try number `tries` + 1, in seconds: exponential, with jitter."""
    return float(min(most, first * 2 ** min(tries, 16)) * random.uniform(0.5, 1.0))


class Interrupt:
    """Ends a request early from another thread. An answer that is already on its way is still read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None
        self.is_set = False

    def watch(self, sock: socket.socket | None) -> None:
        with self._lock:
            self._sock = sock
            if self.is_set and sock:
                raise Interrupted

    def set(self) -> None:
        with self._lock:
            self.is_set = True
            if self._sock:
                # The broker ends the request when the client can send nothing more.
                self._shut(self._sock, socket.SHUT_WR)
                timer = threading.Timer(1.0, self._shut, (self._sock, socket.SHUT_RDWR))
                timer.daemon = True
                timer.start()

    @staticmethod
    def _shut(sock: socket.socket, how: int) -> None:
        with contextlib.suppress(OSError):
            # Not the method of a TLS socket, which would end decryption.
            socket.socket.shutdown(sock, how)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=CONNECT_TIMEOUT)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(CONNECT_TIMEOUT)
        self.sock.connect(self._path)


class Transport:
    """Sends requests to a broker. It may be used by many threads."""

    def __init__(self, server: str, *, token_file: str | None, ca_file: str | None, timeout: float, retry_for: float) -> None:
        self._connect = _connector(server, ca_file)
        self._token = _Token(token_file)
        self._timeout = timeout
        self._retry_for = retry_for
        self._lock = threading.Lock()
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []

    def call(
        self,
        method: str,
        path: str,
        body: bytes | Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
        retry_for: float | None = None,
        interrupt: Interrupt | None = None,
    ) -> tuple[int, Any]:
        """Sends a request until its answer is final or `retry_for` seconds are over. Raises `DwellError`."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        until = time.monotonic() + (self._retry_for if retry_for is None else retry_for)
        tries, is_open = 0, False
        while True:
            try:
                return self._once(method, path, data, dict(headers or {}), timeout or self._timeout, interrupt)
            except DwellError as error:
                wait = max(error.retry_after, backoff(tries))
                error.repeated = is_open
                is_open = is_open or error.status in (0, 504)
                if error.status and error.status not in REPEATED:
                    raise
                if time.monotonic() + wait > until:
                    raise Unavailable(error.status, error.problem, error.retry_after) from error
            tries += 1
            time.sleep(wait)

    def sibling(self) -> Transport:
        """The same with connections that nothing else uses: behind a load balancer they stay with one broker."""
        sibling = copy.copy(self)
        sibling._lock, sibling._idle = threading.Lock(), []
        return sibling

    def close(self) -> None:
        """Closes the connections that are idle."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    def _once(
        self, method: str, path: str, data: bytes | None, headers: dict[str, str], timeout: float, interrupt: Interrupt | None
    ) -> tuple[int, Any]:
        headers.setdefault("Content-Type", "application/json")
        used_token = self._token.read()
        while True:
            if used_token:
                headers["Authorization"] = f"Bearer {used_token}"
            connection, is_reused = self._take()
            try:
                status, answer_headers, raw = self._exchange(connection, method, path, data, headers, timeout, interrupt)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if interrupt and interrupt.is_set:
                    raise Interrupted from error
                if is_reused and not isinstance(error, TimeoutError):
                    # The broker closed it meanwhile, and probably the others, too.
                    self.close()
                    continue
                raise DwellError(0, {"detail": f"{type(error).__name__}: {error}"}) from error
            except BaseException:
                connection.close()
                raise
            if status == 401 and (token := self._token.read(again=True)) != used_token:
                used_token = token
                continue
            return _decoded(status, answer_headers, raw)

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        data: bytes | None,
        headers: Mapping[str, str],
        timeout: float,
        interrupt: Interrupt | None,
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        if connection.sock is None:
            connection.connect()
        connection.sock.settimeout(timeout)
        if interrupt:
            interrupt.watch(connection.sock)
        try:
            connection.request(method, path, data, dict(headers))
            response = connection.getresponse()
            raw = response.read()
        finally:
            if interrupt:
                interrupt.watch(None)
        if response.will_close or (interrupt and interrupt.is_set):
            connection.close()
        else:
            with self._lock:
                self._idle.append((time.monotonic(), connection))
        return response.status, response.headers, raw

    def _take(self) -> tuple[http.client.HTTPConnection, bool]:
        with self._lock:
            while self._idle:
                since, connection = self._idle.pop()
                if time.monotonic() - since < IDLE:
                    return connection, True
                connection.close()
        return self._connect(), False


class _Token:
    """The token in a file, read again when the file changes."""

    def __init__(self, file: str | None) -> None:
        self._file = file
        self._seen: tuple[int, int, int] | None = None
        self._token = ""

    def read(self, *, again: bool = False) -> str:
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
                raise DwellError(0, {"detail": f"token file: {error}"}) from error
        return self._token


def _connector(server: str, ca_file: str | None) -> Callable[[], http.client.HTTPConnection]:
    if server.startswith("unix:"):
        path = server.removeprefix("unix:")
        return lambda: _UnixConnection(path)
    url = urlsplit(server)
    if url.scheme not in ("http", "https") or not url.hostname or url.path.strip("/"):
        raise ValueError(f"server {server!r}: expected http://HOST:PORT, https://HOST:PORT or unix:/PATH")
    host, port = url.hostname, url.port
    if url.scheme == "http":
        return lambda: http.client.HTTPConnection(host, port or 7373, timeout=CONNECT_TIMEOUT)
    context = ssl.create_default_context(cafile=ca_file)
    return lambda: http.client.HTTPSConnection(host, port or 443, timeout=CONNECT_TIMEOUT, context=context)


def _decoded(status: int, headers: http.client.HTTPMessage, raw: bytes) -> tuple[int, Any]:
    try:
        answer = json.loads(raw) if raw else {}
    except ValueError:
        answer = {"detail": raw[:200].decode(errors="replace")}
    # A problem with verdicts or results is an answer to read: only some of it failed.
    if status < 300 or (isinstance(answer, dict) and "results" in answer):
        return status, answer
    after = headers.get("Retry-After", "")
    raise DwellError(status, answer if isinstance(answer, dict) else {}, float(after) if after.isdigit() else 0.0)
