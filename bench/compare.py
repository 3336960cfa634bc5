"""Measures Tidewire and its peers in turns and writes the ratios to bench/RESULTS.md.

Each server has the first core, the load generator the second. A round measures every server once, so
that a drift of the machine meets all of them; the figures are medians over the rounds, and a ratio is the
median of the ratios within a round.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
TIDEWIRE = TARGET / "release" / "tidewire"
PEERS = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "bench/peers/target")) / "release"
SECRET = secrets.token_hex(32)
SERVER_CORE, CLIENT_CORE = "0", "1"


class Server:
    """A server on the first core, started for one mode (echo or sink) and stopped at the end."""

    def __init__(self, name, command, bench_flags):
        self.name = name
        self.bench_flags = bench_flags
        self.process = subprocess.Popen(
            ["taskset", "-c", SERVER_CORE, *map(str, command)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TIDEWIRE_JWT_SECRET": SECRET},
        )
        line = self.process.stdout.readline().strip()
        if not line.startswith("listening on "):
            raise SystemExit(f"{name} did not start: {line!r}")
        address = line.removeprefix("listening on ")
        self.url = address if "://" in address else f"ws://{address}/"
        if "--ops-listen" in map(str, command):
            operations = self.process.stdout.readline().strip()
            self.bench_flags = [*bench_flags, "--stats-url", operations.split()[-1]]

    @property
    def pid(self):
        return self.process.pid

    def resident_bytes(self):
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise SystemExit(f"{self.name} has ended")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=20)


def tidewire(app, *further):
    # The limits are on, with room for what one core can send.
    limits = ["--rate-limit-capacity", "4000000000", "--rate-limit-refill-per-s", "4000000000"]
    command = [TIDEWIRE, "serve", "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"]
    command += ["--shards", "1", "--app", app, *limits, *further]
    return Server("tidewire", command, ["--profile", "v1", "--jwt-secret", SECRET])


def peers(mode):
    """The peers that are installed, each with the raw profile: they speak no protocol of ours."""
    arguments = ["--port", "0", "--mode", mode]
    folder = ROOT / "bench/peers"
    commands = {
        "fastwebsockets": [PEERS / "peer-fastwebsockets"],
        "tokio-tungstenite": [PEERS / "peer-tungstenite"],
        "ws (Node)": ["node", folder / "ws/server.js"],
        "picows (Python)": [folder / "picows/.venv/bin/python", folder / "picows/server.py"],
    }
    for name, command in commands.items():
        yield Server(name, [*command, *arguments], ["--profile", "raw"])


def bench(server, *flags):
    """Runs one test and returns its results; a run whose messages did not all arrive ends everything."""
    with tempfile.TemporaryDirectory() as out:
        command = ["taskset", "-c", CLIENT_CORE, TIDEWIRE, "bench", server.url]
        command += ["--server-pid", server.pid, "--threads", 1, "--out", out]
        command += [*server.bench_flags, *flags]
        run = subprocess.run([*map(str, command)], capture_output=True, text=True)
        report = pathlib.Path(out, "report.json")
        if not report.exists():
            raise SystemExit(f"{server.name} {flags}: {run.stderr or run.stdout}")
        results = json.loads(report.read_text())["results"]
    for result in results:
        if result["verdict"] == "failed":
            raise SystemExit(f"{server.name} {flags} failed: {result.get('notes')}")
    return results


def compare(servers, rounds, *flags):
    """Interleaved rounds: for each server a list with one result per round."""
    results = {server.name: [] for server in servers}
    for _ in range(rounds):
        for server in servers:
            results[server.name].append(bench(server, *flags)[0])
    return results


def rate(result):
    return result["rate_per_s"]


def cpu_us(result, side):
    """CPU time per confirmed message in microseconds."""
    seconds = result.get("cpu", {}).get(f"{side}_s")
    return None if seconds is None else seconds / result["messages"]["confirmed"] * 1e6


def median(values):
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else float("nan")


def ratio(results, ours, other, figure):
    pairs = zip(results[ours], results[other], strict=True)
    return median(figure(left) / figure(right) for left, right in pairs)


class Page:
    """The lines of RESULTS.md, printed as they come."""

    def __init__(self):
        self.lines = []

    def add(self, *lines):
        self.lines += lines
        print(*lines, sep="\n", flush=True)

    def comparison(self, title, results, target):
        self.add(f"## {title}", "")
        self.add(
            "| server | confirmed messages/s | ratio to fastwebsockets | server CPU per message "
            "| client CPU per message | bottleneck |",
            "|---|---|---|---|---|---|",
        )
        for name, rows in results.items():
            bottlenecks = [row["bottleneck"] for row in rows]
            self.add(
                f"| {name} | {median(map(rate, rows)):,.0f} "
                f"| {ratio(results, name, 'fastwebsockets', rate):.2f} "
                f"| {median(cpu_us(row, 'server') for row in rows):.3f} µs "
                f"| {median(cpu_us(row, 'client') for row in rows):.3f} µs "
                f"| {statistics.mode(bottlenecks)} |"
            )
        ours = ratio(results, "tidewire", "fastwebsockets", rate)
        cpu = ratio(results, "fastwebsockets", "tidewire", lambda row: cpu_us(row, "server"))
        reached = "reached" if ours >= target else "not reached"
        self.add(
            "",
            f"Target: at least {target} times fastwebsockets. Measured: {ours:.2f} times ({reached}); "
            f"fastwebsockets spends {cpu:.2f} times the server CPU per message.",
            "",
        )


def compare_peers(page, mode, plans, rounds, seconds):
    """Each plan is (title, target ratio, flags of the bench)."""
    with contextlib.ExitStack() as stack:
        servers = [tidewire(mode)]
        stack.callback(servers[0].stop)
        for server in peers(mode):
            servers.append(server)
            stack.callback(server.stop)
        for title, target, flags in plans:
            flags = [*flags, "--connections", 100, "--duration-s", seconds]
            page.comparison(title, compare(servers, rounds, *flags), target)


def storms(page, rounds):
    page.add("## JWT handshakes", "", "| connections | handshakes/s | p99 | failed |", "|---|---|---|---|")
    for connections in (1000, 10000):
        rows = []
        for _ in range(rounds):
            server = tidewire("sink")
            rows += bench(server, "--test", "connection-storm", "--connections", connections)
            server.stop()
        page.add(
            f"| {connections:,} | {median(map(rate, rows)):,.0f} "
            f"| {median(row['latency_us']['p99'] for row in rows) / 1000:.2f} ms "
            f"| {sum(row['failed'] for row in rows)} |"
        )
    page.add("", "Target: at least 20,000 a second on one core.", "")


def pings(page, rounds):
    page.add(
        "## Application pings, all connections at once",
        "",
        "| connections | round trips/s | mean | p99 / mean | max / mean |",
        "|---|---|---|---|---|",
    )
    for connections in (1000, 10000):
        rows = []
        for _ in range(rounds):
            server = tidewire("sink")
            rows += bench(server, "--test", "ping-latency", "--connections", connections)
            server.stop()
        latencies = [row["latency_us"] for row in rows]
        page.add(
            f"| {connections:,} | {median(map(rate, rows)):,.0f} "
            f"| {median(latency['mean'] for latency in latencies) / 1000:.2f} ms "
            f"| {median(latency['p99'] / latency['mean'] for latency in latencies):.2f} "
            f"| {median(latency['max'] / latency['mean'] for latency in latencies):.2f} |"
        )
    page.add("", "Target: p99 at most twice the mean, maximum at most five times.", "")


def idle_memory(page):
    """Resident memory of the server's process with 10,000 idle sessions."""
    page.add("## Idle memory", "", "| | empty server | per idle connection | target |", "|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = (str(pathlib.Path(folder, name)) for name in ("cert.pem", "key.pem"))
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
            + ["-nodes", "-keyout", key, "-out", certificate, "-days", "30"]
            + ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
            check=True,
            capture_output=True,
        )
        tls = ["--tls-certificate", certificate, "--tls-key", key]
        for name, flags, bench_flags, target in (
            ("plain", [], [], "4 KB"),
            ("TLS", tls, ["--insecure"], "24 KB"),
        ):
            server = tidewire("sink", *flags)
            empty = server.resident_bytes()
            hold = ["--test", "sustained-hold", "--connections", 10000, "--hold-s", 12]
            row = bench(server, *hold, *bench_flags)[0]
            server.stop()
            each = row["memory"]["per_connection_bytes"]
            page.add(f"| {name} | {empty / 1e6:.1f} MB | {each / 1000:.2f} KB | {target} |")
    page.add("", "Target for the empty server: 12 MB.", "")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each server")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one measurement")
    parser.add_argument("--only", choices=["receive", "echo", "storm", "ping", "memory"], nargs="*")
    options = parser.parse_args()
    wanted = options.only or ["receive", "echo", "storm", "ping", "memory"]
    page = Page()
    page.add(
        "# Tidewire beside its peers",
        "",
        f"Measured {datetime.date.today()} by `make bench-peers` on {cpu_name()}, "
        f"{os.cpu_count()} cores, Linux {platform.release()}: the server pinned to one core, the load "
        f"generator to another, {options.rounds} interleaved rounds of {options.seconds} s, medians. The "
        "machine is shared, so ratios within a run count, not absolute figures of different runs. "
        "Tidewire checks a JWT per session and runs with its limits and counters on; the others serve "
        "plain WebSocket. A message is confirmed when the server has proved that it read it.",
        "",
    )
    if "receive" in wanted:
        plans = [
            ("Receive, 175 B text, 100 connections", 2.2, ["--test", "throughput"]),
            ("Receive, 1 KB", 3, ["--test", "size-matrix", "--payload-bytes", 1024]),
            ("Receive, 16 KB", 3, ["--test", "size-matrix", "--payload-bytes", 16384]),
        ]
        compare_peers(page, "sink", plans, options.rounds, options.seconds)
    if "echo" in wanted:
        plans = [
            ("Echo, 175 B, 64 in flight", 18, ["--test", "echo", "--in-flight", 64]),
            ("Echo, 175 B, one in flight", 1.1, ["--test", "echo", "--in-flight", 1]),
        ]
        compare_peers(page, "echo", plans, options.rounds, options.seconds)
    if "storm" in wanted:
        storms(page, options.rounds)
    if "ping" in wanted:
        pings(page, options.rounds)
    if "memory" in wanted:
        idle_memory(page)
    if not options.only:
        (ROOT / "bench/RESULTS.md").write_text("\n".join(page.lines))
        print("The results are in bench/RESULTS.md.")


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


if __name__ == "__main__":
    sys.exit(main())
