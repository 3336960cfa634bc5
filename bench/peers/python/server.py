"""Tidewire driven from Python: the ways to receive, to answer and to publish, for compare.py.

Prints what it took at the end, so that the generator's count can be checked from this side of the boundary too.
"""

import argparse
import asyncio
import json
import os
import signal
import sys

import tidewire
from trade import trade

UNLIMITED = 4_000_000_000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--mode", choices=MODES, required=True)
    parser.add_argument("--profile", choices=["v1", "open", "raw"], default="raw")
    parser.add_argument("--queue-bytes", type=int, default=1 << 20)
    parser.add_argument("--window", type=int, default=1_000, help="publications that may be ahead of the subscribers")
    options = parser.parse_args()
    server = tidewire.Server(
        port=options.port,
        shards=1,
        protocol="raw" if options.profile == "raw" else "v1",
        jwt_secret=os.environ["TIDEWIRE_JWT_SECRET"] if options.profile == "v1" else None,
        no_auth=options.profile != "v1",
        topics_open=True,
        rate_limit_capacity=UNLIMITED,
        rate_limit_refill_per_s=UNLIMITED,
        queue_bytes_max=options.queue_bytes,
        ops_listen="127.0.0.1:0",
    )
    signal.signal(signal.SIGTERM, lambda *_: server.stop())
    server.start()
    print(f"listening on {server.url}", flush=True)
    host, port = server.ops_address
    print(f"operations on http://{host}:{port}", flush=True)
    MODES[options.mode](server, options.window)


def length(server: tidewire.Server, _: int) -> None:
    count = bytes_taken = 0
    for batch in server.batches():
        for message in batch:
            if message.kind == "message":
                count += 1
                bytes_taken += len(message.data)
    print(f"took {count} messages, {bytes_taken} bytes", flush=True)


def payload(server: tidewire.Server, _: int) -> None:
    count = 0
    for batch in server.batches():
        for message in batch:
            if message.kind == "message":
                message.json()["p"]
                count += 1
    print(f"took {count} messages", flush=True)


def echo(server: tidewire.Server, _: int) -> None:
    for batch in server.batches():
        server.send_raw_many((message, message) for message in batch if message.kind == "message")


def echo_handlers(server: tidewire.Server, _: int) -> None:
    @server.on("*")
    async def answer(message: tidewire.Message) -> None:
        message.connection.send_raw(message)

    asyncio.run(server.serve())


def publish(server: tidewire.Server, window: int) -> None:
    send_by(server, window, lambda _: [server.publish("fan-out", FAN_OUT, type="tick") for _ in range(100)])


def publish_many(server: tidewire.Server, window: int) -> None:
    send_by(server, window, lambda _: server.publish_many("fan-out", [FAN_OUT] * 100, type="tick"))


def send_trades(server: tidewire.Server, window: int) -> None:
    """To the last reader what a publication looks like, as fast as it can be sent, to find out what a client takes."""
    publication = json.dumps({"c": "U", "t": "trade", "tp": "fan-out", "p": TRADE}, separators=(",", ":"))
    send_by(server, window, lambda reader: server.send_raw_many([(reader, publication)] * 100))


def send_by(server, window, send_some) -> None:
    """Sends a hundred at a time, at most a window ahead of what the readers say that they have read."""
    sent, room, reader = 0, 0, None
    while True:
        try:
            if sent + 100 <= room:
                send_some(reader)
                sent += 100
                continue
            for message in server.receive(timeout_ms=1000):
                if message.kind == "message":
                    reader = message.connection
                    sent = sent if message.payload else 0  # 0 is what a new reader says
                    room = message.payload + window
        except tidewire.StoppedError:
            return


FAN_OUT = {"x": "01234567890123456789012345678901234567890123456"}  # 95 bytes as a message
TRADE = trade(note_bytes=22)  # 175 bytes as a publication
MODES = {
    "length": length,
    "payload": payload,
    "echo": echo,
    "echo-handlers": echo_handlers,
    "publish": publish,
    "publish-many": publish_many,
    "send-trades": send_trades,
}

if __name__ == "__main__":
    sys.exit(main())
