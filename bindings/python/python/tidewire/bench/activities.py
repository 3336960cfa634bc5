"""Activities of the connections of a process in a test. Each function runs for all of them at once."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from .account import Counts, clock
from .payload import Payload, messages, publication
from .replies import Replies
from .session import Received, Session

PING_TIMEOUT_S = 10.0
#: Messages between two pings that confirm them.
BURST = 256
#: How long after its end a test makes up for messages that were due before it.
CATCH_UP_S = 1.0
#: How often it is looked whether a paced connection has anything to do.
IDLE_S = 0.05
#: One of this many publications measures the skew.
SKEW_EVERY = 64
TOPIC = "fan-out"


@dataclass(frozen=True)
class Activity:
    """One test's part of a process."""

    kind: str
    began: float
    duration_s: float
    size: int = 175
    several_trades: bool = False
    rate_per_s: float | None = None
    poisson: bool = False
    in_flight: int = 64
    pings: int = 50
    every_s: float = 5.0
    seed: int = 1
    #: Which process it is; the same messages begin elsewhere in each.
    first: int = 0
    #: The first of its connections, counted over all processes, and how many there are in all.
    number: int = 0
    connections: int = 0
    publishes: bool = False

    @property
    def answered(self) -> bool:
        """Whether each message is to have an answer of its own."""
        return self.kind in ("echo", "paced-echo")

    @property
    def sends(self) -> bool:
        """Whether it has failed if nothing was sent."""
        return self.kind not in ("ping", "hold", "survive")


async def run(activity: Activity, sessions: list[Session], counts: Counts, shared: Any) -> None:
    """Runs an activity from its beginning to its end."""
    counts.began = counts.ended = activity.began
    counts.members = len(sessions)
    await asyncio.sleep(max(0.0, activity.began - clock()))
    counts.answered = activity.answered
    if activity.kind == "fan-out":
        await fan_out(activity, sessions, counts, shared)
        return
    each = {
        "send": send,
        "paced": paced,
        "echo": echo,
        "paced-echo": paced_echo,
        "ping": ping,
        "hold": hold,
        "survive": survive,
    }
    work = each[activity.kind]
    await gather(work(activity, session, counts, index) for index, session in enumerate(sessions))


def stream(activity: Activity, index: int) -> tuple[str, Callable[[], Payload]]:
    """The type of the messages, and what gives the next payload of a connection."""
    # More than are in flight, so that a reply can be distinguished from that to the same message of the next lap.
    least = 2 * activity.in_flight if activity.answered else 0
    made = messages(activity.size, activity.several_trades, activity.seed, least)
    return made.type, made.stream(index * 37 + activity.first)


async def gather(works: Any) -> None:
    """Waits for all, and lets none end unseen."""
    await asyncio.gather(*works)


async def guarded(counts: Counts, work: Awaitable[None]) -> bool:
    """Whether it went well; if not, the connection counts as broken."""
    try:
        await work
    except Exception as error:  # whatever breaks a connection is a figure of the test
        counts.broken[type(error).__name__] += 1
        return False
    return True


async def confirmed(session: Session, counts: Counts) -> bool:
    """Whether the server says in time that it has read everything before."""
    counts.pings += 1
    try:
        await asyncio.wait_for(session.ping(), PING_TIMEOUT_S)
    except asyncio.TimeoutError:
        counts.pongs_lost += 1
        return False
    except Exception as error:
        counts.pongs_lost += 1
        counts.broken[type(error).__name__] += 1
        return False
    return True


async def send(activity: Activity, session: Session, counts: Counts, index: int) -> None:
    """Messages as fast as the server takes them, confirmed by pings between them."""
    kind, following = stream(activity, index)
    end = activity.began + activity.duration_s
    before: tuple[asyncio.Task[bool], int] | None = None

    async def settle(burst: tuple[asyncio.Task[bool], int]) -> bool:
        asked, sent = burst
        if not await asked:
            return False
        counts.confirm(sent, clock())
        return True

    going = True
    while going and clock() < end:
        going = await guarded(counts, burst_of(session, kind, following))
        if not going:
            break
        counts.offered += BURST
        burst = asyncio.create_task(confirmed(session, counts)), BURST
        if before is not None:
            # One burst is being confirmed while the next is being written.
            going = await settle(before) and going
        before = burst
    if before is not None:
        await settle(before)


async def burst_of(session: Session, kind: str, following: Callable[[], Payload]) -> None:
    """Sends some messages."""
    for _ in range(BURST):
        await session.send(kind, following())


