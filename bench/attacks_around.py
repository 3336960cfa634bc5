"""Attacks on what a server has around it and in common: its backend, its log, its memory of nonces and of unfinished
messages. hostility.py measures what they do to others."""

import base64
import contextlib
import hashlib
import hmac
import http.server
import json
import os
import resource
import select
import struct
import threading
import time

from attacks import ATTACK_S, Address, WebSocket, frame, subscribe

SECRET = b"0123456789abcdef0123456789abcdef"
# The peer of the other address of this machine: another owner at a server without tokens.
OTHER = "127.0.0.2"


class CutOffError(Exception):
    """An honest client lost what it was due: the connection, a subscription, or the acceptance of a message."""


def token(user):
    """A token of HS256."""

    def part(data):
        return base64.urlsafe_b64encode(data).rstrip(b"=")

    claims = {"sub": user, "exp": int(time.time()) + 3600}
    text = part(b'{"alg":"HS256"}') + b"." + part(json.dumps(claims).encode())
    return (text + b"." + part(hmac.digest(SECRET, text, "sha256"))).decode()


def presence_floods(address):
    """Presence updates on 1,000 topics with 4 KB each, and ten honest subscribers that read 20 MB/s."""
    topics = [f"present.{n}" for n in range(1000)]
    readers = [WebSocket(address, OTHER) for _ in range(10)]
    for reader in readers:
        reader.send(subscribe(topics))
        reader.wait_for(b"success_topics")
    client = WebSocket(address)
    began, sent_bytes, read_bytes = time.monotonic(), 0, dict.fromkeys(readers, 0)
    number = 0
    while (passed := time.monotonic() - began) < ATTACK_S + 2:
        with contextlib.suppress(OSError):
            # 310 KB/s.
            if sent_bytes < 310_000 * passed:
                number += 1
                message = subscribe(topics, presence={"n": number, "says": "x" * 4000})
                client.send(message)
                sent_bytes += len(json.dumps(message))
            client.take()
        ready, _, _ = select.select([reader.socket for reader in readers], [], [], 0.001)
        for reader in readers:
            if reader.socket in ready and read_bytes[reader] < 20_000_000 * passed:
                data = reader.received()
                if data == b"" or (data and b'"reconnect"' in data):
                    raise CutOffError("a subscriber that reads 20 MB/s was cut off")
                read_bytes[reader] += len(data or b"")


def unfinished_messages(address):
    """1,000 connections of one user with an unfinished message of almost 1 MiB each, and one byte every 2 s."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    clients = []
    for _ in range(1000):
        try:
            client = WebSocket(address)
            head = struct.pack("!BBQ", 0x01, 0xFF, 1_048_000) + b"\0\0\0\0"
            client.socket.sendall(head + b" " * 1_000_000)
            clients.append(client)
        except OSError:
            continue
    ends_at = time.monotonic() + ATTACK_S
    while time.monotonic() < ends_at:
        for client in clients:
            with contextlib.suppress(OSError):
                client.socket.sendall(b" ")
        time.sleep(2)


def signed(number, body=b'{"n":1}'):
    """A message with a signature of version 1."""
    digest = BODY_HASH if body == b'{"n":1}' else hashlib.sha256(body).hexdigest()
    text = f"{digest}:{int(time.time())}:{number:032x}"
    mac = hmac.digest(SECRET, text.encode(), "sha256").hex()
    return b'{"t":"x","p":' + body + b',"sig":"' + text.encode() + b":" + mac.encode() + b'"}'


BODY_HASH = hashlib.sha256(b'{"n":1}').hexdigest()
SIGNATURE_CONNECTIONS = 6
# More than the server remembers.
SIGNATURES = 1_020_000


@contextlib.contextmanager
def signed_before():
    """The messages of `nonces`, signed before the server starts: signing takes as long as the server's check of it."""
    numbers = range(0, SIGNATURES, SIGNED_PER_WRITE)
    writes = [b"".join(frame(signed(n)) for n in range(first, first + SIGNED_PER_WRITE)) for first in numbers]
    SIGNED.extend(writes)
    try:
        yield {}
    finally:
        SIGNED.clear()


