"""The tests."""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Callable
from typing import Any

from tidewire import _lab

from . import plan
from .account import Opened
from .activities import Activity
from .fleet import Fleet
from .measure import (
    SHARE_MEANINGFUL_S,
    Bench,
    Measured,
    Moment,
    Result,
    conclude,
    deviation,
    in_words,
    summary,
    usage_of,
    with_known,
)
from .payload import TRADE_BYTES
from .processes import Sample

SIZES = (64, 256, 1024, 4096, 16_384, 65_536)
#: Not zlib: the client compresses no messages that are as short as these.
FORMATS = ("json", "msgpack")
FAN_OUT_BYTES = 95
FAN_OUT_BYTES_MIN = 80
#: Publications in flight hold at most this.
FAN_OUT_AHEAD_BYTES = 64 * 1024
#: From this many subscribers on there is a run at a fixed rate too.
FAN_OUT_RATES = ((10_000, 20.0), (1_000, 100.0))


def run_test(bench: Bench, test: str, connections: int) -> None:
    """Runs one test with so many connections and keeps its results."""
    bench.say(f"{test}, {connections} connections")
    if test not in (plan.CONNECTION_STORM, plan.SUSTAINED_HOLD, plan.CONNECT_LATENCY, plan.RAPID_RECONNECT):
        bench.server.is_loaded = True
    CASES[test](bench, connections)
    bench.fleet.close()


def connection_storm(bench: Bench, connections: int) -> None:
    """How many connections a second the server makes ready, that live to the end of the test."""
    before, started = bench.server.sample(), Moment.now(bench.fleet.pids)
    opened = bench.open(connections)
    after, ended = bench.server.sample(), Moment.now(bench.fleet.pids)
    held = bench.survive()
    measured = OpenedFigures(opened, before, after, started, ended)
    result = measured.result(bench, plan.CONNECTION_STORM, connections, broken=sum(held.broken.values()))
    if held.broken:
        words = in_words(held.broken)
        result["notes"].append(f"Connections that broke after they had become ready: {words}.")
    with_all_open = bench.server.sample()
    if with_all_open is not None:
        result["memory"] = bench.idle_memory(with_all_open.rss_bytes, result["connected"])
    bench.done(result)


def connect_latency(bench: Bench, connections: int) -> None:
    """From connect to ready, one connection after another in one process."""
    before, started = bench.server.sample(), Moment.now(bench.fleet.pids)
    opened = bench.fleet.reconnect(1, rounds=bench.plan.rounds)
    measured = OpenedFigures(opened, before, bench.server.sample(), started, Moment.now(bench.fleet.pids))
    result = measured.result(bench, plan.CONNECT_LATENCY, 1, saturates=False)
    result["notes"].append(f"{opened.attempted} rounds, one connection at a time.")
    bench.done(result)


def rapid_reconnect(bench: Bench, connections: int) -> None:
    """Connect, authenticate, disconnect, again and again."""
    before, started = bench.server.sample(), Moment.now(bench.fleet.pids)
    opened = bench.fleet.reconnect(connections, duration_s=bench.plan.duration_s)
    measured = OpenedFigures(opened, before, bench.server.sample(), started, Moment.now(bench.fleet.pids))
    result = measured.result(bench, plan.RAPID_RECONNECT, connections)
    result["notes"].append(f"{opened.attempted} connections, {connections} at once.")
    bench.done(result)


@dataclasses.dataclass
class OpenedFigures:
    """Connections that were opened, and what both sides had of the processor meanwhile."""

    opened: Opened
    before: Sample | None
    after: Sample | None
    started: Moment
    ended: Moment

    def result(
        self, bench: Bench, test: str, connections: int, *, saturates: bool = True, broken: int = 0
    ) -> Result:
        """The result of a test that opens connections, of which some broke after they had been opened."""
        opened = self.opened
        living = opened.connected - broken
        bench.server_name = bench.server_name or opened.server
        result = bench.result(test, connections, opened)
        result.update(connected=living, failed=opened.attempted - living)
        if test != plan.CONNECTION_STORM:
            # This many were open one after another.
            del result["connected"]
        duration = opened.ended - opened.began
        result["duration_s"] = duration
        if living > 0 and duration > 0:
            result["rate_per_s"] = living / duration
        with_known(result, latency_us=summary(opened.latencies, "sent"))
        is_long = duration >= SHARE_MEANINGFUL_S
        server_s = busiest_s = None
        if self.before and self.after:
            result["memory"] = {"server_rss_bytes": self.after.rss_bytes}
            server_s = self.after.cpu_s - self.before.cpu_s
            busiest_s = self.after.busiest_since(self.before)
        usage = usage_of(
            opened, duration, self.ended.cores, bench.server, server_s if is_long else None, busiest_s
        )
        on_shared = server_s or 0.0 if usage["shared_cores"] else 0.0
        evidence = {
            "aim": "saturate" if saturates and is_long else "keep",
            "account": {
                "connections_attempted": opened.attempted,
                "connections_failed": result["failed"],
            },
            "generator": self.ended.health(self.started, opened.waited_s, opened.busiest_s, on_shared),
            "usage": usage,
        }
        conclude(result, evidence, opened.cpu_s)
        return result


