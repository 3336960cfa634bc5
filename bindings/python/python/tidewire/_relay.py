"""One connection of an ASGI server, relayed to the engine."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple

from ._native import Relay, RelayClosed, RelayOpened, RelayRefused
from .errors import StoppedError, TidewireError

logger = logging.getLogger("tidewire")

Connect = Callable[[MutableMapping[str, Any]], Awaitable[socket.socket]]
"""Makes a connection to the engine for a scope."""

Event = str | bytes | RelayOpened | RelayRefused | RelayClosed


class RelayConnection:
    """The life of one connection: requested, accepted or refused, then messages both ways until one side closes.

    Each direction holds one message and what the buffers of the loopback connection take. A side that does
    not read is not written to, and so the other is not read.
    """

    def __init__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
        *,
        path: str,
        connect: Connect,
        buffer_bytes_max: int,
        message_bytes_max: int,
        opening_timeout_s: float,
    ) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._path = path
        self._connect = connect
        self._buffer_bytes_max = buffer_bytes_max
        self._message_bytes_max = message_bytes_max
        self._opening_timeout_s = opening_timeout_s
        self._client_is_gone = False

    async def run(self) -> None:
        """Serves the connection to its end."""
        if (await self._receive())["type"] != "websocket.connect":
            return
        relay = Relay(
            _host(self._scope),
            _target(self._scope, self._path),
            _headers(self._scope),
            list(self._scope.get("subprotocols") or ()),
            self._message_bytes_max,
        )
        if not relay.request:
            await self._refuse(400, "the request has a header that cannot be passed on")
            return
        try:
            engine = await self._connect(self._scope)
        except TidewireError as error:
            is_stopped = isinstance(error, StoppedError)
            words = (
                "the server does not run" if is_stopped else "the server cannot accept this connection now"
            )
            await self._refuse(503, words, retry_after=1)
            return
        try:
            reader, writer = await asyncio.open_connection(sock=engine, limit=self._buffer_bytes_max)
        except BaseException:
            engine.close()
            raise
        try:
            await self._talk(relay, reader, writer)
        finally:
            # All that was to be waited for has been; what is left nobody reads.
            writer.transport.abort()

    async def _talk(self, relay: Relay, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(high=self._buffer_bytes_max)
        writer.write(relay.request)
        try:
            events = await asyncio.wait_for(self._open(relay, reader), self._opening_timeout_s)
        except asyncio.TimeoutError:
            await self._refuse(503, "the server took too long", retry_after=1)
            return
        if events is None:
            return
        downward = asyncio.create_task(self._pass_down(relay, reader, writer, events))
        upward = asyncio.create_task(self._pass_up(relay, writer))
        try:
            await asyncio.wait({downward, upward}, return_when=asyncio.FIRST_COMPLETED)
            if upward.done():
                # The engine answers the close when it has read all that came before it.
                await asyncio.wait({downward}, timeout=CLOSE_TIMEOUT_S)
        finally:
            # Before the close is sent nobody may be waiting for a message: granian would not send it.
            await _cancel(downward, upward)
        if self._client_is_gone:
            return
        ended = Ended(SERVICE_RESTART, "the server ended the connection")
        if not downward.cancelled() and downward.exception() is None:
            ended = downward.result()
        try:
            await self._send({"type": "websocket.close", "code": ended.code or 1000, "reason": ended.reason})
        except Exception as error:
            logger.debug("the client went away as it was told the end: %r", error)

    async def _open(self, relay: Relay, reader: asyncio.StreamReader) -> list[Event] | None:
        """Waits for the engine's answer and passes it on; what came behind it, `None` after a refusal."""
        while True:
            data = await _read(reader)
            if not data:
                await self._refuse(503, "the server ended the connection", retry_after=1)
                return None
            events = relay.receive(data)
            if not events:
                continue
            first, rest = events[0], events[1:]
            if isinstance(first, RelayOpened):
                await self._send({"type": "websocket.accept", "subprotocol": first.protocol})
                return rest
            if isinstance(first, RelayRefused):
                await self._refuse(first.status, first.reason, retry_after=first.retry_after)
            return None

    async def _pass_down(
        self, relay: Relay, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, events: list[Event]
    ) -> Ended:
        """Passes on what the engine says, until it ends the connection; how it did."""
        while True:
            for event in events:
                if isinstance(event, RelayClosed):
                    return Ended(event.code, event.reason)
                if not self._client_is_gone:
                    await self._send(_message(event))
            if replies := relay.take_replies():
                writer.write(replies)
            data = await _read(reader)
            if not data:
                return Ended(SERVICE_RESTART, "the server ended the connection")
            events = relay.receive(data)

    async def _pass_up(self, relay: Relay, writer: asyncio.StreamWriter) -> None:
        """Passes on what the client says, until it is gone."""
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                self._client_is_gone = True
                code = message.get("code") or NO_CODE
                if code == LOST:
                    writer.transport.abort()
                else:
                    writer.write(relay.close(code, message.get("reason") or ""))
                    await writer.drain()
                return
            text = message.get("text")
            writer.write(relay.text(text) if text is not None else relay.binary(message["bytes"]))
            await writer.drain()

    async def _refuse(self, status: int, reason: str, *, retry_after: int | None = None) -> None:
        """Refuses the connection as the engine would, as far as the ASGI server lets it.

        A server without the extension for it can only say 403, from which a client learns that it need not
        come back. Where that is not what was meant the connection is accepted and closed with the code that
        is.
        """
        if "websocket.http.response" in (self._scope.get("extensions") or {}):
            headers = [(b"content-type", b"text/plain; charset=utf-8")]
            if retry_after is not None:
                headers.append((b"retry-after", str(retry_after).encode()))
            if status == 401:
                headers.append((b"www-authenticate", b"Bearer"))
            body = reason.encode()
            headers.append((b"content-length", str(len(body)).encode()))
            await self._send({"type": "websocket.http.response.start", "status": status, "headers": headers})
            await self._send({"type": "websocket.http.response.body", "body": body})
            return
        code = CLOSE_CODES.get(status)
        if code is not None:
            await self._send({"type": "websocket.accept"})
        await self._send(
            {"type": "websocket.close", "code": code or 1000, "reason": reason[:REASON_CHARACTERS_MAX]}
        )


