"""Tidewire driven from Python: the ways to receive, to answer and to publish, for compare.py.

Prints what it took at the end, so that the generator's count can be checked from this side of the boundary too.
"""

import argparse
import asyncio
import os
import signal
import sys

import tidewire

UNLIMITED = 4_000_000_000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--mode", choices=MODES, required=True)
    parser.add_argument("--profile", choices=["v1", "open", "raw"], default="raw")
    parser.add_argument("--queue-bytes", type=int, default=1 << 20)
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
    MODES[options.mode](server)


def length(server: tidewire.Server) -> None:
    count = bytes_taken = 0
    for batch in server.batches():
        for message in batch:
            if message.kind == "message":
                count += 1
                bytes_taken += len(message.data)
    print(f"took {count} messages, {bytes_taken} bytes", flush=True)


def payload(server: tidewire.Server) -> None:
    count = 0
    for batch in server.batches():
        for message in batch:
            if message.kind == "message":
                message.json()["p"]
                count += 1
    print(f"took {count} messages", flush=True)


def echo(server: tidewire.Server) -> None:
    for batch in server.batches():
        server.send_raw_many((message, message) for message in batch if message.kind == "message")


def echo_handlers(server: tidewire.Server) -> None:
    @server.on("*")
    async def answer(message: tidewire.Message) -> None:
        message.connection.send_raw(message)

    asyncio.run(server.serve())


def publish(server: tidewire.Server) -> None:
    publish_by(server, lambda: [server.publish("fan-out", FAN_OUT, type="tick") for _ in range(100)])


def publish_many(server: tidewire.Server) -> None:
    publish_by(server, lambda: server.publish_many("fan-out", [FAN_OUT] * 100, type="tick"))


def publish_by(server, publish_some) -> None:
    """Publishes a hundred at a time, at most a window ahead of what the subscribers say that they have read."""
    published, room = 0, 0
    while True:
        try:
            if published + 100 <= room:
                publish_some()
                published += 100
                continue
            for message in server.receive(timeout_ms=1000):
                if message.kind == "message":
                    published = published if message.payload else 0  # 0 is what a new subscriber says
                    room = message.payload + WINDOW
        except tidewire.StoppedError:
            return


WINDOW = 1_000
FAN_OUT = {"x": "01234567890123456789012345678901234567890123456"}  # 95 bytes as a message
MODES = {
    "length": length,
    "payload": payload,
    "echo": echo,
    "echo-handlers": echo_handlers,
    "publish": publish,
    "publish-many": publish_many,
}

if __name__ == "__main__":
    sys.exit(main())
