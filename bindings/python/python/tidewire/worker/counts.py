"""What the connections of this worker have done."""

from __future__ import annotations

import re
import time
from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tidewire import _lab
from tidewire.errors import TidewireError, TokenError

WINDOWS_PER_S = 4
NOTES_MAX = 3

#: The kinds of failures that the contract names, by what an error says about itself.
KINDS = (
    ("refused", ("connection refused", "econnrefused")),
    ("connect-timeout", ("timed out", "timeout")),
    ("open-files", ("too many open files",)),
    ("no-port", ("cannot assign requested address",)),
    ("tls", ("certificate", "tls")),
    ("reset", ("reset", "broken pipe")),
    ("unreachable", ("unreachable", "no route")),
)


def clock() -> float:
    """Seconds on the machine's monotonic clock."""
    return time.monotonic()


class Failures:
    """Failed connections, by kind, and the first few reasons in words."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, int | None]] = Counter()
        self.notes: list[str] = []

    def add(self, error: BaseException) -> None:
        """Counts one."""
        self.add_kind(*kind_of(error))
        code = getattr(error, "code", type(error).__name__)
        note = f"A connection failed: {code}: {error}"[:200]
        if note not in self.notes and len(self.notes) < NOTES_MAX:
            self.notes.append(note)

    def add_kind(self, kind: str, code: int | None = None) -> None:
        """Counts one of this kind."""
        self._counts[kind, code] += 1

    def total(self) -> int:
        """All of them."""
        return sum(self._counts.values())

    def figures(self) -> list[dict[str, Any]]:
        """The counts in the form of the contract."""
        return [
            {"kind": kind, "count": count} if code is None else {"kind": kind, "code": code, "count": count}
            for (kind, code), count in self._counts.items()
        ]


def kind_of(error: BaseException) -> tuple[str, int | None]:
    """The kind of a failure, and its close code or HTTP status."""
    text = str(error).lower()
    if isinstance(error, TokenError):
        return "unexpected-status", 401
    if status := re.search(r"\b(?:http|status|connection:) ([1-5][0-9]{2})\b", text):
        return "unexpected-status", int(status[1])
    if code := re.search(r"\bcode ([1-4][0-9]{3})\b", text):
        return "closed", int(code[1])
    for kind, words in KINDS:
        if any(word in text for word in words):
            return kind, None
    return ("closed", None) if isinstance(error, TidewireError) and "clos" in text else ("other", None)


@dataclass
class Opened:
    """Connections that were opened."""

    attempted: int = 0
    connected: int = 0
    failures: Failures = field(default_factory=Failures)
    latencies: array[int] = field(default_factory=lambda: array("Q"))
    began_ns: int | None = None
    ended_ns: int | None = None
    interrupted: bool = False
    untried: int = 0
    version: str | None = None

    def figures(self) -> dict[str, Any]:
        """The outcome in the form of the contract, without times."""
        return {
            "attempted": self.attempted,
            "connected": self.connected,
            "failures": self.failures.figures(),
            "latency": _lab.latency_buckets(self.latencies.tobytes()),
            "interrupted": self.interrupted,
            "untried": self.untried,
            "facts": {"version": self.version} if self.version else {},
            "notes": self.failures.notes,
        }


@dataclass
class Counts:
    """The actions of an activity and their results. Times are on the machine's monotonic clock, in seconds."""

    began: float = 0.0
    #: When nothing more is sent: as planned, or earlier.
    end: float = float("inf")
    last_confirmed: float = 0.0
    first_confirmed: float = 0.0
    members: int = 0
    offered: int = 0
    confirmed: int = 0
    pings: int = 0
    pongs: int = 0
    pongs_lost: int = 0
    unsolicited: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    broken: Failures = field(default_factory=Failures)
    broken_before: Failures = field(default_factory=Failures)
    #: The faults of replies, by kind.
    replies: Counter[str] = field(default_factory=Counter)
    answered: bool = False
    unconfirmed_bytes_max: int = 0
    #: Messages that were due in the time of the test, if they were planned.
    planned: int = 0
    offered_at: float = 0.0
    windows: Counter[int] = field(default_factory=Counter)
    #: From when a message was due, or sent if it was not planned.
    latencies: array[int] = field(default_factory=lambda: array("Q"))
    #: From when it was sent, if it was planned.
    latencies_sent: array[int] = field(default_factory=lambda: array("Q"))
    #: From when a message was due until it was sent, if it was planned.
    late: array[int] = field(default_factory=lambda: array("Q"))
    fan_out: dict[str, Any] | None = None

    def confirm(self, messages: int, now: float) -> None:
        """Counts messages that the other end has accounted for."""
        self.confirmed += messages
        self.count(messages, now)

    def count(self, events: int, now: float) -> None:
        """Counts what the test's rate counts, at its time."""
        if not events:
            return
        if now < self.end:
            self.windows[int((now - self.began) * WINDOWS_PER_S)] += events
        self.last_confirmed = max(self.last_confirmed, now)
        self.first_confirmed = self.first_confirmed or now

    def round_trip(self, began_ns: int, ended_ns: int) -> None:
        """Counts the answer to a ping that measures."""
        self.pongs += 1
        self.latencies.append(ended_ns - began_ns)
        self.count(1, ended_ns / 1e9)

    def whole_windows(self, end: float) -> list[int]:
        """The count of each quarter of a second that was over at a time."""
        whole = max(0, int((end - self.began) * WINDOWS_PER_S + 1e-6))
        return [self.windows[index] for index in range(whole)]

    def figures(self) -> dict[str, Any]:
        """The outcome in the form of the contract, without times."""
        return {
            "answered": self.answered,
            "unconfirmed_bytes_max": self.unconfirmed_bytes_max,
            "members": self.members,
            "broken": self.broken.figures(),
            "broken_before": self.broken_before.figures(),
            "offered": self.offered,
            "confirmed": self.confirmed,
            "replies": dict(self.replies),
            "refused": dict(self.errors),
            "pings_sent": self.pings,
            "pongs": self.pongs,
            "pongs_lost": self.pongs_lost,
            "unsolicited": self.unsolicited,
            "latency": _lab.latency_buckets(self.latencies.tobytes()),
            "latency_sent": _lab.latency_buckets(self.latencies_sent.tobytes()),
            "late": _lab.latency_buckets(self.late.tobytes()),
            "fan_out": self.fan_out,
            "notes": self.broken.notes,
        }
