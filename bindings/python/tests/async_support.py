"""Running tests on event loops."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import tidewire
import uvloop

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def run_on(name: str, main: Coroutine[Any, Any, Any]) -> Any:
    """Runs a test on a loop of this kind, and ends what it left behind."""
    loop = LOOPS[name]()
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(main)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        asyncio.set_event_loop(None)
        loop.close()


@contextlib.asynccontextmanager
async def serving(server: tidewire.Server, **options: Any) -> AsyncIterator[asyncio.Task[None]]:
    """The handlers of a started server run, until the end of the block stops it."""
    task = asyncio.create_task(server.serve(**options))
    try:
        yield task
    finally:
        await asyncio.to_thread(server.stop)
        if not task.done():
            await task
