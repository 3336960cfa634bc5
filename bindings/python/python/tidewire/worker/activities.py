"""Activities of the connections of a worker. Each runs for all connections at once."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

from .activity import BURST, Activity, Pace, guarded, late_ns, offered
from .counts import Counts, clock
from .crowd import TOPIC
from .fan_out import fan_out
from .payload import Payload
from .replies import Replies
from .session import Received, Session

#: How long after its end a test makes up for messages that were due before it.
CATCH_UP_S = 1.0
#: How often it is looked whether a paced connection has anything to do.
IDLE_S = 0.05


async def run(activity: Activity, sessions: list[Session]) -> None:
    """Runs an activity from its beginning to its end."""
    counts = activity.counts
    counts.last_confirmed = counts.began
    await asyncio.sleep(max(0.0, counts.began - clock()))
    if activity.crowd is not None:
        await fan_out(activity, activity.crowd, sessions)
        return
    work = WORKS[activity.kind + ("_replies" if activity.kind == "paced" and counts.answered else "")]
    listening = [asyncio.create_task(listen(counts, session)) for session in sessions if not counts.answered]
    try:
        await asyncio.gather(*(work(activity, session, index) for index, session in enumerate(sessions)))
    finally:
        for task in listening:
            task.cancel()


async def listen(counts: Counts, session: Session) -> None:
    """Takes what a server sends though no answer is awaited: a client whose messages nobody takes stops reading."""
    with contextlib.suppress(Exception):  # a lost connection is a figure of the work on it
        while True:
            note_errors(await session.receive(), counts)


async def confirmed(activity: Activity, session: Session, patience_s: float) -> bool:
    """Whether the server says in time that it has read everything before."""
    counts = activity.counts
    counts.pings += 1
    try:
        await asyncio.wait_for(session.ping(), patience_s)
    except asyncio.TimeoutError:
        counts.pongs_lost += 1
        return False
    except Exception as error:
        counts.pongs_lost += 1
        counts.broken.add(error)
        return False
    return True


async def blast(activity: Activity, session: Session, index: int) -> None:
    """Messages as fast as the server takes them, confirmed by pings between them."""
    counts, patience_s = activity.counts, activity.terms.barrier_timeout_s
    kind, following = activity.stream(index)
    left = activity.per_connection
    counts.unconfirmed_bytes_max = 2 * BURST * activity.order["message"]["json_bytes"]
    before: asyncio.Task[bool] | None = None

    async def settle(asked: asyncio.Task[bool], messages: int) -> bool:
        if not await asked:
            return False
        counts.confirm(messages, clock())
        return True

    going, messages = True, 0
    while going and left > 0 and clock() < counts.end:
        some = int(min(BURST, left))
        going = await guarded(counts, burst_of(counts, session, kind, following, some))
        if not going:
            break
        left -= some
        burst = asyncio.create_task(confirmed(activity, session, patience_s))
        if before is not None:
            # One burst is being confirmed while the next is being written.
            going = await settle(before, messages) and going
        before, messages = burst, some
    if before is not None:
        await settle(before, messages)


async def burst_of(
    counts: Counts, session: Session, kind: str, following: Callable[[], Payload], messages: int
) -> None:
    """Sends some messages."""
    for _ in range(messages):
        await session.send(kind, following())
        counts.offered += 1


async def paced(activity: Activity, session: Session, index: int) -> None:
    """Messages when their time has come, whether there is room or not."""
    counts, patience_s = activity.counts, activity.terms.barrier_timeout_s
    kind, following = activity.stream(index)
    pace = Pace.of(activity, activity.connections, activity.number + index)
    unconfirmed = 0
    going = True
    while (due := pace.next()) < counts.end:
        if going and clock() <= counts.end + CATCH_UP_S:
            await activity.sleep_until(due)
            if due >= counts.end:
                break
        counts.planned += 1
        if not going or clock() > counts.end + CATCH_UP_S:
            # What is not made up for is missing in the rate that was offered.
            continue
        counts.late.append(late_ns(due))
        going = await guarded(counts, session.send(kind, following()))
        if not going:
            continue
        offered(counts)
        unconfirmed += 1
        if unconfirmed >= BURST:
            going = await confirmed(activity, session, patience_s)
            counts.confirm(unconfirmed if going else 0, clock())
            unconfirmed = 0
    if going and unconfirmed and await confirmed(activity, session, patience_s):
        counts.confirm(unconfirmed, clock())


async def window(activity: Activity, session: Session, index: int) -> None:
    """Requests and answers, with some in flight at any time."""
    counts = activity.counts
    kind, following = activity.stream(index)
    replies = Replies(counts, planned=False)
    left = activity.per_connection

    async def say() -> None:
        nonlocal left
        if left <= 0:
            return
        left -= 1
        payload, now_ns = following(), time.monotonic_ns()
        replies.sent(payload, now_ns, now_ns)
        await session.send(kind, payload)
        counts.offered += 1

    try:
        for _ in range(activity.order["in_flight"]):
            if not await guarded(counts, say()):
                return
        await answers(activity, session, replies, say, lambda: left > 0)
    finally:
        replies.end()


async def answers(
    activity: Activity,
    session: Session,
    replies: Replies,
    say: Callable[[], Awaitable[None]],
    has_more: Callable[[], bool] = lambda: True,
) -> None:
    """Receives answers, each of which releases the next message until the end, and then those in flight."""
    counts, patience_s = activity.counts, activity.terms.barrier_timeout_s
    heard_at = clock()
    try:
        while replies.waiting or (has_more() and clock() < counts.end):
            patience = min(max(0.0, counts.end - clock()) + patience_s, STOP_LOOK_S)
            try:
                batch = await asyncio.wait_for(session.receive(), patience)
            except asyncio.TimeoutError:
                if clock() >= (counts.end if has_more() else heard_at) + patience_s:
                    return
                continue
            heard_at = clock()
            freed = heard(batch, counts, replies)
            if clock() < counts.end:
                for _ in range(freed):
                    await say()
    except Exception as error:
        counts.broken.add(error)


def heard(batch: list[Received], counts: Counts, replies: Replies) -> int:
    """Takes what has come together; how many messages may leave for it."""
    now_ns = time.monotonic_ns()
    return sum(replies.heard(message.payload, now_ns) for message in note_errors(batch, counts))


def note_errors(batch: list[Received], counts: Counts) -> list[Received]:
    """Counts the errors among what has come together; the rest."""
    for message in batch:
        if message.type == "error":
            counts.errors[str(message.payload.get("code"))] += 1
    return [message for message in batch if message.type != "error"]


async def paced_replies(activity: Activity, session: Session, index: int) -> None:
    """Requests when their time has come; their latency counts from then."""
    counts, patience_s = activity.counts, activity.terms.barrier_timeout_s
    kind, following = activity.stream(index)
    pace = Pace.of(activity, activity.connections, activity.number + index)
    replies = Replies(counts, planned=True)

    async def speak() -> None:
        while (due := pace.next()) < counts.end:
            if clock() <= counts.end + CATCH_UP_S:
                await activity.sleep_until(due)
                if due >= counts.end:
                    return
            counts.planned += 1
            if clock() > counts.end + CATCH_UP_S:
                continue
            counts.late.append(late_ns(due))
            payload = following()
            replies.sent(payload, int(due * 1e9), time.monotonic_ns())
            await session.send(kind, payload)
            offered(counts)

    speaking = asyncio.create_task(speak())
    try:
        while not speaking.done() or replies.waiting:
            is_awaiting = replies.waiting > 0
            # Nothing can come before the next message has left.
            patience = STOP_LOOK_S if is_awaiting else IDLE_S
            try:
                heard(await asyncio.wait_for(session.receive(), patience), counts, replies)
            except asyncio.TimeoutError:
                if clock() > counts.end + patience_s:
                    break
        if speaking.done():
            speaking.result()
    except Exception as error:
        counts.broken.add(error)
    finally:
        speaking.cancel()
        replies.end()


async def pings(activity: Activity, session: Session, index: int) -> None:
    """Pings, one after another."""
    counts, left = activity.counts, activity.per_connection
    while clock() < counts.end and left > 0:
        left -= 1
        if not await round_trip(activity, session):
            return


async def round_trip(activity: Activity, session: Session) -> bool:
    """A ping that measures; whether it was answered."""
    began_ns = time.monotonic_ns()
    if not await confirmed(activity, session, activity.terms.pong_timeout_s):
        # It counts at its age.
        activity.counts.latencies.append(time.monotonic_ns() - began_ns)
        return False
    activity.counts.round_trip(began_ns, time.monotonic_ns())
    return True


async def hold(activity: Activity, session: Session, index: int) -> None:
    """A ping now and then, and one at the end that asks whether the connection lives."""
    counts, every = activity.counts, activity.order["ping_every_ms"] / 1000
    # Spread, so that not all connections ping at once.
    due = counts.began + every * (index + 1) / (counts.members + 1)
    while due < counts.end:
        await activity.sleep_until(due)
        if due >= counts.end:
            break
        if not await round_trip(activity, session):
            return
        due += every
    await activity.sleep_until(counts.end)
    await confirmed(activity, session, activity.terms.pong_timeout_s)


async def subscribe(activity: Activity, session: Session, index: int) -> None:
    """The topic of a fan-out, for all but its publisher."""
    if session.number == activity.order["publisher"]:
        return
    try:
        await asyncio.wait_for(session.subscribe(TOPIC), activity.terms.barrier_timeout_s)
    except Exception as error:
        activity.counts.broken.notes.append(str(error)[:200])
        activity.counts.broken.add_kind("not-subscribed")
        await session.close()


#: How often a wait for answers looks whether the activity was stopped.
STOP_LOOK_S = 0.25

WORKS: dict[str, Callable[[Activity, Session, int], Awaitable[None]]] = {
    "blast": blast,
    "paced": paced,
    "paced_replies": paced_replies,
    "window": window,
    "pings": pings,
    "hold": hold,
    "subscribe": subscribe,
}