SIGNED_PER_WRITE = 200
SIGNED = []


def signature_flood(address, writes):
    client = WebSocket(address)
    for frames in writes:
        try:
            client.socket.sendall(frames)
            client.take()
        except OSError:
            client = WebSocket(address)
    client.send({"t": "ping"})
    client.wait_for(b'"PONG"')


def nonces(address):
    """Six connections of one owner sign a million messages (version 1); then an honest client signs one."""
    children = []
    for index in range(SIGNATURE_CONNECTIONS):
        child = os.fork()
        if child == 0:
            with contextlib.suppress(OSError):
                signature_flood(address, SIGNED[index::SIGNATURE_CONNECTIONS])
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    honest = WebSocket(address, OTHER)
    honest.socket.sendall(frame(signed(1 << 100)))
    honest.send({"t": "ping"})
    said = honest.buffer
    while b'"PONG"' not in said:
        said += honest.socket.recv(1 << 16)
    if b"INVALID_MESSAGE" in said:
        raise CutOffError("an honest signed message was refused")


nonces.around = signed_before
nonces.options = ["--signature-secret", SECRET.decode()]


# The backend.


class Backend(http.server.BaseHTTPRequestHandler):
    """Answers `connect` with 204, and a `request` as the client asks for it."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = 204
        if isinstance(event, dict) and event.get("event") == "request":
            if event["type"] == "slow":
                time.sleep(60)
            status = 500 if event["type"] == "fail" else 200
        self.send_response(status)
        body = b'{"payload":1}' if status == 200 else b""
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def backend():
    """A backend on a thread of its own; gives the options of the server."""

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, *_):
            """The attacked server gives up what takes too long."""

    server = Server(("127.0.0.1", 0), Backend)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}/"
        yield {"options": ["--backend", url, "--backend-events", "connect,request"]}
    finally:
        server.shutdown()
        server.server_close()


def backend_errors(address):
    """One client's requests make a handler of the backend answer 500, ten at once, five times a second."""
    client = WebSocket(address, OTHER)
    ends_at = time.monotonic() + ATTACK_S
    for number in range(10_000):
        if time.monotonic() > ends_at:
            return
        client.send({"t": "call_request", "cid": f"{number}", "p": {"type": "fail", "payload": 1}})
        client.take()
        if number % 10 == 9:
            time.sleep(0.2)


def backend_slow(address):
    """One user's requests, each of which keeps a handler of the backend for a minute."""
    client = WebSocket(address, OTHER)
    for number in range(90):
        client.send({"t": "call_request", "cid": f"{number}", "p": {"type": "slow", "payload": 1}})
        client.take()
    time.sleep(ATTACK_S)


backend_errors.around = backend
backend_slow.around = backend


# The log.


@contextlib.contextmanager
def stuck_log():
    """Standard error of the server is a pipe that nobody reads, and that is full once the server runs."""
    reading, writing = os.pipe()

    def fill():
        # Opened anew, because the server shares the flags of its own end.
        filling = os.open(f"/proc/self/fd/{writing}", os.O_WRONLY | os.O_NONBLOCK)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(filling, b"x" * 4096)
        os.close(filling)

    options = ["--jwt-secret", SECRET.decode()]
    try:
        yield {"options": options, "without": ["--no-auth"], "stderr": writing, "started": fill}
    finally:
        os.close(reading)
        os.close(writing)


def refused_handshakes(address):
    """A stranger's handshakes without a token, while nobody reads the server's standard error."""
    ends_at = time.monotonic() + ATTACK_S
    without_token = Address(*address, address.is_tls)
    while time.monotonic() < ends_at:
        with contextlib.suppress(OSError):
            WebSocket(without_token, OTHER)


refused_handshakes.around = stuck_log
# The honest clients show one.
refused_handshakes.token = token


AROUND = [
    presence_floods,
    unfinished_messages,
    nonces,
    backend_errors,
    backend_slow,
    refused_handshakes,
]
