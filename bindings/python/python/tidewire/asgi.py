"""The engine inside an ASGI application: FastAPI, Starlette, or none.

There are two ways, which can be had together:

- `lifespan` starts the engine beside the application, on a port of its own. Clients connect to that port: this
  is the fast way, because no message passes through the ASGI server.
- `WebSocketEndpoint` serves the same clients on the application's own port, and knows them by the application's
  sessions if it is to. Each connection is relayed to the engine, which costs two more passes over every message,
  and the ASGI server's own work. Take it where only one port can be reached, or where sessions decide.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from . import _workers
from ._admission import Admission, Authorize, Complaints, decide
from ._completion import names
from ._relay import RelayConnection
from .errors import BusyError, StoppedError, TidewireError

try:
    from starlette.requests import HTTPConnection
except ImportError:  # Only `get_server` needs it.
    HTTPConnection = Any  # type: ignore[misc, assignment, unused-ignore]

if TYPE_CHECKING:
    from ._server import Server

__all__ = ["STATE_NAME", "Admission", "WebSocketEndpoint", "get_server", "lifespan"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Lifespan = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any]]]

STATE_NAME = "tidewire_server"
"""Under this name the server stands in the application's state."""

logger = logging.getLogger("tidewire")


def lifespan(
    server: Server,
    *,
    serve: bool = True,
    drain_timeout_ms: int = 5_000,
    around: Callable[[Any], AbstractAsyncContextManager[Any]] | None = None,
) -> Lifespan:
    """The lifespan of an application that runs a server beside it.

    The server starts before the application takes requests, and its handlers run on the application's event
    loop. When the application stops, the server tells its clients, lets them go, and stops. Routes reach it
    by `get_server`. An application that is started again, as a test client does for each test, starts a new
    engine with the same options and handlers.

    Args:
        server: A server that does not run.
        serve: Run the server's handlers. With `False` the program receives by itself, in a thread with
            `server.batches()` for example; if nobody receives, clients are paused sooner or later.
        drain_timeout_ms: How long clients have to leave.
        around: The application's own lifespan, if it has one. It is entered after the server has started, and
            left before the server stops.

    Example:
        app = FastAPI(lifespan=tidewire.asgi.lifespan(server))
    """

    @contextlib.asynccontextmanager
    async def manage(app: Any) -> AsyncIterator[Mapping[str, Any]]:
        state: dict[str, Any] = {STATE_NAME: server}
        async with _running(server, serve, drain_timeout_ms):
            if hasattr(app, "state"):
                setattr(app.state, STATE_NAME, server)
            if around is None:
                yield state
                return
            async with around(app) as own:
                yield {**(own or {}), **state}

    return manage


def get_server(connection: HTTPConnection) -> Server:
    """The server of the application that a request belongs to; for FastAPI's `Depends`.

    Raises:
        StoppedError: The application was not made with `lifespan(server)`.

    Example:
        @app.post("/orders")
        async def create(server: Annotated[tidewire.Server, Depends(tidewire.asgi.get_server)]) -> None:
            server.publish("orders", {"id": 4711})
    """
    scope: Scope = connection.scope
    server = (scope.get("state") or {}).get(STATE_NAME)
    if server is None and "app" in scope:
        server = getattr(getattr(scope["app"], "state", None), STATE_NAME, None)
    if server is None:
        raise StoppedError(
            "no server runs beside this application; make it with lifespan=tidewire.asgi.lifespan(server)"
        )
    return server  # type: ignore[no-any-return]


