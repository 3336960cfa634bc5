#!/usr/bin/env python3
"""Cost of a question to a backend: CPU of the engine for each publication, with the event `publish` and without.

    bench/backend_hop.py [--rounds N] [--seconds S]

The backend is `tidewire test-server`, which answers at once. Engine, backend and generator share the cores of this
machine, so the rates say little; the CPU of the engine for each publication is what carries over. Rounds with and
without the backend are interleaved; medians are printed.
"""

import argparse
import json
import pathlib
import secrets
import statistics
import subprocess
import tempfile

from scale_out import TIDEWIRE, Process, free_port, wait_for_port

CONNECTIONS = 64
MESSAGE = '{"t":"publish_request","cid":"{{seq}}","p":{"topic":"a","type":"x","payload":{"n":1}}}'


def publish(flags, seconds):
    """The rate, and the CPU of the engine for each publication in microseconds."""
    port = free_port()
    serve = ["serve", "--no-auth", "--topics-open", "--shards", 1, "--rate-limit-capacity", 0]
    with Process(TIDEWIRE, *serve, "--listen", f"127.0.0.1:{port}", *flags) as engine:
        wait_for_port(port)
        load = [TIDEWIRE, "load", f"ws://127.0.0.1:{port}/ws", "--message", MESSAGE, "--reply", "field:cid"]
        load += ["-c", CONNECTIONS, "-d", seconds, "-t", 1, "--json"]
        before_s = engine.cpu_s()
        done = subprocess.run([*map(str, load)], capture_output=True, text=True)
        cpu_s = engine.cpu_s() - before_s
    result = json.loads(done.stdout)["results"][0]
    if result["verdict"] == "failed":
        raise SystemExit(f"{flags}: {result.get('notes')}")
    rate_per_s = result["rate_per_s"]
    return rate_per_s, cpu_s / (rate_per_s * seconds) * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    arguments = parser.parse_args()
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        secret = pathlib.Path(folder, "secret")
        secret.write_text(secrets.token_hex(32))
        asking = ["--backend", f"http://127.0.0.1:{port}/", "--backend-events", "publish"]
        asking += ["--backend-secret-file", secret]
        with Process(TIDEWIRE, "test-server", "--port", port, "--error-status", 204, "--body-bytes", 0, "--shards", 1):
            wait_for_port(port)
            figures = {"without": [], "with": []}
            for _ in range(arguments.rounds):
                figures["without"].append(publish([], arguments.seconds))
                figures["with"].append(publish(asking, arguments.seconds))
    for name, rounds in figures.items():
        rate, cpu_us = (statistics.median(values) for values in zip(*rounds, strict=True))
        print(f"{name:8} a backend: {rate:10,.0f} publications/s, {cpu_us:6.1f} us of the engine's CPU for each")
    pairs = zip(figures["with"], figures["without"], strict=True)
    hop_us = statistics.median(asked[1] - plain[1] for asked, plain in pairs)
    print(f"the hop: {hop_us:.1f} us of the engine's CPU (median of {arguments.rounds} pairs; at most 25 wanted)")


if __name__ == "__main__":
    main()
