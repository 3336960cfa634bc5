#!/usr/bin/env python3
"""CPU of each Redis for a publication when 1, 2 or 4 of them share the topics.

    bench/partitions.py [--rounds N] [--seconds S] [--rate R] [--json FILE]

One server publishes to 100 topics with history, as fast as it can and R times a second. What counts is the busiest Redis: its
CPU time for a publication says how much more load the cluster can take. CPU times do not depend on how many cores there are
for the processes to share. The last rows have a client that subscribes to all topics by a pattern. Rounds are
interleaved, medians are printed.
"""

import argparse
import base64
import contextlib
import json
import os
import pathlib
import socket
import struct
import threading

import scale_out
from reports.sections import Sections, of

# Name, brokers, partitions.
LAYOUTS = [
    ("1 Redis", 1, 1),
    ("1 Redis, 4 partitions", 1, 4),
    ("2 Redis", 2, 2),
    ("4 Redis", 4, 4),
]
HEAD = ["busiest Redis, µs of CPU", "to one Redis", "all Redis", "link"]


def subscribe_to_all(port):
    """A client that receives all publications, and does nothing with them."""
    stream = socket.create_connection(("127.0.0.1", port))
    key = base64.b64encode(os.urandom(16)).decode()
    stream.sendall(
        f"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
    )
    payload = {"action": "subscribe", "topics": ["h.>"]}
    text = json.dumps({"t": "subscription_update", "p": payload}).encode()
    # A mask of zeros leaves the text as it is.
    stream.sendall(struct.pack(">BB4x", 0x81, 0x80 | len(text)) + text)
    has_subscribed = threading.Event()

    def drain():
        with contextlib.suppress(OSError):
            while data := stream.recv(1 << 20):
                if b"success_topics" in data:
                    has_subscribed.set()

    threading.Thread(target=drain, daemon=True).start()
    if not has_subscribed.wait(10):
        raise SystemExit("no answer to the subscription")
    return stream


def started(count, stack):
    brokers = [scale_out.redis() for _ in range(count)]
    for _, process in brokers:
        stack.enter_context(process)
    return brokers


def measure_inside(count, partitions, seconds, rate):
    with contextlib.ExitStack() as stack:
        more = [partitions, *([rate] if rate else [])]
        return scale_out.measure_inside(started(count, stack), "history", seconds, *more)


def measure_with_subscriber(count, partitions, seconds, rate):
    with contextlib.ExitStack() as stack:
        brokers = started(count, stack)
        urls = ",".join(f"redis://127.0.0.1:{port}" for port, _ in brokers)
        port, server = scale_out.server(urls, "--broker-partitions", partitions)
        stack.enter_context(server)
        stack.enter_context(subscribe_to_all(port))

        def cpu_s():
            return server.cpu_s("tidewire-broker"), *(process.cpu_s() for _, process in brokers)

        before = cpu_s()
        result = scale_out.publish(port, "h.{{rand:1:100}}", 50, 16, seconds, rate)
        after = cpu_s()
    published = result["rate_per_s"] * seconds
    link, *each = ((b - a) * 1e6 / published for a, b in zip(before, after))
    return {"rate": result["rate_per_s"], "link_us": link, "redis_us": sum(each), "busiest_us": max(each)}


def add(sections, title, rows):
    sections.table(title, "layout", "rate", *HEAD)
    one = next(iter(rows.values()))
    for name, runs in rows.items():
        shares = [run["busiest_us"] / first["busiest_us"] for run, first in zip(runs, one, strict=True)]
        figures = [of("us", (run[key] for run in runs)) for key in ("busiest_us", "redis_us", "link_us")]
        sections.row(name, of("per_s", (run["rate"] for run in runs)), figures[0], of("ratio", shares), *figures[1:])
    sections.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rate", type=int, default=20_000)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    kinds = [
        ("as fast as it can", measure_inside, None),
        (f"{arguments.rate:,} per second", measure_inside, arguments.rate),
        (f"{arguments.rate:,} per second, a subscriber of `h.>`", measure_with_subscriber, arguments.rate),
    ]
    tables = {title: {name: [] for name, *_ in LAYOUTS} for title, *_ in kinds}
    for _ in range(arguments.rounds):
        for title, measure, rate in kinds:
            for name, count, partitions in LAYOUTS:
                tables[title][name].append(measure(count, partitions, arguments.seconds, rate))
    sections = Sections()
    for title, rows in tables.items():
        add(sections, f"Partitions: {title}", rows)
    if arguments.json:
        sections.write(arguments.json)


if __name__ == "__main__":
    main()
