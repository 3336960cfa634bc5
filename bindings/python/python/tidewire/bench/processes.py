"""Processor time and memory of processes, as the system reports them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from tidewire import _lab

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Sample:
    """The processor time of some processes up to one moment."""

    cpu_s: float
    rss_bytes: int
    threads: dict[tuple[int, int], float]
    #: Processes whose time is in `cpu_s`.
    pids: tuple[int, ...] = ()

    def busiest_since(self, before: Sample) -> float:
        """Processor time of the thread that was busiest since."""
        return max((cpu - before.threads.get(at, 0.0) for at, cpu in self.threads.items()), default=0.0)


def sample(pids: list[int]) -> Sample | None:
    """The processor time of the processes; `None` where it cannot be read."""
    living = [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
    usage = _lab.lab_usage(living)
    if usage is None:
        return None
    threads = {(pid, thread): cpu for pid in living for thread, cpu in thread_times(pid).items()}
    return Sample(usage[0], usage[1], threads, tuple(living))


def thread_times(pid: int) -> dict[int, float]:
    """Processor time of each thread of a process, in seconds."""
    times = {}
    for thread, words in of_threads(pid, "stat"):
        # The name, in brackets, may hold anything.
        fields = words.rpartition(b")")[2].split()
        times[thread] = (int(fields[11]) + int(fields[12])) / TICKS_PER_S
    return times


def waiting_times(pid: int) -> dict[int, float]:
    """How long each thread of a process has been ready to run without a core, in seconds."""
    fields = ((thread, words.split()) for thread, words in of_threads(pid, "schedstat"))
    return {thread: int(words[1]) / 1e9 for thread, words in fields if len(words) > 1}


def of_threads(pid: int, name: str) -> Iterator[tuple[int, bytes]]:
    """The content of a file of `/proc` for each thread of a process; threads that have ended are left out."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/{name}", "rb") as file:
                words = file.read()
        except OSError:
            continue
        yield int(thread), words


def cores_busy(cores: frozenset[int]) -> float | None:
    """How long these cores have worked for anybody since the machine was started, in seconds."""
    try:
        with open("/proc/stat") as file:
            lines = [line.split() for line in file if line.startswith("cpu")]
    except OSError:
        return None
    # User, nice, system, irq and softirq; the others are idle, or other machines.
    busy = (1, 2, 3, 6, 7)
    ours = [words for words in lines if words[0][3:].isdigit() and int(words[0][3:]) in cores]
    return sum(int(words[at]) for words in ours for at in busy) / TICKS_PER_S
