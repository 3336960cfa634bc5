"""The server."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _log
from ._asyncio import AsyncServer
from ._native import Batch
from .errors import StoppedError

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from ._options import ServerOptions


class Server(AsyncServer):
    """A WebSocket server. Its options are those of `tidewire serve`, under the same names.

    >>> server = Server(port=0, no_auth=True)
    >>> server.start()
    >>> server.stop()

    It runs on threads of its own, which never wait for Python. What clients do is received in batches, with
    `batches()` or on asyncio; everything can be called from any thread.
    """

    _options: dict[str, Any]

    def __new__(cls, *, log_level: str | None = None, **options: Unpack[ServerOptions]) -> Self:
        _log.start(log_level)
        server = super().__new__(cls, dict(options))
        server._options = dict(options)
        _servers.add(server)
        return server

    def __init__(self, *, log_level: str | None = None, **options: Unpack[ServerOptions]) -> None:
        """See `ServerOptions` for every option.

        Args:
            log_level: The lowest level of the lines for the logger `tidewire` of `logging`, for all servers of the
                process: `off`, `error`, `warn`, `info` (the default), `debug` or `trace`. The level of the logger
                applies as well.
        """

    def batches(self, *, max_messages: int = 4096, timeout_ms: int = 1000) -> Iterator[Batch]:
        """The received messages in batches, until the server has stopped and no message is left.

        Args:
            max_messages: The maximum number of messages in a batch.
            timeout_ms: After this time without a message it returns an empty batch, so that the loop can do other
                things.

        While it waits, other threads run, and Ctrl-C is heard.
        """
        while True:
            try:
                batch = self.receive(max_messages, timeout_ms)
            except StoppedError:
                if self.state == "new":
                    raise
                return
            yield batch

    def __enter__(self) -> Self:
        if self.state == "new":
            self.start()
        if self._handlers.all() or self._doorkeeper:
            timer = threading.Timer(HANDLERS_IDLE_S, _warn_of_idle_handlers, (weakref.ref(self),))
            timer.daemon = True
            timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        if self.state != "running":
            return f"<tidewire.Server {self.state}>"
        return f"<tidewire.Server {self.url} connections={self.connections}>"


def _warn_of_idle_handlers(reference: weakref.ref[Server]) -> None:
    """Warns of a server whose handlers nobody calls: its clients would wait in silence."""
    server = reference()
    if server is not None and server.state == "running" and not server._has_served:
        logger.warning(
            "%r has handlers, and nothing calls them: use server.run(), or await server.serve() in a task",
            server,
        )


def _stop_all() -> None:
    for server in list(_servers):
        server.stop()


def _abandon_all() -> None:
    for server in list(_servers):
        server._abandon()


logger = logging.getLogger("tidewire")

HANDLERS_IDLE_S = 2.0
"""After so long a server that was entered with handlers should call them."""

_servers: weakref.WeakSet[Server] = weakref.WeakSet()
# Their threads end before the interpreter does, and are not there in a forked process.
atexit.register(_stop_all)
os.register_at_fork(after_in_child=_abandon_all)
