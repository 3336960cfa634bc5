"""An order to run, and what has come of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from .counts import Counts, clock
from .crowd import Crowd, Speaker
from .payload import Payload, messages
from .session import Terms

#: Messages between two pings that confirm them.
BURST = 256
#: A longer wait has to be ended by a stop.
SHORT_S = 0.05


class Activity:
    """An order to run, and what has come of it."""

    def __init__(self, order: dict[str, Any], terms: Terms, link: Speaker, counts: Counts) -> None:
        self.order = order
        self.terms = terms
        self.link = link
        self.counts = counts
        self.kind: str = order["activity"]
        self.crowd: Crowd | None = None
        members, index = order["members"], order["index"]
        #: The first of this worker's connections, counted over all, and how many there are in all.
        self.number = sum(members[:index])
        self.connections = sum(members)
        self.own = members[index]
        longest_ms = order.get("longest_ms")
        counts.began = (order["begin_ns"] + terms.zero_clock_ns) / 1e9
        counts.end = float("inf") if longest_ms is None else counts.began + longest_ms / 1000
        counts.answered = self.kind == "window" or bool(order.get("replies"))
        self._stopped = asyncio.Event()

    @property
    def per_s(self) -> float | None:
        """Messages a second of all workers together, if they leave at given times."""
        return self.order.get("per_s")

    @property
    def per_connection(self) -> float:
        """The number of messages or pings of each connection; infinity without a limit."""
        given: int | None = self.order.get("per_connection")
        return float("inf") if given is None else given

    def stop(self) -> None:
        """Ends the activity early, as if its time were over."""
        self.counts.end = min(self.counts.end, clock())
        self._stopped.set()

    async def sleep_until(self, due: float) -> None:
        """Waits until a time, or until the activity is stopped."""
        while (wait := due - clock()) > 0 and not self._stopped.is_set():
            if wait < SHORT_S:
                await asyncio.sleep(wait)
                return
            try:
                await asyncio.wait_for(self._stopped.wait(), wait)
            except asyncio.TimeoutError:
                return

    def prepare(self) -> None:
        """Makes the messages, before the time begins to count."""
        if "message" in self.order:
            self.stream(0)
        if self.kind == "fan_out":
            self.crowd = Crowd(self.order, self.own, self.connections, self.link)

    def stream(self, index: int) -> tuple[str, Callable[[], Payload]]:
        """The type of the messages, and what gives the next payload of a connection."""
        message = self.order["message"]
        # More than are in flight, so that a reply can be distinguished from that to the same message of the next lap.
        least = 2 * self.order.get("in_flight", BURST) if self.counts.answered else 0
        made = messages(message["json_bytes"], message["content"] == "trades", self.terms.seed, least)
        return made.type, made.stream((self.number + index) * 37)

    def pace_kept(self, stopped: float) -> dict[str, Any] | None:
        """How a given rate was kept, in the form of the contract."""
        counts = self.counts
        if self.per_s is None or (self.crowd is not None and not self.order["publishes"]):
            return None
        offered = counts.offered if self.crowd is None else self.crowd.published_here
        offered_s = max(0.0, counts.offered_at - counts.began)
        return {
            "planned_per_s": self.per_s,
            "poisson": bool(self.order.get("poisson")),
            "planned": counts.planned,
            "released": offered,
            "offered": offered,
            "window_s": stopped - counts.began,
            "released_s": offered_s,
            "offered_s": offered_s,
        }


class Pace:
    """When the messages of a connection are due: a pure function of how many were.

    `index` counts over all `connections`, those of other workers too: together they keep the rate, and not all of
    them send at once.
    """

    def __init__(
        self, began: float, per_s: float, connections: int, index: int, poisson_seed: int | None = None
    ) -> None:
        self._began = began
        self._per_s = per_s
        self._connections = max(1, connections)
        #: The number of the next message over all connections.
        self._number = index
        self._random = None if poisson_seed is None else random.Random(poisson_seed * 1_000_003 + index)
        #: At random times, the part of the test that is over, in messages of all connections.
        self._drawn = 0.0

    @classmethod
    def of(cls, activity: Activity, connections: int, index: int) -> Pace:
        """That of a connection of an activity."""
        seed = activity.terms.seed if activity.order.get("poisson") else None
        return cls(activity.counts.began, activity.per_s or 1.0, connections, index, seed)

    def next(self) -> float:
        """The time of the next message."""
        if self._random:
            self._drawn += self._connections * self._random.expovariate(1.0)
            return self._began + self._drawn / self._per_s
        # A sum of intervals adds up rounding errors, and a message at the end could seem to be due before it.
        due = self._began + self._number / self._per_s
        self._number += self._connections
        return due


def late_ns(due: float) -> int:
    """How long ago a message was due."""
    return max(0, int((clock() - due) * 1e9))


def offered(counts: Counts) -> None:
    """A message has left."""
    counts.offered += 1
    counts.offered_at = clock()


async def guarded(counts: Counts, work: Awaitable[None]) -> bool:
    """Whether it went well; if not, the connection counts as broken."""
    try:
        await work
    except Exception as error:  # whatever breaks a connection is a figure of the test
        counts.broken.add(error)
        return False
    return True