class Pace:
    """When the messages of a connection are due: a pure function of how many were.

    `index` counts over all `connections`, those of other processes too: together they keep the rate, and not all of
    them send at once.
    """

    def __init__(self, activity: Activity, connections: int, index: int) -> None:
        rate = (activity.rate_per_s or 1.0) / max(1, connections)
        self._random = random.Random(activity.seed * 1_000_003 + index) if activity.poisson else None
        self._interval = 1.0 / rate
        self._next = activity.began + self._interval * (index / max(1, connections))
        if self._random:
            # A random time has no first place.
            self._next = activity.began + self._interval * self._random.expovariate(1.0)

    def next(self) -> float:
        """The time of the next message."""
        due = self._next
        step = self._random.expovariate(1.0) if self._random else 1.0
        self._next += self._interval * step
        return due


async def paced(activity: Activity, session: Session, counts: Counts, index: int) -> None:
    """Messages when their time has come, whether there is room or not."""
    kind, following = stream(activity, index)
    pace = Pace(activity, activity.connections, activity.number + index)
    end = activity.began + activity.duration_s
    unconfirmed = 0
    going = True
    while (due := pace.next()) < end:
        counts.planned += 1
        if not going or clock() > end + CATCH_UP_S:
            # What is not made up for is missing in the rate that was offered.
            continue
        if (wait := due - clock()) > 0:
            await asyncio.sleep(wait)
        counts.late.append(late_ns(due))
        going = await guarded(counts, session.send(kind, following()))
        if not going:
            continue
        offered(counts)
        unconfirmed += 1
        if unconfirmed >= BURST:
            going = await confirmed(session, counts)
            counts.confirm(unconfirmed if going else 0, clock())
            unconfirmed = 0
    if going and unconfirmed and await confirmed(session, counts):
        counts.confirm(unconfirmed, clock())


def late_ns(due: float) -> int:
    """How long ago a message was due."""
    return max(0, int((clock() - due) * 1e9))


def offered(counts: Counts) -> None:
    """A message has left."""
    counts.offered += 1
    counts.offered_at = clock()


async def echo(activity: Activity, session: Session, counts: Counts, index: int) -> None:
    """Requests and answers, with some in flight at any time."""
    kind, following = stream(activity, index)
    end = activity.began + activity.duration_s
    replies = Replies(counts, planned=False)

    async def say() -> None:
        payload, now_ns = following(), time.monotonic_ns()
        replies.sent(payload, now_ns, now_ns)
        await session.send(kind, payload)
        counts.offered += 1

    for _ in range(activity.in_flight):
        if not await guarded(counts, say()):
            return
    await answers(session, counts, replies, say, end)
    replies.end()


async def answers(
    session: Session,
    counts: Counts,
    replies: Replies,
    say: Callable[[], Awaitable[None]],
    end: float,
) -> None:
    """Receives answers, each of which releases the next message until the end, and then those in flight."""
    try:
        while replies.waiting or clock() < end:
            patience = max(0.0, end - clock()) + PING_TIMEOUT_S
            freed = heard(await asyncio.wait_for(session.receive(), patience), counts, replies)
            if clock() < end:
                for _ in range(freed):
                    await say()
    except asyncio.TimeoutError:
        return
    except Exception as error:
        counts.broken[type(error).__name__] += 1


def heard(batch: list[Received], counts: Counts, replies: Replies) -> int:
    """Takes what has come together; how many messages may leave for it."""
    now_ns = time.monotonic_ns()
    freed = 0
    for message in batch:
        if message.type == "error":
            counts.errors[str(message.payload.get("code"))] += 1
        else:
            freed += replies.heard(message.payload, now_ns)
    return freed


async def paced_echo(activity: Activity, session: Session, counts: Counts, index: int) -> None:
    """Requests when their time has come; their latency counts from then."""
    kind, following = stream(activity, index)
    pace = Pace(activity, activity.connections, activity.number + index)
    end = activity.began + activity.duration_s
    replies = Replies(counts, planned=True)

    async def speak() -> None:
        while (due := pace.next()) < end:
            counts.planned += 1
            if clock() > end + CATCH_UP_S:
                continue
            if (wait := due - clock()) > 0:
                await asyncio.sleep(wait)
            counts.late.append(late_ns(due))
            payload = following()
            replies.sent(payload, int(due * 1e9), time.monotonic_ns())
            await session.send(kind, payload)
            offered(counts)

    speaking = asyncio.create_task(speak())
    try:
        while not speaking.done() or replies.waiting:
            patience = max(0.0, end - clock()) + PING_TIMEOUT_S
            is_awaiting = replies.waiting > 0
            if not is_awaiting:
                # Nothing can come before the next message has left.
                patience = min(patience, IDLE_S)
            try:
                heard(await asyncio.wait_for(session.receive(), patience), counts, replies)
            except asyncio.TimeoutError:
                # What has left meanwhile has not been waited for yet.
                if is_awaiting or clock() > end + PING_TIMEOUT_S:
                    break
    except Exception as error:
        counts.broken[type(error).__name__] += 1
    speaking.cancel()
    replies.end()


