"""Tables of `tidewire bench`: its plan is run with repeats, and each test becomes a table."""

from __future__ import annotations

import json
import pathlib
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Any

from reports.table import Column, Table, figure
from servers import ROOT, TIDEWIRE

Result = dict[str, Any]

# What the rate of a test counts.
RATES = {
    "connection-storm": "Handshakes",
    "ping-latency": "Round trips",
    "sustained-hold": "Round trips",
    "fan-out": "Deliveries",
}

ABOUT = {
    "connection-storm": "All connections open at once, each with a JWT of its own. A connection counts once the server is ready for it.",
    "ping-latency": "Every connection sends application pings, one after the other, all at once.",
    "throughput": "Every connection sends as fast as it can. A message counts once the server has accounted for it.",
    "size-matrix": "The same for each size of the payload.",
    "format-comparison": "The same message of several trades, 1 KiB as JSON, in each format of the wire.",
    "sustained-hold": "All connections stay open, each with an occasional ping.",
    "connection-limit": "The number is doubled until a connection fails or a limit of this machine ends the search, then narrowed down.",
    "fan-out": "One connection publishes; all others subscribe and check every byte that they receive.",
}


def run(*flags: Any, prefix: Sequence[str] = ()) -> dict[str, Any]:
    """The report of one plan. A run that measured nothing, or not all, ends the step. `prefix` are words before the command."""
    (report,) = run_each(*flags, prefix=prefix)
    return report


