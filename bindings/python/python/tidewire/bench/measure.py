"""Shared parts of all tests: a server that is watched, and results that are assessed as the lab does."""

from __future__ import annotations

import json
import os
import statistics
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
#: Delivered, refused by reason, deliveries.
Counters = tuple[int, dict[str, int], "int | None"]
Origin = Literal["sent", "intended", "first_received"]
Aim = Literal["saturate", "round_trips", "keep"]

#: Ticks of 10 ms say nothing about a test that is over in a few of them.
SHARE_MEANINGFUL_S = 0.2
COUNTERS_SETTLE_S = 2.0
#: How long new connections are held before they are asked whether they live.
SETTLE_S = 0.25
#: The reason of refusals that a plan may provoke on purpose.
RATE_LIMIT = "rate"


@dataclass
class Server:
    """The server under load, as far as it can be seen."""

    #: The processes that listen; those that they have started count with them.
    roots: list[int]
    counters_at: tuple[str, int] | None
    rss_bytes_empty: int | None = None
    is_loaded: bool = False
    connected_most: int = 0

    @property
    def pids(self) -> list[int]:
        """All of its processes."""
        tree = set(_lab.lab_tree(self.roots))
        # A server that has started the bench is not loaded by itself.
        return sorted(tree - set(_lab.lab_tree([os.getpid()])) if os.getpid() in tree else tree)

    def sample(self) -> processes.Sample | None:
        """The processor time that it has used."""
        return processes.sample(self.pids) if self.roots else None

    def cores(self) -> frozenset[int]:
        """The cores that it may run on."""
        return frozenset(core for pid in self.pids for core in _lab.lab_cores(pid))

    def counters(self) -> Counters | None:
        """The counters of the server; `None` if it has no counters that can be read."""
        if self.counters_at is None:
            return None
        return _lab.lab_counters(*self.counters_at)


@dataclass(frozen=True)
class Moment:
    """The state of the generator's cores at one moment."""

    cores: frozenset[int]
    busy_s: float | None
    own_s: float

    @classmethod
    def now(cls, pids: list[int]) -> Moment:
        """Now, for a generator of these processes."""
        cores = frozenset(_lab.lab_cores(os.getpid()))
        usage = _lab.lab_usage([os.getpid(), *pids])
        return cls(cores, processes.cores_busy(cores), usage[0] if usage else 0.0)

    def health(self, before: Moment, waited_s: float, busiest_s: float, server_s: float) -> dict[str, Any]:
        """Whether the generator had the processor since then: other programs on its cores make it wait."""
        health: dict[str, Any] = {"stopped_s": 0.0, "waited_s": waited_s}
        if self.busy_s is not None and before.busy_s is not None:
            own_s = self.own_s - before.own_s
            others_s = max(0.0, self.busy_s - before.busy_s - own_s - server_s)
            rivals_s = others_s + server_s + max(0.0, own_s - busiest_s)
            health["waited_for_others_s"] = waited_s * others_s / rivals_s if rivals_s > 0 else 0.0
        return health


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
        started = Moment.now(self.fleet.pids)
        counts = self.fleet.run(activity)
        ended = Moment.now(self.fleet.pids)
        after = self.server.sample()
        measured = Measured(counts, before, after, activity=activity)
        measured.look_at_both(self.server, started, ended)
        if counted is not None:
            try:
                measured.counters = self._settled(counted, counts, is_fan_out=activity.kind == "fan-out")
            except TidewireError as error:
                measured.counters_error = str(error)
        return measured

    def survive(self) -> Counts:
        """Holds the connections for a moment and asks each whether it lives."""
        return self.fleet.run(Activity("survive", 0.0, SETTLE_S))

    def _settled(self, before: Counters, counts: Counts, *, is_fan_out: bool) -> Counters:
        """The counts since then, once the server has added up the counts of its threads."""
        give_up = time.monotonic() + COUNTERS_SETTLE_S
        while True:
            now = self.server.counters()
            assert now is not None
            deliveries = None if now[2] is None else now[2] - (before[2] or 0)
            refused = {reason: number - before[1].get(reason, 0) for reason, number in now[1].items()}
            since = now[0] - before[0], refused, deliveries
            accounted = since[0] + sum(refused.values())
            done = (deliveries or 0) >= counts.confirmed if is_fan_out else accounted >= counts.offered
            if done or time.monotonic() > give_up:
                return since
            time.sleep(0.02)

    def judge(self, result: Result, opened: Opened, measured: Measured, *, aim: Aim) -> None:
        """Adds the figures of an activity, and the verdict over it."""
        counts, activity = measured.counts, measured.activity
        account = measured.account(opened)
        lost = max(0, account["offered"] - account["confirmed"] - (account["refused"] or 0))
        replies = {
            kind: counts.replies[kind] for kind in ("wrong", "missing", "doubled", "reordered", "unsent")
        }
        # Those that were refused were passed over, too.
        replies["missing"] = min(replies["missing"], lost)
        result.update(failed=account["connections_failed"], duration_s=measured.duration_s)
        refused_by = measured.refused_by()
        if counts.offered:
            messages = {"offered": counts.offered, "confirmed": account["confirmed"], "lost": lost}
            refused, delivered = account["refused"], account["delivered"]
            result["messages"] = with_known(messages, delivered=delivered, refused=refused)
            counted = min(account["confirmed"], account["confirmed"] if delivered is None else delivered)
            if counted and (rate_s := measured.rate_s()) > 0:
                result["rate_per_s"] = counted / rate_s
            if not refused:
                result["rate_series"] = counts.per_second()
            if refused_by:
                result["refused_by"] = refused_by
        if activity.answered:
            result["replies"] = replies
        if activity.kind != "survive":
            result["confirmed_by"] = measured.confirmed_by()
        planned = activity.rate_per_s is not None
        latency = summary(counts.latencies, "intended" if planned else "sent")
        result.update(with_known({}, latency_us=latency))
        result.update(with_known({}, latency_other_us=summary(counts.latencies_sent, "sent")))
        result.update(measured.memory())
        evidence = {
            "aim": aim,
            "account": account,
            "replies": replies,
            "deliveries": measured.deliveries(),
            "refused_by": refused_by,
            "counters_error": measured.counters_error,
            "pace": measured.pace(),
            "generator": measured.health,
            "usage": measured.usage,
            "windows": counts.whole_windows(),
            "latency_p99_us": latency["p99"] if latency else None,
        }
        if activity.sends:
            result["pace"] = measured.written_pace()
        conclude(result, evidence, counts.cpu_s)
        if counts.broken:
            result["notes"].append(f"Connections that broke during the test: {in_words(counts.broken)}.")

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