async def ping(activity: Activity, session: Session, counts: Counts, index: int) -> None:
    """Pings, one after another."""
    for _ in range(activity.pings):
        began = time.monotonic_ns()
        if not await confirmed(session, counts):
            return
        ended = time.monotonic_ns()
        counts.latencies.append(ended - began)
        counts.count(1, ended / 1e9)


async def hold(activity: Activity, session: Session, counts: Counts, index: int) -> None:
    """A ping now and then."""
    end = activity.began + activity.duration_s
    # Spread, so that not all connections ping at once.
    due = activity.began + activity.every_s * (index + 1) / (counts.members + 1)
    while due < end:
        await asyncio.sleep(max(0.0, due - clock()))
        began = time.monotonic_ns()
        if not await confirmed(session, counts):
            counts.broken.setdefault("NoPong", 0)
            counts.broken["NoPong"] += 1
            return
        ended = time.monotonic_ns()
        counts.latencies.append(ended - began)
        counts.count(1, ended / 1e9)
        due += activity.every_s
    await asyncio.sleep(max(0.0, end - clock()))


async def survive(activity: Activity, session: Session, counts: Counts, index: int) -> None:
    """A moment of silence, and a ping: what a server ends right after it has made it ready is no connection."""
    await asyncio.sleep(max(0.0, activity.began + activity.duration_s - clock()))
    lost = sum(counts.broken.values())
    if not await confirmed(session, counts) and sum(counts.broken.values()) == lost:
        counts.broken["NoPong"] += 1


async def fan_out(activity: Activity, sessions: list[Session], counts: Counts, shared: Any) -> None:
    """Subscribers that look at every publication, and in one process the publisher.

    `shared` has the publications that the slowest subscriber of each process has received, and behind them how many
    there are in all, once that is known.
    """
    publisher = sessions[-1] if activity.publishes else None
    subscribers = sessions[:-1] if activity.publishes else sessions
    counts.members = len(subscribers)
    slowest = shared.slot
    received = [0] * len(subscribers)
    tasks: list[Coroutine[Any, Any, None]] = [
        subscriber(activity, session, counts, received, index, shared)
        for index, session in enumerate(subscribers)
    ]
    if not subscribers:
        shared.received[slowest] = 2**63
    if publisher is not None:
        tasks.append(publish(activity, publisher, counts, shared))
    await gather(tasks)


async def publish(activity: Activity, session: Session, counts: Counts, shared: Any) -> None:
    """Publications at full speed, a few ahead of the slowest subscriber, or when their time has come."""
    end = activity.began + activity.duration_s
    pace = Pace(activity, 1, 0) if activity.rate_per_s else None
    number = 0
    while True:
        if pace is None:
            # Other processes write their progress to shared memory, and only a look shows it.
            while number - min(shared.received) >= activity.in_flight and clock() < end:  # noqa: ASYNC110
                await asyncio.sleep(0)
            due = clock()
        else:
            due = pace.next()
            if due < end:
                counts.planned += 1
                await asyncio.sleep(max(0.0, due - clock()))
        if due >= end:
            break
        if pace is not None:
            counts.late.append(late_ns(due))
        counts.offered_at = clock()
        number += 1
        message = publication(number, int(due * 1e9), activity.size)
        if not await guarded(counts, session.publish(TOPIC, "tick", message)):
            break
    await guarded(counts, session.published())
    counts.publications = number
    shared.total.value = number


async def subscriber(
    activity: Activity, session: Session, counts: Counts, received: list[int], index: int, shared: Any
) -> None:
    """Looks at every publication until the last has come."""
    last = 0
    deadline = activity.began + activity.duration_s + PING_TIMEOUT_S
    while True:
        total = shared.total.value
        if total >= 0 and last >= total:
            return
        try:
            # In short steps, because the last publication may be behind before its number is known.
            batch = await asyncio.wait_for(session.receive(), min(0.5, max(0.001, deadline - clock())))
        except asyncio.TimeoutError:
            if clock() >= deadline:
                return
            continue
        except Exception as error:
            counts.broken[type(error).__name__] += 1
            return
        now = time.monotonic_ns()
        good = 0
        for message in batch:
            payload = message.payload
            number = payload["n"] if isinstance(payload, dict) and "n" in payload else None
            if number is None or payload != publication(number, payload["at"], activity.size):
                counts.wrong += 1
                continue
            if number <= last:
                counts.duplicates += 1
                continue
            counts.gaps += number - last - 1
            last = number
            good += 1
            counts.latencies.append(max(0, now - payload["at"]))
            if number % SKEW_EVERY == 0:
                first_ns, last_ns = counts.received.get(number, (now, now))
                counts.received[number] = (min(first_ns, now), max(last_ns, now))
        counts.confirm(good, now / 1e9)
        received[index] = last
        shared.received[shared.slot] = min(received)
