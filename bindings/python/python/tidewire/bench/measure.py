"""What all tests have in common: a server that is watched, and results that are judged as the lab does."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from tidewire import TidewireError, _lab

from . import processes
from .account import Counts, Opened
from .activities import Activity
from .fleet import Fleet
from .plan import Plan, Target

Result = dict[str, Any]
Counters = tuple[int, int, "int | None"]
Origin = Literal["sent", "intended", "first_received"]

#: Ticks of 10 ms say nothing about a test that is over in a few of them.
SHARE_MEANINGFUL_S = 0.2
COUNTERS_SETTLE_S = 2.0


@dataclass
class Server:
    """The server under load, as far as it can be seen."""

    pids: list[int]
    counters_at: tuple[str, int] | None
    rss_bytes_empty: int | None = None
    is_loaded: bool = False
    connected_most: int = 0

    def sample(self) -> processes.Sample | None:
        """What it has used."""
        return processes.sample(self.pids) if self.pids else None

    def counters(self) -> Counters | None:
        """What it has counted; `None` if it has no counters that can be read."""
        if self.counters_at is None:
            return None
        return _lab.lab_counters(*self.counters_at)


@dataclass
class Bench:
    """A run."""

    plan: Plan
    target: Target
    fleet: Fleet
    server: Server
    say: Callable[[str], None]
    server_name: str | None = None
    results: list[Result] = field(default_factory=list)

    def open(self, connections: int) -> Opened:
        """Opens connections for a test."""
        opened = self.fleet.open(connections)
        self.server.connected_most = max(self.server.connected_most, opened.connected)
        self.server_name = self.server_name or opened.server
        return opened

    def result(self, test: str, connections: int, opened: Opened) -> Result:
        """A result with what every test on these connections reports."""
        result: Result = {
            "test": test,
            "connections": connections,
            "connected": opened.connected,
            "failed": opened.attempted - opened.connected,
            "notes": [],
        }
        if self.target.deflate:
            result["extensions"] = ["permessage-deflate"]
            result["notes"].append("The client compresses messages of 1 KiB and more.")
        if self.target.encrypt:
            result["encryption_version"] = 2
        if opened.failures:
            result["notes"].append(f"Connections that could not be opened: {in_words(opened.failures)}.")
        return result

    def measure(self, activity: Activity) -> Measured:
        """Runs an activity, with what the server has used and counted meanwhile."""
        before, counted = self.server.sample(), self.server.counters()
        counts = self.fleet.run(activity)
        after = self.server.sample()
        measured = Measured(counts, before, after, sends=activity.sends)
        if counted is not None:
            try:
                measured.counters = self._settled(counted, counts, is_fan_out=activity.kind == "fan-out")
            except TidewireError as error:
                measured.counters_error = str(error)
        return measured

    def _settled(self, before: Counters, counts: Counts, *, is_fan_out: bool) -> Counters:
        """What was counted since, once the server has added up what its threads have counted."""
        give_up = time.monotonic() + COUNTERS_SETTLE_S
        while True:
            now = self.server.counters()
            assert now is not None
            deliveries = None if now[2] is None else now[2] - (before[2] or 0)
            since = now[0] - before[0], now[1] - before[1], deliveries
            done = (
                (deliveries or 0) >= counts.confirmed if is_fan_out else since[0] + since[1] >= counts.offered
            )
            if done or time.monotonic() > give_up:
                return since
            time.sleep(0.02)

    def judge(self, result: Result, opened: Opened, measured: Measured, *, saturating: bool) -> None:
        """Adds the figures of an activity, and the verdict over it."""
        counts = measured.counts
        failed = opened.attempted - opened.connected + sum(counts.broken.values())
        refused = measured.counters[1] if measured.counters and counts.offered else None
        told = sum(counts.errors.values())
        if refused is None and told and counts.offered:
            refused = told
        confirmed = max(0, counts.confirmed - (refused or 0))
        delivered = measured.counters[0] if measured.counters and counts.offered else None
        limit = measured.bottleneck()
        windows = counts.whole_windows()
        verdict, notes = _lab.lab_verdict(
            measured.sends,
            counts.offered,
            confirmed,
            delivered,
            refused,
            opened.attempted,
            failed,
            counts.pings,
            counts.pongs_lost,
            limit,
            saturating,
            windows,
        )
        duration = counts.duration_s
        result.update(failed=failed, duration_s=duration, bottleneck=limit, verdict=verdict)
        if counts.offered:
            lost = max(0, counts.offered - confirmed - (refused or 0))
            messages = {"offered": counts.offered, "confirmed": confirmed, "lost": lost}
            result["messages"] = with_known(messages, delivered=delivered, refused=refused)
            counted = min(confirmed, confirmed if delivered is None else delivered)
            if counted and duration > 0:
                result["rate_per_s"] = counted / duration
            if not refused:
                result["rate_series"] = counts.per_second()
        planned = len(counts.latencies_sent) > 0
        result.update(with_known({}, latency_us=summary(counts.latencies, "intended" if planned else "sent")))
        result.update(with_known({}, latency_other_us=summary(counts.latencies_sent, "sent")))
        result.update(measured.usage(counts.cpu_s))
        result["notes"] += notes
        self._add_notes(result, measured)

    def _add_notes(self, result: Result, measured: Measured) -> None:
        counts, notes = measured.counts, result["notes"]
        if counts.broken:
            notes.append(f"Connections that broke during the test: {in_words(counts.broken)}.")
        if counts.wrong:
            notes.append(f"{counts.wrong} messages came with another content than expected.")
            result["verdict"] = "failed"
        for code, number in counts.errors.items():
            notes.append(f"The server refused {number} messages with {code}.")
            if code != "RATE_LIMITED":
                result["verdict"] = "failed"
        if measured.counters_error:
            notes.append(f"The server's counters could not be compared: {measured.counters_error}.")
            result["verdict"] = "failed"

    def idle_memory(self, rss_bytes: int, connections: int) -> dict[str, Any]:
        """The server's memory with connections that have said little."""
        memory: dict[str, Any] = {"server_rss_bytes": rss_bytes}
        theirs = not self.server.is_loaded and connections >= max(1, self.server.connected_most)
        if theirs and self.server.rss_bytes_empty is not None:
            memory["per_connection_bytes"] = max(0, rss_bytes - self.server.rss_bytes_empty) / connections
        return memory

    def done(self, result: Result) -> None:
        """Keeps a result and shows it."""
        self.results.append(result)
        rate = f"{result['rate_per_s']:,.0f}/s, " if "rate_per_s" in result else ""
        latency = f"p50 {result['latency_us']['p50']:,.0f} µs, " if "latency_us" in result else ""
        self.say(f"  {result['connections']} connections: {rate}{latency}{result['verdict']}")


