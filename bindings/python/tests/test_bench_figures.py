"""How a worker of the bench counts, paces and checks, and how its launcher finds the program."""

from __future__ import annotations

import asyncio
import json
import time
from array import array
from typing import Any

import pytest
from tidewire import ConnectionClosedError, InvalidArgumentError, TokenError, _lab, bench
from tidewire.worker import activities, payload, serving
from tidewire.worker.activity import Activity, Pace
from tidewire.worker.counts import Counts, Failures
from tidewire.worker.crowd import NOBODY, Crowd
from tidewire.worker.session import Received, Terms


class Silent:
    """A link that remembers what it was told."""

    def __init__(self) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []

    def say(self, kind: str, **figures: Any) -> None:
        self.said.append((kind, figures))


def terms() -> Terms:
    return Terms(0, "ws://127.0.0.1:1/", "plain", 1, None, [], None, 10.0, 10.0, 30.0, 2.0)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("size", [64, 65, 169, 170, 175, 256, 512, 1024, 65_536])
def test_messages_have_the_size_that_was_asked_for(size: int, several: bool) -> None:
    made = payload.Messages(size, several=several, seed=3)
    following = made.stream(5)
    sent = [following() for _ in range(len(made.ring) + 1)]
    assert {payload.message_bytes(made.type, message) for message in sent} == {size}
    assert sent[0] == sent[-1]
    assert sent[0] is not sent[-1], "each message is a new value"
    assert len({json.dumps(message) for message in sent}) > len(made.ring) // 2
    assert made.type == ("trades" if several and size >= 512 else "trade")
    assert payload.Messages(size, several=several, seed=3).ring == made.ring


def test_a_message_that_is_too_small_is_told() -> None:
    with pytest.raises(ValueError, match="64"):
        payload.Messages(63)


def test_publications_have_one_size_and_their_number() -> None:
    for number, at_us in [(1, 10**6), (99_999, 10**12)]:
        made = payload.publication(number, at_us, 95)
        assert (made["n"], made["at"]) == (number, at_us)
        message = {"c": "U", "t": "f", "tp": "fan-out", "p": made}
        assert len(json.dumps(message, separators=(",", ":"))) == 95


def test_what_is_counted_falls_into_its_window() -> None:
    counts = Counts(began=100.0)
    for at, number in [(100.0, 1), (100.24, 2), (100.25, 4), (101.0, 8), (102.6, 16)]:
        counts.confirm(number, at)
    assert counts.confirmed == 31
    assert (counts.first_confirmed, counts.last_confirmed) == (100.0, 102.6)
    assert counts.whole_windows(102.6) == [3, 4, 0, 0, 8, 0, 0, 0, 0, 0]


def test_latencies_share_a_bucket_only_with_those_that_are_nearly_equal() -> None:
    assert dict(_lab.latency_buckets(array("Q", [1, 2, 2, 2047]).tobytes())) == {1: 1, 2: 2, 2047: 1}
    ((value, count),) = _lab.latency_buckets(array("Q", [1_000_000, 1_000_001]).tobytes())
    assert count == 2
    assert value == pytest.approx(1_000_000, rel=0.001)
    assert _lab.latency_buckets(b"") == []
    with pytest.raises(InvalidArgumentError):
        _lab.latency_buckets(b"1234567")


def test_failures_have_the_kinds_of_the_contract() -> None:
    failures = Failures()
    for error in [OSError("Connection refused"), asyncio.TimeoutError("timed out"), RuntimeError("odd")]:
        failures.add(error)
    failures.add(RuntimeError("odd"))
    failures.add(TokenError("the token is malformed"))
    failures.add(ConnectionClosedError("closed by the server with code 4408: nothing was heard"))
    kinds = {(one["kind"], one.get("code")): one["count"] for one in failures.figures()}
    assert kinds == {
        ("refused", None): 1,
        ("connect-timeout", None): 1,
        ("other", None): 2,
        ("unexpected-status", 401): 1,
        ("closed", 4408): 1,
    }
    assert failures.total() == 6
    assert len(failures.notes) == 3, "each reason once"


def test_messages_of_an_open_loop_are_due_as_planned() -> None:
    times = [next_times(Pace(10.0, 100.0, 4, index), 25) for index in range(4)]
    merged = sorted(time for of_one in times for time in of_one)
    assert merged == pytest.approx([10.0 + index / 100 for index in range(100)])
    assert next_times(Pace(0.0, 1000.0, 1, 0, 7), 5) == next_times(Pace(0.0, 1000.0, 1, 0, 7), 5)
    assert next_times(Pace(0.0, 1000.0, 1, 0, 7), 20_000)[-1] == pytest.approx(20.0, rel=0.05)


