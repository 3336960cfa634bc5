"""Processor time and memory of processes, as the system tells."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tidewire import _lab

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Sample:
    """What some processes have used up to one moment."""

    cpu_s: float
    rss_bytes: int
    threads: dict[tuple[int, int], float]

    def busiest_since(self, before: Sample) -> float:
        """Processor time of the thread that was busiest since."""
        return max((cpu - before.threads.get(at, 0.0) for at, cpu in self.threads.items()), default=0.0)


def sample(pids: list[int]) -> Sample | None:
    """What the processes have used; `None` where it cannot be read."""
    usage = _lab.lab_usage(pids)
    if usage is None:
        return None
    threads = {(pid, thread): cpu for pid in pids for thread, cpu in thread_times(pid).items()}
    return Sample(usage[0], usage[1], threads)


def thread_times(pid: int) -> dict[int, float]:
    """Processor time of each thread of a process, in seconds."""
    times = {}
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return {}
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/stat", "rb") as file:
                # The name, in brackets, may hold anything.
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        times[int(thread)] = (int(fields[11]) + int(fields[12])) / TICKS_PER_S
    return times
