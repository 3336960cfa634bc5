"""What each setting of the system changes here: the same load with two values of it, in turns."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

from reports import lab
from reports.table import Column, Table, of_runs

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
    """Of the program alone: a limit that was lowered cannot be raised again. It raises its soft limit to the hard one by itself."""
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


STORM = ["--test", "connection-storm", "--connections", 10_000, "--handshakes-in-flight", 4096]
# Setting, how it is set, two values, the load, the figure that it changes.
Setting = tuple[str, Callable[[str, str], Any], tuple[str, str], list[Any], str]
SETTINGS: list[Setting] = [
    ("open files (`ulimit -n`)", open_files, ("1024", "20000"), ["--test", "connection-limit", "--connections-max", 9_000], "largest"),
    ("net.core.somaxconn", sysctl, ("128", "4096"), STORM, "rate"),
    ("net.ipv4.tcp_max_syn_backlog", sysctl, ("128", "2048"), STORM, "rate"),
    ("net.ipv4.tcp_tw_reuse", sysctl, ("0", "1"), ["--test", "rapid-reconnect", "--connections", 100, "--cycles", 400], "rate"),
    (
        "net.ipv4.ip_local_port_range", sysctl, ("32768\t36000", "1024\t65000"),
        ["--test", "connection-storm", "--connections", 9_000], "rate",
    ),
    (
        "net.ipv4.tcp_rmem, default", sysctl, ("4096 8192 33554432", "4096 131072 33554432"),
        ["--test", "size-matrix", "--payload-bytes", 65_536, "--connections", 1_000], "rate",
    ),
    ("cores of the server and the generator", cores, ("1", "2"), ["--test", "throughput", "--connections", 100], "rate"),
]  # fmt: skip
NAMES = {"net.ipv4.tcp_rmem, default": "net.ipv4.tcp_rmem"}


def tables(quick: bool) -> list[Table]:
    columns = [
        Column("setting", "Setting"), Column("load", "Load"), Column("low", "Low value"), Column("with_low", "Result", ""),
        Column("high", "High value"), Column("with_high", "Result", ""), Column("change", "High to low", "ratio"),
        Column("failed", "Failed with low / high"),
    ]  # fmt: skip
    table = Table("settings", "Each setting alone", "Everything else is as on this machine.", columns)
    for name, how, values, load, figure in SETTINGS:
        found: dict[str, list[dict[str, Any]]] = {value: [] for value in values}
        for _ in range(1 if quick else ROUNDS):
            for value in values:
                with how(NAMES.get(name, name), value) as prefix:
                    found[value].append(measured(load, prefix or []))
        low, high = (
            {"unit": "count" if figure == "largest" else "per_s", **of_runs([run[figure] for run in found[value]])}
            for value in values
        )
        failed = "/".join(f"{sum(run['failed'] for run in found[value]):,.0f}" for value in values)
        shown = [value.replace("\t", " to ").replace(" 33554432", "") for value in values]
        table.rows[name.split(",")[0].split(" (")[0]] = {
            "setting": name, "load": load[1], "low": shown[0], "with_low": low, "high": shown[1], "with_high": high,
            "change": {"value": high["value"] / low["value"]} if low["value"] else None, "failed": failed.replace("/", " / "),
        }  # fmt: skip
    return [table]


def measured(load: list[Any], prefix: list[str]) -> dict[str, float]:
    (result,) = lab.run(*load, "--duration-s", 1, prefix=prefix)["results"]
    cells = lab.row(result)
    return {name: cells.get(name, {"value": 0.0})["value"] for name in ("rate", "largest", "failed")}
