"""Measures Tidewire and its peers in turns: the tables of docs/reports/peers.md, and of the pages of Python and TypeScript.

Each server has the first core, the load generator the second. A round measures every server once, so
that a drift of the machine meets all of them; the figures are medians over the rounds, and a ratio is the
median of the ratios within a round.
"""

import argparse
import contextlib
import pathlib
import subprocess
import tempfile
import time

import centrifugo
import fan_out
import layers
import python_package
import saturation
import typescript
from measure import bench, bench_command, comparison, median, rate, rates, reached, verdicts
from reports.sections import Sections, of
from servers import Server, certificate_flags, peers, tidewire


def compare_peers(page, mode, plans, rounds, seconds):
    """Each plan is (title, target for the rate, for the server's CPU or None, flags of the bench)."""
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(tidewire(mode))]
        for name, command in peers(mode):
            servers.append(stack.enter_context(Server(name, command, ["--profile", "raw"])))
        for title, target, cpu_target, flags in plans:
            flags = [*flags, "--connections", 100, "--duration-s", seconds]
            results = {server.name: [] for server in servers}
            for _ in range(rounds):
                for server in servers:
                    results[server.name].append(bench(server, *flags))
            comparison(page, title, results, target, cpu_target)


def receive(page, rounds, seconds):
    sizes = ["--test", "size-matrix", "--payload-bytes"]
    plans = [
        ("Receive, 175 B text, 100 connections", 2.2, 2.2, ["--test", "throughput"]),
        ("Receive, 1 KB", 3, None, [*sizes, 1024]),
        ("Receive, 16 KB", 3, None, [*sizes, 16384]),
    ]
    compare_peers(page, "sink", plans, rounds, seconds)


def echo(page, rounds, seconds):
    plans = [
        ("Echo, 175 B, 64 in flight", 18, None, ["--test", "echo", "--in-flight", 64]),
        ("Echo, 175 B, one in flight", 1.1, 1, ["--test", "echo", "--in-flight", 1]),
    ]
    compare_peers(page, "echo", plans, rounds, seconds)


def on_fresh_servers(rounds, *flags):
    rows = []
    for _ in range(rounds):
        with tidewire("sink") as server:
            rows.append(bench(server, *flags))
    return rows


def storms(page, rounds, _seconds):
    page.table("JWT handshakes", "connections", "handshakes", "p99", "failed", "verdict", "target")
    for connections in (1000, 10000):
        rows = on_fresh_servers(rounds, "--test", "connection-storm", "--connections", connections)
        handshakes, failed = median(map(rate, rows)), sum(row["failed"] for row in rows)
        p99 = of("us", [row["latency_us"]["p99"] for row in rows])
        target = reached(handshakes >= 20_000, failed == 0)
        page.row(f"{connections:,}", rates(rows), p99, str(failed), verdicts(rows), target)
    page.end("Target: at least 20,000 per second on one core.")


def pings(page, rounds, _seconds):
    columns = ["connections", "round trips", "mean", "p99 / mean", "max / mean", "verdict", "target"]
    page.table("Application pings, all connections at once", *columns)
    for connections in (1000, 10000):
        rows = on_fresh_servers(rounds, "--test", "ping-latency", "--connections", connections)
        latencies = [row["latency_us"] for row in rows]
        p99, most = ([latency[name] / latency["mean"] for latency in latencies] for name in ("p99", "max"))
        cells = [rates(rows), of("us", [latency["mean"] for latency in latencies]), of("ratio", p99), of("ratio", most)]
        page.row(f"{connections:,}", *cells, verdicts(rows), reached(median(p99) <= 2, median(most) <= 5))
    page.end("Target: p99 at most twice the mean, maximum at most five times.")


def idle_memory(page, _rounds, _seconds):
    """Resident memory of the server's process before and while it holds 10,000 idle sessions."""
    columns = ["empty server", "target of it", "per idle connection", "target"]
    page.table("Idle memory, 10,000 connections", "transport", *columns)
    with tempfile.TemporaryDirectory() as folder:
        row_of_memory(page, "plain", 4, [], [])
        row_of_memory(page, "TLS", 24, certificate_flags(folder), ["--insecure"])
    page.end("The highest value while all sessions were open.")


def row_of_memory(page, name, target_kb, serve_flags, bench_flags):
    connections = 10_000
    with tidewire("sink", *serve_flags) as server, tempfile.TemporaryDirectory() as out:
        empty = server.resident_bytes()
        flags = ["--test", "sustained-hold", "--connections", connections, "--hold-s", 12, *bench_flags]
        held = []
        silence = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        client = subprocess.Popen(bench_command(server, out, *flags), **silence)
        try:
            while client.poll() is None:
                if server.connections() >= connections:
                    held.append(server.resident_bytes())
                time.sleep(0.5)
        finally:
            client.terminate()
            client.wait()
    if not held or client.returncode in (1, 2):
        raise SystemExit(f"the server did not hold {connections} connections ({name})")
    each = (max(held) - empty) / connections
    cells = [of("bytes", [empty]), f"12 MB: {reached(empty <= 12e6)}", of("bytes", [each])]
    page.row(name, *cells, f"{target_kb} KB: {reached(each <= target_kb * 1e3)}")


# Those of docs/reports/peers.md, and of the pages of the two languages.
PEERS = {
    "receive": receive,
    "echo": echo,
    "saturation": saturation.saturation,
    "storm": storms,
    "ping": pings,
    "memory": idle_memory,
    "deflate": layers.deflate,
    "deflate-memory": layers.deflate_memory,
    "encrypted": layers.encrypted,
    "wire": layers.wire,
    "fan-out": fan_out.fan_out,
    "fan-out-rate": fan_out.fan_out_rate,
    "centrifugo": centrifugo.centrifugo,
    "topics": fan_out.topics,
    "filters": fan_out.filters,
}
PYTHON = {
    "python-receive": python_package.python_receive,
    "python-saturation": python_package.python_saturation,
    "python-echo": python_package.python_echo,
    "python-asgi": python_package.python_asgi,
    "python-publish": python_package.python_publish,
    "python-client": python_package.python_client,
}
TYPESCRIPT = {
    "typescript-client": typescript.typescript_client,
    "typescript-browser": typescript.typescript_browser,
}
SECTIONS = PEERS | PYTHON | TYPESCRIPT
# Printed on request, and in no page.
EXTRA = {f"saturation-{count}": saturation.spread_at(count) for count in saturation.CONNECTIONS}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS | EXTRA)}; all by default"
    )
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each server")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one measurement")
    parser.add_argument("--json", type=pathlib.Path, help="write the tables to this file")
    options = parser.parse_args()
    unknown = [name for name in options.sections if name not in SECTIONS | EXTRA]
    if unknown:
        parser.error(f"no section is called {', '.join(unknown)}")
    page = Sections()
    for name in options.sections or SECTIONS:
        if name in PYTHON and not python_package.is_installed():
            print(f"The Python package is not installed for {name}: see bench/run.")
            continue
        if name in TYPESCRIPT and not typescript.is_installed():
            print(f"The npm packages are not built for {name}: see bench/run.")
            continue
        (SECTIONS | EXTRA)[name](page, options.rounds, options.seconds)
    if options.json:
        page.write(options.json)


if __name__ == "__main__":
    main()
