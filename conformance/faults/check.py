#!/usr/bin/env python3
"""Breaks a cluster of three servers and a Redis on purpose, and checks that its guarantees hold.

    conformance/faults/run [--rounds N] [--seed S] [--seconds T] [--only KIND] [--partitions N] [--other PROGRAM]

Each round starts Redis, three servers with a proxy before Redis each, publishers, and subscribers that connect again
and recover; members of a queue group share work. In the rounds `sentinel` the servers find Redis by a sentinel whose master
is replaced by a replica that lags; in the rounds `slot` in a cluster whose slots move while all servers know its masters, so
that nothing may be lost. With `--other` each start of a server takes the other of two programs, as in an upgrade. The clocks
of two servers are wrong by an hour. Faults come one after the other for T seconds. Then everything is healed, each topic gets one more
publication, and the records of all clients are compared with each other and with the stream in Redis, which a client
reads that this project did not write. The seed draws the faults; the timing is that of real processes.
"""

import argparse
import asyncio
import collections
import contextlib
import os
import pathlib
import random
import re
import shutil
import sys
import time

import faults
import invariants
import partitions
from clients import WORK, Member, Publisher, Subscriber
from places import Replicated, Slotted
from processes import Proxy, Redis, Server, folder_for_logs, until, wrong_clock

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("TIDEWIRE", ROOT / "target/release/tidewire")
TOPICS = [f"t.{name}" for name in ("tide", "wind", "ship", "port")]
PLACES = {"sentinel": Replicated, "slot": Slotted}
KINDS = ["none", "everysec", "always", *PLACES]
SLEEPY = "always"  # the rounds in which a server stops for longer than its lease lasts
MEMORY_MIB_MAX = 200
TOKEN = re.compile(rb'"n": "([^"]+)"')