def run_each(*flags: Any, prefix: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The reports of one plan with several numbers of processes, in their order."""
    with tempfile.TemporaryDirectory() as out:
        command = [*prefix, TIDEWIRE, "bench", *flags, "--memory", "--out", out, "--quiet"]
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=ROOT)
        # Of one number the file is in the folder itself, of several each has a folder.
        paths = [*pathlib.Path(out).glob("report.json"), *pathlib.Path(out).glob("*/report.json")]
        reports = [json.loads(path.read_text()) for path in paths]
    what = f"tidewire bench {' '.join(map(str, flags))}"
    if not reports:
        raise RuntimeError(f"{what}: {done.stderr[-2000:]}")
    for report in reports:
        if report.get("partial"):
            raise RuntimeError(f"{what}: {report.get('partial_reason')}")
    return sorted(reports, key=lambda report: report["started_at"])


def tables(results: list[Result]) -> list[Table]:
    """One table for each test, and for the size matrix another one with a column for each size."""
    names = list(dict.fromkeys(result["test"] for result in results))
    found = []
    for name in names:
        mine = [result for result in results if result["test"] == name]
        table = Table(name, name, ABOUT.get(name, ""), columns(name))
        for result in mine:
            table.rows[key(result)] = row(result)
        if name == "format-comparison":
            add_ratios(table)
        if name == "size-matrix":
            found.append(matrix(mine))
        found.append(table)
    return found


def add_ratios(table: Table) -> None:
    """Each rate as a part of that of JSON beside it: of the figures that the table shows, not of a run."""
    for name, cells in table.rows.items():
        json_cells = table.rows.get(name.replace(f"/{cells['format']}/", "/json/"), {})
        if "rate" in cells and "rate" in json_cells:
            cells["to_json"] = figure(cells["rate"]["value"] / json_cells["rate"]["value"])


def key(result: Result) -> str:
    """`10000`, `10000/json/175`, and a planned rate: what names a result within its test."""
    parts = [str(result["connections"])]
    if result["test"] in ("size-matrix", "format-comparison"):
        parts += [result["format"], str(result["payload_bytes"])]
    if result.get("fan_out", {}).get("publications_per_s"):
        parts.append(f"{result['fan_out']['publications_per_s']:g}/s")
    return "/".join(parts)


def columns(test: str) -> list[Column]:
    rate = RATES.get(test, "Confirmed messages")
    return [
        Column("connections", "Connections", "count"),
        Column("format", "Format"),
        Column("payload", "Payload", "bytes"),
        Column("speed", "Publications", "per_s"),
        Column("rate", rate, "per_s", plot=True),
        Column("bytes", "Bytes", "bytes_per_s"),
        Column("to_json", "To JSON", "ratio"),
        Column("wire", "On the wire", "bytes"),
        Column("p50", "p50", "us"),
        Column("p99", "p99", "us", plot=True),
        Column("max", "Max", "us"),
        Column("largest", "Largest stable", "count"),
        Column("stopped_by", "Stopped by"),
        Column("survived", "Survived", "percent"),
        Column("offered", "Offered", "count"),
        Column("confirmed", "Confirmed", "count"),
        Column("lost", "Lost", "count"),
        Column("failed", "Failed", "count"),
        Column("server_us", "Server CPU each", "us"),
        Column("client_us", "Generator CPU each", "us"),
        Column("limit", "Limit"),
        Column("verdict", "Verdict"),
    ]


def row(result: Result) -> dict[str, Any]:
    repeats = result.get("repeats", {})
    latency = result.get("latency_us") or {}
    limit = result.get("limit") or {}
    done, offered, lost = account(result)

    def spread(name: str, value: float | None) -> Any:
        of = repeats.get(name) or {}
        return figure(value, of.get("min"), of.get("max"), repeats.get("count", 1))

    def each(side: str) -> Any:
        seconds = result.get("cpu", {}).get(f"{side}_s")
        return figure(seconds / done * 1e6 if seconds and done else None)

    cells = {
        "connections": figure(result["connections"]),
        "format": result.get("format"),
        "payload": figure(result.get("payload_bytes")),
        "speed": figure(result.get("fan_out", {}).get("publications_per_s"))
        or ("full speed" if "fan_out" in result else None),
        "rate": spread("rate_per_s", result.get("rate_per_s")),
        "bytes": figure(result.get("bytes_per_s")),
        "wire": figure(result.get("wire_bytes")),
        "p50": spread("p50_us", latency.get("p50")),
        "p99": spread("p99_us", latency.get("p99")),
        "max": figure(latency.get("max")),
        "largest": spread("largest_stable", limit.get("largest_stable")),
        "stopped_by": limit.get("stopped_by", "").replace("_", " ") or None,
        "survived": figure((result.get("survival") or {}).get("percent")),
        "offered": figure(offered),
        "confirmed": figure(done),
        "lost": figure(lost),
        "failed": figure(result.get("failed")),
        "server_us": each("server"),
        "client_us": each("client"),
        "limit": {"server": "server", "client": "generator", "both": "both"}.get(result.get("bottleneck"), "neither"),
        "verdict": result["verdict"].replace("_", " "),
    }
    if result["test"] == "connection-limit":
        cells["rate"] = None
    return {name: cell for name, cell in cells.items() if cell is not None}


def account(result: Result) -> tuple[int, int, int | None]:
    """What was confirmed, offered and lost: messages, else pings, else connections."""
    messages, pings = result.get("messages"), result.get("pings")
    if messages:
        return messages["confirmed"], messages["offered"], messages["lost"]
    if pings and result["test"] in ("ping-latency", "sustained-hold"):
        return pings["sent"] - pings["lost"], pings["sent"], pings["lost"]
    return result.get("connected") or 0, result["connections"], result.get("failed")


def memory(hold: Result, load: Result) -> dict[str, Any]:
    """The memory of a fresh server: while it holds idle connections, after they have sent, and when they are closed."""
    connections, idle, busy = hold["connections"], hold["memory"], load["memory"]
    each = idle.get("per_connection_bytes", 0.0)
    grown = each * connections
    closed = busy.get("server_rss_closed_bytes")
    empty = idle["server_rss_bytes"] - grown
    held = busy["server_rss_bytes"] - empty
    # Half a second of noise can make it less than nothing.
    back = None if closed is None or held <= 0 else max(0.0, (busy["server_rss_bytes"] - closed) / held * 100)
    cells = {
        "connections": connections, "empty": empty, "open": idle["server_rss_bytes"], "idle": each or None,
        "busy": busy.get("per_connection_bytes"), "peak": max(idle.get("server_rss_peak_bytes", 0), busy.get("server_rss_peak_bytes", 0)),
        "closed": closed, "back": back, "client": idle.get("client_per_connection_bytes"),
    }  # fmt: skip
    return {name: figure(value) for name, value in cells.items() if value is not None}


MEMORY = [
    Column("connections", "Connections", "count"), Column("empty", "Empty", "bytes"), Column("open", "All open, idle", "bytes"),
    Column("idle", "Each, idle", "bytes"), Column("busy", "Each, after load", "bytes"), Column("peak", "Peak", "bytes"),
    Column("closed", "After closing", "bytes"), Column("back", "Given back", "percent"), Column("client", "Generator, each", "bytes"),
]  # fmt: skip


def matrix(results: list[Result]) -> Table:
    sizes = list(dict.fromkeys(result["payload_bytes"] for result in results))
    names = [Column("connections", "Connections", "count")]
    names += [
        Column(str(size), f"{size} B" if size < 1024 else f"{size // 1024} KiB", "per_s", plot=True) for size in sizes
    ]
    about = "Confirmed messages per second, by connections (rows) and payload (columns)."
    table = Table("matrix", "size-matrix, in one view", about, names)
    for result in results:
        cells = table.rows.setdefault(str(result["connections"]), {"connections": figure(result["connections"])})
        cells[str(result["payload_bytes"])] = row(result).get("rate")
    return table
