"""Waiting on an event loop for what a server, or the broker that it shares with others, answers later."""

from __future__ import annotations

import asyncio
import functools
import os
import weakref
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ._native import ClientSignal, PendingPublish, Published
from .errors import BusyError

R = TypeVar("R")

BUSY_PAUSE_MIN_S = 0.0005
BUSY_PAUSE_MAX_S = 0.02

QUERY_THREADS = 4
"""Queries that wait at once; others wait for one of them. Publications need no thread."""


class Answers:
    """The publications of one event loop that a broker has not answered yet."""

    def __init__(self) -> None:
        self.signal = ClientSignal()
        self._waiting: dict[int, tuple[PendingPublish, asyncio.Future[Published]]] = {}

    @classmethod
    def of_loop(cls) -> Answers:
        """Those of the running loop."""
        loop = asyncio.get_running_loop()
        answers = _by_loop.get(loop)
        if answers is None:
            answers = _by_loop[loop] = cls()
        return answers

    async def wait(self, pending: PendingPublish) -> Published:
        """Waits for the result of a publication. If this is cancelled, the publication continues."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Published] = loop.create_future()
        if not self._waiting:
            loop.add_reader(self.signal.fileno(), self._wake)
        self._waiting[pending.number] = (pending, future)
        try:
            return await future
        finally:
            self._waiting.pop(pending.number, None)
            if not self._waiting and not loop.is_closed():
                loop.remove_reader(self.signal.fileno())

    def _wake(self) -> None:
        for number in self.signal.clear():
            pending, future = self._waiting.get(number, (None, None))
            if pending is None or future is None or future.done():
                continue
            try:
                future.set_result(pending.take())
            except Exception as error:
                future.set_exception(error)


async def until_free(attempt: Callable[[], Awaitable[R]], wait_ms: int) -> R:
    """Tries again as long as an attempt raises `BusyError`, at most for `wait_ms`."""
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_ms / 1000
    pause_s = BUSY_PAUSE_MIN_S
    while True:
        try:
            return await attempt()
        except BusyError:
            if loop.time() >= until:
                raise
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, BUSY_PAUSE_MAX_S)


async def on_thread(query: Callable[..., R], *arguments: Any, **keywords: Any) -> R:
    """The result of a query that blocks, on a thread of this module's own."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_threads(), functools.partial(query, *arguments, **keywords))


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(QUERY_THREADS, thread_name_prefix="tidewire-query")


_by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Answers] = weakref.WeakKeyDictionary()
# The threads are not there in a forked process.
os.register_at_fork(after_in_child=_threads.cache_clear)