class WebSocketEndpoint:
    """An ASGI application that serves a server's clients on the ASGI server's own port.

    It is slower than the engine's port, because each message passes through the ASGI server. The handlers,
    tokens, limits and answers are the same: the engine sees the headers, cookies, query, subprotocols and address
    of the original request.

    The server has to run when the first client comes: use `lifespan`, or this object as the application
    itself, which then starts and stops the server.

    Args:
        server: The server. It should listen on 127.0.0.1, port 0, unless clients also connect to it directly.
        authorize: Decides who may connect, in place of the token: a function or an `async def` that is called with
            the ASGI scope. It returns an `Admission`; or `True`, and the token decides; or `False` or `None`, and
            the client gets 403. A `CallError` does that in its own words. With another exception, or without an
            answer in `opening_timeout_ms`, the client gets 503, and comes back. Default: the function of
            `server.authorize`, else the token decides.
        path: The path at which the server takes connections. Default: the one in `server.url`.
        buffer_bytes_max: How much may wait in each direction for a connection that does not keep up, besides
            one message; past it the other side is not read.
        message_bytes_max: The largest message that the server may send to a client, in bytes.
        opening_timeout_ms: How long `authorize`, and then the engine, may take to let a connection in.

    Example:
        app.router.routes.append(WebSocketRoute("/ws", tidewire.asgi.WebSocketEndpoint(server)))
    """

    def __init__(
        self,
        server: Server,
        *,
        authorize: Authorize | None = None,
        path: str | None = None,
        buffer_bytes_max: int = 64 * 1024,
        message_bytes_max: int = 64 * 1024 * 1024,
        opening_timeout_ms: int = 10_000,
    ) -> None:
        self._server = server
        self._authorize = authorize
        self._complaints = Complaints()
        self._path = path
        self._buffer_bytes_max = buffer_bytes_max
        self._message_bytes_max = message_bytes_max
        self._opening_timeout_s = opening_timeout_ms / 1000

    def __repr__(self) -> str:
        return f"WebSocketEndpoint({self._server!r})"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection, or the application's lifespan."""
        kind = scope["type"]
        if kind == "websocket":
            await RelayConnection(
                scope,
                receive,
                send,
                path=self._path_of_engine(),
                connect=self._connect,
                buffer_bytes_max=self._buffer_bytes_max,
                message_bytes_max=self._message_bytes_max,
                opening_timeout_s=self._opening_timeout_s,
            ).run()
        elif kind == "lifespan":
            await self._serve_lifespan(receive, send)
        else:
            headers = [
                (b"content-type", b"text/plain"),
                (b"upgrade", b"websocket"),
                (b"connection", b"upgrade"),
            ]
            await send({"type": "http.response.start", "status": 426, "headers": headers})
            await send({"type": "http.response.body", "body": b"a WebSocket is served here\n"})

    def _path_of_engine(self) -> str:
        if self._path is not None:
            return self._path
        try:
            return urlsplit(self._server.url).path
        except StoppedError:
            return "/"

    async def _connect(self, scope: Scope) -> socket.socket:
        """Makes a connection to the engine, for the request of this scope.

        Raises:
            TidewireError: There is none now.
        """
        decision, attachment = None, None
        doorkeeper = self._server._doorkeeper
        authorize = self._authorize if doorkeeper is None else self._authorize or doorkeeper.authorize
        if authorize is not None:
            decision, attachment = await decide(authorize, scope, self._opening_timeout_s, self._complaints)
        listens_at, _ = scope.get("server") or (None, None)
        try:
            descriptor = self._server._adopt_relayed(_client(scope), listens_at, decision, attachment)
        except (StoppedError, BusyError):
            raise
        except TidewireError as error:
            self._complaints.add(error)
            raise
        return socket.socket(fileno=descriptor)

    async def _serve_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            running = _running(self._server, serve=True, drain_timeout_ms=5_000)
            await running.__aenter__()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await running.__aexit__(None, None, None)
        await send({"type": "lifespan.shutdown.complete"})


@contextlib.asynccontextmanager
async def _running(server: Server, serve: bool, drain_timeout_ms: int) -> AsyncIterator[None]:
    """A started server whose handlers run, stopped in good order."""
    if server.state == "stopped":
        server._renew()
    _workers.warn(server)
    server.start()
    handlers = asyncio.create_task(_serve(server), name="tidewire handlers") if serve else None
    try:
        yield
    finally:
        try:
            await asyncio.to_thread(server.drain, timeout_ms=drain_timeout_ms)
        finally:
            await asyncio.to_thread(server.stop)
        if handlers is not None:
            await handlers


def _client(scope: Scope) -> tuple[str, int] | None:
    """The address of the client. granian writes the port as a text."""
    host, port = scope.get("client") or (None, None)
    return None if host is None else (host, int(port or 0))


async def _serve(server: Server) -> None:
    try:
        await server.serve()
    except Exception:
        logger.critical(
            "the handlers of %r ended; its clients are no longer heard, and no new ones are let in",
            server,
            exc_info=True,
        )


def __dir__() -> list[str]:
    return names(__all__, globals())
