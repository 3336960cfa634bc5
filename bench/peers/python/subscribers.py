"""Subscribers that only count: so many plain sockets, read as fast as they can be.

Prints how many publications a second they got, all of one length. A server that had to drop one would end its
connection, which is told here.
"""

import argparse
import json
import os
import selectors
import socket
import time
from urllib.parse import urlsplit

HANDSHAKE = (
    "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


class Subscriber:
    """Counts frames by their lengths, whatever the pieces are in which they come."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.socket = socket.create_connection((parts.hostname, parts.port))
        self.socket.sendall(HANDSHAKE.format(path=parts.path or "/", host=parts.netloc).encode())
        self.rest = self.until(b"\r\n\r\n", b"")
        request = {"action": "subscribe", "topics": ["fan-out"]}
        self.say({"t": "subscription_update", "p": request})
        self.rest = self.until(b'"subscription_update"', self.rest)
        self.rest = self.until(b'"v":1}', self.rest)
        self.bytes = len(self.rest)

    def until(self, mark: bytes, received: bytes) -> bytes:
        while mark not in received:
            received += self.socket.recv(65536)
        return received.split(mark, 1)[1]

    def say(self, message: dict) -> None:
        payload = json.dumps(message).encode()
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
        length = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + len(payload).to_bytes(2, "big")
        self.socket.sendall(b"\x81" + length + mask + masked)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--subscribers", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    subscribers = [Subscriber(options.url) for _ in range(options.subscribers)]
    selector = selectors.DefaultSelector()
    for subscriber in subscribers:
        subscriber.socket.setblocking(False)
        selector.register(subscriber.socket, selectors.EVENT_READ, subscriber)
    buffer = bytearray(1 << 20)
    first = None
    started = time.perf_counter()
    begun = {}
    warm = started + 0.5
    end = warm + options.seconds
    while (now := time.perf_counter()) < end:
        if not begun and now >= warm:
            begun = {subscriber: subscriber.bytes for subscriber in subscribers}
            started = now
        for key, _ in selector.select(0.1):
            subscriber = key.data
            read = subscriber.socket.recv_into(buffer)
            if not read:
                raise SystemExit("the server ended a connection")
            if first is None:
                first = bytes(buffer[: min(read, 400)])
            subscriber.bytes += read
    elapsed = time.perf_counter() - started
    frame = 2 + first[1]
    if first[0] != 0x81 or first[1] >= 126:
        raise SystemExit(f"expected short text frames, not {first[:20]!r}")
    total = sum(subscriber.bytes - begun[subscriber] for subscriber in subscribers)
    print(json.dumps({"deliveries_per_s": total / frame / elapsed, "frame_bytes": frame}))


if __name__ == "__main__":
    main()
