"""Calls handlers for what a server receives, on an event loop.

One task at a time receives: the leader. It calls handlers itself, one after another, and a handler that does
not wait for anything costs no task and no turn of the loop. When a handler does wait, it goes on in the task
of the leader, and another task becomes the leader. So each handler runs in a task, as time-outs and task
groups need it, and only those that wait pay for one.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import sys
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any

from ._refusals import is_interrupt
from ._watchdog import Watchdog
from .errors import StoppedError

if TYPE_CHECKING:
    from ._handlers import Handler, Handlers
    from ._native import Connection, Message, ServerCore
    from ._server_waker import ServerWaker, Watch

logger = logging.getLogger("tidewire")


class Suspended:
    """A call of a handler that waits for something."""

    __slots__ = ("context", "coroutine", "handler", "message", "yielded")

    def __init__(
        self,
        handler: Handler,
        message: Message,
        coroutine: Coroutine[Any, Any, Any],
        yielded: Any,
        context: contextvars.Context,
    ) -> None:
        self.handler = handler
        self.message = message
        self.coroutine = coroutine
        self.yielded = yielded
        self.context = context


class Worker:
    """A task that leads, carries a handler that waits, or is idle."""

    __slots__ = ("is_late", "task", "wake")

    def __init__(self) -> None:
        self.task: asyncio.Task[None]
        self.wake: asyncio.Future[None] | None = None
        self.is_late = False

    def expire(self) -> None:
        """The handler has taken too long."""
        self.is_late = True
        self.task.cancel()


class Dispatcher:
    """One run of `serve`."""

    def __init__(
        self,
        server: ServerCore,
        handlers: Handlers,
        waker: ServerWaker,
        left: deque[Message],
        *,
        handlers_max: int,
        waiting_max: int,
        waiting_bytes_max: int,
        handler_timeout_ms: int | None,
        keep_order: bool,
    ) -> None:
        self._server = server
        self._handlers = handlers
        self._waker = waker
        self._watch: Watch
        self._left = left
        self._handlers_max = handlers_max
        self._waiting_max = waiting_max
        self._waiting_bytes_max = waiting_bytes_max
        self._waiting_bytes = 0
        self._handler_timeout_ms = handler_timeout_ms
        self._keep_order = keep_order
        self._context = contextvars.copy_context()
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        self._is_over = False
        self._is_closing = False
        self._batch: Iterator[Message] = iter(())
        self._leader: Worker | None = None
        self._workers: set[Worker] = set()
        self._idle: list[Worker] = []
        self._busy: dict[Connection, deque[Message]] = {}
        self._room: asyncio.Future[None] | None = None
        self.running = 0
        self.waiting = 0
        self.watchdog = Watchdog(handlers)

    @property
    def is_dead(self) -> bool:
        """Whether the loop on which it ran is gone, and it with it."""
        return self._loop.is_closed()

    async def run(self, blocked_warning_ms: int, stop_timeout_ms: int) -> None:
        """Serves until the server has stopped and all that it received is handled."""
        with self._waker.watching() as self._watch, self.watchdog.watching(blocked_warning_ms):
            self._promote()
            try:
                await self._ended
                await self._settle(stop_timeout_ms)
            except GeneratorExit:
                # The loop is gone: nothing can be waited for.
                self._is_over = self._is_closing = True
                self._keep_unhandled()
                raise
            except BaseException:
                await self._end()
                raise
            await self._end()

    async def _settle(self, timeout_ms: int) -> None:
        """Waits until the waiting handlers have ended."""
        tasks = {worker.task for worker in self._workers}
        for worker in self._idle:
            tasks.discard(worker.task)
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_ms / 1000)

    async def _end(self) -> None:
        """Cancels what still runs and keeps what was not handled."""
        self._is_over = self._is_closing = True
        tasks = [worker.task for worker in self._workers]
        for task in tasks:
            task.cancel()
        interrupted = self._handlers.interrupted
        if tasks:
            _, stuck = await asyncio.wait(tasks, timeout=CANCEL_TIMEOUT_S)
            if stuck:
                logger.error("serve ended: %d handlers go on though they were cancelled", len(stuck))
        interrupted = self._handlers.interrupted - interrupted
        unhandled = self._keep_unhandled()
        for handler in self._handlers.all():
            handler.log_unlogged()
        if interrupted or unhandled:
            logger.warning(
                "serve ended: %d handlers were interrupted; %d messages were received and not handled, "
                "and are kept for who receives next",
                interrupted,
                unhandled,
            )

    def _keep_unhandled(self) -> int:
        """Keeps what was received and not handled for who receives next; how many messages that are."""
        unhandled = [message for queue in self._busy.values() for message in queue]
        unhandled.extend(self._batch)
        self._busy.clear()
        self._left.extend(unhandled)
        return len(unhandled)

    # Workers. Nobody ends one but `_end`: what a handler does to the task that it runs in ends with the handler.

    def _promote(self) -> None:
        """Makes somebody the leader; if all are busy, the first that has time will be."""
        self._leader = None
        if self._idle:
            worker = self._idle.pop()
            self._leader = worker
            if worker.wake is not None and not worker.wake.done():
                worker.wake.set_result(None)
        elif len(self._workers) < self._handlers_max:
            worker = Worker()
            self._leader = worker
            self._workers.add(worker)
            worker.task = self._loop.create_task(self._work(worker), name="tidewire handler")
            worker.task.add_done_callback(lambda task: self._gone(worker, task))

    def _gone(self, worker: Worker, task: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        if self._ended.done() or self._is_closing:
            return
        if task.cancelled():
            self._ended.cancel()
        elif (error := task.exception()) is not None:
            self._ended.set_exception(error)

    async def _work(self, worker: Worker) -> None:
        while not self._is_over:
            if self._leader is None:
                self._leader = worker
            try:
                if self._leader is worker:
                    await self._lead(worker)
                else:
                    worker.wake = self._loop.create_future()
                    self._idle.append(worker)
                    await worker.wake
            except asyncio.CancelledError:
                if self._is_closing:
                    raise
                if worker in self._idle:
                    self._idle.remove(worker)
                await self._restore(worker)

    async def _restore(self, worker: Worker) -> None:
        """Reverts the cancellations of a worker's task, which are internal."""
        _uncancel(worker.task)
        # One that was not delivered yet is delivered now; before Python 3.13 that cannot be taken back.
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        if self._is_closing:
            raise asyncio.CancelledError

    async def _pause(self, worker: Worker) -> None:
        """Yields to the other tasks of the program."""
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if self._is_closing:
                raise
            await self._restore(worker)

    async def _lead(self, worker: Worker) -> None:
        """Receives and calls handlers, until one of them has to wait and has done so."""
        pause_at = monotonic() + SLICE_S
        while True:
            for message in self._batch:
                if self._busy and (queue := self._busy.get(message.connection)) is not None:
                    queue.append(message)
                    self.waiting += 1
                    self._waiting_bytes += len(message)
                    if self._is_full():
                        await self._wait_for_room()
                    continue
                suspended = self._begin(message)
                if suspended is not None:
                    await self._carry(worker, suspended)
                    return
                if _is_cancelled(worker.task):
                    await self._restore(worker)
                if monotonic() > pause_at:
                    await self._pause(worker)
                    pause_at = monotonic() + SLICE_S
            if not await self._receive():
                self._is_over = True
                if not self._ended.done():
                    self._ended.set_result(None)
                return

    async def _receive(self) -> bool:
        """Waits for the next batch; whether there is one."""
        if self._left:
            left = list(self._left)
            self._left.clear()
            self._batch = iter(left)
            return True
        while True:
            try:
                batch = self._server.receive(BATCH_MESSAGES_MAX, 0)
            except StoppedError:
                return False
            if len(batch):
                self._batch = iter(batch)
                return True
            await self._watch.wait()

    async def _wait_for_room(self) -> None:
        """Waits until fewer messages wait for others; meanwhile nothing is received."""
        while self._is_full():
            self._room = self._loop.create_future()
            await self._room

    def _is_full(self) -> bool:
        return self.waiting >= self._waiting_max or self._waiting_bytes >= self._waiting_bytes_max

    # Calls.

    def _begin(self, message: Message) -> Suspended | None:
        """Calls the handler of a message; what is left to do if it waits for something."""
        handlers = self._handlers
        handler = handlers.find(message)
        if handler is None:
            handlers.pass_over(message)
            return None
        context = self._context.copy()
        watchdog = self.watchdog
        watchdog.step += 1
        watchdog.handler = handler
        try:
            result = context.run(handler.function, message)
            if type(result) is types.CoroutineType or hasattr(result, "__await__"):
                coroutine = result if type(result) is types.CoroutineType else _await(result)
                try:
                    yielded = context.run(coroutine.send, None)
                except StopIteration as stop:
                    result = stop.value
                else:
                    return Suspended(handler, message, coroutine, yielded, context)
        except BaseException as error:
            handlers.failed(handler, message, error)
            if is_interrupt(error):
                raise
            return None
        finally:
            watchdog.handler = None
        handlers.done(handler, message, result)
        return None

    async def _carry(self, worker: Worker, suspended: Suspended) -> None:
        """Brings a call to its end, then those of the messages that waited for it; somebody else leads."""
        connection = suspended.message.connection
        if self._keep_order:
            self._busy[connection] = deque()
        self._promote()
        await self._finish(worker, suspended)
        if not self._keep_order:
            return
        queue = self._busy[connection]
        pause_at = monotonic() + SLICE_S
        while queue:
            message = queue.popleft()
            self.waiting -= 1
            self._waiting_bytes -= len(message)
            if self._room is not None and not self._room.done():
                self._room.set_result(None)
            next_suspended = self._begin(message)
            if next_suspended is not None:
                await self._finish(worker, next_suspended)
            elif monotonic() > pause_at:
                await self._pause(worker)
                pause_at = monotonic() + SLICE_S
            if _is_cancelled(worker.task):
                await self._restore(worker)
        del self._busy[connection]

    async def _finish(self, worker: Worker, suspended: Suspended) -> None:
        """Waits for the end of a call."""
        handler, message = suspended.handler, suspended.message
        timer = None
        if self._handler_timeout_ms is not None:
            timer = self._loop.call_later(self._handler_timeout_ms / 1000, worker.expire)
        self.running += 1
        try:
            result, error = await self._drive(suspended)
        finally:
            self.running -= 1
            if timer is not None:
                timer.cancel()
        is_late, worker.is_late = worker.is_late, False
        if isinstance(error, asyncio.CancelledError) and self._is_closing:
            self._handlers.interrupt(message)
            raise error
        if isinstance(error, asyncio.CancelledError) and is_late:
            self._handlers.timed_out(handler, message, self._handler_timeout_ms or 0)
        elif error is not None:
            self._handlers.failed(handler, message, error)
            if is_interrupt(error):
                raise error
        else:
            self._handlers.done(handler, message, result)
        if is_late or error is not None or _is_cancelled(worker.task):
            await self._restore(worker)

    @types.coroutine
    def _drive(self, suspended: Suspended) -> Generator[Any, Any, tuple[Any, BaseException | None]]:
        """Goes on with a call in its own context, step by step; what it returned, or what it raised.

        What this raises is not the handler's.
        """
        coroutine, yielded = suspended.coroutine, suspended.yielded
        watchdog = self.watchdog
        step: Callable[[Any], Any]
        while True:
            try:
                value = yield yielded
                step = coroutine.send
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as error:
                value = error
                step = coroutine.throw
            watchdog.step += 1
            watchdog.handler = suspended.handler
            try:
                yielded = suspended.context.run(step, value)
            except StopIteration as stop:
                return stop.value, None
            except BaseException as error:
                return None, error
            finally:
                watchdog.handler = None


async def _await(awaitable: Any) -> Any:
    return await awaitable


def _is_cancelled(task: asyncio.Task[None]) -> bool:
    """Whether the end of a task was requested, and the task was not notified yet."""
    if sys.version_info >= (3, 11):
        return task.cancelling() > 0
    return bool(getattr(task, "_must_cancel", False))


def _uncancel(task: asyncio.Task[None]) -> None:
    """Reverts cancellations, in versions of Python that count them."""
    if sys.version_info >= (3, 11):
        while task.cancelling():
            task.uncancel()


BATCH_MESSAGES_MAX = 1024
CANCEL_TIMEOUT_S = 5.0
SLICE_S = 0.002
"""After so long the rest of the program has a turn."""
