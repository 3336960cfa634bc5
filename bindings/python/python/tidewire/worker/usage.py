"""What this process has used, and for how long it did not run."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
BEAT_S = 0.02
#: The length of a piece of the waits.
PIECE_NS = 50_000_000
#: A beat is late by less than this for many reasons.
STOPPED_MIN_NS = 20_000_000


@dataclass
class Pulse:
    """A beat on the event loop. A beat that is late though the process has neither worked nor waited for a core means
    that the process was stopped."""

    stopped_ns: int = 0
    waits_us: array[int] = field(default_factory=lambda: array("L"))
    observed_ns: int = 0

    async def beat(self) -> None:
        """Beats until it is cancelled."""
        thread = threading.get_native_id()
        last_ns, cpu_ns, waited_ns = time.monotonic_ns(), time.process_time_ns(), waited(thread)
        piece_ns, piece_waited_ns = last_ns, waited_ns
        while True:
            await asyncio.sleep(BEAT_S)
            now_ns, now_cpu_ns, now_waited_ns = time.monotonic_ns(), time.process_time_ns(), waited(thread)
            busy_ns = (now_cpu_ns - cpu_ns) + (now_waited_ns - waited_ns)
            stopped_ns = now_ns - last_ns - int(BEAT_S * 1e9) - busy_ns
            if stopped_ns >= STOPPED_MIN_NS:
                self.stopped_ns += stopped_ns
            if now_ns - piece_ns >= PIECE_NS:
                self.observed_ns += now_ns - piece_ns
                if (waited_us := (now_waited_ns - piece_waited_ns) // 1000) > 0:
                    self.waits_us.append(waited_us)
                piece_ns, piece_waited_ns = now_ns, now_waited_ns
            last_ns, cpu_ns, waited_ns = now_ns, now_cpu_ns, now_waited_ns


def waited(thread: int) -> int:
    """How long a thread of this process has been ready to run without a core, in nanoseconds."""
    try:
        with open(f"/proc/self/task/{thread}/schedstat", "rb") as file:
            return int(file.read().split()[1])
    except (OSError, IndexError):
        return 0


class Meter:
    """The processor time and the waits from one moment on."""

    def __init__(self, pulse: Pulse) -> None:
        self._pulse = pulse
        self._cpu_ns = time.process_time_ns()
        self._threads, self._waits = thread_times(), waiting_times()
        pulse.waits_us = array("L")
        pulse.observed_ns = 0

    def figures(self) -> dict[str, Any]:
        """The figures of the contract."""
        used = [cpu - self._threads.get(thread, 0) for thread, cpu in thread_times().items()]
        waits = [wait - self._waits.get(thread, 0) for thread, wait in waiting_times().items()]
        return {
            "used": {
                "total_ns": time.process_time_ns() - self._cpu_ns,
                "busiest_ns": max(used, default=0),
                "waited_ns": max(waits, default=0),
            },
            "waits_us": list(self._pulse.waits_us),
            "observed_ns": self._pulse.observed_ns,
        }


def thread_times() -> dict[int, int]:
    """Processor time of each thread, in nanoseconds."""
    return {thread: int(words.split()[0]) for thread, words in of_threads() if words}


def waiting_times() -> dict[int, int]:
    """How long each thread has been ready to run without a core, in nanoseconds."""
    return {thread: int(words.split()[1]) for thread, words in of_threads() if words}


def of_threads() -> Iterator[tuple[int, bytes]]:
    """What the scheduler says about each thread."""
    try:
        threads = os.listdir("/proc/self/task")
    except OSError:
        return
    for thread in threads:
        try:
            with open(f"/proc/self/task/{thread}/schedstat", "rb") as file:
                yield int(thread), file.read()
        except OSError:
            # It has ended meanwhile.
            continue


def rss_bytes() -> int:
    """The resident memory of this process."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * PAGE_BYTES
    except OSError:
        return 0
