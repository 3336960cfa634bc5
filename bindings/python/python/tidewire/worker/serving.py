"""The orders of a controller, one after the other."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import tempfile
import time
from collections.abc import Coroutine
from typing import Any

import tidewire

from . import activities
from .activity import Activity
from .counts import Counts, Opened
from .link import Link, Word
from .session import Session, Terms, open_session
from .usage import Meter, Pulse, rss_bytes

CONTRACT = 1
LIVE_S = 0.1
IDLE_LIVE_S = 1.0
#: Files that are no connections.
FILES_MARGIN = 64


def main() -> None:
    """Works until standard input ends."""
    # Ctrl-C is for the controller, which then ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(Worker().work())


class Worker:
    """A process with connections."""

    def __init__(self) -> None:
        self._link = Link(
            {
                "stop": lambda order: self._stop(),
                "abandon": lambda order: self._abandon(),
                "progress": lambda order: self._tell_crowd("progress", order["received"]),
                "published": lambda order: self._tell_crowd("published", order["publications"]),
            }
        )
        self._pulse = Pulse()
        self._terms: Terms | None = None
        self._sessions: list[Session] = []
        self._failed = 0
        self._opened: Opened | None = None
        self._activity: Activity | None = None
        self._task: asyncio.Task[None] | None = None

    async def work(self) -> None:
        """Introduces itself and obeys."""
        self._link.say("hello", **hello())
        beating = asyncio.create_task(self._pulse.beat())
        living = asyncio.create_task(self._live())
        try:
            await self._link.serve(self._obey)
        finally:
            beating.cancel()
            living.cancel()

    def _stop(self) -> None:
        if self._opened is not None:
            self._opened.interrupted = True
        if self._activity is not None:
            self._activity.stop()

    def _abandon(self) -> None:
        self._stop()
        if self._task is not None:
            self._task.cancel()

    async def _finished(self, work: Coroutine[Any, Any, None]) -> bool:
        """Waits for the work of an order; whether it was not abandoned."""
        self._task = asyncio.create_task(work)
        # A stop may arrive before the order has begun.
        if self._link.wish == "stop":
            self._stop()
        elif self._link.wish == "abandon":
            self._abandon()
        try:
            await self._task
        except asyncio.CancelledError:
            return False
        finally:
            self._task = None
        return True

    def _tell_crowd(self, what: str, number: int) -> None:
        if self._activity is not None and self._activity.crowd is not None:
            getattr(self._activity.crowd, what)(number)

    async def _live(self) -> None:
        while True:
            is_working = self._opened is not None or self._activity is not None
            await asyncio.sleep(LIVE_S if is_working else IDLE_LIVE_S)
            self._link.say("live", **self._figures())

    def _figures(self) -> Word:
        """The figures of this moment."""
        opened, activity = self._opened, self._activity
        offered = confirmed = 0
        if opened is not None:
            offered, confirmed = opened.attempted, opened.connected
        if activity is not None:
            counts = activity.counts
            offered = counts.offered
            confirmed = counts.confirmed + counts.pongs
        return {
            "connected": sum(session.is_open for session in self._sessions),
            "failed": self._failed,
            "offered": offered,
            "confirmed": confirmed,
            "stopped_ns": self._pulse.stopped_ns,
            "cpu_ns": time.process_time_ns(),
            "rss_bytes": rss_bytes(),
        }

    async def _obey(self, kind: str, order: Word) -> None:
        if kind == "begin":
            self._terms = terms_of(order)
        elif kind == "open":
            await self._open(order)
        elif kind == "reconnect":
            await self._reconnect(order)
        elif kind == "run":
            await self._run(order)
        elif kind == "close":
            closing = [asyncio.ensure_future(session.close()) for session in self._sessions]
            if closing:
                await asyncio.wait(closing, timeout=self._agreed().close_timeout_s + 1.0)
            self._sessions.clear()
            self._link.say("closed")
        else:
            raise ValueError(f"the order {kind} is not known")

    def _agreed(self) -> Terms:
        if self._terms is None:
            raise ValueError("an order came before the terms of the test")
        return self._terms

    async def _open(self, order: Word) -> None:
        """Opens connections, some of them at once, each until it is ready."""
        numbers = iter(numbers_of(order))

        async def some(opened: Opened) -> None:
            for number, token in numbers:
                if opened.interrupted:
                    opened.untried += 1
                    continue
                session = await self._timed(opened, number, token, order["encoding"])
                if session is not None:
                    self._sessions.append(session)

        await self._opening(some, order["in_flight"])

    async def _reconnect(self, order: Word) -> None:
        """Opens connections, closes each when it is ready, and opens it again."""
        numbers = iter(numbers_of(order))
        rounds, longest_ms = order.get("rounds"), order.get("longest_ms")
        end = float("inf") if longest_ms is None else time.monotonic() + longest_ms / 1000

        async def again(opened: Opened) -> None:
            for number, token in numbers:
                done = 0
                while not opened.interrupted and (rounds is None or done < rounds):
                    session = await self._timed(opened, number, token, order["encoding"])
                    if session is not None:
                        await session.close()
                    done += 1
                    if time.monotonic() >= end:
                        break

        await self._opening(again, len(numbers_of(order)))

    async def _opening(self, work: Any, at_once: int) -> None:
        meter = Meter(self._pulse)
        self._opened = opened = Opened()
        await self._finished(gathered(work(opened) for _ in range(at_once)))
        self._opened = None
        self._failed += opened.failures.total()
        self._link.say(
            "opened",
            **opened.figures(),
            **meter.figures(),
            began_ns=self._run_time(opened.began_ns),
            ended_ns=self._run_time(opened.ended_ns),
            live=self._figures(),
        )

    async def _timed(self, opened: Opened, number: int, token: str | None, encoding: str) -> Session | None:
        """A connection that is ready, and how long that took."""
        opened.attempted += 1
        began_ns = time.monotonic_ns()
        if opened.began_ns is None:
            opened.began_ns = opened.ended_ns = began_ns
        try:
            session = await open_session(self._agreed(), number, token, encoding)
        except Exception as error:  # a figure of the test
            opened.failures.add(error)
            return None
        ended_ns = time.monotonic_ns()
        needs_deflate = self._agreed().layer == "deflate"
        if needs_deflate or opened.version is None:
            greeting = await session.greeting()
            opened.version = opened.version or str(greeting.get("server_version", ""))
            if needs_deflate and not greeting.get("deflate"):
                opened.failures.add_kind("no-deflate")
                await session.close()
                return None
        opened.ended_ns = ended_ns
        opened.latencies.append(ended_ns - began_ns)
        opened.connected += 1
        return session

    def _run_time(self, clock_ns: int | None) -> int | None:
        return None if clock_ns is None else max(0, clock_ns - self._agreed().zero_clock_ns)

    async def _run(self, order: Word) -> None:
        """Runs an activity on the connections that live."""
        counts = Counts()
        for session in self._sessions:
            if not session.is_open:
                counts.broken_before.add_kind("closed")
        self._sessions = [session for session in self._sessions if session.is_open]
        activity = Activity(order, self._agreed(), self._link, counts)
        activity.prepare()
        counts.members = len(self._sessions)
        meter = Meter(self._pulse)
        self._activity = activity
        interrupted = not await self._finished(activities.run(activity, self._sessions))
        self._activity = None
        self._failed += counts.broken.total()
        stopped = min(counts.end, time.monotonic())

        def to_ns(at: float) -> int | None:
            return self._run_time(int(at * 1e9)) if at else None

        self._link.say(
            "ran",
            **counts.figures(),
            **meter.figures(),
            pace=activity.pace_kept(stopped),
            began_ns=to_ns(counts.began),
            first_confirmed_ns=to_ns(counts.first_confirmed),
            last_confirmed_ns=to_ns(max(counts.began, counts.last_confirmed)),
            stopped_ns=to_ns(stopped),
            windows=counts.whole_windows(stopped),
            interrupted=interrupted,
            live=self._figures(),
        )


def hello() -> Word:
    """This worker's introduction."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {
        "contract": CONTRACT,
        "language": "python",
        "version": tidewire.__version__,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "cores": cores,
        "rss_bytes": rss_bytes(),
        "connections_max": max(1, hard - FILES_MARGIN),
        "profiles": ["v1"],
        "encodings": ["json", "msgpack", "zlib"],
        "layers": ["plain", "deflate", "encryption"],
        "encryption_version": 2,
        "accepts_any_certificate": False,
    }


