#!/usr/bin/env python3
"""Cost of topics that servers share: CPU of the engine, its link and Redis for each acknowledged publication.

    bench/scale_out.py [--rounds N] [--seconds S] [--json FILE]

Everything runs on this machine. The rates say what two shared cores give to generator, server and Redis together; the
CPU for each publication is what carries over to another machine. Rounds are interleaved, medians are printed.
"""

import argparse
import json
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time

from reports.sections import Sections, of

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIDEWIRE = ROOT / "target/release/tidewire"
INSIDE = ROOT / "target/release/examples/cluster_publish"
SCRIPT = ROOT / "target/release/examples/publish_cost"
SOCKET_IO = ROOT / "bench/peers/socketio"
PAYLOAD = "x" * 150
TICK_S = 0.01


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_port(port):
    end = time.monotonic() + 20
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    raise SystemExit(f"nothing listens on port {port}")


class Process:
    """A program that ends with the block."""

    def __init__(self, *command, stdout=subprocess.DEVNULL):
        self.process = subprocess.Popen(
            [*map(str, command)], stdout=stdout, stderr=subprocess.DEVNULL, text=True
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def cpu_s(self, thread=None):
        """CPU time so far, of one of its threads or of all."""
        total = 0.0
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            if thread is None or (task / "comm").read_text().strip() == thread:
                fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
                total += (int(fields[11]) + int(fields[12])) * TICK_S
        return total


def redis(durable=False):
    port = free_port()
    folder = tempfile.mkdtemp()
    flags = ["--appendonly", "yes", "--appendfsync", "always"] if durable else []
    process = Process("redis-server", "--port", port, "--save", "", "--dir", folder, *flags)
    wait_for_port(port)
    return port, process


def server(broker, *more):
    port, ops = free_port(), free_port()
    flags = [*(["--broker", broker] if broker else []), *more]
    process = Process(
        TIDEWIRE, "serve", "--no-auth", "--topics-open", "--shards", 1, "--app", "sink",
        "--rate-limit-capacity", 0, "--history", "h.>=100", "--log-level", "error",
        "--listen", f"127.0.0.1:{port}", "--ops-listen", f"127.0.0.1:{ops}", *flags,
    )  # fmt: skip
    wait_for_port(ops)
    end = time.monotonic() + 20
    while time.monotonic() < end and not is_ready(ops):
        time.sleep(0.02)
    return port, process


def is_ready(ops):
    with socket.create_connection(("127.0.0.1", ops)) as stream:
        stream.sendall(b"GET /ready HTTP/1.0\r\nHost: localhost\r\n\r\n")
        return b" 200 " in stream.recv(64)


def publish(port, topic, connections, in_flight, seconds, rate=None):
    """Acknowledged publications: rate and latency. With a rate they come evenly, however long the answers take."""
    payload = {"topic": topic, "type": "x", "payload": {"pad": PAYLOAD}}
    message = {"t": "publish_request", "cid": "{{seq}}", "p": payload}
    with tempfile.TemporaryDirectory() as out:
        command = [
            TIDEWIRE, "load", f"ws://127.0.0.1:{port}/ws", "--message", json.dumps(message),
            "--reply", "field:cid", "-c", connections, "-p", in_flight, "-d", seconds,
            "--threads", 1, "--out", out, "--quiet", *(["--rate-per-s", rate] if rate else []),
        ]  # fmt: skip
        run = subprocess.run([*map(str, command)], capture_output=True, text=True)
        report = pathlib.Path(out, "report.json")
        if not report.exists():
            raise SystemExit(run.stderr or run.stdout)
        result = json.loads(report.read_text())["results"][0]
    if result["verdict"] == "failed":
        raise SystemExit(f"{topic}: {result.get('notes')}")
    return result


def measure(broker_port, broker, topic, connections, in_flight, seconds, rate=None):
    port, process = server(f"redis://127.0.0.1:{broker_port}" if broker_port else None)
    with process:
        before = process.cpu_s(), process.cpu_s("tidewire-broker"), broker.cpu_s() if broker else 0
        result = publish(port, topic, connections, in_flight, seconds, rate)
        after = process.cpu_s(), process.cpu_s("tidewire-broker"), broker.cpu_s() if broker else 0
    count = result["rate_per_s"] * seconds
    engine, link, redis_cpu = ((b - a) * 1e6 / count for a, b in zip(before, after))
    return {
        "rate": result["rate_per_s"],
        "p50_us": result["latency_us"]["p50"],
        "p99_us": result["latency_us"]["p99"],
        "engine_us": engine - link,
        "link_us": link,
        "redis_us": redis_cpu,
    }


def measure_inside(brokers, kind, seconds, *more):
    """The server publishes by itself, as Socket.IO's does, but each publication is acknowledged. `brokers` is a list of
    pairs: port and process. `more` is the number of partitions, and then the rate."""
    urls = ",".join(f"redis://127.0.0.1:{port}" for port, _ in brokers)

    def cpu_s():
        return process.cpu_s(), process.cpu_s("tidewire-broker"), *(broker.cpu_s() for _, broker in brokers)

    with Process(INSIDE, urls, seconds, kind, *more, stdout=subprocess.PIPE) as process:
        output = process.process.stdout
        if output.readline() != "ready\n":
            raise SystemExit(f"{INSIDE} did not reach Redis")
        before = cpu_s()
        # Just before its end, while its threads are there.
        measured_s = seconds - 0.1
        time.sleep(measured_s)
        after = cpu_s()
        rate = float(output.readline())
    engine, link, *each = ((b - a) * 1e6 / (rate * measured_s) for a, b in zip(before, after))
    return {
        "rate": rate, "engine_us": engine - link, "link_us": link, "redis_us": sum(each), "busiest_us": max(each),
    }  # fmt: skip


def script_alone(publications=50_000):
    """Of each kind of `publish_cost` the rate and the microseconds of Redis; it starts a Redis of its own."""
    run = subprocess.run([SCRIPT, str(publications), "1"], capture_output=True, text=True, check=True)
    rows = re.findall(r"^(\S.*\S) +(\d+) /s +([\d.]+) us", run.stdout, re.MULTILINE)
    return {name: (float(rate), float(cpu_us)) for name, rate, cpu_us in rows}


def redis_alone(port, *flags):
    """The figures of `redis-benchmark`: operations per second, and the median latency in microseconds."""
    command = ["redis-benchmark", "-p", port, "--csv", *flags]
    run = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True)
    row = run.stdout.strip().splitlines()[-1].replace('"', "").split(",")
    return float(row[1]), float(row[4]) * 1000


