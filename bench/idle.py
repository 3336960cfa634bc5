"""Plain sockets that each exchange one compressed message with an echo server and then stay idle."""

import base64
import contextlib
import json
import os
import random
import socket
import urllib.parse
import zlib

MESSAGE_BYTES = 1024
TAIL = b"\x00\x00\xff\xff"  # RFC 7692, section 7.2.1: not sent


@contextlib.contextmanager
def connections(url, count, offer):
    """`count` connections on which permessage-deflate was agreed as `offer` asks."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(exchanged(url, offer)) for _ in range(count)]


def exchanged(url, offer):
    parts = urllib.parse.urlsplit(url)
    peer = socket.create_connection((parts.hostname, parts.port), timeout=10)
    key = base64.b64encode(os.urandom(16)).decode()
    request = (
        f"GET {parts.path or '/'} HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
        f"Sec-WebSocket-Extensions: {offer}\r\n\r\n"
    )
    peer.sendall(request.encode())
    answer = read_until(peer, b"\r\n\r\n").decode()
    if " 101 " not in answer.splitlines()[0] or "permessage-deflate" not in answer:
        raise SystemExit(f"{url} does not accept permessage-deflate: {answer.splitlines()[0]}")
    message = trades()
    peer.sendall(compressed_frame(message))
    if read_message(peer) != message:
        raise SystemExit(f"{url} does not echo")
    return peer


def trades():
    """JSON as a market sends it, of about a kilobyte."""
    trades = []
    while len(json.dumps(trades)) < MESSAGE_BYTES:
        price, quantity = random.randrange(100, 10**7) / 100, random.randrange(1, 10**6) / 10**6
        symbol, side = random.choice(["BTC-USD", "ETH-USD", "AAPL", "NVDA"]), random.choice(["buy", "sell"])
        trades.append({"symbol": symbol, "price": price, "quantity": quantity, "side": side})
    return json.dumps(trades).encode()


def compressed_frame(message):
    compressor = zlib.compressobj(6, zlib.DEFLATED, -15)
    payload = (compressor.compress(message) + compressor.flush(zlib.Z_SYNC_FLUSH)).removesuffix(TAIL)
    mask = os.urandom(4)
    masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
    return b"\xc1\xfe" + len(payload).to_bytes(2, "big") + mask + masked


def read_message(peer):
    """The content of a frame, which has to be compressed."""
    first, short = read_exactly(peer, 2)
    if first != 0xC1:
        raise SystemExit(f"a frame starts with {first:#x} and is no compressed text")
    length = int.from_bytes(read_exactly(peer, 2), "big") if short == 126 else short
    payload = read_exactly(peer, length)
    return zlib.decompressobj(-15).decompress(payload + TAIL)


def read_exactly(peer, count):
    received = b""
    while len(received) < count:
        part = peer.recv(count - len(received))
        if not part:
            raise SystemExit("the server ended a connection")
        received += part
    return received


def read_until(peer, end):
    received = b""
    while not received.endswith(end):
        received += read_exactly(peer, 1)
    return received
