"""A fan-out: one connection publishes, the others look at every publication."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from .activity import Activity, Pace, guarded, late_ns
from .counts import clock
from .crowd import TOPIC, Crowd
from .payload import publication
from .session import Session

TYPE = "f"
#: How often a subscriber looks whether the last publication has come.
LOOK_S = 0.25


async def fan_out(activity: Activity, crowd: Crowd, sessions: list[Session]) -> None:
    """Subscribers that look at every publication, and in one worker the publisher."""
    order, counts = activity.order, activity.counts
    publisher = next((one for one in sessions if one.number == order["publisher"]), None)
    subscribers = [session for session in sessions if session is not publisher]
    counts.members = len(sessions)
    crowd.begin(len(subscribers))
    check = Check(activity, crowd, len(subscribers))
    works = [check.subscriber(session, index) for index, session in enumerate(subscribers)]
    if publisher is not None:
        works.append(publish(activity, crowd, publisher))
    try:
        await asyncio.gather(*works)
    finally:
        counts.fan_out = check.figures(crowd.published_here)


async def publish(activity: Activity, crowd: Crowd, session: Session) -> None:
    """Publications at full speed, a few ahead of the slowest subscriber, or when their time has come."""
    counts, order = activity.counts, activity.order
    pace = Pace.of(activity, 1, 0) if activity.per_s else None
    number, size, ahead = 0, order["message_bytes"], order.get("in_flight") or 0
    while True:
        if pace is None:
            while number - crowd.slowest >= ahead and clock() < counts.end:
                await crowd.moved(min(LOOK_S, counts.end - clock()))
            due = clock()
        else:
            due = pace.next()
            if due < counts.end:
                await activity.sleep_until(due)
        if due >= counts.end:
            break
        if pace is not None:
            counts.planned += 1
            counts.late.append(late_ns(due))
        number += 1
        crowd.published_here = number
        counts.offered_at = clock()
        at_us = max(0, int(due * 1e9) - activity.terms.zero_clock_ns) // 1000
        if not await guarded(counts, session.publish(TOPIC, TYPE, publication(number, at_us, size))):
            break
    await guarded(counts, session.published())
    crowd.published(number)
    activity.link.say("published", publications=number)


class Check:
    """What the subscribers here have received."""

    def __init__(self, activity: Activity, crowd: Crowd, subscribers: int) -> None:
        self._activity = activity
        self._crowd = crowd
        self._subscribers = subscribers
        self._gaps = self._duplicates = self._wrong = 0
        self._every: int = activity.order["milestone_every"]
        #: When each milestone was first and last received, and by how many.
        self._milestones: list[list[int]] = []

    def figures(self, published: int) -> dict[str, Any]:
        """The outcome in the form of the contract."""
        zero_ns = self._activity.terms.zero_clock_ns
        spans = []
        for first_ns, last_ns, passed in self._milestones:
            if passed < self._subscribers:
                break
            spans.append((max(0, first_ns - zero_ns), max(0, last_ns - zero_ns)))
        return {
            "subscribers": self._subscribers,
            "published": published,
            "gaps": self._gaps,
            "duplicates": self._duplicates,
            "wrong": self._wrong,
            "spans_ns": spans,
        }

    async def subscriber(self, session: Session, index: int) -> None:
        """Looks at every publication until the last has come."""
        activity, crowd, counts = self._activity, self._crowd, self._activity.counts
        last = 0
        patience_s = activity.terms.barrier_timeout_s
        while crowd.total is None or last < crowd.total:
            try:
                batch = await asyncio.wait_for(session.receive(), LOOK_S)
            except asyncio.TimeoutError:
                if time.monotonic() >= counts.end + patience_s:
                    return
                continue
            except Exception as error:
                counts.broken.add(error)
                crowd.leave(index)
                return
            now_ns = time.monotonic_ns()
            good = 0
            for message in batch:
                number = self._take(message.payload, last, now_ns)
                if number:
                    last = number
                    good += 1
            counts.confirm(good, now_ns / 1e9)
            crowd.received(index, last)

    def _take(self, payload: Any, last: int, now_ns: int) -> int | None:
        """The number of a publication that is right and new."""
        activity = self._activity
        is_one = isinstance(payload, dict) and isinstance(payload.get("n"), int)
        if not is_one or payload != publication(
            payload["n"], payload.get("at"), activity.order["message_bytes"]
        ):
            self._wrong += 1
            return None
        number: int = payload["n"]
        if number <= last:
            self._duplicates += 1
            return None
        self._gaps += number - last - 1
        run_ns = now_ns - activity.terms.zero_clock_ns
        activity.counts.latencies.append(max(0, run_ns - payload["at"] * 1000))
        for milestone in range(last // self._every, number // self._every):
            while len(self._milestones) <= milestone:
                self._milestones.append([now_ns, now_ns, 0])
            one = self._milestones[milestone]
            one[1] = now_ns
            one[2] += 1
        return number
