"""Replies to messages, compared with what was sent."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from .counts import Counts

#: Messages of one connection that are remembered as passed over.
PASSED_MAX = 10_000
#: How far behind a reply is looked for among those that have been answered.
BEHIND = 512


@dataclass(slots=True)
class Sent:
    """A message in flight, with the times at which it was due and sent, in nanoseconds."""

    payload: Any
    due_ns: int
    sent_ns: int


class Replies:
    """The messages of one connection and their replies: the replies come in the order of the messages."""

    def __init__(self, counts: Counts, *, planned: bool) -> None:
        self._counts = counts
        self._planned = planned
        self._waiting: list[Sent] = []
        self._first = 0
        self._passed: list[Any] = []

    @property
    def waiting(self) -> int:
        """Messages that have no reply."""
        return len(self._waiting) - self._first

    def sent(self, payload: Any, due_ns: int, sent_ns: int) -> None:
        """A message has left."""
        self._waiting.append(Sent(payload, due_ns, sent_ns))

    def heard(self, payload: Any, now_ns: int) -> int:
        """A reply has come; how many messages may leave for it."""
        first, waiting = self._first, self._waiting
        if first < len(waiting) and waiting[first].payload == payload:
            self._answered(waiting[first], now_ns)
            self._first += 1
            if self._first > 4096:
                del waiting[: self._first - BEHIND]
                self._first = BEHIND
            return 1
        return self._odd(payload, now_ns)

    def _answered(self, sent: Sent, now_ns: int) -> None:
        counts = self._counts
        counts.latencies.append(max(0, now_ns - sent.due_ns))
        if self._planned:
            counts.latencies_sent.append(max(0, now_ns - sent.sent_ns))
        counts.confirm(1, now_ns / 1e9)

    def _odd(self, payload: Any, now_ns: int) -> int:
        counts, first, waiting = self._counts, self._first, self._waiting
        for ahead in range(first, len(waiting)):
            if waiting[ahead].payload == payload:
                room = PASSED_MAX - len(self._passed)
                self._passed += [sent.payload for sent in waiting[first:ahead][:room]]
                self._answered(waiting[ahead], now_ns)
                self._first = ahead + 1
                return 1
        if payload in self._passed:
            self._passed.remove(payload)
            counts.replies["reordered"] += 1
            counts.confirm(1, now_ns / 1e9)
            return 1
        if any(sent.payload == payload for sent in waiting[max(0, first - BEHIND) : first]):
            counts.replies["doubled"] += 1
            return 0
        counts.replies["wrong"] += 1
        if first < len(waiting):
            # It stands where the next reply should.
            self._first += 1
            return 1
        return 0

    def end(self) -> None:
        """Nothing more is awaited: what has no reply counts at its age."""
        self._counts.replies["missing"] += len(self._passed)
        now_ns = time.monotonic_ns()
        for sent in self._waiting[self._first :]:
            self._counts.latencies.append(max(0, now_ns - sent.due_ns))