class Cluster:
    """Redis, three servers, and the clients of a round."""

    def __init__(self, kind, draw, partition_count, programs):
        self.folder = folder_for_logs()
        self.partition_count = partition_count
        slots = partitions.slots(partition_count)
        self.place = PLACES[kind](self.folder, "everysec", slots) if kind in PLACES else None
        self.redis = self.place or Redis(self.folder, kind)
        self.draw = draw
        # Whether nothing that was acknowledged may be lost. An earlier version begins other epochs where a slot moves.
        self.is_durable = kind == "always" or (kind == "slot" and len(set(programs)) == 1)
        self.wrong = []
        self.asleep = None  # a server that no other fault concerns
        flags = ["--broker-wait-ms", 3000, "--broker-partitions", partition_count]
        flags += ["--broker-is-durable"] if kind == "always" else []
        self.proxies = [] if self.place else [Proxy(self.redis.port) for _ in range(3)]
        brokers = self.proxies or [self.place] * 3
        # One clock is right, one is an hour ahead, one an hour behind.
        clocks = [None, wrong_clock(1), wrong_clock(-1)]
        self.servers = [
            Server(n, programs, broker, self.folder, flags, clock)
            for n, (broker, clock) in enumerate(zip(brokers, clocks, strict=True))
        ]
        self.publishers = [Publisher(f"p{n}", self.servers, self.source(), TOPICS, 0.005) for n in range(6)]
        self.subscribers = [Subscriber(f"s{n}", self.servers, self.source(), TOPICS) for n in range(6)]
        self.members = [Member(f"m{n}", self.servers, self.source()) for n in range(3)]
        self.employer = Publisher("work", self.servers, self.source(), [WORK], 0.01)
        self.tasks = []

    def source(self):
        return random.Random(self.draw.random())

    @property
    def free_servers(self):
        return [server for server in self.servers if server is not self.asleep]

    @property
    def clients(self):
        return [*self.publishers, *self.subscribers, *self.members, self.employer]

    async def start(self):
        await self.redis.start()
        for part in (*self.proxies, *self.servers):
            await part.start()
        await self.all_ready()
        self.tasks = [asyncio.create_task(member.run()) for member in self.members]
        # The group begins with its first member.
        await until(self.has_members, "the members of the group")
        others = [client for client in self.clients if client not in self.members]
        self.tasks += [asyncio.create_task(client.run()) for client in others]
        self.tasks.append(asyncio.create_task(self.watch_memory()))

    async def all_ready(self):
        for server in self.servers:
            await until(server.is_ready, f"/ready of server {server.number}")

    async def watch_memory(self):
        while True:
            for server in self.servers:
                server.memory_max_mib = max(server.memory_max_mib, server.memory_mib())
            await asyncio.sleep(0.2)

    async def has_members(self):
        return all(member.is_in for member in self.members)

    async def ask_redis(self, *command):
        async with contextlib.aclosing(self.redis.client()) as client:
            return await client.execute_command(*command)

    async def come_to_rest(self):
        """Lets the publishers end, publishes once more to each topic, and waits until all subscribers have it."""
        for publisher in (*self.publishers, self.employer):
            publisher.is_publishing = False
        await until(self.is_answered, "the answers to the publishers")
        for publisher in self.publishers:
            publisher.is_wanted = False
            publisher.hop()
        last = {
            topic: Publisher(f"last-{topic}", self.servers, self.source(), [topic], 0.005, 1)
            for topic in TOPICS
        }
        for topic, publisher in last.items():
            self.publishers.append(publisher)
            self.tasks.append(asyncio.create_task(publisher.run()))
            await until(lambda p=publisher: has_acknowledged(p), f"the last publication to {topic}")
            publisher.is_publishing = False
            await until(lambda p=publisher: is_answered(p), f"the last answers on {topic}")
        log = await self.log()
        with contextlib.suppress(SystemExit):  # The checks name those who are not there.
            await until(lambda: is_at_rest(self.subscribers, log), "the subscribers")
        with contextlib.suppress(SystemExit):
            await until(self.is_work_done, "the work of the group")
        with contextlib.suppress(SystemExit):
            await until(self.is_presence_right, "presence")
        return log

    async def is_work_done(self):
        return not invariants.work_is_done(self.employer.publications, self.members, self.is_durable)

    async def is_presence_right(self):
        for subscriber in self.subscribers:
            await subscriber.ask_who()
        await asyncio.sleep(0.5)
        return not invariants.presence_is_right([subscriber.room for subscriber in self.subscribers])

    async def is_answered(self):
        return all([await is_answered(publisher) for publisher in (*self.publishers, self.employer)])

    async def log(self):
        """The streams of all topics, read by a client that knows nothing of this project."""
        log = {}
        for topic in TOPICS:
            slot = partitions.slot_of(topic, self.partition_count)
            async with contextlib.aclosing(self.redis.client(slot)) as client:
                entries = await client.xrange(partitions.stream_of(topic, self.partition_count))
                log[topic] = [entry_of(place, fields) for place, fields in entries]
        return log

    def last_words(self):
        """The ends of the logs of all parts, for a run that cannot go on."""
        words = []
        for log in sorted(self.folder.glob("*.log")):
            words += [f"{log}:", *log.read_text(errors="replace").splitlines()[-8:]]
        return "\n".join(words)

    async def stop(self):
        for client in self.clients:
            client.is_wanted = False
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for program in (*self.servers, self.redis):
            await program.kill()


async def has_acknowledged(publisher):
    return any(p.outcome == "acknowledged" for p in publisher.publications)


async def is_answered(publisher):
    return publisher.socket is None or not publisher.open


async def is_at_rest(subscribers, log):
    return not invariants.at_the_head([r for s in subscribers for r in s.received.values()], log)


def entry_of(place, fields):
    epoch, offset = place.decode().split("-")
    token = TOKEN.search(fields[b"d"]).group(1).decode()
    return f"{int(epoch):08x}", int(offset), token


