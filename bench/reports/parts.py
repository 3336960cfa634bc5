"""The parts of the reports: what each measures, step by step. A step is measured, and kept, as a whole."""

from __future__ import annotations

import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import compare
import scale_out
from reports import features, games, lab, tuning
from reports.table import Column, Table, figure
from servers import LIMITS, ROOT, SECRET, TIDEWIRE

REPEATS = 3
TIERS = [100, 500, 1_000, 2_000, 5_000, 10_000]
# More than one process may have open: several processes on both sides.
LARGE = [20_000, 30_000, 50_000, 75_000, 100_000]
PROCESSES = 6


@dataclass
class Settings:
    """`quick` measures fewer sizes, each for a shorter time."""

    quick: bool

    def seconds(self) -> float:
        return 0.5 if self.quick else 1.0

    def tiers(self) -> list[int]:
        return [100, 1_000] if self.quick else TIERS

    def large(self) -> list[int]:
        return [30_000] if self.quick else LARGE


Step = Callable[[Settings], list[Table]]


@dataclass
class Part:
    """`quick` names the steps of a quick report; all by default."""

    title: str
    steps: dict[str, Step]
    quick: tuple[str, ...] = ()

    def chosen(self, settings: Settings) -> dict[str, Step]:
        names = self.quick if settings.quick and self.quick else tuple(self.steps)
        return {name: self.steps[name] for name in names}


def bench(settings: Settings, test: str, tiers: list[int], *flags: Any) -> list[Table]:
    timed = ["--duration-s", settings.seconds()]
    held = ["--hold-s", 2 if settings.quick else 10, "--hold-ping-s", 1]
    sizes = ["--connections", ",".join(map(str, tiers)), "--repeats", REPEATS]
    report = lab.run("--test", test, *sizes, *timed, *held, *flags)
    return lab.tables(report["results"])


def of_engine(test: str) -> Step:
    return lambda settings: bench(settings, test, settings.tiers())


def of_large_engine(test: str) -> Step:
    several = ["--server-processes", PROCESSES, "--processes", PROCESSES, "--pings-per-connection", 10]
    return lambda settings: bench(settings, test, settings.large(), *several)


def hold_of_all(settings: Settings) -> list[Table]:
    """The hold that the largest number has to survive."""
    report = lab.run(
        *("--test", "sustained-hold", "--connections", settings.large()[-1], "--hold-s", 5 if settings.quick else 30),
        *("--hold-ping-s", 5, "--server-processes", PROCESSES, "--processes", PROCESSES),
    )
    (table,) = lab.tables(report["results"])
    table.id, table.title = "long-hold", "sustained-hold, the longest"
    return [table]


def memory(settings: Settings) -> list[Table]:
    """A server of its own for each number, since memory that was used before is used again."""
    about = (
        "Resident memory of a fresh server: while it holds idle connections, when each has sent as fast as it could, and half a "
        "second after all were closed."
    )
    table = Table("memory", "Memory of the server", about, lab.MEMORY)
    for tier in [*settings.tiers(), *settings.large()]:
        several = ["--server-processes", PROCESSES, "--processes", PROCESSES] if tier > TIERS[-1] else []
        plan = ["--test", "sustained-hold,throughput", "--connections", tier, "--hold-s", 2, "--duration-s", 1]
        hold, load = lab.run(*plan, *several)["results"]
        table.rows[str(tier)] = lab.memory(hold, load)
    return [table]


def limit(settings: Settings) -> list[Table]:
    """Of one server and one generator, which ends at the open files that a process may have; and of several, to the largest number."""
    plan = ["--test", "connection-limit", "--connections-max"]
    results = lab.run(*plan, 5_000 if settings.quick else 1_000_000)["results"]
    if not settings.quick:
        several = ["--server-processes", PROCESSES, "--processes", PROCESSES]
        results += lab.run(*plan, LARGE[-1], *several)["results"]
    return lab.tables(results)


def fan_out_of(servers: int, settings: Settings, *flags: Any) -> list[Table]:
    """A fan-out over servers that share a port, with Redis between them."""
    port = scale_out.free_port()
    with contextlib.ExitStack() as stack:
        broker, process = scale_out.redis()
        stack.enter_context(process)
        for _ in range(servers):
            stack.enter_context(shared_server(port, f"redis://127.0.0.1:{broker}"))
        wait_for_all(port, servers)
        report = lab.run(
            *(f"ws://127.0.0.1:{port}/ws", "--profile", "v1", "--jwt-secret", SECRET, "--test", "fan-out"),
            *("--duration-s", settings.seconds(), "--repeats", REPEATS, *flags),
        )
    return lab.tables(report["results"])


