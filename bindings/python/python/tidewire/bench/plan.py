"""Plan of a run: tests, sizes and times."""

from __future__ import annotations

from dataclasses import dataclass

CONNECTION_STORM = "connection-storm"
CONNECT_LATENCY = "connect-latency"
RAPID_RECONNECT = "rapid-reconnect"
PING_LATENCY = "ping-latency"
THROUGHPUT = "throughput"
SUSTAINED_THROUGHPUT = "sustained-throughput"
SIZE_MATRIX = "size-matrix"
FORMAT_COMPARISON = "format-comparison"
SUSTAINED_HOLD = "sustained-hold"
CONNECTION_LIMIT = "connection-limit"
FAN_OUT = "fan-out"
ECHO = "echo"

TESTS = (
    CONNECTION_STORM,
    CONNECT_LATENCY,
    RAPID_RECONNECT,
    PING_LATENCY,
    THROUGHPUT,
    SUSTAINED_THROUGHPUT,
    SIZE_MATRIX,
    FORMAT_COMPARISON,
    SUSTAINED_HOLD,
    CONNECTION_LIMIT,
    FAN_OUT,
    ECHO,
)


@dataclass(frozen=True)
class Plan:
    """The requested plan."""

    tests: tuple[str, ...]
    tiers: tuple[int, ...]
    duration_s: float = 2.0
    sustained_s: float = 10.0
    hold_s: float = 30.0
    hold_ping_every_s: float = 5.0
    payload_bytes: tuple[int, ...] = ()
    several_trades: bool = False
    in_flight: int | None = None
    rate_per_s: float | None = None
    poisson: bool = False
    pings: int = 50
    rounds: int = 200
    connections_max: int = 1_000_000
    seed: int = 1
    processes: int = 1


@dataclass(frozen=True)
class Target:
    """Which server, and how a connection to it is made."""

    url: str
    token: str | None = None
    jwt_secret: str | None = None
    cookie_name: str | None = None
    format: str = "json"
    deflate: bool = False
    encrypt: bool = False
    ca: str | None = None


def tests_of(names: tuple[str, ...], *, embedded: bool) -> tuple[str, ...]:
    """The tests to run: those named, or all that fit the server."""
    if names:
        return names
    left_out = {ECHO, SUSTAINED_THROUGHPUT} | (set() if embedded else {FAN_OUT})
    return tuple(test for test in TESTS if test not in left_out)


def tiers_of(asked: tuple[int, ...], *, quick: bool, room: int) -> tuple[int, ...]:
    """The numbers of connections: those asked for, or as many of the usual ones as open files allow."""
    if asked:
        return asked
    if quick:
        return (10,)
    # A server in a child process has a limit of its own.
    usual = tuple(tier for tier in (100, 1000, 10_000) if tier <= room)
    return usual or (max(1, room),)


def share(total: int, parts: int, index: int) -> int:
    """The share of one part in a total, so that all parts together get all of it."""
    return total // parts + (1 if index < total % parts else 0)
