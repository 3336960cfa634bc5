"""Waiting on an event loop for what a server receives."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .errors import TidewireError

if TYPE_CHECKING:
    from ._native import ServerCore


class ServerWaker:
    """The descriptor of a server that becomes readable when there is something to receive.

    It is watched by one loop at a time. A loop that was closed watches nothing, whoever was left on it.
    """

    def __init__(self, server: ServerCore) -> None:
        self._server = server
        self._watch: Watch | None = None

    @contextlib.contextmanager
    def watching(self) -> Iterator[Watch]:
        """Watches on the running loop.

        Raises:
            TidewireError: Another loop watches.
        """
        loop = asyncio.get_running_loop()
        watch = self._watch
        if watch is not None and watch.loop is not loop:
            if not watch.loop.is_closed():
                raise TidewireError("the server is received from on another event loop", code="ANOTHER_LOOP")
            watch = None
        if watch is None:
            watch = self._watch = Watch(self._server, loop)
        watch.users += 1
        try:
            yield watch
        finally:
            watch.users -= 1
            if watch.users == 0:
                watch.end()
                if self._watch is watch:
                    self._watch = None


class Watch:
    """The watch of one event loop.

    Attributes:
        users: How many are inside `watching`.
    """

    def __init__(self, server: ServerCore, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.users = 0
        self._server = server
        self._descriptor = server.fileno()
        self._waiters: list[asyncio.Future[None]] = []
        loop.add_reader(self._descriptor, self._ring)

    def end(self) -> None:
        """Watches no more."""
        if not self.loop.is_closed():
            self.loop.remove_reader(self._descriptor)

    async def wait(self, timeout_ms: int | None = None) -> None:
        """Waits until there may be something to receive, or the time is over."""
        if not self._server.arm():
            return
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._waiters.append(waiter)
        timer = None
        if timeout_ms is not None:
            timer = self.loop.call_later(timeout_ms / 1000, _wake, waiter)
        try:
            await waiter
        finally:
            self._waiters.remove(waiter)
            if timer is not None:
                timer.cancel()

    def _ring(self) -> None:
        self._server.disarm()
        for waiter in self._waiters:
            _wake(waiter)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