@dataclass
class Measured:
    """An activity and what the server says about it."""

    counts: Counts
    before: processes.Sample | None
    after: processes.Sample | None
    sends: bool = False
    counters: Counters | None = None
    counters_error: str | None = None

    def bottleneck(self) -> str:
        """Which side was the limit."""
        counts = self.counts
        return limit(counts.busiest_s, counts.cpu_s, self.before, self.after, counts.duration_s)

    def usage(self, client_s: float) -> Result:
        """Processor time and memory, as a result has them."""
        used: Result = {"cpu": {"client_s": client_s}}
        if self.before and self.after:
            used["cpu"]["server_s"] = max(0.0, self.after.cpu_s - self.before.cpu_s)
            used["memory"] = {"server_rss_bytes": self.after.rss_bytes}
        return used


def limit(
    busiest_s: float,
    client_s: float,
    before: processes.Sample | None,
    after: processes.Sample | None,
    duration_s: float,
) -> str:
    """Which side was the limit: its busiest thread had no time left."""
    server_busiest = server_s = None
    if before and after:
        server_busiest, server_s = after.busiest_since(before), after.cpu_s - before.cpu_s
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return _lab.lab_bottleneck(busiest_s, server_busiest, client_s + (server_s or 0.0), duration_s, cores)


def summary(latencies: array[int], origin: Origin) -> dict[str, Any] | None:
    """A distribution as a report has it."""
    recorder = _lab.LatencyRecorder()
    recorder.record(latencies.tobytes())
    text = recorder.summary(origin)
    return None if text is None else json.loads(text)


def deviation(series: list[float]) -> str | None:
    """How steady a rate was, in words."""
    if len(series) < 2:
        return None
    mean = statistics.fmean(series)
    percent = 100 * statistics.stdev(series) / mean if mean else 0.0
    return (
        f"Second by second: mean {mean:,.0f}, lowest {min(series):,.0f}, highest {max(series):,.0f}, "
        f"standard deviation {percent:.1f} %."
    )


def with_known(result: Result, **fields: Any) -> Result:
    """The fields that are not `None`, added."""
    result.update({name: value for name, value in fields.items() if value is not None})
    return result


def in_words(reasons: dict[str, int]) -> str:
    """Reasons and how often each, the most frequent first."""
    ranked = sorted(reasons.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{number} times {reason}" for reason, number in ranked[:5])
