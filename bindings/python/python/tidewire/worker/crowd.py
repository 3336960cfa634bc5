"""How far the subscribers of a fan-out are."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

TOPIC = "fan-out"
#: A worker without subscribers limits nothing.
NOBODY = 2**53 - 1


class Speaker(Protocol):
    """What tells the controller something."""

    def say(self, kind: str, **figures: Any) -> None:
        """Writes a line."""


class Crowd:
    """How far the subscribers are, here and at the other workers."""

    def __init__(self, order: dict[str, Any], own: int, connections: int, link: Speaker) -> None:
        self._link = link
        self._publishes: bool = order["publishes"]
        #: What all subscribers of the other workers have.
        self._others = 0 if self._publishes and connections > own else NOBODY
        self._step = max(1, (order.get("in_flight") or 16) // 16)
        self._told = 0
        self._last: list[int] = []
        self._slowest = 0
        self._at_slowest = 0
        #: How many publications there are in all, once it is known.
        self.total: int | None = None
        #: How many this worker has published.
        self.published_here = 0
        self._moved = asyncio.Event()

    def begin(self, subscribers: int) -> None:
        """Begins a fan-out to this many subscribers of this worker."""
        self._last = [0] * subscribers
        self._slowest = 0 if subscribers else NOBODY
        self._at_slowest = subscribers

    def progress(self, received: int) -> None:
        """Takes the newest publication that all subscribers of the other workers have."""
        self._others = received
        self._moved.set()

    def published(self, publications: int) -> None:
        """Takes the number of publications that the publisher has made in total."""
        self.total = publications

    @property
    def slowest(self) -> int:
        """The newest publication that all subscribers have."""
        return min(self._slowest, self._others)

    def received(self, index: int, number: int) -> None:
        """A subscriber here has everything up to this number."""
        was = self._last[index]
        self._last[index] = number
        if was != self._slowest or number == was:
            return
        self._at_slowest -= 1
        if self._at_slowest > 0:
            return
        self._slowest = min(self._last)
        self._at_slowest = self._last.count(self._slowest)
        self._moved.set()
        if not self._publishes and self._slowest - self._told >= self._step:
            self._told = self._slowest
            self._link.say("progress", received=self._slowest)

    def leave(self, index: int) -> None:
        """A subscriber is gone."""
        self.received(index, NOBODY)

    async def moved(self, patience: float) -> None:
        """Waits until somebody has more."""
        self._moved.clear()
        try:
            await asyncio.wait_for(self._moved.wait(), max(0.0, patience))
        except asyncio.TimeoutError:
            return
