"""How the bench counts, judges and plans."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from array import array
from collections import Counter
from typing import Any

import pytest
from tidewire import InvalidArgumentError, _lab
from tidewire.bench import activities, measure, payload, plan, program
from tidewire.bench.account import Counts, Opened, opened_together, together
from tidewire.bench.activities import Activity, Pace
from tidewire.bench.session import Received


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
    first, later = payload.publication(1, 10**12, 95), payload.publication(99_999, 10**15, 95)
    assert (first["n"], later["n"], later["at"]) == (1, 99_999, 10**15)
    assert payload.message_bytes("tick", first) == payload.message_bytes("tick", later) == 95


def test_what_is_counted_falls_into_its_window() -> None:
    counts = Counts(began=100.0, ended=100.0)
    for at, number in [(100.0, 1), (100.24, 2), (100.25, 4), (101.0, 8), (102.6, 16)]:
        counts.confirm(number, at)
    assert counts.confirmed == 31
    assert counts.duration_s == pytest.approx(2.6)
    assert counts.whole_windows() == [3, 4, 0, 0, 8, 0, 0, 0, 0, 0]
    assert counts.per_second() == [7.0, 8.0]


def test_processes_are_added_up() -> None:
    first = Counts(began=1.0, ended=3.0, members=2, offered=5, confirmed=5, cpu_s=1.0, busiest_s=0.9)
    second = Counts(began=1.0, ended=4.0, members=1, offered=6, confirmed=4, cpu_s=2.0, busiest_s=0.5)
    first.windows.update({0: 5})
    second.windows.update({0: 3, 8: 1})
    first.received, second.received = {64: (10, 20)}, {64: (5, 12), 128: (7, 8)}
    first.broken["Reset"] = 1
    total = together([first, second])
    assert (total.members, total.offered, total.confirmed, total.duration_s) == (3, 11, 9, 3.0)
    assert (total.cpu_s, total.busiest_s, total.broken) == (3.0, 0.9, Counter({"Reset": 1}))
    assert total.received == {64: (5, 20), 128: (7, 8)}
    assert total.whole_windows()[0] == 8
    opened = opened_together(
        [Opened(2, 1, began=1.0, ended=2.0), Opened(3, 3, began=0.5, ended=1.5, server="x")]
    )
    assert (opened.attempted, opened.connected, opened.began, opened.ended, opened.server) == (
        5,
        4,
        0.5,
        2.0,
        "x",
    )


def test_a_distribution_is_that_of_its_values() -> None:
    values = sorted(random.Random(1).randrange(1000, 10_000_000) for _ in range(10_000))
    found: Any = measure.summary(array("Q", values), "intended")
    assert (found["origin"], found["count"]) == ("intended", 10_000)
    for name, percent in [("p50", 50), ("p90", 90), ("p99", 99), ("p99_9", 99.9)]:
        expected = values[int(len(values) * percent / 100) - 1] / 1000
        assert found[name] == pytest.approx(expected, rel=0.005)
    assert found["mean"] == pytest.approx(sum(values) / len(values) / 1000, rel=0.005)
    assert (found["min"], found["max"]) == (
        pytest.approx(values[0] / 1000, rel=0.002),
        pytest.approx(values[-1] / 1000, rel=0.002),
    )
    assert measure.summary(array("Q"), "sent") is None
    with pytest.raises(InvalidArgumentError):
        _lab.LatencyRecorder().record(b"1234567")


def judged(**changed: Any) -> tuple[str, list[str]]:
    """The verdict and the doubts over a run in which nothing was wrong but what is given."""
    account = {
        "sends": True,
        "offered": 100,
        "confirmed": 100,
        "delivered": 100,
        "refused": 0,
        "connections_attempted": 5,
        "connections_failed": 0,
        "pings_sent": 9,
        "pongs_lost": 0,
    }
    evidence = {"aim": "saturate", "account": account, "usage": usage(0.5, 0.95)}
    for name, value in changed.items():
        (account if name in account else evidence)[name] = value
    verdict, doubts, notes, *_ = _lab.lab_judge(json.dumps(evidence))
    assert len(notes) >= len(doubts), "each doubt is explained"
    return verdict, doubts


def usage(
    client_s: float, server_s: float | None, *, cores: float = 2, shared_cores: float = 0
) -> dict[str, Any]:
    """Both sides' processor time in a second."""

    def side(time_s: float) -> dict[str, float]:
        return {"busiest_s": time_s, "total_s": time_s, "cores": cores}

    server = None if server_s is None else side(server_s)
    return {"duration_s": 1.0, "client": side(client_s), "server": server, "shared_cores": shared_cores}


