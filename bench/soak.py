"""Lets thousands of clients of every kind loose on a server, and looks whether it is the same afterwards.

    make soak                     10 minutes, 2,000 clients
    bench/soak.py --seconds 60 --clients 500

The clients connect, subscribe at random, publish, recover, wait without reading, break the protocol, and vanish
without a word. It passes if the server still serves, if no client was refused what it may do, and if memory and
open files are, at the end of the load, no more than at its end of the first third, and after the load as before it.
"""

import argparse
import asyncio
import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys
import time
import urllib.request

import websockets
from websockets.asyncio.client import connect

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
TOPICS = [f"news.{n}" for n in range(20)] + [f"room.{n}" for n in range(20)] + ["busy.a"]
# What the allocator keeps and the tables that have grown count for nothing: it is the slope that tells.
MEMORY_SLACK_BYTES = 48 << 20
FILES_SLACK = 16


class Failed(Exception):
    """Something that a well-behaved client may not meet."""


def message(t, **payload):
    return json.dumps({"t": t, "p": payload})


class Soak:
    def __init__(self, url, stop_at):
        self.url = url
        self.stop_at = stop_at
        self.random = random.Random(7)
        self.counts = dict.fromkeys(("sessions", "received", "recovered", "pings"), 0)
        self.failures = []

    def is_over(self):
        return time.monotonic() >= self.stop_at

    async def client(self, number):
        """One client for the whole time: session after session of random kinds."""
        await asyncio.sleep(self.random.random() * 10)
        kinds = [self.reader, self.reader, self.reader, self.publisher, self.stalled, self.rude, self.vanishing]
        memory = {}
        while not self.is_over():
            kind = kinds[number % len(kinds)]
            try:
                await kind(memory)
                self.counts["sessions"] += 1
            except Failed as failure:
                self.failures.append(f"{kind.__name__}: {failure}")
            except (OSError, websockets.WebSocketException, asyncio.TimeoutError):
                # Whoever is slow or rude is cut off; the others try again.
                if kind in (self.reader, self.publisher) and not self.is_over():
                    self.counts["lost"] = self.counts.get("lost", 0) + 1
            await asyncio.sleep(self.random.random() * 2)

    async def open(self):
        socket = await connect(self.url, compression=None, ping_interval=None, max_queue=None)
        ready = json.loads(await socket.recv())
        if ready["t"] != "server_ready":
            raise Failed(f"the first message is {ready['t']}")
        return socket

    async def reader(self, memory):
        """Subscribes, reads in order, and recovers what the session before had left."""
        async with await self.open() as socket:
            topics = self.random.sample(TOPICS, 3)
            known = {topic: memory[topic] for topic in topics if topic in memory}
            await socket.send(message("subscription_update", action="subscribe", topics=topics,
                                      recover=True, recovery=known, overload="drop_oldest"))
            until = time.monotonic() + self.random.uniform(2, 20)
            while time.monotonic() < until and not self.is_over():
                try:
                    received = json.loads(await asyncio.wait_for(socket.recv(), 1))
                except asyncio.TimeoutError:
                    self.counts["pings"] += 1
                    await socket.send(message("ping"))
                    continue
                self.take(received, memory)
            await socket.send(message("subscription_update", action="unsubscribe", topics=topics))

    def take(self, received, memory):
        payload = received.get("p") or {}
        if received["t"] == "subscription_update":
            for topic, told in payload.get("recovery", {}).items():
                if told["recovered"]:
                    self.counts["recovered"] += 1
                    memory[topic]["left"] = told["count"]
                else:
                    memory[topic] = {"epoch": told["epoch"], "offset": told["offset"] - told["count"]}
        elif received["t"] == "publication_gap":
            memory[payload["topic"]] = {"epoch": payload["epoch"], "offset": payload["to"]}
        elif received["t"] == "said":
            self.counts["received"] += 1
            if "o" in received:
                place = memory[received["tp"]]
                expected = (place["epoch"], place["offset"] + 1)
                if (received["e"], received["o"]) != expected:
                    raise Failed(f"{received['tp']}: {received['e']}:{received['o']} instead of {expected}")
                place["offset"] += 1
        elif received["t"] == "error":
            raise Failed(payload["message"])

    async def publisher(self, _memory):
        async with await self.open() as socket:
            for number in range(self.random.randrange(5, 60)):
                topic = "busy.a" if number % 3 == 0 else self.random.choice(TOPICS)
                payload = {"n": number, "x": "x" * self.random.randrange(400)}
                await socket.send(message("publish_request", topic=topic, type="said", payload=payload))
                await asyncio.sleep(self.random.random())
                if self.is_over():
                    return

    async def stalled(self, _memory):
        """Wants the busiest topic and reads nothing."""
        socket = await self.open()
        policy = self.random.choice(["disconnect", "conflate", "drop_oldest"])
        await socket.send(message("subscription_update", action="subscribe", topics=["busy.a", "news.>"],
                                  overload=policy))
        socket.transport.pause_reading()
        await asyncio.sleep(self.random.uniform(5, 30))
        socket.transport.abort()

    async def rude(self, _memory):
        """Says what is none of the protocol, or breaks off in the middle of it."""
        host, port = self.url.removeprefix("ws://").rstrip("/ws").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = "GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        noise = self.random.randbytes(self.random.randrange(200))
        writer.write((head + key).encode()[: self.random.randrange(40, 400)] + noise)
        await writer.drain()
        await asyncio.sleep(self.random.uniform(0, 3))
        if self.random.random() < 0.5:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(1, 13, linger)
        writer.close()
        await asyncio.wait_for(reader.read(), 5)

    async def vanishing(self, _memory):
        socket = await self.open()
        await socket.send(message("subscription_update", action="subscribe", topics=self.random.sample(TOPICS, 8),
                                  presence={"mood": "short"}))
        await asyncio.sleep(self.random.uniform(0, 4))
        socket.transport.abort()


