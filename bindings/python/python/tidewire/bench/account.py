"""Counts of the connections of one process, and then of all of them."""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

WINDOWS_PER_S = 4


@dataclass
class Opened:
    """Connections that were opened."""

    attempted: int = 0
    connected: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    latencies: array[int] = field(default_factory=lambda: array("Q"))
    began: float = 0.0
    ended: float = 0.0
    cpu_s: float = 0.0
    busiest_s: float = 0.0
    #: Of the thread that waited longest for a core, if the system reports it.
    waited_s: float = 0.0
    server: str | None = None


@dataclass
class Counts:
    """The actions and their results. Times are on the machine's monotonic clock."""

    began: float = 0.0
    ended: float = 0.0
    members: int = 0
    offered: int = 0
    confirmed: int = 0
    pings: int = 0
    pongs_lost: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    #: The faults of replies, by kind.
    replies: Counter[str] = field(default_factory=Counter)
    answered: bool = False
    #: Messages that were due in the time of the test, if they were planned.
    planned: int = 0
    #: When the last message was sent.
    offered_at: float = 0.0
    #: When the first confirmation came.
    first_confirmed: float = 0.0
    wrong: int = 0
    gaps: int = 0
    duplicates: int = 0
    publications: int = 0
    windows: Counter[int] = field(default_factory=Counter)
    #: From when a message was due, or sent if it was not planned.
    latencies: array[int] = field(default_factory=lambda: array("Q"))
    #: From when it was sent, if it was planned.
    latencies_sent: array[int] = field(default_factory=lambda: array("Q"))
    #: From when a message was due until it was sent, if it was planned.
    late: array[int] = field(default_factory=lambda: array("Q"))
    #: When a publication was first and last received, in nanoseconds.
    received: dict[int, tuple[int, int]] = field(default_factory=dict)
    cpu_s: float = 0.0
    busiest_s: float = 0.0
    waited_s: float = 0.0

    def confirm(self, messages: int, now: float) -> None:
        """Counts messages that the other end has accounted for."""
        self.confirmed += messages
        self.count(messages, now)

    def count(self, events: int, now: float) -> None:
        """Counts what the test's rate counts, at its time."""
        self.windows[int((now - self.began) * WINDOWS_PER_S)] += events
        self.ended = max(self.ended, now)
        if events and not self.first_confirmed:
            self.first_confirmed = now

    @property
    def duration_s(self) -> float:
        """From the start to the last counted event."""
        return max(0.0, self.ended - self.began)

    def whole_windows(self) -> list[int]:
        """The count of each quarter of a second that is over."""
        return [self.windows[index] for index in range(int(self.duration_s * WINDOWS_PER_S))]

    def per_second(self) -> list[float]:
        """The count of each whole second."""
        windows = self.whole_windows()
        seconds = range(len(windows) // WINDOWS_PER_S)
        return [float(sum(windows[WINDOWS_PER_S * s : WINDOWS_PER_S * (s + 1)])) for s in seconds]


def together(parts: Iterable[Counts]) -> Counts:
    """The counts of all processes."""
    total = Counts()
    for index, part in enumerate(parts):
        firsts = [at for at in (total.first_confirmed, part.first_confirmed) if at]
        total.first_confirmed = min(firsts, default=0.0)
        total.offered_at = max(total.offered_at, part.offered_at)
        total.answered = total.answered or part.answered
        total.replies.update(part.replies)
        total.late.extend(part.late)
        total.waited_s = max(total.waited_s, part.waited_s)
        total.planned += part.planned
        total.began = part.began if index == 0 else min(total.began, part.began)
        total.ended = max(total.ended, part.ended)
        for name in ("members", "offered", "confirmed", "pings", "pongs_lost", "wrong", "gaps", "duplicates"):
            setattr(total, name, getattr(total, name) + getattr(part, name))
        total.publications += part.publications
        total.errors.update(part.errors)
        total.broken.update(part.broken)
        total.windows.update(part.windows)
        total.latencies.extend(part.latencies)
        total.latencies_sent.extend(part.latencies_sent)
        total.cpu_s += part.cpu_s
        total.busiest_s = max(total.busiest_s, part.busiest_s)
        for number, (first, last) in part.received.items():
            known = total.received.get(number, (first, last))
            total.received[number] = (min(known[0], first), max(known[1], last))
    return total


def opened_together(parts: Iterable[Opened]) -> Opened:
    """The connections of all processes."""
    total = Opened(began=float("inf"))
    for part in parts:
        total.attempted += part.attempted
        total.connected += part.connected
        total.failures.update(part.failures)
        total.latencies.extend(part.latencies)
        total.began = min(total.began, part.began)
        total.ended = max(total.ended, part.ended)
        total.cpu_s += part.cpu_s
        total.busiest_s = max(total.busiest_s, part.busiest_s)
        total.waited_s = max(total.waited_s, part.waited_s)
        total.server = total.server or part.server
    return total


def clock() -> float:
    """Seconds on the machine's monotonic clock, which is the same in all processes."""
    return time.monotonic()
