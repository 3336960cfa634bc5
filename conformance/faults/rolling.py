#!/usr/bin/env python3
"""Restarts three servers one after the other under load: the clients for Rust, Python and TypeScript must lose nothing.

    conformance/faults/rolling-restart [--restarts N]

The clients follow two topics through a proxy that leads each connection to a server that runs. The publisher is a
Python client; each publication has an id, so that one whose answer was lost is published again. At the end each
follower must have received each publication once and in order. The longest pause between two publications is printed
for each.
"""

import argparse
import asyncio
import itertools
import json
import os
import pathlib
import random
import signal
import sys
import time

from clients import Publisher
from processes import Proxy, Redis, Server, folder_for_logs, until

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = os.environ.get("TIDEWIRE", ROOT / "target/release/tidewire")
TOPICS = ["t.tide", "t.wind"]
# A client whose session lasted less than 5 s does not trust the server's word alone and waits longer each time.
BETWEEN_S = 6
FOLLOWERS = {
    "Rust": [os.environ.get("FOLLOW", ROOT / "target/release/examples/follow")],
    "Python": [ROOT / "bindings/python/.venv/bin/python", HERE / "followers/follow.py"],
    "TypeScript": ["node", HERE / "followers/follow.mjs"],
}


class Balancer(Proxy):
    """Leads each connection to the next server that is up, as a load balancer does."""

    def __init__(self, servers):
        super().__init__(None)
        self.ports = itertools.cycle(servers)
        self.down = set()

    async def accept(self, reader, writer):
        server = next(self.ports)
        while server in self.down:
            server = next(self.ports)
        self.target = server.port
        await super().accept(reader, writer)


class Retrying(Publisher):
    """Publishes again, on the next connection, what got no answer."""

    async def talk(self):
        self.lost = [p for p in self.publications if p.outcome == "unknown"]
        await super().talk()

    async def send(self, kind, payload, cid=None):
        await super().send(kind, payload | {"id": cid}, cid)

    async def publish(self):
        for publication in self.lost:
            await self.room.acquire()
            self.open[publication.token] = publication
            payload = {"topic": publication.topic, "type": "x", "payload": {"n": publication.token}}
            await self.send("publish_request", payload, publication.token)
        await super().publish()


class Follower:
    """A client of this project as a process of its own, and when each of its publications came."""

    def __init__(self, language, url):
        self.language = language
        self.command = [*map(str, FOLLOWERS[language]), url, *TOPICS]
        self.events = []
        self.is_ready = asyncio.Event()
        self.last_at = None
        self.pause_max_s = 0

    async def run(self):
        self.process = await asyncio.create_subprocess_exec(*self.command, stdout=asyncio.subprocess.PIPE)
        async for line in self.process.stdout:
            event = json.loads(line)
            now = time.monotonic()
            if event["kind"] == "ready":
                self.is_ready.set()
            elif event["kind"] == "publication":
                if self.last_at:
                    self.pause_max_s = max(self.pause_max_s, now - self.last_at)
                self.last_at = now
            self.events.append(event)

    def received(self):
        return [e["payload"]["n"] for e in self.events if e["kind"] == "publication"]

    def faults(self, log):
        """The faults of its received messages, as sentences. `log` is the content of Redis, by topic."""
        told = [e["kind"] for e in self.events if e["kind"] in ("gap", "unrecovered")]
        faults = [f"{self.language} was told: {kind}" for kind in told]
        for topic, expected in log.items():
            got = [e for e in self.events if e.get("topic") == topic and e["kind"] == "publication"]
            got = [(e["epoch"], e["offset"], e["payload"]["n"]) for e in got]
            if got != expected:
                missing, more = set(expected) - set(got), len(got) - len(set(got))
                faults.append(
                    f"{self.language} on {topic}: {len(missing)} missing, {more} doubled, or out of order"
                )
        return faults


async def read_log(redis):
    from check import entry_of

    client = redis.client()
    log = {}
    for topic in TOPICS:
        log[topic] = [entry_of(*entry) for entry in await client.xrange(f"tw:{{0}}:t:{topic}")]
    await client.aclose()
    return log


async def roll(restarts):
    folder = folder_for_logs()
    redis = Redis(folder, "none")
    await redis.start()
    flags = ["--drain-timeout-ms", 2000, "--reconnect-spread-ms", 200]
    servers = [Server(n, [PROGRAM], redis, folder, flags) for n in range(3)]
    balancer = Balancer(servers)
    for part in (*servers, balancer):
        await part.start()
    for server in servers:
        await until(server.is_ready, f"/ready of server {server.number}")
    followers = [Follower(language, f"ws://127.0.0.1:{balancer.port}/ws") for language in FOLLOWERS]
    tasks = [asyncio.create_task(follower.run()) for follower in followers]
    try:
        for follower in followers:
            await asyncio.wait_for(follower.is_ready.wait(), 30)
        publisher = Retrying("p", [balancer_as_server(balancer)], random.Random(1), TOPICS, 0.002)
        tasks.append(asyncio.create_task(publisher.run()))
        for server in servers * restarts:
            await asyncio.sleep(BETWEEN_S)
            balancer.down.add(server)
            await server.kill(signal.SIGTERM)
            await server.start()
            await until(server.is_ready, f"/ready of server {server.number}")
            balancer.down.remove(server)
        await asyncio.sleep(1)
        publisher.is_publishing = False
        await until(lambda: is_settled(publisher), "the answers to the publisher")
        log = await read_log(redis)
        count = sum(map(len, log.values()))
        await until(lambda: have_all(followers, count), "all followers")
    finally:
        for task in tasks:
            task.cancel()
        for program in (*(f for f in followers if f.process), *servers, redis):
            program.process.kill()
    faults = [fault for follower in followers for fault in follower.faults(log)]
    tokens = {token for entries in log.values() for _, _, token in entries}
    faults += [f"{p.token} is not in Redis" for p in publisher.publications if p.token not in tokens]
    if len(tokens) != count:
        faults.append(f"{count - len(tokens)} publications are twice in Redis")
    return publisher, followers, faults


def balancer_as_server(balancer):
    class Address:
        url = f"ws://127.0.0.1:{balancer.port}/ws"

    return Address


async def is_settled(publisher):
    return all(p.outcome != "unknown" for p in publisher.publications)


async def have_all(followers, count):
    return all(len(follower.received()) >= count for follower in followers)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--restarts", type=int, default=1, help="how often each of the three servers is restarted"
    )
    options = parser.parse_args()
    publisher, followers, faults = asyncio.run(roll(options.restarts))
    print(f"{3 * options.restarts} restarts, {len(publisher.publications)} publications")
    print(f"  publisher: {publisher.connections} connections")
    for follower in followers:
        print(
            f"  {follower.language}: {len(follower.received())} received, pause {follower.pause_max_s * 1000:.0f} ms"
        )
    for fault in faults:
        print(f"  WRONG: {fault}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
