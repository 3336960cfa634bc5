"""Who may connect at the server's own port, as the application decides it by the request."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from ._admission import UNDECIDED, Authorize, Complaints, decide
from ._native import ClientSignal
from .errors import TidewireError

if TYPE_CHECKING:
    from ._native import ServerCore, WaitingClient


class Doorkeeper:
    """Asks `authorize` about the clients of the own port, on the event loop of the handlers."""

    def __init__(self, authorize: Authorize, timeout_s: float) -> None:
        self.authorize = authorize
        self.signal = ClientSignal()
        self._timeout_s = timeout_s
        self._complaints = Complaints()
        self._asking: set[asyncio.Task[None]] = set()
        self._server: ServerCore | None = None
        """While its clients are watched."""
        self._watchers = 0

    @contextlib.contextmanager
    def watching(self, server: ServerCore) -> Iterator[None]:
        """Asks about the clients of a server, on the running loop. Who is undecided at the end is told to come back."""
        loop = asyncio.get_running_loop()
        self._server = server
        self._watchers += 1
        if self._watchers == 1:
            loop.add_reader(self.signal.fileno(), self._ring)
            # Clients may wait since before.
            loop.call_soon(self._take)
        try:
            yield
        finally:
            self._watchers -= 1
            if self._watchers == 0:
                self._server = None
                if not loop.is_closed():
                    loop.remove_reader(self.signal.fileno())
                for task in self._asking:
                    task.cancel()

    def _ring(self) -> None:
        self.signal.clear()
        self._take()

    def _take(self) -> None:
        while self._server is not None and len(self._asking) < UNDECIDED_MAX:
            client = self._server._take_waiting_client()
            if client is None:
                return
            task = asyncio.get_running_loop().create_task(self._ask(client))
            self._asking.add(task)
            task.add_done_callback(self._decided)

    def _decided(self, task: asyncio.Task[None]) -> None:
        self._asking.discard(task)
        self._take()

    async def _ask(self, client: WaitingClient) -> None:
        decision: str | None = UNDECIDED
        attachment = None
        try:
            decision, attachment = await decide(
                self.authorize, scope_of(client), self._timeout_s, self._complaints
            )
        finally:
            try:
                client.decide(decision, attachment)
            except TidewireError as error:
                self._complaints.add(error)


def scope_of(client: WaitingClient) -> dict[str, Any]:
    """The ASGI scope of a client's request."""
    target = client.target
    if not target.startswith("/"):
        # A whole URL: the engine goes by its path, too.
        whole = urlsplit(target)
        target = f"{whole.path or '/'}?{whole.query}"
    path, _, query = target.partition("?")
    headers = client.headers
    protocols = b",".join(value for name, value in headers if name == b"sec-websocket-protocol")
    return {
        "type": "websocket",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "scheme": "wss" if client.is_tls else "ws",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": headers,
        "client": client.address,
        "server": None,
        "subprotocols": [name.strip() for name in protocols.decode("latin-1").split(",") if name.strip()],
    }


UNDECIDED_MAX = 1024
"""Clients whose `authorize` may run at once; the engine has limits for those that wait."""
