"""Waiting on an event loop for what a server receives."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING

from .errors import TidewireError

if TYPE_CHECKING:
    from ._native import ServerCore


class Bell:
    """The descriptor of a server that becomes readable when there is something to receive.

    It is watched by one loop at a time, as long as somebody is inside `with bell`.
    """

    def __init__(self, server: ServerCore) -> None:
        self._server = server
        self._loop: asyncio.AbstractEventLoop | None = None
        self._descriptor = -1
        self._users = 0
        self._waiters: list[asyncio.Future[None]] = []

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not None and self._loop is not loop:
            raise TidewireError("the server is received from on another event loop", code="ANOTHER_LOOP")
        if self._users == 0:
            self._descriptor = self._server.fileno()
            self._loop = loop
            loop.add_reader(self._descriptor, self._ring)
        self._users += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._users -= 1
        if self._users == 0 and self._loop is not None:
            self._loop.remove_reader(self._descriptor)
            self._loop = None

    async def wait(self, timeout_ms: int | None = None) -> None:
        """Waits until there may be something to receive, or the time is over."""
        if not self._server.arm() or self._loop is None:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        timer = None
        if timeout_ms is not None:
            timer = self._loop.call_later(timeout_ms / 1000, _wake, waiter)
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