def next_times(pace: Pace, count: int) -> list[float]:
    return [pace.next() for _ in range(count)]


class SlowEcho:
    """A session whose server answers long after the next message could have been awaited."""

    def __init__(self) -> None:
        self.replies: asyncio.Queue[Received] = asyncio.Queue()

    async def send(self, kind: str, message: Any) -> None:
        reply = Received(kind, message)
        asyncio.get_running_loop().call_later(3 * activities.IDLE_S, self.replies.put_nowait, reply)

    async def receive(self) -> list[Received]:
        return [await self.replies.get()]


def paced_echo(begin_s: float, longest_ms: int) -> Activity:
    message = {"json_bytes": 175, "encoding": "json", "content": "trade"}
    order = {
        "activity": "paced",
        "message": message,
        "per_s": 100.0,
        "poisson": False,
        "replies": True,
        "begin_ns": int((time.monotonic() + begin_s) * 1e9),
        "longest_ms": longest_ms,
        "members": [1],
        "index": 0,
    }
    return Activity(order, terms(), Silent(), Counts())


def test_a_reply_is_awaited_however_late_its_message_left() -> None:
    activity = paced_echo(2.5 * activities.IDLE_S, int(500 * activities.IDLE_S))
    session: Any = SlowEcho()
    asyncio.run(activities.run(activity, [session]))
    counts = activity.counts
    assert counts.offered > 0
    assert (counts.confirmed, counts.replies["missing"]) == (counts.offered, 0)
    pace = activity.pace_kept(counts.end)
    assert pace is not None
    assert pace["planned"] == pace["offered"] == counts.offered


def test_an_activity_ends_when_it_is_stopped() -> None:
    activity = paced_echo(0.0, 600_000)

    async def stopped() -> None:
        running = asyncio.create_task(activities.run(activity, [SlowEcho()]))  # type: ignore[list-item]
        await asyncio.sleep(0.1)
        activity.stop()
        await asyncio.wait_for(running, 10)

    asyncio.run(stopped())
    assert 0 < activity.counts.offered == activity.counts.confirmed < 100


def test_the_slowest_subscriber_holds_the_publisher() -> None:
    link = Silent()
    crowd = Crowd({"publishes": True, "in_flight": 16}, 3, 5, link)
    crowd.begin(2)
    crowd.progress(10)
    assert crowd.slowest == 0
    crowd.received(0, 7)
    assert crowd.slowest == 0
    crowd.received(1, 9)
    assert crowd.slowest == 7
    crowd.leave(0)
    assert crowd.slowest == 9
    crowd.leave(1)
    assert crowd.slowest == 10
    assert link.said == [], "the others need not know"
    elsewhere = Crowd({"publishes": False, "in_flight": 16}, 1, 5, link)
    elsewhere.begin(1)
    elsewhere.received(0, 3)
    assert link.said == [("progress", {"received": 3})]
    alone = Crowd({"publishes": True, "in_flight": 16}, 1, 1, link)
    alone.begin(0)
    assert alone.slowest == NOBODY


def test_the_numbers_of_an_order_have_their_tokens() -> None:
    order = {"first": 3, "end": 10, "step": 3, "tokens": ["a", "b", "c"]}
    assert serving.numbers_of(order) == [(3, "a"), (6, "b"), (9, "c")]
    assert serving.numbers_of({"first": 0, "end": 2, "step": 1}) == [(0, None), (1, None)]
    with pytest.raises(ValueError, match="1 tokens came for 3"):
        serving.numbers_of({**order, "tokens": ["a"]})


def test_the_launcher_finds_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEWIRE_PROGRAM", "/bin/true")
    words = bench.command(["--quick", "--processes", "2", "ws://h/"])
    assert words == ["/bin/true", "bench", "--client", "python", "--quick", "--processes", "2", "ws://h/"]
    assert bench.command(["--program=/bin/false", "--help"])[0] == "/bin/false"
    for wrong, reason in [
        (["--program"], "needs a value"),
        (["--program", "/none"], "TIDEWIRE_PROGRAM"),
    ]:
        with pytest.raises(ValueError, match=reason):
            bench.command(wrong)
    monkeypatch.delenv("TIDEWIRE_PROGRAM")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ValueError, match="install it"):
        bench.command([])
