#!/usr/bin/env python3
"""Two storms over Redis: many clients of one topic come back, and many topics after a restart of Redis.

    bench/scale_out_storms.py [--clients N] [--topics N]

1. N clients have a position of one topic. They connect to a server with another subscriber of that topic, subscribe and
   recover, all at once. Printed: how many reads of Redis the server needed, and how long it took.
2. One client subscribes to N topics. Redis is killed and started again, empty. Printed: the time from the first answer
   of Redis until the client was told of every topic that it begins another epoch.
"""

import argparse
import base64
import json
import os
import socket
import struct
import tempfile
import threading
import time
import urllib.request

from scale_out import TIDEWIRE, Process, free_port, is_ready, wait_for_port

TIMEOUT_S = 120


class WebSocket:
    """A client that sends texts and reads whatever comes; frames of the server are never masked."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        self.stream = self.socket.makefile("rb")
        while self.stream.readline() not in (b"\r\n", b""):
            pass

    def send(self, message):
        data = json.dumps(message).encode()
        if len(data) < 126:
            length = bytes([0x81, 0x80 | len(data)])
        elif len(data) < 65536:
            length = struct.pack(">BBH", 0x81, 0xFE, len(data))
        else:
            length = struct.pack(">BBQ", 0x81, 0xFF, len(data))
        self.socket.sendall(length + bytes(4) + data)

    def receive(self):
        first, length = self.stream.read(2)
        if length == 126:
            (length,) = struct.unpack(">H", self.stream.read(2))
        elif length == 127:
            (length,) = struct.unpack(">Q", self.stream.read(8))
        data = self.stream.read(length)
        return json.loads(data) if first & 15 == 1 else {"t": None}

    def wait_for(self, kind):
        while (message := self.receive())["t"] != kind:
            pass
        return message["p"]

    def subscribe(self, topics, recovery):
        request = {"action": "subscribe", "topics": topics, "recover": True, "recovery": recovery}
        self.send({"t": "subscription_update", "p": request})


def server(broker_port):
    port, ops = free_port(), free_port()
    process = Process(
        TIDEWIRE, "serve", "--no-auth", "--topics-open", "--shards", 1, "--app", "sink", "--rate-limit-capacity", 0,
        "--history", ">=100", "--log-level", "error", "--connections-max", 40_000,
        "--subscriptions-per-connection-max", 1_000_000,
        "--subscription-bytes-per-connection-max", 1 << 30, "--subscription-bytes-per-owner-max", 1 << 30,
        "--listen", f"127.0.0.1:{port}", "--ops-listen", f"127.0.0.1:{ops}", "--broker", f"redis://127.0.0.1:{broker_port}",
    )  # fmt: skip
    wait_for_port(ops)
    end = time.monotonic() + 20
    while time.monotonic() < end and not is_ready(ops):
        time.sleep(0.02)
    return port, ops, process


def redis(port, folder):
    return Process("redis-server", "--port", port, "--save", "", "--dir", folder)


def reads(ops):
    with urllib.request.urlopen(f"http://127.0.0.1:{ops}/stats") as answer:
        return json.load(answer)["broker"]["counts"]["reads"]


def many_clients(count, broker_port):
    port, ops, process = server(broker_port)
    with process:
        first = WebSocket(port)
        first.subscribe(["a"], {})
        position = first.wait_for("subscription_update")["recovery"]["a"]
        for n in range(10):
            first.send({"t": "publish_request", "cid": str(n), "p": {"topic": "a", "type": "x", "payload": n}})
            first.wait_for("publish_response")
        clients = [WebSocket(port) for _ in range(count)]
        before, began = reads(ops), time.monotonic()
        since = {"epoch": position["epoch"], "offset": position["offset"]}
        for client in clients:
            client.subscribe(["a"], {"a": since})
        recovered = sum(client.wait_for("subscription_update")["recovery"]["a"]["count"] == 10 for client in clients)
        took = time.monotonic() - began
        print(
            f"{count:,} clients of one topic recover: {recovered:,} recovered, {reads(ops) - before} reads of Redis, {took:.2f} s"
        )


def many_topics(count, broker_port, folder, broker):
    port, ops, process = server(broker_port)
    with process:
        client = WebSocket(port)
        topics = [f"t{n}" for n in range(count)]
        began = time.monotonic()
        for start in range(0, count, 1000):
            client.subscribe(topics[start : start + 1000], {})
            answer = client.wait_for("subscription_update")
            assert not answer["failed_topics"], answer["failures"][0]
        print(f"{count:,} topics: subscribed for the first time in {time.monotonic() - began:.2f} s")
        told = set()

        def listen():
            while len(told) < count:
                message = client.receive()
                if message["t"] == "publication_gap":
                    told.add(message["p"]["topic"])

        listener = threading.Thread(target=listen)
        listener.start()
        broker.process.kill()
        broker.process.wait()
        with redis(broker_port, folder):
            wait_for_port(broker_port)
            began = time.monotonic()
            listener.join(TIMEOUT_S)
            print(f"{len(told):,} of {count:,} topics live again {time.monotonic() - began:.2f} s after Redis answered")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--topics", type=int, default=100_000)
    options = parser.parse_args()
    folder, port = tempfile.mkdtemp(), free_port()
    with redis(port, folder) as broker:
        wait_for_port(port)
        if options.clients:
            many_clients(options.clients, port)
        many_topics(options.topics, port, folder, broker)


if __name__ == "__main__":
    main()
