"""A process of the generator: opens connections and runs activities on them, by command."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from tidewire.errors import TidewireError

from . import activities, processes
from .account import Counts, Opened, clock
from .activities import Activity
from .plan import Target
from .session import Session, open_session


@dataclass
class Shared:
    """The progress of a fan-out that all processes see."""

    received: Any
    total: Any
    slot: int


@dataclass(frozen=True)
class Open:
    """Open so many connections more, the first of which is number `first`."""

    count: int
    first: int
    at_once: int


@dataclass(frozen=True)
class Reconnect:
    """Open and close connections again and again: `rounds` times, or for some seconds, so many at once."""

    at_once: int
    rounds: int | None
    duration_s: float
    first: int


@dataclass(frozen=True)
class Subscribe:
    """Subscribe all connections but the last `but`."""

    topic: str
    but: int


@dataclass(frozen=True)
class Prepare:
    """Make the messages of an activity, before its time begins to count."""

    activity: Activity


@dataclass(frozen=True)
class Close:
    """Close all connections."""


def main(pipe: Connection, target: Target, shared: Shared) -> None:
    """Executes the commands from the pipe until it is closed."""
    # Ctrl-C is for the process that leads, which then ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()
    asyncio.run(serve(pipe, target, shared))


def end_with_parent() -> None:
    """Ends this process, whatever it is doing, when the one that leads is gone without having said so."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


async def serve(pipe: Connection, target: Target, shared: Shared) -> None:
    """Answers one command after another."""
    loop = asyncio.get_running_loop()
    sessions: list[Session] = []
    while True:
        try:
            command = await loop.run_in_executor(None, pipe.recv)
        except (EOFError, OSError, KeyboardInterrupt):
            return
        try:
            answer: Any = await obey(command, target, sessions, shared)
        except Exception as error:  # passed to the process that asked
            answer = error if isinstance(error, TidewireError) else RuntimeError(repr(error))
        pipe.send(answer)


async def obey(command: Any, target: Target, sessions: list[Session], shared: Shared) -> Any:
    """Does one thing, and measures the processor time that it took."""
    if isinstance(command, Close):
        await asyncio.gather(*(session.close() for session in sessions), return_exceptions=True)
        sessions.clear()
        return None
    if isinstance(command, Prepare):
        activities.stream(command.activity, 0)
        return None
    if isinstance(command, Subscribe):
        chosen = sessions[: len(sessions) - command.but]
        await asyncio.gather(*(session.subscribe(command.topic) for session in chosen))
        return len(chosen)
    pid, before = os.getpid(), processes.thread_times(os.getpid())
    waited = processes.waiting_times(pid)
    cpu = time.process_time()
    result: Opened | Counts
    if isinstance(command, Open):
        result = await open_all(command, target, sessions)
    elif isinstance(command, Reconnect):
        result = await reconnect(command, target)
    else:
        result = Counts()
        await activities.run(command, sessions, result, shared)
    result.cpu_s = time.process_time() - cpu
    after = processes.thread_times(pid)
    result.busiest_s = max((used - before.get(thread, 0.0) for thread, used in after.items()), default=0.0)
    waits = processes.waiting_times(pid).items()
    result.waited_s = max((time_s - waited.get(thread, 0.0) for thread, time_s in waits), default=0.0)
    return result


async def open_all(command: Open, target: Target, sessions: list[Session]) -> Opened:
    """Opens connections, some of them at once, each until it is ready."""
    opened = Opened(began=clock())
    numbers = iter(range(command.first, command.first + command.count))

    async def some() -> None:
        for number in numbers:
            session = await timed(opened, target, number)
            if session is not None:
                sessions.append(session)

    await asyncio.gather(*(some() for _ in range(min(command.at_once, command.count))))
    opened.ended = clock()
    return opened


async def reconnect(command: Reconnect, target: Target) -> Opened:
    """Opens a connection, closes it, and again."""
    opened = Opened(began=clock())
    left = command.rounds
    numbers = iter(range(command.first, 2**62))

    async def again() -> None:
        nonlocal left
        while True:
            if left is not None:
                if left == 0:
                    return
                left -= 1
            elif clock() >= opened.began + command.duration_s:
                return
            session = await timed(opened, target, next(numbers))
            if session is not None:
                await session.close()

    await asyncio.gather(*(again() for _ in range(command.at_once)))
    opened.ended = clock()
    return opened


async def timed(opened: Opened, target: Target, number: int) -> Session | None:
    """A connection that is ready, and how long that took."""
    opened.attempted += 1
    began = time.monotonic_ns()
    try:
        session = await open_session(target, number)
    except Exception as error:  # a figure of the test
        code = getattr(error, "code", type(error).__name__)
        opened.failures[f"{code}: {error}"[:120]] += 1
        return None
    opened.latencies.append(time.monotonic_ns() - began)
    opened.connected += 1
    if opened.server is None:
        version = await session.server_version()
        opened.server = "" if version is None else f"tidewire/{version}"
    return session