def fan_out_by_servers(settings: Settings) -> list[Table]:
    """The same subscribers at one, two and three servers."""
    tables: dict[str, Table] = {}
    for servers in (1, 2, 3):
        for one in fan_out_of(servers, settings, "--connections", 1_000, "--rate-per-s", 100):
            columns = [Column("servers", "Servers", "count"), *one.columns]
            about = (
                "100 publications a second by one client, to 1,000 subscribers whom the system spreads over the servers. Redis "
                "passes each publication to every server once. The servers share two cores with Redis and the generator."
            )
            table = tables.setdefault(one.id, Table(f"{one.id}-servers", "One, two and three servers", about, columns))
            table.rows |= {f"{servers}/{key}": {"servers": figure(servers), **cells} for key, cells in one.rows.items()}
    return [*tables.values()]


def fan_out_over_redis(settings: Settings) -> list[Table]:
    """More subscribers than one process may have."""
    tables = []
    for tier in settings.large():
        tables += fan_out_of(PROCESSES, settings, "--connections", tier, "--processes", PROCESSES)
    for table in tables:
        table.id, table.title = "fan-out-redis", "fan-out over Redis"
        table.about = f"{PROCESSES} servers share one port, and Redis passes each publication on to all of them."
    return tables


def wait_for_all(port: int, servers: int) -> None:
    """Until each server listens: the system spreads connections over those that do."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        listening = subprocess.run(
            ["ss", "-Hltn", f"sport = :{port}"], capture_output=True, text=True, check=True
        ).stdout
        if len(listening.splitlines()) >= servers:
            return
        time.sleep(0.05)
    raise RuntimeError(f"not all of {servers} servers listen on port {port}")


def shared_server(port: int, broker: str) -> scale_out.Process:
    command = [TIDEWIRE, "serve", "--listen", f"127.0.0.1:{port}", "--reuse-port", "--shards", 1, "--broker", broker]
    return scale_out.Process(
        "env", f"TIDEWIRE_JWT_SECRET={SECRET}", *command, *LIMITS, "--topics-open", "--log-level", "error"
    )


TESTS = "connection-storm,ping-latency,throughput,size-matrix,format-comparison,sustained-hold"


def of_client(client: str) -> Step:
    """The tests from the client library of a language, in one process."""
    return lambda settings: bench(settings, TESTS, [100] if settings.quick else [100, 1_000], "--client", client)


def scaling(client: str) -> Step:
    """The same load from several numbers of processes."""

    def step(settings: Settings) -> list[Table]:
        columns = [
            Column("processes", "Processes", "count"), Column("test", "Test"), Column("ready", "Ready", "count"),
            Column("sum", "Sum", "per_s", plot=True), Column("mean", "Mean of a process", "per_s"),
            Column("least", "Slowest process", "per_s"), Column("most", "Fastest process", "per_s"),
            Column("scaling", "Scaling", "percent"),
            Column("lost", "Lost", "count"), Column("limit", "Limit"), Column("verdict", "Verdict"),
        ]  # fmt: skip
        about = (
            "Scaling is the sum in percent of the number of processes times the rate of the row with one process. "
            "Server and processes share the cores of this machine."
        )
        table = Table("scaling", "Several processes", about, columns)
        reports = lab.run_each(
            *("--client", client, "--processes", "1,2" if settings.quick else "1,2,4,8"),
            *("--test", "throughput,ping-latency", "--connections", 200),
            *("--duration-s", settings.seconds(), "--repeats", REPEATS),
        )
        for report in reports:
            for result in report["results"]:
                table.rows[f"{result['test']}/{result['processes']['count']}"] = row_of_processes(result)
        return [table]

    return step


def row_of_processes(result: dict[str, Any]) -> dict[str, Any]:
    cells, divided = lab.row(result), result["processes"]
    rates = divided["rates_per_s"]
    found = {
        "processes": figure(divided["count"]), "test": result["test"], "ready": figure(sum(rate > 0 for rate in rates)),
        "sum": cells["rate"], "mean": figure(divided["mean_per_s"]), "least": figure(min(rates)),
        "most": figure(max(rates)), "scaling": figure(divided.get("scaling_percent")),
        "lost": cells.get("lost"), "limit": cells["limit"], "verdict": cells["verdict"],
    }  # fmt: skip
    return {name: cell for name, cell in found.items() if cell is not None}


def side_by_side(settings: Settings) -> list[Table]:
    """The same tests from the three client libraries."""
    tables: dict[str, Table] = {}
    for client in ("rust", "python", "typescript"):
        tests = "connection-storm,ping-latency,throughput,format-comparison"
        report = lab.run(
            *(
                "--client",
                client,
                "--processes",
                1,
                "--test",
                tests,
                "--connections",
                "100" if settings.quick else "100,1000",
            ),
            *("--duration-s", settings.seconds(), "--repeats", REPEATS),
        )
        for one in lab.tables(report["results"]):
            table = tables.setdefault(
                one.id, Table(one.id, one.title, one.about, [Column("client", "Client"), *one.columns])
            )
            table.rows |= {f"{client}/{key}": {"client": client, **cells} for key, cells in one.rows.items()}
    return [*tables.values()]


def utilities(settings: Settings) -> list[Table]:
    """The components of the Python package beside what one would use without them."""
    python = ROOT / "bindings/python/.venv/bin/python"
    command = [python, "bench/utilities.py", *(["--quick"] if settings.quick else [])]
    done = subprocess.run(command, cwd=ROOT / "bindings/python", capture_output=True, text=True, check=True)
    names = ["operation", "ours", "beside", "theirs", "faster"]
    titles = ["Operation", "Tidewire", "Beside", "Its time", "Times as fast"]
    table = Table("utilities", "The components", "Each beside plain Python or the best library for it, in turns.", [])
    table.columns = [Column(name, title) for name, title in zip(names, titles, strict=True)]
    for line in done.stdout.splitlines()[2:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        table.rows[cells[0]] = dict(zip(names, cells, strict=True))
    return [table]


def script(*command: Any) -> Step:
    """The tables of a script of bench/, which writes them to the file after `--json`."""

    def step(settings: Settings) -> list[Table]:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "tables.json")
            # Other load generators take whole seconds.
            seconds = (1 if command[0] == "http_load.py" else 0.5) if settings.quick else 2
            rounds = ["--rounds", REPEATS, "--seconds", seconds]
            line = [sys.executable, *command, "--json", path, *rounds]
            subprocess.run([*map(str, line)], cwd=ROOT / "bench", check=True, stdout=sys.stderr)
            return [Table.from_json(table) for table in json.loads(path.read_text())]

    return step


def beside(sections: Iterable[str]) -> dict[str, Step]:
    return {name: script("compare.py", name) for name in sections}


def all_parts() -> dict[str, Part]:
    http = [
        "keep-alive",
        "pipelining",
        "shared-cores",
        "new-connections",
        "https",
        "http2",
        "scenario",
        "test-server",
        "open-loop",
        "stalls",
        "connections",
        "receive",
    ]
    return {
        "engine": Part(
            "The engine, from 100 to 100,000 connections",
            {
                **{test: of_engine(test) for test in TESTS.split(",")},
                "fan-out": of_engine("fan-out"),
                **{f"{test}, large": of_large_engine(test) for test in TESTS.split(",")},
                "memory": memory,
                "long hold": hold_of_all,
                "connection-limit": limit,
                "fan-out over Redis": fan_out_over_redis,
            },
            (*TESTS.split(","), "fan-out", "throughput, large", "memory"),
        ),
        "clients": Part("The clients of Rust, Python and TypeScript, side by side", {"side by side": side_by_side}),
        "python": Part(
            "The Python client and package",
            {
                "one client": of_client("python"),
                "scaling": scaling("python"),
                "components": utilities,
                **beside(compare.PYTHON),
            },
            # One client stands beside the others.
            ("components",),
        ),
        "typescript": Part(
            "The TypeScript client in Node",
            {"one client": of_client("typescript"), "scaling": scaling("typescript"), **beside(compare.TYPESCRIPT)},
            ("one client",),
        ),
        "peers": Part(
            "Beside other servers",
            {"features": lambda settings: features.tables(), **beside(compare.PEERS)},
            ("features", "receive", "echo", "storm"),
        ),
        "games": Part("A game server", {"games": lambda settings: games.tables(settings.quick)}),
        "http": Part(
            "HTTP load testers",
            {name: script("http_load.py", name) for name in http},
            ("keep-alive",),
        ),
        "tuning": Part("Settings of the system", {"settings": lambda settings: tuning.tables(settings.quick)}),
        "scale-out": Part(
            "Several servers and several Redis",
            {
                "publications": script("scale_out.py"),
                "servers": fan_out_by_servers,
                "partitions": script("partitions.py"),
            },
            ("publications",),
        ),
    }