async def round_of_faults(kind, seed, seconds, partition_count, programs):
    """One round: what was found wrong, and what happened, as a line."""
    draw = random.Random(f"{seed}-{kind}")
    cluster = Cluster(kind, draw, partition_count, programs)
    kinds = [*faults.OF_SERVERS, *([] if cluster.place else faults.GENTLE)]
    if cluster.place:
        kinds += 2 * [faults.move_slot if kind == "slot" else faults.move_broker]
    elif not cluster.is_durable:
        kinds += faults.HARSH
    done = collections.Counter()
    try:
        await cluster.start()
        if kind == SLEEPY:
            cluster.asleep = draw.choice(cluster.servers)
        sleep = asyncio.create_task(faults.outlive_lease(cluster)) if cluster.asleep else None
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            fault = draw.choice(kinds)
            done[fault.__name__] += 1
            with contextlib.suppress(*faults.IGNORED):
                await fault(cluster, draw)
            await asyncio.sleep(draw.uniform(0.05, 1.5))
        if sleep:
            done["outlive_lease"] += 1
            await sleep
        healed = time.monotonic()
        await cluster.all_ready()
        log = await cluster.come_to_rest()
        rest_s = time.monotonic() - healed
    except SystemExit:
        print(f"{kind}, seed {seed}: {dict(done)}\n{cluster.last_words()}", flush=True)
        raise
    finally:
        await cluster.stop()
    found = check(cluster, log)
    print(line(kind, seed, done, cluster, log, rest_s), flush=True)
    if found:
        print(f"  logs: {cluster.folder}", flush=True)
    else:
        shutil.rmtree(cluster.folder)
    return found


def check(cluster, log):
    received = [r for subscriber in cluster.subscribers for r in subscriber.received.values()]
    publications = [p for publisher in cluster.publishers for p in publisher.publications]
    rooms = [subscriber.room for subscriber in cluster.subscribers]
    return [
        *invariants.one_content(received, publications, log),
        *invariants.no_gap_without_report(received),
        *invariants.acknowledged_is_kept(publications, log, cluster.is_durable),
        *invariants.refused_is_nowhere(publications, received, log),
        *invariants.once(received, log, cluster.is_durable),
        *invariants.in_the_publishers_order(publications, log),
        *invariants.at_the_head(received, log),
        *invariants.presence_alternates(rooms),
        *invariants.presence_is_right(rooms),
        *invariants.work_is_done(cluster.employer.publications, cluster.members, cluster.is_durable),
        *invariants.work_is_told_to_repeat(cluster.members),
        *invariants.memory_is_bounded(cluster.servers, MEMORY_MIB_MAX),
        *cluster.wrong,
    ]


def line(kind, seed, done, cluster, log, rest_s):
    outcomes = collections.Counter(
        p.outcome for publisher in cluster.publishers for p in publisher.publications
    )
    gaps = sum(e[0] == "gap" for s in cluster.subscribers for r in s.received.values() for e in r.entries)
    connections = sum(client.connections for client in cluster.clients)
    epochs = sum(len({epoch for epoch, _, _ in entries}) for entries in log.values())
    memory = max(server.memory_max_mib for server in cluster.servers)
    return (
        f"{kind}, seed {seed}: {dict(done)}\n"
        f"  publications {dict(outcomes)}, in Redis {sum(map(len, log.values()))} in {epochs} epochs, gaps {gaps}, "
        f"connections {connections}, work {len(cluster.employer.publications)}, "
        f"at rest after {rest_s:.1f} s, memory at most {memory:.0f} MiB"
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=1, help="rounds of each kind")
    parser.add_argument(
        "--seed", type=int, default=1, help="of the first round; the next has the next number"
    )
    parser.add_argument("--seconds", type=float, default=20, help="how long faults come in each round")
    parser.add_argument(
        "--only", choices=KINDS, help="one kind of rounds instead of all: what appendfsync is, or where Redis is"
    )
    parser.add_argument("--partitions", type=int, default=1, help="partitions of the topics")
    parser.add_argument("--other", help="another version of the program, which each server alternates with")
    options = parser.parse_args()
    programs = [PROGRAM, options.other or PROGRAM]
    kinds = [options.only] if options.only else KINDS
    count = 0
    for seed in range(options.seed, options.seed + options.rounds):
        for kind in kinds:
            found = asyncio.run(
                round_of_faults(kind, seed, options.seconds, options.partitions, programs)
            )
            count += len(found)
            for fault in found[:20]:
                print(f"  WRONG: {fault}", flush=True)
    print(f"{options.rounds * len(kinds)} rounds, {count} faults found")
    sys.exit(1 if count else 0)


if __name__ == "__main__":
    main()