def ping_latency(bench: Bench, connections: int) -> None:
    """Round trips of pings from all connections at once."""
    opened = bench.open(connections)
    measured = bench.measure(Activity("ping", 0.0, 0.0, pings=bench.plan.pings))
    result = bench.result(plan.PING_LATENCY, connections, opened)
    bench.judge(result, opened, measured, aim="round_trips")
    show_round_trips(result, measured)
    bench.done(result)


def show_round_trips(result: Result, measured: Measured) -> None:
    """The rate of a test whose pings are its measurement."""
    counts = measured.counts
    if counts.latencies and measured.duration_s > 0:
        result["rate_per_s"] = len(counts.latencies) / measured.duration_s
    if series := counts.per_second():
        result["rate_series"] = series


def throughput(bench: Bench, connections: int) -> None:
    """Messages as fast as the server takes them."""
    opened = bench.open(connections)
    send(bench, plan.THROUGHPUT, connections, opened, TRADE_BYTES, bench.plan.duration_s)


def sustained_throughput(bench: Bench, connections: int) -> None:
    """The same for longer, with the rate of each second."""
    opened = bench.open(connections)
    result = send(
        bench, plan.SUSTAINED_THROUGHPUT, connections, opened, TRADE_BYTES, bench.plan.sustained_s, last=False
    )
    if words := deviation(result.get("rate_series", [])):
        result["notes"].append(words)
    bench.done(result)


def size_matrix(bench: Bench, connections: int) -> None:
    """Messages of several sizes, all on the same connections."""
    opened = bench.open(connections)
    for size in bench.plan.payload_bytes or SIZES:
        send(bench, plan.SIZE_MATRIX, connections, opened, size, bench.plan.duration_s)


def format_comparison(bench: Bench, connections: int) -> None:
    """The same message as JSON and as MessagePack: each with processes and connections of its own."""
    json_rate: float | None = None
    for form in FORMATS:
        target = dataclasses.replace(bench.target, format=form)
        own = dataclasses.replace(bench, target=target, fleet=Fleet(target, bench.plan.processes))
        try:
            opened = own.open(connections)
            result = send(
                own,
                plan.FORMAT_COMPARISON,
                connections,
                opened,
                TRADE_BYTES,
                bench.plan.duration_s,
                last=False,
            )
        finally:
            own.fleet.stop()
        rate = result.get("rate_per_s")
        json_rate = json_rate or rate
        if rate and json_rate:
            result["ratio_to_json"] = rate / json_rate
        bench.done(result)


def send(
    bench: Bench,
    test: str,
    connections: int,
    opened: Opened,
    size: int,
    duration_s: float,
    *,
    last: bool = True,
) -> Result:
    """One measurement of messages that nobody answers."""
    asked = bench.plan
    kind = "send" if asked.rate_per_s is None else "paced"
    activity = Activity(
        kind,
        0.0,
        duration_s,
        size=size,
        several_trades=asked.several_trades,
        rate_per_s=asked.rate_per_s,
        poisson=asked.poisson,
        seed=asked.seed,
    )
    measured = bench.measure(activity)
    result = bench.result(test, connections, opened)
    bench.judge(result, opened, measured, aim="saturate" if kind == "send" else "keep")
    describe(bench, result, size)
    if last:
        bench.done(result)
    return result


def describe(bench: Bench, result: Result, size: int) -> None:
    """Adds what the messages were."""
    result["format"] = bench.target.format
    result["payload_bytes"] = size
    if "rate_per_s" in result:
        result["bytes_per_s"] = result["rate_per_s"] * size


def echo(bench: Bench, connections: int) -> None:
    """Requests and answers, with some messages in flight."""
    asked = bench.plan
    opened = bench.open(connections)
    for size in asked.payload_bytes or (TRADE_BYTES,):
        activity = Activity(
            "echo" if asked.rate_per_s is None else "paced-echo",
            0.0,
            asked.duration_s,
            size=size,
            several_trades=asked.several_trades,
            rate_per_s=asked.rate_per_s,
            poisson=asked.poisson,
            in_flight=asked.in_flight or 64,
            seed=asked.seed,
        )
        measured = bench.measure(activity)
        result = bench.result(plan.ECHO, connections, opened)
        bench.judge(result, opened, measured, aim="saturate" if asked.rate_per_s is None else "keep")
        describe(bench, result, size)
        bench.done(result)


def sustained_hold(bench: Bench, connections: int) -> None:
    """Connections held for a while, with a slow ping on each."""
    opened = bench.open(connections)
    before = bench.server.sample()
    measured = bench.measure(
        Activity("hold", 0.0, bench.plan.hold_s, every_s=bench.plan.hold_ping_every_s, seed=bench.plan.seed)
    )
    result = bench.result(plan.SUSTAINED_HOLD, connections, opened)
    bench.judge(result, opened, measured, aim="keep")
    show_round_trips(result, measured)
    survived = max(0, measured.counts.members - sum(measured.counts.broken.values()))
    percent = 100.0 * survived / max(1, opened.connected)
    result["survival"] = {"survived": survived, "percent": percent}
    if before and measured.after:
        memory = bench.idle_memory(measured.after.rss_bytes, max(1, measured.counts.members))
        result["memory"] = {**memory, "drift_bytes": measured.after.rss_bytes - before.rss_bytes}
    bench.done(result)


