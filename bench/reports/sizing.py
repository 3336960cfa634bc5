"""The table of docs/deployment.md: figures of the reports, multiplied by numbers of clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reports.page import figure_of
from reports.table import digits, scaled
from servers import ROOT

PAGE = ROOT / "docs/deployment.md"
CLIENTS = (10_000, 100_000, 1_000_000)
PING_INTERVAL_S = 25
# Of which it has figures.
PARTS = ("peers", "engine")
HEADER = f"| | measured | {' | '.join(f'{clients:,}' for clients in CLIENTS)} |"

Reports = dict[str, dict[str, Any]]


def lines(reports: Reports) -> list[str]:
    def of(reference: str) -> float:
        return figure_of(reference, "sizing", reports)[0]["value"]

    def memory(kind: str) -> tuple[str, Callable[[int], str]]:
        each = of(f"peers:idle-memory-10-000-connections/{kind}/per-idle-connection")
        empty = of(f"peers:idle-memory-10-000-connections/{kind}/empty-server")
        return f"{size(each)} each, and {size(empty)}", lambda clients: size(empty + each * clients)

    handshakes = of("peers:jwt-handshakes/10,000/handshakes")
    delivery_us = of("peers:fan-out-of-95-b-100-s-to-1-000-subscribers/tidewire/server-cpu-per-delivery")
    ping_us = of("engine:ping-latency/10000/server_us")
    rows = {
        "memory of the server, idle connections": memory("plain"),
        "the same with TLS in the server": memory("TLS"),
        "all clients connect again, with a JWT": (
            f"{round(handshakes, -2):,.0f}/s",
            lambda clients: f"{digits(clients / handshakes)} s",
        ),
        "one publication a second to every client": (
            f"{digits(delivery_us)} µs for each delivery",
            lambda clients: share(clients * delivery_us / 1e6),
        ),
        f"pings every {PING_INTERVAL_S} s, as by default": (
            f"{digits(ping_us)} µs each",
            lambda clients: share(clients * ping_us / 1e6 / PING_INTERVAL_S),
        ),
    }
    cells = {name: [measured, *map(computed, CLIENTS)] for name, (measured, computed) in rows.items()}
    return [
        HEADER,
        "|---" * (2 + len(CLIENTS)) + "|",
        *(f"| {' | '.join([name, *row])} |" for name, row in cells.items()),
    ]


def size(number: float) -> str:
    return scaled(number, 1000, [" B", " KB", " MB", " GB"])


def share(cores: float) -> str:
    """Of one core, or of several."""
    return f"{digits(cores * 100)} %" if cores < 1 else f"{digits(cores)} cores"


def written(text: str, reports: Reports) -> str:
    """The page with the table of these reports."""
    before, _, rest = text.partition(HEADER)
    after = rest[rest.index("\n\n") :]
    return before + "\n".join(lines(reports)) + after
