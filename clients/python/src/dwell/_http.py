"""HTTP with blocking sockets: connections that are reused, and requests that are repeated."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterable, Mapping, TypeVar
from urllib.parse import urlsplit

from ._repeats import NoAnswer, Repeats, Token, decoded, encoded
from .errors import DwellError

# The broker closes idle connections after 75 seconds.
IDLE = 50.0
CONNECT_TIMEOUT = 10.0
# Requests that are under way at once when one call is about many messages.
AT_ONCE = 16

T = TypeVar("T")
R = TypeVar("R")


class Interrupted(Exception):
    """The caller interrupted a request."""


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
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Transport:
    """Sends requests to a broker. It may be used by many threads."""

    def __init__(self, server: str, *, token_file: str | None, ca_file: str | None, timeout: float, retry_for: float) -> None:
        self._server = server
        self._connect = _connector(server, ca_file)
        self._token = Token(token_file)
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
        is_bounded: bool = False,
        is_repeatable: bool = True,
        interrupt: Interrupt | None = None,
    ) -> Any:
        """Sends a request until its answer is final or `retry_for` seconds are over. Raises `DwellError`.

        With `is_bounded` no try takes longer than `retry_for`. A request that is not `is_repeatable` is sent again only if it
        was certainly not applied.
        """
        repeats = Repeats(self._server, self._retry_for if retry_for is None else retry_for, is_repeatable)
        data, headers = encoded(body), {"Content-Type": "application/json", **(headers or {})}
        while True:
            limit = repeats.timeout(timeout or self._timeout, is_bounded=is_bounded)
            try:
                return self._once(method, path, data, headers, limit, is_repeatable, interrupt)
            except (DwellError, NoAnswer) as error:
                wait = repeats.after(error)
            time.sleep(wait)

    def close(self) -> None:
        """Closes the connections that are idle."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    def _once(
        self, method: str, path: str, data: bytes | None, headers: dict[str, str], timeout: float, may_reuse: bool,
        interrupt: Interrupt | None,
    ) -> Any:
        used_token = self._token.read()
        while True:
            if used_token:
                headers["Authorization"] = f"Bearer {used_token}"
            connection, is_reused = self._take(may_reuse)
            is_sent = False
            try:
                if connection.sock is None:
                    connection.timeout = min(timeout, CONNECT_TIMEOUT)
                    connection.connect()
                is_sent = True
                status, retry_after, raw = self._exchange(connection, method, path, data, headers, timeout, interrupt)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if interrupt and interrupt.is_set:
                    raise Interrupted from error
                if is_reused and not isinstance(error, TimeoutError):
                    # The broker closed it meanwhile, and probably the others, too.
                    self.close()
                    continue
                raise NoAnswer(error, is_sent) from error
            except BaseException:
                connection.close()
                raise
            if status == 401 and (token := self._token.read(again=True)) != used_token:
                used_token = token
                continue
            return decoded(status, retry_after, raw)

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        data: bytes | None,
        headers: Mapping[str, str],
        timeout: float,
        interrupt: Interrupt | None,
    ) -> tuple[int, str, bytes]:
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
        return response.status, response.headers.get("Retry-After", ""), raw

    def _take(self, may_reuse: bool) -> tuple[http.client.HTTPConnection, bool]:
        with self._lock:
            while self._idle and may_reuse:
                since, connection = self._idle.pop()
                if time.monotonic() - since < IDLE:
                    return connection, True
                connection.close()
        return self._connect(), False


def address(server: str) -> tuple[str, str, int]:
    """The scheme, the host or path, and the port of a server. Raises `ValueError`."""
    if server.startswith("unix:") and len(server) > 5:
        return "unix", server.removeprefix("unix:"), 0
    url = urlsplit(server)
    if url.scheme not in ("http", "https") or not url.hostname or url.path.strip("/"):
        raise ValueError(f"server {server!r}: expected http://HOST:PORT, https://HOST:PORT or unix:/PATH")
    return url.scheme, url.hostname, url.port or (7373 if url.scheme == "http" else 443)


def _connector(server: str, ca_file: str | None) -> Callable[[], http.client.HTTPConnection]:
    scheme, host, port = address(server)
    if scheme == "unix":
        return lambda: _UnixConnection(host)
    if scheme == "http":
        return lambda: http.client.HTTPConnection(host, port)
    context = ssl.create_default_context(cafile=ca_file)
    return lambda: http.client.HTTPSConnection(host, port, context=context)


def each(function: Callable[[T], R], items: Iterable[T]) -> list[R | DwellError]:
    """The result of the function for each item, or the `DwellError` that it raises; some at once."""

    def one(item: T) -> R | DwellError:
        try:
            return function(item)
        except DwellError as error:
            return error

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(one, items))
