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
    speaker = subscribers[0]
    speaker.say({"t": "read", "p": 0})
    frame, told = 0, 0
    warm = time.perf_counter() + WARM_S
    end = warm + options.seconds
    begun, started = None, 0.0
    while (now := time.perf_counter()) < end:
        for key, _ in selector.select(0.1):
            subscriber = key.data
            read = subscriber.socket.recv_into(buffer)
            if not read:
                raise SystemExit("the server ended a connection")
            frame = frame or frame_bytes(buffer)
            subscriber.bytes += read
        if frame and (least := min(subscriber.bytes for subscriber in subscribers) // frame) >= told + STEP:
            told = least
            speaker.say({"t": "read", "p": told})
        if begun is None and now >= warm:
            begun, started = sum(subscriber.bytes for subscriber in subscribers), now
    total = sum(subscriber.bytes for subscriber in subscribers) - begun
    elapsed = time.perf_counter() - started
    print(json.dumps({"deliveries_per_s": total / frame / elapsed, "frame_bytes": frame}))


def frame_bytes(received: bytearray) -> int:
    if received[0] != 0x81 or received[1] >= 126:
        raise SystemExit(f"expected short text frames, not {received[:20]!r}")
    return 2 + received[1]


WARM_S = 0.5
STEP = 100  # publications after which the server hears how far the slowest is

if __name__ == "__main__":
    main()
