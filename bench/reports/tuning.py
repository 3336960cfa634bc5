"""What each setting of the system changes here: the same load with two values of it, in turns."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from reports import lab
from reports.sections import of
from reports.table import Column, Table, figure

ROUNDS = 3


@contextlib.contextmanager
def sysctl(name: str, value: str) -> Iterator[None]:
    """The setting of the kernel for the time of the block; needs root."""
    path = pathlib.Path("/proc/sys", name.replace(".", "/"))
    before = path.read_text()
    path.write_text(value)
    try:
        yield
    finally:
        path.write_text(before)


@contextlib.contextmanager
def open_files(_: str, value: str) -> Iterator[list[str]]:
    """Words before the command that set its limit. A process cannot raise its own hard limit again, so this one keeps its own."""
    yield ["prlimit", f"--nofile={value}:{value}"]


@contextlib.contextmanager
def cores(_: str, value: str) -> Iterator[None]:
    """`1` leaves the program and its server one core, as a container with such a limit does."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[: int(value)])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@dataclass
class Setting:
    """A setting with two values, and a load that shows its effect."""

    id: str
    name: str
    how: Callable[[str, str], Any]
    low: str
    high: str
    load: list[Any]
    # The figure that it changes, and its unit.
    figure: str = "rate"
    unit: str = "per_s"


STORM = ["--test", "connection-storm", "--connections", 10_000, "--handshakes-in-flight", 4096]
LIMIT = ["--test", "connection-limit", "--connections-max", 9_000]
RECONNECT = ["--test", "rapid-reconnect", "--connections", 100, "--cycles", 400]
LARGE = ["--test", "size-matrix", "--payload-bytes", 65_536, "--connections", 1_000]
SETTINGS = [
    Setting("open files", "open files (`ulimit -n`)", open_files, "1024", "20000", LIMIT, "largest", "count"),
    *(
        Setting(name, name, sysctl, low, high, load)
        for name, low, high, load in [
            ("net.core.somaxconn", "128", "4096", STORM),
            ("net.ipv4.tcp_max_syn_backlog", "128", "2048", STORM),
            ("net.ipv4.tcp_tw_reuse", "0", "1", RECONNECT),
            ("net.ipv4.ip_local_port_range", "32768 36000", "1024 65000", [*STORM[:3], 9_000]),
            ("net.ipv4.tcp_rmem", "4096 8192 33554432", "4096 131072 33554432", LARGE),
        ]
    ),
    Setting(
        "cores",
        "cores of the server and the generator",
        cores,
        "1",
        "2",
        ["--test", "throughput", "--connections", 100],
    ),
]


def tables(quick: bool) -> list[Table]:
    columns = [
        Column("setting", "Setting"), Column("load", "Load"), Column("low", "Low value"), Column("with_low", "Result"),
        Column("high", "High value"), Column("with_high", "Result"), Column("change", "High to low", "ratio"),
        Column("failed", "Failed with low / high"),
    ]  # fmt: skip
    table = Table("settings", "Each setting alone", "Everything else is as on this machine.", columns)
    for setting in SETTINGS:
        table.rows[setting.id] = row(setting, 1 if quick else ROUNDS)
    return [table]


def row(setting: Setting, rounds: int) -> dict[str, Any]:
    found: dict[str, list[dict[str, float]]] = {setting.low: [], setting.high: []}
    for _ in range(rounds):
        for value, runs in found.items():
            with setting.how(setting.id, value) as prefix:
                runs.append(measured(setting.load, prefix or []))
    low, high = (of(setting.unit, (run[setting.figure] for run in runs)) for runs in found.values())
    cells = {
        "setting": setting.name, "load": setting.load[1],
        "low": setting.low, "with_low": low, "high": setting.high, "with_high": high,
        "change": figure(high["value"] / low["value"] if low["value"] else None),
        "failed": " / ".join(f"{sum(run['failed'] for run in runs):,.0f}" for runs in found.values()),
    }  # fmt: skip
    return {name: cell for name, cell in cells.items() if cell is not None}


def measured(load: list[Any], prefix: list[str]) -> dict[str, float]:
    (result,) = lab.run(*load, "--duration-s", 1, prefix=prefix)["results"]
    cells = lab.row(result)
    return {name: cells.get(name, {"value": 0.0})["value"] for name in ("rate", "largest", "failed")}
