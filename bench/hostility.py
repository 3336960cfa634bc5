"""Attacks a server as a hostile client does, with default limits, and measures how long other clients wait.

    make hostility                         every attack, five runs, writes bench/HOSTILITY.md
    bench/hostility.py --only filters --runs 1
    bench/hostility.py --tls --runs 3          all connections over TLS
    bench/hostility.py --before OLD/tidewire   another program beside ours, each run in turn

Six well-behaved connections, three on each shard or so, send a ping every 5 ms and wait for the answer. One run is a
server of its own: two seconds undisturbed, then the attack, which ends by itself after some seconds. The figure is the
longest wait of one of the six for an answer. The page also shows the same figure without an attack, how long a newcomer
waits for the answer to its opening handshake (one comes every 100 ms), and the largest memory of the server.
"""

import argparse
import base64
import json
import multiprocessing
import os
import pathlib
import re
import select
import signal
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
WITNESSES = 6
QUIET_S = 2.0
ATTACK_S = 4.0
# After an attack the witnesses go on for so long at most until one answer comes.
ANSWER_S_MAX = 60.0
DELAY_MS_MAX = 50.0
OPENING_MS_MAX = 100.0

# Over TLS: what the clients use, and the server's files.
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
        self.socket.sendall(
            f"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
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
    """Where a server listens, and whether with TLS."""

    def __new__(cls, host, port, is_tls=False):
        address = super().__new__(cls, (host, port))
        address.is_tls = is_tls
        return address

    def __reduce__(self):
        return Address, (*self, self.is_tls)


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


# The attacks. Each is called in a process of its own, and ends by itself.

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
    requests = (
        subscribe([f"public.{n}"], filter=costly_filter(n, SMALL_REGEXES)) for n in range(1500)
    )
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
    requests = (
        subscribe(["jobs.a"], queue_group=f"{n}" + "x" * 100_000, acknowledge=True) for n in range(200)
    )
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


def nested_messages(address):
    """1 MiB of nested small system messages."""
    pings = [{"t": "ping"}] * 1000
    topics = [f"t.{n}" for n in range(1000)]
    update = subscribe(topics)
    leave = {"t": "subscription_update", "p": {"action": "unsubscribe", "topics": topics}}
    client = WebSocket(address)
    flood(client, (batch([*pings[:900], *[update, leave] * 40]) for _ in range(1000)))


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
    slow_pattern_readers,
    producers,
    endings,
    stuck_shard,
    silent_handshakes,
]