def connection_limit(bench: Bench, connections: int) -> None:
    """Doubles until it fails, then bisects: the largest number that was opened without a failure."""
    most = bench.plan.connections_max
    room = _lab.lab_connections_room()
    stopped_by = "plan" if most <= room else "open_files"
    most = min(most, room)
    stable, failing, wanted = 0, most + 1, min(connections, most)
    words: list[str] = []
    attempted = duration = 0.0
    while wanted > stable:
        began = bench.open(wanted)
        held = bench.survive() if began.connected == wanted else None
        alive = held is not None and not held.broken and not held.pongs_lost
        bench.fleet.close()
        attempted += 1
        bench.say(f"  {wanted}: {'stable' if alive else 'failed'}")
        if alive:
            stable, duration = wanted, began.ended - began.began
        else:
            failing = wanted
            stopped_by = stopping(began)
            words.append(", ".join(began.failures) or "connections broke after they were opened")
        wanted = min(stable * 2, most) if failing > most else (stable + failing) // 2
        if failing <= most and failing - stable <= max(1, stable // 50):
            break
    result: Result = {
        "test": plan.CONNECTION_LIMIT,
        "connections": stable,
        "limit": {"largest_stable": stable, "stopped_by": stopped_by},
        "bottleneck": "none",
        "verdict": "valid" if stable else "failed",
        "notes": [f"The next number failed: {words[-1]}."] if words else [],
    }
    if stable:
        result["duration_s"] = duration
    bench.done(result)


def stopping(opened: Opened) -> str:
    """The reasons that stopped the search, as connections gave them."""
    text = " ".join(opened.failures).lower()
    if "too many open files" in text or "emfile" in text:
        return "open_files"
    if "cannot assign requested address" in text:
        return "ports"
    return "memory" if "memory" in text else "server"


def fan_out(bench: Bench, connections: int) -> None:
    """One publisher, many subscribers of one topic: at full speed, and with many also at a fixed rate."""
    asked = bench.plan
    rates: list[float | None] = [asked.rate_per_s]
    if asked.rate_per_s is None:
        rates += [rate for least, rate in FAN_OUT_RATES if connections >= least][:1]
    opened = bench.open(connections + 1)
    bench.fleet.subscribe()
    for size in asked.payload_bytes or (FAN_OUT_BYTES,):
        for rate in rates:
            published(bench, connections, opened, max(size, FAN_OUT_BYTES_MIN), rate)


def published(bench: Bench, connections: int, opened: Opened, size: int, rate: float | None) -> None:
    """One measurement of a fan-out."""
    asked = bench.plan
    in_flight = asked.in_flight or max(1, FAN_OUT_AHEAD_BYTES // size)
    activity = Activity(
        "fan-out",
        0.0,
        asked.duration_s,
        size=size,
        rate_per_s=rate,
        poisson=asked.poisson,
        in_flight=in_flight,
        seed=asked.seed,
    )
    measured = bench.measure(activity)
    counts = measured.counts
    counts.offered = counts.publications * counts.members
    if measured.counters is not None and measured.counters[2] is not None:
        measured.counters = measured.counters[2], {}, measured.counters[2]
    else:
        measured.counters = None
    result = bench.result(plan.FAN_OUT, connections, opened)
    bench.judge(result, opened, measured, aim="saturate" if rate is None else "keep")
    if "messages" in result:
        result["messages"].pop("refused", None)
    skews = [last - first for first, last in counts.received.values()]
    found: dict[str, Any] = {
        "publications": counts.publications,
        "gaps": counts.gaps,
        "duplicates": counts.duplicates,
        "wrong": counts.wrong,
    }
    if rate is None:
        found["in_flight"] = in_flight
    else:
        found["publications_per_s"] = rate
    if connections > 1:
        with_known(found, skew_us=summary(array("Q", skews), "first_received"))
    result["fan_out"] = found
    describe(bench, result, size)
    bench.done(result)


CASES: dict[str, Callable[[Bench, int], None]] = {
    plan.CONNECTION_STORM: connection_storm,
    plan.CONNECT_LATENCY: connect_latency,
    plan.RAPID_RECONNECT: rapid_reconnect,
    plan.PING_LATENCY: ping_latency,
    plan.THROUGHPUT: throughput,
    plan.SUSTAINED_THROUGHPUT: sustained_throughput,
    plan.SIZE_MATRIX: size_matrix,
    plan.FORMAT_COMPARISON: format_comparison,
    plan.SUSTAINED_HOLD: sustained_hold,
    plan.CONNECTION_LIMIT: connection_limit,
    plan.FAN_OUT: fan_out,
    plan.ECHO: echo,
}