class Ended(NamedTuple):
    """The end of a connection by the engine."""

    code: int | None
    reason: str


async def _read(reader: asyncio.StreamReader) -> bytes:
    """The next message of the engine; nothing at the end, also if the engine was killed."""
    try:
        return await reader.read(READ_BYTES)
    except OSError as error:
        logger.debug("the connection to the server was lost: %r", error)
        return b""


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        # To write to a client that has gone away is an error in some servers, and what they raise differs.
        if isinstance(result, Exception):
            logger.debug("a relayed connection ended: %r", result)


def _message(event: Event) -> dict[str, Any]:
    if isinstance(event, str):
        return {"type": "websocket.send", "text": event}
    return {"type": "websocket.send", "bytes": event}


def _host(scope: MutableMapping[str, Any]) -> str:
    """The `Host` that the client asked for: the engine compares it with `Origin`."""
    for name, value in scope["headers"]:
        if name in (b"host", b":authority"):
            return bytes(value).decode("latin-1")
    server = scope.get("server")
    return f"{server[0]}:{server[1]}" if server else "localhost"


def _target(scope: MutableMapping[str, Any], path: str) -> str:
    query = bytes(scope.get("query_string") or b"").decode("latin-1")
    return f"{path or '/'}?{query}" if query else path or "/"


def _headers(scope: MutableMapping[str, Any]) -> list[tuple[bytes, bytes]]:
    return [
        (name, value)
        for name, value in scope["headers"]
        if name.lower() not in OWN_HEADERS and name[:1] != b":"
    ]


OWN_HEADERS = frozenset(
    {
        b"host",
        b"connection",
        b"upgrade",
        b"content-length",
        b"transfer-encoding",
        b"sec-websocket-key",
        b"sec-websocket-version",
        b"sec-websocket-protocol",
        b"sec-websocket-extensions",
    }
)
"""Headers of the connection itself: the one to the engine has its own."""

READ_BYTES = 64 * 1024
CLOSE_TIMEOUT_S = 5.0
SERVICE_RESTART = 1012
NO_CODE = 1005
LOST = 1006
REASON_CHARACTERS_MAX = 40

CLOSE_CODES = {401: 4401, 429: 4429, 502: 1011, 503: 1013}
"""The close code of a rejection, for ASGI servers that cannot reject with a chosen status."""