class Server:
    """A server with default limits, two shards, and rights of an ordinary user."""

    def __init__(self, program, attack, tls):
        command = example(attack) or self.options(program, tls)
        self.process = subprocess.Popen(
            [*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        for line in self.process.stdout:
            found = re.search(r"127\.0\.0\.1:(\d+)", line)
            if found:
                self.address = Address("127.0.0.1", int(found[1]), bool(tls))
                return
        raise SystemExit(f"{command[0]} does not start")

    @staticmethod
    def options(program, tls):
        groups = ["--client-queue-group-allow", "jobs.>"]
        flags = ["--no-auth", "--app", "sink", "--listen", "127.0.0.1:0", "--shards", "2"]
        topics = "public,public.>,kept.>,present.>,jobs.>,lossy.>,slow.>,s.>,*.>,t.>"
        flags += ["--client-subscribe-allow", topics, "--client-subscribe-deny", "forbidden.>"]
        flags += ["--client-publish-allow", ">", "--client-presence-allow", "present.>"]
        flags += ["--history", "kept.>=1000", "--presence", "present.>"]
        has_groups = "--client-queue-group-allow" in help_of(program)
        return [program, "serve", *flags, *(groups if has_groups else []), *tls]

    def memory_mb(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024

    def stop(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def example(attack):
    """The server of an attack that needs an application of its own."""
    name = getattr(attack, "example", None)
    return name and [TARGET / "release" / "examples" / name]


def help_of(program):
    return subprocess.run([program, "serve", "--help"], capture_output=True, text=True, check=False).stdout


def witness(address, results, stop, attack):
    """Sends a ping every 5 ms from each of six connections and notes the longest wait since it was asked last."""
    # Whoever is on a held shard waits.
    client = (lambda: on_shard(address, 0)) if example(attack) else (lambda: WebSocket(address))
    clients = [client() for _ in range(WITNESSES)]
    for client in clients:
        client.take()
    asked = dict.fromkeys(clients)
    longest = 0.0
    while True:
        now = time.monotonic()
        for client in clients:
            if asked[client] is None and not stop.is_set():
                client.socket.send(frame(b"w", opcode=9))
                asked[client] = now
        ready, _, _ = select.select([client.socket for client in clients], [], [], 0.005)
        now = time.monotonic()
        for client in clients:
            if client.socket in ready:
                data = client.received()
                if data is None:
                    continue
                if not data:
                    results.put(("gone", 0.0))
                    return
                # A pong with one byte, among whatever else is said.
                if b"\x8a\x01w" in data and asked[client] is not None:
                    longest = max(longest, now - asked[client])
                    asked[client] = None
        waits = [now - since for since in asked.values() if since is not None]
        if results.empty():
            results.put(("longest", max([longest, *waits])))
            longest = 0.0
        if stop.is_set() and not waits:
            return


def newcomer(address, longest):
    """Opens a session every 100 ms and notes the longest time until its handshake is answered."""
    while True:
        began = time.monotonic()
        try:
            WebSocket(address).socket.close()
            took = time.monotonic() - began
        except OSError:
            took = float("inf")
        longest.value = max(longest.value, took * 1000)
        time.sleep(0.1)


def longest_wait(results, seconds):
    """The longest wait in the next so many seconds, in milliseconds."""
    worst, ends_at = 0.0, time.monotonic() + seconds
    while time.monotonic() < ends_at:
        kind, wait = results.get(timeout=ANSWER_S_MAX)
        if kind == "gone":
            return float("inf")
        worst = max(worst, wait * 1000)
        time.sleep(0.02)
    return worst


def run(program, attack, tls):
    """One run: the longest wait without and with the attack, that of newcomers during it, and the memory."""
    server = Server(program, attack, tls)
    results, stop = multiprocessing.Queue(), multiprocessing.Event()
    watcher = multiprocessing.Process(target=witness, args=(server.address, results, stop, attack), daemon=True)
    watcher.start()
    attacker, newcomers, opening = None, None, multiprocessing.Value("d", 0.0)
    try:
        longest_wait(results, 0.5)
        quiet = longest_wait(results, QUIET_S)
        # Whoever comes to a held shard waits for it.
        if not example(attack):
            newcomers = multiprocessing.Process(target=newcomer, args=(server.address, opening), daemon=True)
            newcomers.start()
        attacker = multiprocessing.Process(target=attack, args=(server.address,), daemon=True)
        attacker.start()
        worst = 0.0
        while attacker.is_alive():
            worst = max(worst, longest_wait(results, 0.5))
        # What the attack has left behind counts as well.
        worst = max(worst, longest_wait(results, 1.0))
        return quiet, worst, opening.value, server.memory_mb()
    finally:
        for process in (attacker, newcomers, watcher):
            if process is not None:
                process.kill()
                process.join()
        server.stop()


def shown(values):
    return f"{statistics.median(values):.0f}" if values else "-"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="*", metavar="ATTACK")
    parser.add_argument("--before", metavar="PROGRAM", help="another version, measured in turns with ours")
    parser.add_argument("--tls", action="store_true", help="every connection over TLS")
    parser.add_argument("--write", metavar="FILE", help="where the page goes")
    arguments = parser.parse_args()
    programs = [("ours", TARGET / "release" / "tidewire")]
    if arguments.before:
        programs.insert(0, ("before", arguments.before))
    attacks = [a for a in ATTACKS if not arguments.only or a.__name__ in arguments.only]
    if arguments.tls:
        # The server of an example has no TLS.
        attacks = [a for a in attacks if not example(a)]
    with tempfile.TemporaryDirectory() as folder:
        lines, failed = measured(attacks, programs, arguments.runs, certificate(folder) if arguments.tls else [])
    if arguments.write:
        write_section(pathlib.Path(arguments.write), TITLES[arguments.tls], lines)
    if failed:
        print(f"above the limit: {', '.join(failed)}", file=sys.stderr)
        sys.exit(1)


def measured(attacks, programs, runs, tls):
    """The lines of the table, and the attacks that delay others for too long."""
    lines = [
        f"Medians of {runs} runs.",
        "",
        "| attack | " + " | ".join(f"{n}: undisturbed | attacked | newcomer | memory" for n, _ in programs) + " |",
        "|---|" + "---|" * 4 * len(programs),
    ]
    print(*lines, sep="\n", flush=True)
    failed = []
    for attack in attacks:
        rows = {name: [] for name, _ in programs}
        for _ in range(runs):
            for name, program in programs:
                rows[name].append(run(program, attack, tls))
        cells = []
        for name, _ in programs:
            quiet, worst, opening, memory = ([row[i] for row in rows[name]] for i in range(4))
            cells += [f"{shown(quiet)} ms", f"{shown(worst)} ms", f"{shown(opening)} ms", f"{shown(memory)} MB"]
            is_slow = statistics.median(worst) > DELAY_MS_MAX or statistics.median(opening) > OPENING_MS_MAX
            if name == "ours" and is_slow:
                failed.append(attack.__name__)
        does = " ".join(attack.__doc__.split())
        lines.append(f"| {does} (`{attack.__name__}`) | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    return lines, failed


def certificate(folder):
    """The options of a server with a certificate of its own."""
    chain, key = pathlib.Path(folder, "chain.pem"), pathlib.Path(folder, "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=localhost", "-keyout", str(key), "-out", str(chain)]
    subprocess.run(command, check=True, capture_output=True)
    return ["--tls-certificate", chain, "--tls-key", key]


TITLES = {False: "## Without TLS", True: "## Over TLS"}
HEAD = f"""# Hostile clients

The longest wait of six well-behaved connections during an attack, in milliseconds, and the largest resident
memory of the server; by `make hostility`. The limit is {DELAY_MS_MAX:.0f} ms, and for the opening handshake of a newcomer, one
every 100 ms, {OPENING_MS_MAX:.0f} ms. Attacker, observers and server share two cores: the operating system causes part of each wait.
"""
FOOT = """## Before the limits

The first measurement of these attacks, before the engine metered work and charged memory: the longest wait of
well-behaved connections, whose undisturbed maximum was 11 ms, and the memory.

| attack | wait | memory |
|---|---|---|
| `filters` | 19 s | 1.7 GB |
| `filtered_recovery` | 5.1 s | |
| `compile_filters` | 2.8 s | |
| `deep_patterns` | 30 s | 255 MB |
| `presence_requests` | 0.9 s | 1.1 GB |
| `queue_groups` | 60 s (the backend's publications) | 966 MB |
| `presence_updates` | half of the subscribers cut off | 4.9 GB sent |
| `conflating`, `resumed_conflating`, `nested_messages`, `long_recoveries` | 0.1 to 1.1 s | |
| `slow_pattern_readers` | | 1.7 GB |
| `stuck_shard` | publishing never answered | |
| `silent_handshakes` | 1.9 s for newcomers, with TLS 3.7 s | |
"""


def write_section(page, title, lines):
    """Writes one section of the page and leaves the other one as it is."""
    old = page.read_text() if page.exists() else ""
    sections = {part.split("\n", 1)[0]: part.strip() for part in ("\n" + old).split("\n## ")[1:]}
    sections = {f"## {name}": f"## {part}" for name, part in sections.items()}
    sections[title] = "\n".join([title, "", *lines])
    kept = [sections[title] for title in TITLES.values() if title in sections]
    page.write_text("\n\n".join([HEAD.strip(), *kept, FOOT.strip()]) + "\n")


if __name__ == "__main__":
    main()
