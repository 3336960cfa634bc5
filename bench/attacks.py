"""Attacks of hostile clients: the messages that each of them sends. hostility.py measures what they do to others."""

import base64
import itertools
import json
import os
import re
import select
import socket
import ssl
import struct
import threading
import time
import zlib

ATTACK_S = 4.0

# Over TLS: what the clients use.
TLS = ssl.create_default_context()
TLS.check_hostname, TLS.verify_mode = False, ssl.CERT_NONE


class WebSocket:
    """As much of a WebSocket client as an attack needs."""

    def __init__(self, address, source="127.0.0.1"):
        self.socket = socket.create_connection(address, timeout=30, source_address=(source, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if address.is_tls:
            self.socket = TLS.wrap_socket(self.socket)
        key = base64.b64encode(os.urandom(16)).decode()
        authorization = f"Authorization: Bearer {address.token}\r\n" if address.token else ""
        self.socket.sendall(
            f"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n{authorization}\r\n".encode()
        )
        self.buffer = b""
        while b"\r\n\r\n" not in self.buffer:
            self.buffer += self.socket.recv(65536)
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        if b" 101 " not in head:
            raise ConnectionError(head.decode(errors="replace"))

    def send(self, message):
        text = json.dumps(message, separators=(",", ":")).encode()
        self.socket.sendall(frame(text))

    def wait_for(self, words):
        """Reads until these bytes have come."""
        while words not in self.buffer:
            more = self.socket.recv(1 << 20)
            if not more:
                raise ConnectionError("the server has closed the connection")
            self.buffer = self.buffer[-len(words) :] + more

    def take(self):
        """Reads and throws away whatever has come."""
        while select.select([self.socket], [], [], 0)[0]:
            if self.received() == b"":
                raise ConnectionError("the server has closed the connection")

    def received(self):
        """What has come; nothing at the end of the connection, None if it is only a record of TLS."""
        self.socket.setblocking(False)
        try:
            return self.socket.recv(1 << 20)
        except (ssl.SSLWantReadError, BlockingIOError):
            return None
        finally:
            self.socket.settimeout(30)


class Address(tuple):
    """Where a server listens, whether with TLS, and the token that its clients show, if they need one."""

    def __new__(cls, host, port, is_tls=False, token=None):
        address = super().__new__(cls, (host, port))
        address.is_tls, address.token = is_tls, token
        return address

    def __reduce__(self):
        return Address, (*self, self.is_tls, self.token)


def frame(payload, opcode=1):
    length = len(payload)
    if length < 126:
        head = struct.pack("!BB", 0x80 | opcode, 0x80 | length)
    elif length < 65536:
        head = struct.pack("!BBH", 0x80 | opcode, 0xFE, length)
    else:
        head = struct.pack("!BBQ", 0x80 | opcode, 0xFF, length)
    # A mask of zeros is as legal as any other.
    return head + b"\0\0\0\0" + payload


def subscribe(topics, **fields):
    return {"t": "subscription_update", "p": {"action": "subscribe", "topics": topics, **fields}}


def publish(topic, payload):
    return {"t": "publish_request", "p": {"topic": topic, "type": "x", "payload": payload}}


def batch(messages):
    return {"t": "batch", "p": {"messages": messages}}


def flood(client, messages):
    """Sends messages for as long as an attack lasts, reading what comes."""
    ends_at = time.monotonic() + ATTACK_S
    for message in messages:
        if time.monotonic() > ends_at:
            return
        try:
            client.send(message)
            client.take()
        except OSError:
            return


# The attacks. Each runs in a process of its own and ends by itself.

REGEXES = ["(?:a[ab]{10}|b[ab]{12}){2}c", "(?:b[ab]{9}|a[ab]{11}){2}c", "(?:a[ab]{8}|b[ab]{9}){3}c", "(a|b)*a[ab]{9}c"]
# The messages of that kind that the server accepts.
SMALL_REGEXES = ["(a|b)*a[ab]{4}c", "(b|a)*b[ab]{4}c", "(a|aa)+b$", "^(([a-z])+.)+[A-Z]"]


def costly_filter(number, regexes):
    conditions = [{"text": {"$regex": regex}} for regex in regexes]
    return {"$or": [*conditions, {"n": number}]}


def filters(address):
    """1,500 distinct filters of one connection, and 4 KiB texts published to them."""
    client = WebSocket(address)
    for regexes in (REGEXES, SMALL_REGEXES):
        requests = (subscribe(["public"], filter=costly_filter(n, regexes)) for n in range(40))
        flood(client, requests)
        client = WebSocket(address)
    requests = (subscribe([f"public.{n}"], filter=costly_filter(n, SMALL_REGEXES)) for n in range(1500))
    flood(client, requests)
    text = "ab" * 2000
    publications = (publish(f"public.{n % 1500}", {"text": text}) for n in range(20_000))
    flood(client, publications)


def filtered_recovery(address):
    """A small request for a long history through a costly filter."""
    client = WebSocket(address)
    for n in range(1000):
        client.send(publish("kept.a", {"text": "ab" * 2000, "n": n}))
    client.take()
    recovery = {"kept.a": {"epoch": "00000000", "offset": 0}}
    reader = WebSocket(address)
    reader.send(subscribe(["kept.a"]))
    time.sleep(0.3)
    found = re.search(rb'"epoch":"([0-9a-f]{8})"', reader.socket.recv(1 << 20))
    recovery["kept.a"]["epoch"] = found[1].decode() if found else "00000000"

    def requests():
        for n in range(1000):
            for regexes in (REGEXES, SMALL_REGEXES):
                fields = {"recover": True, "recovery": recovery, "filter": costly_filter(n, regexes)}
                yield subscribe(["kept.a"], **fields)
                yield {"t": "subscription_update", "p": {"action": "unsubscribe", "topics": ["kept.a"]}}

    flood(client, requests())


def long_recoveries(address):
    """The recovery of 20 topics with 1,000 kept publications each, again and again."""
    topics = [f"kept.{n}" for n in range(20)]
    publisher = WebSocket(address)
    for n in range(20_000):
        publisher.send(publish(topics[n % 20], {"n": n}))
        if n % 100 == 0:
            publisher.take()
    publisher.send({"t": "ping"})
    publisher.wait_for(b'"PONG"')
    reader = WebSocket(address)
    leave = {"t": "subscription_update", "p": {"action": "unsubscribe", "topics": topics}}
    flood(reader, (message for _ in range(1000) for message in (subscribe(topics, replay=1000), leave)))


def compile_filters(address):
    """Filters in batches, for topics to which this client has no access."""
    one = [subscribe(["forbidden.x"], filter=costly_filter(n, REGEXES)) for n in range(1000)]
    ends_at = time.monotonic() + ATTACK_S
    while time.monotonic() < ends_at:
        flood(WebSocket(address), [batch(one)])
        time.sleep(0.2)


def deep_patterns(address):
    """10,000 patterns of 32 segments, and a publication that walks them."""
    client = WebSocket(address)

    def pattern(n):
        segments = ["*" if n >> bit & 1 else "s" for bit in range(8)] + ["s"] * 22
        return ".".join([*segments, f"n{n}", ">"])

    for start in range(0, 10_000, 1000):
        client.send(subscribe([pattern(n) for n in range(start, start + 1000)]))
        client.take()
    topic = ".".join(["s"] * 32)
    flood(client, (publish(topic, {"n": n}) for n in range(100_000)))


def presence_requests(address):
    """A request of 1 KB that names one topic 100 times."""
    crowd = [WebSocket(address) for _ in range(300)]
    for client in crowd:
        client.send(subscribe(["present.a"], presence={"says": "x" * 4000}))
    for client in crowd:
        client.take()
    question = {"t": "presence_request", "cid": "p", "p": {"topics": ["present.a"] * 100}}
    client = WebSocket(address)
    flood(client, (question for _ in range(2000)))


def queue_groups(address):
    """8,192 groups on a topic, with long names, whose member never acknowledges."""
    client = WebSocket(address)
    requests = (subscribe(["jobs.a"], queue_group=f"{n}" + "x" * 100_000, acknowledge=True) for n in range(200))
    flood(client, requests)
    requests = (subscribe(["jobs.a"], queue_group=f"g{n}", acknowledge=True) for n in range(8192))
    flood(client, requests)
    flood(client, (publish("jobs.a", {"text": "x" * 1000}) for _ in range(100_000)))


def presence_updates(address):
    """Repeated presence updates of 4 KB on 1,000 topics with other subscribers."""
    topics = [f"present.{n}" for n in range(1000)]
    readers = [WebSocket(address) for _ in range(10)]
    for reader in readers:
        reader.send(subscribe(topics))
    client = WebSocket(address)
    ends_at = time.monotonic() + ATTACK_S
    for n in range(1000):
        if time.monotonic() > ends_at:
            break
        try:
            client.send(subscribe(topics, presence={"n": n, "says": "x" * 4000}))
            for reader in [client, *readers]:
                reader.take()
        except OSError:
            break


def conflating(address):
    """10,000 conflating subscriptions of one connection that does not read."""
    client = WebSocket(address)
    for start in range(0, 10_000, 1000):
        client.send(subscribe([f"lossy.{n}" for n in range(start, start + 1000)], overload="conflate"))
    publisher = WebSocket(address)
    payload = {"text": "x" * 1000}
    flood(publisher, (publish(f"lossy.{n % 10_000}", payload) for n in range(200_000)))


def resumed_conflating(address):
    """10,000 conflating subscriptions of one connection that reads now and then."""
    client = WebSocket(address)
    for start in range(0, 10_000, 1000):
        client.send(subscribe([f"lossy.{n}" for n in range(start, start + 1000)], overload="conflate"))
    client.take()
    publisher = WebSocket(address)
    payload = {"text": "x" * 1000}
    ends_at = time.monotonic() + ATTACK_S
    while time.monotonic() < ends_at:
        try:
            for n in range(10_000):
                publisher.send(publish(f"lossy.{n}", payload))
            publisher.take()
            client.take()
        except OSError:
            return


def nested():
    """A batch of 1 MiB of small system messages."""
    topics = [f"t.{n}" for n in range(1000)]
    leave = {"t": "subscription_update", "p": {"action": "unsubscribe", "topics": topics}}
    return batch([*[{"t": "ping"}] * 900, *[subscribe(topics), leave] * 40])


def nested_messages(address):
    """1 MiB of nested small system messages."""
    flood(WebSocket(address), itertools.repeat(nested(), 1000))


def tree():
    """3.6 KB that say half a million maps: zlib of MessagePack."""
    nested = (b"\x81\xa0" * 57 + b"\x80") * 8_900
    packed = b"M:\x82\xa1t\xadconfig_update\xa1p\x81\xa1a\xdc" + struct.pack(">H", 8_900) + nested
    return frame(b"C:" + zlib.compress(packed, 9), opcode=2)


def trees(address):
    """Twenty connections with a small message of half a million maps each half second."""
    clients = [WebSocket(address) for _ in range(20)]
    message, ends_at = tree(), time.monotonic() + ATTACK_S
    while time.monotonic() < ends_at:
        for client in clients:
            client.socket.sendall(message)
        time.sleep(0.5)
        for client in clients:
            client.take()


def flood_from_four(address, frames):
    """Four connections send the same frames as fast as the server reads; one that is closed is opened again."""

    def flood_from_one():
        ends_at = time.monotonic() + ATTACK_S
        while time.monotonic() < ends_at:
            try:
                client = WebSocket(address)
                client.socket.settimeout(ends_at + 1 - time.monotonic())
                while time.monotonic() < ends_at:
                    for message in frames:
                        client.socket.sendall(message)
                    client.take()
                    client.socket.settimeout(max(0.1, ends_at + 1 - time.monotonic()))
            except OSError:
                time.sleep(0.01)

    four_at_once(flood_from_one)


def four_at_once(attack, *arguments):
    threads = [threading.Thread(target=attack, args=arguments) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def tree_flood(address):
    """Four connections with 1 MiB of nested MessagePack, again and again."""
    nested = (b"\x91" * 57 + b"\xc0") * 17_900
    packed = b"M:\x82\xa1t\xadconfig_update\xa1p\x81\xa1a\xdd" + struct.pack(">I", 17_900) + nested
    flood_from_four(address, [frame(packed, opcode=2)])


def text_trees(address):
    """Four connections with 1 MB of nested JSON, again and again."""
    one = b'{"":' * 57 + b"{}" + b"}" * 57
    message = b'{"t":"config_update","p":{"a":[' + b",".join([one] * (1_000_000 // (len(one) + 1))) + b"]}}"
    flood_from_four(address, [frame(message)])


def nested_flood(address):
    """Four connections with 1 MiB of nested small system messages, again and again."""
    flood_from_four(address, [frame(json.dumps(nested()).encode())])


def recovery_objects(address):
    """Four connections with as many positions to recover from as a message has room for."""
    epoch = {"epoch": "00000000", "offset": 0}
    recovery = {f"t.{n}": epoch for n in range(22_000)}
    message = subscribe(["t.1"], recover=True, recovery=recovery)
    flood_from_four(address, [frame(json.dumps(message, separators=(",", ":")).encode())])


def inflation_bombs(address):
    """Four connections with streams that inflate beyond the limit."""
    flood_from_four(address, [frame(b"C:" + zlib.compress(b" " * (2 << 20), 9), opcode=2)])


def metrics_batches(address):
    """Four connections with batches of questions about the server itself."""
    messages = json.dumps(batch([{"t": "metrics_request"}] * 1000), separators=(",", ":"))
    flood_from_four(address, [frame(messages.encode())])


def lagging_conflators(address):
    """Four times `resumed_conflating` at once."""
    four_at_once(resumed_conflating, address)


def slow_pattern_readers(address):
    """Subscribers to a pattern that never read, and a publisher to its topics."""
    readers = [WebSocket(address) for _ in range(200)]
    for reader in readers:
        reader.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.send(subscribe(["slow.*"]))
    publisher = WebSocket(address)
    flood(publisher, (publish(f"slow.{n % 10}", {"text": "x" * 1000}) for n in range(15_000)))


def producers(address):
    """Connections that each use their own producer, give every message an id, and fill their own histories."""
    ends_at = time.monotonic() + ATTACK_S
    number = 0
    while time.monotonic() < ends_at:
        try:
            client = WebSocket(address)
            hello = {"protocol_version": 1, "producer": {"id": f"producer-{number}"}}
            client.send({"t": "client_hello", "p": hello})
            for _ in range(20):
                number += 1
                client.send({**publish(f"kept.{number}", {"text": "x" * 500}), "id": f"id-{number}", "n": number})
            client.take()
            client.socket.close()
        except OSError:
            continue


def endings(address):
    """Connections with 10,000 subscriptions each that end at the same moment."""
    ends_at = time.monotonic() + ATTACK_S
    while time.monotonic() < ends_at:
        clients = [WebSocket(address) for _ in range(4)]
        for start in range(0, 10_000, 1000):
            for number, client in enumerate(clients):
                client.send(subscribe([f"s.{number}.{n}" for n in range(start, start + 1000)]))
        for client in clients:
            client.send({"t": "ping"})
            client.wait_for(b'"PONG"')
        for client in clients:
            client.socket.close()


def stuck_shard(address):
    """A shard that its application holds for three seconds, and publications for its subscribers."""
    held, publisher = on_shard(address, 1), on_shard(address, 0)
    held.send(subscribe(["public"]))
    held.wait_for(b"success_topics")
    held.send({"t": "hold"})
    flood(publisher, (publish("public", {"text": "x" * 1000}) for _ in range(100_000)))


stuck_shard.example = "held_shard"


def on_shard(address, shard):
    """A connection that the operating system has given to this shard."""
    while True:
        client = WebSocket(address)
        client.send({"t": "where"})
        client.wait_for(b'"here","p":')
        while not (number := client.buffer.partition(b'"here","p":')[2][:1]):
            client.buffer += client.socket.recv(1 << 20)
        if int(number) == shard:
            return client
        client.socket.close()


def silent_handshakes(address):
    """1,500 connections per second from another address that send nothing."""
    ends_at = time.monotonic() + ATTACK_S
    sockets = []
    while time.monotonic() < ends_at:
        for _ in range(15):
            try:
                sockets.append(socket.create_connection(address, timeout=1, source_address=("127.0.0.2", 0)))
            except OSError:
                break
        time.sleep(0.01)


ATTACKS = [
    filters,
    filtered_recovery,
    long_recoveries,
    compile_filters,
    deep_patterns,
    presence_requests,
    queue_groups,
    presence_updates,
    conflating,
    resumed_conflating,
    nested_messages,
    trees,
    tree_flood,
    text_trees,
    nested_flood,
    recovery_objects,
    inflation_bombs,
    metrics_batches,
    lagging_conflators,
    slow_pattern_readers,
    producers,
    endings,
    stuck_shard,
    silent_handshakes,
]