def conclude(result: Result, evidence: dict[str, Any], cpu_s: float) -> None:
    """Adds the verdict, and what it rests on."""
    judged = _lab.lab_judge(json.dumps(evidence))
    verdict, doubts, notes, limit, client_share, server_share, offered_per_s = judged
    result.update(verdict=verdict, bottleneck=limit, generator=evidence["generator"])
    if doubts:
        result["doubts"] = doubts
    usage = evidence["usage"]
    server = usage["server"] or {}
    result["cpu"] = with_known(
        {"client_s": cpu_s, "client_share": client_share, "client_cores": usage["client"]["cores"]},
        server_s=server.get("total_s"),
        server_share=server_share,
        server_cores=server.get("cores"),
        shared_cores=usage["shared_cores"] or None,
    )
    account = evidence["account"]
    if sent := account.get("pings_sent"):
        result["pings"] = {"sent": sent, "lost": account["pongs_lost"], "strange": 0}
    if "pace" in result and offered_per_s is not None:
        result["pace"]["offered_per_s"] = offered_per_s
    result["notes"] += notes


@dataclass
class Measured:
    """An activity and what the server says about it."""

    counts: Counts
    before: processes.Sample | None
    after: processes.Sample | None
    activity: Activity
    counters: Counters | None = None
    counters_error: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    health: dict[str, Any] = field(default_factory=dict)

    @property
    def duration_s(self) -> float:
        """From the start to the end of the sending or to the last counted event, whichever is later."""
        timed = 0.0 if self.activity.kind == "ping" else self.activity.duration_s
        return max(timed, self.counts.duration_s)

    def rate_s(self) -> float:
        """The seconds that a rate is over: at a given rate one interval for each message at the least."""
        counts, rate = self.counts, self.activity.rate_per_s
        if rate is None:
            return self.duration_s
        sent = counts.publications if self.activity.kind == "fan-out" else counts.offered
        intervals = 1 if self.activity.poisson else sent
        each = counts.answered or self.activity.kind == "fan-out"
        confirming = counts.ended - counts.first_confirmed + 1 / rate if each else counts.duration_s
        return max(self.activity.duration_s, intervals / rate, confirming)

    def account(self, opened: Opened) -> dict[str, Any]:
        """The counts of both sides."""
        counts = self.counts
        failed = opened.attempted - opened.connected + sum(counts.broken.values())
        told = sum(counts.errors.values()) if counts.offered else 0
        refused = sum(self.counters[1].values()) if self.counters and counts.offered else told or None
        # A pong proves that refused messages were read as well; a reply says nothing of a refused one.
        unread = 0 if counts.answered else refused or 0
        return {
            "sends": self.activity.sends,
            "offered": counts.offered,
            "confirmed": max(0, counts.confirmed - unread),
            "delivered": self.counters[0] if self.counters and counts.offered else None,
            "refused": refused,
            "connections_attempted": opened.attempted,
            "connections_failed": failed,
            "pings_sent": counts.pings,
            "pongs_lost": counts.pongs_lost,
        }

    def refused_by(self) -> dict[str, int]:
        """Messages refused, by the names of the server's counters and by its error codes."""
        counts = self.counts
        if not counts.offered or self.activity.kind == "fan-out":
            return {}
        limited = counts.errors["RATE_LIMITED"]
        found = dict(self.counters[1]) if self.counters else {RATE_LIMIT: limited}
        found.update({code: number for code, number in counts.errors.items() if code != "RATE_LIMITED"})
        return {reason: number for reason, number in found.items() if number > 0}

    def confirmed_by(self) -> list[str]:
        """The side that confirms."""
        each = self.counts.answered or self.activity.kind == "fan-out"
        counted = self.activity.sends and self.counters is not None
        return ["reply" if each else "pong", *(["counters"] if counted else [])]

    def deliveries(self) -> dict[str, Any]:
        """The faults of the deliveries of a fan-out."""
        counts = self.counts
        return {
            "gaps": counts.gaps,
            "duplicates": counts.duplicates,
            "wrong": counts.wrong,
            "unheard": counts.publications > 0 and counts.confirmed == 0,
        }

    def pace(self) -> dict[str, Any] | None:
        """How a given rate was kept."""
        counts, activity = self.counts, self.activity
        if activity.rate_per_s is None:
            return None
        sent = counts.publications if activity.kind == "fan-out" else counts.offered
        offered_s = max(0.0, counts.offered_at - counts.began)
        return {
            "planned_per_s": activity.rate_per_s,
            "poisson": activity.poisson,
            "planned": counts.planned,
            # The client takes a message when it has room for it, so that one that waits was not handed on.
            "released": sent,
            "offered": sent,
            "window_s": activity.duration_s,
            "released_s": offered_s,
            "offered_s": offered_s,
        }

    def written_pace(self) -> dict[str, Any]:
        """How the messages were paced, as a report has it."""
        activity = self.activity
        if activity.rate_per_s is not None:
            return {"loop": "open", "planned_per_s": activity.rate_per_s, "poisson": activity.poisson}
        with_window = activity.answered or activity.kind == "fan-out"
        return with_known({"loop": "closed"}, in_flight=activity.in_flight if with_window else None)

    def look_at_both(self, server: Server, started: Moment, ended: Moment) -> None:
        """Notes what both sides have had of the processor."""
        counts = self.counts
        server_s = since = None
        if self.before and self.after:
            server_s, since = self.after.cpu_s - self.before.cpu_s, self.after.busiest_since(self.before)
        self.usage = usage_of(counts, self.duration_s, ended.cores, server, server_s, since)
        shared = self.usage["shared_cores"] / max(1.0, (self.usage["server"] or {}).get("cores", 1.0))
        on_shared = max(0.0, (server_s or 0.0) * shared)
        self.health = ended.health(started, counts.waited_s, counts.busiest_s, on_shared)
        if counts.late:
            self.health["late_us"] = lateness(counts.late)

    def memory(self) -> Result:
        """Memory of the server, as a result has it."""
        return {"memory": {"server_rss_bytes": self.after.rss_bytes}} if self.before and self.after else {}


def usage_of(
    counts: Counts | Opened,
    duration_s: float,
    cores: frozenset[int],
    server: Server,
    server_s: float | None,
    busiest_s: float | None,
) -> dict[str, Any]:
    """Processor time of both sides, as the lab judges it."""
    used = {
        "duration_s": duration_s,
        "client": {"busiest_s": counts.busiest_s, "total_s": counts.cpu_s, "cores": float(len(cores))},
        "server": None,
        "shared_cores": 0.0,
    }
    if server_s is not None:
        theirs = server.cores()
        used["server"] = {
            "busiest_s": max(0.0, busiest_s or 0.0),
            "total_s": max(0.0, server_s),
            "cores": float(len(theirs)),
        }
        used["shared_cores"] = float(len(cores & theirs))
    return used


def lateness(late: array[int]) -> dict[str, Any]:
    """How late messages left, as a report has it."""
    found = summary(late, "intended") or {}
    return {name: found[name] for name in ("p50", "p99", "p99_9", "max", "count")}


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
