"""The section of compare.py about a sender that never waits: Tidewire beside uWebSockets, each on a server of its own.

The load generator bounds what is unconfirmed; the client here (peers/saturate) writes whenever a socket takes something.
"""

import json
import operator
import subprocess

from measure import CLIENT_CORE, in_rounds, median, reached
from reports.sections import of
from servers import PEERS, Server, tidewire_open

OURS, THEIRS = "tidewire", "uWebSockets"
SIZES_BYTES = (64, 175, 1024, 16384)
CONNECTIONS = (100, 1_000, 10_000)
ECHO_BYTES, ECHO_CONNECTIONS = 175, 100
RATE_TARGET = 1.1
CPU_TARGET = 0.9  # of uWebSockets' CPU per message, where the client and not the server is the limit
BUSY = 0.95
SLOW = 0.9  # a run below this part of the median is a slow one


def saturation(page, rounds, seconds):
    columns = ["messages", "uWebSockets", "ratio", "server CPU per message", "uWebSockets' CPU", "ratio of CPU"]
    columns += ["client busy", "beside uWebSockets", "lowest / median", "slow runs", "of uWebSockets", "target"]
    page.table("Receive from a sender that never waits", "payload", "connections", *columns)
    for connections in CONNECTIONS:
        for payload_bytes in SIZES_BYTES:
            flags = ["--payload-bytes", payload_bytes, "--connections", connections]
            ours, theirs = in_turns("sink", rounds, seconds, flags)
            names = [f"{payload_bytes:,} B", f"{connections:,}"]
            page.row(*names, *cells(ours, theirs), verdict(ours, theirs), key=f"{payload_bytes}/{connections}")
    page.end(
        f"Target: at least {RATE_TARGET} times uWebSockets; where the client is at least {BUSY:.0%} busy beside it, at most "
        f"{CPU_TARGET} of its server CPU per message instead; and no more runs below {SLOW} of the median than it has.",
        "A message is confirmed by the pong to a ping behind the last one. A client's busy share is its CPU time while it "
        "sends; each run has a server of its own.",
    )
    page.table("Echo for a client of the same kind, 175 B, 100 connections", "in flight", *columns)
    for in_flight in (64, 1):
        flags = ["--payload-bytes", ECHO_BYTES, "--connections", ECHO_CONNECTIONS, "--in-flight", in_flight]
        ours, theirs = in_turns("echo", rounds, seconds, flags)
        page.row(str(in_flight), *cells(ours, theirs), "-")
    page.end()


def spread_at(connections):
    """A section about how much the runs differ, for so many connections; many rounds make it worth while."""

    def spread(page, rounds, seconds):
        columns = ["messages", "uWebSockets", "ratio", "lowest / median", "highest / median", "slow runs"]
        columns += [f"uWebSockets: {column}" for column in columns[3:]] + ["target"]
        title = f"Spread of {rounds} runs, a sender that never waits, {connections:,} connections"
        page.table(title, "payload", *columns)
        for payload_bytes in SIZES_BYTES:
            flags = ["--payload-bytes", payload_bytes, "--connections", connections]
            ours, theirs = in_turns("sink", rounds, seconds, flags)
            cells = [*both("per_s", "rate_per_s", ours, theirs), *spread_cells(ours), *spread_cells(theirs)]
            page.row(f"{payload_bytes:,} B", *cells, verdict(ours, theirs))
        page.end(f"A slow run is below {SLOW} of the median of its server; Tidewire may have no more of them.")

    return spread


def spread_cells(rows):
    middle, rates = figure(rows, "rate_per_s"), [row["rate_per_s"] for row in rows]
    return [f"{min(rates) / middle:.2f}", f"{max(rates) / middle:.2f}", str(slow_runs(rows))]


def in_turns(mode, rounds, seconds, flags):
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(measured(tidewire_open(mode), mode, seconds, flags))
        theirs.append(measured(uwebsockets(mode), mode, seconds, flags))
    return ours, theirs


def uwebsockets(mode):
    return Server(THEIRS, [PEERS / "peer-uwebsockets", "--port", 0, "--mode", mode], [])


def measured(server, mode, seconds, flags):
    """One run against a server, which is stopped then."""
    with server:
        command = ["taskset", "-c", CLIENT_CORE, PEERS / "peer-saturate", "--url", server.url, "--mode", mode]
        command += ["--seconds", seconds, "--server-pid", server.process.pid, *flags]
        run = subprocess.run([*map(str, command)], capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(f"{server.name} {flags}: {run.stderr}")
    return json.loads(run.stdout)


def figure(rows, name):
    return median(row[name] for row in rows)


def ratios(ours, theirs, name):
    return in_rounds(ours, theirs, operator.itemgetter(name))


def ratio(ours, theirs, name):
    return median(ratios(ours, theirs, name))


def both(unit, name, ours, theirs):
    """The cells of a figure of both servers, and of its ratio."""
    return [
        *(of(unit, [row[name] for row in rows]) for rows in (ours, theirs)),
        of("ratio", ratios(ours, theirs, name)),
    ]


def slow_runs(rows):
    least = SLOW * figure(rows, "rate_per_s")
    return sum(row["rate_per_s"] < least for row in rows)


def cells(ours, theirs):
    lowest = min(row["rate_per_s"] for row in ours) / figure(ours, "rate_per_s")
    return [
        *both("per_s", "rate_per_s", ours, theirs),
        *both("ns", "server_cpu_ns_per_message", ours, theirs),
        *(of("percent", [100 * row["client_busy"] for row in rows]) for rows in (ours, theirs)),
        f"{lowest:.2f}",
        *(str(slow_runs(rows)) for rows in (ours, theirs)),
    ]


def verdict(ours, theirs):
    if figure(theirs, "client_busy") >= BUSY:
        is_fast = ratio(ours, theirs, "server_cpu_ns_per_message") <= CPU_TARGET
    else:
        is_fast = ratio(ours, theirs, "rate_per_s") >= RATE_TARGET
    return reached(is_fast, slow_runs(ours) <= slow_runs(theirs))