def terms_of(order: Word) -> Terms:
    """The terms of a test, as this package's client takes them."""
    if order["contract"] != CONTRACT:
        raise ValueError(f"the controller speaks version {order['contract']} of the contract, not {CONTRACT}")
    pem = order.get("authorities_pem")
    return Terms(
        zero_clock_ns=order["zero_clock_ns"],
        url=order["url"],
        layer=order["layer"],
        seed=order["seed"],
        cookie_name=order.get("cookie_name"),
        sources=order.get("sources") or [],
        ca=None if pem is None else file_of(pem),
        connect_timeout_s=order["connect_timeout_ms"] / 1000,
        pong_timeout_s=order["pong_timeout_ms"] / 1000,
        barrier_timeout_s=order["barrier_timeout_ms"] / 1000,
        close_timeout_s=order["close_timeout_ms"] / 1000,
    )


def file_of(text: str) -> str:
    """A file with a text, which ends with this process where the system has such files."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("authorities")
        os.write(descriptor, text.encode())
        return f"/proc/self/fd/{descriptor}"
    with tempfile.NamedTemporaryFile("w", prefix="tidewire-authorities-", delete=False) as file:
        file.write(text)
    return file.name


def numbers_of(order: Word) -> list[tuple[int, str | None]]:
    """The numbers of connections and their tokens."""
    numbers = range(order["first"], order["end"], max(1, order["step"]))
    tokens = order.get("tokens") or [None] * len(numbers)
    if len(tokens) != len(numbers):
        raise ValueError(f"{len(tokens)} tokens came for {len(numbers)} connections")
    return list(zip(numbers, tokens, strict=True))


async def gathered(works: Any) -> None:
    """Waits for all, and lets none end unseen."""
    await asyncio.gather(*works)