def socket_io(port, kind, seconds, broker):
    """The rate at which a Socket.IO server sends to Redis, unacknowledged; see `emit.mjs`."""
    before = broker.cpu_s()
    run = subprocess.run(
        ["node", "emit.mjs", str(port), kind, str(seconds)], cwd=SOCKET_IO, capture_output=True, text=True, check=True
    )
    result = json.loads(run.stdout)
    # Half a second before the measurement is the same work.
    redis_us = (broker.cpu_s() - before) * 1e6 / (result["rate_per_s"] * (seconds + 0.5))
    return {"rate": result["rate_per_s"], "engine_us": result["cpu_us"], "redis_us": redis_us}


HALF = "Redis, history, half of that rate"

# Name, whether there is a broker, whether it writes to disk first, topic, connections, in flight.
ROWS = [
    ("no broker, history", False, False, "h.{{rand:1:100}}", 50, 16),
    ("Redis, history", True, False, "h.{{rand:1:100}}", 50, 16),
    ("Redis, no history", True, False, "plain.{{rand:1:100}}", 50, 16),
    ("Redis, history, appendfsync always, 1,000 publishers", True, True, "h.{{rand:1:100}}", 1000, 1),
    ("Redis, history, 1,000 publishers", True, False, "h.{{rand:1:100}}", 1000, 1),
    ("Redis, history, one at a time", True, False, "h.a", 1, 1),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    rows = {name: [] for name, *_ in ROWS}
    rows[HALF] = []
    inside = {"history": [], "plain": []}
    scripts = {}
    peers = {"pubsub": [], "streams": []}
    limits = {"PUBLISH, pipeline of 64": [], "XADD, pipeline of 64": [], "PING, one at a time": []}
    for _ in range(arguments.rounds):
        port, process = redis()
        with process:
            xadd = ["XADD", "s", "MAXLEN", "~", 100, "*", "d", PAYLOAD]
            limits["PUBLISH, pipeline of 64"].append(
                redis_alone(port, "-P", 64, "-n", 500_000, "PUBLISH", "c", PAYLOAD))
            limits["XADD, pipeline of 64"].append(redis_alone(port, "-P", 64, "-n", 300_000, *xadd))
            limits["PING, one at a time"].append(redis_alone(port, "-c", 1, "-n", 20_000, "PING"))
        for name, measured in script_alone().items():
            scripts.setdefault(name, []).append(measured)
        for name, is_shared, durable, topic, connections, in_flight in ROWS:
            if not is_shared:
                rows[name].append(measure(None, None, topic, connections, in_flight, arguments.seconds))
                continue
            port, process = redis(durable)
            with process:
                rows[name].append(
                    measure(port, process, topic, connections, in_flight, arguments.seconds))
        port, process = redis()
        with process:
            # Of the slowest run, so that a busy machine keeps it.
            half = min(run["rate"] for run in rows["Redis, history"]) / 2
            rows[HALF].append(
                measure(port, process, "h.{{rand:1:100}}", 50, 16, arguments.seconds, round(half)))
        for kind, measured in inside.items():
            port, process = redis()
            with process:
                measured.append(measure_inside([(port, process)], kind, arguments.seconds))
        for kind, measured in peers.items():
            port, process = redis()
            with process:
                measured.append(socket_io(port, kind, arguments.seconds, process))
    storms = ""
    for clients, topics in ((10_000, 100_000), (0, 1_000_000)):
        command = [sys.executable, ROOT / "bench/scale_out_storms.py", "--clients", str(clients), "--topics", str(topics)]
        storms += subprocess.run(command, capture_output=True, text=True, check=True).stdout
    sections = Sections()
    add_tables(sections, limits, scripts, rows, inside, peers, storms)
    if arguments.json:
        sections.write(arguments.json)


def add_tables(sections, limits, scripts, rows, inside, peers, storms):
    sections.table("Redis alone, by redis-benchmark", "command", "rate", "p50")
    for name, measured in limits.items():
        rate, latency = zip(*measured)
        sections.row(name, of("per_s", rate), of("us", latency))
    sections.end()
    sections.table("Redis and one client that sends our script (publish_cost)", "kind", "rate", "Redis CPU each")
    for name, measured in scripts.items():
        rate, cpu_us = zip(*measured)
        sections.row(name, of("per_s", rate), of("us", cpu_us))
    sections.end()
    keys = {"p50": "p50_us", "p99": "p99_us", "engine CPU each": "engine_us", "link": "link_us", "Redis": "redis_us"}
    sections.table("Publications of clients", "load", "rate", *keys)
    for name, runs in rows.items():
        sections.row(name, of("per_s", of_key(runs, "rate")), *(of("us", of_key(runs, key)) for key in keys.values()))
    sections.end(
        "One server with one event loop, its link, Redis and the generator share two cores. A publication has 175 bytes and "
        "counts when it was acknowledged. 100 topics; nobody subscribes."
    )
    sections.table("Publications from inside the server", "server", "rate", "server CPU each", "link", "Redis", "to pubsub", "to streams")
    for name, runs in [
        ("history", inside["history"]),
        ("no history", inside["plain"]),
        *((f"Socket.IO, {kind}", runs) for kind, runs in peers.items()),
    ]:
        ratios = (
            of("ratio", [run["rate"] / other["rate"] for run, other in zip(runs, peers[kind], strict=True)])
            for kind in ("pubsub", "streams")
        )
        cpu = (of("us", (run.get(key) for run in runs)) for key in ("engine_us", "link_us", "redis_us"))
        sections.row(name, of("per_s", of_key(runs, "rate")), *cpu, *ratios)
    sections.end(
        "To 100 topics in turn, without a client: ours (`cluster_publish`) with an acknowledgement of each and at most 800 that "
        "are not acknowledged, Socket.IO 4.8.1 with its Redis adapters (`bench/peers/socketio`) without.",
        "Storms (`bench/scale_out_storms.py`, once):",
        *storms.strip().splitlines(),
    )


def of_key(runs, key):
    return (run[key] for run in runs)


if __name__ == "__main__":
    main()