def test_an_account_is_judged_as_the_lab_does() -> None:
    assert judged() == ("valid", [])
    assert judged(confirmed=99, delivered=None) == ("failed", ["messages_lost"])
    assert judged(delivered=101) == ("failed", ["counters_over"])
    assert judged(connections_failed=1) == ("failed", ["connections_failed"])
    assert judged(pongs_lost=1) == ("failed", ["pongs_lost"])
    assert judged(replies={"wrong": 1}) == ("failed", ["replies_wrong"])
    assert judged(usage=usage(0.95, 0.5)) == ("generator_bound", ["generator_saturated"])
    assert judged(usage=usage(0.95, 0.5), aim="keep") == ("valid", [])
    assert judged(generator={"stopped_s": 0.5}) == ("generator_bound", ["generator_stopped"])
    assert judged(windows=[9, 1, 9, 1, 9, 1]) == ("noisy", ["noisy"])
    assert judged(confirmed=60, delivered=60, refused=40) == ("valid", [])
    with pytest.raises(InvalidArgumentError):
        judged(aim="nothing")


def test_the_limit_is_who_had_no_time_left() -> None:
    def limit(**sides: Any) -> str:
        _, _, _, bottleneck, *_ = _lab.lab_judge(json.dumps({"usage": usage(**sides)}))
        return bottleneck

    assert limit(client_s=0.5, server_s=0.95) == "server"
    assert limit(client_s=0.95, server_s=0.5) == "client"
    assert limit(client_s=0.5, server_s=0.5, cores=1, shared_cores=1) == "both"
    assert limit(client_s=0.5, server_s=None) == "none"


def test_messages_of_an_open_loop_are_due_as_planned() -> None:
    activity = Activity("paced", 10.0, 1.0, rate_per_s=100.0)
    times = [sorted(next_times(Pace(activity, 4, index), 25)) for index in range(4)]
    merged = sorted(time for of_one in times for time in of_one)
    assert merged == pytest.approx([10.0 + index / 100 for index in range(100)])
    poisson = Activity("paced", 0.0, 1.0, rate_per_s=1000.0, poisson=True)
    assert next_times(Pace(poisson, 1, 0), 5) == next_times(Pace(poisson, 1, 0), 5)
    assert next_times(Pace(poisson, 1, 0), 20_000)[-1] == pytest.approx(20.0, rel=0.05)


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


def test_a_reply_is_awaited_however_late_its_message_left() -> None:
    async def run() -> Counts:
        counts = Counts()
        began = activities.clock() + 2.5 * activities.IDLE_S
        activity = Activity("paced-echo", began, 0.5 * activities.IDLE_S, rate_per_s=100.0, connections=1)
        session: Any = SlowEcho()
        await activities.paced_echo(activity, session, counts, 0)
        return counts

    counts = asyncio.run(run())
    assert counts.offered > 0
    assert (counts.confirmed, counts.replies["missing"]) == (counts.offered, 0)


def test_shares_add_up() -> None:
    for total, parts in [(10, 3), (2, 4), (0, 2), (100, 1)]:
        shares = [plan.share(total, parts, index) for index in range(parts)]
        assert sum(shares) == total
        assert max(shares) - min(shares) <= 1


def test_tiers_and_tests_that_fit() -> None:
    assert plan.tiers_of((), quick=False, room=5000) == (100, 1000)
    assert plan.tiers_of((), quick=False, room=50) == (50,)
    assert plan.tiers_of((7,), quick=True, room=5000) == (7,)
    assert plan.ECHO not in plan.tests_of((), embedded=True)
    assert plan.FAN_OUT not in plan.tests_of((), embedded=False)


def test_the_command_line_is_kept_without_secrets() -> None:
    words = ["ws://h/", "--jwt-secret", "hush", "--token=hush", "--seed", "3"]
    shown = program.command_line(words)
    assert shown == "python -m tidewire.bench ws://h/ --jwt-secret … --token=… --seed 3"


def test_steadiness_in_words() -> None:
    assert measure.deviation([1.0]) is None
    words = measure.deviation([90.0, 100.0, 110.0])
    assert words is not None
    assert "10.0 %" in words


@pytest.mark.parametrize("text", ["0", "-1", "x", "1,0", ""])
def test_numbers_that_are_none(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        program.numbers(text)