class Server:
    def __init__(self):
        history = ["--history", "news.>=100", "--presence", "room.*"]
        limits = ["--rate-limit-capacity", "1000000", "--rate-limit-refill-per-s", "1000000"]
        command = [TARGET / "release/tidewire", "serve", "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"]
        command += ["--no-auth", "--topics-open", *history, *limits]
        self.process = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip().removeprefix("listening on ")
        self.ops = self.process.stdout.readline().strip().removeprefix("operations on ")
        if "://" not in self.url:
            self.url = f"ws://{self.url}/ws"

    def memory_bytes(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:"))

    def files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def total(self):
        with urllib.request.urlopen(f"{self.ops}/stats", timeout=10) as answer:
            return json.load(answer)["total"]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)


async def watch(server, seconds, samples):
    while True:
        samples.append((time.monotonic(), server.memory_bytes(), server.files()))
        await asyncio.sleep(seconds / 60)


async def run(options, server):
    samples = []
    soak = Soak(server.url, time.monotonic() + options.seconds)
    watcher = asyncio.create_task(watch(server, options.seconds, samples))
    await asyncio.gather(*(soak.client(number) for number in range(options.clients)))
    watcher.cancel()
    return soak, samples


def settled(server):
    """The memory and the files that are left when all clients have gone."""
    for _ in range(150):
        total = server.total()
        if not total["connections_open"] and not total["topics"]:
            return total
        time.sleep(0.2)
    raise SystemExit(f"sessions or topics are left: {total['connections_open']}, {total['topics']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--clients", type=int, default=2000)
    options = parser.parse_args()
    server = Server()
    files_before = server.files()
    soak, samples = asyncio.run(run(options, server))
    total = settled(server)
    files_after, memory_after = server.files(), server.memory_bytes()
    server.stop()
    third = [memory for _, memory, _ in samples[len(samples) // 4 : len(samples) // 2]]
    last = [memory for _, memory, _ in samples[-len(samples) // 4 :]]
    print(f"sessions {total['handshakes_completed']:,}, publications {total['publications_received']:,}, "
          f"deliveries {total['deliveries']:,}, dropped {total['publications_dropped']:,}, "
          f"recoveries {total['recoveries_complete']:,} complete and {total['recoveries_incomplete']:,} not, "
          f"cut off {total['outbox_overflows']:,}; clients: {soak.counts}")
    print(f"memory: at most {max(third) / 1e6:.1f} MB in the second quarter, {max(last) / 1e6:.1f} MB in the last, "
          f"{memory_after / 1e6:.1f} MB after; files: {files_before} before, {files_after} after")
    for failure in soak.failures[:20]:
        print(failure)
    failed = bool(soak.failures) or max(last) > max(third) + MEMORY_SLACK_BYTES
    failed |= files_after > files_before + FILES_SLACK
    print("soak: failed" if failed else "soak: passed")
    sys.exit(failed)


if __name__ == "__main__":
    main()
