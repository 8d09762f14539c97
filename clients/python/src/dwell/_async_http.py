"""HTTP for asyncio: connections that are reused, and requests that are repeated. Nothing here blocks the loop."""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import Any, Awaitable, Callable, Iterable, Mapping, TypeVar

from ._http import AT_ONCE, CONNECT_TIMEOUT, IDLE, address
from ._repeats import NoAnswer, Repeats, Token, decoded, encoded
from .errors import DwellError

# How long a server may take to answer that a TLS connection ends.
CLOSE_TIMEOUT = 1.0

T = TypeVar("T")
R = TypeVar("R")


class _Invalid(Exception):
    """An answer that is not HTTP."""


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.loop = asyncio.get_running_loop()
        self.reader, self.writer = reader, writer
        self.idle_since = 0.0

    def close(self) -> None:
        if not self.loop.is_closed():
            self.writer.close()

    async def exchange(self, request: bytes) -> tuple[int, dict[str, str], bytes]:
        """Sends a request and reads its answer: status, headers, body."""
        self.writer.write(request)
        await self.writer.drain()
        status = 100
        while status < 200:
            status, headers = await self._head()
        if status in (204, 304):
            return status, headers, b""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return status, headers, await self._chunks()
        if "content-length" in headers:
            return status, headers, await self.reader.readexactly(int(headers["content-length"]))
        headers["connection"] = "close"
        return status, headers, await self.reader.read()

    async def _head(self) -> tuple[int, dict[str, str]]:
        line = await self.reader.readline()
        if not line:
            raise ConnectionResetError("the connection was closed without an answer")
        words = line.split(None, 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
            raise _Invalid(f"not HTTP: {line[:80]!r}")
        headers: dict[str, str] = {}
        while (line := await self.reader.readline()) not in (b"\r\n", b"\n"):
            if not line.endswith(b"\n"):
                raise ConnectionResetError("the connection was closed in the middle of an answer")
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        return int(words[1]), headers

    async def _chunks(self) -> bytes:
        body = bytearray()
        while size := int((await self.reader.readline()).split(b";")[0] or b"x", 16):
            body += await self.reader.readexactly(size)
            await self.reader.readline()
        while (await self.reader.readline()).strip():
            pass
        return bytes(body)


class AsyncTransport:
    """Sends requests to a broker. It may be used by many tasks."""

    def __init__(self, server: str, *, token_file: str | None, ca_file: str | None, timeout: float, retry_for: float) -> None:
        self._server = server
        self._scheme, self._host, self._port = address(server)
        self._tls = ssl.create_default_context(cafile=ca_file) if self._scheme == "https" else None
        self._token = Token(token_file)
        self._timeout = timeout
        self._retry_for = retry_for
        self._idle: list[_Connection] = []

    async def call(
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
    ) -> Any:
        """Sends a request until its answer is final or `retry_for` seconds are over. Raises `DwellError`.

        With `is_bounded` no try takes longer than `retry_for`. A request that is not `is_repeatable` is sent again only if it
        was certainly not applied.
        """
        repeats = Repeats(self._server, self._retry_for if retry_for is None else retry_for, is_repeatable)
        data = encoded(body) or b""
        while True:
            limit = repeats.timeout(timeout or self._timeout, is_bounded=is_bounded)
            try:
                return await self._once(method, path, data, headers or {}, limit, is_repeatable)
            except (DwellError, NoAnswer) as error:
                wait = repeats.after(error)
            await asyncio.sleep(wait)

    async def aclose(self) -> None:
        """Closes the connections that are idle."""
        idle = [connection for connection in self._idle if connection.loop is asyncio.get_running_loop()]
        self._close()
        if idle:
            closing = [asyncio.ensure_future(connection.writer.wait_closed()) for connection in idle]
            _, late = await asyncio.wait(closing, timeout=CLOSE_TIMEOUT)
            for connection in idle if late else ():
                connection.writer.transport.abort()
            # A connection that was broken before is closed as well as any other.
            await asyncio.gather(*closing, return_exceptions=True)

    def _close(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    async def _once(self, method: str, path: str, data: bytes, headers: Mapping[str, str], timeout: float, may_reuse: bool) -> Any:
        used_token = self._token.read()
        while True:
            request = self._request(method, path, data, headers, used_token)
            connection = self._take() if may_reuse else None
            is_reused, is_sent = connection is not None, False
            try:
                if connection is None:
                    connection = await asyncio.wait_for(self._connect(), min(timeout, CONNECT_TIMEOUT))
                is_sent = True
                status, answer_headers, raw = await asyncio.wait_for(connection.exchange(request), timeout)
            except (OSError, EOFError, ValueError, _Invalid, asyncio.TimeoutError) as error:
                if connection:
                    connection.close()
                if is_reused and not isinstance(error, (TimeoutError, asyncio.TimeoutError)):
                    # The broker closed it meanwhile, and probably the others, too.
                    self._close()
                    continue
                raise NoAnswer(error, is_sent) from error
            except BaseException:
                if connection:
                    connection.close()
                raise
            if answer_headers.get("connection", "").lower() == "close":
                connection.close()
            else:
                connection.idle_since = time.monotonic()
                self._idle.append(connection)
            if status == 401 and (token := self._token.read(again=True)) != used_token:
                used_token = token
                continue
            return decoded(status, answer_headers.get("retry-after", ""), raw)

    def _request(self, method: str, path: str, data: bytes, headers: Mapping[str, str], token: str) -> bytes:
        host = "localhost" if self._scheme == "unix" else f"[{self._host}]" if ":" in self._host else self._host
        lines = {"Host": f"{host}:{self._port}" if self._port else host, "Content-Type": "application/json"}
        lines |= {"Content-Length": str(len(data)), **headers, **({"Authorization": f"Bearer {token}"} if token else {})}
        if any("\r" in value or "\n" in value for value in lines.values()):
            raise ValueError("a header has a line break")
        text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"{method} {path} HTTP/1.1\r\n{text}\r\n".encode("latin-1") + data

    def _take(self) -> _Connection | None:
        loop = asyncio.get_running_loop()
        while self._idle:
            connection = self._idle.pop()
            # A connection ends with the loop in which it was opened.
            if connection.loop is loop and time.monotonic() - connection.idle_since < IDLE and not connection.reader.at_eof():
                return connection
            connection.close()
        return None

    async def _connect(self) -> _Connection:
        if self._scheme == "unix":
            return _Connection(*await asyncio.open_unix_connection(self._host))
        return _Connection(*await asyncio.open_connection(self._host, self._port, ssl=self._tls))


async def each(function: Callable[[T], Awaitable[R]], items: Iterable[T]) -> list[R | DwellError]:
    """The result of the function for each item, or the `DwellError` that it raises; some at once."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(item: T) -> R | DwellError:
        async with places:
            try:
                return await function(item)
            except DwellError as error:
                return error

    return list(await asyncio.gather(*(one(item) for item in items)))
